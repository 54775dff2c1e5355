"""A server's part of a checkpoint: the state of one version, written by a thread of its own while the job goes on.

`Snapshot.begin` fixes the state and takes no longer than a window; from then on stores keep what changes until it was
written. The folder is the coordinator's, which gives the checkpoint its name only when all parts are on the disk.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from embedding_tier.dense_file import DenseCut, write_dense
from embedding_tier.job_state import JobState
from embedding_tier.table import Table
from embedding_tier.table_file import Description, TableSchema
from embedding_tier.table_writer import TableWriter
from geartrain.errors import CheckpointError, DeadlineError, GeartrainError
from geartrain.files import flush
from geartrain.types import NUM_SHARDS, Indices
from geartrain.wire.messages import FromNode, NodeFailed, SnapshotBegun, SnapshotTaken, TakeSnapshot

CHUNK_ROWS = 1 << 14
"""Rows that are copied at once: appliers wait for a millisecond or two."""
CHUNK_SKETCH_BYTES = 1 << 22
STALL_S = 120.0
"""A writer that brought nothing to the disk for this long has failed: even a disk of half a megabyte per second takes
`table_writer.FLUSH_BYTES` in such a time. The whole may take as long as its size needs."""
STOP_DEADLINE_S = 15.0
"""How long a cancelled writer may take to end; the coordinator waits a little longer for the job to be closed."""

_log = logging.getLogger(__name__)


class _Cancelled(Exception):
    """Raised in the writer's thread to leave it."""


class TableCut(NamedTuple):
    """A cut of a table's store that has begun, and the shard ranges in which it is read."""

    table: Table
    schema: TableSchema
    ranges: list[tuple[int, int]]


