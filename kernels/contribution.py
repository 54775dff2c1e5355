"""What one worker's step adds to a table.

Letters: N keys, D dim.
"""

from __future__ import annotations

from typing import NamedTuple

from geartrain.types import Floats, Keys


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
