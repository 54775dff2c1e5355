"""Pulls while a table grows from 5 to 25 million rows, against a control run in which it does not.

A client pushes windows of 40,000 keys without a pause, each decided at once; another one pulls 40,000 keys that have
rows, one request after the other. Growing: every pushed key is new. Control: all of them have rows already. The two
differ in the work that a birth is, and in stalls of growing itself; `longest_growth_ms`, measured inside the server, is
the most that a window waited for the index to grow. The control run pushes six times as many keys: it is that much
faster, and its percentiles need requests, too. Memory: the server's peak over what its table occupies in the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.support.client_process import ClientPlan, ClientProcess, Times
from benchmarks.support.latencies import milliseconds, rows_per_s
from benchmarks.support.lines import Line, figures_table, put_out
from benchmarks.support.measuring import percentile
from benchmarks.support.memory_use import peak_resident_bytes, resident_bytes
from benchmarks.support.samples import DIM, uniform_keys
from benchmarks.support.step_sums import StepSums
from benchmarks.support.tier_cluster import TABLE, TierCluster
from geartrain.memory import keep_freed_memory

CONTROL_TIMES = 6


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    num_rows: int = 5_000_000
    new_rows: int = 20_000_000
    keys_per_window: int = 40_000
    keys_per_pull: int = 40_000


QUICK = Scale(num_rows=20_000, new_rows=20_000, keys_per_window=2_000, keys_per_pull=500)


def main(json: bool, quick: bool = False) -> int:
    """Print the lines, or the table."""
    return put_out(lines(quick), json, lambda gathered: figures_table("Pulls while a table grows", gathered))


def lines(quick: bool) -> Iterator[Line]:
    """`growth`."""
    scale = QUICK if quick else Scale()
    keep_freed_memory()
    with TierCluster() as tier:
        tier.fill(scale.num_rows)
        plan = ClientPlan(tier.route, "c0", tier.token, scale.num_rows, scale.keys_per_pull, version=tier.version)
        with ClientProcess(plan) as puller:
            pushed = CONTROL_TIMES * scale.new_rows
            windows = (start % scale.num_rows for start in range(0, pushed, scale.keys_per_window))
            control, control_s = _pulls_beside_pushes(tier, puller, scale, windows)
            windows = (scale.num_rows + start for start in range(0, scale.new_rows, scale.keys_per_window))
            grown, grown_s = _pulls_beside_pushes(tier, puller, scale, windows)
        stats = tier.fresh_stats()["s0"].tables[TABLE]
        pid = tier.processes[0].process.pid
        peak_bytes, final_bytes = peak_resident_bytes(pid), resident_bytes(pid)
    slow, slow_control = percentile(grown.request_s, 99.9), percentile(control.request_s, 99.9)
    yield {
        "name": "growth",
        "rows_per_s": round(rows_per_s([grown], scale.keys_per_pull)),
        **milliseconds(grown.request_s, 50, 99, 99.9),
        "control_p99.9_ms": round(slow_control * 1000, 3),
        "p99.9_over_control": round(slow / slow_control, 3),
        "longest_growth_ms": round(stats.longest_growth_ms, 3),
        "pulls": len(grown.request_s),
        "control_pulls": len(control.request_s),
        "born_rows_per_s": round(scale.new_rows / grown_s),
        "control_pushed_rows_per_s": round(pushed / control_s),
        "num_rows": stats.num_rows,
        "table_bytes": stats.bytes,
        "peak_bytes": peak_bytes,
        "final_bytes": final_bytes,
        "peak_over_table": round(peak_bytes / stats.bytes, 4),
    }


def _pulls_beside_pushes(
    tier: TierCluster, puller: ClientProcess, scale: Scale, first_keys: Iterable[int]
) -> tuple[Times, float]:
    """Times of the pulls made while windows are pushed, and the seconds that the pushes took.

    A window has the keys of that number and the following ones.
    """
    client = tier.client()
    sums = StepSums(np.random.default_rng(0).standard_normal((scale.keys_per_window, DIM)).astype(np.float32))
    counts = np.array([[scale.keys_per_window]], dtype=np.int64)
    puller.begin("pull", 0)
    began_s = time.perf_counter()
    for first in first_keys:
        tier.push(client, uniform_keys(first, first + scale.keys_per_window), counts, sums)
    seconds = time.perf_counter() - began_s
    puller.interrupt()
    times = puller.finish()
    client.close()
    return times, seconds
