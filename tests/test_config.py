"""Composition and checks: every file composes, and everything bad gets one clear message before anything starts."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sweep.config import ROOT, compose, missing_upstream, to_plan
from sweep.core import verl_keys as keys
from sweep.core.overrides import Overrides
from sweep.core.stage import BracketRule, ConfirmRule, EtaRule, LadderRule, SearchRule
from sweep.core.trial import Measure
from sweep.errors import ConfigError
from sweep.guard_settings import hardware_limits_of, limits_of, preflight_limits_of
from sweep.health.hardware import HardwareLimits
from sweep.health.limits import Limits
from sweep.health.preflight.limits import PreflightLimits
from sweep.stages import objective

MODELS = sorted(p.stem for p in (ROOT / "conf" / "model").glob("*.yaml"))
TASKS = sorted(p.stem for p in (ROOT / "conf" / "task").glob("*.yaml"))
CLUSTERS = sorted(p.stem for p in (ROOT / "conf" / "cluster").glob("*.yaml"))
SCHEDULES = sorted(p.stem for p in (ROOT / "conf" / "schedule").glob("*.yaml"))
STAGES = sorted(p.stem for p in (ROOT / "sweeps").glob("*.yaml"))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("task", TASKS)
def test_every_model_composes_with_every_task(model: str, task: str):
    plan = to_plan(compose([f"model={model}", f"task={task}"]))
    assert plan.model.name == model
    assert plan.base.get(keys.TRAIN_BATCH) % plan.base.get(keys.MINI_BATCH) == 0


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_cluster_composes_and_a_given_one_is_filled(cluster: str):
    assert to_plan(compose([f"cluster={cluster}"])).slots == (0 if cluster == "ray" else 1)


def test_the_learning_rate_is_constant_as_in_verl_or_the_articles_cosine_with_200_steps_of_warm_up():
    constant, cosine = (to_plan(compose([f"schedule={name}"])).base for name in SCHEDULES)
    assert constant == to_plan(compose([])).base
    assert cosine == constant.merged({keys.ACTOR_SCHEDULER: "cosine", keys.ACTOR_WARMUP_STEPS: 200})
    own = to_plan(compose(["schedule=cosine", f'verl=["{keys.ACTOR_WARMUP_STEPS}=20"]'])).base
    assert own.get(keys.ACTOR_WARMUP_STEPS) == 20


def test_every_file_in_sweeps_is_a_stage_and_the_four_come_in_their_order():
    plan = to_plan(compose([]))
    assert sorted(s.name for s in plan.stages) == [name for name in STAGES if name != "retest"]
    assert [s.name for s in plan.stages][:4] == ["minibatch", "kl", "token_budget", "lr_lambda"]
    rules = {s.name: type(s.rule) for s in plan.stages}
    assert rules["minibatch"] is rules["kl"] is rules["lr_lambda"] is BracketRule
    assert rules["token_budget"] is LadderRule
    assert rules["confirm"] is ConfirmRule


def test_the_articles_method_is_there_in_full_by_a_setting_a_stage():
    asked = ["minibatch.rule=article", "kl.rule=search", "lr_lambda.rule=ladder"]
    plan = to_plan(compose([f"stages.{line}" for line in asked]))
    assert plan.stage("minibatch").rule == EtaRule(literal=True)
    assert type(plan.stage("kl").rule) is SearchRule
    assert type(plan.stage("lr_lambda").rule) is LadderRule


def test_the_confirmation_comes_last_and_can_be_left_out_and_the_retest_taken_in():
    plan = to_plan(compose(["confirm.seeds=2", "confirm.retest=true"]))
    assert [s.name for s in plan.stages][4:] == ["retest", "confirm"]
    assert plan.upstream_of(plan.stage("confirm")) == ("minibatch", "kl", "token_budget", "lr_lambda", "retest")
    assert not set(plan.seeds_of(plan.stage("confirm"))) & set(plan.seeds)
    assert [s.name for s in to_plan(compose(["confirm.seeds=0"])).stages][4:] == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("bracket.most_points=1", "at least 2"),
        ("bracket.moves=0", "at least 1"),
        ("bracket.first_factor=1.0", "positive, not 1"),
        ("bracket.first_factor=0", "above 0, got 0"),
        ("bracket.near_share=1.0", "at least 0 and below 1, got 1.0"),
        ("knobs.kl_coef.high=0.0005", "needs a range"),
    ],
)
def test_a_bracket_that_cannot_move_is_refused(line: str, says: str):
    key, _, value = line.partition("=")
    plus = "++" if key.startswith("bracket") else ""
    with pytest.raises(ConfigError, match=says):
        to_plan(compose([f"{plus}stages.kl.{key}={value}"]))


def test_the_kl_controller_reads_every_100_steps_and_three_times_in_a_shorter_trial():
    def interval(*overrides: str) -> object:
        return to_plan(compose(list(overrides))).stage("kl").fixed.get(keys.BAND_INTERVAL)

    assert interval("model=qwen2.5-7b") == interval("budget.steps=300") == 100
    assert interval("budget.steps=299") == 99
    assert interval("budget.steps=30") == 10
    assert interval("stages.kl.budget.steps=60") == 20
    assert interval("budget.steps=2", "budget.warmup_steps=0") == 1


def test_a_setting_of_the_kl_controller_is_one_key_and_the_others_stay():
    usual, changed = (to_plan(compose(o)).stage("kl").fixed for o in ([], ["stages.kl.band.band_interval=5"]))
    assert changed == usual.merged(Overrides.of([(f"+{keys.BAND_INTERVAL}", 5)]))
    assert {key.lstrip("+") for key, _ in usual.items} == {keys.KL_TYPE, *keys.BAND_KEYS}


def test_the_controllers_bounds_are_the_knobs_range():
    fixed = (
        to_plan(compose(["stages.kl.knobs.kl_coef.low=0.002", "stages.kl.knobs.kl_coef.high=0.02"])).stage("kl").fixed
    )
    assert (fixed.get(keys.COEF_MIN), fixed.get(keys.COEF_MAX)) == (0.002, 0.02)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("stages.kl.band.band_intervall=5", "nearest: stages.kl.band.band_interval"),
        ("+stages.kl.band.width=5", "band: unknown key width; known: band_high"),
        ("stages.kl.band.band_interval=2.5", "band_interval must be a whole number"),
        ("stages.kl.band.coef_min=1", "band needs 0 <= coef_min <= coef_max, got coef_min=1"),
        ("stages.kl.budget.steps=many", "budget.steps must be a whole number"),
    ],
)
def test_a_kl_controller_that_cannot_work_is_refused(line: str, says: str):
    with pytest.raises(ConfigError, match=re.escape(says)):
        to_plan(compose([line]))


def test_the_default_budget_of_a_real_model_is_the_articles_500_steps():
    plan = to_plan(compose(["model=qwen2.5-7b"]))
    assert {s.budget.steps for s in plan.stages if s.measure is Measure.TRAINING} == {500}
    assert plan.base.get(keys.SCHEDULE_STEPS) == 10000


def test_a_constant_of_a_stage_can_be_set_from_the_command_line():
    stage = to_plan(compose(["stages.minibatch.bracket.first_factor=0.8", "stages.kl.budget.trials=9"])).stages
    assert stage[0].rule.first_factor == 0.8
    assert stage[1].budget.trials == 9


def test_the_command_line_wins_over_the_models_own_stage_settings():
    plan = to_plan(compose(["model=tiny", "stages.lr_lambda.knobs.lr.high=0.02", "budget.steps=33"]))
    assert plan.stage("lr_lambda").knobs[0].high == 0.02
    assert plan.stage("kl").budget.steps == 33


def test_the_articles_literal_rule_is_a_word_away():
    assert to_plan(compose(["stages.minibatch.rule=article"])).stages[0].rule.literal


def test_a_ladder_is_called_what_its_file_calls_it():
    ladders = [("token_budget", ["token_budget"]), ("lr_lambda", ["lr", "lam"])]
    plan = to_plan(compose([f"stages.{stage}.rule=ladder" for stage, _ in ladders]))
    assert [(stage, [x.name for x in plan.stage(stage).rule.ladders]) for stage, _ in ladders] == ladders


def test_a_ladder_ends_at_the_memory_clamp():
    small = to_plan(compose(["model=qwen2.5-7b", "model.gpu_gib=10", "model.hidden_size=4096"]))
    tokens = [r.settings.get(keys.MAX_BATCHED_TOKENS) for r in small.stage("token_budget").rule.ladders[0].rungs]
    assert max(tokens) <= 13312  # 10 x 0.65 x 1024^2 / 512


LADDER = "stages.token_budget.ladder.ladders.token_budget"
SWAPPED = [
    f"{LADDER}.keys=[actor_rollout_ref.rollout.max_num_seqs,actor_rollout_ref.rollout.max_num_batched_tokens]",
    f"{LADDER}.points=[[64,2048],[16,65536]]",
]


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        (["model.gpu_gib=null"], "model.gpu_gib"),
        (["model.hidden_size=null"], "model.hidden_size"),
        (["model.gpu_gib=null", "model.hidden_size=null"], "model.gpu_gib, model.hidden_size"),
        ([], ""),
        (["model.needs_gpu=false", "model.gpu_gib=null", "stages.token_budget.measure=training"], ""),
    ],
)
def test_a_memory_clamp_that_cannot_be_computed_on_a_gpu_is_noted_with_what_it_lacks(settings, missing):
    rule = to_plan(compose(["model=qwen2.5-7b", *settings])).stage("token_budget").rule
    assert isinstance(rule, LadderRule)
    assert rule.ladders[0].note.endswith(f"it needs {missing}, found null" if missing else "")
    assert bool(rule.ladders[0].note) is bool(missing)


def test_the_memory_clamp_bounds_the_token_budget_wherever_it_stands():
    small = to_plan(compose(["model=qwen2.5-7b", "model.gpu_gib=10", "model.hidden_size=4096", *SWAPPED]))
    (rung,) = small.stage("token_budget").rule.ladders[0].rungs
    assert rung.settings.get(keys.MAX_BATCHED_TOKENS) == 2048


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["model.gpu_gib=0.5"], "memory of 0.5 GB allows 665 tokens, less than every point"),
        (
            [f"{LADDER}.keys=[actor_rollout_ref.rollout.max_num_seqs]", f"{LADDER}.points=[[64]]"],
            "clamp bounds .*max_num_batched_tokens, which is not among its keys",
        ),
        ([f"{LADDER}.points=[[1,1]]"], "no point lies within the knobs' ranges"),
    ],
)
def test_a_ladder_without_a_rung_says_what_took_them(overrides: list[str], says: str):
    with pytest.raises(ConfigError, match=says):
        to_plan(compose(["model=qwen2.5-7b", "model.hidden_size=4096", *overrides]))


def test_the_ladder_has_the_articles_pairs():
    rungs = to_plan(compose(["model=smollm2-135m"])).stage("token_budget").rule.ladders[0].rungs
    assert {"8192/256", "16384/1896"} <= {rung.name for rung in rungs}


def test_steps_that_rounds_replace_need_not_exceed_the_warm_up():
    stage = to_plan(compose(["model=smollm2-135m", "budget.throughput_steps=5"])).stage("token_budget")
    assert (stage.budget.steps, stage.budget.warmup_steps) == (7, 2)
    with pytest.raises(ConfigError, match=r"budget\.warmup_steps must be below budget\.steps, got 5 and 5"):
        to_plan(compose(["model=smollm2-135m", "budget.throughput_steps=5", "stages.token_budget.measure=training"]))


@pytest.mark.parametrize("model", [m for m in MODELS if not m.startswith("tiny")])
def test_on_gpus_the_token_budget_is_measured_on_vllm_alone_unless_it_is_set_back(model: str):
    stage = to_plan(compose([f"model={model}"])).stage("token_budget")
    assert (stage.measure, stage.budget.steps, stage.budget.warmup_steps) == (Measure.ROLLOUT, 7, 2)
    back = to_plan(compose([f"model={model}", "stages.token_budget.measure=training"])).stage("token_budget")
    assert (back.measure, back.budget.steps, back.budget.warmup_steps) == (Measure.TRAINING, 40, 5)
    assert {s.measure for s in to_plan(compose([f"model={model}"])).stages if s != stage} == {Measure.TRAINING}


def test_on_the_cpu_every_stage_trains():
    assert {s.measure for s in to_plan(compose([])).stages} == {Measure.TRAINING}


def test_what_a_stage_measures_is_part_of_what_its_winner_stands_on():
    rollout = to_plan(compose(["model=smollm2-135m"]))
    training = to_plan(compose(["model=smollm2-135m", "stages.token_budget.measure=training", "budget.steps=7"]))
    stages = rollout.stage("token_budget"), training.stage("token_budget")
    assert stages[0].budget.steps == stages[1].budget.steps
    assert rollout.stands_on(stages[0], ()) != training.stands_on(stages[1], ())


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["model=gpt5"], r"model must be one of .*tiny.*, got 'gpt5'"),
        (["task=chess"], r"task must be one of arithmetic, gsm8k, got 'chess'"),
        (
            ["stage=minibtach"],
            r"stage must be one of minibatch, kl, token_budget, lr_lambda, confirm, all, got 'minibtach'",
        ),
        (["engine=trl"], "engine must be one of verl, rehearsal, got 'trl'"),
        (["budget.stepz=3"], r"no setting is called budget\.stepz; nearest: budget\.steps"),
        (["budget.steps=many"], "budget.steps must be a whole number, got 'many'"),
        (["budget.steps=0"], "budget.steps must be at least 1, got 0"),
        (["budget.steps=5"], "warmup_steps must be below budget.steps, got 5 and 5"),
        (["budget.steps=20000"], "schedule_steps is the whole run"),
        (["cluster.slots=-1"], "cluster.slots must be at least 0, got -1"),
        (["campaign=a/b"], "campaign must be .*'a/b'"),
        (["campaign='a b'"], "campaign must be .*'a b'"),
        (["campaign='a=b'"], "campaign must be .*'a=b'"),
        (["campaign=../up"], "campaign must be"),
        (["stages.kl.objective=luck"], r"sweeps/kl\.yaml: objective must be one of .*reward_in_band.*'luck'"),
        (["stages.kl.rule=magic"], r"sweeps/kl\.yaml: rule must be one of .*'magic'"),
        (["stages.kl.budget.trials=1"], "at least 2"),
        (["stages.token_budget.measure=rollout"], "tiny generates with transformers, not with vLLM"),
        (["stages.token_budget.ladder.rollback.series=heat"], "rollback: series must be one of .*peak_gib.*'heat'"),
        (["stages.token_budget.measure=guess"], "measure must be one of training, rollout, got 'guess'"),
        (["model=smollm2-135m", "stages.token_budget.rounds.measured=0"], "rounds.measured must be at least 1"),
        (["model=smollm2-135m", "stages.token_budget.rounds.warmup=-1"], "rounds.warmup must be at least 0, got -1"),
        (["stages.kl.follows=[nobody]"], "follows 'nobody'"),
        (["stages.minibatch.follows=[kl]"], "circle"),
        (['verl=["no equals sign"]'], "cannot read 'no equals sign' as key=value"),
        (['verl=["~algorithm.lam"]'], "plain key=value"),
        (['verl=["a.b=1,2"]'], "plain key=value"),
        (["+budget.dollars=1"], "budget has no key 'dollars'; it has steps, seeds, .*gpu_hours"),
        (["+dollars=1"], "there is no section 'dollars'; there are campaign, stage, .*model, task, schedule, stages"),
        (["seed=-1"], "seed must be at least 0 and at most 4294966293, got -1"),
        (["seed=4294966294"], "seed must be at least 0 and at most 4294966293"),
        (["budget.gpu_hours=nan"], "budget.gpu_hours must be above 0, or null for no limit, got nan"),
        (["budget.gpu_hours=inf"], "budget.gpu_hours must be above 0"),
        (["budget.seeds=1001"], "budget.seeds must be at least 1 and at most 1000"),
        (["runtime.step_seconds=0"], "runtime.step_seconds must be above 0, got 0"),
        (["model.gpus=0"], "model.gpus must be at least 1, got 0"),
        (["guards.limits.kl_explosion=-1"], "guards.limits.kl_explosion must be at least 0, got -1"),
        (["guards.limits.kl_explosion=x"], "guards.limits.kl_explosion must be a number like 0.3, got 'x'"),
        (["guards.stop_on=KL"], r"guards.stop_on must be a list such as \[a,b\], got 'KL'"),
        (["confirm=3"], "confirm must be a section with keys of its own, got '3'"),
        (["earlier=x", "campaign=x"], "earlier must name another campaign"),
        (["campaign=ä"], r"cannot read 'campaign=ä' as KEY=VALUE; campaign takes letters"),
        (["runs=ä"], r"cannot read 'runs=ä' as KEY=VALUE; .*quoted twice"),
        (["verl=[trainer.test_freq=50]"], r"cannot read .*each entry of the list is quoted"),
        (["stage=minibatch,kl"], "stage has several values in 'stage=minibatch,kl', and a campaign takes one"),
        (["resume"], "cannot read 'resume': settings are KEY=VALUE"),
        (["hydra.run.dir=x"], "sets Hydra"),
        (["stages.confirm.beside={a: [b]}"], r"add it with \+, as in '\+stages.confirm.beside.NAME=VALUE'"),
        (["stages.minibatch.bracket.moves=3"], r"added with \+: \+stages.minibatch.bracket.moves=VALUE"),
        (["stages.minibatch.knobs.mini_batch.low=a"], r"sweeps/minibatch\.yaml: knobs.mini_batch.low must be a number"),
        (["stages.minibatch.budget.trials=a"], r"sweeps/minibatch\.yaml: budget.trials must be a whole number"),
        (["stages.minibatch.budget.warmup_steps=30"], "budget.warmup_steps must be below budget.steps, got 30 and 30"),
        (["stages.minibatch.budget.seeds=3"], "budget.seeds is 3, but the campaign has 1; give budget.seeds=3"),
        (["stages.minibatch.follows=kl"], "follows must be a list"),
        (["stages.minibatch.rule=nowhere:decide"], "rule: cannot import nowhere for 'nowhere:decide'"),
        (["stages.minibatch.rule=os:nothing"], "'os:nothing' names no function"),
        (
            ["stages.kl.objective=speed_to_level"],
            "objective_options.level, which speed_to_level needs, must be a number",
        ),
        (
            ['stages.kl.fixed=["algorithm.kl_ctrl.kl_coef=0.1"]'],
            "fixed sets algorithm.kl_ctrl.kl_coef, which is a knob",
        ),
        (
            ["stages.token_budget.constraints.preemptions.baseline_slack=-0.1"],
            "constraints.preemptions.baseline_slack must be at least 0, got -0.1",
        ),
        (
            ["stages.token_budget.constraints.free_gib.series=heat"],
            "constraints.free_gib.series must be one of .*'heat'",
        ),
        (["stages.token_budget.ladder.ladders.token_budget.clamp=gpu"], "clamp must be memory or left out, got 'gpu'"),
        (
            ["+stages.kl.knobs.other={key: algorithm.kl_ctrl.kl_coef, low: 1, high: 2}"],
            "each knob needs a key of its own",
        ),
        (["stages.token_budget.ladder.ladders.token_budget.points=[[1]]"], "one value for each"),
        (
            ["+stages.kl.objective_options.kl_band_hihg=0.3"],
            "objective_options: unknown key kl_band_hihg; reward_in_band reads kl_band_high",
        ),
        (["+stages.kl.objective_options.kl_band_high=x"], "objective_options.kl_band_high must be a number, got 'x'"),
        (["+stages.minibatch.objective_options.level=1"], "unknown key level; area_per_second has no options"),
        (["+stages.kl.constraints.x.series=score"], "constraints.x bounds nothing; give low, high or both"),
        (["+stages.kl.constraints.x={series: score, low: 2, high: 1}"], "constraints.x needs a range, got 2 to 1"),
        (["+stages.kl.search.samplr=x"], "search: unknown key samplr"),
        (["+stages.lr_lambda.bracket.mvoes=3"], "bracket: unknown key mvoes"),
        (["stages.minibatch.eta.go_on_above=x", "stages.minibatch.rule=search"], "eta.go_on_above must be a number"),
        (["+stages.kl.eta.first_factr=1"], "eta: unknown key first_factr"),
        (["+stages.kl.beside.mine=[nonsense]"], "beside.mine: cannot read 'nonsense'"),
        (["stages.lr_lambda.ladder.ladders.lr.multiples=foo"], "ladders.lr.multiples must be a list"),
        (["stages.lr_lambda.ladder=7"], "ladder must be a section"),
        (["+stages.lr_lambda.ladder.ladders.lr.clamp=gpu"], "clamp must be memory or left out"),
        (
            ["stages.kl.rule=search", 'stages.kl.search.start=[["algorithm.kl_ctrl.kl_coef=0.5"]]'],
            r"search\.start: algorithm\.kl_ctrl\.kl_coef must be within the knob's range, 0\.0005 to .*, got 0\.5",
        ),
        (
            ["stages.kl.rule=search", 'stages.kl.search.start=[["algorithm.kl_ctrl.kl_coef=abc"]]'],
            "algorithm.kl_ctrl.kl_coef must be a number, got 'abc'",
        ),
        (
            ["stages.kl.rule=search", 'stages.kl.search.start=[["algorithm.lam=0.97"]]'],
            "sets algorithm.lam, which is no knob of the stage; knobs: algorithm.kl_ctrl.kl_coef",
        ),
        (["stages.kl.rule=search", "stages.kl.search.start=[[]]"], "an entry without a value"),
        (
            ["stages.kl.rule=search", "stages.kl.budget.trials=2"],
            r"2 points, which with the baseline are more than budget\.trials=2; give budget\.trials=3",
        ),
        (
            ["stage=confirm", "confirm.seeds=0"],
            r"stage confirm was asked for, but confirm\.seeds=0 leaves it out; give",
        ),
        (["stage=retest"], r"confirm\.retest=false leaves it out; give confirm\.retest=true"),
        (["stages.minibach.budget.trials=3"], r"nearest: stages\.minibatch\.budget\.trials.*; python -m sweep --cfg"),
        (["campaign=ü"], r"campaign takes letters, digits, '\.', '_' and '-' alone"),
        (['verl=[""]'], "cannot read '' as key=value; the entry is empty; leave it out"),
        (['verl=["data.prompt_key=ü ñ"]'], r"quote a value with other signs .* as in data\.prompt_key='ü ñ'"),
        (["+stages.kl.knobs.kl_coef.integer=true"], r"no whole number lies within 0\.0005 to "),
    ],
)
def test_bad_input_gets_one_clear_message(overrides: list[str], says: str):
    with pytest.raises(ConfigError, match=says) as caught:
        to_plan(compose(overrides))
    assert "\n" not in str(caught.value)


def test_a_misspelled_stage_is_not_to_be_added_as_one_of_its_own():
    with pytest.raises(ConfigError, match="no setting is called") as caught:
        compose(["stages.minibach.budget.trials=3"])
    assert "+stages" not in str(caught.value)


def test_an_empty_configuration_is_named(tmp_path: Path):
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"config\.yaml is empty; put the project's own back"):
        compose(["engine=rehearsal"], tmp_path)


def test_every_option_that_an_objective_reads_is_known_to_the_check():
    source = Path(objective.__file__).read_text()
    read = set(re.findall(r"""_option\(stage, "(\w+)"|objective_options\.get\("(\w+)\"""", source))
    assert {a or b for a, b in read} == {option for options in objective.OPTIONS.values() for option in options}


