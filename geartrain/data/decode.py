"""Chunks as arrays that batches are cut from, and the cutting.

Shape letters: R rows of a chunk, B samples of a batch, S slots, N keys, C slots with exactly one key per sample,
F numeric features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geartrain.data.batch import Batch
from geartrain.data.chunks import Chunk
from geartrain.data.columns import Origin, bags, buckets, categories, labels, numbers, transformed
from geartrain.data.files import OpenFiles
from geartrain.data.schema import DataSchema, NumericInput
from geartrain.errors import ConfigError
from geartrain.types import Floats, Indices, Keys, Places
from kernels.take_columns import take_columns


@dataclass(frozen=True, slots=True, eq=False)
class Bags:
    """The bags of one slot: row r of the chunk has `keys[offsets[r]:offsets[r + 1]]`; offsets int64[R + 1]."""

    offsets: Indices
    keys: Keys

    def take(self, rows: Indices) -> tuple[Indices, Keys]:
        """Sizes int64[len(rows)] and the keys of these rows' bags, one after the other."""
        starts = self.offsets[rows]
        sizes = self.offsets[rows + 1] - starts
        stops = np.cumsum(sizes)
        total = int(stops[-1]) if len(stops) else 0
        return sizes, self.keys[np.repeat(starts - stops + sizes, sizes) + np.arange(total)]


@dataclass(frozen=True, slots=True, eq=False)
class DecodedChunk:
    """All rows of a chunk: hashed, converted and transformed. Immutable; batches copy out of it.

    `labels` float32[R]; `numeric` float32[R, 2F] as in `Batch`; `singles` uint64[C, R]: the keys of the slots with one
    key per sample, in slot order; `bags`: the other slots, in slot order.
    """

    labels: Floats
    numeric: Floats
    singles: Keys
    bags: tuple[Bags, ...]

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    @property
    def num_bytes(self) -> int:
        in_bags = sum(bag.offsets.nbytes + bag.keys.nbytes for bag in self.bags)
        return self.labels.nbytes + self.numeric.nbytes + self.singles.nbytes + in_bags


def read_chunk(chunk: Chunk, schema: DataSchema, files: OpenFiles) -> DecodedChunk:
    """Read and decode a chunk. Raises BadRowError (file, row, column, value) or DataFileError."""
    columns = files.get(chunk.file).read(chunk, schema.columns)
    return decode(columns, schema, Origin(chunk.file, chunk.first_row), chunk.num_rows)


def decode(columns: dict[str, Any], schema: DataSchema, origin: Origin, num_rows: int) -> DecodedChunk:
    """Decode arrow columns of `num_rows` rows. Raises BadRowError for the first bad row of the first bad column."""
    rules = schema.text
    found_labels = np.zeros(num_rows, dtype=np.float32)
    if schema.label is not None:
        found_labels = labels(columns[schema.label.column], schema.label, rules, origin)
    single_slots = [slot for slot in schema.slots if slot.kind != "sequence"]
    singles = np.empty((len(single_slots), num_rows), dtype=np.uint64)
    for place, slot in enumerate(single_slots):
        if slot.kind == "categorical":
            singles[place] = categories(columns[slot.name], slot, rules)
        else:
            singles[place] = buckets(*numbers(columns[slot.name], slot.name, rules, origin), slot)
    sequences = [slot for slot in schema.slots if slot.kind == "sequence"]
    return DecodedChunk(
        labels=found_labels,
        numeric=_numeric(columns, schema, origin, num_rows),
        singles=singles,
        bags=tuple(Bags(*bags(columns[slot.name], slot, rules)) for slot in sequences),
    )


