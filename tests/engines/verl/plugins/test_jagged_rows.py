"""Rows of a batch in one copy a field are those that verl cuts out one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from tensordict import NonTensorData, NonTensorStack, TensorDict
from verl.utils import tensordict_utils

from sweep.engines.verl.plugins.jagged_rows import is_plain, select_rows
from sweep.engines.verl.plugins.jagged_rows_hook import verls_selection

LENGTHS = [3, 1, 7, 2, 5]


def batch(lengths: list[int] = LENGTHS) -> TensorDict:
    size = len(lengths)
    tokens = [torch.arange(n) + 100 * row for row, n in enumerate(lengths)]
    wide = [torch.randn(n, 2, generator=torch.Generator().manual_seed(n)) for n in lengths]
    positions = [torch.arange(4 * n).view(4, n) for n in lengths]  # as vision models have them
    fields: dict[str, Any] = {
        "input_ids": torch.nested.as_nested_tensor(tokens, layout=torch.jagged),
        "wide": torch.nested.as_nested_tensor(wide, layout=torch.jagged),
        "positions": tensordict_utils.nested_tensor_from_tensor_list(positions, ragged_idx=2),
        "temperature": torch.linspace(0, 1, size),
        "names": NonTensorStack(*(NonTensorData(f"row {i}") for i in range(size))),
        "whole": NonTensorData(7),
    }
    return TensorDict(fields, batch_size=size)


def assert_same(mine: TensorDict, yours: TensorDict) -> None:
    assert mine.batch_size == yours.batch_size and list(mine.keys()) == list(yours.keys())
    for name in ("input_ids", "wide", "positions"):
        assert mine[name]._ragged_idx == yours[name]._ragged_idx
        assert torch.equal(mine[name].offsets(), yours[name].offsets())
        for left, right in zip(mine[name].unbind(), yours[name].unbind(), strict=True):
            assert left.dtype == right.dtype and torch.equal(left, right)
    assert torch.equal(mine["temperature"], yours["temperature"])
    assert mine["names"] == yours["names"] and mine["whole"] == yours["whole"] == 7


@settings(deadline=None)  # the first call imports a compiler
@given(some.lists(some.integers(0, len(LENGTHS) - 1), min_size=1, max_size=9))
def test_any_rows_in_any_order_are_those_of_verl(rows: list[int]) -> None:
    assert_same(select_rows(batch(), rows), verls_selection(batch(), rows))
    assert_same(select_rows(batch(), torch.tensor(rows)), verls_selection(batch(), torch.tensor(rows)))


def test_rows_chosen_twice_over_are_rows_of_the_first_choice() -> None:
    once = select_rows(batch(), [4, 2, 0])
    assert is_plain(once["input_ids"])
    assert [row.tolist() for row in select_rows(once, [1])["input_ids"].unbind()] == [list(range(200, 207))]
    padded = torch.nested.to_padded_tensor(once["input_ids"], padding=-1)
    assert padded.shape == (3, 7) and padded[2].tolist() == [0, 1, 2, -1, -1, -1, -1]


def test_gradients_reach_the_chosen_rows_alone() -> None:
    values = torch.ones(sum(LENGTHS), requires_grad=True)
    offsets = torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0).tolist()])
    field = torch.nested.nested_tensor_from_jagged(values, offsets)
    chosen = select_rows(TensorDict({"x": field}, batch_size=len(LENGTHS)), [1, 3])
    chosen["x"].values().sum().backward()
    assert values.grad is not None and values.grad.tolist() == [0.0] * 3 + [1.0] + [0.0] * 7 + [1.0] * 2 + [0.0] * 5


def test_a_missing_batch_stays_missing_and_row_numbers_have_one_dimension() -> None:
    assert select_rows(None, [0]) is None
    with pytest.raises(AssertionError, match="one-dimensional"):
        select_rows(batch(), torch.zeros(1, 1, dtype=torch.long))


def test_verl_calls_it() -> None:
    assert tensordict_utils.index_select_tensor_dict is select_rows and verls_selection is not select_rows
