"""Push and apply through the whole path: a client stages gradients, and the decision that follows is applied.

One server with 5 million rows of 16 float32, rowwise Adagrad; 40,000 distinct keys a window. A window's time runs from
the staging request to the server's word that it applied the decision; this process is client and coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.support.latencies import milliseconds
from benchmarks.support.lines import Line, figures_table, put_out
from benchmarks.support.samples import DIM, uniform_ids, uniform_keys
from benchmarks.support.step_sums import StepSums
from benchmarks.support.tier_cluster import TierCluster
from geartrain.memory import keep_freed_memory


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    num_rows: int = 5_000_000
    keys_per_window: int = 40_000
    windows: int = 400


QUICK = Scale(num_rows=20_000, keys_per_window=1_000, windows=8)


def main(json: bool, quick: bool = False) -> int:
    """Print the line, or the table."""
    return put_out(lines(quick), json, lambda gathered: figures_table("Push and apply on one server", gathered))


def lines(quick: bool) -> Iterator[Line]:
    """`push_apply`."""
    scale = QUICK if quick else Scale()
    keep_freed_memory()
    all_keys = uniform_keys(0, scale.num_rows)
    batches = [all_keys[ids] for ids in uniform_ids(scale.num_rows, scale.keys_per_window, 1)]
    counts = np.array([[scale.keys_per_window]], dtype=np.int64)
    grads = np.random.default_rng(0).standard_normal((scale.keys_per_window, DIM)).astype(np.float32)
    window_s, stage_s = [], []
    with TierCluster() as tier:
        tier.fill(scale.num_rows)
        client = tier.client()
        sums = StepSums(grads)
        for number in range(scale.windows):
            began_s = time.perf_counter()
            tier.stage(client, batches[number % len(batches)], counts, sums)
            staged_s = time.perf_counter()
            tier.apply_staged(scale.keys_per_window)
            stage_s.append(staged_s - began_s)
            window_s.append(time.perf_counter() - began_s)
        client.close()
    milli = milliseconds(window_s, 50, 99)
    yield {
        "name": "push_apply",
        "rows_per_s": round(scale.keys_per_window * scale.windows / sum(window_s)),
        **milli,
        "stage_p50_ms": milliseconds(stage_s, 50)["p50_ms"],
    }
