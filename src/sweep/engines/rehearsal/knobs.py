"""`Knobs`: the numbers that a simulated training reacts to, read from verl settings; `DEFAULT_KNOBS` are verl's own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sweep.core import kl_band
from sweep.core import verl_keys as keys
from sweep.core.kl_band import KlBandSettings
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.within import Within, require
from sweep.errors import ConfigError

POSITIVE = Within(low=0, open_low=True)


@dataclass(frozen=True, slots=True)
class Knobs:
    """The five knobs of the four stages and what else moves the simulation; `band` where the controller is on."""

    mini_batch: float
    train_batch: float
    kl_coef: float
    token_budget: float
    lr: float
    lam: float
    band: KlBandSettings | None = None

    def relative_to(self, base: Knobs) -> Knobs:
        """These knobs as a configuration with verl's defaults would have them: each as far from its default as it is
        from `base`. lam and what the controller compares KL with have a meaning of their own and stay."""
        coef = DEFAULT_KNOBS.kl_coef / base.kl_coef
        band = self.band and replace(self.band, coef_min=self.band.coef_min * coef, coef_max=self.band.coef_max * coef)
        return replace(
            self,
            mini_batch=self.mini_batch * DEFAULT_KNOBS.mini_batch / base.mini_batch,
            train_batch=self.train_batch * DEFAULT_KNOBS.train_batch / base.train_batch,
            token_budget=self.token_budget * DEFAULT_KNOBS.token_budget / base.token_budget,
            lr=self.lr * DEFAULT_KNOBS.lr / base.lr,
            kl_coef=self.kl_coef * coef,
            band=band,
        )


def knobs_of(settings: Overrides) -> Knobs:
    """The knobs of a configuration, verl's defaults where it is silent.

    Raises:
        ConfigError: for a value that is no number or that no training could run with.
    """

    def number(key: str, default: float, within: Within) -> float:
        value = settings.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"a rehearsal needs a number for {key}, got {value!r}")
        require(key, value, within)
        return float(value)

    return Knobs(
        mini_batch=number(keys.MINI_BATCH, keys.DEFAULTS[keys.MINI_BATCH], POSITIVE),
        train_batch=number(keys.TRAIN_BATCH, keys.DEFAULTS[keys.TRAIN_BATCH], POSITIVE),
        kl_coef=number(keys.KL_COEF, 0.001, Within(low=0)),
        token_budget=number(keys.MAX_BATCHED_TOKENS, 8192, POSITIVE),
        lr=number(keys.ACTOR_LR, 1e-6, POSITIVE),
        lam=number(keys.LAM, 1.0, Within(low=0, high=1)),
        band=_band(settings) if settings.get(keys.KL_TYPE) == kl_band.BAND else None,
    )


def base_knobs(settings: Overrides) -> Knobs:
    """The knobs of a configuration around which a surface can be laid.

    Raises:
        ConfigError: as `knobs_of`, and for a KL coefficient of 0, of which nothing is a multiple.
    """
    knobs = knobs_of(settings)
    _band(settings)  # a stage may turn the controller on
    require(f"{keys.KL_COEF} of a rehearsal's own configuration", knobs.kl_coef, POSITIVE)
    return knobs


def _band(settings: Overrides) -> KlBandSettings:
    try:
        return KlBandSettings.of({name: settings.get(f"{kl_band.SECTION}.{name}") for name in kl_band.NAMES})
    except ValueError as error:
        raise ConfigError(str(error)) from error


DEFAULT_KNOBS = knobs_of(NOTHING)
