"""`health_notes`: the diagnosis of a stage's baseline and winner, for the winner's notes. Nothing is decided on it."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.core import verl_keys as keys
from sweep.core.curve import METRICS, Curve
from sweep.core.overrides import NOTHING, Overrides, thaw
from sweep.core.progress import Progress
from sweep.core.stage import Stage
from sweep.core.trial import Measure
from sweep.core.winner import Choice
from sweep.health.diagnosis import diagnose
from sweep.health.evidence import RunFacts
from sweep.health.limits import Limits
from sweep.health.metric_table import MetricTable
from sweep.health.plugin_settings import limits_from


def health_notes(stage: Stage, progress: Progress, choice: Choice) -> tuple[str, ...]:
    """One sentence each for the first finished trial of baseline and winner; none where trials do not train.

    Judged by the thresholds of the trials' own guards. Source: S0 section 1.1; METHOD section 6.
    """
    if stage.measure is not Measure.TRAINING:
        return ()
    arms = {"baseline": NOTHING, "winner": choice.settings}
    if progress.base.merged(choice.settings) == progress.base:
        del arms["winner"]
    return tuple(note for name, settings in arms.items() for note in _note(progress, name, settings))


def _note(progress: Progress, name: str, settings: Overrides) -> Iterator[str]:
    record = next((r for r in progress.arm(settings) if r.finished is not None), None)
    if record is None or record.finished is None:
        return
    overrides = record.trial.overrides
    config = {key: thaw(value) for key, value in overrides.by_bare_key().items()}
    found = diagnose(_table(record.finished.curve), RunFacts(config=config), _limits(overrides))
    leading = found.leading
    verdict = "nothing wrong" if leading is None else f"{leading.code.name} ({leading.severity.value}): {leading.seen}"
    advice = f"; {leading.advice}" if leading is not None and leading.advice else ""
    yield f"diagnosis of the {name}, trial {record.trial.id}: {verdict}{advice}"


def _table(curve: Curve) -> MetricTable:
    """What the trial logged, without what it did not log; a value that is not finite cannot be told from that here."""
    columns = {metric: getattr(curve, name) for name, metric in METRICS.items()}
    return MetricTable.from_rows(
        (step, {metric: values[i] for metric, values in columns.items() if values[i] == values[i]})
        for i, step in enumerate(curve.steps)
    )


def _limits(overrides: Overrides) -> Limits:
    section = f"{keys.LIMITS}."
    given = overrides.by_bare_key().items()
    return limits_from({key.removeprefix(section): thaw(v) for key, v in given if key.startswith(section)})
