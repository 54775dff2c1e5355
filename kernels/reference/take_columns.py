"""NumPy definition of taking the same rows of many columns."""

from __future__ import annotations

from geartrain.types import Indices, Keys


def take_columns(columns: Keys, rows: Indices, out: Keys, start: int) -> None:
    out[:, start : start + len(rows)] = columns[:, rows]
