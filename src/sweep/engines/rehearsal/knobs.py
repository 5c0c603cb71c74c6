"""`Knobs`: the numbers that a simulated training reacts to, read from verl settings."""

from __future__ import annotations

from dataclasses import dataclass

from sweep.core import verl_keys as keys
from sweep.core.overrides import Overrides

BAND = "algorithm.kl_ctrl.{}"
DEFAULT_LR = 1e-6
DEFAULT_KL_COEF = 0.001
DEFAULT_TOKENS = 8192
DEFAULT_LAM = 1.0


@dataclass(frozen=True, slots=True)
class Knobs:
    """The five knobs of the four stages and what else moves the simulation; verl's defaults where unset."""

    mini_batch: float
    kl_coef: float
    token_budget: float
    lr: float
    lam: float
    batch_share: float
    banded: bool
    band_low: float
    band_high: float
    band_lower: float
    band_raise: float
    band_interval: int
    coef_min: float
    coef_max: float


def knobs_of(settings: Overrides) -> Knobs:
    """The knobs of a configuration; `batch_share` is the train batch over verl's default one."""

    def number(key: str, default: float) -> float:
        value = settings.get(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default

    return Knobs(
        mini_batch=number(keys.MINI_BATCH, keys.DEFAULTS[keys.MINI_BATCH]),
        kl_coef=number(keys.KL_COEF, DEFAULT_KL_COEF),
        token_budget=number(keys.MAX_BATCHED_TOKENS, DEFAULT_TOKENS),
        lr=number(keys.ACTOR_LR, DEFAULT_LR),
        lam=number(keys.LAM, DEFAULT_LAM),
        batch_share=number(keys.TRAIN_BATCH, keys.DEFAULTS[keys.TRAIN_BATCH]) / keys.DEFAULTS[keys.TRAIN_BATCH],
        banded=settings.get(keys.KL_TYPE) == "band",
        band_low=number(BAND.format("band_low"), 0.04),
        band_high=number(BAND.format("band_high"), 0.18),
        band_lower=number(BAND.format("band_lower"), 0.8),
        band_raise=number(BAND.format("band_raise"), 1.2),
        band_interval=int(number(BAND.format("band_interval"), 100)),
        coef_min=number(BAND.format("coef_min"), 0.0005),
        coef_max=number(BAND.format("coef_max"), 0.01),
    )
