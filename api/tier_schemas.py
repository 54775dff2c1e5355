"""The embedding tier: rows, memory and traffic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from api.answers import Answer


class HotKey(Answer):
    """A key that was shown most, and how often."""

    key: str = Field(description="16 hexadecimal digits: what table and id were made into, see `kernels.hashing`.")
    shows: float = Field(description="As its row has them: decayed, if the table's rows expire by score.")

    example: ClassVar[dict[str, Any]] = {"key": "9b3c51f6a2e8d047", "shows": 5210.0}


class HotKeyOfTable(HotKey):
    """As `HotKey`, where keys of several tables stand together."""

    table: str

    example: ClassVar[dict[str, Any]] = {**HotKey.example, "table": "item"}


class TierLoad(Answer):
    """Rows, memory and traffic of one table on one server, of one table, or of the whole tier."""

    num_rows: int
    bytes: int = Field(description="Memory of the rows and of their index.")
    bytes_per_row: float = Field(description="0 while there is no row.")
    pull_requests_per_s: float
    push_requests_per_s: float
    pull_rows_per_s: float
    push_rows_per_s: float
    pull_p50_ms: float | None = Field(
        default=None,
        description="Median of what pulls of a table's rows took inside a server in the last one to two minutes, from "
        "the moment the request was taken from the socket to the moment its answer was ready: in the queue, waiting "
        "for a window that was being applied, copying all its tables' rows and encoding them. What a request waited "
        "for a version that was not there yet is not in it. 0 without pulls in that time. Of several lines, the worst.",
    )
    pull_p99_ms: float | None = Field(default=None, description="As pull_p50_ms, the 99th percentile.")
    staged_bytes: int = Field(
        description="Keys, gradients, shows and clicks that were pushed for a table and wait for their window."
    )
    queue_length: int | None = Field(
        default=None,
        description="Requests that wait for a thread or for a version. A queue is a server's, not a table's: all lines "
        "of a server tell the same number, so do not add lines up; null per table; in the totals each server counts "
        "once.",
    )
    longest_growth_ms: float = Field(description="The most that one window waited for the index to grow.")
    num_admitted: int = Field(description="Rows that were born since the job was opened.")
    num_rejected: int = Field(
        description="Ids that were not admitted, counted anew in every window that had a gradient for them."
    )
    num_expired: int = Field(description="Rows that left for their age or score.")
    num_evicted: int = Field(description="Rows that left to make room, in tables with max_rows.")
    hottest_keys: Sequence[HotKey] = Field(description="The keys with most shows, at most 32, most first.")

    example: ClassVar[dict[str, Any]] = {
        "num_rows": 1312,
        "bytes": 187616,
        "bytes_per_row": 143.0,
        "pull_requests_per_s": 94.2,
        "push_requests_per_s": 94.2,
        "pull_rows_per_s": 71204.0,
        "push_rows_per_s": 71204.0,
        "pull_p50_ms": 0.4,
        "pull_p99_ms": 1.9,
        "staged_bytes": 0,
        "queue_length": 0,
        "longest_growth_ms": 0.02,
        "num_admitted": 1490,
        "num_rejected": 260,
        "num_expired": 178,
        "num_evicted": 0,
        "hottest_keys": [HotKey.example, {"key": "02d47e18c95fb36a", "shows": 4377.0}],
    }


class ServerTableLoad(TierLoad):
    """The load of one table on one server."""

    server: str
    table: str

    example: ClassVar[dict[str, Any]] = {"server": "s0", "table": "item", **TierLoad.example}


class TierTotals(TierLoad):
    """The load of all tables on all servers."""

    hottest_keys: Sequence[HotKeyOfTable]
    staged_dense_bytes: int = Field(description="Dense gradients that wait for their window; they are of no table.")
    version: int = Field(description="Windows that every server has applied.")

    example: ClassVar[dict[str, Any]] = {
        **TierLoad.example,
        "hottest_keys": [HotKeyOfTable.example],
        "staged_dense_bytes": 0,
        "version": 110,
    }


class TierStats(Answer):
    """The load of the embedding tier, in three sums: per server and table, per table, in all."""

    job: str | None = None
    servers: list[ServerTableLoad] = Field(description="One line per server and table.")
    tables: dict[str, TierLoad] = Field(description="Each table over all servers.")
    totals: TierTotals

    example: ClassVar[dict[str, Any]] = {
        "job": "movielens-deepfm-1",
        "servers": [ServerTableLoad.example],
        "tables": {"item": {**TierLoad.example, "queue_length": None}},
        "totals": TierTotals.example,
    }
