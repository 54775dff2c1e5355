"""Messages of the data plane, between workers and servers: a msgpack header frame, then raw little-endian buffers.

Each header says how long its buffers must be, so that a receiver checks sizes before it uses them. `codec` is how rows
or their gradients are encoded, one of `kernels.wire_codec.CODECS`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from geartrain.wire.message import Message

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


class PullRows(Message, frozen=True):
    """Rows of version >= `version` for `counts[t]` keys of each table, to be answered in `codec`. Frames: keys
    uint64[sum(counts)], by table."""

    origin: Origin
    version: int
    counts: list[int]
    codec: str = "fp32"


class PullDense(Message, frozen=True):
    """This server's dense block at version >= `version`. No frames."""

    origin: Origin
    version: int


class PutDense(Message, frozen=True):
    """Initial values of this server's dense block. Frames: values float32[stop - start]."""

    origin: Origin
    start: int
    stop: int


class Stage(Message, frozen=True):
    """Gradient sums of a step. Frames: keys uint64[N], grads [N, D] encoded in `codec`, shows float32[N], clicks
    float32[N], dense float32[dense_stop - dense_start]; N = sum(counts), table-major. Dense positions are of the flat
    vector."""

    origin: Origin
    group: int
    step: int
    counts: list[int]
    dense_start: int
    dense_stop: int
    codec: str = "fp32"


class Echo(Message, frozen=True):
    """Bytes that measure the way to a server, which drops them. Frames: uint8[num_bytes]."""

    origin: Origin
    num_bytes: int


ToServer: TypeAlias = PullRows | PullDense | PutDense | Stage | Echo

# --- data plane: server -> worker ------------------------------------------------------------------------------------


class Rows(Message, frozen=True):
    """Answer to `PullRows`. Frames: rows [sum(counts), D] in the codec that was asked for.

    `parked_ms`: how long the request waited here for its version.
    """

    sequence: int
    incarnation: int
    version: int
    parked_ms: float = 0.0


class Dense(Message, frozen=True):
    """Answer to `PullDense`. Frames: values float32[stop - start]. `parked_ms` as in `Rows`."""

    sequence: int
    incarnation: int
    version: int
    start: int
    stop: int
    parked_ms: float = 0.0


class Done(Message, frozen=True):
    """Answer to `PutDense`, `Stage` and `Echo`."""

    sequence: int
    incarnation: int


class Failed(Message, frozen=True):
    """Answer to any request that could not be carried out: `GeartrainError.to_dict`."""

    sequence: int
    error: dict[str, Any]


FromServer: TypeAlias = Rows | Dense | Done | Failed
