"""NumPy definition of the walks over lines."""

from __future__ import annotations

import numpy as np

from geartrain.types import Indices, Keys


def read_lines(lines: Keys, numbers: Indices) -> int:
    """The sum of all words of the lines visited, modulo 2**64."""
    return int(lines[numbers].sum(dtype=np.uint64))


def add_to_lines(lines: Keys, numbers: Indices) -> None:
    """Add one to every word of the lines visited, once for each visit."""
    np.add.at(lines, numbers, np.uint64(1))
