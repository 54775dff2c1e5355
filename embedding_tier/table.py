"""One table on one server: its rows, its optimizer, its counters."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from embedding_tier.admission import row_life
from embedding_tier.expiry import Expiry
from embedding_tier.optimizer import Optimizer, row_initializer
from embedding_tier.stats import TableCounters
from geartrain.errors import KernelError, VersionError
from geartrain.types import Floats, Keys
from geartrain.wire.messages import Apply, TableSpec, TableStats
from kernels.contribution import Contribution
from kernels.row_store import RowStore
from kernels.update_rule import UpdateRule

_log = logging.getLogger(__name__)

LARGE_WINDOW_ROWS = 20_000
"""A window with fewer rows for a table is applied by one thread: to wake another takes as long as it would save."""

GROWTH_ROWS = 4096
"""Births that are worth preparing for; what fewer of them wait for is not felt."""


class Table:
    """Rows of one table that this server owns. Any number of pulls, or one apply or load: the caller holds the lock."""

    def __init__(self, spec: TableSpec, num_threads: int = 1) -> None:
        """`num_threads` apply a large window. Raises `ConfigError` for settings that are not known."""
        self.name = spec.name
        self.optimizer = Optimizer.from_config(spec.optimizer)
        self.expiry = Expiry.of(spec)
        life = row_life(spec, self.expiry)
        self.store = RowStore(spec.dim, self.optimizer.kind, row_initializer(spec), life, spec.row_dtype)
        self.counters = TableCounters()
        self._num_threads = num_threads
        self._num_born = 0

    def pull(self, keys: Keys, out: Floats) -> None:
        """Write the rows of `keys` uint64[N] to `out` float32[N, D]; a key without a row stays without one."""
        began_ns = time.perf_counter_ns()
        self.store.pull(keys, out)
        self.counters.pulled(len(keys), time.perf_counter_ns() - began_ns)

    def apply(self, parts: Sequence[Contribution], decision: Apply) -> None:
        """Merge the parts in their order and update every row once, then let those leave whose time has come.

        Keys without a row are admitted or rejected, and rows evicted, as the table's settings say. A window that brings
        nothing for the table still makes rows leave. Raises `VersionError` without a learning rate.
        """
        version = decision.version
        if parts:
            num_rows = sum(len(part.keys) for part in parts)
            num_threads = self._num_threads if num_rows > LARGE_WINDOW_ROWS else 1
            done = self.store.apply(parts, self.rule(decision), version, num_threads)
            self.counters.applied(*done)
            self._num_born += done.num_admitted
        sweep = self.expiry.sweep(version, decision.pass_versions)
        if sweep is not None:
            self.counters.expired(self.store.expire(*sweep))

    def prepare_growth(self) -> None:
        """Have the memory at hand for twice as many births as there were lately, if those were many.

        For the thread that applies, between windows; the caller need not hold the lock. What the next window would have
        to wait for is asked of the system now, while pulls go on. If the system refuses, nothing is lost yet: a window
        that needs the memory asks again, and fails if it must.
        """
        if self._num_born >= GROWTH_ROWS:
            num_born, self._num_born = self._num_born, 0
            try:
                self.store.prepare_growth(2 * num_born)
            except KernelError as error:
                _log.warning("table %s: no memory to grow ahead: %s", self.name, error)

    def rule(self, decision: Apply) -> UpdateRule:
        """The numbers of the update that `decision` makes here.

        Raises `VersionError` without a learning rate, `KernelError` for numbers that cannot be used.
        """
        lr = decision.sparse_lr.get(self.name)
        if lr is None:
            raise VersionError(
                f"decision {decision.version} has no learning rate for table {self.name}", table=self.name
            )
        if not 0 < decision.version < 2**32:
            raise VersionError(f"version {decision.version} is none that a row can have", got=decision.version)
        return self.optimizer.rule(decision, lr)

    def stats(self) -> TableStats:
        """The counters now; the caller keeps appliers out."""
        counters = self.counters
        median_ms, slow_ms = counters.pull_percentiles_ms()
        return TableStats(
            num_rows=self.store.num_rows,
            bytes=self.store.memory_bytes,
            pull_requests=counters.pull_requests,
            push_requests=counters.push_requests,
            pull_rows=counters.pull_rows,
            push_rows=counters.push_rows,
            pull_p50_ms=median_ms,
            pull_p99_ms=slow_ms,
            num_admitted=counters.num_admitted,
            num_rejected=counters.num_rejected,
            num_expired=counters.num_expired,
            num_evicted=counters.num_evicted,
            hottest=self._hottest(),
            longest_growth_ms=self.store.longest_growth_ns / 1e6,
        )

    def _hottest(self) -> list[tuple[int, float]]:
        keys, shows = self.store.hottest()
        return list(zip(keys.tolist(), shows.tolist(), strict=True))
