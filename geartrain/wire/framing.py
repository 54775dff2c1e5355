"""Frames to messages and back, with every size checked before anything is allocated or used.

A control message is one msgpack frame. A data-plane message is a msgpack header frame followed by raw little-endian
buffers whose lengths the header fixes. Whatever arrives, these functions return a message or raise `WireError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
import zmq
from numpy.typing import NDArray

from geartrain.errors import KernelError, WireError
from geartrain.types import Floats, Keys
from geartrain.wire.messages import Echo, FromNode, FromServer, PullRows, PutDense, Stage, ToNode, ToServer
from kernels.wire_codec import CODECS, Encoded, decode_rows, encoded_bytes

MAX_CONTROL_BYTES = 64 << 20
"""Largest control message: a million scores are 13 MB."""
MAX_HEADER_BYTES = 1 << 20
"""Largest data-plane header."""
MAX_FRAME_BYTES = 1 << 30
"""Largest data-plane frame; also the limit of the sockets."""
UNREADABLE = -1
"""The sequence in the answer to a request whose own could not be read."""

Frame: TypeAlias = bytes | memoryview | zmq.Frame
Message = TypeVar("Message")

_ENCODER = msgspec.msgpack.Encoder()
_FROM_NODE: msgspec.msgpack.Decoder[FromNode] = msgspec.msgpack.Decoder(FromNode)
_TO_NODE: msgspec.msgpack.Decoder[ToNode] = msgspec.msgpack.Decoder(ToNode)
_TO_SERVER: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)
_FROM_SERVER: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)

# What msgspec raises on bytes that are no message: its own errors, and those of the Python values it builds.
_UNDECODABLE = (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError, MemoryError)


def encode(message: msgspec.Struct) -> bytes:
    """The msgpack frame of a control message or of a data-plane header.

    Where an error repeats what no frame can hold (a number beyond 64 bits, text that is not Unicode), its text is sent.
    """
    try:
        return _ENCODER.encode(message)
    except (OverflowError, UnicodeEncodeError):
        if not hasattr(message, "error"):
            raise
        return _ENCODER.encode(msgspec.structs.replace(message, error=_sendable(message.error)))


def decode_from_node(frames: Sequence[Frame]) -> FromNode:
    """The control message of a node; raises `WireError`."""
    return _decode(_FROM_NODE, _only(frames), MAX_CONTROL_BYTES)


def decode_to_node(frames: Sequence[Frame]) -> ToNode:
    """The control message of the coordinator; raises `WireError`."""
    return _decode(_TO_NODE, _only(frames), MAX_CONTROL_BYTES)


def decode_request_header(frames: Sequence[Frame]) -> ToServer:
    """The header of a request of the data plane; its buffers are not looked at yet. Raises `WireError`."""
    return _decode(_TO_SERVER, _header(frames), MAX_HEADER_BYTES)


def decode_reply_header(frames: Sequence[Frame]) -> FromServer:
    """The header of an answer of the data plane; its buffers are not looked at yet. Raises `WireError`."""
    return _decode(_FROM_SERVER, _header(frames), MAX_HEADER_BYTES)


class StagedArrays(NamedTuple):
    """The buffers of `Stage`, decoded: keys uint64[N], grads float32[N, D], shows and clicks float32[N], dense
    float32[P]."""

    keys: Keys
    grads: Floats
    shows: Floats
    clicks: Floats
    dense: Floats


def pull_keys(message: PullRows, frames: Sequence[Frame], num_tables: int) -> Keys:
    """The keys uint64[sum(counts)] of a `PullRows`, a view of its frame. Raises `WireError`, also for its codec."""
    need_frames(frames, 2)
    _need_codec(message.codec)
    return _array(frames[1], np.dtype(np.uint64), _total(message.counts, num_tables), "keys")


def put_values(message: PutDense, frames: Sequence[Frame]) -> Floats:
    """The values float32[stop - start] of a `PutDense`, a view of its frame. Raises `WireError`."""
    need_frames(frames, 2)
    return _array(frames[1], np.dtype(np.float32), _length(message.start, message.stop), "values")


def staged_arrays(message: Stage, frames: Sequence[Frame], num_tables: int, row_dim: int) -> StagedArrays:
    """The buffers of a `Stage`: views of its frames, but for gradients in another codec than fp32, which are decoded.

    Raises `WireError`, also for a codec that is not known and for gradients that its encoder never makes.
    """
    need_frames(frames, 6)
    total = _total(message.counts, num_tables)
    single = np.dtype(np.float32)
    return StagedArrays(
        keys=_array(frames[1], np.dtype(np.uint64), total, "keys"),
        grads=_staged_grads(frames[2], message.codec, total, row_dim),
        shows=_array(frames[3], single, total, "shows"),
        clicks=_array(frames[4], single, total, "clicks"),
        dense=_array(frames[5], single, _length(message.dense_start, message.dense_stop), "dense"),
    )


def check_echo(message: Echo, frames: Sequence[Frame]) -> None:
    """Raises `WireError` unless the bytes of an `Echo` are as many as it says."""
    need_frames(frames, 2)
    _array(frames[1], np.dtype(np.uint8), message.num_bytes, "bytes")


def reply_floats(frames: Sequence[Frame], count: int, what: str) -> Floats:
    """The buffer float32[count] behind a `Dense` header, a view of its frame. Raises `WireError`."""
    need_frames(frames, 2)
    return _array(frames[1], np.dtype(np.float32), count, what)


def reply_rows(frames: Sequence[Frame], codec: str, out: Floats) -> None:
    """Write the rows behind a `Rows` header, encoded in `codec`, to `out` float32[N, D]. Raises `WireError`."""
    need_frames(frames, 2)
    num_rows, row_dim = out.shape
    _decode_into(out, _encoded(frames[1], codec, num_rows, row_dim, "rows"), codec, "rows")


def need_frames(frames: Sequence[Frame], wanted: int) -> None:
    """Raises `WireError` unless a message has its header and `wanted - 1` buffers."""
    if len(frames) != wanted:
        raise WireError(f"a message of {len(frames)} frames, not {wanted}", expected=wanted, got=len(frames))


def _staged_grads(frame: Frame, codec: str, num_rows: int, row_dim: int) -> Floats:
    encoded = _encoded(frame, codec, num_rows, row_dim, "grads")
    if codec == "fp32":
        return _array(frame, np.dtype(np.float32), num_rows * row_dim, "grads").reshape(num_rows, row_dim)
    grads = np.empty((num_rows, row_dim), dtype=np.float32)
    _decode_into(grads, encoded, codec, "grads")
    return grads


def _encoded(frame: Frame, codec: str, num_rows: int, row_dim: int, what: str) -> Encoded:
    """The rows in `frame` as they are, if it has the bytes that `codec` gives them."""
    _need_codec(codec)
    width = encoded_bytes(codec, row_dim)
    encoded = _array(frame, np.dtype(np.uint8), num_rows * width, what)
    if 4 * num_rows * row_dim > MAX_FRAME_BYTES:
        raise WireError(
            f"{what}: {num_rows} rows of {row_dim} floats, decoded more than {MAX_FRAME_BYTES} bytes",
            field=what,
            expected=f"at most {MAX_FRAME_BYTES} bytes",
            got=4 * num_rows * row_dim,
        )
    return encoded.reshape(num_rows, width)


def _decode_into(out: Floats, encoded: Encoded, codec: str, what: str) -> None:
    try:
        decode_rows(encoded, codec, out)
    except KernelError as error:
        row = error.facts.get("position")
        raise WireError(f"{what}: row {row} is not in {codec}", field=what, expected=codec, got=row) from error


def _need_codec(codec: str) -> None:
    if codec not in CODECS:
        known = ", ".join(CODECS)
        raise WireError(f"codec {codec[:40]!r}, not one of {known}", field="codec", expected=known, got=codec[:40])


def _total(counts: list[int], num_tables: int) -> int:
    if len(counts) != num_tables:
        raise WireError(
            f"counts for {len(counts)} tables, the job has {num_tables}", expected=num_tables, got=len(counts)
        )
    if counts and min(counts) < 0:
        raise WireError(f"a negative count {min(counts)}", expected="counts of at least 0", got=min(counts))
    return sum(counts)


def _length(start: int, stop: int) -> int:
    if not 0 <= start <= stop:
        raise WireError(f"a range [{start}, {stop})", expected="0 <= start <= stop", got=[start, stop])
    return stop - start


def _array(frame: Frame, dtype: np.dtype[Any], count: int, what: str) -> NDArray[Any]:
    wanted = count * dtype.itemsize
    if len(frame) != wanted:
        raise WireError(
            f"{what}: {len(frame)} bytes, not {wanted}", field=what, expected=f"{wanted} bytes", got=len(frame)
        )
    if count == 0:
        return np.empty(0, dtype)
    array = np.frombuffer(frame.buffer if isinstance(frame, zmq.Frame) else frame, dtype)
    # Small frames lie at any offset of the socket's receive buffer.
    return array if array.flags.aligned else array.copy()


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    if isinstance(value, list | tuple):
        return [_sendable(one) for one in value]
    if isinstance(value, dict):
        return {_sendable(name): _sendable(one) for name, one in value.items()}
    return value


def _only(frames: Sequence[Frame]) -> Frame:
    if len(frames) != 1:
        raise WireError(f"a control message is 1 frame, got {len(frames)}", expected="1 frame", got=len(frames))
    return frames[0]


def _header(frames: Sequence[Frame]) -> Frame:
    if not frames:
        raise WireError("a message without frames", expected="a header frame", got=0)
    return frames[0]


def _decode(decoder: msgspec.msgpack.Decoder[Message], frame: Frame, max_bytes: int) -> Message:
    size = len(frame)
    if size > max_bytes:
        raise WireError(f"a header of {size} bytes, at most {max_bytes} are allowed", expected=max_bytes, got=size)
    try:
        return decoder.decode(frame.buffer if isinstance(frame, zmq.Frame) else frame)
    except _UNDECODABLE as error:
        raise WireError(
            f"a message that cannot be decoded: {error}", expected="a known message", got=str(error)
        ) from error
