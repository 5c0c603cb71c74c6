"""The end of a campaign: a table for people, `summary.json`, `best.yaml` and `best.sh`; all made from the store."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.outcome import Failed, Finished, Outcome
from sweep.core.overrides import Overrides
from sweep.core.plan import CampaignPlan, found_by
from sweep.core.stage import ConfirmRule
from sweep.core.trial import Trial
from sweep.core.winner import Score, Winner, score_json
from sweep.errors import ViewError
from sweep.ports import Store
from sweep.purse import paid_in
from sweep.report.columns import columns
from sweep.report.failures import ended_badly, failure_lines


@dataclass(frozen=True, slots=True)
class StageLine:
    """One stage as the table shows it. `reused`: trials taken over from another stage or an earlier campaign, which
    `trials` and `spent_seconds` do not count."""

    winner: Winner
    objective: str
    trials: int
    reused: int
    failures: tuple[str, ...]
    failed: int
    spent_seconds: float

    def to_json(self) -> dict[str, Any]:
        """The line as plain JSON types."""
        choice = self.winner.choice
        return {
            "stage": self.winner.stage,
            "settings": choice.settings.to_json(),
            "objective": self.objective,
            "baseline_score": score_json(choice.baseline_score),
            "score": score_json(choice.score),
            "reason": choice.reason,
            "trials": self.trials,
            "reused": self.reused,
            "failures": list(self.failures),
            "spent_seconds": round(self.spent_seconds, 1),
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole campaign's end; `failed_trials` counts trials of the wanted stages that broke. One that a
    guard ended is a result: its settings are not to be had."""

    text: str
    failed_trials: int


def write_summary(
    plan: CampaignPlan, store: Store, folder: Path, best_script: Callable[[Trial], str] | None
) -> Summary:
    """Writes the files and returns the table. `best_script` writes verl's command for the long run."""
    lines = stage_lines(plan, store)
    best = best_settings(plan, [line.winner for line in lines])
    failed = sum(line.failed for line in lines if line.winner.stage in plan.wanted)
    content = {
        "version": 1,
        "campaign": plan.name,
        "stages": [line.to_json() for line in lines],
        "trials": sum(line.trials for line in lines),
        "spent_seconds": round(sum(line.spent_seconds for line in lines), 1),
        "failed_trials": failed,
        "best": best.to_json(),
    }
    _write(folder / "summary.json", json.dumps(content, indent=2) + "\n")
    _write(folder / "best.yaml", _best_yaml(best))
    if best_script is not None:
        _write(folder / "best.sh", best_script(Trial(best, plan.seeds[0], _whole_run(best))), executable=True)
    return Summary(table(plan, lines, failure_lines(plan, store), folder, script=best_script is not None), failed)


KEPT = "make room for it and run the same command again: the storage has every trial and winner, nothing runs twice"


def stage_lines(plan: CampaignPlan, store: Store) -> list[StageLine]:
    """A line a frozen stage, in the order of the stages."""
    frozen = {w.stage: w for w in store.winners()}
    lines = []
    for stage in plan.stages:
        if stage.name not in frozen:
            continue
        records = store.records(stage)
        fresh = [r for r in records if not _taken_over(r.outcome)]
        lines.append(
            StageLine(
                winner=frozen[stage.name],
                objective=stage.objective,
                trials=len(fresh),
                reused=len(records) - len(fresh),
                failures=tuple(text for r in records if (text := ended_badly(r))),
                failed=sum(isinstance(r.outcome, Failed) for r in records),
                spent_seconds=sum(o.wall_seconds for o in paid_in(stage, store)),
            )
        )
    return lines


def best_settings(plan: CampaignPlan, winners: list[Winner]) -> Overrides:
    """The campaign's base with every winner on top, or what a confirmation left of them."""
    confirmed = next((w for w in winners if isinstance(plan.stage(w.stage).rule, ConfirmRule)), None)
    return plan.base.merged(found_by(winners) if confirmed is None else confirmed.choice.settings)


def table(plan: CampaignPlan, lines: list[StageLine], failures: list[str], folder: Path, *, script: bool = True) -> str:
    """Baseline and winner a stage, then the failures and where everything is; a rehearsal has no script to run."""
    head = ("stage", "winner", "objective", "baseline", "winner's", "trials", "spent")
    found = found_by([line.winner for line in lines if not _confirms(line)])
    text = columns([head, *(_row(line, found) for line in lines)])
    text.append(_ledger(plan, lines))
    text += [line.winner.choice.reason for line in lines if _confirms(line)]
    text += failures
    long_run = f"; long run: {folder}/best.sh" if script else ""
    text.append(f"winners and evidence: {folder}/frozen/; all settings: {folder}/best.yaml{long_run}")
    return "\n".join(text)


def _row(line: StageLine, found: Overrides) -> tuple[str, ...]:
    """The stage's line; `found` is what all searches found, which a confirmation keeps or gives up."""
    choice = line.winner.choice
    if _confirms(line) and found:
        return _cells(line, "all of the above" if choice.settings else "given up")
    changed = ", ".join(
        f"{k.rsplit('.', 1)[-1]}={v}" for k, v in choice.settings.to_json().items() if "kl_ctrl.b" not in k
    )
    return _cells(line, changed or "baseline kept")


def _ledger(plan: CampaignPlan, lines: list[StageLine]) -> str:
    """What all stages spent together."""
    seconds = sum(line.spent_seconds for line in lines)
    gpu_hours = f", {seconds * plan.model.gpus / 3600:.2g} GPU-hours" if plan.counts_gpu_hours else ""
    return f"spent in {sum(line.trials for line in lines)} trials: {seconds:.0f} s{gpu_hours}"


def _confirms(line: StageLine) -> bool:
    return line.winner.rule == ConfirmRule.__name__


def _cells(line: StageLine, winner: str) -> tuple[str, ...]:
    choice = line.winner.choice
    trials = f"{line.trials}" + (f" (+{line.reused} known)" if line.reused else "")
    return (
        line.winner.stage,
        winner,
        line.objective,
        _shown(choice.baseline_score),
        _shown(choice.score),
        trials,
        f"{line.spent_seconds:.0f} s",
    )


def _shown(score: Score) -> str:
    return "-" if math.isnan(score.value) else f"{score.value:.4g}"


def _taken_over(outcome: Outcome | None) -> bool:
    """Whether the trial was known when the stage asked for it: the campaign records such a one as free of charge."""
    return isinstance(outcome, Finished) and outcome.wall_seconds == 0


def _whole_run(best: Overrides) -> int:
    """Steps of the long run: the length of the schedule that the trials ran the beginning of."""
    from sweep.core import verl_keys as keys

    steps = best.get(keys.SCHEDULE_STEPS)
    return steps if isinstance(steps, int) else 1


def _best_yaml(best: Overrides) -> str:
    import yaml

    head = "# verl settings of the campaign's base with every frozen winner on top; a leading + adds a key to verl's.\n"
    return head + yaml.safe_dump(best.to_json(), sort_keys=False, allow_unicode=True)


def _write(path: Path, text: str, *, executable: bool = False) -> None:
    """Replaces the file whole, so that a reader never sees half of it.

    Raises:
        ViewError: if the disk does not take it.
    """
    aside = path.with_name(f".{path.name}.new")
    try:
        aside.write_text(text, encoding="utf-8")
        if executable:
            aside.chmod(0o755)
        aside.replace(path)
    except OSError as error:
        raise ViewError(f"cannot write {path}: {error.strerror}; {KEPT}") from error
