"""A worker's view of the embedding tier: pull rows and dense parameters, stage gradients, on all servers at once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import zmq

from embedding_tier.calls import ATTEMPTS, Call, Links, ServerCalls
from geartrain.errors import ConflictError, GeartrainError, WireError
from geartrain.types import Floats, Indices, Keys
from geartrain.wire.framing import encode, reply_floats, reply_rows
from geartrain.wire.messages import (
    Dense,
    Done,
    Echo,
    Failed,
    FromServer,
    Origin,
    PullDense,
    PullRows,
    PutDense,
    Route,
    Rows,
    Stage,
)
from geartrain.wire.zmq import DealerClient
from kernels.checks import require_array
from kernels.wire_codec import encode_rows, encoded_bytes

DEADLINE_S = 60.0
"""Long enough for a pull that waits for a window to be applied; that a process died is noticed by leases."""


class StepSums(Protocol):
    """Gradient sums of one worker's part of a step, for U unique keys of D floats."""

    @property
    def grads(self) -> Floats:
        """float32[U, D]."""

    @property
    def shows(self) -> Floats:
        """float32[U]."""

    @property
    def clicks(self) -> Floats:
        """float32[U]."""

    @property
    def dense_start(self) -> int:
        """Where `dense` begins in the flat dense vector."""

    @property
    def dense(self) -> Floats:
        """This worker's slice of the group's summed dense gradient, float32[n]."""


@dataclass(frozen=True, slots=True)
class PullHandle:
    """A pull under way: server s answers rows [starts[s], starts[s + 1]), encoded in `codec`."""

    call: Call
    starts: Sequence[int]
    version: int
    codec: str


