"""Next tokens: the distribution that was asked for, from one uniform number a token."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from sweep.engines.verl.plugins.sampling import (  # noqa: E402
    Sampling,
    log_probabilities,
    pick,
    request_seed,
    uniforms,
)

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0]])


def distribution(sampling: Sampling) -> list[float]:
    return log_probabilities(LOGITS, [sampling]).exp()[0].tolist()


def test_temperature_one_is_the_models_own_distribution() -> None:
    assert distribution(Sampling()) == pytest.approx(LOGITS.double().softmax(-1)[0].tolist())


def test_a_lower_temperature_sharpens() -> None:
    assert distribution(Sampling(temperature=0.5)) == pytest.approx((LOGITS.double() / 0.5).softmax(-1)[0].tolist())


def test_top_k_keeps_the_k_likeliest_in_their_proportions() -> None:
    full = distribution(Sampling())
    kept = distribution(Sampling(top_k=2))
    assert kept[2:] == [0.0, 0.0]
    assert kept[0] / kept[1] == pytest.approx(full[0] / full[1]) and sum(kept) == pytest.approx(1.0)
    assert distribution(Sampling(top_k=9)) == pytest.approx(full)


@pytest.mark.parametrize(("top_p", "kept"), [(1e-9, 1), (0.5, 1), (0.65, 2), (0.9, 3), (0.999, 4), (1.0, 4)])
def test_top_p_keeps_the_fewest_tokens_that_reach_it(top_p: float, kept: int) -> None:
    # 0.644, 0.237, 0.087, 0.032
    assert sum(p > 0 for p in distribution(Sampling(top_p=top_p))) == kept


def test_rows_with_different_settings_do_not_disturb_each_other() -> None:
    settings = [Sampling(), Sampling(temperature=0.3, top_k=3), Sampling(top_p=0.7)]
    together = log_probabilities(LOGITS.repeat(3, 1), settings)
    for row, sampling in enumerate(settings):
        assert torch.equal(together[row], log_probabilities(LOGITS, [sampling])[0])


def test_tokens_are_drawn_as_often_as_their_probability_says() -> None:
    count = 20_000
    settings = [Sampling(top_k=3)] * count
    drawn = pick(log_probabilities(LOGITS.repeat(count, 1), settings), settings, uniforms(5, count))
    shares = torch.bincount(drawn, minlength=4) / count
    assert shares.tolist() == pytest.approx(distribution(settings[0]), abs=0.012)  # 3.5 standard errors
    assert shares[3] == 0.0


@pytest.mark.parametrize("draw", [0.0, 0.5, 1 - 1e-16])
def test_a_token_without_probability_is_never_drawn(draw: float) -> None:
    sampling = [Sampling(top_k=1)]
    assert pick(log_probabilities(LOGITS, sampling), sampling, torch.tensor([draw], dtype=torch.float64)).item() == 0


def test_temperature_zero_takes_the_likeliest_and_reports_the_models_probability() -> None:
    sampling = [Sampling(temperature=0.0)]
    log_probs = log_probabilities(LOGITS, sampling)
    assert pick(log_probs, sampling, torch.tensor([0.99], dtype=torch.float64)).item() == 0
    assert log_probs[0].tolist() == pytest.approx(LOGITS.double().log_softmax(-1)[0].tolist())


def test_a_seed_depends_on_every_part_and_on_nothing_else() -> None:
    parts = (7, 3, [1, 2], "0000000001_0")
    others = [(8, 3, [1, 2], parts[3]), (7, 4, [1, 2], parts[3]), (7, 3, [1, 3], parts[3]), (7, 3, [1, 2], "x")]
    assert request_seed(*parts) == request_seed(*parts)
    assert len({request_seed(*parts), *(request_seed(*other) for other in others)}) == 5
    assert request_seed("ab", "c") != request_seed("a", "bc")
    assert 0 <= request_seed(*parts) < 2**63
