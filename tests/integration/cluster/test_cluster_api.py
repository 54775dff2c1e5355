"""What the API tells of a cluster while a job trains on it, and after."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cluster_support import wait_for
from standing_cluster import FINAL, Standing

from geartrain.errors import ConflictError

NUM_ROWS = {"user": 40, "item": 60, "tags": 9}
"""Distinct values in the data, which are the rows of the tables once a pass is over."""


@pytest.fixture(scope="module")
def running(standing: Standing) -> Iterator[str]:
    """A job in training that has passes behind it."""
    job = standing.submit(name="running", data={"valid": ["valid.csv"], "test": []}, training={"passes": 100_000})
    wait_for(lambda: progress(standing, job).get("pass_index", 0) >= 2, "the third pass")
    yield job
    if standing.client.job(job)["state"] not in FINAL:
        standing.client.cancel(job)


def progress(standing: Standing, job: str) -> dict[str, Any]:
    return standing.client.job(job)["progress"] or {}


def test_progress_goes_on(standing: Standing, running: str) -> None:
    before = progress(standing, running)
    assert (before["passes"], before["num_rows"]) == (100_000, 2000)
    after = wait_for(lambda: (now := progress(standing, running))["version"] > before["version"] and now, "a window")
    assert after["samples"] > before["samples"]
    # 16 steps of at most 128 samples in a pass of 2,000 rows; in a pass, all steps but the last are full.
    assert after["samples"] == sum(divmod_samples(after["version"]))
    assert after["samples_per_s"] > 0
    assert 0 < wait_for(lambda: progress(standing, running)["loss"], "a loss") < 1


def divmod_samples(version: int) -> tuple[int, int]:
    """Samples of the whole passes in so many windows, and of the pass that is under way."""
    passes, steps = divmod(version, 16)
    return 2000 * passes, 128 * steps


def test_nodes(standing: Standing, running: str) -> None:
    nodes = {node["name"]: node for node in standing.client.nodes()}
    assert {name: node["role"] for name, node in nodes.items()} == {
        "s0": "server",
        "s1": "server",
        "w0": "worker",
        "w1": "worker",
    }
    assert all(nodes[name]["address"].startswith("ipc://") for name in ("s0", "s1"))
    assert [nodes[name]["device"] for name in ("w0", "w1")] == ["cpu", "cpu"]
    assert {node["state"] for node in nodes.values()} == {"joined"}
    seen = nodes["w1"]["last_heartbeat"]
    assert seen <= time.time()
    wait_for(lambda: {one["name"]: one for one in standing.client.nodes()}["w1"]["last_heartbeat"] > seen, "a beat")


def test_window(standing: Standing, running: str) -> None:
    window = standing.client.window()
    assert window["mode"] == "sync"
    assert window["reason"]
    assert set(window["staleness_histogram"]) == {"0"}
    assert window["staleness_histogram"]["0"] >= 32


def test_routing(standing: Standing, running: str) -> None:
    routing = standing.client.routing()
    assert {row["server"]: row["num_shards"] for row in routing["servers"]} == {"s0": 512, "s1": 512}
    assert routing["num_shards"] == 1024
    assert routing["moves"] == []


def test_tier_stats(standing: Standing, running: str) -> None:
    def moving() -> dict[str, Any] | None:
        told = standing.client.tier_stats()
        rows = told["servers"]
        return told if len(rows) == 6 and all(row["push_rows_per_s"] > 0 for row in rows) else None

    told = wait_for(moving, "rates")
    assert told["job"] == running
    assert {name: table["num_rows"] for name, table in told["tables"].items()} == NUM_ROWS
    assert told["totals"]["num_rows"] == sum(row["num_rows"] for row in told["servers"]) == sum(NUM_ROWS.values())
    assert {(row["server"], row["table"]) for row in told["servers"]} == {
        (server, table) for server in ("s0", "s1") for table in NUM_ROWS
    }
    for row in told["servers"]:
        assert 0 < row["num_rows"] < NUM_ROWS[row["table"]]
        assert row["bytes"] >= row["num_rows"] * 4 * (4 + 1)
        assert row["pull_requests_per_s"] > 0
        # A worker pulls a key of a batch once and pushes it once, and evaluation pulls some more.
        assert 1 <= round(row["pull_rows_per_s"] / row["pull_requests_per_s"], 6) <= row["num_rows"]
        assert 0 < row["push_rows_per_s"] <= row["pull_rows_per_s"] * 1.5
        assert 0 < row["pull_p50_ms"] <= row["pull_p99_ms"]
    speed = progress(standing, running)["samples_per_s"]
    # Two workers push to each server in each step of 125 samples on average; the windows of the two figures differ.
    pushes_per_s = sum(row["push_requests_per_s"] for row in told["servers"] if row["table"] == "user")
    assert 0.1 < pushes_per_s / (speed / 125 * 2 * 2) < 10


def test_stats_command(standing: Standing, running: str) -> None:
    wait_for(lambda: len(standing.client.tier_stats()["servers"]) == 6, "both servers")
    lines = standing.commands.run("stats", "--coordinator", standing.url).stdout.splitlines()
    assert lines[0].split()[:2] == ["server", "table"]
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["s0", row["table"], str(row["num_rows"])] for row in standing.client.tier_stats()["servers"][:3]
    ]


def test_metrics_are_a_time_series(standing: Standing, running: str) -> None:
    points = wait_for(
        lambda: (known := standing.client.metrics(running)) and known[-1]["version"] > 100 and known, "points"
    )
    times = [point["time"] for point in points]
    assert times == sorted(times)
    assert [point["samples"] for point in points] == sorted(point["samples"] for point in points)
    aucs = [point["auc"] for point in points if point["auc"] is not None]
    assert len(aucs) >= 6 and max(aucs) > 0.7
    assert any(point["samples_per_s"] for point in points)
    middle = times[len(times) // 2]
    later = standing.client.metrics(running, since=middle)
    assert later and all(point["time"] > middle for point in later)


def test_events_are_streamed(standing: Standing, running: str) -> None:
    events = standing.client.events(running)
    first = [next(events) for _ in range(5)]
    assert [event["kind"] for event in first] == ["queued", "started", "groups", "pass", "metrics"]
    # The next passes begin, and may end, while the checkpoint is written.
    later: list[dict[str, Any]] = []
    while {"checkpoint", "pass"} - {event["kind"] for event in later}:
        later.append(next(events))
    assert {event["kind"] for event in later} <= {"checkpoint", "pass", "metrics"}
    assert [event["number"] for event in first + later] == list(range(1, 6 + len(later)))
    assert next(standing.client.events(running, after=6))["number"] == 7
    # One that has not happened yet.
    newest = len([point for point in standing.client.metrics(running) if point["auc"] is not None])
    assert next(standing.client.events(running, after=3 + 3 * newest))["number"] == 4 + 3 * newest


def test_readiness_and_liveness(standing: Standing, running: str) -> None:
    assert standing.client.ready() == (True, "2 of 2 servers, 2 of 2 workers")
    assert standing.client.health()["status"] == "ok"


def test_prometheus(standing: Standing, running: str) -> None:
    wait_for(lambda: len(standing.client.tier_stats()["servers"]) == 6, "both servers")
    answer = httpx.get(f"{standing.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert 'geartrain_jobs{state="training"} 1.0' in lines or 'geartrain_jobs{state="evaluating"} 1.0' in lines
    assert "geartrain_ready 1.0" in lines
    rows = [line for line in lines if line.startswith("geartrain_tier_rows{")]
    assert sum(float(line.split()[-1]) for line in rows) == sum(NUM_ROWS.values())


def test_openapi_is_served(standing: Standing) -> None:
    paths = httpx.get(f"{standing.url}/openapi.json").json()["paths"]
    assert {"/v1/jobs", "/v1/jobs/{job}", "/v1/nodes", "/v1/window", "/v1/routing", "/v1/embedding-tier/stats"} <= set(
        paths
    )
    page = httpx.get(f"{standing.url}/docs")
    assert (page.status_code, "/openapi.json" in page.text) == (200, True)


def test_once_the_job_has_ended_nothing_moves(standing: Standing, running: str) -> None:
    wait_for(lambda: standing.client.tier_stats()["totals"]["pull_rows_per_s"] > 0, "rates")
    assert standing.client.cancel(running)["state"] == "cancelled"
    with pytest.raises(ConflictError):
        standing.client.window()
    resting = wait_for(
        lambda: (told := standing.client.tier_stats())["totals"]["pull_rows_per_s"] == 0 and told, "the tier to rest"
    )
    assert resting["totals"]["push_requests_per_s"] == 0
    assert {name: table["num_rows"] for name, table in resting["tables"].items()} == NUM_ROWS
    assert standing.client.ready()[0]
