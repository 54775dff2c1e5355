"""The physical limit that a kernel is held against: random visits of cache lines, with the best prefetch distance."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.support.measuring import Call, seconds_beside
from geartrain.types import Indices, Keys
from kernels.memory_limit import DISTANCES, LineWalk

_LINES_APART = 64
"""Threads that write take turns of this many lines, one page: none writes to another's line."""


class MemoryLimit:
    """Visits of `numbers` int64[N] of `lines`, cut into one part for each thread; measured again and again.

    `add`: the visits read and write their line.
    """

    def __init__(self, lines: Keys, numbers: Indices, threads: int, add: bool) -> None:
        self._num_visits = len(numbers)
        self._add = add
        parts: Sequence[Indices] = np.array_split(numbers, threads)
        if add and threads > 1:
            parts = [own_lines(part, thread, threads, len(lines)) for thread, part in enumerate(parts)]
        self._walks = [LineWalk(lines, np.ascontiguousarray(part)) for part in parts]
        self._seconds: defaultdict[int, list[float]] = defaultdict(list)

    def measure(self) -> None:
        """One walk for each prefetch distance."""
        for distance in DISTANCES:
            self._seconds[distance].append(seconds_beside([self._call(walk, distance) for walk in self._walks]))

    def lines_per_s(self) -> float:
        """Visits per second: the median over all measurements, at the distance where it is best."""
        return self._num_visits / min(map(statistics.median, self._seconds.values()))

    def _call(self, walk: LineWalk, distance: int) -> Call:
        return partial(walk.add if self._add else walk.read, distance)


def own_lines(numbers: Indices, thread: int, threads: int, num_lines: int) -> Indices:
    """The numbers moved to lines of [0, num_lines) that only this thread visits."""
    page, place = np.divmod(numbers, _LINES_APART)
    moved = (page // threads * threads + thread) * _LINES_APART + place
    return np.where(moved < num_lines, moved, thread * _LINES_APART + place)
