"""NumPy definition of how rows are admitted and how they leave: each a function of one shard's rows and new keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geartrain.types import NUM_SHARDS, Floats, Keys
from kernels.reference.hashing import GOLDEN, mix64, shard_of
from kernels.reference.sketch import Sketch
from kernels.row_life import RowLife
from kernels.row_records import RowRecords

Mask = NDArray[np.bool_]


def rank(keys: Keys, seed: int) -> Keys:
    """The order among keys that nothing else tells apart: a bijection, so there are no ties."""
    return mix64(keys ^ np.uint64(seed))


def admitted(life: RowLife, sketch: Sketch, keys: Keys, shows: Floats, version: int) -> Mask:
    """Which of the keys without a row may have one. All of them are counted first, so their order means nothing."""
    if life.admission == "count":
        counts = sketch.count(keys, shows)
        sketch.age()
        return counts >= life.min_shows
    if life.admission == "probability":
        with np.errstate(over="ignore"):
            draws = mix64(rank(keys, life.seed) ^ np.uint64(version) * GOLDEN)
        return (draws >> np.uint64(11)).astype(np.float64) * 2.0**-53 < life.probability
    return np.ones(len(keys), dtype=np.bool_)


def shard_limit(max_rows: int, shard: int) -> int:
    """Rows that a shard may hold; all shards together `max_rows`."""
    return max_rows // NUM_SHARDS + (shard < max_rows % NUM_SHARDS)


def make_room(life: RowLife, newborn: Keys, rows: RowRecords, version: int) -> tuple[Mask, Mask]:
    """Which of the admitted keys are born, and which of the rows are evicted for them.

    New keys beyond a shard's limit are not born, those of the lowest rank are; then rows leave until the new ones fit,
    and at least 1/16 of the limit, so that not every window evicts. A shard that was loaded over its limit evicts, too.
    """
    born = np.ones(len(newborn), dtype=np.bool_)
    evicted = np.zeros(len(rows.keys), dtype=np.bool_)
    if life.max_rows is None:
        return born, evicted
    new_shards, row_shards = shard_of(newborn), shard_of(rows.keys)
    order = _eviction_order(life, rows, version)
    for shard in np.unique(np.concatenate([new_shards, row_shards])).tolist():
        limit = shard_limit(life.max_rows, shard)
        new = np.flatnonzero(new_shards == shard)
        old = order[row_shards[order] == shard]
        if len(old) + len(new) <= limit:
            continue
        new = new[np.argsort(rank(newborn[new], life.seed))]
        born[new[limit:]] = False
        num_born = min(len(new), limit)
        evicted[old[: max(len(old) + num_born - limit, limit // 16)]] = True
    return born, evicted


def _eviction_order(life: RowLife, rows: RowRecords, version: int) -> NDArray[np.int64]:
    """Row numbers, first to leave first. Rows were updated before: their statistics have this window's shows."""
    ranks = rank(rows.keys, life.seed)
    if life.eviction == "lru":
        return np.lexsort((ranks, rows.last_versions))
    touched = rows.last_versions == version
    return np.lexsort((ranks, rows.last_versions, rows.statistics[:, 0], touched))


def expired(life: RowLife, statistics: Floats, last_versions: NDArray[np.uint32], unseen_before: int) -> Mask:
    """Which of the swept rows leave. *score* first decays their statistics, in place; all of it in float32."""
    if life.expiry == "unseen":
        return last_versions < unseen_before
    if life.expiry == "score":
        statistics *= np.float32(life.decay)
        shows, clicks = statistics[:, 0], statistics[:, 1]
        scores = np.float32(life.show_weight) * shows + np.float32(life.click_weight) * clicks
        leaving: Mask = scores < np.float32(life.min_score)
        return leaving
    return np.zeros(len(last_versions), dtype=np.bool_)
