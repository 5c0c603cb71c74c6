"""The shape of a model from its folder or the Hugging Face cache, without loading or downloading it: `read_model`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path

from sweep.health.preflight.facts import ModelFacts

HEADER_LIMIT_BYTES = 64 * 1024**2
"""Largest header that is read of a safetensors file; real ones take a few hundred kilobytes."""


def read_model(name: str | None) -> ModelFacts:
    """What is known of the model at a path or under a repository name; nothing if it is not on this machine."""
    folder = _folder(name)
    shape = _json(folder / "config.json") if folder else {}
    if not folder or not shape:
        return ModelFacts()
    nested = shape.get("text_config")
    text = {**shape, **nested} if isinstance(nested, dict) else shape
    heads = _size(text, "num_attention_heads", "n_head")
    hidden = _size(text, "hidden_size", "n_embd", "d_model")
    return ModelFacts(
        parameters=_stored_parameters(folder) or _estimated_parameters(text),
        layers=_size(text, "num_hidden_layers", "n_layer"),
        hidden_size=hidden,
        attention_heads=heads,
        kv_heads=_size(text, "num_key_value_heads") or heads,
        head_size=_size(text, "head_dim") or (hidden // heads if hidden and heads else None),
        vocabulary=_size(text, "vocab_size"),
        max_positions=_size(text, "max_position_embeddings", "n_positions"),
    )


def _folder(name: str | None) -> Path | None:
    if not name:
        return None
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    try:
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(name, "config.json")
    except (ImportError, ValueError):  # not a repository name either
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def _stored_parameters(folder: Path) -> float | None:
    """Weights counted from the headers of safetensors files; None without such files."""
    counts = [_header_parameters(file) for file in sorted(folder.glob("*.safetensors"))]
    known = [count for count in counts if count is not None]
    return float(sum(known)) if known and len(known) == len(counts) else None


def _header_parameters(file: Path) -> int | None:
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= HEADER_LIMIT_BYTES:
            return None
        try:
            header = json.loads(stream.read(length))
        except ValueError:
            return None
    return sum(int(prod(entry.get("shape", ()))) for name, entry in header.items() if name != "__metadata__")


def _estimated_parameters(shape: Mapping[str, object]) -> float | None:
    """Weights of a decoder with gated feed-forward layers, by its sizes; norms and biases are left out."""
    hidden, layers = _size(shape, "hidden_size"), _size(shape, "num_hidden_layers")
    vocabulary, inner = _size(shape, "vocab_size"), _size(shape, "intermediate_size")
    heads = _size(shape, "num_attention_heads")
    if not (hidden and layers and vocabulary and inner and heads):
        return None
    head = _size(shape, "head_dim") or hidden // heads
    pairs = _size(shape, "num_key_value_heads") or heads
    attention = 2 * hidden * heads * head + 2 * hidden * pairs * head
    embeddings = vocabulary * hidden * (1 if shape.get("tie_word_embeddings") else 2)
    return float(layers * (attention + 3 * hidden * inner) + embeddings)


def _size(shape: Mapping[str, object], *names: str) -> int | None:
    value = next((shape[name] for name in names if shape.get(name) is not None), None)
    return value if isinstance(value, int) and value > 0 else None


def _json(file: Path) -> dict[str, object]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
