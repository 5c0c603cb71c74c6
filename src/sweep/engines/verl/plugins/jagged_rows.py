"""`select_rows`: some rows of a batch of sequences in one copy a field, where verl cuts out and joins row by row.

verl cuts its batch into mini-batches and micro-batches ten times a step; row by row that was a fifth of the training
worker's time on the tiny model, and grows with the batch.

Source: verl utils/tensordict_utils.py, `index_select_tensor_dict`.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict


def select_rows(batch: TensorDict | None, indices: torch.Tensor | list[int]) -> TensorDict | None:
    """The rows of these numbers in their order, of every field; fields that belong to no row stay as they are."""
    if batch is None:
        return None
    chosen = torch.as_tensor(indices)
    assert chosen.dim() == 1, f"row numbers must be one-dimensional, got {chosen.dim()} dimensions"
    return TensorDict({name: _of_field(field, chosen) for name, field in batch.items()}, batch_size=len(chosen))


def is_plain(field: torch.Tensor) -> bool:
    """Whether the sequences lie one after another without gaps, their length being a row's first dimension."""
    jagged = field.is_nested and field.layout is torch.jagged
    return jagged and getattr(field, "_ragged_idx", 1) == 1 and field.lengths() is None


def sequences(field: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """These rows of a plain nested tensor, as a plain nested tensor."""
    offsets, chosen = field.offsets(), chosen.to(field.device)
    lengths = offsets.diff()[chosen]
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    shifts = (offsets[:-1][chosen] - ends[:-1]).repeat_interleave(lengths)
    values = field.values()[torch.arange(len(shifts), device=field.device) + shifts]
    shortest, longest = (int(n) for n in lengths.aminmax())
    return torch.nested.nested_tensor_from_jagged(values, ends, min_seqlen=shortest, max_seqlen=longest)


def _of_field(field: Any, chosen: torch.Tensor) -> Any:
    if not isinstance(field, torch.Tensor):
        return field[chosen] if field.shape else field
    if not field.is_nested:
        return field[chosen]
    if is_plain(field) and len(chosen):
        return sequences(field, chosen)
    from verl.utils.tensordict_utils import nested_tensor_from_tensor_list

    rows = field.unbind()
    ragged = getattr(field, "_ragged_idx", field.dim() - 1)
    return nested_tensor_from_tensor_list([rows[i] for i in chosen.tolist()], ragged_idx=ragged)
