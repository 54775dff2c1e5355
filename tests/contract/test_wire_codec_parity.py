"""Rows on the wire: every build gives the bits of the reference, values keep their bounds, bad bytes are named."""

from __future__ import annotations

import numpy as np
import pytest
from contract_samples import assert_same, floats, many
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from geartrain.errors import KernelError
from geartrain.types import Floats
from kernels.reference import wire_codec as reference
from kernels.wire_codec import CODECS, decode_rows, encode_rows, encoded_bytes

LOSSY = ("fp16", "bf16", "int8")
MAX, TINY, LEAST = np.float32(3.4028235e38), np.float32(1.1754944e-38), np.float32(1e-45)
EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    LEAST,
    -LEAST,
    TINY,
    -TINY,
    MAX,
    -MAX,
    np.nextafter(MAX, np.float32(0)),
    65504.0,
    65520.0,
]
widths = st.sampled_from([1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33])
counts = st.sampled_from([0, 1, 2, 5, 8, 9, 35])  # from eight on, rows may be taken together
finite = st.sampled_from(EDGES) | st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def rows_of_any_size(draw: st.DrawFn) -> Floats:
    """Rows from denormal to the largest floats, with edge values, with one value, and with values near each other."""
    num_rows, dim = draw(counts), draw(widths)
    if draw(st.booleans()):
        return draw(arrays.arrays(np.float32, (num_rows, dim), elements=finite))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    exponents = random.integers(-149, 127, (num_rows, 1))
    spread = draw(st.sampled_from([0.0, 1e-6, 1.0, 60.0]))
    values = np.exp2(exponents + random.uniform(-spread, 0, (num_rows, dim))) * random.choice([-1, 1], (num_rows, dim))
    return values.astype(np.float32)


def decoded(encoded: np.ndarray, codec: str, dim: int) -> Floats:
    out = np.full((len(encoded), dim), np.nan, dtype=np.float32)
    decode_rows(encoded, codec, out)
    return out


def bound(rows: Floats, codec: str) -> np.ndarray:
    """What a value of each row may be off by, float64; as the table in kernels/wire_codec.py states."""
    x = np.abs(rows.astype(np.float64))
    m = x.max(axis=1, keepdims=True)
    if codec == "fp16":
        return np.maximum(x * 2.0**-11, m * 2.0**-39)
    if codec == "bf16":
        return np.maximum(x * 2.0**-8, 2.0**-134)
    wide = rows.astype(np.float64)
    step = (wide.max(axis=1, keepdims=True) - wide.min(axis=1, keepdims=True)) / 255
    return np.broadcast_to(step / 2 + m * 2.0**-19 + 2.0**-149, rows.shape)


@pytest.mark.parametrize("codec", LOSSY)
@many
@given(rows=rows_of_any_size())
def test_builds_match_the_reference_and_keep_the_bound(codec: str, rows: Floats) -> None:
    encoded = encode_rows(rows, codec)
    assert encoded.shape == (len(rows), encoded_bytes(codec, rows.shape[1]))
    assert_same(encoded, reference.ENCODERS[codec](rows))
    back = decoded(encoded, codec, rows.shape[1])
    assert_same(back, reference.DECODERS[codec](encoded))
    assert np.isfinite(back).all()
    assert (np.abs(back.astype(np.float64) - rows) <= bound(rows, codec)).all()


@pytest.mark.parametrize("codec", ["fp16", "bf16"])
@many
@given(rows=rows_of_any_size())
def test_a_decoded_row_is_encoded_again_without_loss(codec: str, rows: Floats) -> None:
    encoded = encode_rows(rows, codec)
    assert_same(encode_rows(decoded(encoded, codec, rows.shape[1]), codec), encoded)


@pytest.mark.parametrize("codec", LOSSY)
@many
@given(data=st.data(), dim=widths, count=counts)
def test_any_bytes_are_rows_or_refused_at_the_first_bad_one(
    codec: str, data: st.DataObject, dim: int, count: int
) -> None:
    shape = (count, encoded_bytes(codec, dim))
    encoded = data.draw(arrays.arrays(np.uint8, shape, elements=st.integers(0, 255)))
    if codec == "fp16":  # most others have a scale that is none
        kept = data.draw(st.sampled_from([(0x80, 0x7F), (0x80, 0x00), (0xFF, 0xFF)]))
        encoded[:, -2:] &= np.array(kept, dtype=np.uint8)
    bad = np.flatnonzero(~reference.CHECKS[codec](encoded))
    if len(bad) == 0:
        back = decoded(encoded, codec, dim)
        assert_same(back, reference.DECODERS[codec](encoded))
        assert np.isfinite(back).all()
    else:
        with pytest.raises(KernelError, match=f"encoded as {codec}") as refused:
            decoded(encoded, codec, dim)
        assert refused.value.facts["position"] == bad[0]


