"""Small data files and configs for jobs at the edges of what data can be."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from training_cluster import TrainingCluster

Columns = Mapping[str, Sequence[Any] | pa.Array]

CATEGORICAL = [{"name": "user", "kind": "categorical"}, {"name": "item", "kind": "categorical"}]


def random_columns(num_rows: int, num_numeric: int = 0, seed: int = 5) -> dict[str, list[Any]]:
    """Labels of both classes, users 0..19 and items 0..29, numeric columns x0, x1, ..."""
    draw = random.Random(seed)
    columns: dict[str, list[Any]] = {"label": [row % 2 for row in range(num_rows)]}
    columns["user"] = [draw.randrange(20) for _ in range(num_rows)]
    columns["item"] = [draw.randrange(30) for _ in range(num_rows)]
    for number in range(num_numeric):
        columns[f"x{number}"] = [draw.uniform(-1, 1) for _ in range(num_rows)]
    return columns


def write(cluster: TrainingCluster, name: str, columns: Columns) -> str:
    """Write a parquet file; its name for a config."""
    pq.write_table(pa.table(dict(columns)), cluster.folder / name)
    return name


def config_of(train: str, **changes: Any) -> dict[str, Any]:
    """A small DeepFM job of one pass that reads `train` in file order. `changes`: by section or field."""
    numeric = [{"name": f"x{number}", "kind": "numeric"} for number in range(changes.pop("num_numeric", 0))]
    return {
        "name": "edge",
        "features": [*CATEGORICAL, *numeric],
        "label": "label",
        "data": {"root": ".", "format": "parquet", "shuffle": False, "train": [train], **changes.pop("data", {})},
        "model": {"type": "deepfm", "embedding_dim": 4, "hidden": [8], **changes.pop("model", {})},
        "training": {
            "passes": 1,
            "batch_size": 30,
            "dense_optimizer": {"type": "adam", "lr": 0.01},
            "sparse_optimizer": {"type": "adagrad", "lr": 0.05},
            **changes.pop("training", {}),
        },
        "sync": {"mode": "sync", **changes.pop("sync", {})},
        "heterogeneous": False,  # equal shares: results can be compared bit by bit
        **changes,
    }
