"""Rows and gradients as they cross the wire: float32, fp16 with a scale, bf16, or int8 steps between a row's ends.

Letters: N rows, D dim. What a row becomes depends on that row alone, so no result depends on how rows are spread over
messages or servers. But for fp32, which is taken as it is, a decoded value is always finite.

An encoded row, little-endian, its parts directly behind each other; x is a value, m the largest magnitude of its row:

| codec | bytes | content | a decoded value is off by at most |
|---|---|---|---|
| fp32 | 4 D | float32[D] | 0 |
| fp16 | 2 D + 2 | float16[D], the scale | abs(x) * 2**-11, or m * 2**-39 if that is more |
| bf16 | 2 D | bfloat16[D] | abs(x) * 2**-8, or 2**-134 if that is more |
| int8 | D + 8 | uint8[D], the row's least and largest value as float32 | half a step + m * 2**-19 + 2**-149 |

*fp16*: the row is multiplied by the power of two that brings m into [2**14, 2**15), so gradients of any size keep
eleven bits over 29 binades below m. The scale is stored as the power of two at or below m (2**-112 for smaller m), in
the 16 bits of a bfloat16. Rounded to nearest, ties to even; what would round to 2**15 becomes the half below, so that
nothing overflows and a decoded row is encoded again without loss.

*bf16*: rounded to nearest, ties to even; what would round to infinity becomes the largest finite value.

*int8*: rowwise as FBGEMM's fused 8-bit rows, but with the row's ends in place of scale and offset, and computed so that
rows of tiny and of enormous width keep the bound. A step is 1/255 of the row's width; halves are rounded up. Rows of
one value are exact; the sign of a zero may get lost.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from geartrain.types import Floats
from kernels.checks import mismatch, require_array, require_output
from kernels.explain import native

CODECS = ("fp32", "fp16", "bf16", "int8")

Encoded = NDArray[np.uint8]


def encoded_bytes(codec: str, dim: int) -> int:
    """Bytes of one encoded row of `dim` values. Raises KernelError for a codec that is not known."""
    known = {"fp32": 4 * dim, "fp16": 2 * dim + 2, "bf16": 2 * dim, "int8": dim + 8}
    if codec not in known:
        raise mismatch("codec", f"one of {', '.join(CODECS)}", codec)
    return known[codec]


def encode_rows(rows: Floats, codec: str) -> Encoded:
    """`rows` float32[N, D] as uint8[N, encoded_bytes(codec, D)]: for fp32 a view of `rows`, else a new array.

    Raises KernelError on another dtype or shape, for a codec that is not known, and with its `position` for a row with
    NaN or Inf (not looked for in fp32).
    """
    require_array("rows", rows, np.float32, None, None)
    num_rows, dim = _shape("rows", rows)
    width = encoded_bytes(codec, dim)
    if codec == "fp32":
        return rows.view(np.uint8)
    encoded = np.empty((num_rows, width), dtype=np.uint8)
    encoders: dict[str, Callable[[Floats, Encoded], int]] = {
        "fp16": native.encode_fp16,
        "bf16": native.encode_bf16,
        "int8": native.encode_int8,
    }
    position = encoders[codec](rows, encoded)
    if position >= 0:
        raise mismatch("rows", "finite values", "NaN or Inf", position=position)
    return encoded


def decode_rows(encoded: Encoded, codec: str, out: Floats) -> None:
    """Write the rows of `encoded` uint8[N, encoded_bytes(codec, D)] to `out` float32[N, D].

    Raises KernelError on another dtype or shape, for a codec that is not known, and with its `position` for a row that
    `encode_rows` never makes (not looked for in fp32); `out` is then partly written.
    """
    require_output("out", out, np.float32, None, None)
    num_rows, dim = _shape("out", out)
    require_array("encoded", encoded, np.uint8, num_rows, encoded_bytes(codec, dim))
    if codec == "fp32":
        out.view(np.uint8)[...] = encoded
        return
    decoders: dict[str, Callable[[Encoded, Floats], int]] = {
        "fp16": native.decode_fp16,
        "bf16": native.decode_bf16,
        "int8": native.decode_int8,
    }
    position = decoders[codec](encoded, out)
    if position >= 0:
        raise mismatch("encoded", f"rows encoded as {codec}", "other bytes", position=position)


def _shape(argument: str, rows: Floats) -> tuple[int, int]:
    num_rows, dim = rows.shape
    if dim == 0 and num_rows > 0:
        raise mismatch(argument, "at least one column", 0)
    return num_rows, dim
