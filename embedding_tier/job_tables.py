"""All tables of a job on one server: a pull or a window crosses into the kernels once for all of them.

Letters: T tables, N keys of all of them, D dim.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embedding_tier.optimizer import Optimizer
from embedding_tier.stats import TableCounters
from embedding_tier.table import Table
from geartrain.errors import WireError
from geartrain.types import Floats, Indices, Keys
from geartrain.wire.messages import Apply, TableSpec, TableStats
from kernels.row_stores import WorkerRows, apply_tables, pull_tables
from kernels.update_rule import UpdateRule

LARGE_WINDOW_ROWS = 20_000
"""A window with fewer rows for a table is applied by one thread: to wake another takes as long as it would save."""


class JobTables:
    """The tables in the job's order. Any number of pulls, or one apply or load: the caller holds the lock."""

    def __init__(self, specs: Sequence[TableSpec], num_threads: int = 1) -> None:
        """`num_threads` apply what a large window has for a table.

        Raises `ConfigError` for table settings that are not known, `WireError` for tables of unlike dim.
        """
        self.tables = [Table(spec) for spec in specs]
        self.names = [table.name for table in self.tables]
        self.counters = TableCounters(len(specs))
        dims = sorted({spec.dim for spec in specs})
        if len(dims) > 1:
            raise WireError(f"tables of dims {dims} in one job", expected="one dim", got=dims)
        self.row_dim = dims[0] if dims else 0
        self._stores = [table.store for table in self.tables]
        self._num_threads = num_threads

    def go_on_counting(self, before: JobTables) -> None:
        """Take over the counters of the tables that have the same names."""
        common = [name for name in self.names if name in before.names]
        mine, theirs = map(self.names.index, common), map(before.names.index, common)
        self.counters.go_on(before.counters, list(mine), list(theirs))

    def pull(self, keys: Keys, counts: Indices, out: Floats) -> None:
        """Write the rows of `counts` int64[T] of `keys` uint64[N], table-major, to `out` float32[N, D].

        A key without a row stays without one. Nothing is counted: what a request takes is known to who answers it.
        """
        pull_tables(self._stores, keys, counts, out)

    def rules(self, decision: Apply) -> list[UpdateRule]:
        """The numbers of the update that `decision` makes to each table.

        Raises `VersionError` without a learning rate, `KernelError` for numbers that cannot be used.
        """
        made: dict[tuple[Optimizer, float], UpdateRule] = {}  # most tables of a job share theirs
        rules = []
        for table in self.tables:
            settings = table.optimizer, table.learning_rate(decision)
            rule = made.get(settings)
            if rule is None:
                rule = made[settings] = table.optimizer.rule(decision, settings[1])
            rules.append(rule)
        return rules

    def apply(self, workers: Sequence[WorkerRows], rules: Sequence[UpdateRule], decision: Apply) -> None:
        """Merge what the workers have in their order and update every row once, then let those leave whose time has
        come.

        Keys without a row are admitted or rejected, and rows evicted, as the tables' settings say. A window that brings
        nothing for a table still makes rows leave.
        """
        if workers:
            num_rows = np.sum([one.counts for one in workers], axis=0)
            num_threads = np.where(num_rows > LARGE_WINDOW_ROWS, self._num_threads, 1).tolist()
            lives = apply_tables(self._stores, workers, rules, decision.version, num_threads)
            self.counters.applied(lives)
            for table, num_admitted in zip(self.tables, lives[:, 0].tolist(), strict=True):
                table.born(num_admitted)
        for number, table in enumerate(self.tables):
            num_expired = table.expire(decision)
            if num_expired:
                self.counters.expired(number, num_expired)

    def prepare_growth(self) -> None:
        """`Table.prepare_growth` of each; the caller need not hold the lock."""
        for table in self.tables:
            table.prepare_growth()

    def stats(self) -> dict[str, TableStats]:
        """The counters now, by table; the caller keeps appliers out."""
        latencies_ms = self.counters.pull_percentiles_ms()
        return {name: self._stats_of(number, *latencies_ms[number]) for number, name in enumerate(self.names)}

    def _stats_of(self, number: int, median_ms: float, slow_ms: float) -> TableStats:
        counters, store = self.counters, self._stores[number]
        return TableStats(
            num_rows=store.num_rows,
            bytes=store.memory_bytes,
            pull_requests=int(counters.pull_requests[number]),
            push_requests=int(counters.push_requests[number]),
            pull_rows=int(counters.pull_rows[number]),
            push_rows=int(counters.push_rows[number]),
            pull_p50_ms=median_ms,
            pull_p99_ms=slow_ms,
            num_admitted=int(counters.num_admitted[number]),
            num_rejected=int(counters.num_rejected[number]),
            num_expired=int(counters.num_expired[number]),
            num_evicted=int(counters.num_evicted[number]),
            hottest=self.tables[number].hottest(),
            longest_growth_ms=store.longest_growth_ns / 1e6,
        )
