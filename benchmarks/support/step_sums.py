"""What a worker stages: gradient sums of rows, and nothing dense."""

from __future__ import annotations

import numpy as np

from geartrain.types import Floats

_NO_DENSE: Floats = np.empty(0, dtype=np.float32)


class StepSums:
    """Gradient sums `grads` float32[U, D]; each key was shown once and clicked never."""

    def __init__(self, grads: Floats) -> None:
        self.grads = grads
        self.shows: Floats = np.ones(len(grads), dtype=np.float32)
        self.clicks: Floats = np.zeros(len(grads), dtype=np.float32)
        self.dense_start = 0
        self.dense = _NO_DENSE
