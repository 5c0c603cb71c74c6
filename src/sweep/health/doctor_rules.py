"""Which of a log's signs is the cause: `choose`.

What a logger only warns of is the cause if the log shows nothing else at all; some entries of the catalogue are
warnings by nature and explain a death without a cause.
Specific beats generic, earlier beats later, and an error that training survived is not what it died of. After
training has finished nothing is a failure any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from sweep.core.failure import FailureClass
from sweep.health.doctor_catalog import Catalog, Failure, Kind
from sweep.health.doctor_compute import Evidence
from sweep.health.doctor_signs import Hit, Raised, Scan, survived

Event = TypeVar("Event", Hit, Raised)

WRAPPERS = frozenset(
    {
        "RayTaskError",
        "ActorDiedError",
        "RayActorError",
        "WorkerCrashedError",
        "EngineDeadError",
        "AsyncEngineDeadError",
        "CalledProcessError",
        "ChildFailedError",
        "ProcessExitedException",
        "ProcessRaisedException",
        "InstantiationException",
        "HydraException",
        "ActorUnavailableError",
        "OwnerDiedError",
        "SystemExit",
        "StopIteration",
        "CancelledError",
    }
)
"""Exceptions that report another one."""

ENVELOPE_REACH = 400
"""Lines above an envelope in which its cause is looked for. Ours: a child's traceback is printed in one piece."""

SILENT_SECONDS = 1200.0
"""Silence after which a run counts as hung: twice NCCL's time-out, which would have spoken. Ours."""

KILLED = (137, -9)
"""Exit codes of a process that was ended by signal 9: as a shell and as Python report it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The failure chosen, and the line that shows its cause; `hit` is where its numbers are."""

    failure: Failure
    line_number: int = 0
    text: str = ""
    hit: Hit | None = None
    failure_class: FailureClass | None = None
    doubtful: bool = False


def choose(scan: Scan, catalog: Catalog, evidence: Evidence) -> Choice:
    """The cause that the scan shows, under what else is known."""
    if scan.characters == 0:
        return Choice(catalog.named("EMPTY_LOG"))
    finished = has_finished(scan, evidence)
    hits = [hit for hit in scan.hits if hit.after_end or not finished]
    raised = [entry for entry in scan.raised if entry.after_end or not finished]
    if finished and not scan.ended:  # the log does not show where the end was: only what training did not survive
        hits, raised = _alive(scan.hits, scan.steps_seen), _alive(scan.raised, scan.steps_seen)
    if finished:
        return _after_end(catalog, hits, raised)
    warned = [hit for hit in hits if hit.mild]
    hits = [hit for hit in hits if not hit.mild]
    alive = _best(_alive(hits, scan.steps_seen), _alive(raised, scan.steps_seen), scan, catalog)
    if alive is not None:
        return alive
    silent = _silent(scan, catalog, evidence)
    if warned and not scan.last_step and silent.failure.code == "ENDED_WITHOUT_ERROR":
        first = min(warned, key=lambda hit: hit.line_number)
        return Choice(first.failure, first.line_number, first.text, first, doubtful=True)
    if silent.failure.code == "KILLED_BY_SIGNAL" or not hits:
        return silent
    old = _best(hits, raised, scan, catalog)
    return silent if old is None else Choice(old.failure, old.line_number, old.text, old.hit, old.failure_class, True)


def has_finished(scan: Scan, evidence: Evidence) -> bool:
    """Whether the last step was reached, by the log or by what is known beside it."""
    last = max(scan.last_step, evidence.last_step or 0)
    total = evidence.total_steps if evidence.total_steps is not None else scan.total_steps
    if total is not None and total > 0:
        return last >= total
    return scan.ended


def _alive(events: Iterable[Event], steps_seen: int) -> list[Event]:
    return [event for event in events if not survived(event.steps_seen, steps_seen)]


def _after_end(catalog: Catalog, hits: list[Hit], raised: list[Raised]) -> Choice:
    events: list[Hit | Raised] = [*(h for h in hits if not h.mild and h.kind is not Kind.WARNING), *raised]
    first = min(events, key=lambda event: event.line_number, default=None)
    if first is None:
        return Choice(catalog.named("NO_FAILURE_FOUND"))
    return Choice(catalog.named("TEARDOWN_FAILURE"), first.line_number, first.text)


