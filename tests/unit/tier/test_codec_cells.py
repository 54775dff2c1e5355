"""Every mode of windows, with every codec of the wire and every dtype of rows, through the server's own decoders."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from embedding_tier.job_state import JobState
from embedding_tier.server import TierServer
from geartrain.types import Floats
from geartrain.wire.framing import Frame, decode_reply_header, encode, reply_rows
from geartrain.wire.messages import Apply, Contribution, Done, Origin, PullRows, Rows, Stage, TableSpec
from kernels.wire_codec import CODECS, encode_rows

DIM, LR, NUM_STEPS = 5, 0.5, 3
KEYS = np.array([3, 9, 2**64 - 1, 0], dtype=np.uint64)
GROUPS = ((0, "w0"), (1, "w1"))
RELATIVE_ERROR = {"fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7, "int8": 2.0**-7}
"""Of the largest value of a row, by its codec on the wire or its dtype in the table; twice what rounding makes."""


@dataclass
class Request:
    frames: Sequence[Frame]
    arrived_s: float = 0.0
    answer: list[bytes] = field(default_factory=list)

    def reply(self, frames: Sequence[Any]) -> None:
        self.answer = [bytes(memoryview(frame)) for frame in frames]

    def requeue(self) -> None:
        raise AssertionError("nothing waits here")


class Worker:
    """One worker's side of the wire, without the wire."""

    def __init__(self, server: TierServer, name: str, codec: str) -> None:
        self._server, self._codec = server, codec
        self._origin = Origin("t", 1, 1, name, 1, 1, 1.0)

    def pull(self, version: int) -> Floats:
        answer = self._ask(encode(PullRows(self._origin, version, [len(KEYS)], self._codec)), KEYS.tobytes())
        header = decode_reply_header(answer)
        assert isinstance(header, Rows) and header.version == version, header
        out = np.empty((len(KEYS), DIM), dtype=np.float32)
        reply_rows(answer, self._codec, out)
        return out

    def stage(self, group: int, step: int, grads: Floats) -> None:
        ones = np.ones(len(KEYS), dtype=np.float32).tobytes()
        header = encode(Stage(self._origin, group, step, [len(KEYS)], 0, 0, self._codec))
        answer = self._ask(header, KEYS.tobytes(), encode_rows(grads, self._codec).tobytes(), ones, ones, b"")
        assert isinstance(decode_reply_header(answer), Done), decode_reply_header(answer)

    def _ask(self, *frames: bytes) -> list[bytes]:
        request = Request(frames)
        self._server.handle(request, 0.0)
        return request.answer


def windows_of(mode: str) -> list[list[tuple[int, int, float]]]:
    """(group, step, weight) of every window: all groups at once; one by one, late ones lighter; or now so, now so."""
    arrivals = [[(group, step, 1.0) for group, _ in GROUPS] for step in range(NUM_STEPS)]
    alone = [[(group, step, 0.9 if group else 1.0)] for step in range(NUM_STEPS) for group, _ in GROUPS]
    return {"sync": arrivals, "async": alone, "hybrid": [arrivals[0], *alone[2:4], *arrivals[2:]]}[mode]


@pytest.mark.parametrize(
    ("mode", "codec", "row_dtype"),
    list(itertools.product(("sync", "hybrid", "async"), CODECS, ("fp32", "fp16", "bf16"))),
)
def test_every_cell_trains(mode: str, codec: str, row_dtype: str) -> None:
    spec = TableSpec("a", DIM, {"type": "sgd"}, {"type": "uniform", "range": 0.5}, 1, row_dtype=row_dtype)
    job = JobState(term=1, tables=[spec], version=0, pipeline_depth=NUM_STEPS)
    server = TierServer("t", 1)
    server.open(job, route_epoch=1)
    workers = [Worker(server, name, codec) for _, name in GROUPS]
    random = np.random.default_rng(1)
    grads = random.standard_normal((len(GROUPS), NUM_STEPS, len(KEYS), DIM)).astype(np.float32)
    for (group, _), worker in zip(GROUPS, workers, strict=True):
        for step in range(NUM_STEPS):
            worker.stage(group, step, grads[group, step])

    expected = job.pull_rows(KEYS, [len(KEYS)])[0].astype(np.float64)
    windows = windows_of(mode)
    for version, window in enumerate(windows, start=1):
        parts = [Contribution(group, step, [GROUPS[group][1]], 1, weight) for group, step, weight in window]
        divisor = float(len(window))
        assert server.decided(Apply(1, version, parts, divisor, 1.0, 1.0, LR, {"a": LR}, [0, 1])) == version
        expected -= LR / divisor * sum(weight * grads[group, step] for group, step, weight in window)
    assert sum(map(len, windows)) == NUM_STEPS * len(GROUPS)

    scale = max(float(np.abs(expected).max()), float(np.abs(grads).max()))
    tolerance = scale * len(windows) * (RELATIVE_ERROR[codec] + RELATIVE_ERROR[row_dtype])
    for worker in workers:
        pulled = worker.pull(version=len(windows))
        np.testing.assert_allclose(pulled, expected, rtol=0, atol=tolerance)
        assert np.abs(pulled - expected).max() < 0.1 * np.abs(expected).max(), "more than rounding"