NOT_FINITE = np.array([0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF], dtype=np.uint32)
"""Infinity, and NaN from the first to the last."""


@pytest.mark.parametrize("codec", LOSSY)
@pytest.mark.parametrize("dim", [1, 5, 8, 16, 17])
@pytest.mark.parametrize(("first", "count"), [(2, 4), (2, 44), (30, 44), (41, 44)])
def test_a_row_that_is_not_finite_is_named(codec: str, dim: int, first: int, count: int) -> None:
    for value in np.concatenate([NOT_FINITE, NOT_FINITE | np.uint32(0x80000000)]).view(np.float32):
        for column in range(dim):
            rows = floats(1, count, dim)
            rows[first:, column] = value
            with pytest.raises(KernelError, match=f"NaN or Inf at position {first}$"):
                encode_rows(rows, codec)


@pytest.mark.parametrize("dim", [3, 8, 16, 17])
def test_encoded_rows_that_no_encoder_makes_are_named_where_others_are_good(dim: int) -> None:
    bad = {
        "fp16": [(1, 0x78), (2 * dim + 1, 0x80), (2 * dim, 0x01), (2 * dim + 1, 0x06)],
        "bf16": [(1, 0x7F), (2 * dim - 1, 0xFF)],
        "int8": [(dim + 3, 0x7F), (dim + 7, 0xFF)],
    }
    for codec, bytes_of_codec in bad.items():
        for at, byte in bytes_of_codec:
            for first in (0, 9, 31, 43):
                encoded = encode_rows(floats(6, 44, dim), codec)
                encoded[first:, at] = byte
                if codec == "bf16":
                    encoded[first:, at - 1] = 0x80
                assert (~reference.CHECKS[codec](encoded)).argmax() == first
                with pytest.raises(KernelError, match=f"encoded as {codec}.* at position {first}$"):
                    decoded(encoded, codec, dim)


@pytest.mark.parametrize("codec", LOSSY)
@pytest.mark.parametrize("dim", [8, 16, 17])
@pytest.mark.parametrize("spread", [0, 20, 149])
def test_rows_at_the_edge_of_another_computation_match_the_reference(codec: str, dim: int, spread: int) -> None:
    """Of these sizes are rows that are computed with a scale and without, and values that round to what is no half."""
    random = np.random.default_rng(7)
    for exponent in (-64, -63, -62, 13, 14, 15, 16):
        for signs in ([-1, 1], [1], [-1], [-1, 0, 1]):
            sizes = np.exp2(exponent + random.uniform(-spread, 0, (40, dim)))
            rows = (sizes * random.choice(signs, (40, dim))).astype(np.float32)
            rows[::5, 0] = np.nextafter(np.float32(2.0**exponent), np.float32(0))
            encoded = encode_rows(rows, codec)
            assert_same(encoded, reference.ENCODERS[codec](rows))
            assert_same(decoded(encoded, codec, dim), reference.DECODERS[codec](encoded))


@pytest.mark.parametrize("codec", LOSSY)
def test_what_becomes_of_a_row_depends_on_that_row_alone(codec: str) -> None:
    rows = floats(3, 40, 17) * np.exp2(floats(4, 40, 1) * 20)
    together = encode_rows(rows, codec)
    for number in range(len(rows)):
        assert_same(encode_rows(rows[number : number + 1], codec), together[number : number + 1])


def test_every_float_of_bf16_and_fp16_is_kept() -> None:
    """All finite values of the small types; those of fp16 beside the largest one, so that the scale is 1."""
    bits = np.arange(2**16, dtype=np.uint16)
    wide = (bits.astype(np.uint32) << 16).view(np.float32)
    wide = wide[np.isfinite(wide)].reshape(-1, 2)
    assert_same(decoded(encode_rows(wide, "bf16"), "bf16", 2), wide)
    halves = bits.view(np.float16).astype(np.float32)
    halves = halves[np.abs(halves) < 2.0**15]
    rows = np.stack([np.full_like(halves, 2.0**15 - 16), halves], axis=1)
    assert_same(decoded(encode_rows(rows, "fp16"), "fp16", 2), rows)


