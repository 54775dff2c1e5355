"""All tables of a server in one call: a request or a window crosses into native code once, not once per table.

Letters: T tables, N keys of all of them, D dim. Arrays are table-major: table t has the next `counts[t]` of N entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from geartrain.types import Floats, Indices, Keys
from kernels.checks import mismatch, require_array, require_counts, require_output
from kernels.explain import native
from kernels.row_store import MAX_THREADS, RowStore, full_is_an_error
from kernels.update_rule import UpdateRule, sparse_coefficients

__all__ = ["LIFE_COUNTS", "WorkerRows", "apply_tables", "pull_tables"]

LIFE_COUNTS = 3
"""Numbers that `apply_tables` tells of a table: those of `kernels.row_store.LifeCounts`, in its order."""


class WorkerRows(NamedTuple):
    """Gradient sums of one worker for rows of all tables.

    `keys` uint64[N], those of a table all different; `grads` float32[N, D]; `shows` and `clicks` float32[N], which are
    not weighted; `counts` int64[T]; `weight` finite, multiplies the gradients.
    """

    keys: Keys
    grads: Floats
    shows: Floats
    clicks: Floats
    counts: Indices
    weight: float


def pull_tables(stores: Sequence[RowStore], keys: Keys, counts: Indices, out: Floats) -> None:
    """`RowStore.pull` of each table, all of one dim, in order.

    `keys` uint64[N]; `counts` int64[T]; `out` float32[N, D] owned by the caller. The caller keeps writers out, as for
    every pull. Raises KernelError.
    """
    require_array("keys", keys, np.uint64, None)
    require_output("out", out, np.float32, len(keys), _dim(stores))
    _require_counts("counts", counts, len(stores), len(keys))
    native.pull_tables([store.compiled for store in stores], keys, counts, out)


def apply_tables(
    stores: Sequence[RowStore],
    workers: Sequence[WorkerRows],
    rules: Sequence[UpdateRule],
    version: int,
    num_threads: Sequence[int],
) -> Indices:
    """`RowStore.apply` of each table, all of one dim, in order; int64[T, 3], the life counts of each.

    `rules[t]` and `num_threads[t]` are those of table t; a table for which no worker has rows is left as it is. Raises
    KernelError; when memory runs out, the tables before are updated and the one where it did may be in part.
    """
    dim = _dim(stores)
    for i, (keys, grads, shows, clicks, counts, weight) in enumerate(workers):
        require_array(f"workers[{i}].keys", keys, np.uint64, None)
        require_array(f"workers[{i}].grads", grads, np.float32, len(keys), dim)
        require_array(f"workers[{i}].shows", shows, np.float32, len(keys))
        require_array(f"workers[{i}].clicks", clicks, np.float32, len(keys))
        _require_counts(f"workers[{i}].counts", counts, len(stores), len(keys))
        if not math.isfinite(weight):
            raise mismatch(f"workers[{i}].weight", "a finite number", weight)
    if not 0 <= version < 2**32:
        raise mismatch("version", "an integer in [0, 2**32)", version)
    if len(rules) != len(stores):
        raise mismatch("rules", f"{len(stores)} rules", len(rules))
    if len(num_threads) != len(stores) or not all(1 <= number <= MAX_THREADS for number in num_threads):
        raise mismatch("num_threads", f"{len(stores)} integers from 1 to {MAX_THREADS}", str(list(num_threads)))
    numbers = [sparse_coefficients(store.optimizer_kind, rule) for store, rule in zip(stores, rules, strict=True)]
    lives = np.zeros((len(stores), LIFE_COUNTS), dtype=np.int64)
    with full_is_an_error(sum(len(one.keys) for one in workers)):
        native.apply_tables([store.compiled for store in stores], workers, numbers, version, num_threads, lives)
    return lives


def _dim(stores: Sequence[RowStore]) -> int:
    dims = {store.dim for store in stores}
    if len(dims) > 1:
        raise mismatch("stores", "tables of one dim", f"dims {sorted(dims)}")
    return dims.pop() if dims else 0


def _require_counts(argument: str, counts: Indices, num_tables: int, num_keys: int) -> None:
    require_array(argument, counts, np.int64, num_tables)
    require_counts(argument, counts, num_keys)
