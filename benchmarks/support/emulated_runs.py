"""Runs of jobs on local clusters of emulated cards, and the same jobs in the simulator."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from coordinator.simulated_report import simulate
from geartrain.commands.simulate import read_data
from geartrain.config import JobConfig, parse_config
from geartrain.config.simulated_cluster import SimulatedCluster
from geartrain.config.validation import validate
from geartrain.device_spec import EmulatedCard, parse_device
from geartrain.launch.local import ClusterSpec, LocalCluster

NUM_SERVERS = 2
SIMULATOR_SEED = 1
ANSWER_S = 10.0

Data: TypeAlias = Callable[[Path, int], dict[str, Any]]
"""Writes so many rows into a folder, and says what a config needs to describe them."""


@dataclass(frozen=True, slots=True)
class Card:
    """An emulated card; `more` are further settings of its specification."""

    name: str
    samples_per_s: int
    more: str = ""

    @property
    def spec(self) -> str:
        """As `--device` takes it."""
        return f"emulate:name={self.name},samples_per_s={self.samples_per_s}" + (f",{self.more}" if self.more else "")

    def described_speed(self, tokens_per_sample: float) -> float:
        """Samples per second by its description: without overhead, transfers, jitter and throttling."""
        card = parse_device(self.spec).card
        assert isinstance(card, EmulatedCard)
        token_s = 0.0 if card.tokens_per_s is None else tokens_per_sample / card.tokens_per_s
        return 1.0 / (card.step_s(1, 0) + token_s)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished job: its result, its time series, its events, and the portraits of its workers, each with those before
    it in `history`."""

    result: Mapping[str, Any]
    points: Sequence[Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]
    portraits: Mapping[str, Mapping[str, Any]]

    @property
    def samples_per_s(self) -> float:
        return float(self.result["samples_per_s"])

    @property
    def host_bound_steps(self) -> int:
        """Steps of all workers in which the host was slower than the card it stands for."""
        return sum(worker["host_bound_steps"] for worker in self.result["workers"])


@dataclass(frozen=True, slots=True)
class JobShape:
    """What is trained: rows by `data`, in batches of `batch_size`; `changes` replace top-level parts of the config."""

    data: Data
    batch_size: int
    num_rows: int
    changes: Mapping[str, Any]


@contextmanager
def job_of(shape: JobShape) -> Iterator[JobConfig]:
    """The job's config; its data lie in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="geartrain-bench-") as folder:
        data = Path(folder) / "data"
        fields: dict[str, Any] = {
            "name": "bench-heterogeneity",
            **shape.data(data, shape.num_rows),
            # So small a tower that the host can stand in for all cards at once.
            "model": {"type": "deepfm", "embedding_dim": 8, "hidden": [32, 16]},
            "training": {
                "passes": 1,
                "batch_size": shape.batch_size,
                "dense_optimizer": {"type": "adam", "lr": 0.001},
                "sparse_optimizer": {"type": "rowwise_adagrad", "lr": 0.05},
            },
            **shape.changes,
        }
        yield parse_config(fields, data, [data])


@contextmanager
def cluster_of(devices: Sequence[str], config: JobConfig) -> Iterator[LocalCluster]:
    """A cluster of its own for the job, one worker for each device."""
    spec = ClusterSpec(
        num_servers=NUM_SERVERS,
        devices=tuple(devices),
        listen="127.0.0.1:0",
        output_dir=None,
        allowed_roots=(Path(config.data.root),),
        logs_dir=None,
        api_token="bench",
    )
    with LocalCluster(spec) as cluster:
        yield cluster


def train_on(cluster: LocalCluster, config: JobConfig) -> Run:
    """Train the job to its end. Raises RuntimeError when it does not succeed."""
    job = cluster.run_job(config.to_dict(), {"kind": "train"}, lambda _: None)
    if job["state"] != "succeeded":
        raise RuntimeError(f"the job {job['state']}: {job['reason']}")
    with cluster.client(ANSWER_S) as client:
        measured = client.portraits() if config.heterogeneous else []
        return Run(
            result=job["result"],
            points=client.metrics(job["id"]),
            events=list(client.events(job["id"])),
            portraits={one["worker"]: client.portrait(one["worker"]) for one in measured},
        )


def run_on(devices: Sequence[str], config: JobConfig) -> Run:
    """Train the job on a cluster of its own."""
    with cluster_of(devices, config) as cluster:
        return train_on(cluster, config)


def simulate_on(devices: Sequence[str], config: JobConfig) -> dict[str, Any]:
    """What the simulator, in this process, says of the same job on the same cards; only its files are looked at."""
    workers = [{"device": device} for device in devices]
    machines = validate(SimulatedCluster, {"workers": workers, "servers": NUM_SERVERS})
    data = read_data(machines, config, [Path(config.data.root)])
    return simulate(machines, config, data, config.training.passes * data.num_rows, SIMULATOR_SEED)