def test_a_start_at_either_end_of_a_range_is_within_it():
    ends = '[["algorithm.kl_ctrl.kl_coef=0.0005"],["algorithm.kl_ctrl.kl_coef=0.01"]]'
    asked = ["model=qwen2.5-0.5b", "stages.kl.rule=search", f"stages.kl.search.start={ends}"]
    assert len(to_plan(compose(asked)).stage("kl").rule.start) == 2
    own = "+stages.own={knobs: {x: {key: a.b, low: -1, high: -0.5}}, rule: search, search: {start: [['a.b=-1']]}}"
    rest = "+stages.own.objective=area_per_second", "+stages.own.budget={trials: 2, steps: 30}"
    assert to_plan(compose([own, *rest])).stage("own").rule.start


def test_the_confirmation_follows_every_search_unless_it_says_what():
    assert to_plan(compose([])).stage("confirm").follows == ("minibatch", "kl", "token_budget", "lr_lambda")
    assert to_plan(compose(["stages.confirm.follows=[]"])).stage("confirm").follows == ()
    assert to_plan(compose(["stages.confirm.follows=[kl]"])).stage("confirm").follows == ("kl",)


def test_further_configurations_of_the_confirmation_are_verl_settings_by_name():
    mine = '+stages.confirm.beside.mine=["actor_rollout_ref.actor.optim.lr=3e-6"]'
    rule = to_plan(compose([mine])).stage("confirm").rule
    assert [(n, dict(s)) for n, s in rule.beside] == [("mine", {"actor_rollout_ref.actor.optim.lr": 3e-6})]
    assert to_plan(compose([mine, "confirm.seeds=3"])).stage("confirm").budget.most_trials == 9
    with pytest.raises(ConfigError, match=r"sweeps/confirm\.yaml: beside\.mine: cannot read"):
        to_plan(compose(["+stages.confirm.beside.mine=[nonsense]"]))


