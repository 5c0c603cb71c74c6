"""Every preset of conf/ against verl's own schema and start-up checks; no GPU and no download."""

import warnings

import pytest

from sweep.config import ROOT, to_plan
from sweep.config import compose as compose_campaign
from sweep.core import verl_keys as keys
from sweep.core.overrides import bare
from sweep.core.trial import Trial
from sweep.engines.verl.compose import ROOT_CONFIG, compose, config_folder, require_known
from sweep.engines.verl.settings import EngineSettings, complete, cpu_settings, gpu_settings
from sweep.health.preflight.dead_keys import DEAD_KEYS, DEPRECATED_KEYS, MOVED_KEYS
from sweep.settings_text import parse_settings
from sweep.tasks.tiny_tokenizer import tiny_tokenizer

MODELS = sorted(path.stem for path in (ROOT / "conf" / "model").glob("*.yaml"))
TASKS = sorted(path.stem for path in (ROOT / "conf" / "task").glob("*.yaml"))
GPU_MODELS = [name for name in MODELS if not name.startswith("tiny")]
HEADS = {"smollm2-135m": 9, "qwen2.5-0.5b": 14, "qwen2.5-1.5b": 12, "qwen2.5-7b": 28}
"""Attention heads. Source: config.json of each model."""

SHAPE = '{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 2}'


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A stand-in for a downloaded model: verl's checks read a tokenizer and a config.json, but no weights."""
    folder = tmp_path_factory.mktemp("model")
    tiny_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text(SHAPE)
    return folder


def overrides_of(model, task, folder, *more):
    plan = to_plan(compose_campaign([f"model={model}", f"task={task}", f"model.path={folder}", *more]))
    platform = gpu_settings(flash_attention=True) if plan.model.needs_gpu else cpu_settings()
    settings = EngineSettings(on_cpu=not plan.model.needs_gpu, platform_settings=platform)
    return complete(Trial(plan.base, plan.seeds[0], 500), "runs/x", settings, reuse=False)


def check_as_verl_does(overrides):
    """Composes and runs the checks that verl's entry point runs before it starts Ray; raises what verl raises."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    with initialize_config_dir(str(config_folder()), version_base=None), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = hydra_compose(ROOT_CONFIG, overrides=list(overrides.command_line()))
        assert need_critic(tree) and need_reference_policy(tree)  # GAE, and a live KL term
        validate_config(tree, use_reference_policy=True, use_critic=True)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", MODELS)
def test_every_preset_passes_verls_own_validation(model, task, model_folder):
    check_as_verl_does(overrides_of(model, task, model_folder))


def test_the_validation_can_fail(model_folder):
    with pytest.raises(ValueError, match="train_batch_size"):
        check_as_verl_does(
            overrides_of(
                "qwen2.5-0.5b", "gsm8k", model_folder, "verl=['actor_rollout_ref.actor.ppo_mini_batch_size=1024']"
            )
        )


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", MODELS)
def test_every_line_is_a_key_of_verls_schema(model, task, model_folder):
    require_known(compose(overrides_of(model, task, model_folder)))


@pytest.mark.parametrize("model", MODELS)
def test_no_line_is_a_key_that_verl_ignores(model):
    demanded = {dead.key for dead in DEAD_KEYS if dead.demanded}  # verl's start-up checks insist on one of them
    ignored = {dead.key for dead in DEAD_KEYS} - demanded | set(MOVED_KEYS) | set(DEPRECATED_KEYS)
    given = {bare(key) for key, _ in parse_settings(compose_campaign([f"model={model}"]).model.verl, model)}
    assert given.isdisjoint(ignored)
    assert "algorithm.kl_ctrl.target_kl" not in given  # read by the adaptive controller only


@pytest.mark.parametrize("model", GPU_MODELS)
def test_batches_split_evenly_over_gpus_and_micro_batches(model):
    plan = to_plan(compose_campaign([f"model={model}"]))
    train, mini = plan.base.get(keys.TRAIN_BATCH), plan.base.get(keys.MINI_BATCH)
    micro = plan.base.get(keys.ACTOR_MICRO_BATCH)
    log_prob = plan.base.get("actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu")
    assert train % mini == 0
    assert mini % (plan.model.gpus * micro) == 0
    assert train % (plan.model.gpus * log_prob) == 0


@pytest.mark.parametrize("model", GPU_MODELS)
def test_tensor_parallel_size_divides_the_heads_and_the_gpus(model):
    plan = to_plan(compose_campaign([f"model={model}"]))
    tensor_parallel = plan.base.get(keys.TENSOR_PARALLEL)
    assert HEADS[model] % tensor_parallel == 0
    assert plan.model.gpus % tensor_parallel == 0


@pytest.mark.parametrize("model", ["qwen2.5-0.5b", "qwen2.5-1.5b"])
def test_one_gpu_is_a_single_override_away(model, model_folder):
    overrides = overrides_of(model, "gsm8k", model_folder, "model.gpus=1")
    assert overrides.get(keys.TENSOR_PARALLEL) == overrides.get(keys.GPUS_PER_NODE) == 1
    check_as_verl_does(overrides)


def test_the_half_billion_preset_is_the_second_articles_command():
    base = to_plan(compose_campaign(["model=qwen2.5-0.5b", "task=gsm8k"])).base
    article = {  # S1 section 6, as far as verl 0.9.1 reads it
        "data.train_batch_size": 512,
        "data.max_prompt_length": 512,
        "data.max_response_length": 256,
        "actor_rollout_ref.actor.optim.lr": 1.5e-6,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 128,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 16,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 2,
        "actor_rollout_ref.rollout.gpu_memory_utilization": 0.65,
        "actor_rollout_ref.rollout.max_num_seqs": 1896,
        "actor_rollout_ref.rollout.max_num_batched_tokens": 16384,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 16,
        "critic.optim.lr": 1e-5,
        "algorithm.kl_ctrl.kl_coef": 0.0005,
        "trainer.n_gpus_per_node": 2,
    }
    assert {key: base.get(key) for key in article} == article
