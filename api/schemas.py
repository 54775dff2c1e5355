"""The answers of the REST interface as types, each with one literal example.

Answers keep fields that are not listed here: a newer coordinator may tell more. Examples are of the fields that have
a value; those that may be null are null in an answer where an example leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

JobState: TypeAlias = Literal["queued", "probing", "training", "evaluating", "succeeded", "failed", "cancelled"]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow")

    example: ClassVar[dict[str, Any]]


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


class Submitted(_Answer):
    """The queued job, by the id that all other calls take."""

    id: str
    state: JobState

    example: ClassVar[dict[str, Any]] = {"id": "movielens-deepfm-1", "state": "queued"}


class ErrorFacts(_Answer):
    """An error: its kind, one line for people, and the facts the line was made from."""

    code: str = Field(description="Stable name of the kind of error.")
    message: str = Field(description="One line for people.")
    field: str | None = Field(default=None, description="Dotted path of the field that is wrong.")

    example: ClassVar[dict[str, Any]] = {
        "code": "config_invalid",
        "message": "training.batch_size: 0 is not a whole number of at least 1",
        "field": "training.batch_size",
        "value": 0,
        "expected": "a whole number of at least 1",
    }


class ErrorAnswer(BaseModel):
    """What every call answers that fails."""

    error: ErrorFacts

    example: ClassVar[dict[str, Any]] = {"error": ErrorFacts.example}


class Progress(_Answer):
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


class Job(_Answer):
    """A job: its state and why, its progress, and its result or error once it has ended."""

    id: str
    name: str
    state: JobState
    reason: str | None = Field(default=None, description="Why the job is in this state.")
    error: ErrorFacts | None = Field(default=None, description="What a failed job failed of, else null.")
    submitted_at: float = Field(description="Unix time, seconds.")
    progress: Progress | None = None
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
    }


class MetricsPoint(_Answer):
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


class Event(_Answer):
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


class Node(_Answer):
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


class Window(_Answer):
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


class ServerRoute(_Answer):
    """How many shards an embedding server owns, and where it is reached."""

    server: str
    address: str
    num_shards: int

    example: ClassVar[dict[str, Any]] = {"server": "s0", "address": "tcp://10.0.0.5:40100", "num_shards": 512}


class Routing(_Answer):
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


class HotKey(_Answer):
    """A key that was shown most, and how often."""

    key: str = Field(description="16 hexadecimal digits: what table and id were made into, see `kernels.hashing`.")
    shows: float = Field(description="As its row has them: decayed, if the table's rows expire by score.")

    example: ClassVar[dict[str, Any]] = {"key": "9b3c51f6a2e8d047", "shows": 5210.0}


class HotKeyOfTable(HotKey):
    """As `HotKey`, where keys of several tables stand together."""

    table: str

    example: ClassVar[dict[str, Any]] = {**HotKey.example, "table": "item"}


class TierLoad(_Answer):
    """Rows, memory and traffic of one table on one server, of one table, or of the whole tier."""

    num_rows: int
    bytes: int = Field(description="Memory of the rows and of their index.")
    bytes_per_row: float = Field(description="0 while there is no row.")
    pull_requests_per_s: float
    push_requests_per_s: float
    pull_rows_per_s: float
    push_rows_per_s: float
    pull_p50_ms: float | None = Field(
        default=None, description="Median time in which a server reads a request's rows of a table."
    )
    pull_p99_ms: float | None = Field(default=None, description="As pull_p50_ms, the 99th percentile.")
    staged_bytes: int | None = Field(default=None, description="Of the whole server; null where it has no meaning.")
    queue_length: int | None = Field(default=None, description="Of the whole server; null where it has no meaning.")
    longest_growth_ms: float = Field(description="The most that one window waited for the index to grow.")
    num_admitted: int = Field(description="Rows that were born since the job was opened.")
    num_rejected: int = Field(
        description="Ids that were not admitted, counted anew in every window that had a gradient for them."
    )
    num_expired: int = Field(description="Rows that left for their age or score.")
    num_evicted: int = Field(description="Rows that left to make room, in tables with max_rows.")
    hottest_keys: Sequence[HotKey] = Field(description="The keys with most shows, at most 32, most first.")

    example: ClassVar[dict[str, Any]] = {
        "num_rows": 1312,
        "bytes": 187616,
        "bytes_per_row": 143.0,
        "pull_requests_per_s": 94.2,
        "push_requests_per_s": 94.2,
        "pull_rows_per_s": 71204.0,
        "push_rows_per_s": 71204.0,
        "pull_p50_ms": 0.4,
        "pull_p99_ms": 1.9,
        "staged_bytes": 0,
        "queue_length": 0,
        "longest_growth_ms": 0.02,
        "num_admitted": 1490,
        "num_rejected": 260,
        "num_expired": 178,
        "num_evicted": 0,
        "hottest_keys": [HotKey.example, {"key": "02d47e18c95fb36a", "shows": 4377.0}],
    }


class ServerTableLoad(TierLoad):
    """The load of one table on one server."""

    server: str
    table: str

    example: ClassVar[dict[str, Any]] = {"server": "s0", "table": "item", **TierLoad.example}


class TierTotals(TierLoad):
    """The load of all tables on all servers."""

    hottest_keys: Sequence[HotKeyOfTable]
    version: int = Field(description="Windows that every server has applied.")

    example: ClassVar[dict[str, Any]] = {**TierLoad.example, "hottest_keys": [HotKeyOfTable.example], "version": 110}


class TierStats(_Answer):
    """The load of the embedding tier, in three sums: per server and table, per table, in all."""

    job: str | None = None
    servers: list[ServerTableLoad] = Field(description="One line per server and table.")
    tables: dict[str, TierLoad] = Field(description="Each table over all servers.")
    totals: TierTotals

    example: ClassVar[dict[str, Any]] = {
        "job": "movielens-deepfm-1",
        "servers": [ServerTableLoad.example],
        "tables": {"item": TierLoad.example},
        "totals": TierTotals.example,
    }


class Health(_Answer):
    """The coordinator's process answers."""

    status: Literal["ok"]
    control: str = Field(description="Where nodes register.")

    example: ClassVar[dict[str, Any]] = {"status": "ok", "control": "tcp://127.0.0.1:41234"}


class Readiness(_Answer):
    """The cluster has all the nodes that a job needs."""

    status: Literal["ready"]
    reason: str

    example: ClassVar[dict[str, Any]] = {"status": "ready", "reason": "2 of 2 servers and 2 of 2 workers registered"}
