"""What training leaves in a checkpoint, in one piece whatever the number of servers that wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coordinator.checkpoints import Manifest, load_manifest
from embedding_tier.table_reader import TableReader
from geartrain.types import Floats, Keys
from kernels.row_records import RowRecords

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
    tables: dict[str, list[RowRecords]] = {}
    dense: dict[str, list[tuple[int, Floats]]] = {}
    for name, about in manifest.files.items():
        if about["part"] == "rows":
            with TableReader(directory / name, about) as reader:
                tables.setdefault(about["table"], []).extend(reader.read(shard).rows for shard in reader.entries or [0])
        else:
            array = np.load(directory / name, allow_pickle=False)
            dense.setdefault(about["part"], []).append((about["start"], array))
    joined = {
        part: np.concatenate([array for _, array in sorted(arrays, key=lambda one: one[0])], axis=-1)
        for part, arrays in dense.items()
    }
    rows = {table: _by_key(records) for table, records in sorted(tables.items())}
    return State(manifest, rows, joined["dense"], joined["dense_states"])


def _by_key(records: list[RowRecords]) -> Rows:
    joined = {part: np.concatenate([getattr(one, part) for one in records]) for part in ROW_PARTS}
    order = np.argsort(joined["keys"])
    return Rows(*(joined[part][order] for part in ROW_PARTS))
