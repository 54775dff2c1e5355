"""What this machine's memory allows at best: the limit that kernels over rows are held against.

A line is one cache line of 64 bytes. The loops read or update whole lines whose numbers are known beforehand, asking
for each some time ahead; a kernel that must find its lines first can only be slower.

Letters: L lines, N visits.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass

import numpy as np

from geartrain.types import Indices, Keys
from kernels.checks import mismatch, require_array, require_output, require_range
from kernels.explain import native

LINE_BYTES = 64
WORDS_PER_LINE = 8
DISTANCES = (32, 48, 64, 96, 128, 192, 256)
"""Visits between asking for a line and its use; the best of these depends on the machine."""

_HUGE_PAGE_BYTES = 2 << 20


def new_lines(num_bytes: int) -> Keys:
    """Zeros uint64[L, 8] of `num_bytes`, rounded up to whole lines: pages are there already, and huge where possible.

    Raises KernelError unless `num_bytes` >= 1.
    """
    if num_bytes < 1:
        raise mismatch("num_bytes", "an integer >= 1", num_bytes)
    num_lines = -(-num_bytes // LINE_BYTES)
    # Private: pages of a shared mapping are huge only where the system says so for shared memory.
    memory = mmap.mmap(-1, num_lines * LINE_BYTES + _HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    words = np.frombuffer(memory, dtype=np.uint64)
    start = -words.ctypes.data % _HUGE_PAGE_BYTES // words.itemsize
    lines = words[start : start + num_lines * WORDS_PER_LINE].reshape(num_lines, WORDS_PER_LINE)
    lines[:] = 0
    return lines


@dataclass(frozen=True, slots=True)
class LineWalk:
    """Visits of lines in a given order. Raises KernelError for another dtype or shape, or a number out of range.

    `lines` uint64[L, 8] begin at a multiple of 64 bytes; `numbers` int64[N] in [0, L), which the caller leaves as they
    are. Both calls release the GIL. Threads may read side by side; a thread that adds has its lines alone.
    """

    lines: Keys
    numbers: Indices

    def __post_init__(self) -> None:
        require_output("lines", self.lines, np.uint64, None, WORDS_PER_LINE)
        require_array("numbers", self.numbers, np.int64, None)
        require_range("numbers", self.numbers, len(self.lines))
        if self.lines.ctypes.data % LINE_BYTES:
            raise mismatch("lines", f"memory aligned to {LINE_BYTES} bytes", "an unaligned array")

    def read(self, distance: int) -> int:
        """The sum of all words of the lines visited, modulo 2**64; each is asked for `distance` >= 0 visits ahead."""
        _require_distance(distance)
        return native.read_lines(self.lines, self.numbers, distance)

    def add(self, distance: int) -> None:
        """Add one to every word of the lines visited, once for each visit."""
        _require_distance(distance)
        native.add_to_lines(self.lines, self.numbers, distance)


def _require_distance(distance: int) -> None:
    if distance < 0:
        raise mismatch("distance", "an integer >= 0", distance)
