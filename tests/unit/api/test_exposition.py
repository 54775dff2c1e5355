"""The metrics for Prometheus, read back with Prometheus' own parser."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from api.testing import FakeFacade


def samples(http: httpx.Client) -> dict[tuple[str, ...], float]:
    """Values by name and label values."""
    response = http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_every_gauge_comes_from_the_coordinator(http: httpx.Client, facade: FakeFacade) -> None:
    facade.add_job("a", "succeeded")
    facade.add_job("b", "succeeded")
    facade.add_job("c", "training")
    facade.node_list.append({**facade.node_list[0], "name": "s0", "role": "server", "state": "lost"})
    values = samples(http)
    assert values["geartrain_ready",] == 1
    assert {key[1]: value for key, value in values.items() if key[0] == "geartrain_jobs"} == {
        "queued": 0,
        "probing": 0,
        "training": 1,
        "evaluating": 0,
        "succeeded": 2,
        "failed": 0,
        "cancelled": 0,
    }
    assert values["geartrain_nodes", "worker", "joined"] == 1
    assert values["geartrain_nodes", "server", "lost"] == 1
    assert values["geartrain_window_queue_length",] == 1
    assert values["geartrain_window_ms",] == 12.5
    assert values["geartrain_portrait_samples_per_s", "w0"] == facade.portrait_list[0]["samples_per_s"]
    assert {key[1]: value for key, value in values.items() if key[0] == "geartrain_share"} == dict.fromkeys(
        ["w0", "w1", "w2", "w3"], 0.5
    )
    line = facade.tier_now["servers"][0]
    assert values["geartrain_tier_rows", "s0", "item"] == line["num_rows"]
    assert values["geartrain_tier_bytes", "s0", "item"] == line["bytes"]
    for name in ("pull_requests", "push_requests", "pull_rows", "push_rows"):
        assert values[f"geartrain_tier_{name}_per_s", "s0", "item"] == line[f"{name}_per_s"]
    for name in ("pull_p50_ms", "pull_p99_ms", "staged_bytes"):
        assert values[f"geartrain_tier_{name}", "s0", "item"] == line[name]
    for name in ("admitted", "rejected", "expired", "evicted"):
        assert values[f"geartrain_tier_{name}_total", "s0", "item"] == line[f"num_{name}"]


def test_staged_bytes_are_of_tables_and_queues_of_servers(http: httpx.Client, facade: FakeFacade) -> None:
    line = {**facade.tier_now["servers"][0], "staged_bytes": 7, "queue_length": 3}
    others = [{**line, "table": "user", "staged_bytes": 1}, {**line, "server": "s1", "staged_bytes": 9}]
    totals = {**facade.tier_now["totals"], "staged_dense_bytes": 5}
    facade.tier_now = {**facade.tier_now, "servers": [line, *others], "totals": totals}
    values = samples(http)
    of_servers = {key: value for key, value in values.items() if key[0].endswith(("_bytes", "queue_length"))}
    assert {
        key: value
        for key, value in of_servers.items()
        if key[0].startswith(("geartrain_tier_staged", "geartrain_tier_q"))
    } == {
        ("geartrain_tier_staged_bytes", "s0", "item"): 7,
        ("geartrain_tier_staged_bytes", "s0", "user"): 1,
        ("geartrain_tier_staged_bytes", "s1", "item"): 9,
        ("geartrain_tier_staged_dense_bytes",): 5,
        ("geartrain_tier_queue_length", "s0"): 3,
        ("geartrain_tier_queue_length", "s1"): 3,
    }


def test_each_scrape_reads_afresh(http: httpx.Client, facade: FakeFacade) -> None:
    assert samples(http)["geartrain_ready",] == 1
    facade.ready = (False, "1 of 2 servers registered")
    assert samples(http)["geartrain_ready",] == 0


def test_without_a_running_job_its_gauges_are_left_out(http: httpx.Client, facade: FakeFacade) -> None:
    facade.window_now = None
    facade.portrait_list = []
    facade.groups_now = {"job": None, "generation": 0, "reason": "no job trains", "groups": []}
    facade.tier_now = {**facade.tier_now, "servers": [], "tables": {}}
    names = {key[0] for key in samples(http)}
    assert names == {"geartrain_ready", "geartrain_jobs", "geartrain_nodes"}


def test_portraits_stay_when_the_job_has_ended(http: httpx.Client, facade: FakeFacade) -> None:
    facade.window_now = None
    facade.groups_now = {"job": None, "generation": 0, "reason": "no job trains", "groups": []}
    names = {key[0] for key in samples(http)}
    assert "geartrain_portrait_samples_per_s" in names
    assert not names & {"geartrain_share", "geartrain_window_ms", "geartrain_window_queue_length"}
