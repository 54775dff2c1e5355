"""Data like those of the Criteo challenge, made up: skewed ids, missing numbers, and clicks that can be learned.

Every row group is a pure function of (seed, file, its place), so files of any size are made in little memory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from geartrain.files import written_whole
from geartrain.types import Indices
from kernels.hashing import mix64

NUM_CATEGORICAL = 26
NUM_NUMERIC = 13
ROW_GROUP_ROWS = 65_536
CATEGORICAL_NAMES = tuple(f"c{place + 1}" for place in range(NUM_CATEGORICAL))
NUMERIC_NAMES = tuple(f"i{place + 1}" for place in range(NUM_NUMERIC))

_SMALLEST_COLUMN = 10
_EXPONENT = 1.05
_BIAS = -2.3
_ID_STRENGTH = 0.55
_NUMERIC_STRENGTH = 0.25


def write_criteo_like(
    directory: Path, num_rows: int, seed: int, num_test_rows: int = 0, num_ids: int = 5_000_000
) -> dict[str, Path]:
    """Write `train.parquet` (and `test.parquet` when asked for) into `directory` and return their paths by split.

    Columns: `label` int8, 0 or 1 (about a quarter is 1); `c1` .. `c26` int64 ids from 1, Zipf-like with exponent 1.05,
    `num_ids` different ids in all 26 columns together, unequally divided; `i1` .. `i13` float32, skewed counts, some of
    them null. Row groups have 65,536 rows. Ids and numbers both move the chance of a click, the same way in both files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    sizes = {"train": num_rows} | ({"test": num_test_rows} if num_test_rows else {})
    cardinalities = column_cardinalities(num_ids)
    paths: dict[str, Path] = {}
    for place, (split, size) in enumerate(sizes.items()):
        paths[split] = directory / f"{split}.parquet"
        with written_whole(paths[split]) as unfinished:
            _write_file(unfinished, size, (seed, place), cardinalities)
    return paths


def _write_file(path: Path, num_rows: int, seeds: tuple[int, int], cardinalities: Indices) -> None:
    schema = pa.schema(
        [("label", pa.int8())]
        + [(name, pa.int64()) for name in CATEGORICAL_NAMES]
        + [(name, pa.float32()) for name in NUMERIC_NAMES]
    )
    # Ids of big columns hardly repeat within a row group: dictionaries would cost time and save nothing.
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for group, start in enumerate(range(0, num_rows, ROW_GROUP_ROWS)):
            generator = np.random.default_rng([*seeds, group])
            table = _row_group(min(ROW_GROUP_ROWS, num_rows - start), cardinalities, generator, schema)
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)


def column_cardinalities(num_ids: int) -> Indices:
    """Different ids per categorical column, int64[26]: in geometric steps from 10 up, `num_ids` in all.

    Raises ValueError when `num_ids` is too small for 10 ids in every column.
    """
    if num_ids < _SMALLEST_COLUMN * NUM_CATEGORICAL:
        raise ValueError(f"expected num_ids >= {_SMALLEST_COLUMN * NUM_CATEGORICAL}, got {num_ids}")
    low, high = 1.0, float(num_ids)
    steps = np.arange(NUM_CATEGORICAL)
    for _ in range(200):
        ratio = np.sqrt(low * high)
        low, high = (ratio, high) if _SMALLEST_COLUMN * (ratio**steps).sum() < num_ids else (low, ratio)
    sizes: Indices = np.floor(_SMALLEST_COLUMN * low**steps).astype(np.int64)
    sizes[-1] += num_ids - sizes.sum()
    return sizes


def zipf_ranks(uniform: NDArray[np.float64], size: int) -> Indices:
    """Ranks 1 .. `size` whose frequency falls as rank^-1.05, from uniform numbers in [0, 1); int64, same shape.

    The continuous power law on [0.5, size + 0.5) is inverted and rounded, which is within a tenth of the discrete law
    at rank 1 and closer behind it.
    """
    power = 1.0 - _EXPONENT
    first, last = 0.5**power, (size + 0.5) ** power
    ranks: Indices = np.rint((first + uniform * (last - first)) ** (1.0 / power)).astype(np.int64)
    return np.minimum(np.maximum(ranks, 1), size)


def _row_group(num_rows: int, cardinalities: Indices, generator: np.random.Generator, schema: pa.Schema) -> pa.Table:
    logits = np.full(num_rows, _BIAS)
    columns: list[pa.Array] = []
    for column, size in enumerate(cardinalities):
        ids = zipf_ranks(generator.random(num_rows), int(size))
        logits += _ID_STRENGTH * _effects(ids, column)
        columns.append(pa.array(ids))
    for column in range(NUM_NUMERIC):
        counts = np.floor(np.exp(generator.normal(1.0 + 0.2 * column, 1.2, num_rows))).astype(np.float32)
        missing = generator.random(num_rows) < 0.03 * column
        weight = _NUMERIC_STRENGTH if column % 2 else -_NUMERIC_STRENGTH
        logits += np.where(missing, 0.0, weight * (np.log1p(counts) - 1.0 - 0.2 * column))
        columns.append(pa.array(counts, mask=missing))
    clicks = generator.random(num_rows) < 1.0 / (1.0 + np.exp(-logits))
    return pa.Table.from_arrays([pa.array(clicks.astype(np.int8)), *columns], schema=schema)


def _effects(ids: Indices, column: int) -> NDArray[np.float64]:
    """What each id adds to the logit: uniform in [-1, 1), a hash of (column, id), so that no table is needed."""
    mixed = mix64(ids.view(np.uint64) ^ mix64(np.full(1, column + 1, dtype=np.uint64)))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
