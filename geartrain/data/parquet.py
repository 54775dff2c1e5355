"""Parquet files: one chunk per row group, only the columns that are asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from geartrain.data.chunks import Chunk
from geartrain.data.textfile import reason_of, unreadable


class ParquetFile:
    """One parquet file. Safe to use from several threads."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Any = None
        self._lock = threading.Lock()

    def column_names(self) -> tuple[str, ...]:
        """Names of all top-level columns. Raises DataFileError when the file is no readable parquet file."""
        return tuple(self._opened().schema_arrow.names)

    def column_type(self, name: str) -> Any:
        """The arrow type of the column `name`."""
        return self._opened().schema_arrow.field(name).type

    def scan(self) -> list[Chunk]:
        """The row groups that have rows. Raises DataFileError."""
        metadata = self._opened().metadata
        chunks: list[Chunk] = []
        first_row = 0
        for row_group in range(metadata.num_row_groups):
            num_rows = metadata.row_group(row_group).num_rows
            if num_rows:
                chunks.append(Chunk(self._path, first_row, num_rows, 0, 0, row_group))
            first_row += num_rows
        return chunks

    def read(self, chunk: Chunk, names: Sequence[str]) -> dict[str, Any]:
        """Arrow arrays of the columns `names`. Raises DataFileError."""
        with self._lock_and_errors():
            table = self._opened_locked().read_row_group(chunk.row_group, columns=list(names), use_threads=False)
        if table.num_rows != chunk.num_rows:
            reason = f"{table.num_rows} rows found, {chunk.num_rows} expected"
            raise unreadable(chunk.file, "rows as they were when the file was indexed", reason)
        return {name: _one_array(table.column(name)) for name in names}

    def close(self) -> None:
        """Free the descriptor; the next call opens the file again."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _opened(self) -> Any:
        with self._lock_and_errors():
            return self._opened_locked()

    def _opened_locked(self) -> Any:
        if self._file is None:
            self._file = pq.ParquetFile(self._path)
        return self._file

    @contextmanager
    def _lock_and_errors(self) -> Iterator[None]:
        """Arrow's file reader serves one thread at a time; its errors become DataFileError."""
        with self._lock:
            try:
                yield
            # ValueError: names in a damaged footer that are no UTF-8.
            except (OSError, ValueError, pa.ArrowException) as error:
                raise unreadable(self._path, "a readable parquet file", reason_of(error)) from error


def _one_array(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
