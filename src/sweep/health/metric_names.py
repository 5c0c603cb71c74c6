"""What a metric is called: `Quantity`, and by which names frameworks and verl versions log it, with their units.

`find` answers which column of a table holds a quantity. Two names are the same quantity only if a threshold means
the same for both; where units differ the unit comes with the answer.

Sources: verl 0.9.1 trainer/ppo/metric_utils.py, ray_trainer.py and utils/losses.py; verl 0.2 and 0.3 ray_trainer.py
(`critic/kl`, `actor/entropy_loss`, `timing/`, `val/test_score/`); TRL's PPO and GRPO logging pages; OpenRLHF.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from sweep.core.curve import METRICS
from sweep.health.metric_table import MetricTable, Series


class Unit(Enum):
    """The unit of a name, as far as thresholds depend on it."""

    PLAIN = "plain"
    PER_TOKEN = "nats per token"
    PER_SEQUENCE = "nats per sequence"


class Quantity(Enum):
    """What is measured, whatever it is called."""

    REWARD = "reward"
    REWARD_MAX = "best reward of a batch"
    REWARD_MIN = "worst reward of a batch"
    REWARD_SPREAD = "spread of the reward within a group"
    REFERENCE_KL = "KL of the policy to its reference"
    UPDATE_KL = "KL of the policy to itself before the update"
    GRAD_NORM = "the actor's gradient norm before clipping"
    CRITIC_GRAD_NORM = "the critic's gradient norm"
    ENTROPY = "the policy's entropy"
    CLIP_FRACTION = "share of clipped tokens in the policy loss"
    VALUE_LOSS = "the critic's loss"
    EXPLAINED_VARIANCE = "variance of the returns that the critic explains"
    ADVANTAGE_MEAN = "mean advantage"
    ADVANTAGE_MAX = "largest advantage"
    ADVANTAGE_MIN = "smallest advantage"
    LENGTH_MEAN = "mean response length in tokens"
    LENGTH_MAX = "longest response of a batch in tokens"
    LENGTH_CLIP_RATIO = "share of responses that were cut off"
    LR = "the actor's learning rate"
    STEP_SECONDS = "seconds a step"
    GEN_SECONDS = "seconds of generation a step"
    GPU_RESERVED_GIB = "peak of reserved GPU memory"
    HOST_USED_GIB = "host memory in use"
    ROLLOUT_PROBABILITY_GAP = "mean difference of token probability between rollout and trainer"
    ROLLOUT_CORRELATION = "correlation of token probabilities between rollout and trainer"


@dataclass(frozen=True, slots=True)
class Alias:
    """One name of a quantity; values times `factor` are in the quantity's unit."""

    name: str
    unit: Unit = Unit.PLAIN
    factor: float = 1.0


def _plain(*names: str) -> tuple[Alias, ...]:
    return tuple(Alias(name) for name in names)


def _kl(*names: str, unit: Unit = Unit.PER_TOKEN) -> tuple[Alias, ...]:
    return tuple(Alias(name, unit) for name in names)


