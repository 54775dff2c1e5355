"""The answers of the REST interface as types, each with one literal example.

Examples are of the fields that have a value; those that may be null are null in an answer where an example leaves them
out.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from api.answers import Answer, ErrorAnswer, ErrorFacts
from api.hardware_schemas import Group, Groups, Portrait, PortraitHistory, PortraitRequest, StepCost, WindowRequest
from api.report_schemas import Advice, Heterogeneity, Imbalance, Report, StepTimes, WorkerReport
from api.tier_schemas import HotKey, HotKeyOfTable, ServerTableLoad, TierLoad, TierStats, TierTotals

__all__ = [
    "Advice",
    "ErrorAnswer",
    "ErrorFacts",
    "Event",
    "Group",
    "Groups",
    "Health",
    "Heterogeneity",
    "HotKey",
    "HotKeyOfTable",
    "Imbalance",
    "Job",
    "JobState",
    "MetricsPoint",
    "Node",
    "Portrait",
    "PortraitHistory",
    "PortraitRequest",
    "Progress",
    "Readiness",
    "Report",
    "Routing",
    "ServerRoute",
    "ServerTableLoad",
    "StepCost",
    "StepTimes",
    "SubmitRequest",
    "Submitted",
    "TierLoad",
    "TierStats",
    "TierTotals",
    "Window",
    "WindowRequest",
    "WorkerReport",
]

JobState: TypeAlias = Literal["queued", "probing", "training", "evaluating", "succeeded", "failed", "cancelled"]


class SubmitRequest(BaseModel):
    """A job to queue."""

    model_config = ConfigDict(extra="forbid")

    config: dict[str, Any] = Field(description="The config of the job; its JSON schema is at /v1/config-schema.")
    task: dict[str, str] = Field(
        default_factory=dict,
        description="What to do; default: train. `kind` train, evaluate or predict; `checkpoint`, a directory that the "
        "coordinator may read; `init` resume or init_from, when training starts from it; `split` valid or test.",
    )

    example: ClassVar[dict[str, Any]] = {
        "config": {
            "name": "movielens-deepfm",
            "features": [{"name": "user", "kind": "categorical"}, {"name": "item", "kind": "categorical"}],
            "label": "label",
            "data": {"root": "data/movielens-100k", "format": "csv", "train": ["train.csv"], "test": ["test.csv"]},
            "model": {"type": "deepfm", "embedding_dim": 16, "hidden": [64, 32]},
            "training": {"passes": 3, "batch_size": 1024},
        },
        "task": {"kind": "train", "init": "init_from", "checkpoint": "checkpoints/movielens-deepfm-0/pass-3"},
    }


class Submitted(Answer):
    """The queued job, by the id that all other calls take."""

    id: str
    state: JobState

    example: ClassVar[dict[str, Any]] = {"id": "movielens-deepfm-1", "state": "queued"}


class Progress(Answer):
    """How far a job has trained."""

    pass_index: int = Field(description="Pass under way, from 0.")
    passes: int = Field(description="Passes that the config asks for.")
    samples: int = Field(description="Samples applied to the model so far, all passes together.")
    num_rows: int = Field(description="Rows of the training data, which is the samples of one pass.")
    version: int = Field(description="Windows applied so far.")
    samples_per_s: float | None = None
    loss: float | None = Field(default=None, description="Mean loss of the last applied window.")

    example: ClassVar[dict[str, Any]] = {
        "pass_index": 1,
        "passes": 3,
        "samples": 112640,
        "num_rows": 80000,
        "version": 110,
        "samples_per_s": 48780.0,
        "loss": 0.5714,
    }


class Job(Answer):
    """A job: its state and why, its progress, and its result or error once it has ended."""

    id: str
    name: str
    state: JobState
    reason: str | None = Field(default=None, description="Why the job is in this state.")
    error: ErrorFacts | None = Field(default=None, description="What a failed job failed of, else null.")
    submitted_at: float = Field(description="Unix time, seconds.")
    progress: Progress | None = None
    report: Report | None = Field(default=None, description="Its workers so far; null before it trains.")
    result: dict[str, Any] | None = Field(
        default=None, description="What `geartrain train --json` prints, once the job has ended; else null."
    )

    example: ClassVar[dict[str, Any]] = {
        "id": "movielens-deepfm-1",
        "name": "movielens-deepfm",
        "state": "training",
        "reason": "pass 2 of 3",
        "submitted_at": 1767225600.25,
        "progress": Progress.example,
        "report": Report.example,
    }


class MetricsPoint(Answer):
    """One point of a job's time series."""

    time: float = Field(description="Unix time, seconds.")
    version: int
    samples: int
    samples_per_s: float | None = None
    loss: float | None = None
    auc: float | None = Field(
        default=None, description="On the valid split, at points where it was evaluated; else null."
    )
    staleness: float | None = Field(
        default=None, description="Versions beyond the pipeline depth: the most since the last point."
    )
    queue_length: int | None = Field(default=None, description="Arrived steps that wait for a window.")

    example: ClassVar[dict[str, Any]] = {
        "time": 1767225612.5,
        "version": 110,
        "samples": 112640,
        "samples_per_s": 48780.0,
        "loss": 0.5714,
        "auc": 0.7421,
        "staleness": 0.0,
        "queue_length": 0,
    }


