"""Every message that crosses a process border, in one place.

Control messages travel between the coordinator and nodes as one msgpack frame. Data-plane messages travel between
workers and servers as a msgpack header frame followed by raw little-endian array buffers; each header says how long
its buffers must be, so that a receiver checks sizes before it uses them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


class _Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    pass


# --- what several messages carry -------------------------------------------------------------------------------------


class TableSpec(msgspec.Struct, frozen=True):
    """A table as a server creates it. `optimizer` holds the validated fields of the config's sparse optimizer."""

    name: str
    dim: int
    optimizer: dict[str, Any]
    initializer: dict[str, Any]
    seed: int


class DenseSegment(msgspec.Struct, frozen=True):
    """A named range [start, stop) of the flat dense vector. `kind`: parameter, or average (batch moments)."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    kind: str


class Route(msgspec.Struct, frozen=True):
    """Which server owns each shard: `owners[shard]` indexes `servers`; `addresses` are their data-plane addresses."""

    route_epoch: int
    servers: list[str]
    addresses: list[str]
    owners: list[int]


class GrantedInterval(msgspec.Struct, frozen=True):
    """An interval of a pass and where it is cut into shares: member i takes [cuts[i], cuts[i+1])."""

    pass_index: int
    cuts: list[int]


class Contribution(msgspec.Struct, frozen=True):
    """One arrived step of a window: who staged it, its sample count and its weight."""

    group: int
    step: int
    workers: list[str]
    num_samples: int
    weight: float


class TableStats(msgspec.Struct, frozen=True):
    num_rows: int
    bytes: int
    pull_requests: int
    push_requests: int
    pull_rows: int
    push_rows: int
    pull_p50_ms: float
    pull_p99_ms: float
    num_admitted: int


class ServerStats(msgspec.Struct, frozen=True):
    """Counters since the job was opened (rates are taken by the reader from two of them)."""

    tables: dict[str, TableStats]
    staged_bytes: int
    queue_length: int
    version: int


# --- control: node -> coordinator ------------------------------------------------------------------------------------


class Register(_Message, frozen=True):
    """First message of a node. `role`: server | worker. `name` is empty unless the launcher fixed it."""

    role: str
    token: str
    incarnation: int
    address: str
    device: str
    host: str
    name: str


class Heartbeat(_Message, frozen=True):
    node: str
    incarnation: int
    stats: ServerStats | None = None


class JobOpened(_Message, frozen=True):
    """A node finished `OpenJob`. A worker tells the dense layout of the model it built; a server an empty one."""

    node: str
    term: int
    job: str
    dense: list[DenseSegment]


class DensePlaced(_Message, frozen=True):
    """A node finished `PlaceDense` (for the first worker: initial values are on the servers)."""

    node: str
    term: int
    job: str


class StoreListening(_Message, frozen=True):
    """Rank 0 of a new group hosts the rendezvous store at `address`."""

    node: str
    term: int
    group: int
    address: str


class GroupFormed(_Message, frozen=True):
    node: str
    term: int
    group: int


class Staged(_Message, frozen=True):
    """A member staged its part of a step with all servers (or the group skipped it for a reason)."""

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


class Applied(_Message, frozen=True):
    """A server applied windows up to `version`."""

    node: str
    incarnation: int
    term: int
    version: int


class Scores(_Message, frozen=True):
    """A worker's scores for rows [start, stop) of a split: float32 scores, uint8 labels, uint64 group ids."""

    node: str
    term: int
    evaluation: int
    start: int
    stop: int
    scores: bytes
    labels: bytes
    group_ids: bytes


class SnapshotTaken(_Message, frozen=True):
    """A server wrote its part of a snapshot; `files` maps file name to its description (bytes, crc32, rows, ...)."""

    node: str
    term: int
    snapshot: int
    files: dict[str, dict[str, Any]]


class NodeFailed(_Message, frozen=True):
    """The job cannot go on because of `error` (`GeartrainError.to_dict`) at this node."""

    node: str
    term: int
    job: str
    error: dict[str, Any]


class JobClosed(_Message, frozen=True):
    node: str
    job: str


FromNode: TypeAlias = (
    Register
    | Heartbeat
    | JobOpened
    | DensePlaced
    | StoreListening
    | GroupFormed
    | Staged
    | Applied
    | Scores
    | SnapshotTaken
    | NodeFailed
    | JobClosed
)

# --- control: coordinator -> node ------------------------------------------------------------------------------------


class Welcome(_Message, frozen=True):
    node: str
    term: int


class Refused(_Message, frozen=True):
    """The coordinator does not accept the node or its last message."""

    error: dict[str, Any]


