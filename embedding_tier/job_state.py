"""What a server holds of the running job: tables, staged gradients, its dense block, the version.

Pulls run side by side; a window is applied alone. Decisions are applied strictly in order and once each.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from embedding_tier.dense_blocks import DenseBlock, DenseGradient
from embedding_tier.rw_lock import ReadWriteLock
from embedding_tier.staging import StagedPart, StagingArea, check_rows
from embedding_tier.table import Table
from geartrain.errors import ConflictError, WireError
from geartrain.types import Floats, Keys
from geartrain.wire.framing import StagedArrays
from geartrain.wire.messages import Apply, Contribution, Stage, TableSpec, TableStats
from kernels.contribution import Contribution as RowContribution


class JobState:
    """State of one job on one server. All methods may be called from any thread, `decide` from one only."""

    def __init__(
        self, term: int, tables: Sequence[TableSpec], version: int, pipeline_depth: int, num_threads: int = 1
    ) -> None:
        """`num_threads` apply what a large window has for a table.

        Raises `ConfigError` for table settings that are not known, `WireError` for tables of unlike dim.
        """
        self.term = term
        self.tables = [Table(spec, num_threads) for spec in tables]
        self.version = version
        dims = sorted({spec.dim for spec in tables})
        if len(dims) > 1:
            raise WireError(f"tables of dims {dims} in one job", expected="one dim", got=dims)
        self.row_dim = dims[0] if dims else 0
        self.dense: DenseBlock | None = None
        self.lock = ReadWriteLock()
        self._table_stats = {table.name: table.stats() for table in self.tables}
        # Depth + 1 undecided steps of a worker's group, and as many of the group that it was in before.
        self._staging = StagingArea(2 * (pipeline_depth + 1))
        self._staging_lock = threading.Lock()
        self._early: dict[int, Apply] = {}

    def go_on_counting(self, before: JobState) -> None:
        """Take over the counters of the same job's state in an earlier term. For a job that is not open yet."""
        counters = {table.name: table.counters for table in before.tables}
        for table in self.tables:
            table.counters = counters.get(table.name, table.counters)
        self._table_stats = {table.name: table.stats() for table in self.tables}

    def pull_rows(self, keys: Keys, counts: Sequence[int]) -> tuple[Floats, int]:
        """Rows float32[sum(counts), D] of `counts[t]` keys of each table, table-major, and their version."""
        rows = np.empty((len(keys), self.row_dim), dtype=np.float32)
        with self.lock.reading():
            for table, (start, stop) in zip(self.tables, _ranges(counts), strict=True):
                if start < stop:
                    table.pull(keys[start:stop], rows[start:stop])
            return rows, self.version

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
        part = StagedPart(tuple(message.counts), arrays, message.dense_start)
        check_rows(part, [table.name for table in self.tables])
        self._check_dense(part)
        with self._staging_lock:
            is_new = self._staging.put(message.group, message.step, message.origin.worker, part)
        for table, count in zip(self.tables, message.counts, strict=True):
            if is_new and count:
                table.counters.pushed(count)

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
        for table in self.tables:
            table.prepare_growth()

    def stats(self) -> tuple[dict[str, TableStats], int]:
        """Counters by table, and the bytes that are staged.

        Never waits: while a window is applied the counters are the last ones. They go with heartbeats, and a long
        application must not cost the server its lease.
        """
        with self.lock.reading_if_free() as entered:
            if entered:
                self._table_stats = {table.name: table.stats() for table in self.tables}
        return self._table_stats, self._staging.num_bytes

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
        by_table = _row_gradients(staged if updates else [], len(self.tables))
        if updates:
            self._expect_rules(decision)
        with self.lock.writing():
            for table, parts in zip(self.tables, by_table, strict=True):
                table.apply(parts, decision)
            if updates and block is not None and gradient is not None:
                block.apply(gradient, decision)
            self.version = decision.version
        with self._staging_lock:
            for one in decision.contributions:
                self._staging.decided(one.group, one.step)
            self._staging.keep_only(decision.live_groups)

    def _expect_rules(self, decision: Apply) -> None:
        """Raises for a decision that some table or the dense block could not apply, before any of them does."""
        for table in self.tables:
            table.rule(decision)
        if self.dense is not None:
            self.dense.rule(decision)


def _dense_gradient(contribution: Contribution, parts: Sequence[StagedPart]) -> DenseGradient:
    return DenseGradient([(part.dense_start, part.arrays.dense) for part in parts], contribution.weight)


def _row_gradients(
    staged: Sequence[tuple[Contribution, Sequence[StagedPart]]], num_tables: int
) -> list[list[RowContribution]]:
    """Per table what is merged into it, in the decision's order."""
    by_table: list[list[RowContribution]] = [[] for _ in range(num_tables)]
    for contribution, parts in staged:
        for part in parts:
            keys, grads, shows, clicks, _ = part.arrays
            for into, (a, b) in zip(by_table, _ranges(part.counts), strict=True):
                if a < b:
                    into.append(RowContribution(keys[a:b], grads[a:b], shows[a:b], clicks[a:b], contribution.weight))
    return by_table


def _ranges(counts: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(accumulate(counts, initial=0)))
