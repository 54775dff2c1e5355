"""What the report says of unlike hardware: the table of workers, and what their differences cost. For people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rich.table import Table
from rich.text import Text

Worker = Mapping[str, Any]

MAX_NAMED = 8
"""Members of a group that are named one by one."""


class _Column(NamedTuple):
    title: str
    cell: Callable[[Worker], str]
    optional: bool = False


def worker_table(workers: Sequence[Worker]) -> Table:
    """A line per worker. What was not measured of a worker is "-"; columns that have nothing to tell are left out."""
    rows = [[column.cell(worker) for column in _COLUMNS] for worker in workers]
    shown: list[tuple[str, ...]] = []
    table = Table(
        title="Workers (times per step in ms)", title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False
    )
    for column, cells in zip(_COLUMNS, zip(*rows, strict=True), strict=True):
        if not column.optional or any(cell not in ("-", "0") for cell in cells):
            justify: Literal["left", "right"] = "left" if column.title in ("worker", "device") else "right"
            # A number that is broken over two lines is another number; only devices have names as long as one likes.
            table.add_column(column.title, justify=justify, no_wrap=column.title != "device", overflow="fold")
            shown.append(cells)
    for line in zip(*shown, strict=True):
        table.add_row(*map(Text, line))
    return table


def hardware_rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Titles and lines on what unlike hardware cost; none for what was not measured.

    `result`: of a job that ended, or the report of one that trains, with its `samples_per_s`.
    """
    told = result.get("heterogeneity") or {}
    groups = result.get("groups") or []
    rows = [("groups", _groups(groups))] if len(groups) > 1 else []
    rows += _throughput_rows(told, result.get("samples_per_s"))
    imbalance = told.get("imbalance") or {}
    if imbalance.get("p90") is not None:
        rows.append(("imbalance", f"p90 {imbalance['p90']:.2f}, a member's finishing time over the median of its step"))
    slow = sum(worker.get("host_bound_steps") or 0 for worker in result.get("workers") or [])
    if slow:
        rows.append(("host-bound", f"in {slow:,} step(s) a worker's host was slower than the device that it emulates"))
    rows += [("numeric drift", line) for line in _drifts(result.get("workers") or [])]
    doubts = [(worker["worker"], worker.get("doubt")) for worker in result.get("workers") or []]
    rows += [("in doubt", f"the speed of {worker}: {doubt}") for worker, doubt in doubts if doubt]
    rows += [("advice", _advice(one)) for one in told.get("advice") or []]
    return rows


def _throughput_rows(told: Mapping[str, Any], samples_per_s: float | None) -> list[tuple[str, str]]:
    rows = []
    solos, equal = told.get("sum_of_solo_samples_per_s"), told.get("equal_shares_samples_per_s")
    if told.get("throughput_over_sum_of_solo") is not None:
        of_all = f" ({solos:,.0f} samples/s)" if solos else ""
        rows.append(("throughput", f"{told['throughput_over_sum_of_solo']:.2f} of the sum of the solo speeds{of_all}"))
    if equal:
        gain = f", this run had {samples_per_s / equal:.2f} times that" if samples_per_s else ""
        rows.append(("equal shares", f"would give {equal:,.0f} samples/s{gain}"))
    return rows


def _groups(groups: Sequence[Sequence[str]]) -> str:
    named = []
    for members in groups:
        rest = len(members) - MAX_NAMED
        named.append(" + ".join(members[:MAX_NAMED]) + (f" + {rest} more" if rest > 0 else ""))
    return "; ".join(named)


def _drifts(workers: Sequence[Worker]) -> list[str]:
    """The largest deviation of each kind of device that does not compute in fp32, which has none."""
    largest: dict[tuple[str, str], float] = {}
    for worker in workers:
        precision, drift = worker.get("precision"), worker.get("numeric_drift")
        if precision and precision != "fp32" and drift is not None:
            kind = str(worker["device"]), str(precision)
            largest[kind] = max(largest.get(kind, 0.0), drift)
    return [f"{device} in {precision}: {drift:.2g} of its gradient" for (device, precision), drift in largest.items()]


def _advice(one: Mapping[str, Any]) -> str:
    """The reason as the coordinator words it, and the gain in percent of the throughput."""
    return f"{one['worker']}: {one['reason']} ({(one['gain'] - 1) * 100:+.0f}% throughput)"


def _time(name: str, percentile: str) -> Callable[[Worker], str]:
    return lambda worker: _number((worker.get(name) or {}).get(percentile), ".1f")


def _field(name: str, form: str) -> Callable[[Worker], str]:
    return lambda worker: _number(worker.get(name), form)


def _number(value: Any, form: str) -> str:
    """ "-" for what was not measured."""
    return "-" if value is None else format(value, form)


_COLUMNS = (
    _Column("worker", _field("worker", "s")),
    _Column("device", _field("device", "s")),
    _Column("group", _field("group", "d")),
    _Column("share", _field("share", ".2f")),
    _Column("samples", _field("samples", ",d")),
    _Column("step\np50", _time("step_ms", "p50")),
    _Column("step\np99", _time("step_ms", "p99")),
    _Column("busy\np50", _time("busy_ms", "p50"), optional=True),
    _Column("wait\np50", _time("wait_ms", "p50")),
    _Column("solo\nsamples/s", _field("solo_samples_per_s", ",.0f"), optional=True),
    _Column("pre-\ncision", _field("precision", "s"), optional=True),
    _Column("host-\nbound", _field("host_bound_steps", ",d"), optional=True),
)
