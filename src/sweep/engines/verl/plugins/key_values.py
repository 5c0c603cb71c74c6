"""`KeyValues`: attention keys and values of a batch whose sequences differ in length, padded on the left."""

from __future__ import annotations

import torch
from torch import nn
from transformers import DynamicCache


class KeyValues:
    """What a transformers model remembers of the sequences read so far, one row each."""

    def __init__(self) -> None:
        self._cache = DynamicCache()
        self._real = torch.zeros((0, 0), dtype=torch.long)

    def extend(self, model: nn.Module, ids: torch.Tensor, real: torch.Tensor | None = None) -> torch.Tensor:
        """Reads the tokens `ids` of shape (rows, count); returns the logits after the last, (rows, vocabulary).

        `real` is 1 where a token is one and 0 where it is padding; left out, all are real.
        """
        real = torch.ones_like(ids) if real is None else real
        before = self._real if self._real.numel() else torch.zeros((len(ids), 0), dtype=torch.long)
        self._real = torch.cat([before, real], dim=1)
        positions = (self._real.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        output = model(
            input_ids=ids,
            attention_mask=self._real,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1]

    def joined(self, other: KeyValues) -> KeyValues:
        """The rows of both, this one's first, the shorter one padded."""
        width = max(self._real.shape[1], other._real.shape[1])
        both = KeyValues()
        both._real = torch.cat([_widened(part._real, width, dim=1) for part in (self, other)])
        for index, (mine, theirs) in enumerate(zip(self._cache.layers, other._cache.layers, strict=True)):
            keys = torch.cat([_widened(layer.keys, width, dim=2) for layer in (mine, theirs)])
            values = torch.cat([_widened(layer.values, width, dim=2) for layer in (mine, theirs)])
            both._cache.update(keys, values, index)
        return both

    def rows(self, kept: list[int]) -> KeyValues:
        """These rows only, without the padding that they have in common."""
        real = self._real[kept]
        start = int(real.amax(0).argmax())
        part = KeyValues()
        part._real = real[:, start:]
        for index, layer in enumerate(self._cache.layers):
            part._cache.update(layer.keys[kept, :, start:], layer.values[kept, :, start:], index)
        return part


def _widened(tensor: torch.Tensor, width: int, dim: int) -> torch.Tensor:
    missing = width - tensor.shape[dim]
    if not missing:
        return tensor
    shape = [*tensor.shape]
    shape[dim] = missing
    return torch.cat([tensor.new_zeros(shape), tensor], dim=dim)
