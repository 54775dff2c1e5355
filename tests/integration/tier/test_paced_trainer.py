"""A worker's steps on real servers and a device that writes down what it is asked: when the pace runs, what is told."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tier_cluster import JOB, TOKEN, TierCluster

from dense_workers.fetch import FetchFailed, ReadyStep
from dense_workers.links import Links
from dense_workers.orders import LatestOrders
from dense_workers.trainer import JobTrainer, WorkerIdentity
from dense_workers.waiting import HostClock
from geartrain.config import JobConfig, parse_config
from geartrain.data.index import build_index
from geartrain.device_spec import DeviceSpec
from geartrain.errors import DeviceMemoryError
from geartrain.wire.messages import (
    Contribution,
    Decided,
    DeviceFacts,
    FromNode,
    Grant,
    GrantedInterval,
    JobOpened,
    JoinGroup,
    OpenJob,
    PlaceDense,
    Staged,
    TableSpec,
)

StartTier = Callable[..., TierCluster]

LENGTHS = [row % 4 for row in range(60)]
"""Values in the history of each row; the last two are kept."""
PATIENT_S = 60.0


class NotedLinks(Links):
    """Links that let everything pass at once and write down how many bytes."""

    def __init__(self, events: list[Any]) -> None:
        super().__init__(None, HostClock())
        self._events = events

    def upload(self, num_bytes: int) -> float:
        self._events.append(("up", num_bytes))
        return 0.0

    def download(self, num_bytes: int) -> float:
        self._events.append(("down", num_bytes))
        return 0.0


class NotingDevice:
    """A device of which every host is too slow."""

    def __init__(self) -> None:
        self.spec = DeviceSpec("cpu")
        self.torch_device = torch.device("cpu")
        self.max_samples: int | None = None
        self.events: list[Any] = []
        self.links = NotedLinks(self.events)

    def facts(self) -> DeviceFacts:
        return DeviceFacts("double", "none", False, ["fp32"])

    def begin_job(self, worker: str) -> None:
        self.events.append(("job", worker))

    def begin_training(self) -> None:
        self.events.append("training")

    def begin_step(self, num_samples: int, num_tokens: int) -> NotingDevice:
        self.events.append(("step", num_samples, num_tokens))
        return self

    def finish(self) -> bool:
        self.events.append("finished")
        return True

    def check_fits(self, num_samples: int) -> None:
        if num_samples > 50:
            raise DeviceMemoryError("too large", num_samples=num_samples)

    def memory_error(self, error: Exception) -> None: ...

    def synchronize(self) -> None: ...

    def forget_peak(self) -> None: ...

    def peak_bytes(self) -> int | None: ...


def job_config(folder: Path) -> JobConfig:
    columns = {
        "label": [row % 2 for row in range(len(LENGTHS))],
        "user": [row % 7 for row in range(len(LENGTHS))],
        "history": [list(range(length)) for length in LENGTHS],
    }
    pq.write_table(pa.table(columns), folder / "train.parquet")
    fields = {
        "features": [
            {"name": "user", "kind": "categorical"},
            {"name": "history", "kind": "sequence", "max_length": 2},
        ],
        "label": "label",
        "data": {"root": ".", "format": "parquet", "shuffle": False, "train": ["train.parquet"]},
        "model": {"type": "deepfm", "embedding_dim": 2, "hidden": [4]},
        "training": {"batch_size": 20},
    }
    return parse_config(fields, folder, (folder,))


class OneWorker:
    """A trainer, alone in its group, and the servers of its job."""

    def __init__(self, tier: TierCluster, folder: Path) -> None:
        self.tier = tier
        self.device = NotingDevice()
        self.told: list[FromNode] = []
        self._fetched: queue.SimpleQueue[ReadyStep | FetchFailed] = queue.SimpleQueue()
        config = job_config(folder)
        index = build_index(config, ["train"]).to_dict()
        opening = OpenJob(1, JOB, config.to_dict(), index, tier.tables, tier.route, 0)
        identity = WorkerIdentity("w0", 1, TOKEN, "127.0.0.1", self.device)
        self.trainer = JobTrainer(identity, opening, self.told.append, self._fetched.put, LatestOrders())
        self.trainer.announce()
        opened = self.told[-1]
        assert isinstance(opened, JobOpened)
        length = opened.dense[-1].stop
        bounds = [length * part // tier.num_servers for part in range(tier.num_servers + 1)]
        placing = PlaceDense(1, JOB, opened.dense, bounds, {"type": "adam", "lr": 0.1}, "w0")
        tier.broadcast(placing)
        self.trainer.place_dense(placing)
        self.trainer.join_group(JoinGroup(1, 0, ["w0"], ""))

    def grant(self, step: int, start: int, stop: int, version: int = 0, pass_index: int = 0) -> None:
        self.trainer.granted(Grant(1, 0, step, version, GrantedInterval(pass_index, [start, stop]), []))

    def compute(self) -> Staged:
        """The report of the step that was granted; all events before it are forgotten."""
        ready = self._fetched.get(timeout=PATIENT_S)
        assert isinstance(ready, ReadyStep), ready
        self.device.events.append("fetched")
        self.trainer.compute(ready)
        report = self.told[-1]
        assert isinstance(report, Staged)
        return report


@pytest.fixture
def worker(start_tier: StartTier, tmp_path: Path) -> Iterator[OneWorker]:
    begin = {"type": "uniform", "range": 0.1}
    tables = [TableSpec(name, 3, {"type": "sgd", "lr": 0.1}, begin, 1) for name in ("user", "history")]
    worker = OneWorker(start_tier(num_servers=2, tables=tables), tmp_path)
    yield worker
    worker.trainer.close()


def tokens(start: int, stop: int) -> int:
    return sum(min(length, 2) for length in LENGTHS[start:stop])


def test_the_pace_runs_from_the_rows_being_there_to_the_gradients_and_no_longer(worker: OneWorker) -> None:
    assert worker.device.events[0] == ("job", "w0")
    worker.grant(0, 0, 20)
    worker.compute()
    events = worker.device.events
    around = events[events.index("fetched") :]
    assert around[:4] == ["fetched", "training", ("step", 20, tokens(0, 20)), "finished"]
    kinds = [event[0] for event in around[4:]]
    assert kinds == ["up", "up", "down", "down"], "then it is staged with both servers"


def test_a_report_tells_the_tokens_and_the_own_time_of_a_step(worker: OneWorker) -> None:
    worker.grant(0, 0, 20)
    first = worker.compute()
    assert (first.num_samples, first.num_tokens, first.host_bound) == (20, tokens(0, 20), True)
    assert 0 < first.busy_ms < first.step_ms
    assert first.step_ms == pytest.approx(first.busy_ms + first.wait_ms)
    worker.trainer.decided(Decided(1, 0, 0, 1))
    worker.tier.apply(1, [], divisor=0.0)
    worker.grant(1, 20, 23, version=1)
    second = worker.compute()
    assert (second.num_samples, second.num_tokens, second.version) == (3, tokens(20, 23), 1)


def test_what_comes_before_a_pass_is_no_part_of_its_first_step(worker: OneWorker) -> None:
    hour_ms = 3_600_000.0

    def next_step(step: int, pass_index: int, version: int) -> Staged:
        worker.trainer._cycle_start_s -= 3600.0  # an hour passes between the last step and the grant
        worker.grant(step, 0, 20, version, pass_index)
        report = worker.compute()
        worker.trainer.decided(Decided(1, 0, step, version + 1))
        worker.tier.apply(version + 1, [Contribution(0, step, ["w0"], 20, 1.0)], divisor=20.0)
        return report

    first, second, next_first = next_step(0, 0, 0), next_step(1, 0, 1), next_step(2, 1, 2)
    assert max(first.step_ms, next_first.step_ms) < hour_ms, "others may have been probed, or scored rows"
    assert second.wait_ms > hour_ms, "within a pass it waits for the training of others"
    for report in (first, second, next_first):
        assert report.step_ms == pytest.approx(report.busy_ms + report.wait_ms)


def test_rows_parameters_and_gradients_pass_the_links(worker: OneWorker) -> None:
    worker.device.events.clear()
    worker.grant(0, 0, 20)
    worker.compute()
    events = worker.device.events
    fetched = events.index("fetched")
    length = worker.trainer._layout.num_values
    moved = {
        (when, way): sum(event[1] for event in part if event[0] == way)
        for when, part in (("pull", events[:fetched]), ("stage", events[fetched:]))
        for way in ("up", "down")
    }
    num_rows = len({row % 7 for row in range(20)}) + len({one for n in LENGTHS[:20] for one in list(range(n))[-2:]})
    headers = 2000
    assert 8 * num_rows <= moved["pull", "up"] < 8 * num_rows + headers
    assert 4 * (3 * num_rows + length) <= moved["pull", "down"] < 4 * (3 * num_rows + length) + headers
    pushed = num_rows * (8 + 4 * 3 + 4 + 4) + 4 * length
    assert pushed <= moved["stage", "up"] < pushed + headers
    assert 0 < moved["stage", "down"] < headers


def test_a_step_that_does_not_fit_is_refused_before_it_is_computed(worker: OneWorker) -> None:
    worker.grant(0, 0, 55)
    with pytest.raises(DeviceMemoryError):
        worker.compute()
    assert "training" not in worker.device.events
    assert not [one for one in worker.told if isinstance(one, Staged)]
