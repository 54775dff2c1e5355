"""Rows to the wire's formats and back, here and by FBGEMM's quantizers, on one thread.

Requests of 40,000 rows of 16 float32, the result in a new array: one request over and over (`rows_from` "caches"), or
16 in turn, which come from memory. `geartrain_over_fbgemm` is against FBGEMM as it is, and `..._over_fbgemm_checked`,
of encoders, against FBGEMM after NumPy's `isfinite(rows).all()`: ours refuse rows that are not finite, FBGEMM's do not
look. Its int8 rows are of the same size; fp16 with a scale per row is not among its formats. All take turns in each
round; figures are medians.

What stands as the limit is a copy that moves as many bytes in all. A decoder may be above it when rows come from
memory, because it reads fewer of its bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.lines import Line
from benchmarks.support.measuring import seconds_beside
from benchmarks.support.samples import DIM
from geartrain.types import Floats
from kernels.wire_codec import Encoded, decode_rows, encode_rows, encoded_bytes

NUM_ROWS, NUM_REQUESTS, REPEATS = 40_000, 16, 3
LOSSY = ("fp16", "bf16", "int8")

Work = Callable[[int], Any]
"""What is done with the request of that number."""


def lines(num_rows: int, rounds: int) -> Iterator[Line]:
    """A line for each direction, format, and place of the rows; without FBGEMM they lack its figures."""
    random = np.random.default_rng(5)
    requests = [random.standard_normal((num_rows, DIM), dtype=np.float32) for _ in range(NUM_REQUESTS)]
    peer = _Peer.if_there()
    threads_before = peer.one_thread() if peer else 0
    for source, numbers in (("caches", [0] * NUM_REQUESTS), ("memory", list(range(NUM_REQUESTS)))):
        for codec in LOSSY:
            encoded = [encode_rows(rows, codec) for rows in requests]
            half_the_bytes = (DIM * 4 + encoded_bytes(codec, DIM)) // 2 * num_rows
            copied = [np.ones(half_the_bytes, dtype=np.uint8) for _ in requests]
            limit = partial(_copy, copied)
            encode: dict[str, Work] = {"here": partial(_encode, requests, codec), "limit": limit}
            decode: dict[str, Work] = {"here": partial(_decode, encoded, codec), "limit": limit}
            if peer and codec != "fp16":
                encode["fbgemm"], encode["checked"] = peer.encoders(codec, requests)
                decode["fbgemm"] = peer.decoder(codec, requests)
            yield _line(f"encode_{codec}", source, encode, numbers, num_rows, rounds)
            yield _line(f"decode_{codec}", source, decode, numbers, num_rows, rounds)
    if peer:
        peer.set_threads(threads_before)


def _line(name: str, source: str, works: dict[str, Work], numbers: Sequence[int], num_rows: int, rounds: int) -> Line:
    seconds: dict[str, list[float]] = {work: [] for work in works}
    for _ in range(rounds):
        for which, work in works.items():
            work(numbers[0])
            seconds[which].append(seconds_beside([partial(_run, work, numbers)]))
    num_done = num_rows * len(numbers) * REPEATS
    speeds = {which: num_done / statistics.median(times) for which, times in seconds.items()}
    line: Line = {
        "name": name,
        "rows_from": source,
        "threads": 1,
        "rows_per_s": round(speeds["here"]),
        "limit_rows_per_s": round(speeds["limit"]),
        "share_of_limit": round(speeds["here"] / speeds["limit"], 4),
        "ns_per_value": round(1e9 / speeds["here"] / DIM, 4),
    }
    for which, suffix in (("fbgemm", "fbgemm"), ("checked", "fbgemm_checked")):
        if which in speeds:
            line[f"{suffix}_rows_per_s"] = round(speeds[which])
            line[f"{suffix}_ns_per_value"] = round(1e9 / speeds[which] / DIM, 4)
            line[f"geartrain_over_{suffix}"] = round(speeds["here"] / speeds[which], 2)
    return line


def _run(work: Work, numbers: Sequence[int]) -> None:
    for _ in range(REPEATS):
        for number in numbers:
            work(number)


def _encode(requests: Sequence[Floats], codec: str, number: int) -> Encoded:
    return encode_rows(requests[number], codec)


def _decode(encoded: Sequence[Encoded], codec: str, number: int) -> Floats:
    rows = np.empty((len(encoded[number]), DIM), dtype=np.float32)
    decode_rows(encoded[number], codec, rows)
    return rows


def _copy(arrays: Sequence[NDArray[np.uint8]], number: int) -> NDArray[np.uint8]:
    return arrays[number].copy()


class _Peer:
    """FBGEMM's quantizers."""

    def __init__(self) -> None:
        import fbgemm_gpu  # noqa: F401  (its operators appear in torch)
        import torch

        self._torch = torch
        operators = torch.ops.fbgemm
        self._encoders = {
            "bf16": operators.FloatToBfloat16Quantized,
            "int8": operators.FloatToFused8BitRowwiseQuantized,
        }
        self._decoders = {
            "bf16": operators.Bfloat16QuantizedToFloat,
            "int8": operators.Fused8BitRowwiseQuantizedToFloat,
        }

    @classmethod
    def if_there(cls) -> _Peer | None:
        """None without torch or FBGEMM, or when FBGEMM is built for another torch (OSError)."""
        try:
            return cls()
        except (ImportError, OSError):
            return None

    def one_thread(self) -> int:
        """How many threads torch had before."""
        before = self._torch.get_num_threads()
        self.set_threads(1)
        return before

    def set_threads(self, num_threads: int) -> None:
        self._torch.set_num_threads(num_threads)

    def encoders(self, codec: str, requests: Sequence[Floats]) -> tuple[Work, Work]:
        """The operator alone, and after a look for what is not finite."""
        tensors = [self._torch.from_numpy(rows) for rows in requests]
        encode = self._encoders[codec]

        def checked(number: int) -> Any:
            if not np.isfinite(requests[number]).all():
                raise ValueError("rows are not finite")
            return encode(tensors[number])

        return lambda number: encode(tensors[number]), checked

    def decoder(self, codec: str, requests: Sequence[Floats]) -> Work:
        encoded = [self._encoders[codec](self._torch.from_numpy(rows)) for rows in requests]
        return lambda number: self._decoders[codec](encoded[number])
