"""Whether checkpoints end up where they should: no folder shared between trials, none resumed by accident."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from sweep.core import verl_keys as keys
from sweep.health.preflight.facts import Facts
from sweep.health.preflight.finding import PreflightFinding, error, info, warn
from sweep.health.preflight.memory import GIB
from sweep.health.preflight.settings import Config, needs_critic, text, whole

MODES = ("auto", "disable", "resume_path")
"""Source: verl trainer/ppo/v1/trainer_base.py."""

SAVED_BYTES = 12.0
"""Bytes a parameter takes in a checkpoint: float32 weights and AdamW's two moments."""

SOURCE = "verl trainer/ppo/v1/trainer_base.py (_load_checkpoint)"


def check(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    """Findings on one trial's checkpoints."""
    folder, mode = text(config, keys.CHECKPOINT_DIR), text(config, keys.RESUME_MODE)
    if facts.existing_checkpoint is not None and mode == "auto":
        yield warn(
            "RESUMES_EXISTING",
            f"{folder} holds {facts.existing_checkpoint}, and {keys.RESUME_MODE} is auto",
            "verl continues that run silently instead of starting at step 1",
            nearest=(f"{keys.RESUME_MODE}=disable",),
            keys=(keys.CHECKPOINT_DIR, keys.RESUME_MODE),
            source=SOURCE,
        )
    yield from _resume_path(config, mode)
    yield from _disk(config, facts)


def check_together(configs: Mapping[str, Config]) -> Iterator[PreflightFinding]:
    """Findings on several trials that differ by name only in their settings: folders that two of them share.

    A trial that resumes nothing still overwrites the other's checkpoints, so `resume_mode=disable` is no cure.
    """
    owners: dict[str, list[str]] = defaultdict(list)
    for name, config in configs.items():
        folder = text(config, keys.CHECKPOINT_DIR)
        if folder is not None:
            owners[folder].append(name)
    for folder, names in owners.items():
        if len(names) > 1:
            yield _shared(folder, tuple(names))


def _shared(folder: str, names: tuple[str, ...]) -> PreflightFinding:
    return error(
        "SHARED_CHECKPOINT_DIR",
        f"trials {', '.join(names)} share the checkpoint folder {folder}",
        f"with {keys.RESUME_MODE}=auto, verl's default, a trial continues the other's run instead of starting afresh",
        nearest=(
            f"{keys.CHECKPOINT_DIR}, one a trial and attempt",
            "trainer.experiment_name, one a trial and attempt",
            f"{keys.RESUME_MODE}=disable for new trials",
            f"{keys.RESUME_MODE}=resume_path with {keys.RESUME_FROM} for a retry",
        ),
        keys=(keys.CHECKPOINT_DIR, keys.RESUME_MODE),
        source=SOURCE,
        computed={"runtime_check": "the first logged step of a new trial is 1", "trials": list(names)},
    )


def _resume_path(config: Config, mode: str | None) -> Iterator[PreflightFinding]:
    if mode is not None and mode not in MODES:
        yield error(
            "UNKNOWN_OPTION",
            f"{keys.RESUME_MODE} is {mode!r}",
            f"verl knows {', '.join(MODES)}",
            nearest=tuple(f"{keys.RESUME_MODE}={known}" for known in MODES),
            keys=(keys.RESUME_MODE,),
            source=SOURCE,
        )
    path = text(config, keys.RESUME_FROM)
    if mode == "resume_path" and (path is None or "global_step_" not in path):
        yield error(
            "RESUME_PATH_INVALID",
            f"{keys.RESUME_MODE} is resume_path, and {keys.RESUME_FROM} is {path}",
            "verl wants the folder of one step, named global_step_N",
            nearest=(f"{keys.RESUME_MODE}=auto",),
            keys=(keys.RESUME_MODE, keys.RESUME_FROM),
            source=SOURCE,
        )


def _disk(config: Config, facts: Facts) -> Iterator[PreflightFinding]:
    every = whole(config, keys.SAVE_FREQ)
    if every is None or every < 1:
        return
    steps = facts.trial_steps or whole(config, keys.TOTAL_STEPS)
    kept, written = whole(config, keys.KEEP_ACTOR), steps // every if steps else None
    if kept is None:
        yield info(
            "KEEPS_ALL_CHECKPOINTS",
            f"{keys.SAVE_FREQ} is {every}, and {keys.KEEP_ACTOR} is not set",
            "verl never deletes a checkpoint then",
            nearest=(f"{keys.KEEP_ACTOR}=3", f"{keys.KEEP_CRITIC}=3"),
            keys=(keys.SAVE_FREQ, keys.KEEP_ACTOR, keys.KEEP_CRITIC),
            source="S0 section 4.3; METHOD section 8",
        )
    if facts.free_disk_gib is None or facts.model.parameters is None:
        return
    models = facts.model.parameters
    if needs_critic(config):
        models += facts.critic_model.parameters or facts.model.parameters
    # One more than is kept: verl writes the new one before it deletes the oldest.
    count = min(written or 1, kept + 1) if kept else written or 1
    need_gib = models * SAVED_BYTES * count / GIB
    if need_gib > facts.free_disk_gib:
        yield error(
            "DISK_SHORT",
            f"{count} checkpoints take about {need_gib:.1f} GiB, {facts.free_disk_gib:.1f} GiB are free",
            "a full disk ends the run in the middle of a save",
            nearest=(f"{keys.KEEP_ACTOR}=1", f"{keys.SAVE_FREQ}=-1"),
            keys=(keys.SAVE_FREQ, keys.KEEP_ACTOR, keys.CHECKPOINT_DIR),
            source="METHOD section 8",
            computed={"need_gib": round(need_gib, 1), "free_gib": round(facts.free_disk_gib, 1), "count": count},
        )
