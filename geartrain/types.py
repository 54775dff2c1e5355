"""Names for the arrays and small values that every role shares.

Shape letters used in annotations and comments: B batch, S slots, N keys, U unique keys, D dim, F dense features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Keys: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float32]
Indices: TypeAlias = NDArray[np.int64]
Places: TypeAlias = NDArray[np.int32]
"""Numbers of keys in a batch and of rows that were pulled for it. There are fewer than 2**31 of both, and with 64 bits
pooling takes a tenth longer."""

NUM_SHARDS = 1024
"""Shards of every table; fixed for a job, so that a key's shard never changes."""


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """A half-open range [start, stop) of permuted positions of one pass."""

    pass_index: int
    start: int
    stop: int

    @property
    def num_samples(self) -> int:
        return self.stop - self.start
