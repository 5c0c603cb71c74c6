"""Generated additions as parquet files in verl's columns: one question a row, one number as its answer.

Two kinds of exercise. *Sums* (`largest`) suit an instruction-tuned model: "What is 7 + 12?". *Columns* (`columns`)
suit the generated tiny model: two numbers of fixed width whose digits add up without a carry, so that every digit of
the answer is a small task of its own and earns its own credit. Rewards are in `sweep.tasks.rewards`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sweep.errors import ConfigError
from sweep.tasks.content import build_once

SUMS_SOURCE = "sweep/arithmetic"
COLUMNS_SOURCE = "sweep/arithmetic-columns"
"""`data_source` of the two kinds of rows; `rewards.compute_score` tells them apart by it."""

TRAIN_ROWS = 8192
VAL_ROWS = 128
HELD_OUT_SHARE = 4
"""At most one in so many of all pairs is held out for validation. Ours: 1..20 has only 400 pairs."""

RECIPE_VERSION = 1


class Addition(NamedTuple):
    """Two numbers to add."""

    left: int
    right: int

    def question(self) -> str:
        """The user's message."""
        return f"What is {self.left} + {self.right}? Answer with the number only."

    def answer(self) -> str:
        """The digits of the sum."""
        return str(self.left + self.right)


class DataFiles(NamedTuple):
    """The two files that verl reads."""

    train: Path
    val: Path


def make(
    folder: Path,
    *,
    largest: int = 20,
    columns: int | None = None,
    train_rows: int = TRAIN_ROWS,
    val_rows: int = VAL_ROWS,
    seed: int = 0,
) -> DataFiles:
    """Training and validation files under `folder`; no pair of numbers is in both. Equal arguments, equal files.

    Args:
        largest: sums of two numbers from 1 to this one, which is at least 2.
        columns: if given, numbers of exactly so many digits that add without a carry; `largest` is not used.
        val_rows: fewer are made where they would use up the pairs there are.

    Raises:
        ConfigError: a size that is too small, or a folder that cannot be written.
    """
    sizes = (("largest", largest, 2), ("columns", columns, 1), ("train_rows", train_rows, 1), ("val_rows", val_rows, 1))
    for name, size, least in sizes:
        if size is not None and size < least:
            raise ConfigError(f"{name} of the arithmetic task must be at least {least}, got {size}")
    recipe = {
        "version": RECIPE_VERSION,
        "largest": None if columns else largest,
        "columns": columns,
        "train_rows": train_rows,
        "val_rows": val_rows,
        "seed": seed,
    }

    def build(target: Path) -> None:
        generator = random.Random(seed)
        pairs = endless_columns(generator, columns) if columns else _endless_sums(generator, largest)
        source = COLUMNS_SOURCE if columns else SUMS_SOURCE
        possible = 10 ** (2 * columns) if columns else largest**2
        held_out = _distinct(pairs, max(1, min(val_rows, possible // HELD_OUT_SHARE)))
        training = islice((pair for pair in pairs if pair not in held_out), train_rows)
        _write(target / "val.parquet", list(held_out), source, "val")
        _write(target / "train.parquet", list(training), source, "train")

    made = build_once(folder, "arithmetic", recipe, build)
    return DataFiles(made / "train.parquet", made / "val.parquet")


def endless_columns(generator: random.Random, columns: int) -> Iterator[Addition]:
    """Pairs of `columns`-digit numbers without a carry; each digit of the sum is spread evenly over its range."""
    while True:
        left = right = 0
        for column in range(columns):
            leading = 1 if column == 0 else 0  # keeps both numbers at their full width
            total = generator.randint(2 * leading, 9)
            part = generator.randint(leading, total - leading)
            left, right = 10 * left + part, 10 * right + total - part
        yield Addition(left, right)


def _endless_sums(generator: random.Random, largest: int) -> Iterator[Addition]:
    while True:
        yield Addition(generator.randint(1, largest), generator.randint(1, largest))


def _distinct(pairs: Iterator[Addition], count: int) -> dict[Addition, None]:
    """The first so many different pairs, in order."""
    found: dict[Addition, None] = {}
    while len(found) < count:
        found.setdefault(next(pairs))
    return found


def _write(path: Path, pairs: list[Addition], source: str, split: str) -> None:
    import pandas  # a second to import: only when files are made

    rows = [
        {
            "data_source": source,
            "prompt": [{"role": "user", "content": pair.question()}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": pair.answer()},
            "extra_info": {"split": split, "index": index},
        }
        for index, pair in enumerate(pairs)
    ]
    pandas.DataFrame(rows).to_parquet(path)
