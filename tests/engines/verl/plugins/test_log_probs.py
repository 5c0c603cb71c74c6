"""Log-probabilities in blocks are verl's row by row, in both directions."""

from __future__ import annotations

import pytest
import torch
from verl.utils import torch_functional

from sweep.engines.verl.plugins.log_probs import log_probs
from sweep.engines.verl.plugins.log_probs_hook import verls_rows


def logits_and_labels(*shape: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(*shape, 97, generator=generator).mul(5).to(dtype)
    return logits.requires_grad_(), torch.randint(97, shape, generator=generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(13,), (4, 6)])
@pytest.mark.parametrize("rows_a_block", [1, 5, 1000])
def test_values_and_gradients_are_those_of_verl(dtype: torch.dtype, shape: tuple[int, ...], rows_a_block: int) -> None:
    logits, labels = logits_and_labels(*shape, dtype=dtype)
    mine = log_probs(logits, labels, block_elements=97 * rows_a_block)
    yours = verls_rows(logits, labels)
    assert mine.dtype == yours.dtype and mine.shape == yours.shape == shape
    torch.testing.assert_close(mine, yours, rtol=1e-6, atol=1e-6)

    weights = torch.linspace(-1, 1, labels.numel()).view(shape).to(dtype)
    (my_gradient,) = torch.autograd.grad((mine * weights).sum(), logits)
    (your_gradient,) = torch.autograd.grad((yours * weights).sum(), logits)
    torch.testing.assert_close(my_gradient, your_gradient, rtol=1e-6, atol=1e-6)


def test_a_block_has_at_least_one_row() -> None:
    logits, labels = logits_and_labels(3, dtype=torch.float32)
    torch.testing.assert_close(log_probs(logits, labels, block_elements=1), verls_rows(logits, labels))


def test_probabilities_of_all_tokens_add_up_to_one() -> None:
    logits, _ = logits_and_labels(1, dtype=torch.float64)
    every = log_probs(logits.expand(97, 97), torch.arange(97))
    assert float(every.detach().exp().sum()) == pytest.approx(1.0, abs=1e-12)


def test_verl_calls_it_where_flash_attention_is_missing() -> None:
    assert verls_rows is not log_probs
    assert torch_functional.logprobs_from_logits_v2 is log_probs
