"""The base of all messages, and the values that several of them carry."""

from __future__ import annotations

from typing import Any

import msgspec


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A message: on the wire a msgpack map with the name of its class under `type`."""


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
    """One table on one server: its rows and bytes now, its traffic since the job was opened, its latencies."""

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
