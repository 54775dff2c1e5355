"""Messages of the control channel, between nodes (servers and workers) and the coordinator: one msgpack frame each."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from geartrain.wire.message import (
    Contribution,
    DenseSegment,
    GrantedInterval,
    Message,
    ProbeReport,
    Route,
    ServerStats,
    TableSpec,
)

# --- control: node -> coordinator ------------------------------------------------------------------------------------


class Register(Message, frozen=True):
    """First message of a node. `role`: server | worker. `name` is empty unless the launcher fixed it."""

    role: str
    token: str
    incarnation: int
    address: str
    device: str
    host: str
    name: str


class Heartbeat(Message, frozen=True):
    """Renews the node's lease; servers tell their counters with it while a job is open."""

    node: str
    incarnation: int
    stats: ServerStats | None = None


class JobOpened(Message, frozen=True):
    """A node finished `OpenJob`. A worker tells the dense layout of the model it built; a server an empty one."""

    node: str
    term: int
    job: str
    dense: list[DenseSegment]


class DensePlaced(Message, frozen=True):
    """A node finished `PlaceDense` (for the first worker: initial values are on the servers)."""

    node: str
    term: int
    job: str


class StoreListening(Message, frozen=True):
    """Rank 0 of a new group hosts the rendezvous store at `address`."""

    node: str
    term: int
    group: int
    address: str


class GroupFormed(Message, frozen=True):
    """A worker is connected to all members of its new group."""

    node: str
    term: int
    group: int


class Probed(Message, frozen=True):
    """A worker finished `Probe`."""

    node: str
    term: int
    job: str
    measured: ProbeReport


class Staged(Message, frozen=True):
    """A member staged its part of a step with all servers (or the group skipped it for a reason).

    `step_ms` runs from the end of the last step of the pass, else from the grant, to the end of this one; `wait_ms` is
    the part of it in which the member waited for others or for a grant. `busy_ms` is what the step itself took:
    transfers, computing, staging, without any waiting. `host_bound`: an emulated device could not be emulated in this
    step, because this host was slower.
    """

    node: str
    incarnation: int
    term: int
    group: int
    step: int
    version: int
    num_samples: int
    start: int
    stop: int
    servers: dict[str, int]
    loss_sum: float
    skipped: str
    step_ms: float
    wait_ms: float
    num_tokens: int = 0
    busy_ms: float = 0.0
    host_bound: bool = False


class Applied(Message, frozen=True):
    """A server applied windows up to `version`."""

    node: str
    incarnation: int
    term: int
    version: int


class Scores(Message, frozen=True):
    """A worker's scores for rows [start, stop) of a split: float32 scores, uint8 labels, uint64 group ids."""

    node: str
    term: int
    evaluation: int
    start: int
    stop: int
    scores: bytes
    labels: bytes
    group_ids: bytes


class SnapshotBegun(Message, frozen=True):
    """A server has fixed the state of a snapshot and writes it; later windows do not change what it writes."""

    node: str
    term: int
    snapshot: int


class SnapshotTaken(Message, frozen=True):
    """A server wrote its part of a snapshot; `files` maps file name to its description (bytes, crc32, rows, ...)."""

    node: str
    term: int
    snapshot: int
    files: dict[str, dict[str, Any]]


class NodeFailed(Message, frozen=True):
    """The job cannot go on because of `error` (`GeartrainError.to_dict`) at this node."""

    node: str
    term: int
    job: str
    error: dict[str, Any]


class JobClosed(Message, frozen=True):
    """The node has given up all it held for the job (also when it held nothing); a server tells its last counters."""

    node: str
    job: str
    stats: ServerStats | None = None


FromNode: TypeAlias = (
    Register
    | Heartbeat
    | JobOpened
    | DensePlaced
    | StoreListening
    | GroupFormed
    | Probed
    | Staged
    | Applied
    | Scores
    | SnapshotBegun
    | SnapshotTaken
    | NodeFailed
    | JobClosed
)

# --- control: coordinator -> node ------------------------------------------------------------------------------------


class Welcome(Message, frozen=True):
    """The node is in the cluster under this name; answers registrations and heartbeats."""

    node: str
    term: int


class Refused(Message, frozen=True):
    """The coordinator does not accept the node's last message or, where it is `final`, the node: it must start anew."""

    error: dict[str, Any]
    final: bool = False


