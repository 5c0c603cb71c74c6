"""`TrainingPrompts`: the prompts that a training hands to its rollout, as token ids.

Read as verl 0.9.1 reads them (utils/dataset/rl_dataset.py): messages of a Parquet or JSON file, the model's chat
template, prompts that are too long left out if the training does so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class TrainingPrompts:
    """The first `count` prompts of the files. `most_tokens`: longer ones are left out; None: none is.

    `template` replaces the model's own chat template, `template_options` are handed to it.
    """

    files: Sequence[str]
    count: int
    key: str = "prompt"
    most_tokens: int | None = None
    template: str | None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)

    def ids(self, tokenizer: Any) -> list[list[int]]:
        """Token ids, one list a prompt; fewer than `count` if the files hold fewer.

        Raises:
            ValueError: if the files hold none that fits, or no such column.
        """
        options = {k: v for k, v in self.template_options.items() if k not in ("tokenize", "return_dict")}
        if self.template is not None:
            options["chat_template"] = self.template
        found: list[list[int]] = []
        for messages in self._messages():
            ids = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=True, return_dict=False, **options
            )
            if self.most_tokens is None or len(ids) <= self.most_tokens:
                found.append([int(token) for token in ids])
            if len(found) == self.count:
                break
        if not found:
            limit = "" if self.most_tokens is None else f" of at most {self.most_tokens} tokens"
            raise ValueError(f"no prompt{limit} in {', '.join(self.files)}")
        return found

    def _messages(self) -> Iterator[list[dict[str, Any]]]:
        for name in self.files:
            file = Path(name).expanduser()
            yield from _parquet(file, self.key) if file.suffix == ".parquet" else _json_lines(file, self.key)


def shared_out(prompts: Sequence[list[int]], samples: int, sequences: int) -> list[list[int]]:
    """What one replica is handed: each prompt repeated for its samples, from the start again if there are too few."""
    repeated = [prompt for prompt in prompts for _ in range(samples)]
    return [repeated[place % len(repeated)] for place in range(sequences)]


def _parquet(file: Path, key: str) -> Iterator[list[dict[str, Any]]]:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(file) as table:
        if key not in table.schema_arrow.names:
            raise ValueError(f"{file} has no column {key}")
        for batch in table.iter_batches(columns=[key]):
            for messages in batch.column(0).to_pylist():
                yield [{k: v for k, v in message.items() if v is not None} for message in messages]


def _json_lines(file: Path, key: str) -> Iterator[list[dict[str, Any]]]:
    with file.open(encoding="utf-8") as stream:
        for line in stream:
            if line.strip():
                yield json.loads(line)[key]
