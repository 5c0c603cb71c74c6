"""What vLLM needs around it: `variables`, and `require` for what must be there before anything is started."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from sweep.errors import ConfigError

PYTORCH_SAMPLER = {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
"""FlashInfer's sampling kernels are compiled at the first token, where they can be at all: inside the measurement."""


def variables(model: str, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of a vLLM process for this model; what the user has set stays as it is."""
    given = os.environ if inherited is None else inherited
    offline = {"HF_HUB_OFFLINE": "1"} if Path(model).expanduser().is_dir() else {}
    wanted = {"VLLM_NO_USAGE_STATS": "1", "TOKENIZERS_PARALLELISM": "false", **PYTORCH_SAMPLER, **offline}
    return {name: value for name, value in wanted.items() if name not in given}


def require(model: str) -> None:
    """Does nothing if vLLM is installed and the model can be had.

    Raises:
        ConfigError: names what is missing and what would do.
    """
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "vllm is not installed in this Python; install verl[vllm] (vllm 0.24.0), or run it where it is"
        )
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError(f"{model} is no model: it has no config.json; give a folder as save_pretrained writes it")
        return
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") != 1:
        raise ConfigError(f"there is no model at {model}; give a folder with config.json, or a hub name as OWNER/NAME")
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") and not _is_cached(model):
        raise ConfigError(f"model {model} is not in the Hugging Face cache and HF_HUB_OFFLINE is set; give a folder")


def _is_cached(model: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(model, "config.json"), str)
