"""Real training rows in batches of any size, for steps that only measure.

They come from the first rows of the first pass, which training reads next anyway, but are cut out of a copy: no
position of the training moves. Shape letters: B samples, S slots.
"""

from __future__ import annotations

import numpy as np

from dense_workers.prefetch import BatchPlanner, PlannedBatch
from geartrain.data.batch import Batch
from geartrain.data.permutation import PassOrder
from geartrain.data.reader import SplitReader
from geartrain.errors import DataFileError
from geartrain.types import Indices

BATCHES_HELD = 4
"""Rows are held for this many of the largest batches, so that these differ, ..."""
MOST_ROWS = 1 << 16
"""... as long as it is not more than this or one batch."""
_GOLDEN = 0.6180339887498949


class ProbeBatches:
    """Batches from a pool of training rows. `num_rows` bounds their size."""

    def __init__(self, pool: Batch, sequence_slots: Indices, planner: BatchPlanner) -> None:
        """`sequence_slots`: the slots whose values count as tokens."""
        self.num_rows = pool.num_samples
        self._pool = pool
        self._planner = planner
        lengths = np.diff(pool.bag_offsets).reshape(-1, pool.num_samples)
        self._tokens: Indices = lengths[sequence_slots].sum(axis=0, dtype=np.int64)
        self._by_tokens = np.argsort(self._tokens, kind="stable")
        self._next = 0
        self._num_taken = 0

    @staticmethod
    def read(reader: SplitReader, planner: BatchPlanner, seed: int, shuffle: bool, largest: int) -> ProbeBatches:
        """Batches of up to `largest` samples, or as many as the train split has. Raises as `SplitReader.batch`, and
        DataFileError where it has none."""
        order = PassOrder(reader.chunk_rows, seed, 0, shuffle)
        if order.num_rows == 0:
            raise DataFileError("data.train has no rows", field="data.train", expected="at least one row")
        num_rows = min(order.num_rows, max(largest, min(BATCHES_HELD * largest, MOST_ROWS)))
        return ProbeBatches(reader.batch(order, 0, num_rows), reader.schema.sequence_slots, planner)

    def take(self, num_samples: int) -> tuple[PlannedBatch, int]:
        """The next `num_samples` rows in their order, and the tokens in them; begins again at the end."""
        start, self._next = self._next, (self._next + num_samples) % self.num_rows
        return self._cut(np.arange(start, start + num_samples) % self.num_rows)

    def take_alike(self, num_samples: int) -> tuple[PlannedBatch, int]:
        """Rows of about equally many tokens, fewer in one call and more in another.

        In batches of any rows, tokens are nearly a multiple of samples; what each of them costs would not be seen.
        """
        self._num_taken += 1
        start = int((self.num_rows - num_samples + 1) * (self._num_taken * _GOLDEN % 1))
        return self._cut(self._by_tokens[start : start + num_samples])

    @property
    def has_tokens(self) -> bool:
        """Whether there is anything in sequence slots."""
        return bool(self._tokens.any())

    def _cut(self, rows: Indices) -> tuple[PlannedBatch, int]:
        return self._planner.plan(select(self._pool, rows)), int(self._tokens[rows].sum())


def select(batch: Batch, rows: Indices) -> Batch:
    """The samples `rows` int64[n] of `batch` (of at least one sample), in this order, as a batch of their own."""
    num_samples = batch.num_samples
    lengths = np.diff(batch.bag_offsets).reshape(-1, num_samples)[:, rows].ravel()
    starts = batch.bag_offsets[:-1].reshape(-1, num_samples)[:, rows].ravel()
    offsets = np.concatenate([np.zeros(1, dtype=np.int32), np.cumsum(lengths, dtype=np.int32)])
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return Batch(
        labels=batch.labels[rows],
        numeric=batch.numeric[rows],
        keys=batch.keys[places],
        bag_offsets=offsets,
        group_ids=None if batch.group_ids is None else batch.group_ids[rows],
        one_key_bags=batch.one_key_bags,
    )
