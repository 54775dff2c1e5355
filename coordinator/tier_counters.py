"""The counters of the embedding servers as they told them, and what a job's result keeps of them. Pure."""

from __future__ import annotations

from collections import deque
from typing import Any

from geartrain.wire.messages import ServerStats

KEPT = 12
"""Heartbeats over which the tier's rates are taken (about 6 s)."""
ROW_COUNTS = ("num_rows", "bytes", "num_admitted", "num_rejected", "num_expired", "num_evicted")


class TierCounters:
    """The latest counters of each server with the times, in seconds, at which they came."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[tuple[float, ServerStats]]] = {}

    def take(self, server: str, stats: ServerStats | None, now_s: float) -> None:
        """A server told its counters, or that it has none."""
        if stats is not None:
            self._kept.setdefault(server, deque(maxlen=KEPT)).append((now_s, stats))

    def clear(self) -> None:
        """Another job begins."""
        self._kept.clear()

    def settle(self) -> None:
        """The job is over: its last counters stay to be seen, but nothing moves any more."""
        for kept in self._kept.values():
            while len(kept) > 1:
                kept.popleft()

    @property
    def servers(self) -> list[str]:
        """Those that told counters."""
        return sorted(self._kept)

    def span(self, server: str) -> tuple[tuple[float, ServerStats], tuple[float, ServerStats]]:
        """The oldest and the newest counters that are kept of a server."""
        kept = self._kept[server]
        return kept[0], kept[-1]

    @property
    def latest(self) -> list[ServerStats]:
        """The newest of every server."""
        return [self.span(server)[1][1] for server in self.servers]

    def row_counts(self) -> dict[str, Any]:
        """How many rows there are and what became of them since the job was opened: of each table and of all."""
        tables: dict[str, dict[str, int]] = {}
        totals = dict.fromkeys(ROW_COUNTS, 0)
        for stats in self.latest:
            for name, table in sorted(stats.tables.items()):
                counts = tables.setdefault(name, dict.fromkeys(ROW_COUNTS, 0))
                for count in ROW_COUNTS:
                    counts[count] += getattr(table, count)
                    totals[count] += getattr(table, count)
        return {"tables": tables, "totals": totals}
