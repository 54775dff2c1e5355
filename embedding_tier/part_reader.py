"""One `.npy` file of a checkpoint, read in chunks and checked against its description on the way."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from geartrain.errors import CheckpointError


class PartReader:
    """Reads one `.npy` file in chunks of rows and checks it against its description on the way."""

    def __init__(self, path: Path, what: str, description: Mapping[str, Any]) -> None:
        self._path = path
        self._what = what
        self._description = description
        try:
            self._file: BinaryIO = path.open("rb")
            self._size = path.stat().st_size
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}", file=str(path), field=what) from error
        self._crc32 = 0
        self._array_dtype: np.dtype[Any] = np.dtype(np.float32)
        self._row_shape: tuple[int, ...] = ()
        if self._size != description.get("bytes"):
            self._file.close()
            raise self._error("bytes", description.get("bytes"), self._size)

    def __enter__(self) -> PartReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def number(self, field: str) -> int:
        """A count in the file's description."""
        value = self._description.get(field)
        if not isinstance(value, int) or value < 0:
            raise self._error(field, "an integer >= 0", value)
        return value

    def expect(self, field: str, wanted: object) -> None:
        """Raises `CheckpointError` unless the file's description says so."""
        if self._description.get(field) != wanted:
            raise self._error(field, wanted, self._description.get(field))

    def open(self, dtype: type[np.generic], shape: tuple[int, ...]) -> None:
        """Read the header, which must be this one, with as many bytes behind it as the shape needs."""
        try:
            if npy.read_magic(self) != (1, 0):
                raise ValueError("not version 1.0")
            found, in_fortran_order, found_dtype = npy.read_array_header_1_0(self)
        except Exception as error:  # numpy reads the header as Python source: damage can raise anything
            raise self._error("header", f"{np.dtype(dtype).name}{list(shape)}", str(error)) from error
        if found != shape or found_dtype != dtype or in_fortran_order:
            raise self._error("shape", f"{np.dtype(dtype).name}{list(shape)}", f"{found_dtype.name}{list(found)}")
        wanted, rest = math.prod(shape) * found_dtype.itemsize, self._size - self._file.tell()
        if rest != wanted:
            raise self._error("bytes", f"{wanted} behind the header", rest)
        self._array_dtype = found_dtype
        self._row_shape = shape[1:]

    def rows(self, num_rows: int) -> NDArray[Any]:
        """The next rows."""
        shape = (num_rows, *self._row_shape)
        wanted = math.prod(shape) * self._array_dtype.itemsize
        data = self.read(wanted)
        if len(data) != wanted:
            raise self._error("bytes", f"{wanted} more", len(data))
        return np.frombuffer(data, self._array_dtype).reshape(shape) if data else np.empty(shape, self._array_dtype)

    def close_checked(self) -> None:
        """After the last row: raises `CheckpointError` when the checksum is another."""
        if self._crc32 != self._description.get("crc32"):
            raise self._error("crc32", self._description.get("crc32"), self._crc32)

    def whole(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """The whole file, float32 of this shape."""
        self.open(np.float32, shape)
        rows = self.rows(shape[0])
        self.close_checked()
        return rows

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, counted into the checksum."""
        data = self._file.read(size)
        self._crc32 = zlib.crc32(data, self._crc32)
        return data

    def _error(self, field: str, expected: object, got: object) -> CheckpointError:
        return CheckpointError(
            f"{self._path} ({self._what}): {field} is {got}, expected {expected}",
            file=str(self._path),
            field=f"{self._what}: {field}",
            expected=expected,
            got=got,
        )
