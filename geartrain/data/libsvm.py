"""libsvm files: `label id:value id:value ...`, one sample per line, read as two columns, the label and one sequence.

The ids of a line, as strings, are the values of the config's only feature, a sequence. The values behind the colons
must be 1: a sample is a set of ids here, and a weight that is not used must not be ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geartrain.data.chunks import Chunk
from geartrain.data.columns import Origin
from geartrain.data.hashing import null_mask
from geartrain.data.textfile import TextFile, unreadable


class LibsvmFile:
    """One libsvm file with the columns `label` (or None when nobody reads it) and `ids`. Safe to use from threads."""

    def __init__(self, path: str, label: str | None, ids: str) -> None:
        self._file = TextFile(path)
        self._path = path
        self._label = label
        self._ids = ids

    def column_names(self) -> tuple[str, ...]:
        return (self._ids,) if self._label is None else (self._label, self._ids)

    def column_type(self, name: str) -> Any:
        return pa.string() if name == self._label else pa.list_(pa.string())

    def scan(self) -> list[Chunk]:
        """The chunks of the file. Raises DataFileError when it cannot be read."""
        return [
            Chunk(self._path, part.first_row, part.num_rows, part.start, part.stop, row_group=-1)
            for part in self._file.scan(has_header=False)
        ]

    def read(self, chunk: Chunk, names: Sequence[str]) -> dict[str, Any]:
        """The label as strings and the ids as lists of strings. Raises BadRowError or DataFileError."""
        origin = Origin(chunk.file, chunk.first_row)
        lines = _lines(self._file.read(chunk.byte_start, chunk.byte_stop), origin)
        if len(lines) != chunk.num_rows:
            reason = f"{len(lines)} rows found, {chunk.num_rows} expected"
            raise unreadable(chunk.file, "rows as they were when the file was indexed", reason)
        words = pc.ascii_split_whitespace(pc.ascii_trim_whitespace(lines))
        lengths = words.value_lengths().to_numpy(zero_copy_only=False)
        starts = np.cumsum(lengths) - lengths
        flat = words.flatten()
        is_pair = np.ones(len(flat), dtype=np.bool_)
        is_pair[starts] = False
        pairs = flat.filter(pa.array(is_pair))
        rows = np.repeat(np.arange(len(lengths)), lengths - 1)
        ids = _ids(pairs, rows, self._ids, origin)
        offsets = np.concatenate([np.zeros(1, dtype=np.int32), np.cumsum(lengths - 1, dtype=np.int32)])
        found = {self._ids: pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ids)}
        if self._label is not None:
            found[self._label] = flat.take(pa.array(starts))
        return {name: found[name] for name in names}

    def close(self) -> None:
        self._file.close()


def _lines(data: bytes, origin: Origin) -> Any:
    """A string array of the lines that are not blank."""
    codes = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    if len(codes) and codes[-1] != ord("\n"):
        ends = np.append(ends, len(codes))
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1] + 1])
    # A line end is dropped with the white space around the words, so the offsets need not skip it.
    offsets = np.append(starts, len(codes)).astype(np.int64)
    lines = pa.Array.from_buffers(pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    lengths = ends - starts
    blank = (lengths == 0) | ((lengths == 1) & (codes[starts] == ord("\r")))
    if blank.any():
        lines = lines.filter(pa.array(~blank))
    try:
        return lines.cast(pa.large_string())
    except pa.ArrowInvalid:
        for row, line in enumerate(lines):
            try:
                line.as_py().decode()
            except UnicodeDecodeError:
                origin.refuse(row, "(whole row)", line.as_py().strip().decode(errors="backslashreplace"), "UTF-8 text")
        raise


def _ids(pairs: Any, rows: Any, column: str, origin: Origin) -> Any:
    """The ids of words `id:value`, whose values must be 1. `rows` int64: the row of each word."""
    parts = pc.extract_regex(pairs, r"^(?P<id>[^:]+):\+?1(?:\.0*)?$")
    wrong = null_mask(parts)
    if wrong.any():
        word = int(np.argmax(wrong))
        origin.refuse(int(rows[word]), column, pairs[word].as_py(), "id:value with the value 1")
    return parts.field(0)
