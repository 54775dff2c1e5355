"""Made-up content for table files, and files that are wrong in one place."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from embedding_tier.table_file import FORMAT_VERSION, INDEX, MAGIC, SCHEMA_LENGTH, TRAILER, TableSchema
from embedding_tier.table_reader import TableReader
from embedding_tier.table_writer import TableWriter
from geartrain.types import NUM_SHARDS, Keys
from kernels.hashing import shard_of
from kernels.row_records import ROW_DTYPES, RowRecords, ShardRows

_KEYS = np.concatenate([np.array([2**64 - 1], np.uint64), np.arange(1 << 15, dtype=np.uint64) << np.uint64(17)])
_SHARDS = shard_of(_KEYS)


def some_keys(rng: np.random.Generator, shards: list[int], share: float) -> Keys:
    """Keys of these shards, by shard and then by key; of each shard about this share of what there is."""
    mine = _KEYS[np.isin(_SHARDS, shards) & (rng.random(len(_KEYS)) < share)]
    return mine[np.lexsort((mine, shard_of(mine)))]


def random_bits(rng: np.random.Generator, dtype: Any, *shape: int) -> NDArray[Any]:
    """Any bits at all: also those of infinity and NaN must survive."""
    wanted = np.dtype(dtype)
    return rng.integers(0, 256, int(np.prod(shape)) * wanted.itemsize, np.uint8).view(wanted).reshape(shape)


def content(schema: TableSchema, seed: int, shards: list[int], share: float) -> ShardRows:
    """All 1,024 shards of a table that has rows (deleted keys, admission counters) in some of them."""
    rng = np.random.default_rng(seed)
    keys, deleted = some_keys(rng, shards, share), some_keys(rng, shards[:2] if schema.kind == "delta" else [], share)
    rows = RowRecords(
        keys,
        random_bits(rng, ROW_DTYPES[schema.row_dtype], len(keys), schema.dim),
        random_bits(rng, np.float32, len(keys), schema.state_width),
        random_bits(rng, np.float32, len(keys), 2),
        random_bits(rng, np.uint32, len(keys)),
    )
    sketches = np.zeros((NUM_SHARDS, schema.sketch_bytes), dtype=np.uint8)
    totals = np.zeros(NUM_SHARDS, dtype=np.uint64)
    if schema.sketch_bytes:
        sketches[shards[::2]] = random_bits(rng, np.uint8, len(shards[::2]), schema.sketch_bytes)
        totals[shards[1::2]] = 2**63 + 1
    return ShardRows(rows, counts_of(keys), deleted, counts_of(deleted), sketches, totals)


def counts_of(keys: Keys) -> NDArray[np.int64]:
    return np.bincount(shard_of(keys), minlength=NUM_SHARDS).astype(np.int64)


def part_of(cut: ShardRows, first: int, last: int) -> ShardRows:
    """Shards [first, last) of a cut."""

    def span(counts: NDArray[np.int64]) -> slice:
        return slice(int(counts[:first].sum()), int(counts[:last].sum()))

    rows, mine = cut.rows, span(cut.counts)
    return ShardRows(
        RowRecords(
            rows.keys[mine], rows.values[mine], rows.states[mine], rows.statistics[mine], rows.last_versions[mine]
        ),
        cut.counts[first:last],
        cut.deleted[span(cut.deleted_counts)],
        cut.deleted_counts[first:last],
        cut.sketches[first:last],
        cut.sketch_totals[first:last],
    )


@st.composite
def schemas(draw: st.DrawFn) -> TableSchema:
    kind = draw(st.sampled_from(["full", "delta"]))
    dim = draw(st.integers(1, 17))
    return TableSchema(
        table=draw(st.text(max_size=9)),
        server=draw(st.text(max_size=9)),
        dim=dim,
        row_dtype=draw(st.sampled_from(sorted(ROW_DTYPES))),
        optimizer="any",
        state_width=draw(st.sampled_from([0, 1, dim, dim + 1, 2 * dim])),
        sketch_bytes=draw(st.sampled_from([0, 64])),
        kind=kind,
        version=draw(st.integers(0, 2**32 - 1)),
        base=3 if kind == "delta" else None,
    )


SCHEMA = TableSchema("t", "s0", 3, "fp16", "adam", 6, 64, "delta", 9, 4)


def write(path: Path, schema: TableSchema, cut: ShardRows, shards_at_once: int = NUM_SHARDS) -> dict[str, Any]:
    with TableWriter(path, schema) as writer:
        for first in range(0, NUM_SHARDS, shards_at_once):
            last = min(first + shards_at_once, NUM_SHARDS)
            writer.append(first, part_of(cut, first, last))
        return writer.finish()


def read_all(path: Path, description: dict[str, Any]) -> ShardRows:
    """What `content` made, out of a file."""
    with TableReader(path, description) as reader:
        blocks = [reader.read(shard) for shard in range(NUM_SHARDS)]
        width = reader.schema.sketch_bytes
    rows = [block.rows for block in blocks]
    return ShardRows(
        RowRecords(
            np.concatenate([one.keys for one in rows]),
            np.concatenate([one.values for one in rows]),
            np.concatenate([one.states for one in rows]),
            np.concatenate([one.statistics for one in rows]),
            np.concatenate([one.last_versions for one in rows]),
        ),
        np.array([len(one.keys) for one in rows]),
        np.concatenate([block.deleted for block in blocks]),
        np.array([len(block.deleted) for block in blocks]),
        np.array([block.sketch if len(block.sketch) else np.zeros(width, np.uint8) for block in blocks]),
        np.array([block.sketch_total for block in blocks], dtype=np.uint64),
    )


def bits(cut: ShardRows) -> list[tuple[Any, ...]]:
    """Equal if and only if every bit, type and shape is."""
    rows = cut.rows
    arrays = [rows.keys, rows.values, rows.states, rows.statistics, rows.last_versions, cut.deleted]
    counts = [cut.counts.tolist(), cut.deleted_counts.tolist()]
    arrays += [cut.sketches, cut.sketch_totals]
    return [*((array.dtype.name, array.shape, array.tobytes()) for array in arrays), *counts]


def reforge(
    path: Path,
    description: dict[str, Any],
    index: Callable[[NDArray[Any]], NDArray[Any] | None] = lambda records: None,
    schema: Callable[[dict[str, Any]], object] = lambda fields: None,
) -> dict[str, Any]:
    """Change a file's index or schema and make all checksums right again; its new description."""
    data = path.read_bytes()
    offset, length, _, _, _ = TRAILER.unpack(data[-TRAILER.size :])
    footer = data[offset : offset + length]
    stop = SCHEMA_LENGTH.size + int.from_bytes(footer[: SCHEMA_LENGTH.size], "little")
    fields = msgspec.json.decode(footer[SCHEMA_LENGTH.size : stop])
    schema(fields)
    records = np.frombuffer(footer, INDEX, offset=stop).copy()
    changed = index(records)
    records = records if changed is None else changed
    told = msgspec.json.encode(fields)
    return close(
        path, {**description, **fields}, data[:offset], [SCHEMA_LENGTH.pack(len(told)), told, records.tobytes()]
    )


def close(path: Path, description: dict[str, Any], blocks: bytes, footer_parts: list[bytes]) -> dict[str, Any]:
    """Write a file of these blocks and this footer, with right checksums; its description."""
    footer = b"".join(footer_parts)
    trailer = TRAILER.pack(len(blocks), len(footer), zlib.crc32(footer), FORMAT_VERSION, MAGIC)
    path.write_bytes(blocks + footer + trailer)
    return {**description, "bytes": len(blocks) + len(footer) + len(trailer)}