ALIASES: Mapping[Quantity, tuple[Alias, ...]] = {
    Quantity.REWARD: _plain(
        METRICS["score"],
        METRICS["reward"],
        "objective/scores",
        "ppo/mean_scores",
        "env/reward_mean",
        "reward/mean",
        "reward",
        "rewards/mean",
        "reward_score",
    ),
    Quantity.REWARD_MAX: _plain("critic/score/max", "critic/rewards/max"),
    Quantity.REWARD_MIN: _plain("critic/score/min", "critic/rewards/min"),
    Quantity.REWARD_SPREAD: _plain("reward_std", "critic/score/std", "critic/rewards/std"),
    Quantity.REFERENCE_KL: (
        *_kl(METRICS["kl_nats"], "actor/kl_loss", "critic/kl", "actor/ref_kl", "kl", "kl/mean"),
        *_kl("objective/kl", unit=Unit.PER_SEQUENCE),
    ),
    Quantity.UPDATE_KL: _kl(
        METRICS["update_kl_nats"], "policy/approxkl_avg", "ppo/policy/approxkl", "approx_kl", "approxkl"
    ),
    Quantity.GRAD_NORM: _plain(METRICS["grad_norm"], "actor_grad_norm", "policy/grad_norm", "grad_norm"),
    Quantity.CRITIC_GRAD_NORM: _plain(METRICS["critic_grad_norm"], "critic_grad_norm"),
    Quantity.ENTROPY: (
        *_kl(METRICS["entropy_nats"], "actor/entropy_loss", "policy/entropy_avg", "ppo/policy/entropy", "entropy"),
        *_kl("objective/entropy", unit=Unit.PER_SEQUENCE),
    ),
    Quantity.CLIP_FRACTION: _plain(
        "actor/pg_clipfrac", "policy/clipfrac_avg", "ppo/policy/clipfrac", "clip_ratio", "clip_ratio/region_mean"
    ),
    Quantity.VALUE_LOSS: _plain(METRICS["vf_loss"], "critic/value_loss", "loss/value_avg", "ppo/loss/value"),
    Quantity.EXPLAINED_VARIANCE: _plain("critic/vf_explained_var", "ppo/val/var_explained", "val/var_explained"),
    Quantity.ADVANTAGE_MEAN: _plain("critic/advantages/mean", "ppo/policy/advantages_mean"),
    Quantity.ADVANTAGE_MAX: _plain("critic/advantages/max"),
    Quantity.ADVANTAGE_MIN: _plain("critic/advantages/min"),
    Quantity.LENGTH_MEAN: _plain(
        METRICS["response_tokens"],
        "completions/mean_length",
        "completion_length",
        "tokens/responses_len_mean",
        "response_length",
    ),
    Quantity.LENGTH_MAX: _plain("response_length/max", "completions/max_length"),
    Quantity.LENGTH_CLIP_RATIO: _plain("response_length/clip_ratio", "completions/clipped_ratio"),
    Quantity.LR: (
        *_plain(METRICS["lr"], "policy/lr", "actor_lr", "learning_rate", "lr"),
        Alias("actor/lr(1e-4)", factor=1e-4),
    ),
    Quantity.STEP_SECONDS: _plain(METRICS["step_seconds"], "perf/time_per_step", "timing/step", "step_time"),
    Quantity.GEN_SECONDS: _plain(METRICS["gen_seconds"], "timing/gen"),
    Quantity.GPU_RESERVED_GIB: _plain(
        "actor/perf/max_memory_reserved_gb", "perf/max_memory_reserved_gb", "critic/perf/max_memory_reserved_gb"
    ),
    Quantity.HOST_USED_GIB: _plain("actor/perf/cpu_memory_used_gb", "perf/cpu_memory_used_gb"),
    Quantity.ROLLOUT_PROBABILITY_GAP: _plain("training/rollout_probs_diff_mean"),
    Quantity.ROLLOUT_CORRELATION: _plain("training/rollout_actor_probs_pearson_corr"),
}
"""Quantity to its names, the preferred first: the raw score before the score less the KL penalty, and for KL the
in-reward penalty before the loss term. Source for the order: METHOD sections 3 and 9."""

PREFIXES = ("", "train/")
"""What a tracker may put in front of every name. Source: the Hugging Face Trainer's W&B and MLflow callbacks."""


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A quantity as this run logged it."""

    quantity: Quantity
    unit: Unit
    series: Series

    @property
    def name(self) -> str:
        """The name in the log."""
        return self.series.name


def find(table: MetricTable, quantity: Quantity, units: Mapping[str, str] | None = None) -> Measured | None:
    """The preferred column that holds the quantity, in its unit; None if no name of it is in the table.

    `units` are statements by the user, metric name to text; "sequence" or "token" in the text overrides our unit.
    """
    for alias in ALIASES[quantity]:
        for prefix in PREFIXES:
            series = table.series(prefix + alias.name)
            if series is not None and len(series):
                stated = (units or {}).get(series.name, "")
                return Measured(quantity, _unit(alias.unit, stated), series.scaled(alias.factor))
    return None


def _unit(known: Unit, stated: str) -> Unit:
    text = stated.casefold()
    if "sequence" in text or "response" in text:
        return Unit.PER_SEQUENCE
    return Unit.PER_TOKEN if "token" in text else known


VALIDATION_PREFIXES = ("val-core/", "val/test_score/", "val/", "eval/", "val-aux/")
"""Where validation results are logged, the headline first. Source: verl 0.9.1 trainer_base.py; verl 0.2."""

VALIDATION_WORDS = ("acc", "reward", "score", "test_score", "pass")
"""What a validation metric must be about to stand for the task."""


def validation(table: MetricTable) -> Series | None:
    """The headline validation metric: of the preferred group, accuracy before reward; None if none was logged."""
    for prefix in VALIDATION_PREFIXES:
        names = [n for n in table.names if n.startswith(prefix)]
        for word in VALIDATION_WORDS:
            chosen = next((n for n in names if word in n.casefold()), None)
            if chosen is not None:
                return table.series(chosen)
    return None