class OpenJob(Message, frozen=True):
    """Create tables (server) or build model and readers (worker). `config` is the resolved config as plain data.

    `index` is `DatasetIndex.to_dict()`. `restore` names a checkpoint directory whose rows are loaded before the answer
    and whose dense blocks are loaded by `PlaceDense`; without `restore_states` only values and statistics are taken,
    optimizer states start anew.
    """

    term: int
    job: str
    config: dict[str, Any]
    index: dict[str, Any]
    tables: list[TableSpec]
    route: Route
    version: int
    restore: str = ""
    restore_states: bool = True


class PlaceDense(Message, frozen=True):
    """Server i owns [bounds[i], bounds[i+1]) of the flat dense vector. `put_by` uploads first values ('': restored)."""

    term: int
    job: str
    segments: list[DenseSegment]
    bounds: list[int]
    optimizer: dict[str, Any]
    put_by: str


class HostGroup(Message, frozen=True):
    """Rank 0 of a coming group: open a rendezvous store and answer `StoreListening`."""

    term: int
    group: int


class JoinGroup(Message, frozen=True):
    """Form the sync group `group` with these members (rank = place in the list) at the store's address.

    `precision`: what the receiver computes its steps in (fp32, bf16 or fp16).
    """

    term: int
    group: int
    members: list[str]
    address: str
    precision: str = "fp32"


class Probe(Message, frozen=True):
    """Measure this device on real steps of the job: at least `num_probes` timed ones per size, after warm-up.

    Probe steps read the training data and pull rows at `version`; nothing of them is staged. No probe is larger than
    `batch_size`. `precision` is the config's: auto, fp32, bf16 or fp16.
    """

    term: int
    job: str
    num_probes: int
    version: int
    batch_size: int
    precision: str


class Grant(Message, frozen=True):
    """The right to compute one step on `interval`, on rows and dense parameters of at least `version`.

    `ahead` lists what the group will probably be granted next, so that reading can run ahead of it. At pipeline depth 1
    the first of it is certain, and there is none when no step will follow: a worker waits for it.
    """

    term: int
    group: int
    step: int
    version: int
    interval: GrantedInterval
    ahead: list[GrantedInterval]


class Decided(Message, frozen=True):
    """The step was applied in the window that made `version` (or was skipped, and `version` is unchanged)."""

    term: int
    group: int
    step: int
    version: int


class Apply(Message, frozen=True):
    """The decision of window `version`: merge these contributions in this order, update once, let rows leave.

    `most_windows`: so many windows of this one's size hold as many samples as a round, at least 1: a row's update
    stands for the windows since its last one, up to so many. `pass_versions`: the versions on which the latest passes
    began, in order, the last being the pass of this window; as many as the expiry of any table looks back to.
    """

    term: int
    version: int
    contributions: list[Contribution]
    divisor: float
    step_scale: float
    most_windows: float
    dense_lr: float
    sparse_lr: dict[str, float]
    live_groups: list[int]
    pass_versions: list[int] = msgspec.field(default_factory=list)


class Evaluate(Message, frozen=True):
    """Score rows [start, stop) of split `valid` or `test` on the pinned `version`; its files may lack labels."""

    term: int
    evaluation: int
    split: str
    start: int
    stop: int
    version: int
    labeled: bool = True


class TakeSnapshot(Message, frozen=True):
    """Write this server's part of a checkpoint at `version` into the existing folder `directory`.

    Answered by `SnapshotBegun` at once, and by `SnapshotTaken` when it is on the disk. Tables whose last whole snapshot
    was of version `base` write what changed since; None, and all others, write everything.
    """

    term: int
    snapshot: int
    version: int
    directory: str
    base: int | None = None


class CloseJob(Message, frozen=True):
    """The job has ended: give up all that is held for it, and answer `JobClosed`."""

    term: int
    job: str
    reason: str


class Shutdown(Message, frozen=True):
    """The coordinator stops, and so does the node."""

    reason: str


ToNode: TypeAlias = (
    Welcome
    | Refused
    | OpenJob
    | PlaceDense
    | HostGroup
    | JoinGroup
    | Probe
    | Grant
    | Decided
    | Apply
    | Evaluate
    | TakeSnapshot
    | CloseJob
    | Shutdown
)
