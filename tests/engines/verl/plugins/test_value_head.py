"""The critic's fresh parameters follow the seed; sharded modules are tested in `test_sharded_reset`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from sweep.engines.verl.plugins.value_head import FRESH_PARAMETERS, redraw  # noqa: E402


class Critic(torch.nn.Module):
    """A body and a head, as transformers names them."""

    def __init__(self, fresh: tuple[str, ...], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.config = SimpleNamespace(initializer_range=0.05)
        self.body = torch.nn.Linear(200, 200, dtype=dtype)
        self.score = torch.nn.Linear(200, 1, dtype=dtype)
        torch.nn.init.ones_(self.score.bias)
        setattr(self, FRESH_PARAMETERS, fresh)


def engine(fresh: tuple[str, ...] = ("score.bias", "score.weight"), **options: Any) -> Any:
    return SimpleNamespace(module=Critic(fresh, **options), is_param_offload_enabled=False)


def test_equal_seeds_draw_equal_heads_and_others_do_not() -> None:
    first, second, other = engine(), engine(), engine()
    for critic, seed in ((first, 1), (second, 1), (other, 2)):
        assert set(redraw(critic, seed)) == {"score.bias", "score.weight"}
    weights = [critic.module.score.weight for critic in (first, second, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_head_is_drawn_as_transformers_would() -> None:
    critic = engine()
    redraw(critic, 1)
    assert float(critic.module.score.weight.detach().std()) == pytest.approx(0.05, rel=0.25)  # 200 values
    assert torch.equal(critic.module.score.bias, torch.zeros(1))


def test_the_body_stays_as_it_was() -> None:
    critic = engine()
    before = critic.module.body.weight.clone()
    redraw(critic, 1)
    assert torch.equal(critic.module.body.weight, before)


def test_a_head_that_the_checkpoint_brought_is_left_alone() -> None:
    critic = engine(fresh=())
    before = critic.module.score.weight.clone()
    assert redraw(critic, 1) == ()
    assert torch.equal(critic.module.score.weight, before)


def test_the_head_keeps_its_type_and_its_place_in_memory() -> None:
    critic = engine(dtype=torch.bfloat16)
    place = critic.module.score.weight.data_ptr()
    redraw(critic, 1)
    assert critic.module.score.weight.dtype == torch.bfloat16
    assert critic.module.score.weight.data_ptr() == place
