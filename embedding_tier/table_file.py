"""The format of the file that holds one table of one server: what the writer and the reader have in common.

    header    16 bytes: MAGIC, format version u32, 0 u32
    blocks    one per shard that has anything to tell, ascending, without gaps
    footer    bytes of the schema u32, the schema (JSON), one INDEX record per block
    trailer   32 bytes: offset u64 and bytes u64 of the footer, its crc32 u32, format version u32, MAGIC

Everything is little endian. A block is plain arrays, one after the other, in the order of `BlockLayout`; those of wide
elements come first, so that all of them are aligned when the block is.

Letters: R rows, X deleted keys, D dim, W optimizer state floats per row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from geartrain.checkpoint_layout import Count
from geartrain.errors import CheckpointError
from kernels.row_records import ROW_DTYPES

MAGIC = b"\x89GTROW\r\n"
"""A transfer that takes the file for text damages it."""
FORMAT_VERSION = 1
HEADER = struct.Struct("<8sII")
TRAILER = struct.Struct("<QQII8s")
SCHEMA_LENGTH = struct.Struct("<I")
INDEX = np.dtype(
    [
        ("shard", "<u4"),
        ("crc32", "<u4"),
        ("offset", "<u8"),
        ("num_bytes", "<u8"),
        ("num_rows", "<u8"),
        ("num_deleted", "<u8"),
        ("num_sketch_bytes", "<u8"),
    ]
)
MAX_FOOTER_BYTES = 1 << 20
TABLE_PART = "rows"
"""What the manifest calls such a file."""

Description = dict[str, Any]
"""What the manifest says of a file: bytes, crc32, server, part, and what belongs to the part."""


class TableSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the file is about.

    `kind`: *full* has all rows at `version`; *delta* has the rows that were updated since `base`, and the keys that had
    a row there and have none at `version`. `sketch_bytes`: of a shard's admission counters, which both kinds have in
    full; 0 without them, and a block without them has counted nothing.
    """

    table: str
    server: str
    dim: Count
    row_dtype: str
    optimizer: str
    state_width: Count
    sketch_bytes: Count
    kind: Literal["full", "delta"]
    version: Count
    base: Count | None


class BlockEntry(NamedTuple):
    """A shard's block: where it is and what it holds."""

    shard: int
    crc32: int
    offset: int
    num_bytes: int
    num_rows: int
    num_deleted: int
    num_sketch_bytes: int


class BlockLayout:
    """How the blocks of a file are laid out."""

    def __init__(self, schema: TableSchema) -> None:
        """`schema.row_dtype` must be known."""
        single = np.dtype("<f4")
        values = ROW_DTYPES[schema.row_dtype].newbyteorder("<")
        self._forms: tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...] = (
            ("keys", np.dtype("<u8"), ()),
            ("deleted", np.dtype("<u8"), ()),
            ("sketch_total", np.dtype("<u8"), ()),
            ("states", single, (schema.state_width,)),
            ("statistics", single, (2,)),
            ("last_versions", np.dtype("<u4"), ()),
            ("values", values, (schema.dim,)),
            ("sketch", np.dtype("u1"), ()),
        )
        self._row_bytes = 8 + 4 * schema.state_width + 8 + 4 + values.itemsize * schema.dim

    def num_bytes(self, num_rows: int, num_deleted: int, num_sketch_bytes: int) -> int:
        """The length of a block."""
        return num_rows * self._row_bytes + 8 * num_deleted + (8 + num_sketch_bytes if num_sketch_bytes else 0)

    def arrays(
        self, num_rows: int, num_deleted: int, num_sketch_bytes: int
    ) -> Iterator[tuple[str, np.dtype[Any], tuple[int, ...]]]:
        """Name, dtype and shape of the arrays of a block in their order; some are empty."""
        counts = {"deleted": num_deleted, "sketch_total": 1 if num_sketch_bytes else 0, "sketch": num_sketch_bytes}
        for name, dtype, row_shape in self._forms:
            yield name, dtype, (counts.get(name, num_rows), *row_shape)


def refusal(file: object, what: str, field: str, expected: object, got: object) -> CheckpointError:
    """The error for a file of a checkpoint, in the one wording that all of them use."""
    return CheckpointError(
        f"{file} ({what}): {field} is {got}, expected {expected}",
        file=str(file),
        field=f"{what}: {field}",
        expected=_for_the_wire(expected),
        got=_for_the_wire(got),
    )


def _for_the_wire(value: object) -> object:
    """What a message can carry of a value that a damaged file or manifest may have put here."""
    if isinstance(value, list):
        return [_for_the_wire(one) for one in value]
    is_plain = value is None or isinstance(value, bool | float | str)
    return value if is_plain or (isinstance(value, int) and abs(value) < 2**63) else str(value)
