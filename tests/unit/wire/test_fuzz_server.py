"""Whatever is sent to an embedding server's data plane: one answer, errors in it have names, and it serves on."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
from fuzz_messages import INTEGERS, NAMED, TEXTS, damaged, message, quick, retyped
from fuzz_server import DENSE_SIZE, DIM, EPOCH, TERM, TOKEN, Received, good_pull, serving
from hypothesis import given
from hypothesis import strategies as st

from geartrain.wire.framing import UNREADABLE, encode
from geartrain.wire.messages import (
    CloseJob,
    Dense,
    Done,
    Echo,
    Failed,
    JobClosed,
    Origin,
    PullDense,
    PullRows,
    PutDense,
    Rows,
    Stage,
)
from kernels.wire_codec import CODECS, encoded_bytes

_, _PRISTINE = serving()
ROWS_AT_BIRTH = good_pull(_PRISTINE)
LAST_DEADLINE_S = 1e9
"""By then every request has been answered."""

GOOD_ORIGINS = st.builds(
    Origin,
    st.just(TOKEN),
    st.just(TERM),
    st.just(EPOCH),
    st.sampled_from(["w0", "w1"]),
    st.integers(1, 2),
    INTEGERS,
    st.floats() | st.sampled_from([0.0, 1.0, -1.0, math.inf, 1e300]),
)
ORIGINS = GOOD_ORIGINS | message(Origin)
COUNTS = st.lists(st.integers(0, 3), min_size=2, max_size=2) | st.lists(INTEGERS, max_size=4)
PLACES = st.integers(-1, DENSE_SIZE + 1) | INTEGERS
CODEC_NAMES = st.sampled_from(CODECS) | TEXTS
HEADERS = st.one_of(
    message(PullRows, origin=ORIGINS, counts=COUNTS, codec=CODEC_NAMES),
    message(PullDense, origin=ORIGINS),
    message(PutDense, origin=ORIGINS, start=PLACES, stop=PLACES),
    message(Stage, origin=ORIGINS, codec=CODEC_NAMES, counts=COUNTS, dense_start=PLACES, dense_stop=PLACES),
    message(Echo, origin=ORIGINS, num_bytes=PLACES),
)


@st.composite
def requests(draw: st.DrawFn) -> list[bytes]:
    """A header with any values and the buffers that it promises, up to one that is of another size."""
    header = draw(HEADERS)
    frames = [encode(header), *_promised(header)]
    change = draw(st.sampled_from(["none", "none", "size", "drop", "add", "content"]))
    place = draw(st.integers(0, len(frames) - 1))
    if change == "size":
        frames[place] = bytes(max(0, len(frames[place]) + draw(st.integers(-9, 9))))
    elif change == "drop":
        del frames[place]
    elif change == "add":
        frames.insert(place, draw(st.binary(max_size=16)))
    elif change == "content":
        frames[place] = draw(st.binary(min_size=len(frames[place]), max_size=len(frames[place])))
    return frames


def _promised(header: Any) -> list[bytes]:
    """What the header says that follows, as long as that is not much; the keys are all different."""
    num_rows = min(max(0, sum(getattr(header, "counts", []))), 16)
    keys = np.arange(num_rows, dtype=np.uint64).tobytes()
    if isinstance(header, PullRows):
        return [keys]
    if isinstance(header, PutDense):
        return [_dense(header.start, header.stop)]
    if isinstance(header, Echo):
        return [bytes(min(max(0, header.num_bytes), 16))]
    if isinstance(header, Stage):
        ones = np.ones(num_rows, dtype=np.float32).tobytes()
        width = encoded_bytes(header.codec, DIM) if header.codec in CODECS else 4
        return [keys, bytes(num_rows * width), ones, ones, _dense(header.dense_start, header.dense_stop)]
    return []


def _dense(start: int, stop: int) -> bytes:
    return bytes(4 * min(max(0, stop - start), 16))


def check_answers(sent: list[list[bytes]]) -> None:
    """Handle requests one after the other on one server; each must be answered in the end, and well."""
    control, tier = serving()
    received = [Received(frames) for frames in sent]
    for request in received:
        tier.handle(request, 0.0)
        assert len(request.answers) <= 1
    tier.expire(LAST_DEADLINE_S)
    for request in received:
        if not request.answers and not request.times_requeued:
            # Another pull of the same worker and sequence took its place.
            request.requeue()
        if not request.answers:
            tier.handle(request, LAST_DEADLINE_S)
        _check_answer(request)
    assert len(tier._parked) == 0
    assert good_pull(tier) == ROWS_AT_BIRTH
    encode(tier.stats(0))
    assert isinstance(control.handle(CloseJob(TERM, "job", "over")), JobClosed)


def _check_answer(request: Received) -> None:
    header = request.header()
    buffers = request.answers[0][1:]
    if isinstance(header, Failed):
        assert header.error["code"] in NAMED, header.error
        assert header.sequence == UNREADABLE or header.sequence == _sequence(request)
        assert not buffers
        return
    assert header.sequence == _sequence(request)
    if isinstance(header, Rows):
        assert len(buffers[0]) == len(request.frames[1]) // 8 * encoded_bytes(_header(request)["codec"], DIM)
    elif isinstance(header, Dense):
        assert (header.start, header.stop, len(buffers[0])) == (0, DENSE_SIZE, 4 * DENSE_SIZE)
    else:
        assert isinstance(header, Done) and not buffers


def _header(request: Received) -> dict[str, Any]:
    header = msgspec.msgpack.decode(request.frames[0])
    assert isinstance(header, dict)
    return {"codec": "fp32", **header}


def _sequence(request: Received) -> int:
    return int(_header(request)["origin"]["sequence"])


@quick
@given(st.lists(requests(), min_size=1, max_size=4))
def test_requests_with_any_values_are_answered(sent: list[list[bytes]]) -> None:
    check_answers(sent)


@quick
@given(retyped(HEADERS), st.lists(st.binary(max_size=64), max_size=6))
def test_headers_of_other_types_are_answered(header: bytes, buffers: list[bytes]) -> None:
    check_answers([[header, *buffers]])


@quick
@given(damaged(HEADERS.map(encode)), st.lists(st.binary(max_size=64), max_size=6))
def test_damaged_headers_are_answered(header: bytes, buffers: list[bytes]) -> None:
    check_answers([[header, *buffers]])


@quick
@given(st.lists(st.binary(max_size=64), max_size=8))
def test_frames_of_any_bytes_are_answered(frames: list[bytes]) -> None:
    check_answers([frames])


def test_a_deadline_that_never_comes_is_refused() -> None:
    for deadline_s in (math.inf, math.nan, 1e300):
        origin = Origin(TOKEN, TERM, EPOCH, "w0", 1, 4, deadline_s)
        request = Received([encode(PullDense(origin, 2**40))])
        serving()[1].handle(request, 0.0)
        assert isinstance(failed := request.header(), Failed) and failed.error["code"] == "wire_invalid"
