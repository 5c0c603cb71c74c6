from __future__ import annotations

import math

import numpy as np
import pytest

from sweep.core import verl_keys as keys
from sweep.core.overrides import NOTHING, Overrides
from sweep.core.trial import Trial
from sweep.engines.rehearsal.curves import Noise, Simulated, simulate
from sweep.engines.rehearsal.surfaces import SURFACES
from sweep.stats.efficiency import efficiency, run_efficiency
from sweep.stats.noise import gradient_noise_scale

PLAIN = SURFACES["separable"]


def run(settings: Overrides = NOTHING, seed: int = 1, steps: int = 200, noise: Noise | None = None) -> Simulated:
    return simulate(PLAIN, noise or Noise(), Trial(settings, seed, steps))


def test_the_same_trial_logs_the_same_rows_and_another_seed_others() -> None:
    assert run() == run()
    assert run().curve.score != run(seed=2).curve.score
    assert run().curve.score != run(noise=Noise(seed=1)).curve.score


def test_a_measured_ratio_is_the_true_one_up_to_its_noise() -> None:
    better = Overrides.of({keys.ACTOR_LR: 1.5e-6, keys.MAX_BATCHED_TOKENS: 16384})
    quiet = Noise(cv=0.001, score_noise=0.005)
    ones = [run(better, s, 500, quiet).curve for s in range(3)]
    zeros = [run(NOTHING, s, 500, quiet).curve for s in range(3)]
    true = PLAIN.truth(better).efficiency(500) / PLAIN.truth(NOTHING).efficiency(500)
    assert efficiency(ones, zeros, warmup_steps=5).value == pytest.approx(true, rel=0.02)


@pytest.mark.parametrize("cv", [0.05, 0.20])
def test_runs_spread_between_seeds_as_asked(cv: float) -> None:
    noise = Noise(cv=cv, score_noise=0.005)
    seen = [run_efficiency(run(seed=s, steps=500, noise=noise).curve, warmup_steps=5).value for s in range(200)]
    assert np.std(np.log(seen)) == pytest.approx(cv, rel=0.15)


def test_arms_with_a_seed_in_common_share_their_luck() -> None:
    def logs(noise: Noise, settings: Overrides) -> list[float]:
        runs = (run(settings, s, 500, noise).curve for s in range(100))
        return [math.log(run_efficiency(c, warmup_steps=5).value) for c in runs]

    other = Overrides.of({keys.LAM: 0.98})
    for shared, low, high in ((0.0, -0.3, 0.3), (0.9, 0.7, 1.0)):
        noise = Noise(cv=0.1, time_share=0.0, shared=shared)
        assert low <= np.corrcoef(logs(noise, NOTHING), logs(noise, other))[0, 1] <= high


def test_noise_within_a_run_is_that_of_the_logged_runs() -> None:
    curve = run(steps=500).curve
    times = np.log(curve.step_seconds[1:])
    assert np.std(times) == pytest.approx(0.14, rel=0.2)
    assert np.corrcoef(times[1:], times[:-1])[0, 1] == pytest.approx(0.35, abs=0.15)
    assert curve.step_seconds[0] > 3 * np.median(curve.step_seconds)


def test_a_trial_that_runs_out_of_memory_says_so_as_torch_does() -> None:
    result = run(Overrides.of({keys.MAX_BATCHED_TOKENS: 100_000}))
    assert result.curve.last_step == 2
    assert "CUDA out of memory" in result.error


def test_a_diverging_trial_logs_an_explosion_then_nan_and_loses_its_score() -> None:
    result = run(Overrides.of({keys.ACTOR_LR: 1e-5}))
    assert result.error == ""
    assert max(v for v in result.curve.grad_norm if v == v) > 10
    assert math.isnan(result.curve.grad_norm[-1])
    assert result.curve.score[-1] == pytest.approx(PLAIN.start_score)


def test_the_controller_moves_the_logged_coefficient_at_its_interval() -> None:
    settings = Overrides.of({keys.KL_TYPE: "band", keys.ACTOR_LR: 4e-6, keys.KL_COEF: 0.0005})
    coefs = run(settings).curve.kl_coef
    assert len(set(coefs[:100])) == 1
    assert coefs[100] == pytest.approx(1.2 * coefs[0])
    assert len(set(run(steps=200).curve.kl_coef)) == 1


def test_the_simulated_controller_moves_as_the_real_one_does() -> None:
    start = Overrides.of({keys.KL_TYPE: "band", keys.KL_COEF: 0.05})
    assert run(start, steps=300).curve.kl_coef[::100] == pytest.approx((0.05, 0.04, 0.032))


def test_two_batch_sizes_give_back_the_surfaces_gradient_noise_scale() -> None:
    small, large = (run(Overrides.of({keys.MINI_BATCH: m}), steps=500).curve.grad_norm for m in (64, 256))
    found = gradient_noise_scale(small, large, small_batch=64, large_batch=256)
    assert found.value == pytest.approx(PLAIN.noise_batch, rel=0.25)


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_short_trials_are_simulated_too(steps: int) -> None:
    assert run(steps=steps).curve.last_step == steps