class Event(Answer):
    """Something that happened to a job."""

    number: int = Field(description="Counts up within a job; the id of the server-sent event.")
    time: float = Field(description="Unix time, seconds.")
    kind: str
    message: str

    example: ClassVar[dict[str, Any]] = {
        "number": 7,
        "time": 1767225611.0,
        "kind": "evaluated",
        "message": "pass 1 of 3: valid AUC 0.7421",
    }


class Node(Answer):
    """A server or worker process that registered, and whether it is still there."""

    name: str
    role: Literal["server", "worker"]
    address: str | None = None
    device: str | None = Field(default=None, description="What a worker computes on.")
    host: str
    last_heartbeat: float | None = Field(default=None, description="Unix time, seconds.")
    state: str

    example: ClassVar[dict[str, Any]] = {
        "name": "w0",
        "role": "worker",
        "address": "tcp://10.0.0.7:40001",
        "device": "cpu",
        "host": "trainer-1",
        "last_heartbeat": 1767225612.4,
        "state": "joined",
    }


class Window(Answer):
    """The aggregation window of the running job: its settings and what waits in it."""

    mode: Literal["sync", "hybrid", "async"]
    window_ms: float | Literal["auto"] | None = Field(default=None, description="As set.")
    effective_window_ms: float | None = Field(default=None, description="As used now.")
    open_window: dict[str, Any] | None = Field(
        default=None, description="What has arrived for the next version; null when nothing."
    )
    queue_length: int = Field(description="Arrived steps that wait for a window.")
    staleness_histogram: dict[str, int] = Field(description="Arrivals by versions beyond the pipeline depth.")
    staleness_decay: float
    max_staleness: int | Literal["auto"] | None = None
    reason: str = Field(description="Why the last decision was made, or what is waited for.")

    example: ClassVar[dict[str, Any]] = {
        "mode": "hybrid",
        "window_ms": "auto",
        "effective_window_ms": 12.5,
        "open_window": {"version": 111, "open_ms": 3.5, "groups": [0]},
        "queue_length": 1,
        "staleness_histogram": {"0": 208, "1": 12},
        "staleness_decay": 0.9,
        "max_staleness": 4,
        "reason": "1 of 2 arrived, deadline in 9 ms",
    }


class ServerRoute(Answer):
    """How many shards an embedding server owns, and where it is reached."""

    server: str
    address: str
    num_shards: int

    example: ClassVar[dict[str, Any]] = {"server": "s0", "address": "tcp://10.0.0.5:40100", "num_shards": 512}


class Routing(Answer):
    """Which embedding server owns how many shards."""

    route_epoch: int
    num_shards: int
    servers: list[ServerRoute]
    moves: list[dict[str, Any]] = Field(description="Shards that are being moved.")

    example: ClassVar[dict[str, Any]] = {
        "route_epoch": 1,
        "num_shards": 1024,
        "servers": [
            ServerRoute.example,
            {"server": "s1", "address": "tcp://10.0.0.6:40100", "num_shards": 512},
        ],
        "moves": [],
    }


class Health(Answer):
    """The coordinator's process answers."""

    status: Literal["ok"]
    control: str = Field(description="Where nodes register.")

    example: ClassVar[dict[str, Any]] = {"status": "ok", "control": "tcp://127.0.0.1:41234"}


class Readiness(Answer):
    """The cluster has all the nodes that a job needs."""

    status: Literal["ready"]
    reason: str

    example: ClassVar[dict[str, Any]] = {"status": "ready", "reason": "2 of 2 servers and 2 of 2 workers registered"}
