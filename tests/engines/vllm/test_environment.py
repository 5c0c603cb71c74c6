"""What is required and set before vLLM is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.engines.vllm.environment import require, variables
from sweep.errors import ConfigError


def test_without_vllm_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="vllm is not installed"):
        require(str(model))


def test_a_folder_with_a_configuration_is_a_model(fake_vllm: Path, model: Path) -> None:
    require(str(model))


def test_a_folder_without_one_is_not(fake_vllm: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no config"):
        require(str(tmp_path))


@pytest.mark.parametrize("name", ["/nowhere/at/all", "./nothing", "~/nothing", "plain", "a/b/c"])
def test_a_path_that_is_not_there_is_said_to_be_missing(fake_vllm: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="there is no model at"):
        require(name)


def test_a_hub_name_may_be_fetched_by_vllm_unless_the_hub_is_off(
    fake_vllm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    require("owner/name-that-is-not-cached")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="not in the Hugging Face cache"):
        require("owner/name-that-is-not-cached")


def test_a_local_model_needs_no_hub_and_what_the_user_set_stays(model: Path) -> None:
    found = variables(str(model), {"VLLM_USE_FLASHINFER_SAMPLER": "1"})
    assert found["HF_HUB_OFFLINE"] == "1" and "VLLM_USE_FLASHINFER_SAMPLER" not in found
    assert "HF_HUB_OFFLINE" not in variables("owner/name", {})
    assert variables("owner/name", {})["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
