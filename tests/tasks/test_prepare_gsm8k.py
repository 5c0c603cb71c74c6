"""The rows are made up, in the shape of the published files."""

import importlib.util
import json
import sys
from pathlib import Path

import pandas
import pytest
from verl.utils.reward_score import default_compute_score

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    {"question": "Ana has 3 boxes of 400 nails. How many?", "answer": "3 * 400 = <<3*400=1200>>1200\n#### 1,200"},
    {"question": "Ben owes 5 and pays 2. His balance?", "answer": "-5 + 2 = <<-5+2=-3>>-3\n#### -3"},
    {"question": "Half of 5?", "answer": "5 / 2 = <<5/2=2.5>>2.5\n#### 2.5"},
]


def load_script():
    spec = importlib.util.spec_from_file_location("prepare_gsm8k", ROOT / "scripts" / "prepare_gsm8k.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script = load_script()


@pytest.fixture(params=["parquet", "jsonl"])
def published(request, tmp_path):
    paths = []
    for name, rows in (("train", ROWS), ("test", ROWS[:1])):
        path = tmp_path / f"{name}.{request.param}"
        if request.param == "parquet":
            pandas.DataFrame(rows).to_parquet(path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        paths.append(str(path))
    return paths


def test_both_published_forms_become_verls_columns(published, tmp_path, capsys):
    assert script.main([*published, "--out", str(tmp_path / "out")]) == 0
    assert "train.parquet: 3 rows" in capsys.readouterr().out
    (first, *_) = pandas.read_parquet(tmp_path / "out" / "train.parquet").to_dict("records")
    assert first["data_source"] == "openai/gsm8k"
    assert first["ability"] == "math"
    assert list(first["prompt"]) == [
        {
            "role": "user",
            "content": "Ana has 3 boxes of 400 nails. How many? "
            'Let\'s think step by step and output the final answer after "####".',
        }
    ]
    assert first["reward_model"] == {"style": "rule", "ground_truth": "1200"}
    assert first["extra_info"] == {"split": "train", "index": 0, **ROWS[0]}
    (test_row,) = pandas.read_parquet(tmp_path / "out" / "test.parquet").to_dict("records")
    assert test_row["extra_info"]["split"] == "test"


def test_verls_own_reward_gives_each_published_answer_full_marks(published, tmp_path):
    script.main([*published, "--out", str(tmp_path / "out")])
    for row in pandas.read_parquet(tmp_path / "out" / "train.parquet").to_dict("records"):
        truth = row["reward_model"]["ground_truth"]
        assert default_compute_score(row["data_source"], row["extra_info"]["answer"], truth) == 1.0
        assert default_compute_score(row["data_source"], f"#### {truth}1", truth) == 0.0


def refusal(tmp_path, capsys, rows, name="train.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert script.main([str(path), str(path), "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
    return capsys.readouterr().err


def test_a_missing_column_is_named_with_what_was_found(tmp_path, capsys):
    said = refusal(tmp_path, capsys, [{"question": "1 + 1?", "solution": "#### 2"}])
    assert "lacks the column answer; found: question, solution" in said


def test_an_answer_without_a_number_after_the_marks_is_named_by_row(tmp_path, capsys):
    assert "row 1: the answer has no number after ####" in refusal(
        tmp_path, capsys, [ROWS[0], {"question": "?", "answer": "no idea"}]
    )


def test_a_file_without_rows_or_of_another_kind_or_missing_is_refused(tmp_path, capsys):
    assert "train.csv must end in .parquet or .jsonl" in refusal(tmp_path, capsys, ROWS, "train.csv")
    pandas.DataFrame({"question": [], "answer": []}).to_parquet(tmp_path / "empty.parquet")
    assert script.main([str(tmp_path / "empty.parquet")] * 2) == 2
    assert "has no rows" in capsys.readouterr().err
    assert script.main([str(tmp_path / "absent.parquet")] * 2) == 2
    assert "is not a file" in capsys.readouterr().err
    (tmp_path / "broken.parquet").write_text("not parquet")
    assert script.main([str(tmp_path / "broken.parquet")] * 2) == 2
    assert "cannot be read" in capsys.readouterr().err
