from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.stats.noise import (
    HIGH_NOISE_LAM,
    LOW_NOISE_LAM,
    NOISY_SHARE,
    gradient_noise_scale,
    hidden_oscillation,
    reward_noise,
    roughness,
)
from tests.stats.curves import autocorrelated, made_curve

LINE = np.linspace(0.1, 0.5, 200)


def with_noise(deviation: float, seed: int = 0) -> list[float]:
    """A curve that gains 0.4, with residuals of exactly that deviation around its fit."""
    noise = np.random.default_rng(seed).normal(size=200)
    raw = roughness((LINE + 1e-3 * noise).tolist()).value * 0.4
    return (LINE + 1e-3 * noise * deviation / raw).tolist()


@pytest.mark.parametrize(
    "share, noisy, lam",
    [(0.9 * NOISY_SHARE, False, LOW_NOISE_LAM), (1.1 * NOISY_SHARE, True, HIGH_NOISE_LAM)],
)
def test_the_noise_class_gives_the_lam_of_the_article(share: float, noisy: bool, lam: float) -> None:
    found = reward_noise(with_noise(share * 0.4))
    assert found is not None
    assert (found.noisy, found.lam) == (noisy, lam)


def test_a_trial_that_gained_nothing_is_noise_alone() -> None:
    found = reward_noise([0.5 - 0.001 * i + 0.01 * (i % 2) for i in range(60)])
    assert found is not None
    assert found.noisy


def test_too_short_a_trial_has_no_noise_class() -> None:
    assert reward_noise([0.1, 0.2]) is None


@given(st.floats(0.01, 100), st.floats(-50, 50))
def test_the_noise_class_ignores_unit_and_zero_of_the_reward(scale: float, shift: float) -> None:
    scores = made_curve(3, noise=0.05).score
    plain, moved = reward_noise(scores), reward_noise([scale * s + shift for s in scores])
    assert plain is not None and moved is not None
    assert moved.share.value == pytest.approx(plain.share.value, rel=1e-6)


def test_a_hidden_oscillation_is_found_with_its_period() -> None:
    steps = np.arange(200)
    scores = LINE + 0.01 * np.random.default_rng(0).normal(size=200) + 0.012 * np.sin(2 * np.pi * steps / 16)
    found = hidden_oscillation(scores.tolist())
    assert found.found
    assert found.period_steps == pytest.approx(16, rel=0.1)
    assert found.amplitude == pytest.approx(0.012, rel=0.4)


@pytest.mark.parametrize("carry", [0.0, 0.5])
def test_noise_alone_seldom_looks_like_an_oscillation(carry: float) -> None:
    rng = np.random.default_rng(5)
    found = [hidden_oscillation((LINE + 0.02 * autocorrelated(rng, 200, carry)).tolist()).found for _ in range(200)]
    assert np.mean(found) <= 0.03


def test_a_flat_or_short_curve_has_no_period() -> None:
    assert not hidden_oscillation([0.5] * 100).found
    assert not hidden_oscillation([0.5 + 1e-13 * (-1) ** i for i in range(100)]).found  # rounding of any machine
    assert not hidden_oscillation([0.1, 0.9] * 10).found


def norms(batch: float, scale: float, seed: int) -> list[float]:
    """Gradient norms at a batch size when the true gradient has norm 1 and the noise scale is `scale`."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(400, 50)) * math.sqrt(scale / 50 / batch)
    noise[:, 0] += 1.0
    return np.linalg.norm(noise, axis=1).tolist()


def test_the_gradient_noise_scale_comes_back_from_two_batch_sizes() -> None:
    found = gradient_noise_scale(norms(32, 200, 0), norms(128, 200, 1), small_batch=32, large_batch=128)
    assert found.value == pytest.approx(200, abs=4 * found.standard_error)
    assert found.standard_error < 40


def test_the_error_of_the_gradient_noise_scale_is_the_spread_of_repetitions() -> None:
    found = [
        gradient_noise_scale(norms(32, 200, 2 * i), norms(128, 200, 2 * i + 1), small_batch=32, large_batch=128)
        for i in range(60)
    ]
    spread = np.std([f.value for f in found])
    assert np.mean([f.standard_error for f in found]) == pytest.approx(spread, rel=0.35)


def test_norms_that_do_not_fall_with_the_batch_have_no_noise_scale() -> None:
    same = norms(128, 200, 0)
    assert not gradient_noise_scale(same, norms(32, 200, 1), small_batch=32, large_batch=128).known
    assert not gradient_noise_scale(same, same, small_batch=128, large_batch=128).known
    assert not gradient_noise_scale([1.0] * 5, [0.5] * 5, small_batch=32, large_batch=128).known
