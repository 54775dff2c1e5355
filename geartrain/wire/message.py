"""The base of all messages, and the values that several of them carry."""

from __future__ import annotations

from typing import Any

import msgspec


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """A message: on the wire a msgpack map with the name of its class under `type`."""


def _of_type(name: str) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": name})
    return value


class TableSpec(msgspec.Struct, frozen=True):
    """A table as a server creates it.

    `optimizer`, `initializer`, `admission` and `expiry` hold the validated fields of the config's sections: type, and
    those of that type. `max_rows` bounds the rows over all servers; `eviction` says whose leave first.
    """

    name: str
    dim: int
    optimizer: dict[str, Any]
    initializer: dict[str, Any]
    seed: int
    row_dtype: str = "fp32"
    admission: dict[str, Any] = _of_type("always")
    expiry: dict[str, Any] = _of_type("never")
    max_rows: int | None = None
    eviction: str = "lru"


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
    """One table on one server: its rows and bytes now, its traffic since the job was opened, its latencies.

    Latencies are of the last one to two minutes, from a pull's arrival to its answer, less what it waited for a version
    that was not there yet; 0 without pulls. Since the job was opened `num_admitted` rows were born and `num_rejected`
    times a key got none; `num_expired` and `num_evicted` rows left. `hottest` are the keys with most shows, and their
    shows, most first. `longest_growth_ms` is the most that one window waited for the index to grow. `staged_bytes` are
    of gradients that wait for their window.
    """

    num_rows: int
    bytes: int
    pull_requests: int
    push_requests: int
    pull_rows: int
    push_rows: int
    pull_p50_ms: float
    pull_p99_ms: float
    num_admitted: int
    num_rejected: int = 0
    num_expired: int = 0
    num_evicted: int = 0
    hottest: list[tuple[int, float]] = []
    longest_growth_ms: float = 0.0
    staged_bytes: int = 0


class ServerStats(msgspec.Struct, frozen=True):
    """Counters since the job was opened (rates are taken by the reader from two of them).

    `staged_bytes` are those of the tables and dense gradients.
    """

    tables: dict[str, TableStats]
    staged_bytes: int
    queue_length: int
    version: int


class DeviceFacts(msgspec.Struct, frozen=True):
    """What a device is. `model` is the name that cards of a kind share, `vendor` whose collectives it can take part in.

    `emulated`: it stands for a card, by waiting. `precisions`: which of fp32, bf16, fp16 it can compute in. `sensors`
    holds what the driver says (clocks in MHz, temperature in C, throttle reasons), as far as there is a driver.
    """

    model: str
    vendor: str
    emulated: bool
    precisions: list[str]
    memory_bytes: int | None = None
    sensors: dict[str, Any] = msgspec.field(default_factory=dict)


class ProbeTiming(msgspec.Struct, frozen=True):
    """One timed probe step: its samples, its tokens, its seconds, and the part of them that transfers took."""

    num_samples: int
    num_tokens: int
    seconds: float
    transfer_s: float


class ProbeReport(msgspec.Struct, frozen=True):
    """What a worker measured of itself. Per server: megabytes per second each way, and the round trip.

    `max_samples`: the largest step that fits the device's memory (None: no bound was found). `precision`: the one in
    which it will compute, `precision_samples_per_s` what each that it can do reached, `numeric_drift` the relative
    deviation of its dense gradient from that in fp32 on one batch.
    """

    device: DeviceFacts
    timings: list[ProbeTiming]
    max_samples: int | None
    pull_mb_per_s: dict[str, float]
    push_mb_per_s: dict[str, float]
    round_trip_ms: dict[str, float]
    memory_gb_per_s: float
    bytes_per_sample: float
    precision: str
    precision_samples_per_s: dict[str, float]
    numeric_drift: float
    seconds: float
