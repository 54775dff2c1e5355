"""Writing the file of one table of one server, a few shards at a time (the format: `table_file`)."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from embedding_tier.table_file import (
    FORMAT_VERSION,
    HEADER,
    INDEX,
    MAGIC,
    SCHEMA_LENGTH,
    TABLE_PART,
    TRAILER,
    BlockEntry,
    BlockLayout,
    Description,
    TableSchema,
)
from geartrain.errors import CheckpointError
from kernels.row_records import ShardRows

FLUSH_BYTES = 64 << 20
"""Bytes that may wait for the disk: it is never asked for gigabytes at once, and what is told as written is there."""


class TableWriter:
    """Writes one file, which must not exist. Left by an exception, or without `finish`, it removes the file."""

    def __init__(self, path: Path, schema: TableSchema, flushed: Callable[[], None] = lambda: None) -> None:
        """`flushed` is called whenever what was written is on the disk. Raises `CheckpointError`."""
        self._path = path
        self._schema = schema
        self._layout = BlockLayout(schema)
        self._flushed = flushed
        self._entries: list[BlockEntry] = []
        self._num_bytes = 0
        self._num_waiting_bytes = 0
        self._crc32 = 0
        self._finished = False
        try:
            self._file = path.open("xb", buffering=1 << 20)
        except OSError as error:
            raise self._unwritable(error) from error

    def __enter__(self) -> TableWriter:
        self._write(HEADER.pack(MAGIC, FORMAT_VERSION, 0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            self._path.unlink(missing_ok=True)
        try:
            self._file.close()
        except OSError as unwritten:
            if error is None:
                raise self._unwritable(unwritten) from unwritten

    def append(self, first_shard: int, cut: ShardRows) -> None:
        """Write the blocks of shards that follow the last ones. Raises `CheckpointError`."""
        rows, row_stops, deleted_stops = cut.rows, np.cumsum(cut.counts), np.cumsum(cut.deleted_counts)
        has_sketch = cut.sketches.any(axis=1) | ((cut.sketch_totals > 0) & (cut.sketches.shape[1] > 0))
        for place in np.flatnonzero((cut.counts > 0) | (cut.deleted_counts > 0) | has_sketch).tolist():
            mine = slice(int(row_stops[place] - cut.counts[place]), int(row_stops[place]))
            gone = slice(int(deleted_stops[place] - cut.deleted_counts[place]), int(deleted_stops[place]))
            one = slice(place, place + 1 if has_sketch[place] else place)
            self._append_block(
                first_shard + place,
                {
                    "keys": rows.keys[mine],
                    "deleted": cut.deleted[gone],
                    "sketch_total": cut.sketch_totals[one],
                    "states": rows.states[mine],
                    "statistics": rows.statistics[mine],
                    "last_versions": rows.last_versions[mine],
                    "values": rows.values[mine],
                    "sketch": cut.sketches[one].reshape(-1),
                },
            )

    def finish(self) -> Description:
        """Write what finds the blocks, have all of it on the disk; the file's description for the manifest."""
        schema = msgspec.json.encode(self._schema)
        footer = b"".join([SCHEMA_LENGTH.pack(len(schema)), schema, np.array(self._entries, dtype=INDEX).tobytes()])
        offset = self._num_bytes
        self._write(footer)
        self._write(TRAILER.pack(offset, len(footer), zlib.crc32(footer), FORMAT_VERSION, MAGIC))
        self._flush()
        self._finished = True
        return {
            "bytes": self._num_bytes,
            "crc32": self._crc32,
            "part": TABLE_PART,
            "num_rows": sum(entry.num_rows for entry in self._entries),
            "num_deleted": sum(entry.num_deleted for entry in self._entries),
            **msgspec.to_builtins(self._schema),
        }

    def _append_block(self, shard: int, arrays: dict[str, NDArray[Any]]) -> None:
        counts = (len(arrays["keys"]), len(arrays["deleted"]), len(arrays["sketch"]))
        offset, crc32 = self._num_bytes, 0
        for name, dtype, _ in self._layout.arrays(*counts):
            data = np.ascontiguousarray(arrays[name], dtype=dtype).reshape(-1).view(np.uint8).data
            crc32 = zlib.crc32(data, crc32)
            self._write(data)
            os.sched_yield()  # pulls come first: one that waits for this core need not wait for a whole time slice
        self._entries.append(BlockEntry(shard, crc32, offset, self._num_bytes - offset, *counts))
        if self._num_waiting_bytes >= FLUSH_BYTES:
            self._flush()

    def _write(self, data: bytes | memoryview) -> None:
        self._crc32 = zlib.crc32(data, self._crc32)
        self._num_bytes += len(data)
        self._num_waiting_bytes += len(data)
        try:
            self._file.write(data)
        except OSError as error:
            raise self._unwritable(error) from error

    def _flush(self) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritable(error) from error
        self._num_waiting_bytes = 0
        self._flushed()

    def _unwritable(self, error: OSError) -> CheckpointError:
        return CheckpointError(f"{self._path} cannot be written: {error.strerror}", file=str(self._path))
