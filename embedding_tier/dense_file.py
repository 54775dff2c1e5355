"""The files of one server's dense block: a `.npy` file of its values, and one of its optimizer states."""

from __future__ import annotations

import io
import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from embedding_tier.dense_blocks import DenseBlock
from embedding_tier.table_file import Description, refusal
from geartrain.errors import CheckpointError
from geartrain.types import Floats

DENSE_PARTS = ("dense", "dense_states")

MAX_HEADER_BYTES = 1 << 12


class DenseCut(NamedTuple):
    """Positions [start, stop) of the dense vector at one version: values float32[n], states float32[k, n]."""

    start: int
    stop: int
    optimizer: str
    values: Floats
    states: Floats

    @staticmethod
    def of(block: DenseBlock) -> DenseCut:
        """A copy of the block as it is now."""
        return DenseCut(block.start, block.stop, block.optimizer.kind, block.values(), block.states())


def write_dense(directory: Path, cut: DenseCut, server: str, version: int) -> dict[str, Description]:
    """Write the block's files, as it is at `version`, and have them on the disk; their descriptions by name.

    Raises `CheckpointError`.
    """
    files = {}
    for part, array in zip(DENSE_PARTS, (cut.values, cut.states), strict=True):
        name = f"{part}.{server}.npy"
        files[name] = {
            **_write(directory / name, array),
            "server": server,
            "part": part,
            "version": version,
            "start": cut.start,
            "stop": cut.stop,
            "optimizer": cut.optimizer,
        }
    return files


def read_dense(path: Path, what: str, description: Mapping[str, Any], shape: tuple[int, ...]) -> Floats:
    """The array of a file, float32 of this shape.

    Raises `CheckpointError` naming file and field when it cannot be read, is cut short or damaged, or of another shape.
    """
    num_bytes = math.prod(shape) * np.dtype(np.float32).itemsize
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(num_bytes + MAX_HEADER_BYTES)  # whatever the file says of itself
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}", file=str(path), field=what) from error
    for field, got in (("bytes", size), ("crc32", zlib.crc32(data))):
        if got != description.get(field):
            raise refusal(path, what, field, description.get(field), got)
    header, wanted = io.BytesIO(data), f"float32{list(shape)}"
    try:
        if npy.read_magic(header) != (1, 0):
            raise ValueError("not version 1.0")
        found_shape, in_fortran_order, dtype = npy.read_array_header_1_0(header)
    except Exception as error:  # numpy reads the header as Python source: damage can raise anything
        raise refusal(path, what, "header", wanted, str(error)) from error
    if found_shape != shape or dtype != np.float32 or in_fortran_order:
        raise refusal(path, what, "shape", wanted, f"{dtype.name}{list(found_shape)}")
    if size - header.tell() != num_bytes:
        raise refusal(path, what, "bytes", f"{num_bytes} behind the header", size - header.tell())
    return np.frombuffer(data, np.float32, offset=header.tell()).reshape(shape)


def _write(path: Path, array: Floats) -> Description:
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
