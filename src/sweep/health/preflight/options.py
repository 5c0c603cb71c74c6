"""Whether options name something that verl 0.9.1 has: rollout engine and mode, schedulers, loss aggregation."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.core import verl_keys as keys
from sweep.core.overrides import is_interpolation
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, error, warn
from sweep.health.preflight.settings import Config, flag, number, text, uses_megatron, whole

CHECKED_VERSION = "0.9.1"
"""The verl whose sources these checks were read from."""

SCHEDULERS = ("constant", "cosine")
"""Source: verl workers/config/optimizer.py."""

REMOVED_ENGINES = ("hf", "vllm_spmd", "sglang_async", "vllm_async")
"""Rollout engines of older versions without a registry entry. Source: verl workers/rollout/base.py."""

STRATEGIES = ("fsdp", "fsdp2", "fsdp_turbo", "megatron", "torchtitan", "veomni", "automodel")
"""Source: verl workers/config/engine.py and the files of trainer/config/engine."""


GROUP_ESTIMATORS = frozenset(
    {"grpo", "grpo_passk", "grpo_vectorized", "rloo", "rloo_vectorized", "opo", "gdpo", "reinforce_plus_plus_baseline"}
)
"""Estimators that compare the samples of one prompt with each other. Source: verl trainer/ppo/core_algos.py."""


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on options with a closed set of values, and on sampling."""
    if facts.verl_version is not None and not facts.verl_version.startswith(CHECKED_VERSION):
        yield warn(
            "VERL_VERSION",
            f"verl {facts.verl_version} is installed, the checks know {CHECKED_VERSION}",
            "keys, defaults and limits differ between versions",
            nearest=(f"pip install verl=={CHECKED_VERSION}",),
            source="METHOD section 9",
        )
    yield from _interpolations(config, facts)
    for key, default in facts.mistyped.items():
        yield error(
            "VALUE_TYPE",
            f"{key} is {config.get(key)!r}, and verl's default is {default!r}",
            "verl calculates with it and fails, or takes any text for true",
            nearest=(f"{key}={str(default).lower()}",),
            keys=(key,),
            source="verl trainer/config",
        )
    yield from _rollout_engine(config)
    yield from _sampling(config)
    yield from _warmth(config)
    yield from _training(config)


