"""Answers for `overrides`: values through our rendering, Hydra's own parser, and the names of folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser

from sweep.campaign import trial_folder
from sweep.core.overrides import NOTHING, Overrides, freeze, is_interpolation, thaw
from sweep.core.plan import CampaignPlan, ModelFacts
from sweep.core.trial import Trial

FOLDER_NAME = "each trial's folder is named by the trial's id, hex digits of its canonical config, never by a value"


def override_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """How the values are written, whether Hydra reads the same back, and what it would not take literally."""
    items = [(str(key), value) for key, value in given["items"]]
    rendered = [Overrides.of({key: value}).command_line()[0] for key, value in items]
    parsed = [OverridesParser.create().parse_override(line) for line in rendered]
    back = [(p.get_key_element(), p.value()) for p in parsed]
    trial = Trial(Overrides.of(_many(items, int(given.get("n_overrides", 0)))), 1, 100)
    name = trial_folder(_plan(), trial).name
    return {
        "rendered": rendered,
        "round_trip": back == [(key, thaw(freeze(value))) for key, value in items],
        "flagged": [value for _, value in items if is_interpolation(value)],
        "dir_name": FOLDER_NAME,
        "max_len": len(name),
        "text": f"{FOLDER_NAME}: {name}",
    }


def _many(items: list[tuple[str, Any]], count: int) -> list[tuple[str, Any]]:
    """The items, and as many further settings as a case says there are, with values that could name folders."""
    return [*items, *((f"a.b.c{n}", f"/some/where/{n}/deep") for n in range(count - len(items)))]


def _plan() -> CampaignPlan:
    model = ModelFacts("tiny", "generated", needs_gpu=False)
    return CampaignPlan("a1", "runs/a1", (), (), NOTHING, model, (1,))


KINDS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"override_values": override_values}
