"""Rows as plain arrays: what a store exports, a snapshot holds and a store loads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geartrain.types import Floats, Keys


@dataclass(frozen=True, slots=True)
class RowRecords:
    """R rows of one table, in the order in which they were born.

    `keys` uint64[R], all different; `values` float32[R, D]; `states` float32[R, W] (W: `RowStore.state_width`);
    `statistics` float32[R, 2] shows and clicks; `last_versions` uint32[R] the version that last updated each row.
    """

    keys: Keys
    values: Floats
    states: Floats
    statistics: Floats
    last_versions: NDArray[np.uint32]
