"""What training leaves in a checkpoint, in one piece whatever the number of servers that wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coordinator.checkpoints import Manifest, load_manifest
from geartrain.types import Floats, Keys

ROW_PARTS = ("keys", "values", "states", "statistics", "last_versions")


@dataclass(frozen=True)
class Rows:
    """All rows of a table by key: values [R, D], optimizer states [R, W], statistics [R, 2] (shows, clicks)."""

    keys: Keys
    values: Floats
    states: Floats
    statistics: Floats
    last_versions: NDArray[np.uint32]


@dataclass(frozen=True)
class State:
    manifest: Manifest
    tables: dict[str, Rows]
    dense: Floats
    dense_states: Floats

    def segment(self, name: str) -> Floats:
        """A named part of the dense vector, in its shape."""
        segment = next(one for one in self.manifest.segments if one.name == name)
        return self.dense[segment.start : segment.stop].reshape(segment.shape)

    def bits(self) -> dict[str, tuple[Any, ...]]:
        """Everything that training changes, as bytes: equal if and only if every bit is."""
        arrays = {
            f"{table}.{part}": getattr(rows, part) for table, rows in self.tables.items() for part in ROW_PARTS
        } | {"dense": self.dense, "dense_states": self.dense_states}
        return {name: (array.shape, array.dtype, array.tobytes()) for name, array in arrays.items()}


def read_state(checkpoint: str) -> State:
    """The content of a checkpoint directory."""
    directory = Path(checkpoint)
    manifest = load_manifest(directory)
    parts: dict[tuple[str, str | None], list[tuple[int, NDArray[Any]]]] = {}
    for name, about in manifest.files.items():
        array = np.load(directory / name, allow_pickle=False)
        parts.setdefault((about["part"], about.get("table")), []).append((about.get("start", 0), array))
    joined = {
        place: np.concatenate([array for _, array in sorted(arrays, key=lambda one: one[0])], axis=-1)
        if place[1] is None
        else np.concatenate([array for _, array in arrays])
        for place, arrays in parts.items()
    }
    tables = {}
    for table in sorted({table for _, table in joined if table is not None}):
        order = np.argsort(joined["keys", table])
        tables[table] = Rows(*(joined[part, table][order] for part in ROW_PARTS))
    return State(manifest, tables, joined["dense", None], joined["dense_states", None])
