"""Rounds in which kernels and their limits take turns."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.support.lines import Line
from benchmarks.support.measuring import Call, seconds_beside
from benchmarks.support.memory_limits import MemoryLimit
from geartrain.types import Indices, Keys
from kernels.hashing import mix64


class Batches:
    """Batches of ids, and their keys: `all_keys[id]`."""

    def __init__(self, ids: Sequence[Indices], all_keys: Keys) -> None:
        self._all_keys = all_keys
        self.ids = ids
        self.keys = [all_keys[batch] for batch in ids]
        self.size = sum(map(len, ids))

    def distinct(self) -> Batches:
        """Each batch without doubles, in the order of first occurrence."""
        firsts = (np.sort(np.unique(batch, return_index=True)[1]) for batch in self.ids)
        return Batches([batch[first] for batch, first in zip(self.ids, firsts, strict=True)], self._all_keys)

    def parts(self, num_parts: int) -> list[list[Keys]]:
        """The batches dealt out; of some too few for that, each is cut instead, so that nobody is idle."""
        whole = len(self.keys) // num_parts * num_parts
        dealt = [self.keys[:whole][part::num_parts] for part in range(num_parts)]
        cut = [np.array_split(keys, num_parts) for keys in self.keys[whole:]]
        return [keys + [pieces[part] for pieces in cut] for part, keys in enumerate(dealt)]

    def line_numbers(self, num_lines: int) -> Indices:
        """For every id of every batch a line in [0, num_lines): equal ids have equal lines, else they are random."""
        hashed = mix64(np.concatenate(self.ids).astype(np.uint64))
        return (hashed % np.uint64(num_lines)).astype(np.int64)

    def limit(self, lines: Keys) -> MemoryLimit:
        """Updates by one thread of one line for each id."""
        return MemoryLimit(lines, self.line_numbers(len(lines)), 1, add=True)


@dataclass(frozen=True, slots=True)
class Kernel:
    """What is measured: `calls` side by side handle `num_rows` rows or ids, each with `lines_per_row` lines."""

    name: str
    threads: int
    num_rows: int
    lines_per_row: int
    limit: MemoryLimit
    calls: Sequence[Call]


def measure(kernels: Sequence[Kernel], rounds: int) -> Iterator[Line]:
    """A line for each kernel, after `rounds` rounds in which each comes right after its limit."""
    seconds: list[list[float]] = [[] for _ in kernels]
    for kernel in kernels:
        seconds_beside(kernel.calls)
    for _ in range(rounds):
        measured = None
        for times, kernel in zip(seconds, kernels, strict=True):
            if kernel.limit is not measured:
                kernel.limit.measure()
                measured = kernel.limit
            times.append(seconds_beside(kernel.calls))
    for times, kernel in zip(seconds, kernels, strict=True):
        rows_per_s = kernel.num_rows / statistics.median(times)
        limit_rows_per_s = kernel.limit.lines_per_s() / kernel.lines_per_row
        yield {
            "name": kernel.name,
            "threads": kernel.threads,
            "rows_per_s": round(rows_per_s),
            "limit_rows_per_s": round(limit_rows_per_s),
            "share_of_limit": round(rows_per_s / limit_rows_per_s, 4),
            "lines_per_row": kernel.lines_per_row,
        }
