"""A flat configuration with nothing wrong, to be broken one setting at a time."""

from __future__ import annotations

from sweep.core import verl_keys as keys
from sweep.health.preflight import Facts, PreflightFinding, preflight

SOUND: dict[str, object] = {
    keys.TRAIN_BATCH: 256,
    keys.PROMPT_LENGTH: 512,
    keys.RESPONSE_LENGTH: 256,
    keys.FILTER_PROMPTS: False,
    keys.DATA_SEED: 1,
    keys.TRAIN_FILES: "/data/train.parquet",
    keys.MINI_BATCH: 128,
    keys.ACTOR_MICRO_BATCH: 16,
    keys.ACTOR_MICRO_GLOBAL: None,
    keys.ACTOR_DYNAMIC_BATCH: False,
    keys.ACTOR_TOKENS: 16384,
    keys.ACTOR_STRATEGY: "fsdp",
    keys.ULYSSES: 1,
    keys.ACTOR_ULYSSES_OLD: 1,
    keys.ACTOR_PARAM_OFFLOAD: False,
    keys.ACTOR_OPTIMIZER_OFFLOAD: False,
    keys.ACTOR_RESHARD: True,
    keys.ACTOR_LR: 1e-6,
    keys.ACTOR_SCHEDULER: "constant",
    keys.ACTOR_WARMUP_STEPS: -1,
    keys.KL_LOSS: False,
    keys.KL_LOSS_COEF: 0.001,
    keys.ROLLOUT_NAME: "vllm",
    keys.ROLLOUT_MODE: "async",
    keys.ROLLOUT_N: 1,
    keys.TENSOR_PARALLEL: 1,
    keys.ROLLOUT_DP: 1,
    keys.ROLLOUT_PP: 1,
    keys.MEMORY_UTILIZATION: 0.5,
    keys.MAX_SEQS: 256,
    keys.MAX_BATCHED_TOKENS: 8192,
    keys.ROLLOUT_MODEL_LEN: None,
    keys.ROLLOUT_CHUNKED_PREFILL: True,
    keys.ROLLOUT_FREE_CACHE: True,
    keys.ROLLOUT_PROMPT_LENGTH: 512,
    keys.ROLLOUT_RESPONSE_LENGTH: 256,
    keys.ROLLOUT_TEMPERATURE: 1.0,
    keys.ROLLOUT_VAL_SAMPLE: False,
    keys.LOG_PROB_MICRO_BATCH: 16,
    keys.ROLLOUT_LOG_PROB_MICRO_GLOBAL: None,
    keys.ROLLOUT_LOG_PROB_DYNAMIC: False,
    keys.ROLLOUT_LOG_PROB_MAX_TOKENS: 16384,
    keys.REF_MICRO_BATCH: 16,
    keys.REF_LOG_PROB_MICRO_GLOBAL: None,
    keys.REF_LOG_PROB_DYNAMIC: False,
    keys.REF_LOG_PROB_MAX_TOKENS: 16384,
    keys.MODEL_PATH: "/models/m",
    keys.MODEL_REMOVE_PADDING: True,
    keys.CRITIC_ENABLE: None,
    keys.CRITIC_MINI_BATCH: 128,
    keys.CRITIC_MICRO_BATCH: 16,
    keys.CRITIC_MICRO_GLOBAL: None,
    keys.CRITIC_DYNAMIC: False,
    keys.CRITIC_ULYSSES: 1,
    keys.CRITIC_MODEL_PATH: "/models/m",
    keys.CRITIC_REMOVE_PADDING: True,
    keys.ADV_ESTIMATOR: "gae",
    keys.LAM: 1.0,
    keys.GAMMA: 1.0,
    keys.KL_IN_REWARD: False,
    keys.KL_TYPE: "fixed",
    keys.KL_COEF: 0.001,
    keys.KL_HORIZON: 10000,
    keys.KL_TARGET: 0.1,
    keys.GPUS_PER_NODE: 8,
    keys.NODES: 1,
    keys.TOTAL_EPOCHS: 15,
    keys.TOTAL_STEPS: None,
    keys.SAVE_FREQ: -1,
    keys.KEEP_ACTOR: None,
    keys.CHECKPOINT_DIR: "checkpoints/p/e",
    keys.RESUME_MODE: "auto",
    keys.RESUME_FROM: None,
    keys.USE_V1: True,
    keys.LOGGER: ["console"],
    keys.REWARD_PATH: None,
    keys.RAY_CPUS: None,
    keys.QUEUE_BACKEND: "SimpleStorage",
    keys.QUEUE_UNITS: 8,
}


def found(changes: dict[str, object], facts: Facts | None = None) -> list[PreflightFinding]:
    """The findings on the sound configuration with some settings changed."""
    return list(preflight({**SOUND, **changes}, facts))


def codes(changes: dict[str, object], facts: Facts | None = None) -> list[str]:
    """The codes of those findings."""
    return [finding.code for finding in found(changes, facts)]


def only(code: str, changes: dict[str, object], facts: Facts | None = None) -> PreflightFinding:
    """The one finding of that code; the test fails if there is none or more than one."""
    matching = [finding for finding in found(changes, facts) if finding.code == code]
    assert len(matching) == 1, f"{code}: {matching}"
    return matching[0]
