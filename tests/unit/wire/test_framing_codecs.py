"""Rows and gradients in every codec: read when their size fits it, refused by name otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from geartrain.errors import WireError
from geartrain.types import Floats
from geartrain.wire import framing
from geartrain.wire.messages import Origin, PullRows, Stage
from kernels.wire_codec import CODECS, decode_rows, encode_rows, encoded_bytes

ORIGIN = Origin("token", 1, 1, "w0", 7, 3, 2.0)
DIM = 3
GRADS = np.array([[1.0, -2.5, 3e-9], [1e20, 0.0, -1e19]], dtype=np.float32)
KEYS = np.array([5, 6], dtype=np.uint64)
BAD_ROWS = {"fp16": b"\xff" * 8, "bf16": b"\xff" * 6, "int8": b"\xff" * 11}


def frames_of(grads: bytes) -> list[bytes]:
    ones = np.ones(2, dtype=np.float32).tobytes()
    return [b"header", KEYS.tobytes(), grads, ones, ones, b""]


def staged(codec: str, grads: bytes) -> Floats:
    return framing.staged_arrays(Stage(ORIGIN, 0, 0, [2], 0, 0, codec), frames_of(grads), 1, DIM).grads


def expected(codec: str) -> Floats:
    out = np.empty_like(GRADS)
    decode_rows(encode_rows(GRADS, codec), codec, out)
    return out


@pytest.mark.parametrize("codec", CODECS)
def test_gradients_are_float32_once_they_are_staged(codec: str) -> None:
    found = staged(codec, encode_rows(GRADS, codec).tobytes())
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected(codec))


@pytest.mark.parametrize("codec", CODECS)
def test_rows_of_an_answer_are_written_where_they_belong(codec: str) -> None:
    out = np.empty((4, DIM), dtype=np.float32)
    framing.reply_rows([b"header", encode_rows(GRADS, codec).tobytes()], codec, out[1:3])
    np.testing.assert_array_equal(out[1:3], expected(codec))


@pytest.mark.parametrize("codec", CODECS)
def test_no_rows_are_no_bytes(codec: str) -> None:
    none = framing.staged_arrays(Stage(ORIGIN, 0, 0, [0], 0, 0, codec), [b"header", *[b""] * 5], 1, DIM)
    assert none.grads.shape == (0, DIM)
    framing.reply_rows([b"header", b""], codec, np.empty((0, DIM), dtype=np.float32))


@pytest.mark.parametrize("codec", CODECS)
def test_a_size_that_is_not_the_codecs_is_refused(codec: str) -> None:
    size = 2 * encoded_bytes(codec, DIM)
    others = {2 * encoded_bytes(other, DIM) for other in CODECS} - {size}
    for wrong in (size - 1, size + 1, 0, size // 2, *others):
        with pytest.raises(WireError) as pushed:
            staged(codec, b"\x00" * wrong)
        with pytest.raises(WireError) as pulled:
            framing.reply_rows([b"header", b"\x00" * wrong], codec, np.empty((2, DIM), dtype=np.float32))
        for what, refused in (("grads", pushed), ("rows", pulled)):
            assert refused.value.facts == {"field": what, "expected": f"{size} bytes", "got": wrong}


@pytest.mark.parametrize("codec", BAD_ROWS)
def test_bytes_that_no_encoder_makes_are_refused_by_row(codec: str) -> None:
    good = encode_rows(GRADS[:1], codec).tobytes()
    with pytest.raises(WireError, match=f"grads: row 1 is not in {codec}") as refused:
        staged(codec, good + BAD_ROWS[codec])
    assert refused.value.facts == {"field": "grads", "expected": codec, "got": 1}
    with pytest.raises(WireError, match=f"rows: row 0 is not in {codec}"):
        framing.reply_rows([b"header", BAD_ROWS[codec]], codec, np.empty((1, DIM), dtype=np.float32))


@pytest.mark.parametrize("codec", ["", "fp8", "FP16", "int8" * 1000])
def test_an_unknown_codec_is_refused_by_name(codec: str) -> None:
    attempts = (
        lambda: staged(codec, GRADS.tobytes()),
        lambda: framing.pull_keys(PullRows(ORIGIN, 0, [2], codec), [b"header", KEYS.tobytes()], 1),
        lambda: framing.reply_rows([b"header", GRADS.tobytes()], codec, np.empty_like(GRADS)),
    )
    for attempt in attempts:
        with pytest.raises(WireError, match="not one of fp32, fp16, bf16, int8") as refused:
            attempt()
        assert refused.value.facts == {"field": "codec", "expected": "fp32, fp16, bf16, int8", "got": codec[:40]}


def test_what_would_decode_to_more_than_a_frame_is_refused_before_it_is_allocated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = encode_rows(GRADS, "bf16").tobytes()
    monkeypatch.setattr(framing, "MAX_FRAME_BYTES", GRADS.nbytes - 1)
    with pytest.raises(WireError, match="decoded more than 23 bytes") as refused:
        staged("bf16", frame)
    assert refused.value.facts == {"field": "grads", "expected": "at most 23 bytes", "got": GRADS.nbytes}


def test_a_message_without_a_codec_means_fp32() -> None:
    frame = framing.encode(Stage(ORIGIN, 0, 0, [2], 0, 0)).replace(b"\xa5codec\xa4fp32", b"")
    shorter = bytes([frame[0] - 1]) + frame[1:]
    assert framing.decode_request_header([shorter]) == Stage(ORIGIN, 0, 0, [2], 0, 0, "fp32")
