"""The report of a simulation for people, from the JSON of `geartrain simulate --json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

MAX_EVENTS = 8
MAX_LISTED = 6
CAUSES = {
    "computing": "computing",
    "jitter": "waiting in the group: steps that took longer by chance",
    "mismatch": "waiting in the group: members of unlike speed",
    "window": "waiting for the window",
    "transfers": "transfers",
    "overhead": "messages, servers, the host's own work",
    "pass_end": "waiting for the next pass",
    "regrouping": "forming other groups",
    "deaths": "workers that died: missed, work thrown away, groups formed anew",
}
"""What a cause of lost time means, in words."""


def render_simulation(told: Mapping[str, Any]) -> RenderableType:
    """Facts, groups, where the time went, other choices, and what happened on the way."""
    parts: list[RenderableType] = [
        _facts(told),
        _table(
            "Groups",
            ("group", "members", "batch", "samples/s", "step p50 ms", "step p99 ms"),
            _group_lines(told["groups"], {one["worker"]: one["device"] for one in told["workers"]}),
        ),
        _table(
            "Where the time goes (workers weighed by their speed)",
            ("share", "what"),
            ((f"{100 * one['share']:.1f}%", CAUSES[one["cause"]]) for one in told["time"] if one["worker_s"]),
            text_columns=("what",),
        ),
        _table(
            f"Other choices, each for {told['choices_samples']:,} samples",
            ("choice", "groups", "samples/s", "of the chosen", "max staleness"),
            (
                (
                    one["choice"],
                    str(one["groups"]),
                    f"{one['samples_per_s']:,.0f}",
                    f"{one['over_chosen']:.3f}",
                    str(one["max_staleness"]),
                )
                for one in told["choices"]
            ),
            text_columns=("choice",),
        ),
    ]
    return Group(*parts, *_event_lines(told))


def _facts(told: Mapping[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    unlike, staleness = told["heterogeneity"], told["staleness"]
    ratio, solos = unlike["throughput_over_sum_of_solo"], unlike["sum_of_solo_samples_per_s"]
    histogram = ", ".join(f"{key}: {count:,}" for key, count in staleness["histogram"].items())
    workers = f"{len(told['workers']):,} emulated workers, {told['servers']} servers"
    rows = {
        "simulated": f"{told['samples']:,} samples in {told['version']:,} windows on {workers}; nothing was trained",
        "speed": f"{told['samples_per_s']:,.0f} samples/s ({told['seconds']:,.1f} s of training)",
        "of all alone": f"{ratio:.3f} of {solos:,.0f} samples/s, the sum of what each worker would do alone",
        "equal shares": f"{unlike['equal_shares_samples_per_s']:,.0f} samples/s (--no-heterogeneous)",
        "staleness": f"at most {staleness['max']} ({histogram})",
    }
    for name, value in rows.items():
        table.add_row(Text(name), Text(value))
    return table


def _group_lines(groups: Sequence[Mapping[str, Any]], devices: Mapping[str, str]) -> Iterable[tuple[str, ...]]:
    for one in groups:
        yield (
            str(one["group"]),
            _members(one["members"], devices),
            f"{one['batch_size']:,}",
            f"{one['samples_per_s']:,.0f}",
            f"{one['step_ms']['p50']:.1f}",
            f"{one['step_ms']['p99']:.1f}",
        )


def _members(members: Sequence[str], devices: Mapping[str, str]) -> str:
    if len(members) <= MAX_LISTED:
        return ", ".join(f"{worker} ({devices[worker]})" for worker in members)
    kinds = sorted({devices[worker] for worker in members})
    counted = ", ".join(f"{sum(devices[worker] == kind for worker in members)} x {kind}" for kind in kinds)
    return f"{len(members)} workers: {counted}"


def _table(
    title: str, columns: Sequence[str], lines: Iterable[tuple[str, ...]], text_columns: Sequence[str] = ("members",)
) -> Table:
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in text_columns else "right", overflow="fold")
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))
    return table


def _event_lines(told: Mapping[str, Any]) -> Iterable[Text]:
    for one in told["events"][:MAX_EVENTS]:
        yield Text(f"at {one['at_s']:,.1f} s: {one['reason']}")
    left = told["num_events"] - MAX_EVENTS
    if left > 0:
        yield Text(f"and {left:,} more events")
