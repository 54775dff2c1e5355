"""NumPy definition of a cut: a table as it was at one moment, given out shard by shard while training goes on."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from geartrain.types import NUM_SHARDS, Indices, Keys
from kernels.reference.hashing import shard_of
from kernels.reference.sketch import Sketch
from kernels.row_records import RowRecords, ShardRows


def select(records: RowRecords, chosen: NDArray[np.bool_] | Indices) -> RowRecords:
    """A copy of the chosen rows, by mask or by number."""
    return RowRecords(*(getattr(records, field.name)[chosen] for field in fields(RowRecords)))


def concatenated(first: RowRecords, second: RowRecords) -> RowRecords:
    names = [field.name for field in fields(RowRecords)]
    return RowRecords(*(np.concatenate([getattr(first, name), getattr(second, name)]) for name in names))


def by_shard(keys: Keys) -> Indices:
    """The numbers of the keys in the order of records: by shard, then by key."""
    return np.lexsort((keys, shard_of(keys)))


@dataclass(frozen=True)
class Base:
    """What a delta is made against: the full cut of `version`, and what rows that are there do not tell.

    `left`: keys whose rows left since. `decayed` bool[1024]: shards in which statistics of rows that no gradient
    reached have changed since.
    """

    version: int
    left: set[int]
    decayed: NDArray[np.bool_]

    def changed(self, rows: RowRecords) -> NDArray[np.bool_]:
        """Which rows differ from the full cut, or may."""
        decayed: NDArray[np.bool_] = self.decayed[shard_of(rows.keys)]
        return decayed | (rows.last_versions > self.version)


@dataclass(frozen=True)
class Cut:
    """`rows` and `deleted` of all shards, by shard and then by key; the sketch's counters and totals."""

    rows: RowRecords
    deleted: Keys
    counters: NDArray[np.uint8]
    totals: NDArray[np.uint64]

    @staticmethod
    def of(rows: RowRecords, base: Base | None, sketch: Sketch) -> Cut:
        """A copy of everything; with a base only of what changed since, and the keys that have no row any more."""
        deleted = np.empty(0, dtype=np.uint64)
        if base is not None:
            left = np.array(sorted(base.left), dtype=np.uint64)
            deleted = left[~np.isin(left, rows.keys)]
            rows = select(rows, base.changed(rows))
        rows = select(rows, by_shard(rows.keys))
        return Cut(rows, deleted[by_shard(deleted)], sketch.counters.copy(), sketch.totals.copy())

    def shard_rows(self, first_shard: int, last_shard: int) -> ShardRows:
        """Of the shards in [first_shard, last_shard)."""
        shards, deleted_shards = shard_of(self.rows.keys), shard_of(self.deleted)
        return ShardRows(
            select(self.rows, (shards >= first_shard) & (shards < last_shard)),
            shard_counts(self.rows.keys)[first_shard:last_shard],
            self.deleted[(deleted_shards >= first_shard) & (deleted_shards < last_shard)],
            shard_counts(self.deleted)[first_shard:last_shard],
            self.counters[first_shard:last_shard],
            self.totals[first_shard:last_shard],
        )


def shard_counts(keys: Keys) -> Indices:
    """Keys of each shard, int64[1024]."""
    return np.bincount(shard_of(keys), minlength=NUM_SHARDS).astype(np.int64)
