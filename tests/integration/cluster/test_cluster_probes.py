"""Probes of workers that are processes, against servers that are: what they find, and what they leave behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from cluster_support import Commands, commands_in, job_fields, write_data
from scripted_cluster import JOB, TERM, TOKEN, ScriptedCluster, scripted_cluster

from embedding_tier.client import TierClient
from geartrain.errors import GeartrainError
from geartrain.types import Floats
from geartrain.wire.messages import NodeFailed, Probe, Probed, ProbeReport, ServerStats

DEVICES = (
    "cpu",
    "emulate:name=A,samples_per_s=1000,tokens_per_s=4000,precisions=fp32+bf16",
    "emulate:name=B,samples_per_s=4000,bandwidth_mb_s=5,memory_mb=2,sample_kb=50",
)
PROBE = Probe(TERM, JOB, 20, 0, 128, "auto")


@dataclass(frozen=True)
class Probing:
    """What a cluster said when its workers were probed, all at the same time, and then once more."""

    reports: dict[str, ProbeReport]
    again: dict[str, ProbeReport]
    dense: list[Floats]
    stats: dict[str, ServerStats]


@pytest.fixture(scope="module")
def probing(tmp_path_factory: pytest.TempPathFactory) -> Probing:
    folder = tmp_path_factory.mktemp("probed")
    write_data(folder)
    with commands_in(folder) as commands, scripted_cluster(commands, 2, DEVICES) as cluster:
        cluster.open(folder, job_fields())
        dense = [dense_values(cluster)]
        answers = [cluster.ask(Probed, cluster.workers, PROBE) for _ in range(2)]
        dense.append(dense_values(cluster))
        first, again = ({name: probed.measured for name, probed in answer.items()} for answer in answers)
        return Probing(first, again, dense, cluster.server_stats())


@pytest.fixture
def reports(probing: Probing) -> dict[str, ProbeReport]:
    return probing.reports


def dense_values(cluster: ScriptedCluster) -> Floats:
    client = TierClient(cluster.route, "reader", 1, TERM, TOKEN, 5)
    client.place_dense(cluster.bounds)
    values = np.empty(cluster.bounds[-1], dtype=np.float32)
    assert client.pull_dense(0, values) == 0
    client.close()
    return values


def test_every_worker_times_enough_steps_at_three_sizes(reports: dict[str, ProbeReport]) -> None:
    for report in reports.values():
        sizes = sorted({one.num_samples for one in report.timings})
        assert len(sizes) == 3 and sizes[-1] <= 128
        assert all(sum(one.num_samples == size for one in report.timings) >= 20 for size in sizes)
        assert all(0 < one.transfer_s < one.seconds for one in report.timings)
        assert any(one.num_tokens for one in report.timings)
        assert report.memory_gb_per_s > 0.1
        for figures in (report.pull_mb_per_s, report.push_mb_per_s, report.round_trip_ms):
            assert set(figures) == {"s0", "s1"} and min(figures.values()) > 0


def test_a_cpu_is_measured_as_it_is(reports: dict[str, ProbeReport]) -> None:
    report = reports["w0"]
    assert (report.device.vendor, report.device.emulated, report.max_samples) == ("cpu", False, None)
    # It could compute in bf16, but only does so when it is told to.
    assert report.precision == "fp32"
    assert set(report.precision_samples_per_s) == {"fp32"}


def test_an_emulated_card_measures_as_it_was_described(reports: dict[str, ProbeReport]) -> None:
    report = reports["w1"]
    assert (report.device.model, report.device.emulated) == ("A", True)
    described = [one.num_samples / 1000 + one.num_tokens / 4000 for one in report.timings]
    slower = [(one.seconds - one.transfer_s) / own for one, own in zip(report.timings, described, strict=True)]
    assert min(slower) > 0.999 and median(slower) < 1.5  # a busy host is slower than a card, never faster
    # Waiting takes as long in any precision: there is nothing to be gained.
    assert (report.precision, report.numeric_drift) == ("fp32", 0.0)
    assert set(report.precision_samples_per_s) == {"fp32", "bf16"}


def test_memory_and_link_of_a_card_show_in_its_probes(reports: dict[str, ProbeReport]) -> None:
    report = reports["w2"]
    assert report.max_samples == 40 and max(one.num_samples for one in report.timings) <= 40
    assert report.bytes_per_sample == pytest.approx(50_000)
    for figures in (report.pull_mb_per_s, report.push_mb_per_s):
        assert all(rate < 5.5 for rate in figures.values()), figures


def test_the_same_question_again_gets_the_same_answer(probing: Probing) -> None:
    assert probing.again == probing.reports


def test_probes_leave_no_trace(probing: Probing) -> None:
    before, after = probing.dense
    assert before.any() and after.tobytes() == before.tobytes()
    for stats in probing.stats.values():
        assert (stats.version, stats.staged_bytes) == (0, 0)
        assert all(table.num_rows == 0 and table.pull_requests > 0 for table in stats.tables.values())
        assert all(table.push_requests == 0 for table in stats.tables.values())


def test_a_precision_that_a_device_lacks_fails_the_job_by_name(tmp_path: Path, commands: Commands) -> None:
    write_data(tmp_path)
    with scripted_cluster(commands, 1, ("emulate:name=V100,samples_per_s=1000",)) as cluster:
        cluster.open(tmp_path, job_fields(training={"precision": "bf16"}))
        (failed,) = cluster.ask(NodeFailed, cluster.workers, Probe(TERM, JOB, 20, 0, 128, "bf16")).values()
        error = GeartrainError.from_dict(failed.error)
        assert error.message == (
            "training.precision: worker w0 on emulate:V100 cannot compute in bf16; expected auto, or one of fp32"
        )