def test_a_verl_setting_with_quotes_commas_and_braces_arrives_as_written():
    plan = to_plan(compose([r"""verl=["trainer.experiment_name='it\'s {a, b}=c'", "trainer.logger=[console,file]"]"""]))
    assert plan.base.get("trainer.experiment_name") == "it's {a, b}=c"
    assert plan.base.get("trainer.logger") == ("console", "file")


def test_a_missing_upstream_winner_names_the_command_that_makes_it():
    plan = to_plan(compose(["stage=kl", "campaign=empty"]))
    assert "python -m sweep stage=minibatch campaign=empty" in missing_upstream(plan, {})
    assert missing_upstream(plan, {"minibatch": object()}) == ""
    typed = replace(plan, asked=("stage=kl", "engine=rehearsal", "campaign=empty", "plan=true", "runs=/tmp/my runs"))
    assert (
        "run python -m sweep stage=minibatch campaign=empty engine=rehearsal 'runs=/tmp/my runs' first"
        in missing_upstream(typed, {})
    )
    assert missing_upstream(to_plan(compose(["stage=all"])), {}) == ""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the project's `conf/` and a copy of its `sweeps/`."""
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    shutil.copytree(ROOT / "sweeps", tmp_path / "sweeps")
    return tmp_path


def test_a_folder_with_the_name_of_a_setting_does_not_hide_the_setting(checkout: Path):
    for name in ("runs", "campaign", "storage", "seed"):
        (checkout / name).mkdir()
    config = compose(["runs=/elsewhere", "campaign=x", "storage=sqlite:///x.db", "seed=3"], checkout)
    assert (config.runs, config.campaign, config.storage, config.seed) == ("/elsewhere", "x", "sqlite:///x.db", 3)


