"""One pass over a log: `LogScanner` keeps the few things a diagnosis needs, whatever the log's size.

Kept are the first hit of each known failure since training last moved on, exceptions nobody knows, phases on the
stack, the last step, saves, and the end. Nothing is decided here.
"""

from __future__ import annotations

import re
from collections import deque

from sweep.health.doctor_catalog import Catalog, Kind
from sweep.health.doctor_lines import Line, frame_name, raised_type, strip_prefixes, supposed
from sweep.health.doctor_signs import Hit, Raised, Scan, as_number, named_numbers, read_details, survived

LONGEST_LINE = 8192
"""Characters that are looked at in one piece; a longer line is cut, with an overlap."""

OVERLAP = 256

FRAMES_BEFORE = 160
FRAMES_AFTER = 40
"""Lines around a hit in which a stack frame belongs to it. Ours: verl's tracebacks have 20 to 100 lines."""

DETAIL_LINES = 12
"""Lines after a hit in which its numbers are looked for, and before it where a message is wrapped."""

UNEXPLAINED_KEPT = 40
"""Unknown exceptions that are kept at a time; the first ones matter."""

DULL_KEPT = 100_000
"""Lines without interest that are remembered, digits aside, so that their like cost a look-up only."""

WITHOUT_DIGITS = {ord(digit): None for digit in "0123456789"}

STEP = re.compile(r"(?:^|[\s)>\"'])step:(\d+) - ")
PROGRESS = re.compile(r"(\d+)/(\d+)(?=[\s\[]|$)")
SAVING = re.compile(r"(?:sav(?:e|ing)|local_global_step_folder)\b.{0,400}?global_step_(\d+)", re.IGNORECASE)
SETTING = re.compile(r"(gpu_memory_utilization|max_num_seqs|max_num_batched_tokens)['\"]?\s*[=:]\s*([\d.]+)")
FINAL = "Final validation metrics"
"""verl prints it after the last step. Source: verl trainer/ppo/v1/trainer_base.py."""

STARTING = ("Started a local Ray instance", "All configuration checks passed", "TransferQueue", "ray init kwargs")
"""Lines that verl and Ray print before the models load."""


