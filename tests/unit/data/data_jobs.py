"""Small jobs for the readers' tests: a config over files in a folder, and what reading them gives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geartrain.config import JobConfig, parse_config
from geartrain.data.batch import Batch
from geartrain.data.hashing import missing_key
from geartrain.data.index import build_index
from geartrain.data.permutation import PassOrder
from geartrain.data.reader import SplitReader
from kernels.hashing import keys_of_integers, keys_of_strings

REPOSITORY = Path(__file__).resolve().parents[3]


def job(root: Path, features: list[dict[str, Any]], label: Any = "label", **data: Any) -> JobConfig:
    """A config whose data section is `data` (train: every file named train*), with `features` and any slot it needs."""
    fields = {
        "features": features,
        "label": label,
        "data": {"root": str(root), "train": ["train*"], **data},
        "model": {"type": "lr"},
    }
    return parse_config(fields, root, [root])


def read_all(config: JobConfig, split: str = "train") -> Batch:
    """All rows of a split in file order, as one batch."""
    index = build_index(config)
    reader = SplitReader(index, config, split)
    try:
        order = PassOrder(reader.chunk_rows, seed=1, pass_index=0, shuffle=False)
        return reader.batch(order, 0, order.num_rows)
    finally:
        reader.close()


def bag_keys(batch: Batch, slot: int, sample: int) -> list[int]:
    """The keys of one bag, looked up the slow way."""
    place = slot * batch.num_samples + sample
    return [int(key) for key in batch.keys[batch.bag_offsets[place] : batch.bag_offsets[place + 1]]]


def text_key(value: str, table: str) -> int:
    data = np.frombuffer(value.encode(), dtype=np.uint8)
    return int(keys_of_strings(np.array([0, len(data)], dtype=np.int64), data, table)[0])


def integer_key(value: int, table: str) -> int:
    return int(keys_of_integers(np.array([value % 2**64], dtype=np.uint64), table)[0])


def no_key(table: str) -> int:
    return int(missing_key(table))


def sample_folder(name: str) -> Path:
    """The folder `name` of the sample data; the test is skipped, naming it, where it is absent."""
    data = Path(os.environ.get("GEARTRAIN_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (data / name).exists():
        pytest.skip(f"sample data are missing: {data / name} (set GEARTRAIN_DATA)")
    return data / name
