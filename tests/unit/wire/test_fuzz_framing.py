"""Whatever arrives at the wire's decoders is a message or a `WireError`, at once and without much memory.

Each of these can also be driven by atheris, through `hypothesis.fuzz_one_input` (`scripts/fuzz.py`).
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from fuzz_messages import anything, damaged, message, quick, retyped
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import GeartrainError, WireError
from geartrain.wire import framing
from geartrain.wire.framing import Frame
from geartrain.wire.messages import (
    Failed,
    FromNode,
    FromServer,
    NodeFailed,
    PullRows,
    PutDense,
    Refused,
    Stage,
    ToNode,
    ToServer,
)
from kernels.wire_codec import CODECS, encoded_bytes

Decoder = Callable[[Sequence[Frame]], msgspec.Struct]

UNIONS: dict[Decoder, tuple[type[msgspec.Struct], ...]] = {
    framing.decode_from_node: FromNode.__args__,
    framing.decode_to_node: ToNode.__args__,
    framing.decode_request_header: ToServer.__args__,
    framing.decode_reply_header: FromServer.__args__,
}
MESSAGES = {decode: st.one_of(*map(message, kinds)) for decode, kinds in UNIONS.items()}
ANY_MESSAGE = st.one_of(*MESSAGES.values())
MOST_BYTES = 4 << 20
"""What decoding may take beside the message itself; messages here are below 100 kB."""


def decodes_or_refuses(data: bytes) -> None:
    for decode, kinds in UNIONS.items():
        try:
            assert isinstance(decode([data]), kinds)
        except WireError as error:
            assert set(error.facts) == {"expected", "got"}
            framing.encode(framing.decode_reply_header([_failed(error)]))


def _failed(error: GeartrainError) -> bytes:
    """The answer that would tell of it: facts must be such that they can be sent."""
    return msgspec.msgpack.encode({"type": "Failed", "sequence": 1, "error": error.to_dict()})


@quick
@given(ANY_MESSAGE)
def test_every_message_with_any_values_survives_the_wire_and_is_refused_by_other_decoders(sent: Any) -> None:
    data = framing.encode(sent)
    for decode, kinds in UNIONS.items():
        if isinstance(sent, kinds):
            assert framing.encode(decode([data])) == data
        else:
            with pytest.raises(WireError):
                decode([data])


@quick
@given(retyped(ANY_MESSAGE))
def test_a_value_of_another_type_is_a_message_or_a_wire_error(data: bytes) -> None:
    decodes_or_refuses(data)


@quick
@given(damaged(ANY_MESSAGE.map(framing.encode)))
def test_damaged_bytes_are_a_message_or_a_wire_error(data: bytes) -> None:
    decodes_or_refuses(data)


@pytest.mark.parametrize("decode", UNIONS)
def test_a_claim_of_a_huge_size_at_any_place_takes_no_memory(decode: Decoder) -> None:
    """Every length in a message, replaced by 2**32 - 1: of an array, a map, bytes, a text, an extension."""

    @quick
    @given(MESSAGES[decode].map(framing.encode), st.integers(0, 2**16), st.sampled_from(b"\xdd\xdf\xc6\xdb\xc9"))
    def attempt(data: bytes, place: int, code: int) -> None:
        place %= len(data)
        claim = data[:place] + bytes([code]) + b"\xff" * 4 + data[place + 1 :]
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        decodes_or_refuses(claim)
        assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES

    tracemalloc.start()
    try:
        attempt()
    finally:
        tracemalloc.stop()


FRAMES = st.lists(st.binary(max_size=96), max_size=8)


@quick
@given(message(PullRows) | message(PutDense) | message(Stage), FRAMES, st.integers(0, 4), st.integers(0, 2**40))
def test_buffers_behind_any_header_fit_or_are_a_wire_error(
    header: Any, buffers: list[bytes], num_tables: int, row_dim: int
) -> None:
    frames = [framing.encode(header), *buffers]
    try:
        if isinstance(header, PullRows):
            framing.pull_keys(header, frames, num_tables)
        elif isinstance(header, PutDense):
            framing.put_values(header, frames)
        else:
            framing.staged_arrays(header, frames, num_tables, row_dim)
    except WireError as error:
        assert {"expected", "got"} <= set(error.facts)
        framing.decode_reply_header([_failed(error)])


@quick
@given(FRAMES, anything(int))
def test_an_answer_of_any_size_fits_or_is_a_wire_error(frames: list[bytes], count: int) -> None:
    try:
        values = framing.reply_floats(frames, count, "rows")
    except WireError:
        return
    assert values.nbytes == len(frames[1]) and len(values) == count


@quick
@given(FRAMES, st.integers(0, 12), st.integers(1, 12), st.sampled_from(CODECS) | anything(str))
def test_rows_in_any_codec_fit_or_are_a_wire_error(
    frames: list[bytes], num_rows: int, row_dim: int, codec: str
) -> None:
    if len(frames) > 1 and codec in CODECS and num_rows * row_dim:
        frames[1] = (frames[1] * 200)[: num_rows * encoded_bytes(codec, row_dim)]
    out = np.empty((num_rows, row_dim), dtype=np.float32)
    try:
        framing.reply_rows(frames, codec, out)
    except WireError as error:
        framing.decode_reply_header([_failed(error)])
    else:
        assert codec == "fp32" or np.isfinite(out).all()


@quick
@given(st.dictionaries(st.sampled_from(["code", "message", "self", "original_code"]) | st.text(), anything(Any)))
def test_whatever_a_peer_calls_an_error_becomes_one(fields: dict[str, Any]) -> None:
    error = GeartrainError.from_dict(fields)
    assert isinstance(error.message, str) and error.to_dict()["code"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
    max_leaves=8,
)


@quick
@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), JSON, max_size=4), st.text(st.characters()))
def test_an_error_with_any_facts_can_be_told(facts: dict[str, Any], message: str) -> None:
    """Facts may repeat what a file said: numbers of any length, halves of characters."""
    told = WireError(message, **facts).to_dict()
    for sent in (Failed(1, told), NodeFailed("s0", 1, "job", told), Refused(told)):
        decode = next(decode for decode, kinds in UNIONS.items() if isinstance(sent, kinds))
        assert set(decode([framing.encode(sent)]).error) == set(told)
