"""`Knobs`: the numbers that a simulated training reacts to, read from verl settings; `DEFAULT_KNOBS` are verl's own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sweep.core import verl_keys as keys
from sweep.core.overrides import NOTHING, Overrides

KL_CONTROL = keys.KL_TYPE.rpartition(".")[0]
"""The section that holds the band controller's settings beside its type."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """The five knobs of the four stages and what else moves the simulation."""

    mini_batch: float
    train_batch: float
    kl_coef: float
    token_budget: float
    lr: float
    lam: float
    banded: bool
    band_low: float
    band_high: float
    band_lower: float
    band_raise: float
    band_interval: int
    coef_min: float
    coef_max: float

    def relative_to(self, base: Knobs) -> Knobs:
        """These knobs as a configuration with verl's defaults would have them: each as far from its default as it is
        from `base`. lam and what the controller compares KL with have a meaning of their own and stay."""
        coef = DEFAULT_KNOBS.kl_coef / base.kl_coef
        return replace(
            self,
            mini_batch=self.mini_batch * DEFAULT_KNOBS.mini_batch / base.mini_batch,
            train_batch=self.train_batch * DEFAULT_KNOBS.train_batch / base.train_batch,
            token_budget=self.token_budget * DEFAULT_KNOBS.token_budget / base.token_budget,
            lr=self.lr * DEFAULT_KNOBS.lr / base.lr,
            kl_coef=self.kl_coef * coef,
            coef_min=self.coef_min * coef,
            coef_max=self.coef_max * coef,
        )


def knobs_of(settings: Overrides) -> Knobs:
    """The knobs of a configuration, verl's defaults where it is silent."""

    def number(key: str, default: float) -> float:
        value = settings.get(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default

    def band(name: str, default: float) -> float:
        return number(f"{KL_CONTROL}.{name}", default)

    return Knobs(
        mini_batch=number(keys.MINI_BATCH, keys.DEFAULTS[keys.MINI_BATCH]),
        train_batch=number(keys.TRAIN_BATCH, keys.DEFAULTS[keys.TRAIN_BATCH]),
        kl_coef=number(keys.KL_COEF, 0.001),
        token_budget=number(keys.MAX_BATCHED_TOKENS, 8192),
        lr=number(keys.ACTOR_LR, 1e-6),
        lam=number(keys.LAM, 1.0),
        banded=settings.get(keys.KL_TYPE) == "band",
        band_low=band("band_low", 0.04),
        band_high=band("band_high", 0.18),
        band_lower=band("band_lower", 0.8),
        band_raise=band("band_raise", 1.2),
        band_interval=int(band("band_interval", 100)),
        coef_min=band("coef_min", 0.0005),
        coef_max=band("coef_max", 0.01),
    )


DEFAULT_KNOBS = knobs_of(NOTHING)