class LogScanner:
    """Takes a log line by line; memory does not grow with the log."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._found = Scan()
        self._latest: dict[int, Hit] = {}
        self._frames: deque[tuple[int, str, int, str]] = deque(maxlen=512)
        self._recent: deque[str] = deque(maxlen=DETAIL_LINES)
        self._hot_until = 0
        self._dull: set[int] = set()

    def feed(self, raw: str) -> None:
        """Take the next line, with or without its line end."""
        self._found.lines += 1
        self._found.characters += len(raw)
        if len(raw) <= LONGEST_LINE:
            self._take(raw)
            return
        for start in range(0, len(raw), LONGEST_LINE - OVERLAP):
            self._take(raw[start : start + LONGEST_LINE])

    def result(self) -> Scan:
        """What was found so far."""
        found = self._found
        found.hits = [self._latest[place] for place in sorted(self._latest)]
        return found

    def _take(self, raw: str) -> None:
        if "step" in raw and self._progressed(raw):
            return
        if "Progress" in raw:
            self._count(raw)
        hot = self._found.lines <= self._hot_until
        mark = hash(raw.translate(WITHOUT_DIGITS))
        if mark in self._dull and not hot:
            return
        framed = ", in " in raw or "ray::" in raw or raw.lstrip().startswith("in ")
        if framed or hot or self._triggered(raw.lower()):
            dull = self._examine(strip_prefixes(raw), raw.lower(), framed)
        else:
            dull = not self._note(raw)
        if dull:
            self._remember(mark)

    def _triggered(self, lowered: str) -> bool:
        for word in self._catalog.triggers:  # noqa: SIM110 - twice as fast as any(), on every line of the log
            if word in lowered:
                return True
        return False

    def _examine(self, line: Line, lowered: str, framed: bool) -> bool:
        """Look at everything a line may hold; True if it held nothing."""
        found = [self._note(line.text), framed and self._frame(line)]
        found += [self._match(line, lowered), self._raise(line), self._detail(line)]
        self._recent.append(line.text)
        return not any(found)

    def _remember(self, mark: int) -> None:
        if len(self._dull) >= DULL_KEPT:
            self._dull.clear()
        self._dull.add(mark)

    def _progressed(self, raw: str) -> bool:
        """Record a step or a save; True if the line holds nothing else."""
        found, step = self._found, STEP.search(raw)
        if step is not None:
            number = int(step[1])
            if number > 0:
                found.steps_seen += 1
                found.last_step = number
                found.ended = found.ended and found.total_steps is not None and number >= found.total_steps
            if found.saving_step is not None and number >= found.saving_step:
                found.saved_steps.add(found.saving_step)
                found.saving_step = None
            return True
        if "global_step_" in raw:
            saving = SAVING.search(raw)
            if saving is not None and int(saving[1]) not in found.saved_steps:
                found.saving_step = int(saving[1])
        return False

    def _count(self, raw: str) -> None:
        """Read tqdm's `done/total`; a line may hold many of them, rewritten in place."""
        found = self._found
        pairs = PROGRESS.findall(raw.rsplit("Progress", 1)[-1])
        if not pairs:
            return
        done, total = int(pairs[-1][0]), int(pairs[-1][1])
        found.total_steps = total
        found.last_step = max(found.last_step, done) if 0 < done <= total else found.last_step
        found.ended = 0 < total <= done

    def _note(self, raw: str) -> bool:
        """Record where the run is and what it was set to; True if the line tells any of it."""
        found, ended, starting = self._found, FINAL in raw, any(mark in raw for mark in STARTING)
        found.ended = found.ended or ended
        found.starting = found.starting or starting
        configured = "gpu_memory_utilization" in raw or "max_num_" in raw
        if configured:
            read = {name: as_number(value) for name, value in SETTING.findall(raw)}
            found.settings.update({name: value for name, value in read.items() if isinstance(value, int | float)})
        return ended or starting or configured

    def _frame(self, line: Line) -> bool:
        """Record the phase of a stack frame; True if it has one."""
        name = frame_name(line.text)
        if name is None:
            return False
        plain = name.rpartition(".")[2].lstrip("_")
        phases = self._catalog.phases
        known = phases.get(plain) or next(
            (place for function, place in phases.items() if plain.endswith(f"_{function}")), None
        )
        if known is None:
            return False
        self._frames.append((self._found.lines, line.process, *known))
        for hit in self._latest.values():
            if 0 <= self._found.lines - hit.line_number <= FRAMES_AFTER and not hit.frames:
                hit.frames.append(known)
        return True

    def _match(self, line: Line, lowered: str) -> bool:
        """Record every known failure that shows in the line; True if one does."""
        gated = self._catalog.gated
        candidates = [entry for gate in gated if gate in lowered for entry in gated[gate]]
        matched: set[int] = set()
        for place, sign in candidates:
            match = None if place in matched else sign.pattern.search(line.text)
            if match is not None and not supposed(line.text, match.start()):
                self._hit(place, line, match)
                matched.add(place)
        return bool(matched)

    def _hit(self, place: int, line: Line, match: re.Match[str]) -> None:
        earlier = self._latest.get(place)
        if earlier is not None and not survived(earlier.steps_seen, self._found.steps_seen):
            earlier.last_line = self._found.lines
            return
        found = self._found
        failure, text = self._catalog.failures[place], line.text[:LONGEST_LINE]
        mild = line.mild and failure.kind not in (Kind.CONSEQUENCE, Kind.WARNING)
        hit = Hit(
            failure,
            found.lines,
            text,
            line.process,
            found.steps_seen,
            found.ended,
            last_line=found.lines,
            kind=failure.kind,
            mild=mild,
        )
        hit.computed.update(named_numbers(match))
        self._latest[place] = hit
        self._hot_until = found.lines + DETAIL_LINES
        near = [entry for entry in self._frames if found.lines - entry[0] <= FRAMES_BEFORE]
        own = [entry for entry in near if entry[1] == line.process]
        hit.frames = [(rank, phase) for _, _, rank, phase in own or near]
        for text in (*self._recent, line.text):
            read_details(hit, text)

    def _raise(self, line: Line) -> bool:
        """Record the exception that the line names; True if it names one."""
        name = raised_type(line.text)
        found = self._found
        if name is None or name.endswith("Warning"):
            return False
        old = [entry for entry in found.raised if survived(entry.steps_seen, found.steps_seen)]
        if old and len(found.harmless) < UNEXPLAINED_KEPT:
            found.harmless.update(entry.type_name for entry in old)
        found.raised = [entry for entry in found.raised if entry not in old]
        if len(found.raised) < UNEXPLAINED_KEPT:
            text = line.text[:LONGEST_LINE]
            found.raised.append(Raised(name, found.lines, text, line.process, found.steps_seen, found.ended))
        return True

    def _detail(self, line: Line) -> bool:
        """Look for numbers of a recent hit; True if there is a recent one."""
        near = [hit for hit in self._latest.values() if 0 < self._found.lines - hit.line_number <= DETAIL_LINES]
        for hit in near:
            read_details(hit, line.text)
        return bool(near)
