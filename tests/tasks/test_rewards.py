import inspect
from pathlib import Path

import pytest

from sweep.tasks import rewards
from sweep.tasks.arithmetic import COLUMNS_SOURCE, SUMS_SOURCE


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("19", 1.0),
        (" 19.\n", 1.0),
        ("The answer is 19.", 1.0),
        ("7 + 12 = 19", 1.0),
        ("1,900", 0.0),
        ("18", 0.0),
        ("190", 0.0),
        ("-19", 0.0),
        ("19 or 20", 0.0),  # the last number counts
        ("nineteen", 0.0),
        ("", 0.0),
    ],
)
def test_the_exact_reward_is_the_last_number_or_nothing(response, score):
    assert rewards.compute_score(SUMS_SOURCE, response, "19") == {"score": score, "acc": score}


@pytest.mark.parametrize(("response", "right"), [("1,234", True), ("1234", True), ("1, 234", False)])
def test_thousands_separators_do_not_make_an_answer_wrong(response, right):
    assert rewards.compute_exact(SUMS_SOURCE, response, "1234")["score"] == float(right)


def test_the_shaped_reward_ranks_form_below_the_answer():
    def score(response):
        return rewards.compute_shaped(SUMS_SOURCE, response, "19")["score"]

    assert score("19") > score("It is 19") > score("18") > score("It is 18") == 0.0


def test_the_shaped_reward_calls_only_the_right_answer_accurate():
    assert rewards.compute_shaped(SUMS_SOURCE, "It is 19", "19")["acc"] == 1.0
    assert rewards.compute_shaped(SUMS_SOURCE, "18", "19")["acc"] == 0.0


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("1234", 1.0),
        ("1230", 0.75),
        ("9999", 0.0),
        ("123", 0.75),  # a digit is missing
        ("12345", 0.8),  # one is too many
        ("123x", 0.75),
        ("234", 0.0),  # right digits, each in the wrong place
        ("", 0.0),
    ],
)
def test_the_column_reward_is_the_share_of_digits_in_their_place(response, score):
    found = rewards.compute_score(COLUMNS_SOURCE, response, "1234")
    assert found["score"] == pytest.approx(score)
    assert found["acc"] == float(response == "1234")


def test_rewards_load_by_path_alone_as_verl_loads_them():
    from verl.trainer.ppo.reward import get_custom_reward_fn

    path = inspect.getsourcefile(rewards)
    for name in ("compute_score", "compute_exact", "compute_shaped", "compute_columns"):
        config = {"reward": {"custom_reward_function": {"path": path, "name": name, "reward_kwargs": {}}}}
        from omegaconf import OmegaConf

        loaded = get_custom_reward_fn(OmegaConf.create(config))
        found = loaded(data_source=SUMS_SOURCE, solution_str="19", ground_truth="19", extra_info={"index": 0}, turns=1)
        assert found == {"score": 1.0, "acc": 1.0}


def test_the_reward_file_imports_nothing_but_the_standard_library():
    imported = [line for line in Path(rewards.__file__).read_text().splitlines() if line.startswith(("import", "from"))]
    assert imported == ["from __future__ import annotations", "import re"]
