"""NumPy definition of what a window's contributions say of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from geartrain.types import Floats, Keys
from kernels.contribution import Contribution


class Sums(NamedTuple):
    """One sum per key, which has no weight any more: `keys` uint64[U] ascending, `grads` float32[U, D], `shows` and
    `clicks` float32[U].
    """

    keys: Keys
    grads: Floats
    shows: Floats
    clicks: Floats


def summed(contributions: Sequence[Contribution], dim: int) -> Sums:
    """Gradients times their contribution's weight, added in the order of the contributions; shows and clicks as well,
    without weights. A key's first contribution is taken as it is, not added to zero: the sign of a zero survives.
    """
    parts = [part.keys for part in contributions]
    keys = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *parts]))
    grads, shows, clicks = (np.zeros((len(keys), width), dtype=np.float32) for width in (dim, 1, 1))
    known = np.zeros((len(keys), 1), dtype=np.bool_)
    for part in contributions:
        at = np.searchsorted(keys, part.keys)
        weighted = part.grads * np.float32(part.weight)
        for total, more in ((grads, weighted), (shows, part.shows[:, None]), (clicks, part.clicks[:, None])):
            total[at] = np.where(known[at], total[at] + more, more)
        known[at] = True
    return Sums(keys, grads, shows[:, 0], clicks[:, 0])


def without(sums: Sums, dropped: np.ndarray) -> Sums:
    """The sums of the keys that are not `dropped` (a mask)."""
    return Sums(*(array[~dropped] for array in sums))
