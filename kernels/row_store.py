"""A table's rows on one server: a 64-bit key to row map and an arena of rows that never move.

Letters: N keys, U unique keys, R rows, D dim, W optimizer state floats per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from geartrain.types import Floats, Keys
from kernels.checks import mismatch, require_array, require_output
from kernels.dedup import deduplicate
from kernels.explain import native
from kernels.initializer import Initializer, native_initializer
from kernels.row_records import RowRecords
from kernels.update_rule import SPARSE_KINDS, UpdateRule, sparse_coefficients

__all__ = ["RowRecords", "RowStore", "UpdateRule"]


class RowStore:
    """Rows of one table: values, optimizer state, statistics and last version, found by key.

    Every 64-bit key is legal. Thread safety: any number of threads may `pull` and `export` at the same time, or one
    thread may `apply` or `load`; the caller holds a read-write lock. All of them release the GIL.
    """

    def __init__(self, dim: int, optimizer_kind: str, initializer: Initializer) -> None:
        """`dim` >= 1 values per row; `optimizer_kind` one of SPARSE_KINDS.

        Reserves address space, not memory. Raises KernelError on other arguments, or when the system refuses.
        """
        if dim < 1:
            raise mismatch("dim", "an integer >= 1", dim)
        if optimizer_kind not in SPARSE_KINDS:
            raise mismatch("optimizer_kind", f"one of {', '.join(SPARSE_KINDS)}", optimizer_kind)
        self.dim = dim
        self.optimizer_kind = optimizer_kind
        self.initializer = initializer
        kind = getattr(native.RowStore.Kind, optimizer_kind)
        with _full_is_an_error(0):
            self._rows = native.RowStore(dim, kind, native_initializer(initializer))

    @property
    def state_width(self) -> int:
        """W, the floats of optimizer state per row."""
        return self._rows.state_width

    @property
    def num_rows(self) -> int:
        """Rows now; during an `apply` of another thread any number on the way."""
        return self._rows.num_rows

    @property
    def memory_bytes(self) -> int:
        """Bytes in use by the index and the rows; read during an `apply` as `num_rows` is."""
        return self._rows.memory_bytes

    def pull(self, keys: Keys, out: Floats) -> None:
        """Write each key's row values to `out`; a key without a row reads as its initial values and stays unborn.

        `keys` uint64[N], duplicates allowed; `out` float32[N, D] owned by the caller. Raises KernelError.
        """
        require_array("keys", keys, np.uint64, None)
        require_output("out", out, np.float32, len(keys), self.dim)
        self._rows.pull(keys, out)

    def apply(self, keys: Keys, grads: Floats, shows: Floats, clicks: Floats, rule: UpdateRule, version: int) -> int:
        """Update each key's row once from its gradient sum; rows that do not exist are born first.

        `keys` uint64[U] all different (a key given twice is updated twice, in order); `grads` float32[U, D]; `shows`,
        `clicks` float32[U] are added to the row's statistics; `version` in [0, 2**32) becomes its last version.
        Returns how many rows were born. Raises KernelError.
        """
        require_array("keys", keys, np.uint64, None)
        require_array("grads", grads, np.float32, len(keys), self.dim)
        require_array("shows", shows, np.float32, len(keys))
        require_array("clicks", clicks, np.float32, len(keys))
        if not 0 <= version < 2**32:
            raise mismatch("version", "an integer in [0, 2**32)", version)
        numbers = sparse_coefficients(self.optimizer_kind, rule)
        with _full_is_an_error(self.num_rows + len(keys)):
            return self._rows.apply(keys, grads, shows, clicks, numbers, version)

    def export(self) -> RowRecords:
        """A copy of all rows, in the order of their birth."""
        num_rows = self.num_rows
        records = RowRecords(
            np.empty(num_rows, dtype=np.uint64),
            np.empty((num_rows, self.dim), dtype=np.float32),
            np.empty((num_rows, self.state_width), dtype=np.float32),
            np.empty((num_rows, 2), dtype=np.float32),
            np.empty(num_rows, dtype=np.uint32),
        )
        self._rows.write_records(*_arrays(records))
        return records

    def load(self, records: RowRecords) -> None:
        """Add rows as they are in `records`; may be called several times.

        Raises KernelError, and changes nothing, when the arrays do not fit each other or this store, or when a key
        occurs twice or is already here.
        """
        num_rows = len(records.keys)
        require_array("records.keys", records.keys, np.uint64, None)
        require_array("records.values", records.values, np.float32, num_rows, self.dim)
        require_array("records.states", records.states, np.float32, num_rows, self.state_width)
        require_array("records.statistics", records.statistics, np.float32, num_rows, 2)
        require_array("records.last_versions", records.last_versions, np.uint32, num_rows)
        unique, inverse = deduplicate(records.keys)
        if len(unique) != num_rows:
            first_doubles = np.flatnonzero(inverse != np.arange(num_rows))[:1]
            position = int(first_doubles[0])
            raise mismatch(
                "records.keys", "keys that are all different", int(records.keys[position]), position=position
            )
        if self._rows.has_any(records.keys):
            raise mismatch("records.keys", "keys without a row in this store", "keys that have one")
        with _full_is_an_error(self.num_rows + num_rows):
            self._rows.load(*_arrays(records))


def _arrays(
    records: RowRecords,
) -> tuple[Keys, Floats, Floats, Floats, NDArray[np.uint32]]:
    return records.keys, records.values, records.states, records.statistics, records.last_versions


@contextmanager
def _full_is_an_error(num_rows: int) -> Iterator[None]:
    """Turn the two ways in which memory runs out, a full address range and a refusing system, into a KernelError."""
    try:
        yield
    except (ValueError, MemoryError) as error:
        raise mismatch(
            "rows", "a table that fits in this machine's memory", f"up to {num_rows} rows ({error})"
        ) from error
