"""What one worker's step adds to a table.

Letters: N keys, D dim.
"""

from __future__ import annotations

from typing import NamedTuple

from geartrain.types import Floats, Keys

MAX_GRADIENT = 1e12
"""The largest absolute value of a worker's gradient sum that may reach a row. Its square, summed over a row, workers
and windows, is still a float32: a larger one would leave NaN or Inf in states, long after it passed for a number."""


def within(values: Floats, limit: float) -> bool:
    """Whether all absolute values are at most `limit`; NaN is not. `values` float32[any]."""
    # Two sweeps without an array between them, in half the time of one with it.
    return values.size == 0 or bool(values.min() >= -limit and values.max() <= limit)


class Contribution(NamedTuple):
    """Gradient sums of one worker for N rows of a table.

    `keys` uint64[N], all different; `grads` float32[N, D]; `shows` and `clicks` float32[N], which are not weighted;
    `weight` finite, multiplies the gradients.
    """

    keys: Keys
    grads: Floats
    shows: Floats
    clicks: Floats
    weight: float
