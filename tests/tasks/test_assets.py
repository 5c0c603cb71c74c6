"""Where a campaign's model, data and reward are said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.config import compose, sources, to_plan
from sweep.core import verl_keys as keys
from sweep.tasks.assets import Sources


def test_a_tilde_is_the_users_folder_since_verl_does_not_expand_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    given = {"model.path": "~/m", "task.train_files": "~/t.parquet", "task.val_files": "a~", "task.reward": "~/r.py:f"}
    config = compose([f"{key}='{value}'" for key, value in given.items()])
    assert sources(config) == Sources(f"{tmp_path}/m", f"{tmp_path}/t.parquet", "a~", f"{tmp_path}/r.py:f")
    assert to_plan(config).base.get(keys.MODEL_PATH) == f"{tmp_path}/m"
