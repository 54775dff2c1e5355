"""Rows as plain arrays: what a store gives to a snapshot and loads from one.

Letters: R rows, D dim, W optimizer state floats per row, H shards in a range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geartrain.types import Floats, Indices, Keys

ROW_DTYPES: dict[str, np.dtype[Any]] = {
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
}
"""How the values of a row dtype appear in arrays; NumPy has no bfloat16, so its bits stand in uint16."""


@dataclass(frozen=True, slots=True)
class RowRecords:
    """R rows of one table.

    `keys` uint64[R], all different; `values` [R, D] of the table's ROW_DTYPES; `states` float32[R, W] (W:
    `RowStore.state_width`); `statistics` float32[R, 2] shows and clicks; `last_versions` uint32[R] the version that
    last updated each row.
    """

    keys: Keys
    values: NDArray[Any]
    states: Floats
    statistics: Floats
    last_versions: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class ShardRows:
    """A range of H shards as they were at a cut.

    `rows` by shard, then by key; `counts` int64[H] rows of each shard. In a delta `deleted` uint64 are the keys, by
    shard and then by key, whose rows left after the base and that have none at the cut (some may have been born after
    the base), `deleted_counts` int64[H] of each shard; otherwise there are none. `sketches` uint8[H, n] and
    `sketch_totals` uint64[H] are the admission counters (n is 0 without them).
    """

    rows: RowRecords
    counts: Indices
    deleted: Keys
    deleted_counts: Indices
    sketches: NDArray[np.uint8]
    sketch_totals: NDArray[np.uint64]


def empty_rows(num_rows: int, dim: int, state_width: int, row_dtype: str) -> RowRecords:
    """New arrays for `num_rows` rows, not set."""
    return RowRecords(
        np.empty(num_rows, dtype=np.uint64),
        np.empty((num_rows, dim), dtype=ROW_DTYPES[row_dtype]),
        np.empty((num_rows, state_width), dtype=np.float32),
        np.empty((num_rows, 2), dtype=np.float32),
        np.empty(num_rows, dtype=np.uint32),
    )


def bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    """The same memory of `values` [R, D], seen as uint8[R, bytes of a row]."""
    return values.view(np.uint8)