def test_a_stage_file_that_is_no_yaml_is_named(checkout: Path):
    (checkout / "sweeps" / "kl.yaml").write_text("knobs: {a: [}")
    with pytest.raises(ConfigError, match=r"sweeps/kl\.yaml cannot be read"):
        compose([], checkout)


def test_a_constant_that_its_file_leaves_out_can_be_added():
    assert to_plan(compose(["+stages.minibatch.bracket.moves=3"])).stage("minibatch").rule.moves == 3


def test_a_file_in_conf_that_is_no_yaml_is_a_message(tmp_path: Path):
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "sweeps").symlink_to(ROOT / "sweeps")
    (tmp_path / "conf" / "model" / "tiny.yaml").write_text("model: {a: [")
    with pytest.raises(ConfigError, match=r"conf cannot be read: .*tiny\.yaml"):
        compose([], tmp_path)


@pytest.mark.parametrize("name", ["my stage", "1st", "a.b", "ünder", "all", "null"])
def test_a_file_whose_name_cannot_be_a_stages_is_named(checkout: Path, name: str):
    shutil.copy(checkout / "sweeps" / "kl.yaml", checkout / "sweeps" / f"{name}.yaml")
    with pytest.raises(ConfigError, match=f"{name}.yaml cannot be a stage: its name is letters"):
        compose([], checkout)


