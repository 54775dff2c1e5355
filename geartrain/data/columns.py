"""From one arrow column of a chunk to arrays: numbers, labels, keys, bags. Every value is used or refused by name.

All formats meet here. Text files arrive as string columns, so a string column of a parquet file obeys the same rules:
whitespace is stripped if `data.strip_whitespace`, and the tokens of `data.missing` are missing.
Shape letters: R rows of the chunk, N keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from numpy.typing import NDArray

from geartrain.data.hashing import is_list, is_text, keys_of_array, null_mask, string_buffers
from geartrain.data.schema import LabelRule, Slot, TextRules
from geartrain.errors import BadRowError
from geartrain.types import Floats, Indices, Keys

_LONGEST_VALUE_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a column comes from: names the place of a bad value."""

    file: str
    first_row: int

    def refuse(self, row: int, column: str, value: object, expected: str) -> NoReturn:
        """Raise BadRowError for row `row` of the chunk (from 0); the error counts rows of the file from 1."""
        shown = value if isinstance(value, bool | int | float) else str(value)[:_LONGEST_VALUE_SHOWN]
        number = self.first_row + row + 1
        raise BadRowError(
            f"{self.file}, row {number}, column {column}: expected {expected}, got {shown!r}",
            file=self.file,
            row=number,
            column=column,
            # NaN and Inf are no JSON values.
            value=shown if not isinstance(shown, float) or np.isfinite(shown) else str(shown),
            expected=expected,
        )


def cleaned(array: Any, rules: TextRules) -> Any:
    """The array with strings stripped as configured and missing tokens turned into nulls; other types as they are.

    Dictionary-encoded arrays come back plain.
    """
    if pat.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not is_text(array.type):
        return array
    if pat.is_string_view(array.type):
        array = array.cast(pa.large_string())
    if rules.strip_whitespace:
        array = pc.ascii_trim_whitespace(array)
    if not rules.missing:
        return array
    missing = pc.is_in(array, value_set=pa.array(rules.missing, type=array.type)).to_numpy(zero_copy_only=False)
    if not missing.any():
        return array
    return _with_nulls(array, missing | null_mask(array))


def _with_nulls(array: Any, missing: NDArray[np.bool_]) -> Any:
    """The same strings, null where `missing`; the bytes are not copied."""
    offsets, data = string_buffers(array)
    validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(array), buffers)


def numbers(array: Any, column: str, rules: TextRules, origin: Origin) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Values float64[R] (0 where missing) and missing bool[R] of a numeric column.

    Raises BadRowError for text that is no finite number, and for Inf. NaN is missing where the file stores floats (it
    has no other way to say so there) and refused in text.
    """
    array = cleaned(array, rules)
    text = is_text(array.type)
    missing = null_mask(array)
    if text:
        try:
            parsed = pc.cast(array, pa.float64())
        except pa.ArrowInvalid:
            _refuse_first_non_number(array, column, "a number", origin)
    else:
        parsed = array.cast(pa.float64(), safe=False)
    filled = parsed.fill_null(0.0) if parsed.null_count else parsed
    values: NDArray[np.float64] = filled.to_numpy(zero_copy_only=False)
    if not np.isfinite(values).all():
        if not text:
            missing = missing | np.isnan(values)
        wrong = ~np.isfinite(values) & ~missing
        if wrong.any():
            row = int(np.argmax(wrong))
            origin.refuse(row, column, array[row].as_py(), "a finite number")
        values = np.where(missing, 0.0, values)
    return values, missing


def _refuse_first_non_number(array: Any, column: str, expected: str, origin: Origin) -> NoReturn:
    for row, value in enumerate(array):
        try:
            pc.cast(value, pa.float64())
        except pa.ArrowInvalid:
            origin.refuse(row, column, value.as_py(), expected)
    raise AssertionError("every value alone is a number, but the column is not")


def labels(array: Any, rule: LabelRule, rules: TextRules, origin: Origin) -> Floats:
    """Labels float32[R]: exactly 0 or 1, or membership in `rule.positive`. Raises BadRowError; missing is refused."""
    expected = "0 or 1" if rule.positive is None else "a value"
    raw, array = array, cleaned(array, rules)
    missing = null_mask(array)
    if missing.any():
        row = int(np.argmax(missing))
        origin.refuse(row, rule.column, raw[row].as_py() or "", expected)
    if rule.positive is not None:
        if not is_text(array.type):
            array = array.cast(pa.string())
        positive = pc.is_in(array, value_set=pa.array(rule.positive, type=array.type))
        return np.asarray(positive.to_numpy(zero_copy_only=False), dtype=np.float32)
    try:
        values = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        _refuse_first_non_number(array, rule.column, expected, origin)
    wrong = (values != 0.0) & (values != 1.0)
    if wrong.any():
        row = int(np.argmax(wrong))
        origin.refuse(row, rule.column, raw[row].as_py(), expected)
    return np.asarray(values, dtype=np.float32)


def categories(array: Any, slot: Slot, rules: TextRules) -> Keys:
    """Keys uint64[R] of a categorical column; missing values get the table's missing key."""
    if not pat.is_dictionary(array.type):
        return keys_of_array(cleaned(array, rules), slot.table)
    entries = cleaned(array.dictionary, rules)
    return keys_of_array(pa.DictionaryArray.from_arrays(array.indices, entries), slot.table)


