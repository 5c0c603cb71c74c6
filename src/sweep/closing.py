"""`closed_after`: what a campaign has opened is closed, and an error in closing never hides why the campaign ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sweep.errors import SweepError

log = logging.getLogger(__name__)


@contextmanager
def closed_after(close: Callable[[], None]) -> Iterator[None]:
    """`close` is called at the end of the block.

    Raises:
        SweepError: that of `close` if the block met none; otherwise the block's own, and that of `close` is logged.
    """
    try:
        yield
    except BaseException:
        try:
            close()
        except SweepError as error:
            log.warning("%s", error)
        raise
    close()
