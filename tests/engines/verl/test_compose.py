"""verl's own configuration, composed from its installed files without importing verl."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from sweep.core import verl_keys as keys
from sweep.core.overrides import Overrides
from sweep.engines.verl.compose import Composed, compose, config_folder, require_known
from sweep.errors import ConfigError
from sweep.health.preflight.settings import MISSING


def test_the_defaults_are_verls_own() -> None:
    config = compose([]).config
    assert config[keys.MINI_BATCH] == 256
    assert config[keys.TENSOR_PARALLEL] == 2
    assert config[keys.ROLLOUT_NAME] == MISSING
    assert config[keys.KL_IN_REWARD] is False
    assert len(config) > 800


def test_interpolations_follow_the_overrides() -> None:
    config = compose([f"{keys.MINI_BATCH}=64", f"{keys.RESPONSE_LENGTH}=99"]).config
    assert config[keys.CRITIC_MINI_BATCH] == 64
    assert config[keys.ROLLOUT_RESPONSE_LENGTH] == 99


def test_verl_and_torch_are_not_imported() -> None:
    code = (
        "import sys; from sweep.engines.verl.compose import compose; compose(['trainer.nnodes=2']); "
        "print(sorted({'verl', 'torch', 'ray'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_every_key_that_preflight_reads_exists_in_verl_or_is_added_on_purpose() -> None:
    known = set(compose([]).config) | set(compose(["model_engine=megatron"]).config)
    spelled = {
        value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str) and "." in value
    }
    added = {
        *keys.BAND_KEYS,
        keys.CRITIC_INFER_MAX_TOKENS,
        keys.WORKER_EXTENSION,
        keys.RAY_ADDRESS,
        keys.RAY_TMP,
        keys.ACTOR_MIXED_PRECISION,
    }
    spelled = {key for key in spelled if not key.startswith(keys.OWN_SECTION)}
    prefixes = {".".join(key.split(".")[:end]) for key in known for end in range(1, 8)}
    assert {key for key in spelled - added if key not in known and key not in prefixes} == set()


def test_every_dead_moved_and_deprecated_key_is_one_that_verl_accepts() -> None:
    from sweep.health.preflight.dead_keys import DEAD_KEYS, DEPRECATED_KEYS, MOVED_KEYS

    known = set(compose([]).config)
    told = {dead.key for dead in DEAD_KEYS} | set(MOVED_KEYS) | set(DEPRECATED_KEYS)
    assert told - known == set()


def test_all_unknown_keys_are_told_at_once_each_with_what_was_meant() -> None:
    composed = compose(
        ["algorithm.kl_ctrl.kl_coeff=0.001", "actor_rollout_ref.actor.optim.lr_decay_style=cosine", "trainer.nnodes=2"]
    )
    assert {u.key: u.suggestions[0] for u in composed.unknown} == {
        "algorithm.kl_ctrl.kl_coeff": "algorithm.kl_ctrl.kl_coef",
        "actor_rollout_ref.actor.optim.lr_decay_style": "actor_rollout_ref.actor.optim.lr_scheduler_type",
    }
    assert composed.config[keys.NODES] == 2
    assert composed.given == {keys.NODES}


def test_requiring_known_keys_names_each_with_its_nearest() -> None:
    with pytest.raises(ConfigError, match=r"kl_coeff; nearest: algorithm\.kl_ctrl\.kl_coef"):
        require_known(compose(["algorithm.kl_ctrl.kl_coeff=1"]))
    composed = compose(["trainer.nnodes=1"])
    assert require_known(composed) is composed


def test_an_open_group_asks_for_hydras_plus() -> None:
    (unknown,) = compose(["critic.model.override_config.attn_implementation=sdpa"]).unknown
    assert unknown.suggestions == ("+critic.model.override_config.attn_implementation",)


def test_added_keys_are_told_apart_from_those_that_exist() -> None:
    composed = compose(["+sweep.schedule_steps=10000", "++trainer.nnodes=2", "+algorithm.kl_ctrl.band_low=0.04"])
    assert composed.added == {"sweep.schedule_steps", keys.BAND_LOW}
    assert composed.config["sweep.schedule_steps"] == 10_000


def test_a_group_choice_changes_which_keys_exist() -> None:
    key = "actor_rollout_ref.actor.megatron.tensor_model_parallel_size"
    assert [u.key for u in compose([f"{key}=2"]).unknown] == [key]
    assert compose([f"{key}=2", "model_engine=megatron"]).unknown == ()


def test_overrides_as_a_value_and_as_text_compose_alike() -> None:
    value = Overrides.of({keys.TRAIN_BATCH: 64, "trainer.experiment_name": "a=b, c", "+sweep.note": "#1"})
    assert compose(value) == compose(list(value.command_line()))
    assert compose(value).config["trainer.experiment_name"] == "a=b, c"


def test_lists_and_empty_mappings_are_leaves() -> None:
    config = compose(["trainer.logger=[console,file]"]).config
    assert config[keys.LOGGER] == ["console", "file"]
    assert config["actor_rollout_ref.rollout.engine_kwargs.vllm"] == {}


def test_an_interpolation_that_cannot_be_resolved_stays_as_it_is_written() -> None:
    assert compose(["trainer.project_name=${nowhere}"]).config["trainer.project_name"] == "${nowhere}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("trainer.nnodes", "grammar"),
        ("trainer.nnodes=[1", "grammar"),
        ("", "grammar"),
        ("trainer.nnodes=1,2", "names several"),
        ("trainer.nnodes=range(1,3)", "names several"),
        ("+trainer.nnodes=1", "An item is already at"),
        ("model_engine=nonesuch", "does not compose"),
    ],
)
def test_an_override_that_means_nothing_is_a_clear_error(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose([line])


def test_composing_inside_another_hydra_leaves_that_one_as_it_was() -> None:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    with initialize_config_dir(str(config_folder()), version_base=None):
        compose(["trainer.nnodes=3"])
        assert GlobalHydra.instance().is_initialized()
        assert hydra_compose("ppo_trainer").trainer.nnodes == 1


def test_threads_compose_side_by_side() -> None:
    answers: dict[int, Composed] = {}

    def work(nodes: int) -> None:
        answers[nodes] = compose([f"trainer.nnodes={nodes}"])

    threads = [threading.Thread(target=work, args=(nodes,)) for nodes in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {nodes: answer.config[keys.NODES] for nodes, answer in answers.items()} == {1: 1, 2: 2, 3: 3, 4: 4}


@pytest.mark.parametrize(
    ("line", "mistyped"),
    [
        ("data.train_batch_size=512k", True),
        ("data.train_batch_size=[1,2]", True),
        ("data.train_batch_size='512'", False),
        ("data.train_batch_size=512", False),
        ("actor_rollout_ref.actor.optim.lr='1e-6'", False),
        ("actor_rollout_ref.actor.optim.lr=slow", True),
        ("algorithm.use_kl_in_reward=yes", True),
        ("algorithm.use_kl_in_reward='False'", True),
        ("algorithm.use_kl_in_reward=1", False),
        ("algorithm.use_kl_in_reward=false", False),
        ("data.train_batch_size=${data.val_batch_size}", False),
        ("trainer.total_training_steps=null", False),
        ("trainer.experiment_name=512k", False),
    ],
)
def test_a_value_that_cannot_stand_where_verl_has_a_number_or_a_switch_is_told(line: str, mistyped: bool) -> None:
    key = line.partition("=")[0]
    assert (key in compose([line]).mistyped) == mistyped
