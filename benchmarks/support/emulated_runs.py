"""Runs of a small job on emulated cards, each on a cluster of its own."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from geartrain.config import parse_config
from geartrain.launch.local import ClusterSpec, LocalCluster

NUM_SERVERS = 2

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


@dataclass(frozen=True, slots=True)
class Run:
    """A finished job: its result, its time series and its events."""

    result: Mapping[str, Any]
    points: Sequence[Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]

    @property
    def samples_per_s(self) -> float:
        return float(self.result["samples_per_s"])


@dataclass(frozen=True, slots=True)
class JobShape:
    """What is trained: rows by `data`, in batches of `batch_size`; `changes` replace top-level sections of the config."""

    data: Data
    batch_size: int
    num_rows: int
    changes: Mapping[str, Any]


def run_on(cards: Sequence[Card], shape: JobShape) -> Run:
    """Train the job on these cards."""
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
        config = parse_config(fields, data, [data])
        spec = ClusterSpec(
            num_servers=NUM_SERVERS,
            devices=tuple(card.spec for card in cards),
            listen="127.0.0.1:0",
            output_dir=None,
            allowed_roots=(data,),
            logs_dir=None,
            api_token="bench",
        )
        with LocalCluster(spec) as cluster:
            job = cluster.run_job(config.to_dict(), {"kind": "train"}, lambda _: None)
            if job["state"] != "succeeded":
                raise RuntimeError(f"the job {job['state']}: {job['reason']}")
            with cluster.client(10.0) as client:
                return Run(job["result"], client.metrics(job["id"]), list(client.events(job["id"])))


def solo_speeds(cards: Sequence[Card], shape: Callable[[Card], JobShape]) -> dict[Card, float]:
    """Samples per second of each card alone, all measured at the same time: an emulated card leaves the host idle."""
    with multiprocessing.get_context("spawn").Pool(len(cards)) as pool:
        runs = [pool.apply_async(_solo_speed, (card, shape(card))) for card in cards]
        return {card: run.get() for card, run in zip(cards, runs, strict=True)}


def _solo_speed(card: Card, shape: JobShape) -> float:
    return run_on([card], shape).samples_per_s
