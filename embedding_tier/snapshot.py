"""Writing a server's part of a checkpoint: plain `.npy` files, each with its size and checksum.

Per table: keys, values, optimizer states, statistics and last versions, row i of each being the same row. One block of
dense values, and one of their optimizer states. Nothing is deleted or replaced; the folder is the coordinator's, which
gives the checkpoint its name only when all parts are on the disk.
"""

from __future__ import annotations

import io
import os
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from embedding_tier.dense_blocks import DenseBlock
from embedding_tier.table import Table
from geartrain.errors import CheckpointError
from geartrain.files import flush

ROW_PARTS = ("keys", "values", "states", "statistics", "last_versions")
DENSE_PARTS = ("dense", "dense_states")

Description = dict[str, Any]


def write_table(directory: Path, table: Table, server: str) -> dict[str, Description]:
    """Write all rows of `table`, also when there are none; the descriptions of the files by their names.

    Appliers are kept out by the caller, pulls need not be. Raises `CheckpointError` when a file cannot be written.
    """
    records = table.store.export()
    arrays: dict[str, NDArray[Any]] = {part: getattr(records, part) for part in ROW_PARTS}
    files = {}
    for part, array in arrays.items():
        name = f"table-{quote(table.name, safe='')}.{server}.{part}.npy"
        files[name] = {
            **_write(directory / name, array),
            "server": server,
            "part": part,
            "table": table.name,
            "num_rows": len(records.keys),
            "dim": table.store.dim,
            "optimizer": table.optimizer.kind,
        }
    return files


def write_dense(directory: Path, block: DenseBlock, server: str) -> dict[str, Description]:
    """Write the dense block and its optimizer states; as `write_table`."""
    files = {}
    for part, array in zip(DENSE_PARTS, (block.values(), block.states()), strict=True):
        name = f"{part}.{server}.npy"
        files[name] = {
            **_write(directory / name, array),
            "server": server,
            "part": part,
            "start": block.start,
            "stop": block.stop,
            "optimizer": block.optimizer.kind,
        }
    return files


def flush_directory(directory: Path) -> None:
    """Have the folder's entries on the disk."""
    flush(directory)


def _write(path: Path, array: NDArray[Any]) -> Description:
    data = np.ascontiguousarray(array)
    header = io.BytesIO()
    npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(data))
    frames = (header.getbuffer(), data.reshape(-1).view(np.uint8).data)
    crc32 = 0
    try:
        with path.open("xb") as file:
            for frame in frames:
                file.write(frame)
                crc32 = zlib.crc32(frame, crc32)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror}", file=str(path)) from error
    return {"bytes": sum(len(frame) for frame in frames), "crc32": crc32}
