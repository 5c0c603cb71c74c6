"""`NewFolder`: a campaign's folder that does not stay behind if the request turns out to be impossible.

Only what this driver made goes, and only before the campaign begins: a folder that was there before is left as it is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from sweep.errors import SweepError

Opened = TypeVar("Opened")


class NewFolder:
    """The folder at `path`, which this driver may be about to make."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begun = path.exists()

    def opened_with(self, action: Callable[[], Opened]) -> Opened:
        """What the action returns, which makes the folder and takes the campaign for this driver.

        If that fails another driver may be writing there: only an empty folder goes.
        """
        try:
            return action()
        except SweepError:
            if not self._begun:
                with suppress(OSError):
                    self.path.rmdir()
            raise

    def begin(self) -> None:
        """From now on everything stays."""
        self._begun = True

    def drop_unless_begun(self) -> None:
        """Remove the folder with all that was made for a campaign that never began.

        Call it while this driver holds the campaign: who takes it next may make the folder anew. It goes at once,
        so that nobody begins in one that is half removed.
        """
        if not self._begun:
            aside = self.path.with_name(f".{self.path.name}-{os.getpid()}")
            with suppress(OSError):
                self.path.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)