class OpenJob(_Message, frozen=True):
    """Create tables (server) or build model and readers (worker). `config` is the resolved config as plain data.

    `index` is `DatasetIndex.to_dict()`. `restore` names a checkpoint directory whose rows are loaded before the answer
    and whose dense blocks are loaded by `PlaceDense`; without `restore_states` only values are taken, optimizer states
    start anew.
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


class PlaceDense(_Message, frozen=True):
    """Server i owns [bounds[i], bounds[i+1]) of the flat dense vector. `put_by` uploads first values ('': restored)."""

    term: int
    job: str
    segments: list[DenseSegment]
    bounds: list[int]
    optimizer: dict[str, Any]
    put_by: str


class HostGroup(_Message, frozen=True):
    """Rank 0 of a coming group: open a rendezvous store and answer `StoreListening`."""

    term: int
    group: int


class JoinGroup(_Message, frozen=True):
    """Form the sync group `group` with these members (rank = place in the list) at the store's address."""

    term: int
    group: int
    members: list[str]
    address: str


class Grant(_Message, frozen=True):
    """The right to compute one step on `interval`, on rows and dense parameters of at least `version`.

    `ahead` lists what the group will probably be granted next, so that reading can run ahead of it.
    """

    term: int
    group: int
    step: int
    version: int
    interval: GrantedInterval
    ahead: list[GrantedInterval]


class Decided(_Message, frozen=True):
    """The step was applied in the window that made `version` (or was skipped, and `version` is unchanged)."""

    term: int
    group: int
    step: int
    version: int


class Apply(_Message, frozen=True):
    """The decision of window `version`: merge these contributions in this order, update once."""

    term: int
    version: int
    contributions: list[Contribution]
    divisor: float
    step_scale: float
    dense_lr: float
    sparse_lr: dict[str, float]
    live_groups: list[int]


class Evaluate(_Message, frozen=True):
    """Score rows [start, stop) of split `valid` or `test` on the pinned `version`; its files may lack labels."""

    term: int
    evaluation: int
    split: str
    start: int
    stop: int
    version: int
    labeled: bool = True


class TakeSnapshot(_Message, frozen=True):
    """Write this server's part of a checkpoint at `version` into the existing folder `directory`."""

    term: int
    snapshot: int
    version: int
    directory: str


class CloseJob(_Message, frozen=True):
    term: int
    job: str
    reason: str


class Shutdown(_Message, frozen=True):
    reason: str


ToNode: TypeAlias = (
    Welcome
    | Refused
    | OpenJob
    | PlaceDense
    | HostGroup
    | JoinGroup
    | Grant
    | Decided
    | Apply
    | Evaluate
    | TakeSnapshot
    | CloseJob
    | Shutdown
)

# --- data plane: worker -> server ------------------------------------------------------------------------------------


class Origin(msgspec.Struct, frozen=True):
    """Who asks, and in which state of the cluster it believes to be; checked before anything else."""

    token: str
    term: int
    route_epoch: int
    worker: str
    incarnation: int
    sequence: int
    deadline_s: float


class PullRows(_Message, frozen=True):
    """Rows of version >= `version` for `counts[t]` keys of each table. Frames: keys uint64[sum(counts)], by table."""

    origin: Origin
    version: int
    counts: list[int]


class PullDense(_Message, frozen=True):
    """This server's dense block at version >= `version`. No frames."""

    origin: Origin
    version: int


class PutDense(_Message, frozen=True):
    """Initial values of this server's dense block. Frames: values float32[stop - start]."""

    origin: Origin
    start: int
    stop: int


class Stage(_Message, frozen=True):
    """Gradient sums of a step. Frames: keys uint64[N], grads float32[N, D], shows float32[N], clicks float32[N],
    dense float32[dense_stop - dense_start]; N = sum(counts), table-major. Dense positions are of the flat vector."""

    origin: Origin
    group: int
    step: int
    counts: list[int]
    dense_start: int
    dense_stop: int


ToServer: TypeAlias = PullRows | PullDense | PutDense | Stage

# --- data plane: server -> worker ------------------------------------------------------------------------------------


class Rows(_Message, frozen=True):
    """Answer to `PullRows`. Frames: rows float32[sum(counts), D]."""

    sequence: int
    incarnation: int
    version: int


class Dense(_Message, frozen=True):
    """Answer to `PullDense`. Frames: values float32[stop - start]."""

    sequence: int
    incarnation: int
    version: int
    start: int
    stop: int


class Done(_Message, frozen=True):
    """Answer to `PutDense` and `Stage`."""

    sequence: int
    incarnation: int


class Failed(_Message, frozen=True):
    sequence: int
    error: dict[str, Any]


FromServer: TypeAlias = Rows | Dense | Done | Failed
