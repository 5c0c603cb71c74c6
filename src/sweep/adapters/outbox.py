"""`Outbox`: actions carried out in order by one background thread, so that a slow or broken receiver costs nothing.

An action that fails is dropped; the first failure is reported as a warning, the others are counted.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

IDLE_SECONDS = 1.0
"""How often the thread runs its regular action. Ours: metrics of steps gather for so long before they are sent."""

MOST_WAITING = 10_000
"""Actions that may wait. Ours: beyond it the receiver has been stuck for hours, and new ones are dropped."""


class Outbox:
    """Runs what is `put`, and `regularly` about every `idle_seconds`."""

    def __init__(self, name: str, regularly: Callable[[], object], idle_seconds: float = IDLE_SECONDS) -> None:
        self._name, self._regularly, self._idle_seconds = name, regularly, idle_seconds
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(MOST_WAITING)
        self._done = threading.Event()
        self.failures = 0
        self._thread = threading.Thread(target=self._run, name=f"sweep-{name}", daemon=True)
        self._thread.start()

    def put(self, action: Callable[[], object]) -> None:
        """The action runs after those before it, or is dropped if too many wait."""
        try:
            self._waiting.put_nowait(action)
        except queue.Full:
            self._failed("too many actions wait")

    def close(self, patience_seconds: float) -> bool:
        """Runs what waits and ends the thread; False if that took longer than `patience_seconds`."""
        deadline = time.monotonic() + patience_seconds
        try:
            self._waiting.put(None, timeout=patience_seconds)
        except queue.Full:
            return False
        return self._done.wait(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        due = time.monotonic() + self._idle_seconds
        while True:
            try:
                action = self._waiting.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                action = self._regularly
            if action is not None:
                self._carry_out(action)
            if action is None or time.monotonic() >= due:
                self._carry_out(self._regularly)
                due = time.monotonic() + self._idle_seconds
            if action is None:
                self._done.set()
                return

    def _carry_out(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # the receiver's libraries raise anything, and a view never fails a trial
            self._failed(f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}")

    def _failed(self, why: str) -> None:
        self.failures += 1
        if self.failures == 1:
            log.warning("%s: part of the record is missing there (%s); the campaign goes on", self._name, why)
