"""Servers and workers that answer the coordinator's commands in memory, without a process, a socket or a clock.

A test drives a `Core` with them: `deliver` carries out what the core wants, `run` goes on until nothing is left to say.
The order in which answers come is the test's (`shuffle`), so a run is a pure function of its seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coordinator import journal
from coordinator.checkpoints import Manifest
from coordinator.commands import (
    Command,
    ComputeMetrics,
    CutFilesDone,
    FilesDone,
    Journal,
    MetricsComputed,
    PrepareCut,
    PublishCut,
    RaiseTerm,
    SaveJob,
    Send,
    TermRaised,
    WritePredictions,
)
from coordinator.core import Core, CoreSettings
from coordinator.plan import Task
from coordinator.records import JobRecord
from geartrain.config import JobConfig
from geartrain.data.chunks import Chunk, DatasetIndex
from geartrain.wire import messages as wire

SEGMENTS = [wire.DenseSegment("weight", (10,), 0, 10, "parameter")]


def job_config(**changes: Any) -> JobConfig:
    """A small job; `changes` replace top-level sections of the config."""
    fields: dict[str, Any] = {
        "name": "scripted",
        "features": [{"name": "user", "kind": "categorical"}],
        "label": "label",
        "data": {"root": "/data", "format": "csv", "train": ["train.csv"], "valid": ["valid.csv"], "test": ["t.csv"]},
        "model": {"type": "deepfm", "embedding_dim": 2, "hidden": [2]},
        "training": {"passes": 2, "batch_size": 8},
        "heterogeneous": False,
    }
    return JobConfig.from_resolved({**fields, **changes})


def data_index(train: int = 50, valid: int = 10, test: int = 10) -> DatasetIndex:
    """An index of files that nobody reads."""

    def chunks(name: str, rows: int) -> tuple[Chunk, ...]:
        return (Chunk(f"/data/{name}.csv", 0, rows, 0, 1, -1),) if rows else ()

    return DatasetIndex(
        train=chunks("train", train), valid=chunks("valid", valid), test=chunks("test", test), standard={}, key_kinds={}
    )


class ScriptedNodes:
    """A core with scripted nodes. `sent` keeps all messages by node, `entries` the journal, `aucs` what valid gives.

    `speeds` (samples/s, else 1000) and `models` say what kind of device a worker is.
    `mute` nodes hear nothing and send no heartbeat, those in `never_answer` are alive but say nothing else; the next
    message of each type in `lose_next` is lost.
    """

    def __init__(self, num_servers: int = 2, num_workers: int = 2, seed: int = 0) -> None:
        settings = CoreSettings("token", 5.0, num_servers, num_workers, Path("/out"))
        self.core = Core(settings, term=1, unix_time=lambda: 1000.0)
        self.now_s = 0.0
        self.random = random.Random(seed)
        self.entries: list[journal.Entry] = []
        self.saved: dict[str, dict[str, Any]] = {}
        self.cuts: list[PublishCut] = []
        self.sent: list[tuple[str, wire.ToNode]] = []
        self.aucs: list[float | None] = []
        self.mute: set[str] = set()
        self.never_answer: set[str] = set()
        self.lose_next: set[type] = set()
        self.report_twice = False
        self.skip_steps: set[int] = set()
        self.speeds: dict[str, float] = {}
        self.models: dict[str, str] = {}
        self._members: dict[int, list[str]] = {}
        self._granted: set[tuple[str, int, int, int]] = set()
        self._early: dict[str, set[int]] = {}
        self._snapshots: set[tuple[str, int, int]] = set()
        self._waiting: list[Callable[[], list[Command]]] = []
        self._versions = {f"s{number}": 0 for number in range(num_servers)}
        for name in [*self._versions, *(f"w{number}" for number in range(num_workers))]:
            self.register(name)

    def register(self, name: str) -> None:
        role = "server" if name.startswith("s") else "worker"
        self.core.member(wire.Register(role, "token", 100 + int(name[1:]), f"ipc://{name}", "cpu", "host", name), 0.0)

    def submit(
        self, config: JobConfig, index: DatasetIndex, task: Task | None = None, manifest: Manifest | None = None
    ) -> str:
        record = JobRecord(f"job{len(self.core.records)}", config, task or Task(), index, manifest, 1000.0)
        self.deliver(self.core.submit(record, self.now_s))
        return record.id

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Let nodes answer, in an order that the seed decides, until nothing is left or `until` holds."""
        while not until():
            if not self._waiting:
                wake_s = self.core.wake_at_s
                if wake_s is None:
                    return
                self.pass_time(wake_s - self.now_s)
                continue
            answer = self._waiting.pop(self.random.randrange(len(self._waiting)))
            self.now_s += 0.001
            self.deliver(answer())

    def pass_time(self, seconds: float) -> None:
        """Time passes; nodes that are not mute send their heartbeats."""
        self.now_s += seconds
        for node in self.core.members.all_nodes():
            if node.name not in self.mute and node.state == "joined":
                self.core.member(wire.Heartbeat(node.name, node.incarnation), self.now_s)
        self.deliver(self.core.tick(self.now_s))

    def message(self, message: wire.FromNode) -> None:
        """A message that no command asked for."""
        self.deliver(self.core.message(message, self.now_s))

    def deliver(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Send():
                    self._to_node(command.node, command.message)
                case Journal():
                    self.entries += [journal.decode(entry) for entry in command.entries]
                case SaveJob():
                    self.saved[command.job] = command.record
                case RaiseTerm():
                    self._answer_shell(TermRaised(command.job, self.core.term + 1))
                case ComputeMetrics():
                    auc = self.aucs.pop(0) if self.aucs else 0.5
                    metrics = {"auc": auc, "num_samples": sum(part.stop - part.start for part in command.scores)}
                    self._answer_shell(
                        MetricsComputed(command.job, command.evaluation, command.split, metrics, unix_time=1000.0)
                    )
                case PublishCut():
                    self.cuts.append(command)
                    self._answer_shell(CutFilesDone(command.job))
                case PrepareCut():
                    self._answer_shell(CutFilesDone(command.job))
                case WritePredictions():
                    self._answer_shell(FilesDone(command.job))

    def _answer_shell(self, event: Any) -> None:
        self._waiting.append(lambda: self.core.shell(event, self.now_s))

    def _answer(self, message: wire.FromNode) -> None:
        def deliver() -> list[Command]:
            silent = getattr(message, "node", "") in self.never_answer
            return [] if silent else self.core.message(message, self.now_s)

        self._waiting.append(deliver)

    def _to_node(self, node: str, message: wire.ToNode) -> None:
        self.sent.append((node, message))
        if node in self.mute:
            return
        if type(message) in self.lose_next:
            self.lose_next.discard(type(message))
            return
        match message:
            case wire.OpenJob():
                if node in self._versions:
                    self._versions[node] = message.version
                    self._early.pop(node, None)
                self._answer(wire.JobOpened(node, message.term, message.job, SEGMENTS if node[0] == "w" else []))
            case wire.PlaceDense():
                self._answer(wire.DensePlaced(node, message.term, message.job))
            case wire.HostGroup():
                self._answer(wire.StoreListening(node, message.term, message.group, "127.0.0.1:1"))
            case wire.JoinGroup():
                self._members[message.group] = message.members
                self._answer(wire.GroupFormed(node, message.term, message.group))
            case wire.Probe():
                self._answer(wire.Probed(node, message.term, message.job, self._measure(node, message)))
            case wire.Grant():
                self._compute(node, message)
            case wire.Apply():
                self._apply(node, message)
            case wire.Evaluate():
                rows = message.stop - message.start
                self._answer(
                    wire.Scores(
                        node, message.term, message.evaluation, message.start, message.stop, bytes(4 * rows),
                        bytes(rows), b"",
                    )
                )  # fmt: skip
            case wire.TakeSnapshot():
                self._take_snapshot(node, message)
            case wire.CloseJob():
                self._answer(wire.JobClosed(node, message.job))

    def _take_snapshot(self, node: str, asked: wire.TakeSnapshot) -> None:
        """As a server does: the state is fixed at once, the files are written whenever their turn comes."""
        key = (node, asked.term, asked.snapshot)
        if key not in self._snapshots:
            assert asked.version == self._versions[node], "a snapshot of another version"
            self._snapshots.add(key)
            kind = "full" if asked.base is None else "delta"
            files = {f"rows.{node}": {"bytes": 1, "kind": kind}}
            self._answer(wire.SnapshotTaken(node, asked.term, asked.snapshot, files))
        self._answer(wire.SnapshotBegun(node, asked.term, asked.snapshot))

    def _measure(self, node: str, asked: wire.Probe) -> wire.ProbeReport:
        model = self.models.get(node, "cpu")
        sizes = [size for size in (2, 4, 8) for _ in range(asked.num_probes)]
        return wire.ProbeReport(
            device=wire.DeviceFacts(model, "vendor", False, ["fp32"]),
            timings=[wire.ProbeTiming(size, 0, size / self.speeds.get(node, 1000.0), 0.0) for size in sizes],
            max_samples=None,
            pull_mb_per_s={},
            push_mb_per_s={},
            round_trip_ms={},
            memory_gb_per_s=1.0,
            bytes_per_sample=0.0,
            precision="fp32",
            precision_samples_per_s={},
            numeric_drift=0.0,
            seconds=0.1,
        )

    def _apply(self, node: str, decision: wire.Apply) -> None:
        """As a server does: in order, once each; what comes early waits."""
        early = self._early.setdefault(node, set())
        early.add(decision.version)
        while self._versions[node] + 1 in early:
            self._versions[node] += 1
        self._answer(wire.Applied(node, 100 + int(node[1:]), decision.term, self._versions[node]))

    def _compute(self, node: str, grant: wire.Grant) -> None:
        """As a worker does: a step that is granted again is not computed again."""
        step = (node, grant.term, grant.group, grant.step)
        if step in self._granted:
            return
        self._granted.add(step)
        members = self._members[grant.group]
        rank = members.index(node)
        start, stop = grant.interval.cuts[rank], grant.interval.cuts[rank + 1]
        skipped = "NaN or Inf" if grant.step in self.skip_steps else ""
        report = wire.Staged(
            node=node,
            incarnation=100 + int(node[1:]),
            term=grant.term,
            group=grant.group,
            step=grant.step,
            version=grant.version,
            num_samples=stop - start,
            start=start,
            stop=stop,
            servers={} if skipped else {name: 100 + int(name[1:]) for name in self._versions},
            loss_sum=float(stop - start),
            skipped=skipped,
            step_ms=10.0,
            wait_ms=1.0,
            busy_ms=1000 * (stop - start) / self.speeds.get(node, 1000.0),
        )
        self._answer(report)
        if self.report_twice:
            self._answer(report)
