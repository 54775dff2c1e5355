"""Latencies and rates of requests, from the times of their clients."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.support.client_process import Times
from benchmarks.support.measuring import percentile


def rows_per_s(runs: Sequence[Times], rows_per_request: int) -> float:
    """Rows of all clients that ran side by side, per second from the first start to the last end."""
    seconds = max(run.ended_s for run in runs) - min(run.began_s for run in runs)
    return sum(len(run.request_s) for run in runs) * rows_per_request / seconds


def milliseconds(request_s: Sequence[float], *percents: float) -> dict[str, Any]:
    """`p50_ms` and so on."""
    return {f"p{percent:g}_ms": round(percentile(request_s, percent) * 1000, 3) for percent in percents}


def median_of_rounds(rounds: Sequence[Times]) -> float:
    """Seconds of a request: the median over rounds of each round's median."""
    return statistics.median(statistics.median(one.request_s) for one in rounds)
