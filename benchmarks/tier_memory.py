"""Bytes per row, all of it: index, values, optimizer state, statistics.

Rowwise Adagrad, float32. `bytes_per_row` is what a store counts itself; `resident_bytes_per_row` is by how much this
process grew, so that nothing is forgotten. The worst of all sizes is looked for every 250,000 rows on the way.
`memory_bounded`: a table with `max_rows` under a stream of ids that never come twice.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.support.lines import Line, figures_table, put_out
from benchmarks.support.memory_use import resident_bytes
from benchmarks.support.samples import BIRTHS_PER_WINDOW, DIM, add_rows, filled_store
from kernels.row_life import RowLife

OPTIMIZER = "rowwise_adagrad"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    sizes: tuple[int, ...] = (5_000_000, 6_500_000, 8_000_000, 10_000_000)
    look_every: int = 250_000
    dims: tuple[int, ...] = (1, 4, 8, 16, 64)
    max_rows: int = 1_000_000
    stream: int = 5_000_000


QUICK = Scale((20_000, 40_000), 10_000, (1, 16), 5_000, 300_000)


def main(json: bool, quick: bool = False) -> int:
    """Print the lines, or the table."""
    return put_out(lines(quick), json, lambda gathered: figures_table("Memory of tables", gathered))


def lines(quick: bool) -> Iterator[Line]:
    """`memory` for each size, `memory_median`, `memory_dim` for each dim, `memory_bounded`."""
    scale = QUICK if quick else Scale()
    yield from _by_size(scale)
    for dim in scale.dims:
        store = filled_store(scale.sizes[0], OPTIMIZER, dim)
        yield {
            "name": "memory_dim",
            "dim": dim,
            "num_rows": store.num_rows,
            "bytes_per_row": round(store.memory_bytes / store.num_rows, 2),
        }
    yield _bounded(scale)


def _by_size(scale: Scale) -> Iterator[Line]:
    before = resident_bytes()
    store = filled_store(0, OPTIMIZER)
    at_sizes, on_the_way = [], []
    for size in range(scale.look_every, scale.sizes[-1] + 1, scale.look_every):
        add_rows(store, store.num_rows, size)
        bytes_per_row = store.memory_bytes / store.num_rows
        on_the_way.append(bytes_per_row)
        if size in scale.sizes:
            at_sizes.append(bytes_per_row)
            yield {
                "name": "memory",
                "dim": DIM,
                "num_rows": store.num_rows,
                "bytes_per_row": round(bytes_per_row, 2),
                "resident_bytes_per_row": round((resident_bytes() - before) / store.num_rows, 2),
            }
    large_enough = on_the_way[scale.sizes[0] // scale.look_every - 1 :]
    yield {
        "name": "memory_median",
        "dim": DIM,
        "bytes_per_row": round(statistics.median(at_sizes), 2),
        "worst_bytes_per_row": round(max(at_sizes), 2),
        "worst_bytes_per_row_on_the_way": round(max(large_enough), 2),
    }


def _bounded(scale: Scale) -> Line:
    before = resident_bytes()
    store = filled_store(0, OPTIMIZER, life=RowLife(seed=1, max_rows=scale.max_rows))
    most_rows, most_bytes, most_resident = 0, 0, 0
    for start in range(0, scale.stream, BIRTHS_PER_WINDOW):
        add_rows(store, start, min(start + BIRTHS_PER_WINDOW, scale.stream))
        most_rows = max(most_rows, store.num_rows)
        most_bytes = max(most_bytes, store.memory_bytes)
        most_resident = max(most_resident, resident_bytes() - before)
    return {
        "name": "memory_bounded",
        "dim": DIM,
        "max_rows": scale.max_rows,
        "ids": scale.stream,
        "most_rows": most_rows,
        "bytes_per_row": round(most_bytes / scale.max_rows, 2),
        "resident_bytes_per_row": round(most_resident / scale.max_rows, 2),
    }
