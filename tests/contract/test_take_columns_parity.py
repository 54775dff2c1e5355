from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract_samples import assert_same, many
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import KernelError
from kernels.reference import take_columns as reference
from kernels.take_columns import take_columns


@many
@given(st.integers(0, 4), st.integers(0, 40), st.data())
def test_take_columns_matches_the_reference(num_columns: int, num_rows: int, data: st.DataObject) -> None:
    columns = np.random.default_rng(num_rows).integers(0, 2**64, (num_columns, num_rows), dtype=np.uint64)
    taken = data.draw(st.lists(st.integers(0, num_rows - 1), max_size=60)) if num_rows else []
    rows, start = np.array(taken, dtype=np.int64), data.draw(st.integers(0, 3))
    got = np.zeros((num_columns, start + len(rows) + data.draw(st.integers(0, 3))), dtype=np.uint64)
    expected = got.copy()
    take_columns(columns, rows, got, start)
    reference.take_columns(columns, rows, expected, start)
    assert_same(got, expected)


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("columns", {"columns": np.zeros((2, 3), dtype=np.int64)}),
        ("columns", {"columns": np.zeros((3, 2), dtype=np.uint64).T}),
        ("rows", {"rows": np.array([0, 3])}),
        ("rows", {"rows": np.array([-1])}),
        ("rows", {"rows": np.array([0], dtype=np.int32)}),
        ("out", {"out": np.zeros((3, 4), dtype=np.uint64)}),
        ("start", {"start": 3}),
        ("start", {"start": -1}),
    ],
)
def test_bad_arguments_are_refused_by_name(argument: str, changes: dict[str, Any]) -> None:
    good: dict[str, Any] = {
        "columns": np.zeros((2, 3), dtype=np.uint64),
        "rows": np.array([0, 2]),
        "out": np.zeros((2, 4), dtype=np.uint64),
        "start": 2,
    }
    with pytest.raises(KernelError) as caught:
        take_columns(**(good | changes))
    assert caught.value.facts["argument"] == argument