def test_what_an_editor_hides_beside_a_stage_is_no_stage(checkout: Path):
    (checkout / "sweeps" / ".kl.yaml").write_text("{{{")
    assert "kl" in compose([], checkout).stages


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a: \xe4", "cannot be read: 'utf-8' codec"),
        (b"a: &a [*a]", "an anchor in it contains itself"),
        (b"defaults: [kl]", "has no defaults"),
        (b"rule: eta\nrule: bracket", "found duplicate key rule"),
        (b"", "a stage has one or two knobs, got 0"),
        (b"- 1", "must be a section"),
    ],
)
def test_a_stage_file_that_makes_no_sense_is_named(checkout: Path, content: bytes, says: str):
    (checkout / "sweeps" / "mine.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"sweeps/mine\.yaml.*{says}"):
        to_plan(compose([], checkout))


def test_a_file_added_to_sweeps_is_a_stage_without_any_python(checkout: Path):
    (checkout / "sweeps" / "entropy.yaml").write_text(
        "knobs: {e: {key: actor_rollout_ref.actor.entropy_coeff, low: 0.0, high: 0.01}}\n"
        "rule: ladder\n"
        "ladder: {ladders: {e: {keys: [actor_rollout_ref.actor.entropy_coeff], points: [[0.0], [0.001]]}}}\n"
        "objective: height_and_smoothness\n"
        "budget: {trials: 3, steps: 20}\n"
        "follows: [lr_lambda]\n"
    )
    plan = to_plan(compose(["stage=entropy"], checkout))
    assert plan.wanted == ("entropy",)
    assert plan.upstream_of(plan.stage("entropy")) == ("minibatch", "kl", "token_budget", "lr_lambda")


def test_where_generated_files_lie_is_no_part_of_what_a_trial_is():
    base = to_plan(compose(["runs=/somewhere", "campaign=a"])).base
    assert base == to_plan(compose(["runs=/elsewhere", "campaign=b"])).base
    assert isinstance(base, Overrides)


def test_guards_as_the_method_has_them_add_nothing_to_a_trials_settings():
    assert not any("sweep." in key and keys.SCHEDULE_STEPS not in key for key, _ in to_plan(compose([])).base)


def test_thresholds_of_hardware_and_pairs_of_curves_can_be_set():
    guards = compose(
        ["guards.hardware.pcie_pct=60", "+guards.hardware.swings=5", "+guards.limits.grad_band=[0.1,2]"]
    ).guards
    assert hardware_limits_of(guards) == HardwareLimits(pcie_pct=60, swings=5)
    assert limits_of(guards) == Limits(grad_band=(0.1, 2))
    assert hardware_limits_of(compose([]).guards) == HardwareLimits()
    assert limits_of(compose([]).guards) == Limits()


def test_guards_and_checkpoints_that_were_chosen_reach_the_plug_ins():
    plan = to_plan(
        compose(
            [
                "guards.stop_on=[NON_FINITE]",
                "guards.limits.kl_explosion=0.5",
                "+guards.limits.kl_far=3",
                "+guards.limits.kl_band=[0.05,0.2]",
                "guards.min_free_gib=8",
                "guards.clip_decay=0.999",
                "checkpoints.keep_last=5",
                "checkpoints.best_gain=0.01",
                "checkpoints.save_steps=200",
            ]
        )
    )
    own = {k: v for k, v in plan.base.to_json().items() if k.startswith("+sweep.") and keys.SCHEDULE_STEPS not in k}
    assert own == {
        "+sweep.stop_on": ["NON_FINITE"],
        "+sweep.limits.kl_explosion": 0.5,
        "+sweep.limits.kl_far": 3.0,
        "+sweep.limits.kl_band": [0.05, 0.2],
        "+sweep.min_free_gib": 8.0,
        "+sweep.clip_decay": 0.999,
        "+sweep.clip_floor": 0.1,
        "+sweep.keep_last": 5,
        "+sweep.best_gain": 0.01,
    }
    assert plan.save_steps == 200


def test_every_threshold_of_preflight_stands_in_the_configuration_and_can_be_set():
    assert compose([]).preflight == asdict(PreflightLimits())
    changed = compose(["preflight.lr_high=1e-5", "preflight.ulysses_size=8.0", "preflight.full_share=1"]).preflight
    assert preflight_limits_of(changed) == PreflightLimits(lr_high=1e-5, ulysses_size=8, full_share=1)


def test_thresholds_of_preflight_are_no_part_of_what_a_trial_is():
    plan, changed = to_plan(compose([])), to_plan(compose(["preflight.lr_high=1e-5", "preflight.full_share=0.8"]))
    assert (changed.base, changed.stages) == (plan.base, plan.stages)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            "+preflight.idle=1",
            "preflight: unknown key idle; known: critic_tokens_ratio, filter_rows_ratio, full_share, ",
        ),
        ("preflight.lr=1", "no setting is called preflight.lr; nearest: preflight.lr_low"),
        ("preflight=5", "preflight must be a section with keys of its own, got '5'"),
        ("preflight.full_share=1.5", "preflight.full_share must be above 0 and at most 1, got 1.5"),
        ("preflight.kv_cache_share=1", "preflight.kv_cache_share must be at least 0 and below 1, got 1"),
        ("preflight.ulysses_size=2.5", "preflight.ulysses_size must be a whole number, got 2.5"),
        ("preflight.worker_gib=much", "preflight.worker_gib must be a number, got 'much'"),
        ("preflight.lr_low=null", "preflight.lr_low must be a number, got null"),
        (
            "preflight.lr_low=1e-5",
            "lr_low must be below lr_high, got 1e-05 and 5e-06; the method's are 5e-07 and 5e-06",
        ),
        ("preflight.kl_coef_high=0.0005", "kl_coef_low must be below kl_coef_high, got 0.0005 and 0.0005"),
    ],
)
def test_thresholds_of_preflight_that_cannot_be_are_refused(asked: str, said: str):
    with pytest.raises(ConfigError, match=re.escape(said)):
        to_plan(compose([asked]))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("guards.stop_on=[KL_HIGH]", "must be among NON_FINITE, "),
        ("+guards.limits.kl_explosions=1", "guards.limits has no 'kl_explosions'"),
        ("+guards.limits.kl_band=1", r"guards.limits.kl_band must be 2 numbers like \[0.05, 0.15\], got 1"),
        ("+guards.limits.grad_band=[1.0,0.01]", "grad_band must rise from at least 0"),
        ("+guards.hardware.idle=1", "guards.hardware: unknown key idle; known: busy_pct"),
        ("guards.hardware.pcie_pct=170", "guards.hardware.pcie_pct must be at least 0 and at most 100, got 170"),
        ("+guards.hardware.swings=1.5", "guards.hardware.swings must be a whole number"),
        ("+guards.limits.grad_vanishing_steps=0", "grad_vanishing_steps must be a whole number, at least 1, got 0"),
        ("+guards.limits.critic_steps=0.5", "critic_steps must be a whole number, at least 1, got 0.5; the method's"),
        ("+guards.limits.creep_blocks=1", "creep_blocks must be a whole number, at least 2, got 1"),
        ("guards.min_free_gib=-1", "must be at least 0, got -1"),
        ("checkpoints.keep_last=0", "must be at least 1, got 0"),
        ("checkpoints.save_steps=0", "must be at least 1, got 0"),
        ("guards.clip_decay=1.1", "clip_decay must be above 0 and at most 1, got 1.1"),
        ("guards.clip_decay=0", "above 0 and at most 1"),
    ],
)
def test_guards_that_cannot_work_are_refused(asked: str, said: str):
    with pytest.raises(ConfigError, match=said):
        to_plan(compose([asked]))


def test_every_guard_there_is_stands_in_the_configuration():
    from sweep.health.limits import DEFAULT
    from sweep.health.stopping import STOP_ON

    guards = compose([]).guards
    assert tuple(guards.stop_on) == STOP_ON
    assert all(getattr(DEFAULT, name) == value for name, value in guards.limits.items())


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["stages.lr_lambda.rule=eta"],
            "rule eta walks one knob, .*ppo_mini_batch_size, got .*optim.lr, algorithm.lam",
        ),
        (["stages.kl.rule=article"], "rule article walks one knob"),
        (
            [
                f"+stages.lr_lambda.knobs.mini={{key: {keys.MINI_BATCH}, low: 8, high: 64}}",
                "~stages.lr_lambda.knobs.lam",
            ],
            "a bracket must have it as first knob",
        ),
    ],
)
def test_a_rule_that_cannot_walk_a_knob_is_refused(overrides: list[str], says: str):
    with pytest.raises(ConfigError, match=says):
        to_plan(compose(overrides))
