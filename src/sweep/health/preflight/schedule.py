"""Whether the run is as long as was asked for, and whether its learning-rate schedule fits a short trial."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sweep.core import verl_keys as keys
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, error, info, warn
from sweep.health.preflight.limits import DEFAULT, PreflightLimits
from sweep.health.preflight.settings import Config, number, text, whole


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on steps, epochs and the learning rate."""
    yield from _epochs(config, facts)
    yield from _total(config, facts)
    yield from _warmup(config, facts)
    yield from _critic_first(config, facts)
    yield from _cosine(config, facts)
    yield from _rate(config, facts.limits)


def _epochs(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    rows = facts.rows_after_filter if facts.rows_after_filter is not None else facts.dataset_rows
    train, epochs = whole(config, keys.TRAIN_BATCH), whole(config, keys.TOTAL_EPOCHS)
    wanted = facts.trial_steps or whole(config, keys.TOTAL_STEPS)
    if rows is None or not train or train < 1 or epochs is None or wanted is None or rows < train:
        return
    steps = epochs * (rows // train)
    if steps < wanted:
        enough = math.ceil(wanted / (rows // train))
        yield error(
            "EPOCHS_END_EARLY",
            f"{epochs} epochs of {rows} rows at {train} a step are {steps} steps, {wanted} were asked for",
            "verl stops there without an error, a last validation or a checkpoint, and exits with 0",
            nearest=(f"{keys.TOTAL_EPOCHS}={enough}",),
            keys=(keys.TOTAL_EPOCHS, keys.TRAIN_BATCH, keys.TOTAL_STEPS),
            source="METHOD section 9; verl trainer/ppo/v1/trainer_base.py",
            computed={"steps": steps, "wanted": wanted, "steps_per_epoch": rows // train},
        )


def _total(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    total = whole(config, keys.TOTAL_STEPS)
    if total is not None and facts.trial_steps is not None and total < facts.trial_steps:
        yield error(
            "TOTAL_STEPS_LT_TRIAL",
            f"{keys.TOTAL_STEPS} is {total}, the trial has {facts.trial_steps} steps",
            "verl ends the run first",
            nearest=(f"{keys.TOTAL_STEPS}={facts.trial_steps}",),
            keys=(keys.TOTAL_STEPS,),
            source="verl trainer/ppo/v1/trainer_base.py",
        )


def _warmup(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    warmup, steps = whole(config, keys.ACTOR_WARMUP_STEPS), facts.trial_steps or whole(config, keys.TOTAL_STEPS)
    ratio = number(config, keys.ACTOR_WARMUP_RATIO)
    if ratio is not None and not 0.0 <= ratio < 1.0:
        yield error(
            "OUT_OF_RANGE",
            f"{keys.ACTOR_WARMUP_RATIO} is {ratio:g}",
            "it is a share of all steps, at least 0 and below 1",
            nearest=(f"{keys.ACTOR_WARMUP_RATIO}=0",),
            keys=(keys.ACTOR_WARMUP_RATIO,),
            source="verl workers/config/optimizer.py",
        )
    by_ratio = warmup is None or warmup <= 0
    key = keys.ACTOR_WARMUP_RATIO if by_ratio else keys.ACTOR_WARMUP_STEPS
    effective = _by_ratio(config, ratio) if by_ratio else warmup
    if effective is None or steps is None or effective < steps:
        return
    fitting = max(1, steps // 10)
    yield warn(
        "WARMUP_OUTLASTS_TRIAL",
        f"{key} is {config.get(key)}" + (f", {effective} steps" if by_ratio else "") + f"; the trial has {steps} steps",
        "the learning rate that is tuned is never reached",
        nearest=(f"{keys.ACTOR_WARMUP_STEPS}={fitting}",),
        keys=(key, keys.SCHEDULE_STEPS if keys.SCHEDULE_STEPS in config else keys.TOTAL_STEPS),
        source="S0 section 2.4; verl workers/engine/fsdp/transformer_impl.py",
        computed={"warmup": effective, "steps": steps},
    )


def _by_ratio(config: Config, ratio: float | None) -> int | None:
    """Warm-up steps of a share of the whole schedule, which is the plug-in's length where one is set."""
    whole_run = whole(config, keys.SCHEDULE_STEPS) or whole(config, keys.TOTAL_STEPS)
    return int(ratio * whole_run) if ratio and whole_run and 0.0 < ratio < 1.0 else None


def _critic_first(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    first, steps = whole(config, keys.CRITIC_WARMUP), facts.trial_steps or whole(config, keys.TOTAL_STEPS)
    if first is not None and steps is not None and first >= steps > 0:
        yield error(
            "ACTOR_NEVER_TRAINS",
            f"{keys.CRITIC_WARMUP} is {first}, the run has {steps} steps",
            "only the critic is updated before that step",
            nearest=(f"{keys.CRITIC_WARMUP}=0",),
            keys=(keys.CRITIC_WARMUP, keys.TOTAL_STEPS),
            source="verl trainer/ppo/v1/trainer_base.py",
        )


def _cosine(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    total, trial = whole(config, keys.TOTAL_STEPS), facts.trial_steps
    if text(config, keys.ACTOR_SCHEDULER) != "cosine" or trial is None or keys.SCHEDULE_STEPS in config:
        return
    if total is not None and total <= trial:
        yield info(
            "COSINE_COMPRESSED",
            f"the cosine schedule falls to its end within {total} steps",
            "a trial should run the first steps of the whole run's schedule",
            nearest=(f"+{keys.SCHEDULE_STEPS}=10000",),
            keys=(keys.ACTOR_SCHEDULER, keys.TOTAL_STEPS),
            source="S0 section 2.4; METHOD section 5",
        )


def _rate(config: Config, limits: PreflightLimits) -> Iterator[PreflightFinding]:
    rate = number(config, keys.ACTOR_LR)
    low, high = limits.lr_low, limits.lr_high
    if rate is None:
        return
    if rate <= 0:
        yield error(
            "OUT_OF_RANGE",
            f"{keys.ACTOR_LR} is {rate:g}",
            "a learning rate is positive",
            nearest=(f"{keys.ACTOR_LR}={low:g}",),
            keys=(keys.ACTOR_LR,),
            source="S0 section 1.3",
        )
    elif not low <= rate <= high:
        yield info(
            "LR_OUTSIDE_SAFE_RANGE",
            f"{keys.ACTOR_LR} {rate:g} is outside {low:g} to {high:g}",
            f"the article's range is {DEFAULT.lr_low:g} to {DEFAULT.lr_high:g}, for models of 0.5B to 7B",
            nearest=(f"{keys.ACTOR_LR}={min(max(rate, low), high):g}",),
            keys=(keys.ACTOR_LR,),
            source="S0 section 1.3",
        )
