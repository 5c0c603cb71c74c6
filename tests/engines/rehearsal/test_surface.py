from __future__ import annotations

import numpy as np
import pytest

from sweep.core import verl_keys as keys
from sweep.core.overrides import NOTHING, Overrides
from sweep.engines.rehearsal.surfaces import RANGES, SURFACES, best_settings
from sweep.errors import ConfigError

STEPS = 500
PLAIN = SURFACES["separable"]


def efficiency(name: str, **values: float) -> float:
    spelled = {"mini": keys.MINI_BATCH, "lr": keys.ACTOR_LR, "kl": keys.KL_COEF, "lam": keys.LAM}
    spelled["tokens"] = keys.MAX_BATCHED_TOKENS
    settings = Overrides.of({spelled[k]: v for k, v in values.items()})
    return SURFACES[name].truth(settings).efficiency(STEPS)


@pytest.mark.parametrize("name", sorted(SURFACES))
def test_no_random_setting_beats_the_best(name: str) -> None:
    _, best = best_settings(SURFACES[name], STEPS)
    rng = np.random.default_rng(0)
    for _ in range(200):
        point = {k: float(np.exp(rng.uniform(np.log(low), np.log(high)))) for k, (low, high) in RANGES.items()}
        assert SURFACES[name].truth(Overrides.of(point)).efficiency(STEPS) <= best * (1 + 1e-9)


@pytest.mark.parametrize("name", ["separable", "coupled", "saturating"])
def test_the_articles_moves_are_improvements(name: str) -> None:
    base = efficiency(name)
    for move in ({"mini": 180.0}, {"lr": 1.5e-6}, {"tokens": 16384.0}, {"lam": 0.97}, {"kl": 0.002}):
        assert efficiency(name, **move) > base, move


def test_nothing_matters_on_the_flat_surface() -> None:
    moved = efficiency("flat", mini=64.0, lr=4e-6, tokens=2048.0, lam=0.95, kl=0.009)
    assert moved == pytest.approx(efficiency("flat"))


def test_on_the_trap_no_single_move_of_batch_or_lr_helps_but_both_together_do() -> None:
    base = efficiency("trap")
    for share in (0.5, 0.7, 0.8, 1.25, 1.5, 2.0):
        assert efficiency("trap", mini=256.0 * share) < base
        assert efficiency("trap", lr=1e-6 * share) < base
    assert efficiency("trap", mini=128.0, lr=2e-6) > 1.3 * base


def test_the_best_lr_follows_the_mini_batch_only_where_they_are_coupled() -> None:
    def best_lr(name: str, mini: float) -> float:
        return float(max(np.geomspace(5e-7, 5e-6, 200), key=lambda lr: efficiency(name, mini=mini, lr=float(lr))))

    assert best_lr("separable", 90.0) == pytest.approx(best_lr("separable", 360.0), rel=0.02)
    assert best_lr("coupled", 360.0) > 1.6 * best_lr("coupled", 90.0)


@pytest.mark.parametrize("tokens, dies", [(60_000, False), (60_001, True)])
def test_a_token_budget_over_the_memory_runs_out_of_it(tokens: int, dies: bool) -> None:
    truth = PLAIN.truth(Overrides.of({keys.MAX_BATCHED_TOKENS: tokens}))
    assert truth.out_of_memory is dies
    assert (truth.efficiency(STEPS) == 0) is dies


@pytest.mark.parametrize("lr, dies", [(6e-6, False), (6.1e-6, True)])
def test_too_high_a_learning_rate_diverges(lr: float, dies: bool) -> None:
    assert PLAIN.truth(Overrides.of({keys.ACTOR_LR: lr})).diverges is dies


def test_the_band_controller_pulls_the_coefficient_of_a_drifting_policy_up() -> None:
    drifting = Overrides.of({keys.ACTOR_LR: 4e-6, keys.KL_COEF: 0.0005})
    banded = drifting.merged({keys.KL_TYPE: "band"})
    assert PLAIN.truth(banded).kl_nats < PLAIN.truth(drifting).kl_nats


def test_a_smaller_mini_batch_has_a_larger_gradient_norm_as_the_noise_scale_says() -> None:
    small, large = (PLAIN.truth(Overrides.of({keys.MINI_BATCH: m})).gradient_norm for m in (110, 220))
    assert (small / large) ** 2 == pytest.approx(3 / 2)


def test_settings_of_no_knob_change_nothing() -> None:
    assert PLAIN.truth(Overrides.of({"trainer.test_freq": 5})) == PLAIN.truth(NOTHING)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (keys.KL_COEF, 0),
        (keys.ACTOR_LR, 0),
        (keys.MINI_BATCH, 0),
        (keys.MINI_BATCH, "abc"),
        (keys.TRAIN_BATCH, True),
        (keys.MAX_BATCHED_TOKENS, -1),
        (keys.LAM, 1.5),
        (keys.BAND_INTERVAL, 0),
        (keys.BAND_HIGH, "wide"),
    ],
)
def test_a_base_that_no_training_could_run_with_is_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key.rpartition(".")[2]):
        PLAIN.around(Overrides.of({key: value}), 50)


def test_a_trial_may_be_without_a_penalty() -> None:
    assert PLAIN.truth(Overrides.of({keys.KL_COEF: 0})).efficiency(STEPS) > 0


TINY = Overrides.of({keys.MINI_BATCH: 16, keys.TRAIN_BATCH: 32, keys.ACTOR_LR: 5e-4, keys.MAX_BATCHED_TOKENS: 512})


def test_laid_around_another_configuration_the_same_moves_are_worth_the_same() -> None:
    laid = PLAIN.around(TINY, 50)
    moves = ((keys.MINI_BATCH, 16, 256), (keys.ACTOR_LR, 5e-4, 1e-6), (keys.MAX_BATCHED_TOKENS, 512, 8192))
    for factor in (0.7, 1.5, 2.0):
        for key, small, usual in moves:
            here = laid.truth(TINY.merged({key: small * factor})).efficiency(50) / laid.truth(TINY).efficiency(50)
            there = PLAIN.truth(Overrides.of({key: usual * factor})).efficiency(STEPS)
            assert here == pytest.approx(there / PLAIN.truth(NOTHING).efficiency(STEPS))


def test_laid_around_another_configuration_it_neither_diverges_nor_runs_out_of_memory() -> None:
    truth = PLAIN.around(TINY, 50).truth(TINY)
    assert not truth.diverges
    assert not truth.out_of_memory
    assert PLAIN.truth(TINY).diverges
