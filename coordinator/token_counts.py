"""Where the tokens of the training data are in a pass: they tell intervals of long samples from those of short ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from geartrain.data.permutation import PassOrder
from geartrain.types import Indices, Interval

_PASSES_KEPT = 2
"""Grants look ahead into the next pass while the last steps of one are granted again."""


class TokenCounts:
    """Tokens by position of a pass. For one thread."""

    def __init__(self, counts: NDArray[np.uint16], chunk_rows: Sequence[int], seed: int, shuffle: bool) -> None:
        """`counts` uint16[rows]: tokens of each row, in file order. The rest says in which order a pass reads them."""
        if len(counts) != sum(chunk_rows):
            raise ValueError(f"{len(counts)} rows have counts, the chunks have {sum(chunk_rows)} rows")
        self._counts = counts
        self._chunk_rows = list(chunk_rows)
        self._first_rows = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(chunk_rows, dtype=np.int64)])
        self._seed = seed
        self._shuffle = shuffle
        self._orders: dict[int, PassOrder] = {}
        self.mean = float(counts.mean()) if len(counts) else 0.0
        """Tokens per sample, over all rows."""

    def cumulative(self, interval: Interval) -> Indices:
        """int64[n + 1]: tokens of the first k positions of `interval`, for k from 0 to its length n.

        Raises ValueError when the interval is not inside the pass.
        """
        total = np.zeros(interval.num_samples + 1, dtype=np.int64)
        place = 1
        for chunk, rows in self._order(interval.pass_index).locate(interval.start, interval.stop):
            total[place : place + len(rows)] = self._counts[self._first_rows[chunk] + rows]
            place += len(rows)
        return np.cumsum(total, out=total)

    def _order(self, pass_index: int) -> PassOrder:
        order = self._orders.pop(pass_index, None)
        if order is None:
            order = PassOrder(self._chunk_rows, self._seed, pass_index, self._shuffle)
            if len(self._orders) == _PASSES_KEPT:
                del self._orders[next(iter(self._orders))]
        self._orders[pass_index] = order
        return order
