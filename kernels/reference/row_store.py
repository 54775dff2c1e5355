"""NumPy definition of a table's rows: arrays sorted by key, rebuilt whenever rows come or go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from geartrain.types import NUM_SHARDS, Floats, Indices, Keys
from kernels.contribution import Contribution
from kernels.initializer import Initializer
from kernels.reference.contributions import Sums, summed, without
from kernels.reference.cut import Base, Cut, by_shard, concatenated, select, shard_counts
from kernels.reference.hashing import shard_of
from kernels.reference.initializer import initial_rows
from kernels.reference.low_precision import narrow, widen
from kernels.reference.optimizers import bound, over_windows, rounded, state_width, update
from kernels.reference.row_life import admitted, expired, make_room
from kernels.reference.sketch import Sketch
from kernels.row_life import RowLife
from kernels.row_records import ROW_DTYPES, RowRecords, ShardRows
from kernels.row_store import LifeCounts
from kernels.update_rule import UpdateRule, sparse_coefficients

MOST_HOTTEST = 32


class RowStore:
    """The rows of one table; what the native store must do, bit for bit."""

    def __init__(
        self,
        dim: int,
        optimizer_kind: str,
        initializer: Initializer,
        life: RowLife | None = None,
        row_dtype: str = "fp32",
    ) -> None:
        self.dim = dim
        self.optimizer_kind = optimizer_kind
        self.initializer = initializer
        self.life = life or RowLife(seed=initializer.seed)
        self.row_dtype = row_dtype
        self.state_width = state_width(optimizer_kind, dim)
        self._sketch = Sketch(self.life)
        self._rows = self._unborn(np.empty(0, dtype=np.uint64))
        self._rows = replace(self._rows, values=self._rows.values.astype(ROW_DTYPES[row_dtype]))
        self._base: Base | None = None
        self._cut: Cut | None = None

    @property
    def num_rows(self) -> int:
        return len(self._rows.keys)

    def pull(self, keys: Keys, out: Floats) -> None:
        """A key without a row reads as its initial values in float32, also where rows are stored in less."""
        out[:] = self._initial(keys)
        rows = self._find(keys)
        out[rows >= 0] = widen(self._rows.values[rows[rows >= 0]], self.row_dtype)

    def apply(
        self, contributions: Sequence[Contribution], rule: UpdateRule, version: int, num_threads: int = 1
    ) -> LifeCounts:
        """Rows are updated, then the other keys admitted, then rows evicted for them, then rows born and updated.

        Threads change nothing.
        """
        sums = summed(contributions, self.dim)
        rows = self._find(sums.keys)
        here = rows[rows >= 0]
        self._put(here, self._trained(self._read(here), without(sums, rows < 0), rule, version))
        new = without(sums, rows >= 0)
        wanted = without(new, ~admitted(self.life, self._sketch, new.keys, new.shows, version))
        born, evicted = make_room(self.life, wanted.keys, self._rows, version)
        self._remove(evicted)
        births = without(wanted, ~born)
        self._add(self._trained(self._unborn(births.keys), births, rule, version, are_new=True))
        return LifeCounts(len(births.keys), len(new.keys) - len(births.keys), int(evicted.sum()))

    def expire(self, first_shard: int, last_shard: int, unseen_before: int) -> int:
        """Sweep the shards in [first_shard, last_shard); returns how many rows left."""
        shards = shard_of(self._rows.keys)
        swept = (shards >= first_shard) & (shards < last_shard)
        statistics = self._rows.statistics[swept]
        leaving = swept.copy()
        leaving[swept] = expired(self.life, statistics, self._rows.last_versions[swept], unseen_before)
        self._rows.statistics[swept] = statistics
        self._remove(leaving)
        if self._base is not None and self.life.expiry == "score":
            self._base.decayed[first_shard:last_shard] = True
        return int(leaving.sum())

    def rows_by_shard(self) -> Indices:
        return shard_counts(self._rows.keys)

    def hottest(self) -> tuple[Keys, Floats]:
        """The rows with the most shows, most first, those with equally many by key; rows never shown are left out."""
        shown = select(self._rows, self._rows.statistics[:, 0] > 0)
        shows = shown.statistics[:, 0]
        most = np.lexsort((shown.keys, -shows))[:MOST_HOTTEST]
        return shown.keys[most], shows[most]

    @property
    def delta_base(self) -> int | None:
        return None if self._base is None else self._base.version

    def begin_cut(self, version: int, base: int | None) -> None:
        """Everything is copied here, so that nothing later is seen. A full cut is what deltas are made against."""
        against = None if base is None else self._base
        self._cut = Cut.of(self._rows, against, self._sketch)
        if base is None:
            self._base = Base(version, set(), np.zeros(NUM_SHARDS, dtype=np.bool_))

    def cut_shards(self, first_shard: int, last_shard: int) -> ShardRows:
        assert self._cut is not None
        return self._cut.shard_rows(first_shard, last_shard)

    def end_cut(self) -> None:
        self._cut = None

    def export(self) -> RowRecords:
        return select(self._rows, by_shard(self._rows.keys))

    def load(self, records: RowRecords) -> None:
        """Rows as they are: a shard over its limit keeps them until a row is born there."""
        self._base = None
        self._add(records)

    def load_sketches(self, first_shard: int, sketches: np.ndarray, totals: np.ndarray) -> None:
        last_shard = first_shard + len(totals)
        self._sketch.counters[first_shard:last_shard] = sketches
        self._sketch.totals[first_shard:last_shard] = totals

    def _initial(self, keys: Keys) -> Floats:
        return initial_rows(keys, self.dim, self.initializer.kind, self.initializer.scale, self.initializer.seed)

    def _unborn(self, keys: Keys) -> RowRecords:
        """Rows as they are before their first update, with values in float32."""
        states = np.zeros((len(keys), self.state_width), dtype=np.float32)
        statistics = np.zeros((len(keys), 2), dtype=np.float32)
        return RowRecords(keys, self._initial(keys), states, statistics, np.zeros(len(keys), dtype=np.uint32))

    def _trained(
        self, rows: RowRecords, sums: Sums, rule: UpdateRule, version: int, are_new: bool = False
    ) -> RowRecords:
        """Rows, with values in float32, updated in place; returns what is stored of them, which is rounded once.

        A new row's update stands for as many windows as a row's can.
        """
        numbers = rounded(sparse_coefficients(self.optimizer_kind, rule))
        since = np.maximum(version - rows.last_versions.astype(np.int64), 1).astype(np.float32)
        windows = np.full(len(since), numbers.most_windows) if are_new else np.minimum(numbers.most_windows, since)
        update(self.optimizer_kind, rows.values, rows.states, sums.grads, over_windows(numbers, windows))
        bound(rows.values, numbers)
        rows.statistics[:, 0] += sums.shows
        rows.statistics[:, 1] += sums.clicks
        rows.last_versions[:] = version
        return replace(rows, values=narrow(rows.values, self.row_dtype, rows.keys, self.life.seed, version))

    def _find(self, keys: Keys) -> Indices:
        """The number of each key's row, -1 where it has none."""
        rows = np.searchsorted(self._rows.keys, keys)
        inside = np.minimum(rows, self.num_rows - 1)
        found = self._rows.keys[inside] == keys if self.num_rows else np.zeros(len(keys), dtype=np.bool_)
        return np.where(found, rows, -1)

    def _read(self, rows: Indices) -> RowRecords:
        """A copy of rows by number, with values in float32."""
        records = select(self._rows, rows)
        return replace(records, values=widen(records.values, self.row_dtype))

    def _put(self, rows: Indices, records: RowRecords) -> None:
        for field in fields(RowRecords):
            getattr(self._rows, field.name)[rows] = getattr(records, field.name)

    def _remove(self, leaving: NDArray[np.bool_]) -> None:
        if self._base is not None:
            self._base.left.update(self._rows.keys[leaving].tolist())
        self._rows = select(self._rows, ~leaving)

    def _add(self, records: RowRecords) -> None:
        rows = concatenated(self._rows, records)
        self._rows = select(rows, np.argsort(rows.keys))
