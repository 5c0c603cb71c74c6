import random
from itertools import islice

import pandas
import pytest

from sweep.errors import ConfigError
from sweep.tasks import arithmetic, rewards


def rows(path):
    return pandas.read_parquet(path).to_dict("records")


def question_and_answer(row):
    (message,) = row["prompt"]
    return message["content"], row["reward_model"]["ground_truth"]


def sum_in(question):
    left, right = question.removeprefix("What is ").removesuffix("? Answer with the number only.").split(" + ")
    return int(left), int(right)


def test_every_row_has_verls_columns_and_the_right_answer(tmp_path):
    files = arithmetic.make(tmp_path, largest=20, train_rows=50, val_rows=10)
    for path, split in ((files.train, "train"), (files.val, "val")):
        for index, row in enumerate(rows(path)):
            assert row["data_source"] == "sweep/arithmetic"
            assert row["prompt"][0]["role"] == "user"
            assert row["reward_model"]["style"] == "rule"
            assert row["extra_info"] == {"split": split, "index": index}
            question, answer = question_and_answer(row)
            left, right = sum_in(question)
            assert 1 <= min(left, right) <= max(left, right) <= 20
            assert answer == str(left + right)


def test_columns_have_their_width_and_never_carry(tmp_path):
    files = arithmetic.make(tmp_path, columns=4, train_rows=200, val_rows=10)
    for row in rows(files.train):
        assert row["data_source"] == "sweep/arithmetic-columns"
        question, answer = question_and_answer(row)
        left, right = (str(number) for number in sum_in(question))
        assert len(left) == len(right) == len(answer) == 4
        assert all(int(a) + int(b) == int(c) for a, b, c in zip(left, right, answer, strict=True))


def test_one_column_alone_still_has_two_numbers_of_one_digit():
    for pair in islice(arithmetic.endless_columns(random.Random(0), 1), 200):
        assert 1 <= pair.left <= 8 and 1 <= pair.right <= 8 and pair.left + pair.right <= 9


@pytest.mark.parametrize("shape", [{"largest": 9}, {"columns": 3}])
def test_no_validation_pair_is_trained_on(tmp_path, shape):
    files = arithmetic.make(tmp_path, train_rows=500, val_rows=50, **shape)
    training = {question_and_answer(row)[0] for row in rows(files.train)}
    validation = [question_and_answer(row)[0] for row in rows(files.val)]
    assert training.isdisjoint(validation)
    assert len(set(validation)) == len(validation)


def test_held_out_pairs_are_at_most_a_quarter_of_all(tmp_path):
    assert len(rows(arithmetic.make(tmp_path, largest=6, train_rows=50, val_rows=128).val)) == 36 // 4


def test_numbers_from_1_to_1_leave_nothing_to_train_on_and_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"largest .* at least 2, got 1"):
        arithmetic.make(tmp_path, largest=1)


def test_equal_arguments_give_the_same_files_and_another_seed_other_questions(tmp_path):
    first = arithmetic.make(tmp_path, columns=6, train_rows=20)
    again = arithmetic.make(tmp_path, columns=6, train_rows=20)
    elsewhere = arithmetic.make(tmp_path / "elsewhere", columns=6, train_rows=20)
    other_seed = arithmetic.make(tmp_path, columns=6, train_rows=20, seed=1)
    assert first == again
    assert first.train.read_bytes() == elsewhere.train.read_bytes()
    assert first.train.read_bytes() != other_seed.train.read_bytes()


@pytest.mark.parametrize("name", ["largest", "columns", "train_rows", "val_rows"])
def test_a_size_of_zero_is_refused_by_name(tmp_path, name):
    with pytest.raises(ConfigError, match=f"{name} .* at least"):
        arithmetic.make(tmp_path, **{name: 0})


def test_the_reward_file_knows_the_source_that_the_rows_carry():
    assert rewards.COLUMNS_SOURCE == arithmetic.COLUMNS_SOURCE
