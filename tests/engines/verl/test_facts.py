"""Facts read from files and machines: models, data, rewards, folders."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest

from sweep.core import verl_keys as keys
from sweep.engines.verl.compose import compose
from sweep.engines.verl.data_facts import read_data, reward_problem
from sweep.engines.verl.facts import Machine, gather, this_machine
from sweep.engines.verl.model_facts import read_model
from sweep.health.preflight import ModelFacts
from tests.adapters.fake_nvml import FakeNvml, fake_gpu

QWEN_05B = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}


def model(folder: Path, shape: dict[str, object]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(shape))
    return str(folder)


def weights(file: Path, shapes: dict[str, list[int]]) -> None:
    """A safetensors file of the given shapes, without the numbers, which nothing here reads."""
    header = json.dumps(
        {name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    )
    file.write_bytes(struct.pack("<Q", len(header)) + header.encode())


def test_a_models_shape_and_size_come_from_its_config(tmp_path: Path) -> None:
    facts = read_model(model(tmp_path / "m", QWEN_05B))
    assert (facts.attention_heads, facts.kv_heads, facts.head_size, facts.layers) == (14, 2, 64, 24)
    assert facts.parameters == pytest.approx(494e6, rel=0.01)


def test_stored_weights_are_counted_rather_than_estimated(tmp_path: Path) -> None:
    path = model(tmp_path / "m", QWEN_05B)
    weights(tmp_path / "m" / "a.safetensors", {"x": [3, 4], "y": [5]})
    weights(tmp_path / "m" / "b.safetensors", {"z": [10]})
    assert read_model(path).parameters == 27


@pytest.mark.parametrize("content", [b"", b"short", struct.pack("<Q", 2**60) + b"x", struct.pack("<Q", 3) + b"{{{"])
def test_a_broken_weight_file_falls_back_to_the_estimate(tmp_path: Path, content: bytes) -> None:
    path = model(tmp_path / "m", QWEN_05B)
    (tmp_path / "m" / "a.safetensors").write_bytes(content)
    assert read_model(path).parameters == pytest.approx(494e6, rel=0.01)


@pytest.mark.parametrize("shape", [{"text_config": QWEN_05B}, QWEN_05B])
def test_a_nested_text_model_counts(tmp_path: Path, shape: dict[str, object]) -> None:
    assert read_model(model(tmp_path / "m", shape)).attention_heads == 14


@pytest.mark.parametrize("name", [None, "", "/nowhere/at/all", "no-such-org/no-such-model", "a b c"])
def test_a_model_that_is_not_here_is_unknown_and_nothing_is_downloaded(name: str | None) -> None:
    assert read_model(name) == ModelFacts()


def test_a_config_that_is_no_json_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("not json")
    assert read_model(str(tmp_path)) == ModelFacts()


def parquet(file: Path, columns: dict[str, list[object]]) -> str:
    import pyarrow as arrow
    import pyarrow.parquet as writer

    writer.write_table(arrow.table(columns), file)
    return str(file)


def test_rows_columns_and_sources_come_from_parquet_heads(tmp_path: Path) -> None:
    first = parquet(tmp_path / "a.parquet", {"prompt": ["x", "y"], "data_source": ["s1", "s2"], "extra": [1, 2]})
    second = parquet(tmp_path / "b.parquet", {"prompt": ["z"], "data_source": ["s1"]})
    data = read_data([first, second])
    assert (data.rows, data.columns, data.sources) == (3, {"prompt", "data_source"}, {"s1", "s2"})


def test_json_lines_are_read_too(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "x", "data_source": "s"}\n\n{"prompt": "y", "data_source": "t"}\n')
    data = read_data([str(file)])
    assert (data.rows, data.sources) == (2, {"s", "t"})


def test_a_file_that_cannot_be_read_is_told_and_the_others_still_count(tmp_path: Path) -> None:
    good = parquet(tmp_path / "a.parquet", {"prompt": ["x"]})
    bad = tmp_path / "b.parquet"
    bad.write_bytes(b"this is no parquet file")
    data = read_data([good, str(bad), str(tmp_path / "absent.parquet")])
    assert data.rows == 1
    assert len(data.unreadable) == 2
    assert "No such file" in data.unreadable[1]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def compute_score(*a, **k): return 1.0", None),
        ("def other(): pass", "has no function compute_score"),
        ("compute_score = 3", "has no function compute_score"),
        ("def compute_score(:", "SyntaxError"),
        ("import no_such_module_here", "ModuleNotFoundError"),
        ("raise ValueError('on import')", "on import"),
    ],
)
def test_a_reward_function_is_loaded_as_verl_would(tmp_path: Path, source: str, problem: str | None) -> None:
    file = tmp_path / "reward.py"
    file.write_text(source)
    said = reward_problem(str(file), "compute_score")
    assert said is None if problem is None else problem in str(said)


def test_a_reward_file_that_is_absent_is_told() -> None:
    assert "does not exist" in str(reward_problem("/nowhere/r.py", "compute_score"))
    assert reward_problem(None, "compute_score") is None


def test_everything_is_gathered_for_a_configuration(tmp_path: Path) -> None:
    data = parquet(tmp_path / "t.parquet", {"prompt": ["x"], "data_source": ["s"], "reward_model": ["r"]})
    folder = tmp_path / "ck"
    folder.mkdir()
    (folder / "latest_checkpointed_iteration.txt").write_text("40\n")
    composed = compose(
        [
            f"{keys.TRAIN_FILES}={data}",
            f"{keys.MODEL_PATH}={model(tmp_path / 'm', QWEN_05B)}",
            f"{keys.CHECKPOINT_DIR}={folder}",
            "trainer.logger=[console,clearml]",
            "algorithm.kl_ctrl.kl_coeff=1",
        ]
    )
    facts = gather(composed, machine=Machine(gpu_count=1, gpu_gib=80.0, logical_cpus=9), trial_steps=500)
    assert (facts.dataset_rows, facts.data_sources) == (1, {"s"})
    assert facts.model.attention_heads == 14
    assert facts.critic_model == ModelFacts()
    assert facts.existing_checkpoint == "global_step_40"
    assert facts.missing_modules == {"clearml"}
    assert (facts.gpu_gib, facts.logical_cpus, facts.trial_steps) == (80.0, 9, 500)
    assert facts.free_disk_gib is not None and facts.free_disk_gib > 0
    assert [unknown.key for unknown in facts.unknown_keys] == ["algorithm.kl_ctrl.kl_coeff"]
    assert facts.verl_version == "0.9.1"


def machine_of(monkeypatch: pytest.MonkeyPatch, *gpus: dict[str, object], shown: str | None = None) -> Machine:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(*gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    return this_machine()


@pytest.mark.parametrize(
    ("shown", "count", "gib"),
    [(None, 2, 24.0), ("0", 1, 80.0), ("1,0", 2, 24.0), ("GPU-big", 1, 80.0), ("-1", 0, None), ("", 0, None)],
)
def test_only_the_gpus_that_this_process_sees_count(
    monkeypatch: pytest.MonkeyPatch, shown: str | None, count: int, gib: float | None
) -> None:
    gpus = fake_gpu(80.0, UUID="GPU-big"), fake_gpu(24.0, UUID="GPU-small")
    found = machine_of(monkeypatch, *gpus, shown=shown)
    assert (found.gpu_count, found.gpu_gib) == (count, gib)


def test_a_gpu_that_does_not_report_its_memory_is_one_of_unknown_size(monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine_of(monkeypatch, {"UUID": "GPU-0"})
    assert (found.gpu_count, found.gpu_gib) == (1, None) and found.logical_cpus
    assert machine_of(monkeypatch) == Machine()


def test_data_that_nobody_named_is_not_looked_for() -> None:
    facts = gather(compose([]), machine=Machine())
    assert facts.dataset_rows is None
    assert facts.missing_files == {}


def test_a_machine_without_a_gpu_says_nothing_about_disks() -> None:
    assert gather(compose([]), machine=Machine()).free_disk_gib is None
