"""Whatever servers answer: a worker's call ends, with what was asked for or with an error that has a name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fuzz_messages import INTEGERS, NAMED, damaged, message, quick, retyped
from fuzz_server import DIM, KEYS, ROUTE
from hypothesis import given
from hypothesis import strategies as st

from embedding_tier import calls as calls_module
from embedding_tier.client import TierClient
from geartrain.errors import GeartrainError
from geartrain.wire.framing import Frame, decode_request_header, encode
from geartrain.wire.messages import Dense, Done, Failed, Rows
from geartrain.wire.transport import Buffers
from kernels.wire_codec import CODECS, encoded_bytes

DENSE_SIZE = 5
COUNTS = np.array([[3, 1]], dtype=np.int64)
ONES = np.ones(DIM * KEYS.size, dtype=np.float32)

Answer = Callable[[int], list[bytes]]
"""The frames of an answer to the call of this sequence."""


class ScriptedServer:
    """A `ClientTransport` behind which one server gives answers from a list, and then is silent."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = iter(answers)
        self._sequence = 0

    def send(self, peer: int, frames: Buffers) -> None:
        header = frames[0]
        assert isinstance(header, bytes)
        self._sequence = decode_request_header([header]).origin.sequence

    def receive(self, timeout_s: float) -> tuple[int, Sequence[Frame]] | None:
        answer = next(self._answers, None)
        return None if answer is None else (0, answer(self._sequence))

    def reconnect(self, peer: int) -> None:
        pass

    def close(self) -> None:
        pass


class Sums:
    """Gradient sums for `KEYS`."""

    grads, shows, clicks = ONES.reshape(KEYS.size, DIM), ONES[: KEYS.size], ONES[: KEYS.size]
    dense_start, dense = 0, ONES[:DENSE_SIZE]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A clock that goes a second further whenever it is read, so that silence costs no time."""
    seconds = itertools.count()
    monkeypatch.setattr(calls_module, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    yield


CODEC = st.sampled_from(CODECS)
HEADERS = st.one_of(
    message(Rows),
    message(Dense, start=st.just(0) | INTEGERS, stop=st.just(DENSE_SIZE) | INTEGERS),
    message(Done),
    message(Failed),
    message(Failed, error=st.sampled_from([{"code": code, "message": "no"} for code in sorted(NAMED)])),
)


@st.composite
def answers(draw: st.DrawFn, codec: str) -> Answer:
    """An answer to this call or another one; often whole, and with a buffer of the right size."""
    header = draw(HEADERS)
    right = {Rows: [KEYS.size * encoded_bytes(codec, DIM)], Dense: [4 * DENSE_SIZE]}.get(type(header), [])
    sizes = draw(st.just(right) | st.lists(st.integers(0, 40), max_size=2))
    change = draw(st.sampled_from(["none", "none", "none", "sequence", "type", "bytes"]))
    if change in ("type", "bytes"):
        data = draw(retyped(HEADERS) if change == "type" else damaged(HEADERS.map(encode)))
        return lambda sequence: [data, *map(bytes, sizes)]
    fields = {name: getattr(header, name) for name in header.__struct_fields__}
    off = draw(st.integers(-1, 1)) if change == "sequence" else 0
    return lambda sequence: [encode(type(header)(**{**fields, "sequence": sequence + off})), *map(bytes, sizes)]


def calls(client: TierClient, out: Any) -> list[Callable[[], Any]]:
    vector = np.zeros(DENSE_SIZE, dtype=np.float32)
    return [
        lambda: client.pull(KEYS, COUNTS, 0, out),
        lambda: client.pull_dense(0, vector),
        lambda: client.put_dense(vector),
        lambda: client.stage(0, 0, KEYS, COUNTS, Sums()),
    ]


@quick
@given(st.data(), CODEC, st.integers(0, 3))
def test_a_call_ends_whatever_is_answered(clock: None, data: st.DataObject, codec: str, which: int) -> None:
    client = TierClient(ROUTE, "w0", 1, 1, "token", DIM, deadline_s=60.0)
    client.close()
    client.place_dense([0, DENSE_SIZE])
    client.use_codec(codec)
    client._calls._transport = ScriptedServer(data.draw(st.lists(answers(codec), max_size=4)))
    out = np.full((KEYS.size, DIM), np.nan, dtype=np.float32)
    try:
        result = calls(client, out)[which]()
    except GeartrainError as error:
        assert error.message is not None
    else:
        assert which != 0 or (isinstance(result, int) and np.isfinite(out).all())
    assert not client._calls._open
