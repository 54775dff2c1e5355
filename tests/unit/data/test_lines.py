from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from geartrain.data.lines import LineRange, RowEnds, cut, rows_of

TEXT = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\r", b'"']), max_size=60).map(b"".join)


def row_ends(data: bytes, sizes: list[int]) -> list[np.ndarray]:
    scanner = RowEnds()
    parts, place = [], 0
    for size in [*sizes, len(data)]:
        parts.append(scanner.feed(data[place : place + size]))
        place += size
    return [*parts, scanner.finish()]


def rows_by_hand(data: bytes) -> list[bytes]:
    lines = [line[:-1] if line.endswith(b"\r") else line for line in data.split(b"\n")]
    return [line for line in lines if line != b""]


@given(TEXT, st.lists(st.integers(0, 7), max_size=30), st.integers(1, 5), st.integers(1, 12))
def test_cutting_text_neither_loses_nor_doubles_a_row(data, sizes, max_rows, max_bytes):
    ranges = list(cut(row_ends(data, sizes), 0, max_rows, max_bytes))
    rows = [row for part in ranges for row in rows_by_hand(data[part.start : part.stop])]
    assert rows == rows_by_hand(data)
    assert [part.num_rows for part in ranges] == [len(rows_by_hand(data[p.start : p.stop])) for p in ranges]
    assert [part.first_row for part in ranges] == [sum(p.num_rows for p in ranges[:i]) for i in range(len(ranges))]
    assert all(1 <= part.num_rows <= max_rows for part in ranges)
    assert all(before.stop == after.start for before, after in pairwise(ranges))


@given(TEXT, st.lists(st.integers(0, 7), max_size=30), st.lists(st.integers(0, 7), max_size=30))
def test_the_blocks_do_not_matter(data, sizes, other_sizes):
    one, other = (np.concatenate(row_ends(data, each)).tolist() for each in (sizes, other_sizes))
    assert one == other


def test_a_range_closes_with_the_row_that_fills_its_bytes():
    data = b"aaaa\nb\ncccccccc\nd\n"
    ranges = list(cut(row_ends(data, []), 0, max_rows=100, max_bytes=6))
    assert ranges == [LineRange(0, 2, 0, 7), LineRange(2, 1, 7, 16), LineRange(3, 1, 16, 18)]


def test_a_last_line_needs_no_newline_and_blank_lines_are_no_rows():
    assert rows_of(b"a\r\n\n\r\nb") == [b"a", b"b"]
    assert np.concatenate(row_ends(b"a\r\n\n\r\nb", [])).tolist() == [3, 7]
    assert np.concatenate(row_ends(b"a\n\r", [])).tolist() == [2]
    assert np.concatenate(row_ends(b"", [])).tolist() == []
