"""Finding the lines of a text file without parsing them: where each row ends, block by block, and where to cut chunks.

A row is a line that is not blank; "\\n" and "\\r\\n" end lines; a last line needs no end. Quotes are not looked at, so
a quoted newline is an error of the reader. All positions are bytes of the decompressed file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from geartrain.types import Indices

BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = 10, 13


class RowEnds:
    """A scanner fed with consecutive blocks; blocks of any sizes give the same rows."""

    def __init__(self, start: int = 0) -> None:
        """`start` is the file position of the first block."""
        self._position = start
        self._line_start = start
        self._last_byte = _NEWLINE

    def feed(self, block: bytes) -> Indices:
        """Positions just behind the newline of every row that ends in `block`, int64 rising."""
        data = np.frombuffer(block, dtype=np.uint8)
        newlines = np.flatnonzero(data == _NEWLINE)
        ends = newlines + (self._position + 1)
        lengths = np.diff(ends, prepend=self._line_start) - 1
        blank = lengths == 0
        for line in np.flatnonzero(lengths == 1):
            before = newlines[line] - 1
            blank[line] = (data[before] if before >= 0 else self._last_byte) == _RETURN
        if len(data):
            self._last_byte = int(data[-1])
        self._position += len(data)
        if len(ends):
            self._line_start = int(ends[-1])
        return ends[~blank] if blank.any() else ends

    def finish(self) -> Indices:
        """The end of a last row without a newline, if there is one; call it once, after the last block."""
        length = self._position - self._line_start
        if length == 0 or (length == 1 and self._last_byte == _RETURN):
            return np.zeros(0, dtype=np.int64)
        return np.array([self._position], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class LineRange:
    """Bytes [start, stop) that hold `num_rows` rows, the first of which is row `first_row` of the file (from 0)."""

    first_row: int
    num_rows: int
    start: int
    stop: int


def cut(row_ends: Iterable[Indices], start: int, max_rows: int, max_bytes: int) -> Iterator[LineRange]:
    """Cut rows that begin at `start` into ranges of at most `max_rows` rows.

    A range also ends with the row that takes it to `max_bytes`, so that it always has at least one row.
    """
    first_row, num_rows, stop = 0, 0, start
    for ends in row_ends:
        here = 0
        while here < len(ends):
            full = int(np.searchsorted(ends, start + max_bytes)) + 1
            until = min(len(ends), here + max_rows - num_rows, max(full, here + 1))
            num_rows += until - here
            stop = int(ends[until - 1])
            here = until
            if num_rows == max_rows or stop - start >= max_bytes:
                yield LineRange(first_row, num_rows, start, stop)
                first_row, num_rows, start = first_row + num_rows, 0, stop
    if num_rows:
        yield LineRange(first_row, num_rows, start, stop)


def rows_of(data: bytes) -> list[bytes]:
    """The rows of a range, without their line ends (for the search of a fault; slow)."""
    lines = (line.removesuffix(b"\r") for line in data.split(b"\n"))
    return [line for line in lines if line]