class TierClient:
    """Requests to all servers of a route. One thread at a time uses a client; several clients may live side by side.

    Arrays that are handed over are sent without a copy: they stay as they are until the call (for `begin_pull`: until
    `finish_pull`) returns.
    """

    def __init__(
        self,
        route: Route,
        worker: str,
        incarnation: int,
        term: int,
        token: str,
        row_dim: int,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """`row_dim` floats per row; `deadline_s` for each call, attempts at an unreachable server included.

        All clients of one process give the same `incarnation`: with another one, servers take the worker for restarted
        and refuse the first.
        """
        self.route = route
        self.row_dim = row_dim
        origin = Origin(
            token=token,
            term=term,
            route_epoch=route.route_epoch,
            worker=worker,
            incarnation=incarnation,
            sequence=0,
            # Less than an attempt: a server without the version says so, and is not taken for a dead one.
            deadline_s=deadline_s / (ATTEMPTS + 1),
        )
        self._codec = "fp32"
        self._bounds: list[int] | None = None
        transport = DealerClient(zmq.Context.instance(), route.addresses)
        self._calls = ServerCalls(route, origin, deadline_s, transport)

    def use_codec(self, codec: str) -> None:
        """Have rows and their gradients cross the wire in `codec` (`kernels.wire_codec.CODECS`) from the next call on;
        fp32 until then. Raises `KernelError` for one that is not known."""
        encoded_bytes(codec, self.row_dim)
        self._codec = codec

    def use_links(self, links: Links) -> None:
        """Have requests and answers take as long as `links` needs for their bytes, from the next call on."""
        self._calls.use_links(links)

    @property
    def parked_s(self) -> float:
        """Seconds that all calls so far have waited only because servers did not have the version yet."""
        return self._calls.parked_s

    def place_dense(self, bounds: Sequence[int]) -> None:
        """Tell how the dense vector is cut: server s owns [bounds[s], bounds[s + 1]). Needed before all dense calls."""
        if len(bounds) != len(self.route.servers) + 1:
            raise WireError(
                f"{len(bounds)} bounds for {len(self.route.servers)} servers",
                expected=len(self.route.servers) + 1,
                got=len(bounds),
            )
        self._bounds = list(bounds)

    def pull(self, unique_keys: Keys, counts: Indices, version: int, out: Floats) -> int:
        """`begin_pull` and `finish_pull` in one."""
        return self.finish_pull(self.begin_pull(unique_keys, counts, version), out)

    def begin_pull(self, unique_keys: Keys, counts: Indices, version: int) -> PullHandle:
        """Ask for rows of at least `version`; every handle is for one `finish_pull`.

        `unique_keys` uint64[U] by server, then table; `counts` int64[num_servers, num_tables]. Raises `KernelError` for
        arrays that do not fit each other.
        """
        starts, table_counts = self._layout(unique_keys, counts)
        call = self._calls.open()
        origin = self._calls.origin_of(call)
        for server, server_counts in enumerate(table_counts):
            start, stop = starts[server], starts[server + 1]
            if start < stop:
                header = encode(PullRows(origin, version, server_counts, self._codec))
                self._calls.send(call, server, [header, unique_keys[start:stop]])
        return PullHandle(call, starts, version, self._codec)

    def finish_pull(self, handle: PullHandle, out: Floats) -> int:
        """Wait for the rows and write them to `out` float32[U, D]; the lowest version among the servers' answers.

        Without keys nobody was asked, and it is the version that was. Raises `DeadlineError` naming the server, or what
        a server refused with.
        """
        require_array("out", out, np.float32, handle.starts[-1], self.row_dim)
        versions = []
        for server, header, frames in self._calls.answers(handle.call):
            versions.append(_expect(Rows, header).version)
            start, stop = handle.starts[server], handle.starts[server + 1]
            reply_rows(frames, handle.codec, out[start:stop])
        return min(versions, default=handle.version)

    def pull_dense(self, version: int, out: Floats) -> int:
        """Read the flat dense vector of at least `version` into `out` float32[P]; the lowest version answered."""
        bounds = self._dense_bounds()
        require_array("out", out, np.float32, bounds[-1])
        call = self._calls.open()
        header = encode(PullDense(self._calls.origin_of(call), version))
        for server, (start, stop) in enumerate(itertools.pairwise(bounds)):
            if start < stop:
                self._calls.send(call, server, [header])
        versions = []
        for server, answer, frames in self._calls.answers(call):
            dense = _expect(Dense, answer)
            start, stop = bounds[server], bounds[server + 1]
            if (dense.start, dense.stop) != (start, stop):
                raise WireError("a dense block of other bounds", expected=[start, stop], got=[dense.start, dense.stop])
            out[start:stop] = reply_floats(frames, stop - start, "values")
            versions.append(dense.version)
        return min(versions, default=version)

    def put_dense(self, vector: Floats) -> None:
        """Set the initial values of the flat dense vector float32[P] on all servers."""
        bounds = self._dense_bounds()
        require_array("vector", vector, np.float32, bounds[-1])
        call = self._calls.open()
        for server, (start, stop) in enumerate(itertools.pairwise(bounds)):
            header = encode(PutDense(self._calls.origin_of(call), start, stop))
            self._calls.send(call, server, [header, vector[start:stop]])
        self._all_done(call)

    def stage(self, group: int, step: int, unique_keys: Keys, counts: Indices, gradients: StepSums) -> dict[str, int]:
        """Stage a step's gradient sums with every server, also those that get none; each server's incarnation.

        `unique_keys` uint64[U] and `counts` as in `begin_pull`. Raises as `finish_pull`, `StaleMessageError` for a
        group that no longer lives, `BusyError` when too much is staged already, `KernelError` for NaN or Inf where the
        codec has none.
        """
        grads, shows, clicks = gradients.grads, gradients.shows, gradients.clicks
        dense_start, dense_values = gradients.dense_start, gradients.dense
        starts, table_counts = self._layout(unique_keys, counts)
        bounds = self._dense_bounds()
        require_array("grads", grads, np.float32, len(unique_keys), self.row_dim)
        require_array("shows", shows, np.float32, len(unique_keys))
        require_array("clicks", clicks, np.float32, len(unique_keys))
        require_array("dense", dense_values, np.float32, None)
        encoded = encode_rows(grads, self._codec)
        call = self._calls.open()
        origin = self._calls.origin_of(call)
        dense_stop = dense_start + len(dense_values)
        for server, server_counts in enumerate(table_counts):
            low = min(max(dense_start, bounds[server]), dense_stop)
            high = max(low, min(dense_stop, bounds[server + 1]))
            rows = slice(starts[server], starts[server + 1])
            dense = dense_values[low - dense_start : high - dense_start]
            header = encode(Stage(origin, group, step, server_counts, low, high, self._codec))
            self._calls.send(call, server, [header, unique_keys[rows], encoded[rows], shows[rows], clicks[rows], dense])
        return self._all_done(call)

    def stage_bytes(self, counts: Indices) -> dict[int, int]:
        """How many bytes `stage` sends to each server, for `counts` as there and a dense gradient of full length."""
        per_row = 8 + 4 + 4 + encoded_bytes(self._codec, self.row_dim)
        dense = np.diff(self._dense_bounds())
        return {server: int(rows * per_row + 4 * dense[server]) for server, rows in enumerate(counts.sum(axis=1))}

    def rows_bytes(self, num_rows: int) -> int:
        """How many bytes so many rows have on the wire."""
        return num_rows * encoded_bytes(self._codec, self.row_dim)

    def echo(self, num_bytes: Mapping[int, int]) -> None:
        """Send `num_bytes[server]` bytes to each server that is named (its place in the route); wait for their answers.

        It measures the way of a push and leaves no trace. Raises as `finish_pull`.
        """
        call = self._calls.open()
        payload = np.zeros(max(num_bytes.values(), default=0), dtype=np.uint8)
        for server, size in num_bytes.items():
            self._calls.send(call, server, [encode(Echo(self._calls.origin_of(call), size)), payload[:size]])
        self._all_done(call)

    def close(self) -> None:
        """Drop all connections; calls under way are forgotten."""
        self._calls.close()

    def _layout(self, unique_keys: Keys, counts: Indices) -> tuple[list[int], list[list[int]]]:
        require_array("counts", counts, np.int64, len(self.route.servers), None)
        starts = [0, *np.cumsum(counts.sum(axis=1)).tolist()]
        require_array("unique_keys", unique_keys, np.uint64, starts[-1])
        table_counts: list[list[int]] = counts.tolist()
        return starts, table_counts

    def _dense_bounds(self) -> list[int]:
        if self._bounds is None:
            raise ConflictError("place_dense comes before the first dense call")
        return self._bounds

    def _all_done(self, call: Call) -> dict[str, int]:
        servers = self.route.servers
        return {servers[server]: _expect(Done, header).incarnation for server, header, _ in self._calls.answers(call)}


def _expect(kind: type[Any], header: FromServer) -> Any:
    if isinstance(header, Failed):
        raise GeartrainError.from_dict(header.error)
    if not isinstance(header, kind):
        raise WireError("an answer of another kind", expected=kind.__name__, got=type(header).__name__)
    return header
