"""Training samples take along what is read, and nothing else."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from sweep.engines.verl.plugins.queue_fields import UNREAD, for_training

SAMPLE = {
    "uid": "1",
    "input_ids": [1],
    "rm_scores": [0.5],
    "extra_fields": {},
    "reward_model": {"ground_truth": "3"},
    "raw_prompt": ["hello"],
    "data_source": "sums",
    "multi_modal_inputs": {},
    "routed_experts": None,
    "a_column_of_the_user": 7,
}


def test_what_nobody_reads_and_what_is_empty_is_left_out() -> None:
    assert set(for_training(SAMPLE, keeps_prompt=False)) == {
        "uid",
        "input_ids",
        "rm_scores",
        "extra_fields",
        "reward_model",
        "a_column_of_the_user",
    }


def test_a_reward_model_that_reads_the_queue_gets_the_prompt() -> None:
    assert for_training(SAMPLE, keeps_prompt=True)["raw_prompt"] == ["hello"]


def test_images_and_experts_stay() -> None:
    full = SAMPLE | {"multi_modal_inputs": {"pixel_values": [1]}, "routed_experts": [[1]]}
    kept = for_training(full, keeps_prompt=False)
    assert kept["multi_modal_inputs"] == {"pixel_values": [1]} and kept["routed_experts"] == [[1]]


def test_verl_selects_none_of_the_unread_fields_from_training_samples() -> None:
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("verl is not installed")
    trainer = Path(spec.submodule_search_locations[0], "trainer/ppo/v1/trainer_base.py").read_text()
    before, validation = trainer.split("    def _validate(")
    validation, after = validation.split("    def _maybe_log_val_generations(")
    selected = set(re.findall(r'"(\w+)"', " ".join(re.findall(r"fields = \[(.*?)\]", before + after, re.S))))
    assert {"prompts", "rm_scores", "uid", "values"} <= selected
    assert selected & UNREAD == set()
