"""NumPy definition of the sketch that counts shows of keys without a row.

A count-min sketch (Cormode and Muthukrishnan 2005) of byte counters for each shard: SKETCH_ROWS rows of `width`
counters, in which a key has one counter each. The least of them is its count, too high where keys share all of them,
never too low. When a shard has counted width / 4 shows, its counters are halved, which forgets old ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geartrain.types import NUM_SHARDS, Floats, Indices, Keys
from kernels.reference.hashing import mix64, shard_of
from kernels.row_life import MAX_COUNT, SKETCH_ROWS, RowLife


class Sketch:
    """`counters` uint8[1024, SKETCH_ROWS * width], row after row; `totals` uint64[1024] shows counted since the last
    halving. Where admission does not count, the width is 0.
    """

    def __init__(self, life: RowLife) -> None:
        self.width = life.sketch_bytes // SKETCH_ROWS // NUM_SHARDS if life.admission == "count" else 0
        self.counters = np.zeros((NUM_SHARDS, SKETCH_ROWS * self.width), dtype=np.uint8)
        self.totals = np.zeros(NUM_SHARDS, dtype=np.uint64)
        self._seed_mix = mix64(np.array([life.seed], dtype=np.uint64))

    def count(self, keys: Keys, shows: Floats) -> Indices:
        """Add the shows [N] of different keys; returns the count of each key once all are added."""
        amounts = shows_to_count(shows)
        shards, places = shard_of(keys).astype(np.int64), self._places(keys)
        touched, inverse = np.unique(shards, return_inverse=True)
        wide = self.counters[touched].astype(np.int64)
        for place in places:
            np.add.at(wide, (inverse, place), amounts)
        self.counters[touched] = np.minimum(wide, MAX_COUNT).astype(np.uint8)
        np.add.at(self.totals, shards, amounts.astype(np.uint64))
        counts: Indices = self.counters[shards, places].min(axis=0).astype(np.int64)
        return counts

    def age(self) -> None:
        """Halve the shards that have counted enough; called once after each window."""
        full = self.totals >= self.width // 4
        self.counters[full] >>= 1
        self.totals[full] = 0

    def _places(self, keys: Keys) -> Indices:
        """Where each key's counters are, int64 [SKETCH_ROWS, N]: 16 bits of a hash choose one of each row."""
        mixed = mix64(mix64(keys) ^ self._seed_mix)
        rows = np.arange(SKETCH_ROWS, dtype=np.uint64)[:, None]
        within = (mixed >> (np.uint64(16) * rows)) & np.uint64(self.width - 1)
        return (rows * np.uint64(self.width) + within).astype(np.int64)


def shows_to_count(shows: Floats) -> NDArray[np.int64]:
    """Whole shows in [0, 255]; what is not a positive number counts nothing."""
    return np.where(shows > 0, np.minimum(shows, np.float32(MAX_COUNT)), np.float32(0)).astype(np.int64)
