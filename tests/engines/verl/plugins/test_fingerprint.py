"""Fingerprints of tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from sweep.engines.verl.plugins import fingerprint as module  # noqa: E402
from sweep.engines.verl.plugins.fingerprint import fingerprint, fingerprints  # noqa: E402

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", TYPES)
def test_equal_bits_have_equal_fingerprints_and_one_changed_value_another(dtype: torch.dtype) -> None:
    values = torch.arange(1000).remainder(7).to(dtype).view(10, 100)
    assert fingerprint(values) == fingerprint(values.clone())
    changed = values.clone()
    changed[3, 5] = 0 if changed[3, 5] else 1
    assert fingerprint(changed) != fingerprint(values)


def test_the_smallest_change_of_a_float_shows() -> None:
    values = torch.rand(50)
    changed = values.clone()
    changed[7] = torch.nextafter(changed[7], torch.tensor(2.0))
    assert fingerprint(changed) != fingerprint(values)


def test_swapped_values_show() -> None:
    values = torch.rand(50)
    assert fingerprint(values.flip(0)) != fingerprint(values)
    assert fingerprint(values.flip(0))[0] == fingerprint(values)[0]


def test_minus_zero_and_not_a_number_are_bits_like_any_other() -> None:
    assert fingerprint(torch.tensor([0.0])) != fingerprint(torch.tensor([-0.0]))
    nan = torch.tensor([float("nan")])
    assert fingerprint(nan) == fingerprint(nan.clone())


def test_a_view_that_is_not_contiguous_counts_as_what_it_shows() -> None:
    values = torch.rand(6, 4)
    assert fingerprint(values.t()) == fingerprint(values.t().contiguous())


def test_looking_in_pieces_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.rand(1001)
    whole = fingerprint(values)
    monkeypatch.setattr(module, "_CHUNK", 100)
    assert fingerprint(values) == whole


def test_names_are_kept() -> None:
    assert list(fingerprints([("b", torch.ones(1)), ("a", torch.zeros(0))])) == ["b", "a"]
    assert fingerprint(torch.zeros(0)) == (0, 0)
