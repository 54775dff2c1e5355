"""Reading a split batch by batch: chunks are decoded once, kept within a budget, and decoded ahead when asked."""

from __future__ import annotations

import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from geartrain.config import JobConfig
from geartrain.data.batch import Batch
from geartrain.data.chunks import Chunk, DatasetIndex
from geartrain.data.decode import DecodedChunk, assemble, read_chunk
from geartrain.data.files import OpenFiles
from geartrain.data.permutation import PassOrder
from geartrain.data.schema import DataSchema

DEFAULT_CACHE_BYTES = 512 << 20
LAST_CHUNKS = 2
"""The chunks asked for last stay in memory, however large: one that batches are cut from, and the one decoded ahead."""
DECODE_NICENESS = 10
"""Of the thread that decodes ahead, on Linux (0 is usual, 19 gives way to everything)."""


class ChunkCache:
    """Decoded chunks within a budget of bytes; the least recently used go first. Safe to use from several threads.

    The `LAST_CHUNKS` asked for last always stay. Two threads that ask for the same chunk decode it once.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._entries: OrderedDict[Chunk, Future[DecodedChunk]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, chunk: Chunk, load: Callable[[], DecodedChunk]) -> DecodedChunk:
        """The chunk, from `load()` when it is not here. What `load` raises is raised to all who wait for it, and is not
        kept: the next call tries again."""
        with self._lock:
            entry = self._entries.get(chunk)
            is_mine = entry is None
            if entry is None:
                entry = self._entries[chunk] = Future()
            self._entries.move_to_end(chunk)
        if is_mine:
            try:
                entry.set_result(load())
            except BaseException as error:
                entry.set_exception(error)
            self._evict()
        try:
            return entry.result()
        except BaseException:
            with self._lock:
                if self._entries.get(chunk) is entry:
                    del self._entries[chunk]
            raise

    @property
    def num_bytes(self) -> int:
        """Bytes of all decoded chunks here."""
        with self._lock:
            return sum(_num_bytes(entry) for entry in self._entries.values())

    def _evict(self) -> None:
        with self._lock:
            total = sum(_num_bytes(entry) for entry in self._entries.values())
            for chunk in list(self._entries)[:-LAST_CHUNKS]:
                if total <= self._budget_bytes:
                    return
                # A chunk that is still being decoded has no size yet, and somebody waits for it.
                if self._entries[chunk].done():
                    total -= _num_bytes(self._entries.pop(chunk))


def _num_bytes(entry: Future[DecodedChunk]) -> int:
    return entry.result().num_bytes if entry.done() and entry.exception() is None else 0


def give_way() -> None:
    """Let the thread that decodes ahead use what the step leaves of the cores: its chunk is not needed yet."""
    if sys.platform.startswith("linux"):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), DECODE_NICENESS)


class SplitReader:
    """Batches of one split of a job. Safe to use from several threads; close it to free files and the thread."""

    def __init__(
        self, index: DatasetIndex, config: JobConfig, split: str, cache: ChunkCache | None = None, labeled: bool = True
    ) -> None:
        """`cache` may be shared by the readers of one job; without `labeled`, files need no label (it becomes 0)."""
        self.schema = DataSchema.from_config(config, index.standard, labeled)
        self._chunks = index.chunks(split)
        self._files = OpenFiles(self.schema)
        self._cache = cache if cache is not None else ChunkCache(DEFAULT_CACHE_BYTES)
        self._ahead = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"decode-{split}", initializer=give_way)

    @property
    def chunk_rows(self) -> list[int]:
        """Rows of each chunk, for `PassOrder`."""
        return [chunk.num_rows for chunk in self._chunks]

    def batch(self, order: PassOrder, start: int, stop: int) -> Batch:
        """The samples at positions [start, stop) of `order`. Raises BadRowError, DataFileError or ValueError."""
        pieces = [(self._decoded(chunk), rows) for chunk, rows in order.locate(start, stop)]
        return assemble(pieces, self.schema)

    def prefetch(self, chunk_number: int) -> None:
        """Decode a chunk in the background. The `batch` that needs the chunk meets a failure again, and raises it."""
        self._ahead.submit(self._decoded, chunk_number)

    def close(self) -> None:
        """Wait for the chunk that is being decoded ahead and drop the rest; no batch may be asked for afterwards."""
        self._ahead.shutdown(wait=True, cancel_futures=True)
        self._files.close()

    def _decoded(self, chunk_number: int) -> DecodedChunk:
        chunk = self._chunks[chunk_number]
        return self._cache.get(chunk, lambda: read_chunk(chunk, self.schema, self._files))
