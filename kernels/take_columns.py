"""Entries of many columns at the same rows: how a batch is cut out of a chunk.

Letters: C columns, R rows of a column, N rows taken.
"""

from __future__ import annotations

import numpy as np

from geartrain.types import Indices, Keys
from kernels.checks import mismatch, require_array, require_output, require_range
from kernels.explain import native


def take_columns(columns: Keys, rows: Indices, out: Keys, start: int) -> None:
    """Write `columns[:, rows]` to `out[:, start : start + N]`.

    `columns` uint64[C, R]; `rows` int64[N] in [0, R); `out` uint64[C, at least start + N] owned by the caller. Raises
    KernelError on another dtype, shape or range.
    """
    require_array("columns", columns, np.uint64, None, None)
    require_array("rows", rows, np.int64, None)
    require_range("rows", rows, columns.shape[1])
    require_output("out", out, np.uint64, columns.shape[0], None)
    if not 0 <= start <= out.shape[1] - len(rows):
        raise mismatch("start", f"an integer from 0 to {out.shape[1] - len(rows)}", start)
    native.take_columns(columns, rows, out, start)
