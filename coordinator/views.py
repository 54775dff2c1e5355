"""What people see of the coordinator's state, as plain data in the shapes of the REST interface. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from coordinator.core import Core
from coordinator.records import JobRecord, PastJob
from geartrain.errors import ConflictError
from geartrain.types import NUM_SHARDS
from geartrain.wire.messages import ServerStats, TableStats

MAX_HOTTEST = 32
"""Hottest keys that are shown of a table on a server, of a table, and of all."""

_LIFE = ("num_admitted", "num_rejected", "num_expired", "num_evicted")
_RATES = ("pull_requests", "push_requests", "pull_rows", "push_rows")
_SUMMED = ("num_rows", "bytes", "staged_bytes", *_LIFE, *(f"{rate}_per_s" for rate in _RATES))
_WORST = ("pull_p50_ms", "pull_p99_ms", "longest_growth_ms")


def job_views(core: Core) -> list[dict[str, Any]]:
    """All jobs, oldest first."""
    records: list[JobRecord | PastJob] = [*core.past.values(), *core.records.values()]
    return [job_view(core, record) for record in records]


def job_view(core: Core, record: JobRecord | PastJob) -> dict[str, Any]:
    """A job with its state, progress and result."""
    state, reason = core.state_of(record.id)
    return {
        "id": record.id,
        "name": record.name,
        "state": state,
        "reason": reason,
        "error": record.error,
        "submitted_at": record.submitted_at,
        "progress": record.progress or None,
        "report": record.report or None,
        "result": record.result,
    }


def node_views(core: Core, now_s: float, unix_time: float) -> list[dict[str, Any]]:
    """Every server and worker."""
    return [
        {
            "name": node.name,
            "role": node.role,
            "address": node.address,
            "device": node.device,
            "host": node.host,
            "last_heartbeat": unix_time - (now_s - node.last_seen_s),
            "state": node.state,
        }
        for node in core.members.all_nodes()
    ]


def window_view(core: Core, now_s: float) -> dict[str, Any]:
    """The aggregation window of the running job. Raises `ConflictError` without one."""
    window = core.run.window(now_s) if core.run is not None else None
    if window is None:
        raise ConflictError("no job is training: there is no window", expected="a job in state training")
    return window


def routing_view(core: Core) -> dict[str, Any]:
    """Which server owns how many shards; before the first job there is no route."""
    route = core.route
    if route is None:
        return {"route_epoch": 0, "num_shards": NUM_SHARDS, "servers": [], "moves": []}
    owned = Counter(route.owners)
    return {
        "route_epoch": route.route_epoch,
        "num_shards": len(route.owners),
        "servers": [
            {"server": name, "address": address, "num_shards": owned[number]}
            for number, (name, address) in enumerate(zip(route.servers, route.addresses, strict=True))
        ],
        "moves": [],
    }


def tier_view(core: Core) -> dict[str, Any]:
    """The embedding tier: per server and table, per table, and in all. Rates are those of the last seconds.

    A queue is a server's: its length stands on each of the server's lines, nowhere per table, and counts once in all.
    """
    rows = [row for server in core.stats.servers for row in _server_rows(core, server)]
    by_table: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_table.setdefault(row["table"], []).append(row)
    latest = core.stats.latest
    of_tables = _sum(rows)
    of_servers = {
        "staged_dense_bytes": sum(stats.staged_bytes for stats in latest) - of_tables["staged_bytes"],
        "queue_length": sum(stats.queue_length for stats in latest),
        "version": min((stats.version for stats in latest), default=0),
    }
    named = ({**key, "table": row["table"]} for row in rows for key in row["hottest_keys"])
    active = core.jobs.active
    return {
        "job": active.id if active is not None else None,
        "servers": rows,
        "tables": {
            table: {**_sum(lines), "hottest_keys": _hottest(key for line in lines for key in line["hottest_keys"])}
            for table, lines in by_table.items()
        },
        # A key means nothing without its table.
        "totals": {**of_tables, "hottest_keys": _hottest(named), **of_servers},
    }


def _server_rows(core: Core, server: str) -> list[dict[str, Any]]:
    (first_s, first), (last_s, last) = core.stats.span(server)
    return [
        {"server": server, "table": name, **_table_row(first, last, name, last_s - first_s)}
        for name in sorted(last.tables)
    ]


def _table_row(first: ServerStats, last: ServerStats, name: str, seconds: float) -> dict[str, Any]:
    now: TableStats = last.tables[name]
    before = first.tables.get(name)
    rates = {f"{rate}_per_s": _rate(getattr(before, rate, None), getattr(now, rate), seconds) for rate in _RATES}
    return {
        "num_rows": now.num_rows,
        "bytes": now.bytes,
        "bytes_per_row": _per_row(now.bytes, now.num_rows),
        **rates,
        "pull_p50_ms": now.pull_p50_ms,
        "pull_p99_ms": now.pull_p99_ms,
        "staged_bytes": now.staged_bytes,
        "queue_length": last.queue_length,
        "longest_growth_ms": now.longest_growth_ms,
        **{count: getattr(now, count) for count in _LIFE},
        "hottest_keys": [{"key": f"{key:016x}", "shows": shows} for key, shows in now.hottest],
    }


def _rate(before: int | None, now: int, seconds: float) -> float:
    """Counters that began again in between (the job went back to a cut) tell no rate yet."""
    return (now - before) / seconds if before is not None and now >= before and seconds > 0 else 0.0


def _sum(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts and rates add up; of times the worst counts."""
    added = {name: sum(row[name] for row in rows) for name in _SUMMED}
    worst = {name: max((row[name] for row in rows), default=0.0) for name in _WORST}
    return {**added, "bytes_per_row": _per_row(added["bytes"], added["num_rows"]), **worst}


def _per_row(num_bytes: int, num_rows: int) -> float:
    return num_bytes / num_rows if num_rows else 0.0


def _hottest(keys: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The keys with most shows of them all, as many as a server tells of a table; equal ones by key."""
    return sorted(keys, key=lambda one: (-one["shows"], one["key"]))[:MAX_HOTTEST]
