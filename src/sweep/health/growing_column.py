"""`GrowingColumn`: one metric while a table is being built; rows without it cost a byte once the first gap shows."""

from __future__ import annotations

from array import array

import numpy as np

from sweep.health.metric_table import FloatArray, MaskArray


class GrowingColumn:
    """Values by row; `_present` stays None as long as every row so far has a value."""

    __slots__ = ("_present", "_values")

    def __init__(self) -> None:
        self._values = array("d")
        self._present: bytearray | None = None

    def has(self, row: int) -> bool:
        """Whether the row has a value."""
        return row < len(self._values) and (self._present is None or bool(self._present[row]))

    def extend(self, first: int, values: FloatArray) -> None:
        """Put values for the rows from `first` on, which lies at or beyond the end."""
        self._pad(first)
        self._values.frombytes(np.ascontiguousarray(values).tobytes())
        if self._present is not None:
            self._present.extend(b"\x01" * len(values))

    def put(self, row: int, value: float) -> None:
        """Set the value of one row anywhere."""
        self._pad(row + 1)
        self._values[row] = value
        if self._present is not None:
            self._present[row] = 1

    def finish(self, rows: int) -> tuple[FloatArray, MaskArray | None]:
        """Values and presence, both of shape (rows,)."""
        self._pad(rows)
        present = None if self._present is None else np.frombuffer(self._present, dtype=np.bool_)
        return np.frombuffer(self._values, dtype=np.float64), present

    def _pad(self, rows: int) -> None:
        """Make the column at least so long; new rows have no value."""
        missing = rows - len(self._values)
        if missing <= 0:
            return
        if self._present is None:
            self._present = bytearray(b"\x01" * len(self._values))
        self._values.frombytes(bytes(8 * missing))
        self._present.extend(bytes(missing))
