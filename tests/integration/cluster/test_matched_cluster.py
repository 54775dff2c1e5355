"""A cluster of two unlike (emulated) cards: shares by their speed, and what people may see and change meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster_support import job_fields, wait_for, write_data

from api.sdk import GeartrainClient
from coordinator.conservation import prove_conservation
from coordinator.journal import Entry, PassEnded, SharesChanged
from coordinator.journal_file import read_journal
from geartrain.errors import ConfigError, ConflictError, NotFoundError
from geartrain.launch.local import ClusterSpec, LocalCluster

NUM_ROWS = 2000
BATCH_SIZE = 600
SPEEDS = {"w0": 4000.0, "w1": 2000.0}
"""Slow enough for the host to keep up on a busy machine: a step takes a tenth of a second."""
FINAL = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class Matched:
    """The cluster, a job that ran to its end, and the portraits that it left."""

    client: GeartrainClient
    state_dir: Path
    data: Path
    job: dict[str, Any]
    portraits: list[dict[str, Any]]

    @property
    def result(self) -> dict[str, Any]:
        result = self.job["result"]
        assert isinstance(result, dict)
        return result

    def journal(self, job: str) -> list[Entry]:
        return read_journal(self.state_dir, job)

    def submit(self, passes: int) -> str:
        return submit(self.client, self.data, passes)

    def once(self, job: str, holds: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """The job as soon as something holds of it; the test fails when it ends before."""

        def look() -> dict[str, Any] | None:
            status = self.client.job(job)
            assert holds(status) or status["state"] not in FINAL, status
            return status if holds(status) else None

        return wait_for(look, what)


def submit(client: GeartrainClient, data: Path, passes: int) -> str:
    sections = {"training": {"passes": passes, "batch_size": BATCH_SIZE}, "sync": {"mode": "hybrid"}}
    fields = job_fields(**sections, heterogeneous=True)
    fields["data"] = {"root": str(data), **fields["data"]}
    return str(client.submit(fields)["id"])


@pytest.fixture(scope="module")
def matched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matched]:
    folder = tmp_path_factory.mktemp("matched")
    data = write_data(folder / "data", NUM_ROWS)
    spec = ClusterSpec(
        num_servers=2,
        devices=tuple(f"emulate:name=card-{worker},samples_per_s={speed:g}" for worker, speed in SPEEDS.items()),
        listen="127.0.0.1:0",
        output_dir=folder / "output",
        allowed_roots=(data,),
        logs_dir=folder / "logs",
        api_token=None,
        state_dir=folder / "state",
        job_folders=True,
    )
    with LocalCluster(spec) as cluster, cluster.client(60.0) as client:
        job = client.wait(submit(client, data, 2), lambda _: cluster.check(), poll_s=0.05)
        assert job["state"] == "succeeded", job
        yield Matched(client, folder / "state", data, dict(job), client.portraits())


@pytest.fixture
def training(matched: Matched) -> Iterator[str]:
    """A job that trains until the test has seen enough."""
    job = matched.submit(passes=100_000)
    try:
        matched.once(job, lambda status: status["state"] == "training" and status["progress"]["version"] > 0, "a step")
        yield job
    finally:
        if matched.client.job(job)["state"] not in FINAL:
            matched.client.cancel(job)
        wait_for(lambda: matched.client.job(job)["state"] in FINAL, "the end of the job")


def test_shares_are_by_speed_and_cards_are_shown_as_emulated(matched: Matched) -> None:
    result = matched.result
    assert result["groups"] == [["w0", "w1"]]
    fast, slow = result["workers"]
    assert (fast["device"], slow["device"]) == ("emulate:card-w0", "emulate:card-w1")
    assert fast["emulated"] is slow["emulated"] is True
    assert fast["samples"] + slow["samples"] == result["samples"] == 2 * NUM_ROWS
    assert 1.4 < fast["samples"] / slow["samples"] < 2.9
    assert fast["share"] + slow["share"] == pytest.approx(1.0, abs=1e-3)
    for row in (fast, slow):
        assert 0 < row["solo_samples_per_s"] <= SPEEDS[row["worker"]]


def test_the_report_compares_with_the_sum_of_the_cards(matched: Matched) -> None:
    said, result = matched.result["heterogeneity"], matched.result
    solos = [row["solo_samples_per_s"] for row in result["workers"]]
    assert said["sum_of_solo_samples_per_s"] == pytest.approx(sum(solos), abs=0.2)
    assert said["throughput_over_sum_of_solo"] == pytest.approx(result["samples_per_s"] / sum(solos), abs=1e-3)
    assert result["samples_per_s"] < 1.001 * sum(SPEEDS.values()), "faster than its cards: the emulation is wrong"
    assert said["equal_shares_samples_per_s"] < sum(solos)
    assert said["imbalance"]["p90"] >= said["imbalance"]["p50"] > 0
    assert result["probe_seconds"] > 1


def test_portraits_tell_what_was_measured(matched: Matched) -> None:
    by_worker = {one["worker"]: one for one in matched.portraits}
    assert set(by_worker) == set(SPEEDS)
    for worker, speed in SPEEDS.items():
        one = by_worker[worker]
        assert one["device"] == f"emulate:name=card-{worker},samples_per_s={speed:g}"
        assert (one["model"], one["emulated"], one["precision"]) == (f"card-{worker}", True, "fp32")
        assert one["source"] in ("probed", "steps") and one["num_probes"] >= 60
        assert 0.3 * speed < one["samples_per_s"] < 1.01 * speed
        assert set(one["pull_mb_per_s"]) == {"s0", "s1"}
        assert matched.client.portrait(worker)["history"] is not None


def test_every_sample_is_in_one_window(matched: Matched) -> None:
    report = prove_conservation(matched.journal(matched.job["id"]), NUM_ROWS, 2)
    assert (report.samples_applied, report.samples_skipped) == (2 * NUM_ROWS, 0)
    assert report.versions == matched.result["version"]


def test_a_speed_set_by_hand_counts_at_once_and_measurement_takes_over(matched: Matched, training: str) -> None:
    client = matched.client
    first = client.portrait("w1")
    assert [*first["history"], first][0]["source"] == "stored", "the same card and the same work: not probed again"
    before = client.groups()
    assert (before["job"], before["generation"]) == (training, 1)
    (group,) = before["groups"]
    assert group["members"] == ["w0", "w1"] and group["batch_size"] == BATCH_SIZE
    assert sum(group["shares"].values()) == pytest.approx(1.0)

    answer = client.put_portrait("w1", 12_000.0)
    assert (answer["source"], answer["samples_per_s"]) == ("set", pytest.approx(12_000.0))
    assert client.groups()["groups"][0]["shares"]["w1"] > 1.5 * group["shares"]["w1"]
    wait_for(lambda: client.portrait("w1")["source"] == "steps", "steps to correct the portrait")
    assert client.portrait("w1")["samples_per_s"] < 6000.0
    assert client.groups()["groups"][0]["shares"]["w1"] < 1.5 * group["shares"]["w1"]

    passes = matched.client.job(training)["progress"]["pass_index"] + 1
    matched.once(training, lambda status: status["progress"]["pass_index"] > passes, "the end of a pass")
    client.cancel(training)
    wait_for(lambda: client.job(training)["state"] == "cancelled", "the end of the job")
    journal = matched.journal(training)
    reasons = [entry.reason for entry in journal if isinstance(entry, SharesChanged)]
    assert any("set to 12000 samples/s by a person" in reason for reason in reasons)
    assert any(reason.startswith("w1 need") for reason in reasons), reasons
    ends = [place for place, entry in enumerate(journal) if isinstance(entry, PassEnded)]
    report = prove_conservation(journal[: ends[-1] + 1], NUM_ROWS, len(ends))
    assert (report.samples_applied, report.samples_skipped) == (len(ends) * NUM_ROWS, 0)


def test_the_window_can_be_changed_while_it_trains(matched: Matched, training: str) -> None:
    client = matched.client
    assert (client.window()["mode"], client.window()["window_ms"]) == ("hybrid", "auto")
    changed = client.set_window("async", 20.0)
    assert (changed["mode"], changed["window_ms"], changed["effective_window_ms"]) == ("async", 20.0, 20.0)
    assert client.set_window(window_ms="auto")["window_ms"] == "auto"
    with pytest.raises(ConfigError, match="window_ms"):
        client.set_window(window_ms=-1.0)
    assert (client.window()["mode"], client.window()["window_ms"]) == ("async", "auto")
    version = client.job(training)["progress"]["version"]
    matched.once(training, lambda status: status["progress"]["version"] > version + 3, "windows of the new kind")
    report = client.job(training)["report"]
    assert [row["worker"] for row in report["workers"]] == ["w0", "w1"]
    wait_for(lambda: len(client.groups()["groups"]) == 2, "the groups of a job that begins with async")
    assert client.groups()["reason"].startswith("sync.mode is now async: ")
    client.set_window("sync")
    wait_for(lambda: len(client.groups()["groups"]) == 1, "the one group of a job that begins with sync")


def test_what_is_not_there_cannot_be_set(matched: Matched) -> None:
    with pytest.raises(NotFoundError, match="w7"):
        matched.client.put_portrait("w7", 100.0)
    with pytest.raises(ConfigError, match="samples_per_s"):
        matched.client.put_portrait("w0", 0.0)
    with pytest.raises(ConflictError, match="window"):
        matched.client.set_window("async")
    assert matched.client.groups()["groups"] == []
