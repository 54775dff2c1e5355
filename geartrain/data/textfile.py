"""Text files as bytes, plain or compressed (.gz, .zst): as a stream for scanning, at any position for reading.

A compressed file cannot be read from the middle, so a reader first spools the decompressed bytes into an anonymous
temporary file, once.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa

from geartrain.data.lines import BOM, LineRange, RowEnds, cut
from geartrain.errors import DataFileError
from geartrain.types import Indices

MAX_CHUNK_ROWS = 262_144
MAX_CHUNK_BYTES = 64 << 20
"""Rows of a text chunk are bounded by both: files with thousands of bytes per row must fit in memory too."""
_BLOCK_BYTES = 4 << 20
_CODECS = {".gz": "gzip", ".zst": "zstd"}


class TextFile:
    """A text file with random access to its decompressed bytes. Safe to use from several threads."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def first_line(self) -> tuple[bytes, int]:
        """The first line that is not blank, without its line end, and the position just behind it.

        (b"", size) when there is none. Raises DataFileError when the file cannot be read, or the line has no end.
        """
        head, line, stop = b"", b"", 0
        for block in _blocks(self.path):
            head += block
            stop = _mark_bytes(head)
            while (newline := head.find(b"\n", stop)) >= 0:
                line = head[stop:newline].removesuffix(b"\r")
                stop = newline + 1
                if line:
                    return line, stop
            line = head[stop:].removesuffix(b"\r")
            if len(head) > MAX_CHUNK_BYTES:
                raise unreadable(self.path, "lines of text", f"no line end in the first {len(head)} bytes")
        return line, len(head)

    def scan(self, has_header: bool) -> list[LineRange]:
        """Ranges of whole rows, in file order; the header line belongs to none. Raises DataFileError."""
        start = self.first_line()[1] if has_header else self._mark_bytes()
        return list(cut(_row_ends(self.path, start), start, MAX_CHUNK_ROWS, MAX_CHUNK_BYTES))

    def read(self, start: int, stop: int) -> bytes:
        """The bytes [start, stop). Raises DataFileError when they are not there (any more)."""
        # One reader at a time, so that `close` cannot take the descriptor away in the middle.
        with self._lock, _readable(self.path):
            if self._file is None:
                self._file = _spool(self.path) if _codec(self.path) else Path(self.path).open("rb")  # noqa: SIM115
            data = bytearray(stop - start)
            filled = 0
            while filled < len(data):
                got = os.preadv(self._file.fileno(), [memoryview(data)[filled:]], start + filled)
                if got == 0:
                    raise OSError(f"it has less than {stop} bytes; it was longer when it was indexed")
                filled += got
        return bytes(data)

    def close(self) -> None:
        """Free the descriptor and the spooled bytes; the next `read` opens the file again."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _mark_bytes(self) -> int:
        head = b""
        for block in _blocks(self.path):
            head += block
            if len(head) >= len(BOM):
                break
        return _mark_bytes(head)


def unreadable(path: str, expected: str, reason: str) -> DataFileError:
    """The DataFileError for a file whose bytes are not what they must be."""
    message = f"{path}: expected {expected}: {reason}"
    return DataFileError(message, field="data", file=path, expected=expected, value=reason)


def reason_of(error: Exception) -> str:
    """What the file system or arrow said, in one line."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else " ".join(str(error).split())


def _codec(path: str) -> str | None:
    return _CODECS.get(Path(path).suffix)


def _mark_bytes(head: bytes) -> int:
    return len(BOM) if head.startswith(BOM) else 0


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn errors of the file system and of decompression into DataFileError."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        codec = _codec(path)
        raise unreadable(path, f"a readable {codec} file" if codec else "a readable file", reason_of(error)) from error


def _blocks(path: str) -> Iterator[bytes]:
    with _readable(path), pa.input_stream(path, compression=_codec(path)) as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield block


def _row_ends(path: str, start: int) -> Iterator[Indices]:
    scanner = RowEnds(start)
    position = 0
    for block in _blocks(path):
        skipped = max(0, min(len(block), start - position))
        position += len(block)
        yield scanner.feed(block[skipped:] if skipped else block)
    yield scanner.finish()


def _spool(path: str) -> IO[bytes]:
    spooled = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the TextFile
    try:
        for block in _blocks(path):
            spooled.write(block)
        spooled.flush()
    except BaseException:
        spooled.close()
        raise
    return spooled