def _numeric(columns: dict[str, Any], schema: DataSchema, origin: Origin, num_rows: int) -> Floats:
    num_features = len(schema.numerics)
    # Filled column by column in contiguous memory, turned to rows at the end.
    inputs = np.empty((2 * num_features, num_rows), dtype=np.float32)
    for place, numeric in enumerate(schema.numerics):
        values, missing = numbers(columns[numeric.name], numeric.name, schema.text, origin)
        with np.errstate(over="ignore"):
            inputs[place] = transformed(values, numeric.transform, _moments(schema, numeric))
        if not np.isfinite(inputs[place]).all():
            row = int(np.argmin(np.isfinite(inputs[place])))
            origin.refuse(row, numeric.name, float(values[row]), "a number in the range of float32")
        if numeric.transform == "standard":  # the others leave the 0 of a missing value as it is
            inputs[place, missing] = 0.0
        inputs[num_features + place] = missing
    return np.ascontiguousarray(inputs.T)


def _moments(schema: DataSchema, numeric: NumericInput) -> tuple[float, float]:
    return schema.standard[numeric.name] if numeric.transform == "standard" else (0.0, 1.0)


def assemble(pieces: Sequence[tuple[DecodedChunk, Indices]], schema: DataSchema) -> Batch:
    """The batch of the given rows of decoded chunks, in that order; no pieces give an empty batch."""
    num_samples = sum(len(rows) for _, rows in pieces)
    found_labels = np.empty(num_samples, dtype=np.float32)
    numeric = np.empty((num_samples, schema.num_numeric_inputs), dtype=np.float32)
    singles = np.empty((sum(slot.kind != "sequence" for slot in schema.slots), num_samples), dtype=np.uint64)
    start = 0
    for chunk, rows in pieces:
        stop = start + len(rows)
        take_columns(chunk.singles, rows, singles, start)
        # The rows are known to be there now; without "clip" NumPy would take into a copy first.
        np.take(chunk.numeric, rows, axis=0, out=numeric[start:stop], mode="clip")
        np.take(chunk.labels, rows, out=found_labels[start:stop], mode="clip")
        start = stop
    keys, bag_offsets, group_ids = _slot_major(pieces, singles, schema)
    return Batch(
        labels=found_labels,
        numeric=numeric,
        keys=keys,
        bag_offsets=bag_offsets,
        group_ids=group_ids,
        one_key_bags=len(singles) == len(schema.slots),
    )


def _slot_major(
    pieces: Sequence[tuple[DecodedChunk, Indices]], singles: Keys, schema: DataSchema
) -> tuple[Keys, Places, Keys | None]:
    """Keys and bag offsets of all slots in slot order, and the keys of the group slot."""
    num_samples = singles.shape[1]
    group_ids = None
    if len(singles) == len(schema.slots):
        if schema.group_slot is not None:
            group_ids = singles[schema.group_slot].copy()
        require_places(singles.size, num_samples)
        return singles.reshape(-1), np.arange(singles.size + 1, dtype=np.int32), group_ids
    keys: list[Keys] = []
    sizes = [np.zeros(1, dtype=np.int64)]
    ones = np.ones(num_samples, dtype=np.int64)
    next_single, next_bag = 0, 0
    for place, slot in enumerate(schema.slots):
        if slot.kind == "sequence":
            for chunk, rows in pieces:
                bag_sizes, bag_keys = chunk.bags[next_bag].take(rows)
                sizes.append(bag_sizes)
                keys.append(bag_keys)
            next_bag += 1
        else:
            sizes.append(ones)
            keys.append(singles[next_single])
            if place == schema.group_slot:
                group_ids = singles[next_single].copy()
            next_single += 1
    ends = np.cumsum(np.concatenate(sizes))
    require_places(int(ends[-1]), num_samples)
    bag_offsets = ends.astype(np.int32)
    return np.concatenate(keys or [np.empty(0, dtype=np.uint64)]), bag_offsets, group_ids


def require_places(num_values: int, num_samples: int) -> None:
    """Raise ConfigError where a batch of so many samples has more values than `Places` number."""
    if num_values >= 2**31:
        raise ConfigError(
            f"training.batch_size: expected fewer than 2**31 values, {num_samples} samples have {num_values}",
            field="training.batch_size",
            value=num_samples,
            expected="batches of fewer than 2**31 values",
        )
