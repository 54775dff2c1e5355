"""Whatever bytes arrive: a message, or `WireError` that says what was expected."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import WireError
from geartrain.wire import framing
from geartrain.wire.messages import (
    Done,
    Failed,
    FromNode,
    FromServer,
    Heartbeat,
    Origin,
    PullDense,
    PullRows,
    PutDense,
    Register,
    Scores,
    Shutdown,
    Stage,
    TakeSnapshot,
    ToNode,
    ToServer,
    Welcome,
)

ORIGIN = Origin("token", 1, 1, "w0", 7, 3, 2.0)
DECODERS = (
    framing.decode_from_node,
    framing.decode_to_node,
    framing.decode_request_header,
    framing.decode_reply_header,
)
BUFFERS = st.lists(st.binary(max_size=64), max_size=8)
SIZES = st.integers(-(2**70), 2**70) | st.integers(0, 8)


def _plain() -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(st.binary(max_size=200))
def test_random_bytes_are_a_message_or_a_wire_error(data: bytes) -> None:
    for decode in DECODERS:
        try:
            assert decode([data]) is not None
        except WireError as error:
            assert set(error.facts) == {"expected", "got"}


@given(_plain(), st.sampled_from([kind.__name__ for kind in FromNode.__args__ + ToNode.__args__ + ToServer.__args__]))
def test_well_formed_msgpack_of_wrong_content_is_a_wire_error(content: Any, tag: str) -> None:
    for decode in DECODERS:
        for body in (content, {"type": tag, "x": content}, [content]):
            with pytest.raises(WireError):
                decode([msgspec.msgpack.encode(body)])


@given(st.integers(0, 300), st.integers(0, 255))
def test_a_damaged_byte_is_a_message_or_a_wire_error(position: int, value: int) -> None:
    for message, decode in (
        (Register("worker", "t", 5, "", "cpu", "host", "w0"), framing.decode_from_node),
        (TakeSnapshot(1, 2, 3, "/somewhere"), framing.decode_to_node),
        (PullRows(ORIGIN, 4, [1, 2, 3]), framing.decode_request_header),
    ):
        data = bytearray(framing.encode(message))
        data[position % len(data)] = value
        try:
            decode([bytes(data)])
        except WireError as error:
            assert "expected" in error.facts


def test_a_hugely_nested_or_oversized_claim_is_a_wire_error() -> None:
    claims = [
        b"\xdd\xff\xff\xff\xff",  # an array of 2**32 - 1
        b"\xdf\xff\xff\xff\xff",  # a map of as many
        b"\xc6\xff\xff\xff\xff",  # bytes of as many
        b"\x91" * 100_000,
        b"\x81\xa4type" + b"\x91" * 100_000,
    ]
    for claim in claims:
        for decode in DECODERS:
            with pytest.raises(WireError):
                decode([claim])


def test_a_control_message_is_one_frame_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    data = framing.encode(Shutdown("done"))
    assert framing.decode_to_node([data]) == Shutdown("done")
    for frames in ([], [data, data]):
        with pytest.raises(WireError):
            framing.decode_to_node(frames)
    monkeypatch.setattr(framing, "MAX_CONTROL_BYTES", len(data) - 1)
    with pytest.raises(WireError, match="at most"):
        framing.decode_to_node([data])


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat("s0", 2**62),
        Scores("w0", 1, 2, 0, 3, b"\x00" * 12, b"\x01\x00\x01", b""),
    ],
)
def test_control_messages_survive_the_wire(message: FromNode) -> None:
    assert framing.decode_from_node([framing.encode(message)]) == message


def test_a_message_for_the_other_side_is_refused() -> None:
    with pytest.raises(WireError):
        framing.decode_from_node([framing.encode(Welcome("w0", 1))])
    with pytest.raises(WireError):
        framing.decode_reply_header([framing.encode(PullDense(ORIGIN, 1))])


@given(st.lists(SIZES, max_size=4), st.integers(0, 4), st.integers(1, 8), BUFFERS, SIZES, SIZES)
def test_buffers_of_any_size_fit_or_are_a_wire_error(
    counts: list[int], num_tables: int, row_dim: int, buffers: list[bytes], start: int, stop: int
) -> None:
    frames = [b"header", *buffers]
    attempts = (
        lambda: [framing.pull_keys(PullRows(ORIGIN, 0, counts), frames, num_tables)],
        lambda: framing.staged_arrays(Stage(ORIGIN, 0, 0, counts, start, stop), frames, num_tables, row_dim),
        lambda: [framing.put_values(PutDense(ORIGIN, start, stop), frames)],
    )
    for attempt in attempts:
        try:
            arrays = attempt()
        except WireError as error:
            assert "expected" in error.facts and "got" in error.facts
        else:
            assert [array.nbytes for array in arrays] == [len(buffer) for buffer in buffers]


def test_staged_arrays_are_shaped_and_refused_one_byte_off() -> None:
    message = Stage(ORIGIN, 3, 4, [2, 0, 1], 10, 12)
    keys = np.array([0, 2**64 - 1, 5], dtype=np.uint64)
    grads = np.arange(6, dtype=np.float32)
    ones = np.ones(3, dtype=np.float32)
    frames = [b"", keys.tobytes(), grads.tobytes(), ones.tobytes(), ones.tobytes(), ones[:2].tobytes()]
    staged = framing.staged_arrays(message, frames, 3, 2)
    np.testing.assert_array_equal(staged.keys, keys)
    np.testing.assert_array_equal(staged.grads, grads.reshape(3, 2))
    assert len(staged.dense) == 2
    for wrong in range(1, 6):
        for changed in (frames[wrong] + b"\x00", frames[wrong][:-1], b""):
            damaged = [*frames[:wrong], changed, *frames[wrong + 1 :]]
            with pytest.raises(WireError) as refused:
                framing.staged_arrays(message, damaged, 3, 2)
            assert refused.value.facts["got"] == len(changed)
    with pytest.raises(WireError):
        framing.staged_arrays(message, frames[:-1], 3, 2)
    with pytest.raises(WireError, match="counts for 3 tables"):
        framing.staged_arrays(message, frames, 4, 2)


def test_an_unaligned_frame_is_read_correctly() -> None:
    keys = np.array([1, 2, 3], dtype=np.uint64)
    shifted = memoryview(b"\x00" + keys.tobytes())[1:]
    found = framing.pull_keys(PullRows(ORIGIN, 0, [3]), [b"", shifted], 1)
    assert found.flags.aligned
    np.testing.assert_array_equal(found, keys)


def test_answers_are_told_apart_by_their_tag() -> None:
    answers: list[FromServer] = [Done(1, 2), Failed(1, {"code": "busy", "message": "m"})]
    for answer in answers:
        assert framing.decode_reply_header([framing.encode(answer)]) == answer