def _best(hits: list[Hit], raised: list[Raised], scan: Scan, catalog: Catalog) -> Choice | None:
    """The best explanation: a known cause, an envelope with its cause, an unknown exception, a symptom, the rest."""
    by_kind = {kind: [hit for hit in hits if hit.kind is kind] for kind in Kind}
    unexplained = _unexplained(hits, raised)
    unknown = [entry for entry in unexplained if entry.type_name not in scan.harmless]
    enveloped = _enveloped(by_kind, unknown)
    cause = _first(by_kind[Kind.CAUSE])
    if enveloped is not None and (cause is None or cause.failure.code in enveloped.failure.wraps):
        return enveloped
    if cause is not None:
        return Choice(cause.failure, cause.line_number, cause.text, cause)
    symptom = _first(by_kind[Kind.SYMPTOM])
    if unknown and (symptom is None or unknown[0].line_number < symptom.line_number):
        return _uncatalogued(unknown[0], catalog)
    for kind in (Kind.SYMPTOM, Kind.ENVELOPE, Kind.WARNING):
        found = _first(by_kind[kind])
        if found is not None:
            return Choice(found.failure, found.line_number, found.text, found, doubtful=kind is Kind.WARNING)
    if unexplained:
        return _uncatalogued(unexplained[0], catalog)
    return _consequence(by_kind[Kind.CONSEQUENCE], scan, catalog)


def _first(hits: list[Hit]) -> Hit | None:
    return min(hits, key=lambda hit: hit.line_number, default=None)


def _unexplained(hits: list[Hit], raised: list[Raised]) -> list[Raised]:
    """Exceptions of no entry that wrap nothing, in order."""
    explained = {hit.line_number for hit in hits}
    return [
        entry
        for entry in sorted(raised, key=lambda entry: entry.line_number)
        if entry.line_number not in explained and _plain_type(entry) not in WRAPPERS and "(" not in entry.type_name
    ]


def _plain_type(entry: Raised) -> str:
    return entry.type_name.partition("(")[0].rpartition(".")[2]


def _enveloped(by_kind: dict[Kind, list[Hit]], unknown: list[Raised]) -> Choice | None:
    """An envelope together with the first error above it, if there is one."""
    envelopes = by_kind[Kind.ENVELOPE]
    if not envelopes:
        return None
    last = max(envelopes, key=lambda hit: hit.last_line)
    wrapped = [hit for hit in by_kind[Kind.CAUSE] if hit.failure.code in last.failure.wraps]
    events: list[Hit | Raised] = [*wrapped, *unknown]
    reach = range(last.last_line - ENVELOPE_REACH, last.last_line)
    above = [event for event in events if event.line_number in reach]
    first = min(above, key=lambda event: event.line_number, default=None)
    return None if first is None else Choice(last.failure, first.line_number, first.text, last)


def _uncatalogued(entry: Raised, catalog: Catalog) -> Choice:
    failure_class = catalog.types.get(_plain_type(entry))
    if failure_class is None and entry.steps_seen == 0 and _plain_type(entry) in ("ValueError", "AssertionError"):
        failure_class = FailureClass.INFEASIBLE_CONFIG  # before the first step verl checks its configuration
    failure = catalog.named("UNCATALOGUED_ERROR")
    return Choice(failure, entry.line_number, entry.text, failure_class=failure_class or FailureClass.SOFTWARE_BUG)


def _consequence(hits: list[Hit], scan: Scan, catalog: Catalog) -> Choice | None:
    """A death without a cause; during a save it has a likely one."""
    order = [hit for hit in hits if hit.failure.code != "WRAPPED_ERROR"] or hits
    first = _first(order)
    if first is None:
        return None
    if scan.saving_step is not None and first.failure.code == "UNKNOWN_WORKER_DEATH":
        return Choice(catalog.named("KILLED_DURING_SAVE"), first.line_number, first.text)
    return Choice(first.failure, first.line_number, first.text, first)


def _silent(scan: Scan, catalog: Catalog, evidence: Evidence) -> Choice:
    """What a log without an error means."""
    if evidence.exit_code in KILLED:
        code = "KILLED_DURING_SAVE" if scan.saving_step is not None else "KILLED_BY_SIGNAL"
    elif (evidence.silent_seconds or 0.0) >= SILENT_SECONDS:
        code = "SILENT_HANG" if scan.last_step > 0 or not scan.starting else "SILENT_START"
    elif evidence.exit_code == 0 and scan.last_step > 0:
        code = "ENDED_EARLY"
    elif scan.last_step > 0:
        code = "ENDED_WITHOUT_ERROR"
    elif scan.starting:
        code = "SILENT_START"
    else:
        code = "ENDED_WITHOUT_ERROR"
    return Choice(catalog.named(code), scan.lines)
