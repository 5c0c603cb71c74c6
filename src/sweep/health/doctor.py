"""Why a verl run died, from its console log: `diagnose_log`, `Diagnosis`.

Reads a log of any size and content once, and always answers; the worst answer is a code that says how little is
known. Pure but for the catalogue, which is data of this package. Reading files is the command's task.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sweep.core.failure import Cause, FailureClass, Retry
from sweep.health.doctor_catalog import Catalog, Confidence, Remedy, load_catalog
from sweep.health.doctor_compute import Evidence, Refined, refine
from sweep.health.doctor_rules import Choice, choose
from sweep.health.doctor_scan import LogScanner
from sweep.health.doctor_signs import Scan

__all__ = ["Confidence", "Diagnosis", "Evidence", "diagnose_log"]

RESUME_NAME = re.compile(r"global_step_(\d+)")
START, TRAINING, UNKNOWN_PHASE = "start", "training", "unknown"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The failure, where it shows, and what to do.

    `line_number` counts from 1, 0 if no line shows it. `fix` is in order of likelihood; `moves` say the same by
    setting, for a campaign. `computed` holds numbers from the log. `also_seen` are codes of other signs.
    """

    code: str
    title: str
    failure_class: FailureClass
    phase: str
    cause_line: str
    line_number: int
    fix: tuple[str, ...]
    retry: Retry
    max_retries: int
    confidence: Confidence
    last_step: int = 0
    computed: Mapping[str, object] = field(default_factory=dict)
    moves: Mapping[str, str] = field(default_factory=dict)
    avoid: tuple[str, ...] = ()
    abort_campaign: bool = False
    resume_from: str | None = None
    also_seen: tuple[str, ...] = ()
    source: str = ""

    @property
    def counts_as_result(self) -> bool:
        """Whether the trial's metrics are complete all the same."""
        return self.failure_class is FailureClass.TEARDOWN_NOISE or self.code == "NO_FAILURE_FOUND"

    def to_json(self) -> dict[str, object]:
        """The diagnosis as plain JSON types."""
        return {
            "code": self.code,
            "title": self.title,
            "class": self.failure_class.name,
            "phase": self.phase,
            "cause_line": self.cause_line,
            "line_number": self.line_number,
            "fix": list(self.fix),
            "retry": self.retry.name,
            "max_retries": self.max_retries,
            "confidence": self.confidence.value,
            "last_step": self.last_step,
            "computed": dict(self.computed),
            "moves": dict(self.moves),
            "avoid": list(self.avoid),
            "abort_campaign": self.abort_campaign,
            "counts_as_result": self.counts_as_result,
            "resume_from": self.resume_from,
            "also_seen": list(self.also_seen),
            "source": self.source,
        }


def diagnose_log(
    text_or_lines: str | Iterable[str], evidence: Evidence | None = None, catalog: Catalog | None = None
) -> Diagnosis:
    """The most specific, earliest failure that the run did not survive.

    Args:
        text_or_lines: the log, whole or line by line; lines are taken once and not kept.
        evidence: what is known beside the log.
        catalog: known failures, by default those of the package.
    """
    known, beside = catalog or load_catalog(), evidence or Evidence()
    scanner = LogScanner(known)
    for line in text_or_lines.split("\n") if isinstance(text_or_lines, str) else text_or_lines:
        scanner.feed(line)
    scan = scanner.result()
    return _diagnosis(scan, choose(scan, known, beside), beside)


def classify(log: str) -> Cause:
    """What a campaign needs to know of the failure that a console shows."""
    found = diagnose_log(log)
    return Cause(found.failure_class, found.cause_line, found.fix, found.retry, found.abort_campaign)


def _diagnosis(scan: Scan, choice: Choice, evidence: Evidence) -> Diagnosis:
    failure = choice.failure
    raw = {**scan.settings, **choice.hit.computed} if choice.hit else {}
    last_step = max(scan.last_step, evidence.last_step or 0)
    refined = refine(failure.code, raw, last_step, evidence)
    computed = {**raw, **refined.computed}
    phase = _phase(choice, last_step, scan.starting)
    remedy = failure.by_phase.get(phase, failure.remedy)
    retry = refined.retry or failure.retry
    return Diagnosis(
        code=failure.code,
        title=failure.title,
        failure_class=refined.failure_class or choice.failure_class or failure.failure_class,
        phase=phase,
        cause_line=choice.text.strip(),
        line_number=choice.line_number,
        fix=_fix(remedy, refined, computed),
        retry=retry,
        max_retries=failure.max_retries,
        confidence=Confidence.LOW if choice.doubtful else failure.confidence,
        last_step=last_step,
        computed=computed | ({"saving_step": scan.saving_step} if scan.saving_step is not None else {}),
        moves=remedy.moves if refined.moves is None else refined.moves,
        avoid=failure.avoid,
        abort_campaign=failure.abort and not choice.doubtful,
        resume_from=_resume_from(scan, evidence) if retry is Retry.RESUME else None,
        also_seen=tuple(dict.fromkeys(hit.failure.code for hit in scan.hits if hit.failure.code != failure.code)),
        source=failure.source,
    )


def _phase(choice: Choice, last_step: int, starting: bool) -> str:
    """Where it happened: what the entry says, else the outermost known function on the stack."""
    if choice.failure.phase is not None:
        return choice.failure.phase
    frames = choice.hit.frames if choice.hit else []
    if frames:
        return min(frames)[1]
    if last_step:
        return TRAINING
    return START if starting else UNKNOWN_PHASE


def _fix(remedy: Remedy, refined: Refined, computed: Mapping[str, object]) -> tuple[str, ...]:
    chosen = remedy.fix if refined.fix is None else refined.fix
    return tuple(_filled(text, computed) for text in (*chosen, *refined.hints))


def _filled(text: str, computed: Mapping[str, object]) -> str:
    """The text with `{name}` replaced by what was read; an unknown name becomes "it"."""
    return re.sub(r"\{(\w+)\}", lambda match: str(computed.get(match[1], "it")), text)


def _resume_from(scan: Scan, evidence: Evidence) -> str | None:
    """The newest checkpoint that is not the one being written."""
    named = {int(found[1]): name for name in evidence.checkpoints if (found := RESUME_NAME.search(name))}
    steps = set(named) | scan.saved_steps
    complete = [step for step in steps if scan.saving_step is None or step < scan.saving_step]
    if not complete:
        return None
    newest = max(complete)
    return named.get(newest, f"global_step_{newest}")
