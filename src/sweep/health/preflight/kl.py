"""Whether the KL settings do anything, and cannot do harm: the coefficient, the adaptive controller, our band.

Two different mechanisms are kept apart: a penalty in the reward (`algorithm.*`) and a loss term
(`actor_rollout_ref.actor.*`).
"""

from __future__ import annotations

from collections.abc import Iterator

from sweep.core import kl_band
from sweep.core import verl_keys as keys
from sweep.core.kl_band import BAND, KlBandSettings
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, error, info, warn
from sweep.health.preflight.limits import PreflightLimits
from sweep.health.preflight.settings import Config, flag, layout, number, text, whole

TYPES = ("fixed", "adaptive", BAND)
"""Controller types: verl's two, and the band of our plug-in. Source: verl trainer/ppo/core_algos.py."""

TARGET_KL_DEFAULT = 0.1
"""Source: verl trainer/config/ppo_trainer.yaml."""

ADAPTIVE_STEP = 0.2
"""Largest relative error the adaptive controller acts on. Source: verl trainer/ppo/core_algos.py."""

BAND_DEFAULTS = KlBandSettings()


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on KL settings."""
    in_reward = flag(config, keys.KL_IN_REWARD)
    if in_reward is None:
        return
    kind = text(config, keys.KL_TYPE)
    if kind is not None and kind not in TYPES:
        yield error(
            "KL_TYPE_UNKNOWN",
            f"{keys.KL_TYPE} is {kind!r}",
            f"known are {', '.join(TYPES)}; verl raises only when its trainer starts",
            nearest=tuple(f"{keys.KL_TYPE}={known}" for known in TYPES),
            keys=(keys.KL_TYPE,),
            source="verl trainer/ppo/core_algos.py",
        )
    yield from _dead_coefficient(config, facts, in_reward)
    yield from _idle_target(config, facts, kind, in_reward)
    if kind == "adaptive":
        yield from _adaptive(config, facts)
    if kind == BAND or any(key in config for key in keys.BAND_KEYS):
        yield from _band(config, facts, kind, in_reward)
    if in_reward:
        yield from _both_terms(config)
        yield from _safe_range(config, facts.limits)


def _dead_coefficient(config: Config, facts: Facts, in_reward: bool) -> Iterator[PreflightFinding]:
    if in_reward or not facts.set_on_purpose(keys.KL_COEF):
        return
    loss = flag(config, keys.KL_LOSS)
    yield error(
        "KL_COEF_WITHOUT_KL",
        f"{keys.KL_COEF} is set, and {keys.KL_IN_REWARD} is false",
        f"verl never reads it then; {keys.KL_LOSS} has its own {keys.KL_LOSS_COEF}"
        if loss
        else "verl never reads it then, and no other KL term is on: training has no KL penalty at all",
        nearest=(f"{keys.KL_IN_REWARD}=true", *((f"{keys.KL_LOSS_COEF}={config.get(keys.KL_COEF)}",) if loss else ())),
        keys=(keys.KL_COEF, keys.KL_IN_REWARD),
        source="METHOD section 9; verl trainer/ppo/v1/trainer_base.py",
    )


def _idle_target(config: Config, facts: Facts, kind: str | None, in_reward: bool) -> Iterator[PreflightFinding]:
    target = number(config, keys.KL_TARGET)
    chosen = facts.set_on_purpose(keys.KL_TARGET) or target not in (None, TARGET_KL_DEFAULT)
    if not chosen or (kind == "adaptive" and in_reward):
        return
    yield warn(
        "TARGET_KL_UNUSED",
        f"{keys.KL_TARGET} is {target}, and the controller is {kind}" + ("" if in_reward else ", without a KL term"),
        "only the adaptive controller of a penalty in the reward reads a target",
        nearest=(f"{keys.KL_TYPE}=adaptive", f"~{keys.KL_TARGET}"),
        keys=(keys.KL_TARGET, keys.KL_TYPE),
        source="METHOD section 9; verl trainer/ppo/core_algos.py",
    )


def _adaptive(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    horizon, train = number(config, keys.KL_HORIZON), whole(config, keys.TRAIN_BATCH)
    target = number(config, keys.KL_TARGET)
    for key, value in ((keys.KL_HORIZON, horizon), (keys.KL_TARGET, target)):
        if value is not None and value <= 0:
            yield error(
                "OUT_OF_RANGE",
                f"{key} is {value:g}",
                "the adaptive controller divides by it",
                keys=(key,),
                source="verl trainer/ppo/core_algos.py",
            )
    if horizon is None or horizon <= 0 or not train:
        return
    rows = train * layout(config).rollout_n
    limit = horizon / ADAPTIVE_STEP
    if rows >= limit:
        yield error(
            "ADAPTIVE_KL_SIGN_FLIP",
            f"a step of {rows} rows is not below {limit:g}, 5 x {keys.KL_HORIZON} {horizon:g}",
            "the controller multiplies the coefficient by 1 - 0.2 x rows / horizon when KL is low: it turns 0 or "
            "negative, and the penalty into a reward",
            nearest=(f"{keys.KL_HORIZON}={int(rows * ADAPTIVE_STEP * 10)}",),
            keys=(keys.KL_HORIZON, keys.TRAIN_BATCH, keys.ROLLOUT_N),
            source="verl trainer/ppo/core_algos.py",
            computed={"rows": rows, "limit": limit},
        )


def _band(config: Config, facts: Facts, kind: str | None, in_reward: bool) -> Iterator[PreflightFinding]:
    given = [key for key in keys.BAND_KEYS if key in config]
    if kind != BAND:
        yield warn(
            "BAND_UNUSED",
            f"{given[0]} is set, and {keys.KL_TYPE} is {kind}",
            "only the band controller reads it",
            nearest=(f"{keys.KL_TYPE}={BAND}",),
            keys=(*given, keys.KL_TYPE),
            source="METHOD section 3",
        )
        return
    if not in_reward and not flag(config, keys.KL_LOSS):
        yield error(
            "BAND_WITHOUT_KL",
            f"{keys.KL_TYPE} is {BAND}, and neither {keys.KL_IN_REWARD} nor {keys.KL_LOSS} is true",
            "the controller sets the coefficient of a penalty that does not exist",
            nearest=(f"{keys.KL_IN_REWARD}=true", f"{keys.KL_LOSS}=true"),
            keys=(keys.KL_TYPE, keys.KL_IN_REWARD, keys.KL_LOSS),
            source="METHOD section 3",
        )
        return
    settings = KlBandSettings.unchecked({name: config.get(_key(name)) for name in kl_band.NAMES})
    found = list(kl_band.broken(settings))
    for relation, names in found:
        yield error(
            "BAND_INVALID",
            ", ".join(f"{_key(name)}={getattr(settings, name)}" for name in names),
            f"the controller needs {relation}",
            nearest=tuple(f"+{_key(name)}={getattr(BAND_DEFAULTS, name):g}" for name in names),
            keys=tuple(map(_key, names)),
            source="METHOD section 3",
        )
    if not found:
        yield from _start(config, keys.KL_COEF if in_reward else keys.KL_LOSS_COEF, settings)
        yield from _never_reads(facts.trial_steps, int(settings.band_interval))


def _never_reads(steps: int | None, interval: int) -> Iterator[PreflightFinding]:
    """A reading at the very end moves a coefficient that no step uses."""
    if steps is None or interval < steps:
        return
    fitting = kl_band.interval_for(steps)
    yield warn(
        "BAND_NEVER_READS",
        f"{keys.BAND_INTERVAL} is {interval}, the trial has {steps} steps",
        "the controller's first move comes after the trial: it compares fixed coefficients",
        nearest=(f"+{keys.BAND_INTERVAL}={fitting}",) if fitting < steps else (),
        keys=(keys.BAND_INTERVAL,),
        source="S0 section 2.2; METHOD section 3",
        computed={"interval": interval, "steps": steps},
    )


def _start(config: Config, key: str, settings: KlBandSettings) -> Iterator[PreflightFinding]:
    start, least, most = number(config, key), settings.coef_min, settings.coef_max
    if start is not None and not least <= start <= most:
        yield warn(
            "BAND_START_OUTSIDE",
            f"{key} is {start:g}, outside the controller's bounds {least:g} to {most:g}",
            "the controller moves it towards them only, and never further away",
            nearest=(f"{key}={min(max(start, least), most):g}",),
            keys=(key, keys.COEF_MIN, keys.COEF_MAX),
            source="METHOD section 3",
        )


def _key(name: str) -> str:
    return f"{kl_band.SECTION}.{name}"


def _both_terms(config: Config) -> Iterator[PreflightFinding]:
    if flag(config, keys.KL_LOSS):
        yield warn(
            "KL_TWICE",
            f"{keys.KL_IN_REWARD} and {keys.KL_LOSS} are both true",
            "KL is charged twice, and the controller moves only one of the two coefficients",
            nearest=(f"{keys.KL_LOSS}=false",),
            keys=(keys.KL_IN_REWARD, keys.KL_LOSS),
            source="verl utils/config.py",
        )


def _safe_range(config: Config, limits: PreflightLimits) -> Iterator[PreflightFinding]:
    coefficient = number(config, keys.KL_COEF)
    low, high = limits.kl_coef_low, limits.kl_coef_high
    if coefficient is None or low <= coefficient <= high:
        return
    if coefficient <= 0:
        yield error(
            "OUT_OF_RANGE",
            f"{keys.KL_COEF} is {coefficient:g}",
            "zero switches the penalty off, a negative coefficient rewards leaving the reference",
            nearest=(f"{keys.KL_COEF}={low:g}",),
            keys=(keys.KL_COEF,),
            source="S0 section 2.2",
        )
        return
    yield info(
        "KL_COEF_OUTSIDE_SAFE_RANGE",
        f"{keys.KL_COEF} {coefficient:g} is outside {low:g} to {high:g}",
        "too small lets the policy leave the reference, too large stops exploration",
        nearest=(f"{keys.KL_COEF}={min(max(coefficient, low), high):g}",),
        keys=(keys.KL_COEF,),
        source="S0 section 1.3",
    )
