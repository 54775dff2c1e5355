"""What a server holds of the running job: tables, staged gradients, its dense block, the version.

Pulls run side by side; a window is applied alone. Decisions are applied strictly in order and once each.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec
import numpy as np

from embedding_tier.dense_blocks import DenseBlock, DenseGradient
from embedding_tier.job_tables import JobTables
from embedding_tier.rw_lock import ReadWriteLock
from embedding_tier.staging import StagedPart, StagingArea, check_rows
from embedding_tier.table import Table
from geartrain.errors import ConflictError, WireError
from geartrain.types import Floats, Keys
from geartrain.wire.framing import StagedArrays
from geartrain.wire.messages import Apply, Contribution, Stage, TableSpec, TableStats
from kernels.contribution import within
from kernels.row_stores import WorkerRows


class JobState:
    """State of one job on one server. All methods may be called from any thread, `decide` from one only."""

    def __init__(
        self, term: int, tables: Sequence[TableSpec], version: int, pipeline_depth: int, num_threads: int = 1
    ) -> None:
        """`num_threads` apply what a large window has for a table.

        Raises `ConfigError` for table settings that are not known, `WireError` for tables of unlike dim.
        """
        self.term = term
        self.rows = JobTables(tables, num_threads)
        self.version = version
        self.dense: DenseBlock | None = None
        self.lock = ReadWriteLock()
        self._table_stats = self.rows.stats()
        # Depth + 1 undecided steps of a worker's group, and as many of the group that it was in before.
        self._staging = StagingArea(2 * (pipeline_depth + 1))
        self._staging_lock = threading.Lock()
        self._early: dict[int, Apply] = {}

    @property
    def tables(self) -> Sequence[Table]:
        return self.rows.tables

    @property
    def row_dim(self) -> int:
        """Floats per row, the same in all tables."""
        return self.rows.row_dim

    def go_on_counting(self, before: JobState) -> None:
        """Take over the counters of the same job's state in an earlier term. For a job that is not open yet."""
        self.rows.go_on_counting(before.rows)
        self._table_stats = self.rows.stats()

    def pull_rows(self, keys: Keys, counts: Sequence[int]) -> tuple[Floats, int]:
        """Rows float32[sum(counts), D] of `counts[t]` keys of each table, table-major, and their version.

        The caller has the request counted (`pulled`) once it knows what it took.
        """
        rows = np.empty((len(keys), self.row_dim), dtype=np.float32)
        num_keys = np.array(counts, dtype=np.int64)
        with self.lock.reading():
            self.rows.pull(keys, num_keys, rows)
            return rows, self.version

    def pulled(self, counts: Sequence[int], duration_s: float) -> None:
        """Count a request for `counts[t]` rows of each table, which kept the server busy or waiting for so long."""
        self.rows.counters.pulled(np.array(counts, dtype=np.int64), duration_s)

    def pull_dense(self) -> tuple[Floats, int, int]:
        """A copy of the dense block, where it starts, and its version. Raises `ConflictError` before there is one."""
        with self.lock.reading():
            block = self._block()
            return block.values(), block.start, self.version

    def put_dense(self, start: int, values: Floats) -> None:
        """Set the initial values of the dense block. Raises `ConflictError`, `WireError`."""
        with self.lock.writing():
            self._block().put(start, values)

    def wants(self, message: Stage) -> bool:
        """Whether this part is new here. Raises `StaleMessageError`, `BusyError`."""
        with self._staging_lock:
            return self._staging.wants(message.group, message.step, message.origin.worker)

    def stage(self, message: Stage, arrays: StagedArrays) -> None:
        """Keep what a worker pushed; the same part again changes nothing.

        Raises as `wants`, and `WireError` for rows that no window could be made of.
        """
        part = StagedPart(np.array(message.counts, dtype=np.int64), arrays, message.dense_start)
        check_rows(part, self.rows.names)
        self._check_dense(part)
        with self._staging_lock:
            is_new = self._staging.put(message.group, message.step, message.origin.worker, part)
        if is_new:
            self.rows.counters.pushed(part.counts)

    def decide(self, decision: Apply) -> int:
        """Apply this decision, and those that came before their turn; the version then.

        A decision that was applied already changes nothing, one that comes early waits. Raises `VersionError`, and
        changes nothing, when something that it names is not staged here.
        """
        if decision.version > self.version:
            self._early[decision.version] = decision
        while (following := self._early.pop(self.version + 1, None)) is not None:
            self._apply(following)
        return self.version

    def prepare_growth(self) -> None:
        """Between windows: ask the system for the memory that the next one is likely to need. Waits for no lock."""
        self.rows.prepare_growth()

    def stats(self) -> tuple[dict[str, TableStats], int]:
        """Counters by table, and the bytes that are staged, dense gradients included.

        Never waits for a window: while one is applied the counters are the last ones, but for staged bytes. They go
        with heartbeats, and a long application must not cost the server its lease.
        """
        with self.lock.reading_if_free() as entered:
            if entered:
                self._table_stats = self.rows.stats()
        with self._staging_lock:
            staged_bytes = self._staging.num_bytes
            of_tables = self._staging.table_bytes(len(self.tables)).tolist()
        counted = zip(self._table_stats.items(), of_tables, strict=True)
        told = {name: msgspec.structs.replace(stats, staged_bytes=staged) for (name, stats), staged in counted}
        return told, staged_bytes

    def _check_dense(self, part: StagedPart) -> None:
        start, stop = part.dense_start, part.dense_start + len(part.arrays.dense)
        block = self.dense
        if start < stop and block is not None and not block.start <= start <= stop <= block.stop:
            raise WireError(
                f"a dense gradient of [{start}, {stop}) on the server that owns [{block.start}, {block.stop})",
                field="dense_start",
                expected=[block.start, block.stop],
                got=[start, stop],
            )
        if not within(part.arrays.dense, float(np.finfo(np.float32).max)):
            raise WireError("a dense gradient with NaN or Inf", field="dense", expected="finite numbers", got="others")

    def _block(self) -> DenseBlock:
        if self.dense is None:
            raise ConflictError("the dense vector was not placed on this server yet")
        return self.dense

    def _apply(self, decision: Apply) -> None:
        with self._staging_lock:
            staged = [(one, self._staging.parts(one.group, one.step, one.workers)) for one in decision.contributions]
        block = self.dense
        gradient = block.summed([_dense_gradient(*one) for one in staged]) if block is not None else None
        updates = decision.divisor > 0
        # Whatever some table or the dense block could not apply is refused before any of them does.
        rules = self.rows.rules(decision) if updates else []
        if updates and block is not None:
            block.rule(decision)
        workers = [_worker_rows(part, one.weight) for one, parts in staged for part in parts] if updates else []
        with self.lock.writing():
            self.rows.apply(workers, rules, decision)
            if updates and block is not None and gradient is not None:
                block.apply(gradient, decision)
            self.version = decision.version
        with self._staging_lock:
            for one in decision.contributions:
                self._staging.decided(one.group, one.step)
            self._staging.keep_only(decision.live_groups)


def _dense_gradient(contribution: Contribution, parts: Sequence[StagedPart]) -> DenseGradient:
    return DenseGradient([(part.dense_start, part.arrays.dense) for part in parts], contribution.weight)


def _worker_rows(part: StagedPart, weight: float) -> WorkerRows:
    keys, grads, shows, clicks, _ = part.arrays
    return WorkerRows(keys, grads, shows, clicks, part.counts, weight)
