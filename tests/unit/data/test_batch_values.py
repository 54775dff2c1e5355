"""How many values a batch has in some of its slots."""

from __future__ import annotations

import numpy as np
import pytest

from geartrain.data.batch import Batch
from geartrain.data.decode import require_places
from geartrain.errors import ConfigError


def batch_of(lengths: list[list[int]]) -> Batch:
    """`lengths[slot][sample]` values."""
    flat = np.array(lengths, dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(flat.ravel())]).astype(np.int32)
    num_samples = flat.shape[1]
    zeros = np.zeros(num_samples, dtype=np.float32)
    return Batch(zeros, zeros.reshape(num_samples, 1)[:, :0], np.zeros(offsets[-1], dtype=np.uint64), offsets, None)


def test_values_of_slots() -> None:
    batch = batch_of([[1, 1, 1], [0, 4, 2], [1, 1, 1], [5, 0, 0]])
    assert batch.num_values(np.array([1, 3])) == 11
    assert batch.num_values(np.array([2])) == 3
    assert batch.num_values(np.array([], dtype=np.int64)) == 0


def test_an_empty_batch_has_none() -> None:
    assert batch_of([[], [], []]).num_values(np.array([0, 2])) == 0


def test_more_values_than_32_bits_number_are_refused() -> None:
    require_places(2**31 - 1, 4096)
    with pytest.raises(ConfigError, match="4096 samples have 2147483648") as refused:
        require_places(2**31, 4096)
    assert refused.value.facts["field"] == "training.batch_size"
