"""One interface for data files of all formats, and the open files of a reader."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

from geartrain.data.chunks import Chunk
from geartrain.data.csv import CsvFile
from geartrain.data.libsvm import LibsvmFile
from geartrain.data.parquet import ParquetFile
from geartrain.data.schema import DataSchema


class DataFile(Protocol):
    """A data file as named columns of arrow arrays, chunk by chunk."""

    def column_names(self) -> tuple[str, ...]: ...

    def column_type(self, name: str) -> Any: ...

    def scan(self) -> list[Chunk]: ...

    def read(self, chunk: Chunk, names: Sequence[str]) -> dict[str, Any]: ...

    def close(self) -> None: ...


def open_file(path: str, schema: DataSchema) -> DataFile:
    """The file at `path` in the schema's format; nothing is read yet."""
    if schema.format == "parquet":
        return ParquetFile(path)
    if schema.format == "libsvm":
        label = None if schema.label is None else schema.label.column
        return LibsvmFile(path, label, schema.slots[0].name)
    return CsvFile(path, schema.text)


_MAX_OPEN = 64


class OpenFiles:
    """The files that were used last stay open, and compressed ones spooled. Safe to use from several threads."""

    def __init__(self, schema: DataSchema) -> None:
        self._schema = schema
        self._files: OrderedDict[str, DataFile] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str) -> DataFile:
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = open_file(path, self._schema)
            self._files.move_to_end(path)
            unused = self._files.popitem(last=False)[1] if len(self._files) > _MAX_OPEN else None
        # A thread that still reads it only makes it open once more.
        if unused is not None:
            unused.close()
        return file

    def close(self) -> None:
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()
