"""From arrow columns of raw ids to 64-bit keys.

Integers of every width map to the bijection of the same 64-bit two's complement value, so -1 has one key whether the
column is int8 or int64. Strings are hashed by their UTF-8 bytes. A null is a category of its own: the key of the
empty string.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from geartrain.types import Indices, Keys
from kernels.hashing import keys_of_integers, keys_of_strings

INTEGER = "integer"
STRING = "string"


def key_kind(data_type: Any) -> str | None:
    """`integer` or `string` for an arrow type (or the value type of a list or dictionary) that can be an id, else None.

    Booleans count as the integers 0 and 1. Lists of lists are no ids.
    """
    if is_list(data_type):
        data_type = data_type.value_type
    if pat.is_dictionary(data_type):
        data_type = data_type.value_type
    if pat.is_integer(data_type) or pat.is_boolean(data_type):
        return INTEGER
    return STRING if is_text(data_type) else None


def is_text(data_type: Any) -> bool:
    return bool(pat.is_string(data_type) or pat.is_large_string(data_type) or pat.is_string_view(data_type))


def is_list(data_type: Any) -> bool:
    return bool(pat.is_list(data_type) or pat.is_large_list(data_type) or pat.is_fixed_size_list(data_type))


def missing_key(table: str) -> np.uint64:
    """The key of a missing value in `table`: that of the empty string."""
    key: np.uint64 = keys_of_strings(np.zeros(2, dtype=np.int64), np.zeros(0, dtype=np.uint8), table)[0]
    return key


def keys_of_array(array: Any, table: str) -> Keys:
    """Keys of an arrow array of integers, booleans or strings, plain or dictionary-encoded; nulls get `missing_key`.

    Returns a new uint64[len(array)]. The type must be one for which `key_kind` is not None.
    """
    if pat.is_dictionary(array.type):
        # One more entry at the end stands for null, so that null indices need no second pass.
        entries = np.append(keys_of_array(array.dictionary, table), missing_key(table))
        indices = array.indices.cast(pa.int64()).fill_null(len(array.dictionary))
        keys: Keys = entries[indices.to_numpy(zero_copy_only=False)]
        return keys
    if key_kind(array.type) == INTEGER:
        keys = keys_of_integers(_integers(array), table)
    else:
        offsets, data = string_buffers(array)
        keys = keys_of_strings(offsets, data, table)
    if array.null_count:
        keys[null_mask(array)] = missing_key(table)
    return keys


def null_mask(array: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """True where the arrow array is null; bool[len(array)]."""
    if not array.null_count:
        return np.zeros(len(array), dtype=np.bool_)
    mask: np.ndarray[Any, np.dtype[np.bool_]] = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def string_buffers(array: Any) -> tuple[Indices, np.ndarray[Any, np.dtype[np.uint8]]]:
    """Offsets int64[N + 1] and bytes uint8[M] of an arrow string array (a slice included); bytes are not copied."""
    if pat.is_string_view(array.type):
        array = array.cast(pa.large_string())
    _, offset_buffer, data_buffer = array.buffers()
    width = np.int64 if pat.is_large_string(array.type) else np.int32
    if offset_buffer is None or len(array) == 0:
        return np.zeros(len(array) + 1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    offsets = np.frombuffer(offset_buffer, dtype=width, count=len(array) + 1, offset=array.offset * width().itemsize)
    data = np.zeros(0, dtype=np.uint8) if data_buffer is None else np.frombuffer(data_buffer, dtype=np.uint8)
    return offsets.astype(np.int64), data


def _integers(array: Any) -> Any:
    """int64[N] or uint64[N] with the values of an integer or boolean array; nulls read as 0."""
    wide = pa.uint64() if pat.is_uint64(array.type) else pa.int64()
    if array.type != wide:
        array = array.cast(wide)
    filled = array.fill_null(0) if array.null_count else array  # without nulls there is nothing to copy
    return np.ascontiguousarray(filled.to_numpy(zero_copy_only=False))
