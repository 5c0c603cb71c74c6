"""Prompts as verl itself reads them, from the files of a real task, with a real tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweep.engines.vllm.training_prompts import TrainingPrompts, shared_out
from sweep.tasks import arithmetic
from sweep.tasks.tiny_tokenizer import tiny_tokenizer


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(arithmetic.make(tmp_path_factory.mktemp("assets")).train)


def verls_prompts(file: str, most_tokens: int) -> list[list[int]]:
    """Token ids by verl's own data set and its own way to tokenize."""
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    tokenizer = tiny_tokenizer()
    settings = {"max_prompt_length": most_tokens, "filter_overlong_prompts": True, "filter_overlong_prompts_workers": 1}
    rows = RLHFDataset(file, tokenizer, OmegaConf.create(settings))
    return [
        tokenizer.apply_chat_template(rows[i]["raw_prompt"], add_generation_prompt=True, return_dict=False)
        for i in range(len(rows))
    ]


def test_prompts_and_the_filter_are_verls(train: str) -> None:
    lengths = [len(ids) for ids in TrainingPrompts([train], 10_000).ids(tiny_tokenizer())]
    middle = sorted(lengths)[len(lengths) // 2]
    assert min(lengths) < middle < max(lengths)  # else the filter would have nothing to do
    for most in (max(lengths), middle, min(lengths)):
        assert TrainingPrompts([train], 10_000, most_tokens=most).ids(tiny_tokenizer()) == verls_prompts(train, most)


def test_only_the_first_are_taken_over_files(train: str) -> None:
    every = TrainingPrompts([train], 10_000).ids(tiny_tokenizer())
    assert TrainingPrompts([train], 5).ids(tiny_tokenizer()) == every[:5]
    assert TrainingPrompts([train, train], len(every) + 2).ids(tiny_tokenizer()) == every + every[:2]


def test_json_lines_are_read_too(train: str, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "1+2="}]
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps({"chat": messages}) + "\n\n")
    (found,) = TrainingPrompts([str(file)], 9, key="chat").ids(tiny_tokenizer())
    assert found == tiny_tokenizer().apply_chat_template(messages, add_generation_prompt=True, return_dict=False)


def test_files_without_a_prompt_that_fits_are_said_to_be(train: str) -> None:
    with pytest.raises(ValueError, match=r"no prompt of at most 1 tokens in .*train"):
        TrainingPrompts([train], 5, most_tokens=1).ids(tiny_tokenizer())
    with pytest.raises(ValueError, match="has no column question"):
        TrainingPrompts([train], 5, key="question").ids(tiny_tokenizer())


def test_each_prompt_is_repeated_for_its_samples_and_the_batch_is_filled() -> None:
    assert shared_out([[1], [2]], 2, 4) == [[1], [1], [2], [2]]
    assert shared_out([[1], [2]], 2, 3) == [[1], [1], [2]]
    assert shared_out([[1], [2]], 1, 5) == [[1], [2], [1], [2], [1]]
