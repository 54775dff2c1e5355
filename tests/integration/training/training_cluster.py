"""A local cluster of real processes that trains one job after another, and what a job leaves behind."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from coordinator.journal import Entry
from coordinator.journal_file import read_journal
from geartrain.config import parse_config
from geartrain.launch.local import ClusterSpec, LocalCluster

SUBMIT_DEADLINE_S = 60.0
POLL_S = 0.03


@dataclass(frozen=True)
class Ended:
    """A job as the API showed it after its end, and its journal."""

    job: Mapping[str, Any]
    journal: list[Entry]

    @property
    def result(self) -> dict[str, Any]:
        """Of a job that succeeded."""
        assert self.job["state"] == "succeeded", (self.job["state"], self.job["reason"])
        return dict(self.job["result"])

    @property
    def error(self) -> dict[str, Any]:
        """Of a job that failed."""
        assert self.job["state"] == "failed", (self.job["state"], self.job["reason"])
        return dict(self.job["error"])


class TrainingCluster:
    """Servers s0, s1, ... and workers w0, w1, ... that stay for any number of jobs. Data and output lie in `folder`."""

    def __init__(self, folder: Path, num_servers: int, num_workers: int, device: str | Sequence[str] = "cpu") -> None:
        """`device`: of every worker, or one for each."""
        self.folder = folder
        self._spec = ClusterSpec(
            num_servers=num_servers,
            devices=(device,) * num_workers if isinstance(device, str) else tuple(device),
            listen="127.0.0.1:0",
            output_dir=folder / "output",
            allowed_roots=(folder,),
            logs_dir=folder / "logs",
            api_token=None,
            state_dir=folder / "state",
        )
        self._cluster = LocalCluster(self._spec)
        self._resources = ExitStack()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        self._resources.enter_context(self._cluster)
        self._client = self._resources.enter_context(self._cluster.client(SUBMIT_DEADLINE_S))
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def run(self, config: Mapping[str, Any], task: Mapping[str, str] | None = None) -> Ended:
        """Run a job to its end, however it ends. Each has a folder for its checkpoints of its own."""
        own = {**config, "checkpoint": {"directory": f"checkpoints-{next(self._numbers)}"}}
        checked = parse_config(own, self.folder, (self.folder,))
        job = str(self._client.submit(checked.to_dict(), dict(task or {"kind": "train"}))["id"])
        ended = self._client.wait(job, lambda _: self._cluster.check(), poll_s=POLL_S)
        return Ended(ended, read_journal(self.folder / "state", job))

    def tier_stats(self) -> dict[str, Any]:
        """What the API tells of the embedding tier: after a job, the last of it."""
        return self._client.tier_stats()
