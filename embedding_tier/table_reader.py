"""Reading the file of one table of one server: first what it says of itself, then single blocks of it.

Whatever the file says is compared with its size before memory is taken for it, and a block is used only when its
checksum is right and its keys are of its shard.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from embedding_tier.table_file import (
    FORMAT_VERSION,
    HEADER,
    INDEX,
    MAGIC,
    MAX_FOOTER_BYTES,
    SCHEMA_LENGTH,
    TRAILER,
    BlockEntry,
    BlockLayout,
    TableSchema,
    refusal,
)
from geartrain.errors import CheckpointError
from geartrain.types import NUM_SHARDS, Keys
from kernels.hashing import shard_of
from kernels.row_records import ROW_DTYPES, RowRecords


class Block(NamedTuple):
    """The content of one shard. `deleted` are keys without a row; `sketch` uint8[n], n = 0 when nothing was counted."""

    rows: RowRecords
    deleted: Keys
    sketch: NDArray[np.uint8]
    sketch_total: int


class TableReader:
    """An open file: its `schema`, its `entries` by shard, and `read` for the content of one."""

    def __init__(self, path: Path, description: Mapping[str, Any]) -> None:
        """`description`: what the manifest says of the file.

        Raises `CheckpointError` naming file and field when it cannot be read, is cut short or damaged, or is another
        file than the manifest describes.
        """
        self._path = path
        self._what = f"table {description.get('table')}"
        try:
            self._file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise CheckpointError(
                f"{path} cannot be read: {error.strerror}", file=str(path), field=self._what
            ) from error
        try:
            size = os.fstat(self._file).st_size
            self.expect("bytes", description.get("bytes"), size)
            footer_at, footer = self._read_footer(size)
            self.schema, index = self._parse(footer)
            for field, value in msgspec.to_builtins(self.schema).items():
                self.expect(field, description.get(field), value)
            self._check_schema()
            self._layout = BlockLayout(self.schema)
            self.entries = self._checked(index, footer_at)
            for field in ("num_rows", "num_deleted"):
                found = sum(getattr(entry, field) for entry in self.entries.values())
                self.expect(field, description.get(field), found)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> TableReader:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def expect(self, field: str, expected: object, got: object) -> None:
        """Raises `CheckpointError` unless `got` is what is expected."""
        self._require(got == expected, field, expected, got)

    def read(self, shard: int) -> Block:
        """The content of a shard, in memory of its own; an empty one when the file has no block of it.

        Raises `CheckpointError` when the block is damaged.
        """
        entry = self.entries.get(shard, BlockEntry(shard, 0, 0, 0, 0, 0, 0))
        data = self._read(entry.offset, entry.num_bytes)
        self.expect(f"crc32 of shard {shard}", entry.crc32, zlib.crc32(data.data))
        arrays: dict[str, NDArray[Any]] = {}
        at = 0
        for name, dtype, shape in self._layout.arrays(entry.num_rows, entry.num_deleted, entry.num_sketch_bytes):
            part = np.ndarray(shape, dtype, data.data, at)
            arrays[name] = part if dtype.isnative else part.astype(dtype.newbyteorder("="))
            at += part.nbytes
        for name in ("keys", "deleted"):
            strange = arrays[name][shard_of(arrays[name]) != shard]
            if len(strange):
                raise refusal(self._path, self._what, f"{name} of shard {shard}", "keys of this shard", int(strange[0]))
        rows = RowRecords(*(arrays[name] for name in ("keys", "values", "states", "statistics", "last_versions")))
        return Block(rows, arrays["deleted"], arrays["sketch"], int(arrays["sketch_total"].sum()))

    def _require(self, holds: bool, field: str, expected: object, got: object) -> None:
        if not holds:
            raise refusal(self._path, self._what, field, expected, got)

    def _read_footer(self, size: int) -> tuple[int, bytes]:
        """Where the footer is, and its bytes."""
        least = HEADER.size + TRAILER.size
        self._require(size >= least, "bytes", f"at least {least}", size)
        magic, version, reserved = HEADER.unpack(self._read(0, HEADER.size).tobytes())
        self._identify("header", magic, version)
        self.expect("reserved field of the header", 0, reserved)
        offset, length, crc32, version, magic = TRAILER.unpack(self._read(size - TRAILER.size, TRAILER.size).tobytes())
        self._identify("trailer", magic, version)
        self._require(length <= min(MAX_FOOTER_BYTES, size - least), "bytes of the footer", "no more than fit", length)
        self.expect("offset of the footer", size - TRAILER.size - length, offset)
        footer = self._read(offset, length).tobytes()
        self.expect("crc32 of the footer", crc32, zlib.crc32(footer))
        return offset, footer

    def _identify(self, where: str, magic: bytes, version: int) -> None:
        self.expect(f"magic of the {where}", MAGIC.hex(), magic.hex())
        self.expect(f"format version of the {where}", FORMAT_VERSION, version)

    def _parse(self, footer: bytes) -> tuple[TableSchema, list[BlockEntry]]:
        stop = SCHEMA_LENGTH.size + int.from_bytes(footer[: SCHEMA_LENGTH.size], "little")
        rest = len(footer) - stop
        whole = rest >= 0 and rest % INDEX.itemsize == 0
        self._require(whole, "bytes of the schema", "so many that whole index records follow", stop)
        try:
            schema = msgspec.json.decode(footer[SCHEMA_LENGTH.size : stop], type=TableSchema)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise refusal(self._path, self._what, "schema", "a table's schema", str(error)) from error
        return schema, [BlockEntry(*entry) for entry in np.frombuffer(footer, INDEX, offset=stop).tolist()]

    def _check_schema(self) -> None:
        schema = self.schema
        self._require(schema.row_dtype in ROW_DTYPES, "row_dtype", ", ".join(ROW_DTYPES), schema.row_dtype)
        follows = schema.base is None if schema.kind == "full" else schema.base is not None
        self._require(follows, "base", "a version in a delta, and only there", schema.base)

    def _checked(self, index: list[BlockEntry], footer_at: int) -> dict[int, BlockEntry]:
        """The index by shard, if its blocks fill the file from header to footer and are as long as they must be."""
        at, last_shard = HEADER.size, -1
        for entry in index:
            what = f"shard {entry.shard}"
            follows = last_shard < entry.shard < NUM_SHARDS
            self._require(follows, "shards of the index", f"ascending, below {NUM_SHARDS}", entry.shard)
            self.expect(f"offset of {what}", at, entry.offset)
            sketch_bytes = self.schema.sketch_bytes if entry.num_sketch_bytes else 0
            self.expect(f"sketch bytes of {what}", sketch_bytes, entry.num_sketch_bytes)
            if self.schema.kind == "full":
                self.expect(f"deleted keys of {what}", 0, entry.num_deleted)
            wanted = self._layout.num_bytes(entry.num_rows, entry.num_deleted, entry.num_sketch_bytes)
            self.expect(f"bytes of {what}", wanted, entry.num_bytes)
            at, last_shard = at + entry.num_bytes, entry.shard
        self.expect("offset of the footer", at, footer_at)
        return {entry.shard: entry for entry in index}

    def _read(self, offset: int, num_bytes: int) -> NDArray[np.uint8]:
        data = np.empty(num_bytes, dtype=np.uint8)
        done = 0
        try:
            while done < num_bytes and (count := os.preadv(self._file, [data.data[done:]], offset + done)):
                done += count
        except OSError as error:
            raise refusal(self._path, self._what, "bytes", "readable ones", str(error.strerror)) from error
        self.expect(f"bytes at {offset}", num_bytes, done)
        return data
