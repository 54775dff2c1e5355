"""How many different rows a step needs: samples of one step share many of them."""

from __future__ import annotations

from contextlib import closing

import numpy as np

from geartrain.config import JobConfig
from geartrain.data.batch import Batch
from geartrain.data.chunks import DatasetIndex
from geartrain.data.permutation import PassOrder
from geartrain.data.reader import ChunkCache, SplitReader
from geartrain.types import Indices

MOST_SAMPLES = 1 << 16
SMALLEST = 16
_NUM_BLOCKS = 4
_CACHE_BYTES = 1 << 28


def count_step_rows(config: JobConfig, index: DatasetIndex, largest: int) -> tuple[Indices, Indices]:
    """Sizes of steps int64[n], from 0 up to about `largest` samples, and the rows int64[n] that steps of them need.

    Counted in the first samples of the first pass, at most 65,536; small steps are means of up to four. Raises
    BadRowError or DataFileError.
    """
    with closing(SplitReader(index, config, "train", ChunkCache(_CACHE_BYTES))) as reader:
        order = PassOrder(reader.chunk_rows, config.training.seed, 0, config.data.shuffle)
        batch = reader.batch(order, 0, min(order.num_rows, largest, MOST_SAMPLES))
    sizes = [batch.num_samples]
    while sizes[-1] >= 2 * SMALLEST:
        sizes.append(sizes[-1] // 2)
    sizes.append(0)
    return np.array(sizes[::-1]), np.array([_mean_rows(batch, size) for size in sizes[::-1]])


def _mean_rows(batch: Batch, num_samples: int) -> int:
    """Different keys of blocks of `num_samples` samples, on average."""
    if num_samples == 0:
        return 0
    starts = range(0, batch.num_samples - num_samples + 1, num_samples)[:_NUM_BLOCKS]
    return round(float(np.mean([_num_rows(batch, start, start + num_samples) for start in starts])))


def _num_rows(batch: Batch, start: int, stop: int) -> int:
    # Keys are slot after slot, in each the samples one after the other.
    offsets = batch.bag_offsets
    firsts = range(0, len(offsets) - 1, batch.num_samples)
    keys = [batch.keys[offsets[first + start] : offsets[first + stop]] for first in firsts]
    return len(np.unique(np.concatenate(keys)))
