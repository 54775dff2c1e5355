"""One table on one server: its rows, its optimizer, its counters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from embedding_tier.optimizer import Optimizer, row_initializer
from embedding_tier.stats import TableCounters
from geartrain.errors import VersionError
from geartrain.types import Floats, Keys
from geartrain.wire.messages import Apply, TableSpec, TableStats
from kernels.merge import merge_contributions
from kernels.row_store import RowStore


class RowGradients(NamedTuple):
    """One worker's gradient sums for rows of one table: keys [N], grads [N, D], shows [N], clicks [N], the weight."""

    keys: Keys
    grads: Floats
    shows: Floats
    clicks: Floats
    weight: float


class Table:
    """Rows of one table that this server owns. Any number of pulls, or one apply or load: the caller holds the lock."""

    def __init__(self, spec: TableSpec) -> None:
        """Raises `ConfigError` for an optimizer or initializer that is not known."""
        self.name = spec.name
        self.optimizer = Optimizer.from_config(spec.optimizer)
        self.store = RowStore(spec.dim, self.optimizer.kind, row_initializer(spec))
        self.counters = TableCounters()

    def pull(self, keys: Keys, out: Floats) -> None:
        """Write the rows of `keys` uint64[N] to `out` float32[N, D]; a key without a row stays without one."""
        began_ns = time.perf_counter_ns()
        self.store.pull(keys, out)
        self.counters.pulled(len(keys), time.perf_counter_ns() - began_ns)

    def apply(self, parts: Sequence[RowGradients], decision: Apply) -> None:
        """Merge the parts in their order and update every row once. Raises `VersionError` without a learning rate."""
        if not parts:
            return
        lr = decision.sparse_lr.get(self.name)
        if lr is None:
            raise VersionError(
                f"decision {decision.version} has no learning rate for table {self.name}", table=self.name
            )
        keys, grads, shows, clicks, weights = zip(*parts, strict=True)
        merged = merge_contributions(keys, grads, shows, clicks, weights)
        rule = self.optimizer.rule(decision, lr)
        born = self.store.apply(merged.keys, merged.grads, merged.shows, merged.clicks, rule, decision.version)
        self.counters.admitted(born)

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
        )
