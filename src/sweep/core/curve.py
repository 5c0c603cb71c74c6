"""`Curve`: what a trial logged, step by step, under our own names and units.

verl's metric names are translated once, in `METRICS`; no other module spells them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, fields

METRICS: dict[str, str] = {
    "score": "critic/score/mean",
    "reward": "critic/rewards/mean",
    "kl_nats": "actor/reward_kl_penalty",
    "kl_coef": "actor/reward_kl_penalty_coeff",
    "update_kl_nats": "actor/ppo_kl",
    "grad_norm": "actor/grad_norm",
    "critic_grad_norm": "critic/grad_norm",
    "lr": "actor/lr",
    "entropy_nats": "actor/entropy",
    "vf_loss": "critic/vf_loss",
    "step_seconds": "timing_s/step",
    "gen_seconds": "timing_s/gen",
    "response_tokens": "response_length/mean",
    "total_tokens": "perf/total_num_tokens",
    "tokens_per_s_per_gpu": "perf/throughput",
    "peak_gib": "actor/perf/max_memory_allocated_gb",
    "free_gib": "sweep/free_gib_min",
    "preemptions": "sweep/preemptions",
    "rollout_tokens_per_s": "sweep/rollout_tokens_per_s",
}
"""Our name to verl's metric name (the last three are written by our plug-ins).

`score` is the raw reward, free of the KL penalty, so that arms with different coefficients compare; `kl_nats` is
policy against reference a token; `update_kl_nats` is new against old policy inside one update and never stands in
for it. Source: verl 0.9.1 trainer/ppo/metric_utils.py and ray_trainer.py; METHOD sections 3 and 9.
"""

OTHERWISE: dict[str, str] = {"kl_nats": "actor/kl_loss", "kl_coef": "actor/kl_coef"}
"""Where verl logs the same quantity of a run whose KL is a loss of the actor and no part of the reward.

Source: verl 0.9.1 workers/utils/losses.py; METHOD section 3.
"""


@dataclass(frozen=True, slots=True)
class Curve:
    """Equal-length series, shape (steps,); a metric that a step did not log is NaN there."""

    steps: tuple[int, ...] = ()
    score: tuple[float, ...] = ()
    reward: tuple[float, ...] = ()
    kl_nats: tuple[float, ...] = ()
    kl_coef: tuple[float, ...] = ()
    update_kl_nats: tuple[float, ...] = ()
    grad_norm: tuple[float, ...] = ()
    critic_grad_norm: tuple[float, ...] = ()
    lr: tuple[float, ...] = ()
    entropy_nats: tuple[float, ...] = ()
    vf_loss: tuple[float, ...] = ()
    step_seconds: tuple[float, ...] = ()
    gen_seconds: tuple[float, ...] = ()
    response_tokens: tuple[float, ...] = ()
    total_tokens: tuple[float, ...] = ()
    tokens_per_s_per_gpu: tuple[float, ...] = ()
    peak_gib: tuple[float, ...] = ()
    free_gib: tuple[float, ...] = ()
    preemptions: tuple[float, ...] = ()
    rollout_tokens_per_s: tuple[float, ...] = ()

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[int, Mapping[str, float]]]) -> Curve:
        """The curve of (step, verl metrics) rows: sorted by step, the last row of a repeated step wins."""
        by_step = dict(rows)
        steps = tuple(sorted(by_step))
        logged = {metric for row in by_step.values() for metric in row}
        columns = {
            name: tuple(float(by_step[s].get(metric, math.nan)) for s in steps)
            for name, metric in ((name, metric_of(name, logged)) for name in METRICS)
        }
        return cls(steps=steps, **columns)

    @property
    def last_step(self) -> int:
        """The highest step logged; 0 if none was."""
        return self.steps[-1] if self.steps else 0

    def since(self, first_step: int) -> Curve:
        """The part from `first_step` on."""
        keep = [i for i, s in enumerate(self.steps) if s >= first_step]
        return Curve(**{f.name: tuple(getattr(self, f.name)[i] for i in keep) for f in fields(self)})

    def to_json(self, digits: int = 7) -> dict[str, list[float | int | None]]:
        """Series name to values rounded to significant digits; NaN and infinities as None, all-NaN series left out."""
        out: dict[str, list[float | int | None]] = {"steps": list(self.steps)}
        for name in METRICS:
            values = getattr(self, name)
            if any(math.isfinite(v) for v in values):
                out[name] = [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values]
        return out

    @classmethod
    def from_json(cls, content: Mapping[str, Iterable[float | int | None]]) -> Curve:
        """The curve that `to_json` described, up to its rounding."""
        steps = tuple(int(s) for s in content.get("steps", ()) if s is not None)
        blank = (math.nan,) * len(steps)
        columns = {
            name: tuple(math.nan if v is None else float(v) for v in content[name]) if name in content else blank
            for name in METRICS
        }
        return cls(steps=steps, **columns)


def metric_of(name: str, logged: Container[str]) -> str:
    """verl's metric that holds our series in a run that logged these metrics."""
    return METRICS[name] if METRICS[name] in logged else OTHERWISE.get(name, METRICS[name])
