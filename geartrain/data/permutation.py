"""The order in which one pass reads the rows of its chunks: a pure function of (chunk sizes, seed, pass).

Positions 0 .. num_rows-1 of a pass are first cut by chunk, in a permuted order of chunks, and then by row inside the
chunk, again permuted. So a batch touches few chunks, and any interval of positions means the same rows everywhere,
whoever asks and however the pass is cut.

The permutation sorts by a hash of the index and not by NumPy's generators, whose streams may change between releases.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from geartrain.types import Indices
from kernels.hashing import mix64

_ORDERS_KEPT = 4


def permutation(size: int, *seeds: int) -> Indices:
    """A permutation of 0 .. size-1 that depends only on `size` and `seeds`: a new int64[size]."""
    state = np.zeros(1, dtype=np.uint64)
    for seed in seeds:
        state = mix64(state ^ np.uint64(seed % 2**64)) + np.uint64(0x9E3779B97F4A7C15)
    # mix64 is a bijection, so all sort keys differ and the order is unique.
    return np.argsort(mix64(np.arange(size, dtype=np.uint64) ^ state)).astype(np.int64, copy=False)


class PassOrder:
    """The order of one pass over chunks of `chunk_rows` rows. Safe to use from several threads."""

    def __init__(self, chunk_rows: Sequence[int], seed: int, pass_index: int, shuffle: bool) -> None:
        self._chunk_rows = np.asarray(chunk_rows, dtype=np.int64).reshape(-1)
        self._seed = seed
        self._pass_index = pass_index
        self._shuffle = shuffle
        num_chunks = len(self._chunk_rows)
        self._chunks = permutation(num_chunks, seed, pass_index) if shuffle else np.arange(num_chunks, dtype=np.int64)
        self._starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self._chunk_rows[self._chunks])])
        self._orders: OrderedDict[int, Indices] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_rows(self) -> int:
        return int(self._starts[-1])

    def chunk_after(self, position: int) -> int | None:
        """The chunk that the pass reads next after the one that holds `position`; None after the last."""
        place = int(np.searchsorted(self._starts, position, side="right"))
        return int(self._chunks[place]) if place < len(self._chunks) else None

    def locate(self, start: int, stop: int) -> list[tuple[int, Indices]]:
        """The rows at positions [start, stop): pairs (chunk number, rows int64[n] inside that chunk) in position order.

        Raises ValueError when the interval is not inside [0, num_rows].
        """
        if not 0 <= start <= stop <= self.num_rows:
            raise ValueError(f"interval [{start}, {stop}) is not inside a pass of {self.num_rows} rows")
        pieces: list[tuple[int, Indices]] = []
        place = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < stop:
            first, last = int(self._starts[place]), int(self._starts[place + 1])
            until = min(stop, last)
            if until > start:
                chunk = int(self._chunks[place])
                pieces.append((chunk, self._rows_of(chunk, start - first, until - first)))
            start = max(start, until)
            place += 1
        return pieces

    def _rows_of(self, chunk: int, start: int, stop: int) -> Indices:
        if not self._shuffle:
            return np.arange(start, stop, dtype=np.int64)
        with self._lock:
            order = self._orders.get(chunk)
            if order is None:
                order = permutation(int(self._chunk_rows[chunk]), self._seed, self._pass_index, chunk + 1)
                self._orders[chunk] = order
                if len(self._orders) > _ORDERS_KEPT:
                    self._orders.popitem(last=False)
            else:
                self._orders.move_to_end(chunk)
        return order[start:stop]
