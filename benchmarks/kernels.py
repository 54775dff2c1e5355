"""Speed of the kernels over rows as a share of what this machine's memory allows, and beside FBGEMM.

5 million rows of 16 float32 with uniform 64-bit keys, 106,496 ids a batch. The store is the one that servers use, with
statistics, admission, deletion and growth; every call takes the lock that a server's job has. The limit of a kernel are
random visits of whole cache lines (reads, or reads with writes) over as many bytes as the store uses, at the best
prefetch distance, divided by the lines that a row needs: 1 for its place in the index, and the whole lines that its
values and optimizer state fill. Ids, threads and moment are the same: in each round limits and kernels take turns;
figures are medians.

Updates are of the distinct ids of each batch (`_zipf`: ids by Zipf's law, many of a batch are the same). Two threads:
two callers with half of the batches each (`lookup`, `gather_fused`), or `num_threads=2` (updates).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks import kernels_codec, kernels_fbgemm
from benchmarks.support.kernel_rounds import Batches, Kernel, measure
from benchmarks.support.kernel_table import kernel_table
from benchmarks.support.lines import Line, put_out
from benchmarks.support.memory_limits import MemoryLimit
from benchmarks.support.samples import DIM, RULE, SLOTS, contribution, filled_store, uniform_ids, uniform_keys, zipf_ids
from embedding_tier.rw_lock import ReadWriteLock
from geartrain.memory import keep_freed_memory
from geartrain.types import Floats, Keys
from kernels.dedup import deduplicate
from kernels.memory_limit import LINE_BYTES, new_lines
from kernels.pool import pool_backward
from kernels.row_store import RowStore
from kernels.update_rule import SPARSE_KINDS

MAIN_OPTIMIZER = "rowwise_adagrad"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    num_rows: int = 5_000_000
    batch_ids: int = 4096 * SLOTS
    rounds: int = 9
    rounds_of_other_optimizers: int = 5
    zipf_batches: int = 16
    codec_rows: int = kernels_codec.NUM_ROWS


QUICK = Scale(
    num_rows=20_000, batch_ids=64 * SLOTS, rounds=1, rounds_of_other_optimizers=1, zipf_batches=2, codec_rows=1000
)


def main(json: bool, quick: bool = False) -> int:
    """Print the lines, or the table."""
    keep_freed_memory()  # as every role does
    return put_out(lines(QUICK if quick else Scale()), json, kernel_table)


def lines(scale: Scale) -> Iterator[Line]:
    """All lines of the benchmark."""
    keys = uniform_keys(0, scale.num_rows)
    uniform = Batches(uniform_ids(scale.num_rows, scale.batch_ids, 1), keys)
    zipf = Batches(zipf_ids(scale.num_rows, scale.batch_ids, scale.zipf_batches, 2), keys)
    yield from _row_lines(scale, MAIN_OPTIMIZER, {"": uniform, "_zipf": zipf})
    for optimizer in SPARSE_KINDS:
        if optimizer != MAIN_OPTIMIZER:
            yield from _row_lines(scale, optimizer, {"": uniform})
    for suffix, batches in (("", uniform), ("_zipf", zipf)):
        yield from _batch_lines(scale, suffix, batches)
    yield from kernels_codec.lines(scale.codec_rows, scale.rounds)
    yield from kernels_fbgemm.lines(scale.num_rows, scale.batch_ids, scale.rounds)


def _row_lines(scale: Scale, optimizer: str, ids: dict[str, Batches]) -> Iterator[Line]:
    """The kernels over one store, by every kind of ids; look-up and gather with the main optimizer only."""
    store = filled_store(scale.num_rows, optimizer)
    lock = ReadWriteLock()
    memory = new_lines(store.memory_bytes)
    rounds = scale.rounds if optimizer == MAIN_OPTIMIZER else scale.rounds_of_other_optimizers
    for suffix, batches in ids.items():
        distinct = batches.distinct()
        for threads in (1, 2):
            updates = MemoryLimit(memory, distinct.line_numbers(len(memory)), threads, add=True)
            kernels = [_update_kernel(store, lock, distinct, threads, suffix, updates)]
            if optimizer == MAIN_OPTIMIZER:
                reads = MemoryLimit(memory, batches.line_numbers(len(memory)), threads, add=False)
                kernels = [
                    Kernel(f"lookup{suffix}", threads, batches.size, 1, reads, _lookups(store, lock, batches, threads)),
                    Kernel(
                        f"gather_fused{suffix}", threads, batches.size, 2, reads, _pulls(store, lock, batches, threads)
                    ),
                    *kernels,
                ]
            yield from measure(kernels, rounds)


def lines_per_row(state_width: int) -> int:
    """Cache lines of an update: the index's, and those that values and state fill; a rest is not counted."""
    return 1 + max(1, (DIM + state_width) * 4 // LINE_BYTES)


def _update_kernel(
    store: RowStore, lock: ReadWriteLock, batches: Batches, threads: int, suffix: str, limit: MemoryLimit
) -> Kernel:
    grads = _gradients(max(map(len, batches.keys)))
    windows = [[contribution(keys, grads[: len(keys)])] for keys in batches.keys]

    def run() -> None:
        for version, window in enumerate(windows):
            with lock.writing():
                store.apply(window, RULE, version, num_threads=threads)

    name = f"update_fused_{store.optimizer_kind}{suffix}"
    return Kernel(name, threads, batches.size, lines_per_row(store.state_width), limit, [run])


def _lookups(store: RowStore, lock: ReadWriteLock, batches: Batches, threads: int) -> list[partial[None]]:
    def run(part: list[Keys]) -> None:
        rows = np.empty(max(map(len, part)), dtype=np.int64)
        for keys in part:
            with lock.reading():
                store.lookup(keys, rows[: len(keys)])

    return [partial(run, part) for part in batches.parts(threads)]


def _pulls(store: RowStore, lock: ReadWriteLock, batches: Batches, threads: int) -> list[partial[None]]:
    def run(part: list[Keys]) -> None:
        rows = np.empty((max(map(len, part)), DIM), dtype=np.float32)
        for keys in part:
            with lock.reading():
                store.pull(keys, rows[: len(keys)])

    return [partial(run, part) for part in batches.parts(threads)]


def _batch_lines(scale: Scale, suffix: str, batches: Batches) -> Iterator[Line]:
    """What workers do with a batch's ids: number the distinct ones, and sum gradients per distinct id.

    The limits: updates of one line per id, over the set's memory (4 bytes a place, at least four places an id), and
    over the sums.
    """
    planned = [deduplicate(keys) for keys in batches.keys]
    grads = _gradients(scale.batch_ids).reshape(-1, SLOTS, DIM)
    offsets = np.arange(scale.batch_ids + 1, dtype=np.int32)
    sums_of_slots = np.zeros(SLOTS, dtype=np.uint8)

    def number() -> None:
        for keys in batches.keys:
            deduplicate(keys)

    def sum_up() -> None:
        for unique, inverse in planned:
            pool_backward(grads, inverse, offsets, sums_of_slots, len(unique))

    set_lines = new_lines(4 << (4 * scale.batch_ids - 1).bit_length())
    sum_lines = new_lines(max(len(unique) for unique, _ in planned) * DIM * 4)
    visits = np.concatenate([inverse for _, inverse in planned]).astype(np.int64)
    yield from measure(
        [
            Kernel(f"dedup{suffix}", 1, batches.size, 1, batches.limit(set_lines), [number]),
            Kernel(f"segment_sum{suffix}", 1, batches.size, 1, MemoryLimit(sum_lines, visits, 1, add=True), [sum_up]),
        ],
        scale.rounds,
    )


def _gradients(num_ids: int) -> Floats:
    return np.random.default_rng(0).standard_normal((num_ids, DIM)).astype(np.float32)
