"""Turns the files of the GSM8K data set into the files that verl trains on. Nothing is downloaded.

    python scripts/prepare_gsm8k.py TRAIN TEST [--out assets/gsm8k]

TRAIN and TEST are the data set's own files with the columns `question` and `answer`: parquet as on the Hugging Face
hub (main/train-00000-of-00001.parquet) or JSON lines as in the original repository (train.jsonl). The result is
train.parquet and test.parquet, which task=gsm8k expects, scored by verl's own reward for `openai/gsm8k`.

Source: verl's GSM8K example (columns, instruction, ground truth) and verl/utils/reward_score/gsm8k.py (the form that
the reward looks for).
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.errors import ConfigError

if TYPE_CHECKING:
    from pandas import DataFrame

DATA_SOURCE = "openai/gsm8k"
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
FINAL_ANSWER = re.compile(r"#### (-?[0-9.,]+)")
COLUMNS = ("question", "answer")
DEFAULT_OUT = Path("assets/gsm8k")


def convert(source: Path, split: str) -> DataFrame:
    """The file's rows in verl's columns, in their order.

    Raises:
        ConfigError: a file that cannot be read, lacks a column, has no rows, or has an answer without a number
            after ####.
    """
    import pandas

    rows = _read(source)
    missing = [name for name in COLUMNS if name not in rows.columns]
    if missing:
        found = ", ".join(map(str, rows.columns)) or "none"
        raise ConfigError(f"{source} lacks the column {' and '.join(missing)}; found: {found}")
    if rows.empty:
        raise ConfigError(f"{source} has no rows")
    return pandas.DataFrame(
        [
            {
                "data_source": DATA_SOURCE,
                "prompt": [{"role": "user", "content": f"{question} {INSTRUCTION}"}],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": _final_answer(answer, source, index)},
                "extra_info": {"split": split, "index": index, "answer": answer, "question": question},
            }
            for index, (question, answer) in enumerate(zip(rows["question"], rows["answer"], strict=True))
        ]
    )


def _read(source: Path) -> DataFrame:
    import pandas

    if not source.is_file():
        raise ConfigError(f"{source} is not a file; give the data set's own train and test file")
    try:
        if source.suffix == ".parquet":
            return pandas.read_parquet(source)
        if source.suffix in (".jsonl", ".json"):
            return pandas.read_json(source, lines=True, dtype=False)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{source} cannot be read: {error}") from error
    raise ConfigError(f"{source} must end in .parquet or .jsonl, got {source.suffix or 'no ending'}")


def _final_answer(answer: str, source: Path, index: int) -> str:
    """The number after ####, without thousands separators, as verl's reward compares it."""
    found = FINAL_ANSWER.search(answer)
    if found is None:
        raise ConfigError(f"{source}, row {index}: the answer has no number after ####: {answer[-60:]!r}")
    return found.group(1).replace(",", "")


def main(arguments: list[str] | None = None) -> int:
    """Writes both files and says how many rows each has; 2 if something about the request is wrong."""
    parser = argparse.ArgumentParser(description="GSM8K's own files to verl's columns; nothing is downloaded")
    parser.add_argument("train", type=Path, help="train file: parquet or JSON lines with question and answer")
    parser.add_argument("test", type=Path, help="test file of the same kind")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder for train.parquet and test.parquet")
    request = parser.parse_args(arguments)
    try:
        converted = {split: convert(getattr(request, split), split) for split in ("train", "test")}
        request.out.mkdir(parents=True, exist_ok=True)
        for split, rows in converted.items():
            rows.to_parquet(request.out / f"{split}.parquet")
            print(f"{request.out / f'{split}.parquet'}: {len(rows)} rows")
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return ConfigError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