def _interpolations(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Values that were given and still hold an interpolation after composing: nothing has that name."""
    for key in sorted(facts.given or ()):
        value = config.get(key)
        if is_interpolation(value):
            yield error(
                "INTERPOLATION_UNRESOLVED",
                f"{key} is {value!r}, and nothing resolves it",
                "Hydra puts a setting in the place of ${...}, quoted or not; verl fails when it reads this one",
                nearest=(f"{key}={str(value).replace('${', chr(92) + '${')}",),
                keys=(key,),
                source="hydra-ecosystem/hydra#2705; OmegaConf documentation on interpolation",
            )


def _rollout_engine(config: Config) -> Iterator[PreflightFinding]:
    name = text(config, keys.ROLLOUT_NAME)
    if keys.ROLLOUT_NAME in config and name is None:
        yield error(
            "ROLLOUT_NAME_MISSING",
            f"{keys.ROLLOUT_NAME} is not set",
            "it is mandatory and has no default; verl says so only after the models are loaded",
            nearest=(f"{keys.ROLLOUT_NAME}=vllm",),
            keys=(keys.ROLLOUT_NAME,),
            source="verl trainer/config/rollout/rollout.yaml",
        )
    if name in REMOVED_ENGINES:
        yield _removed(keys.ROLLOUT_NAME, name, f"{keys.ROLLOUT_NAME}=vllm", "verl workers/rollout/base.py")
    mode = text(config, keys.ROLLOUT_MODE)
    if mode is not None and mode != "async":
        yield _removed(
            keys.ROLLOUT_MODE, mode, f"{keys.ROLLOUT_MODE}=async", "verl-project/verl#4495, PR #4690, PR #7502"
        )
    stages = whole(config, keys.ROLLOUT_PP)
    if stages is not None and stages != 1:
        yield _removed(keys.ROLLOUT_PP, stages, f"{keys.ROLLOUT_PP}=1", "verl workers/config/rollout.py")


def _sampling(config: Config) -> Iterator[PreflightFinding]:
    estimator, samples = text(config, keys.ADV_ESTIMATOR), whole(config, keys.ROLLOUT_N)
    if samples is not None and samples < 1:
        yield error(
            "OUT_OF_RANGE",
            f"{keys.ROLLOUT_N} is {samples}",
            "every prompt needs a response",
            nearest=(f"{keys.ROLLOUT_N}=1",),
            keys=(keys.ROLLOUT_N,),
            source="verl trainer/config/rollout/rollout.yaml",
        )
    elif estimator in GROUP_ESTIMATORS and samples == 1:
        yield error(
            "GROUP_OF_ONE",
            f"{keys.ADV_ESTIMATOR} {estimator} compares the samples of a prompt, and {keys.ROLLOUT_N} is 1",
            "every advantage is then zero or undefined, and nothing is learned",
            nearest=(f"{keys.ROLLOUT_N}=5", f"{keys.ADV_ESTIMATOR}=gae"),
            keys=(keys.ADV_ESTIMATOR, keys.ROLLOUT_N),
            source="verl trainer/ppo/core_algos.py",
        )


def _warmth(config: Config) -> Iterator[PreflightFinding]:
    temperature = number(config, keys.ROLLOUT_TEMPERATURE)
    if temperature is not None and temperature <= 0.0:
        make = error if temperature < 0.0 else warn
        yield make(
            "OUT_OF_RANGE" if temperature < 0.0 else "ROLLOUT_GREEDY",
            f"{keys.ROLLOUT_TEMPERATURE} is {temperature:g}",
            "training samples are then always the most likely tokens: nothing is explored",
            nearest=(f"{keys.ROLLOUT_TEMPERATURE}=1.0",),
            keys=(keys.ROLLOUT_TEMPERATURE,),
            source="verl trainer/config/rollout/rollout.yaml",
        )
    if (whole(config, keys.ROLLOUT_VAL_N) or 1) > 1 and flag(config, keys.ROLLOUT_VAL_SAMPLE) is False:
        yield warn(
            "VAL_COPIES",
            f"{keys.ROLLOUT_VAL_N} is {config[keys.ROLLOUT_VAL_N]} with {keys.ROLLOUT_VAL_SAMPLE} false",
            "greedy validation gives the same answer every time",
            nearest=(f"{keys.ROLLOUT_VAL_N}=1", f"{keys.ROLLOUT_VAL_SAMPLE}=true"),
            keys=(keys.ROLLOUT_VAL_N, keys.ROLLOUT_VAL_SAMPLE),
            source="verl trainer/config/rollout/rollout.yaml",
        )
    if flag(config, keys.ROLLOUT_VAL_SAMPLE) and (number(config, keys.ROLLOUT_TEMPERATURE) or 0.0) <= 0.0:
        yield error(
            "VAL_SAMPLING_COLD",
            f"{keys.ROLLOUT_VAL_SAMPLE} is true with {keys.ROLLOUT_TEMPERATURE} 0",
            "verl refuses to sample in validation at temperature 0",
            nearest=(f"{keys.ROLLOUT_TEMPERATURE}=1.0", f"{keys.ROLLOUT_VAL_SAMPLE}=false"),
            keys=(keys.ROLLOUT_VAL_SAMPLE, keys.ROLLOUT_TEMPERATURE),
            source="verl utils/config.py",
        )


def _training(config: Config) -> Iterator[PreflightFinding]:
    strategy = text(config, keys.ACTOR_STRATEGY)
    if strategy is not None and strategy not in STRATEGIES:
        yield _unknown(keys.ACTOR_STRATEGY, strategy, STRATEGIES)
    scheduler = text(config, keys.ACTOR_SCHEDULER)
    if scheduler is not None and scheduler not in SCHEDULERS and not uses_megatron(config):
        yield _unknown(keys.ACTOR_SCHEDULER, scheduler, SCHEDULERS)
    mixed = config.get(keys.ACTOR_MIXED_PRECISION)
    if isinstance(mixed, bool):
        yield error(
            "MIXED_PRECISION_NOT_A_MAPPING",
            f"{keys.ACTOR_MIXED_PRECISION} is {str(mixed).lower()}",
            "the engine reads types from it; bfloat16 parameters with float32 reduction are the default already",
            nearest=(f"~{keys.ACTOR_MIXED_PRECISION}", f"+{keys.ACTOR_MIXED_PRECISION}.param_dtype=bf16"),
            keys=(keys.ACTOR_MIXED_PRECISION,),
            source="verl workers/engine/fsdp/transformer_impl.py",
        )
    for key, low, high in ((keys.LAM, 0.0, 1.0), (keys.GAMMA, 0.0, 1.0)):
        value = number(config, key)
        if value is not None and not low <= value <= high:
            yield error(
                "OUT_OF_RANGE",
                f"{key} is {value:g}, outside {low:g} to {high:g}",
                "verl does not check it, and returns then grow without bound along a response",
                nearest=(f"{key}={min(max(value, low), high):g}",),
                keys=(key,),
                source="verl trainer/ppo/core_algos.py",
            )


def _removed(key: str, value: object, instead: str, source: str) -> PreflightFinding:
    return error(
        "REMOVED_OPTION",
        f"{key}={value} no longer exists",
        "this verl runs rollout as an asynchronous server only; delete the override",
        nearest=(instead,),
        keys=(key,),
        source=source,
    )


def _unknown(key: str, value: str, known: tuple[str, ...]) -> PreflightFinding:
    return error(
        "UNKNOWN_OPTION",
        f"{key} is {value!r}",
        f"verl knows {', '.join(known)}",
        nearest=tuple(f"{key}={option}" for option in known[:2]),
        keys=(key,),
        source="verl workers/config",
    )
