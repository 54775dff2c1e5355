"""Text files with columns (csv, tsv, any one-character separator): one row per line, quoted with double quotes.

A quoted field may hold the separator and doubled quotes but no newline. Every value is read as a string and converted
by `geartrain.data.columns`, so that an error names the row, the column and the value as they stand in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.csv as pacsv

from geartrain.data.chunks import Chunk
from geartrain.data.columns import Origin
from geartrain.data.lines import BOM, rows_of
from geartrain.data.schema import TextRules
from geartrain.data.textfile import TextFile, unreadable

_QUOTE = '"'
_PARSE_BLOCK_BYTES = 1 << 20
"""Arrow parses a chunk block by block: a block that fits the processor's cache is twice as fast as a whole chunk."""


class CsvFile:
    """One file of rows with columns. Safe to use from several threads."""

    def __init__(self, path: str, rules: TextRules) -> None:
        self._file = TextFile(path)
        self._path = path
        self._rules = rules
        self._names: tuple[str, ...] | None = None

    def column_names(self) -> tuple[str, ...]:
        """Names of all columns of the file. Raises DataFileError when the header line cannot be read."""
        if self._names is None:
            self._names = self._rules.columns or tuple(self._header())
        return self._names

    def column_type(self, name: str) -> Any:
        """The arrow type of the column `name`: text files know strings only."""
        return pa.string()

    def scan(self) -> list[Chunk]:
        """The chunks of the file. Raises DataFileError when it cannot be read or its first row has a wrong length."""
        names = self.column_names()
        has_header = self._rules.columns is None
        if not has_header:
            self._check_first_row(len(names))
        return [
            Chunk(self._path, part.first_row, part.num_rows, part.start, part.stop, row_group=-1)
            for part in self._file.scan(has_header)
        ]

    def read(self, chunk: Chunk, names: Sequence[str]) -> dict[str, Any]:
        """String arrays of the columns `names`. Raises BadRowError or DataFileError."""
        data = self._file.read(chunk.byte_start, chunk.byte_stop)
        reader = _ChunkText(data, chunk, self.column_names(), self._rules.separator)
        return reader.columns(names)

    def close(self) -> None:
        self._file.close()

    def _header(self) -> list[str]:
        line, _ = self._file.first_line()
        expected = f"a header line with column names separated by {self._rules.separator!r}"
        if not line:
            raise unreadable(self._path, expected, "the file is empty")
        try:
            names = split_row(line.decode(), self._rules.separator)
        except UnicodeDecodeError as error:
            raise unreadable(self._path, "UTF-8 text", str(error)) from error
        if names is None:
            raise unreadable(self._path, expected, "a quote in it is not closed")
        return [name.strip() for name in names] if self._rules.strip_whitespace else names

    def _check_first_row(self, num_columns: int) -> None:
        line, _ = self._file.first_line()
        fields = split_row(line.decode(errors="replace"), self._rules.separator)
        if line and fields is not None and len(fields) != num_columns:
            expected = f"{num_columns} columns, as data.columns names them"
            raise unreadable(self._path, expected, f"its first row has {len(fields)}")


def split_row(line: str, separator: str) -> list[str] | None:
    """The fields of one line by the reader's rules, or None when a quote is not closed in it."""
    fields: list[str] = []
    place = 0
    while True:
        value = ""
        if line.startswith(_QUOTE, place):
            place += 1
            while True:
                close = line.find(_QUOTE, place)
                if close < 0:
                    return None
                value += line[place:close]
                place = close + 1
                if not line.startswith(_QUOTE, place):
                    break
                value += _QUOTE
                place += 1
        stop = line.find(separator, place)
        fields.append(value + (line[place:] if stop < 0 else line[place:stop]))
        if stop < 0:
            return fields
        place = stop + 1