def buckets(values: NDArray[np.float64], missing: NDArray[np.bool_], slot: Slot) -> Keys:
    """Keys uint64[R] of a bucketized number: the id is the number of boundaries that are <= the value."""
    ids = np.searchsorted(np.asarray(slot.boundaries, dtype=np.float64), values, side="right").astype(np.int64)
    array = pa.array(ids, mask=missing)
    return keys_of_array(array, slot.table)


def bags(array: Any, slot: Slot, rules: TextRules) -> tuple[Indices, Keys]:
    """Offsets int64[R + 1] and keys uint64[N] of a sequence column: the last `slot.max_length` values of each row.

    A string is split at `slot.separator`; values that are empty, null or a missing token are dropped before counting.
    A missing sequence is an empty bag.
    """
    elements, lengths, dropped = _values(array, slot, rules)
    keys = keys_of_array(elements, slot.table)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    if dropped.any():
        keys, rows = keys[~dropped], rows[~dropped]
        lengths = np.bincount(rows, minlength=len(lengths))
    stops = np.cumsum(lengths)
    if len(lengths) and lengths.max() > slot.max_length:
        kept = stops[rows] - np.arange(len(rows)) <= slot.max_length
        keys = keys[kept]
        stops = np.cumsum(np.minimum(lengths, slot.max_length))
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    offsets[1:] = stops
    return offsets, keys


def bag_sizes(array: Any, slot: Slot, rules: TextRules) -> Indices:
    """Sizes int64[R] of the bags that `bags` gives for the same column, without their keys."""
    _, lengths, dropped = _values(array, slot, rules)
    if dropped.any():
        rows = np.repeat(np.arange(len(lengths)), lengths)
        lengths = np.bincount(rows[~dropped], minlength=len(lengths))
    return np.minimum(lengths, slot.max_length)


def _values(array: Any, slot: Slot, rules: TextRules) -> tuple[Any, Indices, NDArray[np.bool_]]:
    """All values of a sequence column, how many each row has, and which of them are none."""
    if not is_list(array.type):
        array = pc.split_pattern(cleaned(array, rules), slot.separator)
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = array.flatten()
    if pat.is_dictionary(elements.type):
        elements = elements.dictionary_decode()
    elements = cleaned(elements, rules)
    dropped = null_mask(elements)
    if is_text(elements.type):
        dropped = dropped | (pc.binary_length(elements).fill_null(0).to_numpy(zero_copy_only=False) == 0)
    return elements, lengths, dropped


def transformed(values: NDArray[np.float64], transform: str, moments: tuple[float, float]) -> NDArray[np.float64]:
    """The values after `none`, `log1p` (negatives: -log1p(-x)) or `standard` ((x - mean) / deviation)."""
    if transform == "log1p":
        return np.copysign(np.log1p(np.abs(values)), values)
    if transform == "standard":
        mean, deviation = moments
        return (values - mean) / deviation
    return values
