"""What people see of the embedding tier: titles and lines of tables, made from the answer of its stats call. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Lines: TypeAlias = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Titles, and as many cells in each line."""

MAX_SHOWN_KEYS = 3

_LOAD = {
    "num_rows": "rows",
    "bytes": "bytes",
    "bytes_per_row": "bytes/row",
    "pull_rows_per_s": "pulled/s",
    "push_rows_per_s": "pushed/s",
    "pull_p50_ms": "p50 ms",
    "pull_p99_ms": "p99 ms",
}
_LIFE = {
    "num_admitted": "admitted",
    "num_rejected": "rejected",
    "num_expired": "expired",
    "num_evicted": "evicted",
}


def load_lines(told: Mapping[str, Any]) -> Lines:
    """Rows, memory and traffic: a line per server and table, and one of all where there are several."""
    lines = [(one["server"], one["table"], *_cells(one, _LOAD)) for one in told["servers"]]
    if len(lines) > 1:
        lines.append(("all", "", *_cells(told["totals"], _LOAD)))
    return ("server", "table", *_LOAD.values()), lines


def life_lines(told: Mapping[str, Any]) -> Lines:
    """What became of rows, and the keys that were shown most with their shows: a line per table."""
    lines = [(name, *_cells(one, _LIFE), _hottest(one)) for name, one in told["tables"].items()]
    return ("table", *_LIFE.values(), "hottest keys (shows)"), lines


def _cells(load: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    return [_figure(load.get(name)) for name in names]


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # three digits also of the microseconds of small tables


def _hottest(load: Mapping[str, Any]) -> str:
    shown = load.get("hottest_keys", [])[:MAX_SHOWN_KEYS]
    return ", ".join(f"{one['key']} ({one['shows']:,.0f})" for one in shown) or "-"
