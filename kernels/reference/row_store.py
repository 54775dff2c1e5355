"""NumPy definition of a table's rows: a dict from key to row number, and growing arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from geartrain.types import Floats, Keys
from kernels.initializer import Initializer
from kernels.reference.initializer import initial_rows
from kernels.reference.optimizers import state_width, update
from kernels.row_records import RowRecords
from kernels.update_rule import UpdateRule, sparse_coefficients


class RowStore:
    """The rows of one table; what the native store must do, bit for bit."""

    def __init__(self, dim: int, optimizer_kind: str, initializer: Initializer) -> None:
        self.dim = dim
        self.optimizer_kind = optimizer_kind
        self.initializer = initializer
        self.state_width = state_width(optimizer_kind, dim)
        self._row_of: dict[int, int] = {}
        self._values = np.empty((0, dim), dtype=np.float32)
        self._states = np.empty((0, self.state_width), dtype=np.float32)
        self._statistics = np.empty((0, 2), dtype=np.float32)
        self._last_versions = np.empty(0, dtype=np.uint32)

    @property
    def num_rows(self) -> int:
        return len(self._row_of)

    @property
    def memory_bytes(self) -> int:
        arrays = (self._values, self._states, self._statistics, self._last_versions)
        return sum(array.nbytes for array in arrays) + 8 * self.num_rows

    def pull(self, keys: Keys, out: Floats) -> None:
        out[:] = self._initial(keys)
        rows = [self._row_of.get(key, -1) for key in keys.tolist()]
        for place, row in enumerate(rows):
            if row >= 0:
                out[place] = self._values[row]

    def apply(self, keys: Keys, grads: Floats, shows: Floats, clicks: Floats, rule: UpdateRule, version: int) -> int:
        before = self.num_rows
        new = [key for key in dict.fromkeys(keys.tolist()) if key not in self._row_of]
        self._insert(np.array(new, dtype=np.uint64))
        numbers = sparse_coefficients(self.optimizer_kind, rule)
        for place, key in enumerate(keys.tolist()):
            row = slice(self._row_of[key], self._row_of[key] + 1)
            here = slice(place, place + 1)
            update(self.optimizer_kind, self._values[row], self._states[row], grads[here], numbers)
            self._statistics[row, 0] += shows[place]
            self._statistics[row, 1] += clicks[place]
            self._last_versions[row] = version
        return self.num_rows - before

    def export(self) -> RowRecords:
        keys = np.fromiter(self._row_of, dtype=np.uint64, count=self.num_rows)
        return RowRecords(
            keys, self._values.copy(), self._states.copy(), self._statistics.copy(), self._last_versions.copy()
        )

    def load(self, records: RowRecords) -> None:
        start = self.num_rows
        self._insert(records.keys)
        self._values[start:] = records.values
        self._states[start:] = records.states
        self._statistics[start:] = records.statistics
        self._last_versions[start:] = records.last_versions

    def _initial(self, keys: Keys) -> Floats:
        return initial_rows(keys, self.dim, self.initializer.kind, self.initializer.scale, self.initializer.seed)

    def _insert(self, keys: Keys) -> None:
        self._row_of.update(zip(keys.tolist(), range(self.num_rows, self.num_rows + len(keys)), strict=True))
        self._values = np.concatenate([self._values, self._initial(keys)])
        self._states = _grown(self._states, len(keys))
        self._statistics = _grown(self._statistics, len(keys))
        self._last_versions = np.concatenate([self._last_versions, np.zeros(len(keys), dtype=np.uint32)])


def _grown(array: NDArray[np.float32], num_rows: int) -> NDArray[np.float32]:
    return np.concatenate([array, np.zeros((num_rows, array.shape[1]), dtype=np.float32)])
