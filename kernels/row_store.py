"""A table's rows on one server, found by key: read, updated once per window, admitted, expired, evicted, and cut.

Letters: N keys, R rows, D dim, W optimizer state floats per row, H shards in a range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geartrain.types import NUM_SHARDS, Floats, Indices, Keys
from kernels.checks import mismatch, require_array, require_output
from kernels.contribution import Contribution
from kernels.dedup import deduplicate
from kernels.explain import native
from kernels.initializer import Initializer, native_initializer
from kernels.row_life import RowLife, native_life
from kernels.row_records import ROW_DTYPES, RowRecords, ShardRows, bytes_of, empty_rows
from kernels.update_rule import SPARSE_KINDS, UpdateRule, sparse_coefficients

__all__ = ["LifeCounts", "RowRecords", "RowStore", "UpdateRule"]


MAX_THREADS = 64
"""Threads that may share a window; they are kept for as long as the process lives."""


class LifeCounts(NamedTuple):
    """What a window did to the keys without a row (admitted or rejected), and the rows that left to make room."""

    num_admitted: int
    num_rejected: int
    num_evicted: int


class RowStore:
    """Rows of one table: values, optimizer state, statistics and last version, found by key.

    Every 64-bit key is legal, and no row ever moves. Thread safety: any number of threads may `pull`, `lookup` and read
    the counts while one reads a cut (`cut_shards`); `apply`, `expire`, `load`, `load_sketches`, `begin_cut` and
    `end_cut` are for one thread, alone: the caller holds a read-write lock. `prepare_growth` needs no lock, if it is
    called by the thread that applies. All of them release the GIL.
    """

    def __init__(
        self,
        dim: int,
        optimizer_kind: str,
        initializer: Initializer,
        life: RowLife | None = None,
        row_dtype: str = "fp32",
    ) -> None:
        """`dim` >= 1 values per row; `optimizer_kind` one of SPARSE_KINDS; `row_dtype` one of ROW_DTYPES.

        Without `life` every key is admitted and no row leaves. Values of a low `row_dtype` are updated in float32 and
        rounded stochastically. Reserves address space, not memory. Raises KernelError on other arguments, or when the
        system refuses.
        """
        if dim < 1:
            raise mismatch("dim", "an integer >= 1", dim)
        if optimizer_kind not in SPARSE_KINDS:
            raise mismatch("optimizer_kind", f"one of {', '.join(SPARSE_KINDS)}", optimizer_kind)
        if row_dtype not in ROW_DTYPES:
            raise mismatch("row_dtype", f"one of {', '.join(ROW_DTYPES)}", row_dtype)
        self.dim = dim
        self.optimizer_kind = optimizer_kind
        self.initializer = initializer
        self.life = life if life is not None else RowLife(seed=initializer.seed)
        self.row_dtype = row_dtype
        kind, dtype = getattr(native.RowStore.Kind, optimizer_kind), getattr(native.RowStore.Dtype, row_dtype)
        with full_is_an_error(0):
            self._rows = native.RowStore(dim, kind, dtype, native_initializer(initializer), native_life(self.life))

    @property
    def compiled(self) -> native.RowStore:
        """The compiled store, for calls that take several."""
        return self._rows

    @property
    def state_width(self) -> int:
        """W, the floats of optimizer state per row."""
        return self._rows.state_width

    @property
    def num_rows(self) -> int:
        """Rows now; during an `apply` of another thread any number on the way."""
        return self._rows.num_rows

    @property
    def memory_bytes(self) -> int:
        """Bytes in use by the index, the rows, the admission counters, the log of deletions and what is kept of rows
        for a cut under way."""
        return self._rows.memory_bytes

    @property
    def sketch_bytes(self) -> int:
        """Bytes of admission counters per shard; 0 when admission does not count."""
        return self._rows.sketch_bytes

    @property
    def longest_growth_ns(self) -> int:
        """The longest time that one `apply` spent on growing the index."""
        return self._rows.longest_growth_ns

    def rows_by_shard(self) -> Indices:
        """Rows of each shard, int64[NUM_SHARDS]."""
        counts = np.empty(NUM_SHARDS, dtype=np.int64)
        self._rows.rows_by_shard(counts)
        return counts

    def hottest(self) -> tuple[Keys, Floats]:
        """Up to 32 rows with the most shows, hottest first: their keys uint64[n] and shows float32[n].

        Exact while rows only grow; the place of a row that left, or whose shows decayed, is taken by the next row that
        is updated and has more shows than the rest of the list.
        """
        hottest = self._rows.hottest()
        keys = np.array([key for key, _ in hottest], dtype=np.uint64)
        return keys, np.array([shows for _, shows in hottest], dtype=np.float32)

    def pull(self, keys: Keys, out: Floats) -> None:
        """Write each key's row values to `out`; a key without a row reads as its initial values and stays unborn.

        `keys` uint64[N], duplicates allowed; `out` float32[N, D] owned by the caller. Raises KernelError.
        """
        require_array("keys", keys, np.uint64, None)
        require_output("out", out, np.float32, len(keys), self.dim)
        self._rows.pull(keys, out)

    def lookup(self, keys: Keys, out: Indices) -> None:
        """Write the number of each key's row to `out`, -1 where there is none.

        `keys` uint64[N]; `out` int64[N] owned by the caller. Numbers mean nothing outside this store. Raises
        KernelError.
        """
        require_array("keys", keys, np.uint64, None)
        require_output("out", out, np.int64, len(keys))
        self._rows.lookup(keys, out)

    def apply(
        self, contributions: Sequence[Contribution], rule: UpdateRule, version: int, num_threads: int = 1
    ) -> LifeCounts:
        """Update each key's row once from the sum of its weighted gradients, summed in the order of the list.

        Keys without a row are admitted and born from their initial values, or rejected, as the table's life says; the
        keys of one contribution must all be different. Shows and clicks are added to the statistics, `version` in
        [0, 2**32), which never falls, becomes the last version of every updated row. `num_threads` share the updates of
        existing rows. Raises KernelError.
        """
        for i, (keys, grads, shows, clicks, weight) in enumerate(contributions):
            require_array(f"contributions[{i}].keys", keys, np.uint64, None)
            require_array(f"contributions[{i}].grads", grads, np.float32, len(keys), self.dim)
            require_array(f"contributions[{i}].shows", shows, np.float32, len(keys))
            require_array(f"contributions[{i}].clicks", clicks, np.float32, len(keys))
            if not math.isfinite(weight):
                raise mismatch(f"contributions[{i}].weight", "a finite number", weight)
        if not 0 <= version < 2**32:
            raise mismatch("version", "an integer in [0, 2**32)", version)
        if not 1 <= num_threads <= MAX_THREADS:
            raise mismatch("num_threads", f"an integer from 1 to {MAX_THREADS}", num_threads)
        numbers = sparse_coefficients(self.optimizer_kind, rule)
        with full_is_an_error(self.num_rows + sum(len(one.keys) for one in contributions)):
            return LifeCounts(*self._rows.apply(contributions, numbers, version, num_threads))

    def expire(self, first_shard: int, last_shard: int, unseen_before: int) -> int:
        """Sweep shards [first, last): remove the rows that the table's expiry says; returns how many.

        *unseen* removes rows whose last version is below `unseen_before`; *score* decays the statistics and removes
        rows of too low a score. Raises KernelError.
        """
        self._require_shards(first_shard, last_shard)
        return self._rows.expire(first_shard, last_shard, min(max(unseen_before, 0), 2**32 - 1))

    def prepare_growth(self, num_rows: int) -> None:
        """Have the memory for `num_rows` births at hand, so that the next `apply` does not wait for the system.

        Memory that the index has outgrown is given back here, and by `load`.
        """
        with full_is_an_error(self.num_rows + num_rows):
            self._rows.prepare_growth(num_rows)

    @property
    def delta_base(self) -> int | None:
        """The version of the last cut of all rows, if every row that left since then is known; else None."""
        return self._rows.delta_base

    def begin_cut(self, version: int, base: int | None) -> None:
        """Begin to show the table as it is now, at `version`, the last one applied, to `cut_shards`.

        It stays so whatever is applied later. With `base`, which must equal `delta_base`, the cut is of what changed
        since that version. A cut of all rows becomes the base of later ones. A cut that was under way ends. Raises
        KernelError.
        """
        if not 0 <= version < 2**32:
            raise mismatch("version", "an integer in [0, 2**32)", version)
        if base is not None and base != self.delta_base:
            raise mismatch("base", f"the version of the last cut of all rows, {self.delta_base}", base)
        self._rows.begin_cut(version, base)

    def cut_shards(self, first_shard: int, last_shard: int) -> ShardRows:
        """Shards [first, last) of the cut under way; shards are read in ascending order, each at most once.

        Raises KernelError without a cut, or for a shard that was passed.
        """
        self._require_shards(first_shard, last_shard)
        if not self._rows.has_cut:
            raise mismatch("cut", "a cut under way", "none")
        if first_shard < self._rows.cut_next_shard:
            raise mismatch("first_shard", f"a shard >= {self._rows.cut_next_shard}, not read yet", first_shard)
        num_shards = last_shard - first_shard
        counts, deleted_counts = np.empty(num_shards, dtype=np.int64), np.empty(num_shards, dtype=np.int64)
        self._rows.collect_cut(first_shard, counts, deleted_counts)
        rows = empty_rows(int(counts.sum()), self.dim, self.state_width, self.row_dtype)
        deleted = np.empty(int(deleted_counts.sum()), dtype=np.uint64)
        sketches = np.empty((num_shards, self.sketch_bytes), dtype=np.uint8)
        totals = np.empty(num_shards, dtype=np.uint64)
        self._rows.write_cut(
            first_shard,
            rows.keys,
            bytes_of(rows.values),
            rows.states,
            rows.statistics,
            rows.last_versions,
            deleted,
            sketches,
            totals,
        )
        return ShardRows(rows, counts, deleted, deleted_counts, sketches, totals)

    def end_cut(self) -> None:
        """End the cut under way, if there is one, and forget what was kept for it."""
        self._rows.end_cut()

    def load(self, records: RowRecords) -> None:
        """Add rows as they are in `records`; may be called several times.

        The next cut must be of all rows. Raises KernelError, and changes nothing, when the arrays do not fit each other
        or this store, or when a key occurs twice or is already here.
        """
        num_rows = len(records.keys)
        require_array("records.keys", records.keys, np.uint64, None)
        require_array("records.values", records.values, ROW_DTYPES[self.row_dtype].type, num_rows, self.dim)
        require_array("records.states", records.states, np.float32, num_rows, self.state_width)
        require_array("records.statistics", records.statistics, np.float32, num_rows, 2)
        require_array("records.last_versions", records.last_versions, np.uint32, num_rows)
        unique, inverse = deduplicate(records.keys)
        if len(unique) != num_rows:
            position = int(np.flatnonzero(inverse != np.arange(num_rows))[0])
            raise mismatch(
                "records.keys", "keys that are all different", int(records.keys[position]), position=position
            )
        if self._rows.has_any(records.keys):
            raise mismatch("records.keys", "keys without a row in this store", "keys that have one")
        with full_is_an_error(self.num_rows + num_rows):
            self._rows.load(
                records.keys, bytes_of(records.values), records.states, records.statistics, records.last_versions
            )

    def load_sketches(self, first_shard: int, sketches: NDArray[np.uint8], totals: Keys) -> None:
        """Set the admission counters of H shards: `sketches` uint8[H, sketch_bytes], `totals` uint64[H]."""
        require_array("totals", totals, np.uint64, None)
        self._require_shards(first_shard, first_shard + len(totals))
        require_array("sketches", sketches, np.uint8, len(totals), self.sketch_bytes)
        if self.sketch_bytes:
            self._rows.load_sketches(first_shard, sketches, totals)

    def _require_shards(self, first: int, last: int) -> None:
        if not 0 <= first <= last <= NUM_SHARDS:
            raise mismatch("shards", f"a range within [0, {NUM_SHARDS}]", f"[{first}, {last})")


@contextmanager
def full_is_an_error(num_rows: int) -> Iterator[None]:
    """Turn the two ways in which memory runs out, a full address range and a refusing system, into a KernelError."""
    try:
        yield
    except (ValueError, MemoryError) as error:
        raise mismatch(
            "rows", "a table that fits in this machine's memory", f"up to {num_rows} rows ({error})"
        ) from error
