"""The cluster's state in the text format of Prometheus, read afresh from the coordinator at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from api.schemas import JobState
from coordinator.facade import ClusterFacade
from geartrain.errors import ConflictError

__all__ = ["CONTENT_TYPE", "exposition"]

_TIER_GAUGES = {
    "num_rows": ("geartrain_tier_rows", "Rows of a table on a server."),
    "bytes": ("geartrain_tier_bytes", "Memory of the rows and of their index."),
    "pull_requests_per_s": ("geartrain_tier_pull_requests_per_s", "Pull requests."),
    "push_requests_per_s": ("geartrain_tier_push_requests_per_s", "Push requests."),
    "pull_rows_per_s": ("geartrain_tier_pull_rows_per_s", "Rows pulled."),
    "push_rows_per_s": ("geartrain_tier_push_rows_per_s", "Rows pushed."),
    "pull_p50_ms": ("geartrain_tier_pull_p50_ms", "Median of what pulls took inside a server lately."),
    "pull_p99_ms": ("geartrain_tier_pull_p99_ms", "99th percentile of what pulls took inside a server lately."),
    "staged_bytes": ("geartrain_tier_staged_bytes", "Pushed rows of a table that wait for their window."),
}
_TIER_COUNTERS = {
    "num_admitted": ("geartrain_tier_admitted", "Rows that were born since the job was opened."),
    "num_rejected": ("geartrain_tier_rejected", "Ids without a row that were not admitted, once per window."),
    "num_expired": ("geartrain_tier_expired", "Rows that left for their age or score."),
    "num_evicted": ("geartrain_tier_evicted", "Rows that left to make room."),
}


def exposition(facade: ClusterFacade) -> bytes:
    """All gauges as text; those of the running job are left out while there is none."""
    registry = CollectorRegistry()
    registry.register(_ClusterCollector(facade))
    return generate_latest(registry)


class _ClusterCollector(Collector):
    def __init__(self, facade: ClusterFacade) -> None:
        self._facade = facade

    def describe(self) -> list[Metric]:
        # Spares the coordinator a first reading, which registering would make only to learn the names.
        return []

    def collect(self) -> Iterator[Metric]:
        is_ready, _ = self._facade.readiness()
        yield GaugeMetricFamily("geartrain_ready", "1 if jobs can be run now.", value=float(is_ready))
        yield _jobs(self._facade.jobs())
        yield _nodes(self._facade.nodes())
        yield from _hardware(self._facade.portraits(), self._facade.groups())
        try:
            window = self._facade.window()
        except ConflictError:
            pass  # No job is running, so there is no window.
        else:
            yield from _window(window)
        try:
            tier = self._facade.tier_stats()
        except ConflictError:
            return
        if tier["servers"]:
            yield from _tier(tier["servers"], tier["totals"])


def _jobs(jobs: list[dict[str, Any]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily("geartrain_jobs", "Jobs by state.", labels=["state"])
    by_state = Counter(job["state"] for job in jobs)
    # States without a job are shown as 0, so that no series comes and goes.
    for state in get_args(JobState):
        family.add_metric([state], by_state[state])
    return family


def _nodes(nodes: list[dict[str, Any]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily("geartrain_nodes", "Nodes by role and state.", labels=["role", "state"])
    for (role, state), count in sorted(Counter((node["role"], node["state"]) for node in nodes).items()):
        family.add_metric([role, state], count)
    return family


def _hardware(portraits: list[dict[str, Any]], groups: dict[str, Any]) -> Iterator[Metric]:
    """A series per worker, whatever its group is called: groups come and go."""
    if portraits:
        meaning = "Speed of a worker alone, by its portrait."
        speed = GaugeMetricFamily("geartrain_portrait_samples_per_s", meaning, labels=["worker"])
        for portrait in portraits:
            speed.add_metric([portrait["worker"]], portrait["samples_per_s"])
        yield speed
    if groups["groups"]:
        family = GaugeMetricFamily("geartrain_share", "A worker's part of its group's batch.", labels=["worker"])
        for group in groups["groups"]:
            for worker, share in group["shares"].items():
                family.add_metric([worker], share)
        yield family


def _window(window: dict[str, Any]) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "geartrain_window_queue_length", "Arrived steps that wait.", value=float(window["queue_length"])
    )
    if window["effective_window_ms"] is not None:
        meaning = "Milliseconds that a hybrid window waits, as used now."
        yield GaugeMetricFamily("geartrain_window_ms", meaning, value=float(window["effective_window_ms"]))


def _tier(lines: list[dict[str, Any]], totals: dict[str, Any]) -> Iterator[Metric]:
    kinds: list[tuple[type[GaugeMetricFamily | CounterMetricFamily], dict[str, tuple[str, str]]]] = [
        (GaugeMetricFamily, _TIER_GAUGES),
        (CounterMetricFamily, _TIER_COUNTERS),
    ]
    for kind, families in kinds:
        for field, (name, meaning) in families.items():
            family = kind(name, meaning, labels=["server", "table"])
            for line in lines:
                family.add_metric([line["server"], line["table"]], line[field])
            yield family
    meaning = "Dense gradients that wait for their window, on all servers."
    yield GaugeMetricFamily("geartrain_tier_staged_dense_bytes", meaning, value=float(totals["staged_dense_bytes"]))
    meaning = "Requests that wait for a thread or for a version."
    queues = GaugeMetricFamily("geartrain_tier_queue_length", meaning, labels=["server"])
    for server, length in {line["server"]: line["queue_length"] for line in lines}.items():  # the same on all of them
        queues.add_metric([server], length)
    yield queues