class Snapshot:
    """One snapshot of the open job. `begin`, `answer` and `cancel` are for the thread that decides."""

    def __init__(self, job: JobState, job_name: str, server: str, message: TakeSnapshot) -> None:
        self._job = job
        self._job_name = job_name
        self._server = server
        self._message = message
        self._directory = Path(message.directory)
        self._tables: list[TableCut] = []
        self._dense: DenseCut | None = None
        self._cancelled = threading.Event()
        self._outcome: FromNode | None = None
        self._moved_s = 0.0
        self._thread: threading.Thread | None = None

    @property
    def id(self) -> tuple[int, int]:
        return self._message.term, self._message.snapshot

    @property
    def is_running(self) -> bool:
        """Whether it is still being written."""
        return self._outcome is None and self._thread is not None and self._thread.is_alive()

    def begin(self, tell: Callable[[FromNode], None]) -> None:
        """Fix the state that is written and start to write it. Windows may be applied again when this returns.

        The writer's thread hands its answer, `SnapshotTaken` or `NodeFailed`, to `tell`, unless it is cancelled. Raises
        whatever the tables raise, RuntimeError without a thread, and nothing has begun then.
        """
        job = self._job
        try:
            with job.lock.writing():
                for table in job.tables:
                    self._tables.append(self._begin_table(table))
                self._dense = DenseCut.of(job.dense) if job.dense is not None else None
            self._moved()
            thread = threading.Thread(target=self._run, args=(tell,), name="snapshot", daemon=True)
            thread.start()  # the system may refuse it
        except BaseException:
            self._end_cuts()
            raise
        self._thread = thread

    def answer(self) -> FromNode:
        """What is to be said of it now. Raises `DeadlineError` when its writer stands still."""
        if self._outcome is not None:
            return self._outcome
        if time.monotonic() - self._moved_s > STALL_S:
            raise DeadlineError(
                f"server {self._server} brought nothing to {self._directory} for {STALL_S:g} s",
                role=self._server,
                deadline_s=STALL_S,
                file=str(self._directory),
            )
        return SnapshotBegun(self._server, *self.id)

    def cancel(self) -> None:
        """Stop writing; what was begun is removed, nothing is told. Raises `DeadlineError` when the disk hangs."""
        self._cancelled.set()
        if self._thread is not None:
            self._thread.join(STOP_DEADLINE_S)
        if self.is_running:
            raise DeadlineError(
                f"server {self._server} could not stop writing to {self._directory} within {STOP_DEADLINE_S:g} s",
                role=self._server,
                deadline_s=STOP_DEADLINE_S,
                file=str(self._directory),
            )

    def _begin_table(self, table: Table) -> TableCut:
        store, asked = table.store, self._message
        # A store that does not know what changed since then gives all of its rows.
        base = asked.base if asked.base is not None and store.delta_base == asked.base else None
        if base != asked.base:
            _log.info(
                "table %s: all rows are written, what changed since version %d is not known", table.name, asked.base
            )
        schema = TableSchema(
            table=table.name,
            server=self._server,
            dim=store.dim,
            row_dtype=store.row_dtype,
            optimizer=table.optimizer.kind,
            state_width=store.state_width,
            sketch_bytes=store.sketch_bytes,
            kind="full" if base is None else "delta",
            version=asked.version,
            base=base,
        )
        ranges = list(shard_ranges(store.rows_by_shard(), schema.sketch_bytes))
        store.begin_cut(asked.version, base)
        return TableCut(table, schema, ranges)

    def _run(self, tell: Callable[[FromNode], None]) -> None:
        try:
            outcome: FromNode = SnapshotTaken(self._server, *self.id, self._write())
        except _Cancelled:
            return
        except GeartrainError as error:
            outcome = self._failed(error)
        except OSError as error:
            message = f"{self._directory} cannot be written: {error.strerror}"
            outcome = self._failed(CheckpointError(message, file=str(self._directory)))
        except Exception as error:  # a fault of ours must not end the thread without a word
            _log.exception("a snapshot failed")
            outcome = self._failed(GeartrainError(f"TakeSnapshot failed: {error!r}"))
        finally:
            self._end_cuts()
        self._outcome = outcome
        try:
            tell(outcome)
        except Exception as error:  # the channel is over; whoever serves it has heard of that
            _log.info("the end of a snapshot could not be told: %s", error)

    def _write(self) -> dict[str, Description]:
        files: dict[str, Description] = {}
        with contextlib.ExitStack() as undone:
            undone.callback(self._remove, files)
            for cut in list(self._tables):
                name = table_file_name(cut.schema)
                files[name] = self._write_table(self._directory / name, cut)
                self._end_cut(cut)
            if self._dense is not None:
                files |= write_dense(self._directory, self._dense, self._server, self._message.version)
                self._moved()
            flush(self._directory)
            if self._cancelled.is_set():
                raise _Cancelled
            undone.pop_all()
        return files

    def _remove(self, files: Iterable[str]) -> None:
        for name in files:
            (self._directory / name).unlink(missing_ok=True)

    def _write_table(self, path: Path, cut: TableCut) -> Description:
        with TableWriter(path, cut.schema, self._moved) as writer:
            for first, last in cut.ranges:
                if self._cancelled.is_set():
                    raise _Cancelled
                with self._job.lock.reading():
                    rows = cut.table.store.cut_shards(first, last)
                writer.append(first, rows)
            return writer.finish()

    def _end_cut(self, cut: TableCut) -> None:
        with self._job.lock.writing():
            cut.table.store.end_cut()
        self._tables.remove(cut)

    def _end_cuts(self) -> None:
        for cut in list(self._tables):
            self._end_cut(cut)
        self._dense = None

    def _moved(self) -> None:
        self._moved_s = time.monotonic()

    def _failed(self, error: GeartrainError) -> NodeFailed:
        return NodeFailed(self._server, self._message.term, self._job_name, error.to_dict())


def table_file_name(schema: TableSchema) -> str:
    """The file of a table's rows on a server."""
    return f"table-{quote(schema.table, safe='')}.{schema.server}.rows"


def shard_ranges(rows_by_shard: Indices, sketch_bytes: int) -> Iterator[tuple[int, int]]:
    """All shards in ranges [first, last) of about CHUNK_ROWS rows, and CHUNK_SKETCH_BYTES of admission counters."""
    stops = np.cumsum(rows_by_shard)
    most_shards = max(1, CHUNK_SKETCH_BYTES // sketch_bytes) if sketch_bytes else NUM_SHARDS
    first = 0
    while first < NUM_SHARDS:
        before = int(stops[first - 1]) if first else 0
        last = int(np.searchsorted(stops, before + CHUNK_ROWS)) + 1
        last = min(last, first + most_shards, NUM_SHARDS)
        yield first, last
        first = last
