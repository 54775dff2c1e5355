"""A training step's work on rows, here and in FBGEMM: forward, backward and fused rowwise Adagrad on the same ids.

FBGEMM: `SplitTableBatchedEmbeddingBagsCodegen` on the CPU, one table of 5 million x 16 float32 whose ids are dense row
numbers, 26 features of 4,096 bags with one id each; forward, and backward from a fixed gradient with its fused update.
Pooled: the sum of each bag. Unpooled: the row of each id. With one id a bag both give the same numbers.

Here: the same ids through 64-bit keys and the store that servers use, in one process and in the order of a step of this
project: number the distinct keys, gather their rows, copy them to every id (which is the forward pass of bags with
one id), sum the gradients of each key, update their rows. Beside the pooled form bags have offsets that are read and
checked, as there; beside the unpooled one every id is known to be a bag, as in batches without sequences. Ours is more
work: rows are found by key and have statistics, keys may be new, rows may leave.

`rows_per_s` is FBGEMM's (ids, duplicates included), `geartrain_rows_per_s` is ours; both take turns in each round, and
figures are medians. They are without the first step of a turn, so that caches hold what a step leaves there, as in
training, and not what the other side left; `geartrain_over_fbgemm_from_cold` is of whole turns, that step included.
FBGEMM's limit has one line per id to read and two to update: the row's and its moment's.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from benchmarks.support.kernel_rounds import Batches
from benchmarks.support.kernel_table import kernel_table
from benchmarks.support.lines import Line, put_out
from benchmarks.support.measuring import seconds_beside
from benchmarks.support.memory_limits import MemoryLimit
from benchmarks.support.samples import DIM, RULE, SLOTS, contribution, filled_store, uniform_keys, zipf_ids
from geartrain.memory import keep_freed_memory
from geartrain.types import Floats, Keys, Places
from kernels.dedup import deduplicate
from kernels.memory_limit import new_lines
from kernels.pool import pool_backward, pool_forward
from kernels.row_store import RowStore

NUM_ROWS, BATCH_IDS, ROUNDS = 5_000_000, 4096 * SLOTS, 9
BATCHES = 4
ROW_BYTES = DIM * 4 + 4  # a row of FBGEMM and its moment

Step = Callable[[int], Any]
"""One training step on the batch of that number."""


def main(json: bool, quick: bool = False) -> int:
    """Print the lines, or the table."""
    keep_freed_memory()  # as every role does
    scale = (20_000, 64 * SLOTS, 1) if quick else (NUM_ROWS, BATCH_IDS, ROUNDS)
    return put_out(lines(*scale), json, kernel_table)


def lines(num_rows: int, batch_ids: int, rounds: int) -> Iterator[Line]:
    """A line for each form, kind of ids and number of threads; or two lines that say what is missing."""
    try:
        import torch
    except ImportError as error:
        yield from _missing(error)
        return
    try:
        peers = {name: _Peer(num_rows, batch_ids, pooled) for name, pooled in _FORMS.items()}
    except (ImportError, OSError) as error:  # FBGEMM built for another torch raises OSError
        yield from _missing(error)
        return
    keys = uniform_keys(0, num_rows)
    store = filled_store(num_rows, "rowwise_adagrad")
    memory = new_lines(num_rows * ROW_BYTES)
    random = np.random.default_rng(3)
    kinds = {
        "uniform": list(random.integers(0, num_rows, (BATCHES, batch_ids))),
        "zipf": zipf_ids(num_rows, batch_ids, BATCHES, 4),
    }
    before = torch.get_num_threads()
    for kind, ids in kinds.items():
        batches = Batches(ids, keys)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            yield from _compare(peers, _Ours(store, batches, threads), batches, memory, kind, threads, rounds)
    torch.set_num_threads(before)


_FORMS = {"fbgemm_pooled": True, "fbgemm_unpooled": False}


def _missing(error: Exception) -> Iterator[Line]:
    for name in _FORMS:
        yield {
            "name": name,
            "threads": 1,
            "rows_per_s": None,
            "limit_rows_per_s": None,
            "share_of_limit": None,
            "missing": f"torch and fbgemm_gpu (pip install 'geartrain[cpu]'): {error}",
        }


def _compare(
    peers: dict[str, _Peer], ours: _Ours, batches: Batches, memory: Keys, kind: str, threads: int, rounds: int
) -> Iterator[Line]:
    numbers = batches.line_numbers(len(memory))
    reads, updates = (MemoryLimit(memory, numbers, threads, add=add) for add in (False, True))
    steps: dict[str, Step] = {}
    for name, peer in peers.items():
        steps |= {_ours_beside(name): partial(ours.step, has_offsets=_FORMS[name]), name: peer.bind(batches)}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    seconds_from_cold: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        reads.measure()
        updates.measure()
        for name, step in steps.items():
            first_s = seconds_beside([partial(step, len(batches.ids) - 1)])
            seconds[name].append(seconds_beside([partial(_run_all, step, len(batches.ids))]))
            seconds_from_cold[name].append(first_s + seconds[name][-1])
    limit_rows_per_s = 1 / (1 / reads.lines_per_s() + 2 / updates.lines_per_s())
    for name in peers:
        rows_per_s = batches.size / statistics.median(seconds[name])
        ours_rows_per_s = batches.size / statistics.median(seconds[_ours_beside(name)])
        yield {
            "name": name,
            "ids": kind,
            "threads": threads,
            "rows_per_s": round(rows_per_s),
            "limit_rows_per_s": round(limit_rows_per_s),
            "share_of_limit": round(rows_per_s / limit_rows_per_s, 4),
            "geartrain_rows_per_s": round(ours_rows_per_s),
            "geartrain_over_fbgemm": round(ours_rows_per_s / rows_per_s, 2),
            "geartrain_over_fbgemm_from_cold": round(
                statistics.median(seconds_from_cold[name]) / statistics.median(seconds_from_cold[_ours_beside(name)]), 2
            ),
        }


def _ours_beside(peer: str) -> str:
    return f"ours beside {peer}"


def _run_all(step: Step, num_batches: int) -> None:
    for number in range(num_batches):
        step(number)


class _Ours:
    """A step through the kernels of this project, on `threads` threads where they take more than one."""

    def __init__(self, store: RowStore, batches: Batches, threads: int) -> None:
        self._store = store
        self._keys = batches.keys
        self._threads = threads
        self._executor: Executor = ThreadPoolExecutor(threads)
        size = len(batches.keys[0])
        self._grad: Floats = _gradient(size).reshape(size, 1, DIM)
        self._offsets: Places = np.arange(size + 1, dtype=np.int32)
        self._sums = np.zeros(1, dtype=np.uint8)

    def step(self, number: int, has_offsets: bool) -> None:
        offsets = self._offsets if has_offsets else None
        unique, inverse = deduplicate(self._keys[number])
        rows = np.empty((len(unique), DIM), dtype=np.float32)
        self._gather(unique, rows)
        pool_forward(rows, inverse, offsets, self._sums, len(inverse))
        grads = pool_backward(self._grad, inverse, offsets, self._sums, len(unique))
        self._store.apply([contribution(unique, grads)], RULE, number, num_threads=self._threads)

    def _gather(self, keys: Keys, rows: Floats) -> None:
        bounds = [len(keys) * part // self._threads for part in range(self._threads + 1)]
        parts: Sequence[slice] = [slice(*bounds[part : part + 2]) for part in range(self._threads)]
        futures = [self._executor.submit(self._store.pull, keys[part], rows[part]) for part in parts[1:]]
        self._store.pull(keys[parts[0]], rows[parts[0]])
        for future in futures:
            future.result()


class _Peer:
    """A step of FBGEMM."""

    def __init__(self, num_rows: int, batch_ids: int, pooled: bool) -> None:
        import torch
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice,
            SplitTableBatchedEmbeddingBagsCodegen,
        )

        self._torch = torch
        self._table = SplitTableBatchedEmbeddingBagsCodegen(
            [(num_rows, DIM, EmbeddingLocation.HOST, ComputeDevice.CPU)],
            feature_table_map=[0] * SLOTS,
            optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            learning_rate=RULE.lr,
            eps=RULE.eps,
            pooling_mode=PoolingMode.SUM if pooled else PoolingMode.NONE,
        )
        self._table.init_embedding_weights_uniform(-0.01, 0.01)
        shape = (-1, SLOTS * DIM) if pooled else (-1, DIM)
        self._grad = torch.from_numpy(_gradient(batch_ids)).reshape(shape)
        self._offsets = torch.arange(batch_ids + 1)

    def bind(self, batches: Batches) -> Step:
        """Its step on these batches."""
        ids = [self._torch.from_numpy(batch) for batch in batches.ids]

        def step(number: int) -> None:
            self._table(ids[number], self._offsets).backward(self._grad)

        return step


def _gradient(num_ids: int) -> Floats:
    return np.random.default_rng(0).standard_normal((num_ids, DIM)).astype(np.float32)