class _ChunkText:
    """The parsing of one chunk; when it fails, a second, slow look at the lines finds out where."""

    def __init__(self, data: bytes, chunk: Chunk, names: tuple[str, ...], separator: str) -> None:
        self._data = data
        self._chunk = chunk
        self._origin = Origin(chunk.file, chunk.first_row)
        self._names = names
        self._separator = separator

    def columns(self, names: Sequence[str]) -> dict[str, Any]:
        data = self._data
        self._refuse_stray_returns()
        if _QUOTE.encode() in data:
            self._refuse_open_quote_at_end()
        # Columns go by place: names may be odd, and columns that nobody reads may share one.
        places = {name: str(self._names.index(name)) for name in names}
        wrong_lengths: list[int] = []
        try:
            table = self._parse(list(places.values()), wrong_lengths, _PARSE_BLOCK_BYTES)
        except pa.ArrowInvalid:
            try:
                # Perhaps a row was longer than a block.
                table = self._parse(list(places.values()), wrong_lengths, len(data) + len(BOM) + 1)
            except pa.ArrowInvalid as error:
                self._refuse_row_with_fault(names, str(error))
        # Arrow's own row numbers are wrong behind a quoted newline.
        if wrong_lengths or table.num_rows != self._chunk.num_rows:
            self._refuse_row_with_fault(names, f"{table.num_rows} rows found, {self._chunk.num_rows} expected")
        return {name: table.column(place).combine_chunks() for name, place in places.items()}

    def _parse(self, places: list[str], wrong_lengths: list[int], block_bytes: int) -> Any:
        def skip(row: Any) -> str:
            wrong_lengths.append(row.actual_columns)
            return "skip"

        # Arrow would drop this mark from the first value of any chunk.
        data = BOM + self._data if self._data.startswith(BOM) else self._data
        return pacsv.read_csv(
            pa.py_buffer(data),
            read_options=pacsv.ReadOptions(
                use_threads=False,
                block_size=block_bytes,
                column_names=[str(place) for place in range(len(self._names))],
            ),
            parse_options=pacsv.ParseOptions(delimiter=self._separator, invalid_row_handler=skip),
            convert_options=pacsv.ConvertOptions(
                include_columns=places,
                column_types=dict.fromkeys(places, pa.string()),
                strings_can_be_null=False,
            ),
        )

    def _refuse_stray_returns(self) -> None:
        """A carriage return inside a line would be taken for a line end."""
        if b"\r" in self._data and self._data.count(b"\r") != self._data.count(b"\r\n"):
            for row, line in enumerate(rows_of(self._data)):
                if b"\r" in line:
                    self._refuse_line(row, line, "no carriage return inside a row")

    def _refuse_open_quote_at_end(self) -> None:
        """An open quote elsewhere swallows a line end and so changes the number of rows; at the end it does not."""
        last = rows_of(self._data[self._data.rstrip(b"\r\n").rfind(b"\n") + 1 :])[-1]
        if split_row(last.decode(errors="replace"), self._separator) is None:
            self._refuse_line(self._chunk.num_rows - 1, last, "quotes closed in the same line")

    def _refuse_row_with_fault(self, names: Sequence[str], reason: str) -> NoReturn:
        places = {name: self._names.index(name) for name in names}
        for row, line in enumerate(rows_of(self._data)):
            fields = split_row(line.decode("latin-1"), self._separator)
            if fields is None:
                self._refuse_line(row, line, "quotes closed in the same line")
            if len(fields) != len(self._names):
                first_missing = self._names[min(len(fields), len(self._names) - 1)]
                expected = f"{len(self._names)} columns"
                self._origin.refuse(row, first_missing, f"{len(fields)} columns", expected)
            for name, place in places.items():
                value = fields[place].encode("latin-1")
                try:
                    value.decode()
                except UnicodeDecodeError:
                    self._origin.refuse(row, name, value.decode(errors="backslashreplace"), "UTF-8 text")
        raise unreadable(self._chunk.file, "rows as they were when the file was indexed", reason)

    def _refuse_line(self, row: int, line: bytes, expected: str) -> NoReturn:
        self._origin.refuse(row, "(whole row)", line.decode(errors="backslashreplace"), expected)