def test_ties_go_to_the_even_neighbor() -> None:
    one = np.array([[1.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8]], dtype=np.float32)
    assert decoded(encode_rows(one, "bf16"), "bf16", 3).tolist() == [[1.0, 1.0, 1 + 2 * 2.0**-7]]
    one = np.array([[1.0, 1 + 2.0**-11, 1 + 3 * 2.0**-11]], dtype=np.float32)
    assert decoded(encode_rows(one, "fp16"), "fp16", 3).tolist() == [[1.0, 1.0, 1 + 2 * 2.0**-10]]


def test_gradients_of_any_size_keep_eleven_bits_in_fp16() -> None:
    """Unscaled halves end at 65504, and are 0 below 3e-8."""
    for size in (1e-44, 1e-30, 1e-12, 1.0, 1e12, 3e38):
        rows = np.array([[size, size / 3, -size / 1000]], dtype=np.float32)
        back = decoded(encode_rows(rows, "fp16"), "fp16", 3)
        np.testing.assert_allclose(back, rows, rtol=2.0**-11)


@pytest.mark.parametrize("codec", LOSSY)
def test_rows_of_one_value_are_exact_where_the_type_can_hold_it(codec: str) -> None:
    for value in (0.0, -0.0, 1.5, -0.75, MAX if codec == "int8" else 2.0**127, LEAST if codec != "bf16" else 0.0):
        rows = np.full((2, 9), value, dtype=np.float32)
        np.testing.assert_array_equal(decoded(encode_rows(rows, codec), codec, 9), rows)


def test_int8_holds_the_widest_and_the_narrowest_row() -> None:
    for least, largest in ((-MAX, MAX), (0.0, LEAST), (-LEAST, LEAST), (1.0, np.nextafter(np.float32(1), MAX))):
        rows = np.array([[least, largest, least]], dtype=np.float32)
        np.testing.assert_allclose(decoded(encode_rows(rows, "int8"), "int8", 3), rows, rtol=2.0**-19)


def test_fp32_is_taken_as_it_is_and_without_a_copy() -> None:
    rows = floats(2, 3, 5)
    rows[1] = [np.nan, np.inf, -0.0, LEAST, MAX]
    encoded = encode_rows(rows, "fp32")
    assert np.shares_memory(encoded, rows)
    assert_same(decoded(encoded, "fp32", 5), rows)


@pytest.mark.parametrize("codec", CODECS)
def test_encoded_rows_may_lie_at_any_address(codec: str) -> None:
    rows = floats(5, 7, 17)
    encoded = encode_rows(rows, codec)
    for shift in (1, 2, 3, 7):
        moved = np.empty(encoded.size + shift, dtype=np.uint8)[shift:].reshape(encoded.shape)
        moved[...] = encoded
        assert_same(decoded(moved, codec, 17), decoded(encoded, codec, 17))


@pytest.mark.parametrize("codec", CODECS)
def test_arrays_that_do_not_fit_are_refused(codec: str) -> None:
    rows = floats(1, 3, 4)
    encoded = encode_rows(rows, codec)
    for wrong in (rows.astype(np.float64), rows[:, ::2], rows[0], rows[:, :0]):
        with pytest.raises(KernelError, match="rows"):
            encode_rows(wrong, codec)
    for short in (encoded[:2], np.ascontiguousarray(encoded[:, :-1]), encoded.view(np.int8)):
        with pytest.raises(KernelError, match="encoded"):
            decode_rows(short, codec, np.empty_like(rows))
    read_only = np.empty_like(rows)
    read_only.flags.writeable = False
    for out in (read_only, np.empty((3, 0), dtype=np.float32)):
        with pytest.raises(KernelError, match="out"):
            decode_rows(encoded, codec, out)


def test_an_unknown_codec_is_named() -> None:
    rows = floats(1, 2, 2)
    for attempt in (
        lambda: encode_rows(rows, "int4"),
        lambda: decode_rows(rows.view(np.uint8), "int4", rows),
        lambda: encoded_bytes("int4", 2),
    ):
        with pytest.raises(KernelError, match="codec: expected one of fp32, fp16, bf16, int8, got int4"):
            attempt()
