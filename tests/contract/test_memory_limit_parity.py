from __future__ import annotations

import numpy as np
import pytest
from contract_samples import assert_same, many
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import KernelError
from geartrain.types import Indices, Keys
from kernels.memory_limit import LINE_BYTES, LineWalk, new_lines
from kernels.reference import memory_limit as reference

distances = st.sampled_from([0, 1, 3, 32, 10**6])


def random_lines(num_lines: int, seed: int) -> Keys:
    lines = new_lines(num_lines * LINE_BYTES)
    lines[:] = np.random.default_rng(seed).integers(0, 2**64, lines.shape, dtype=np.uint64)
    return lines


def visits(num_lines: int, num_visits: int, seed: int) -> Indices:
    return np.random.default_rng(seed).integers(0, num_lines, num_visits)


@many
@given(st.integers(1, 20), st.integers(0, 80), distances, st.integers(0, 999))
def test_reading_matches_the_reference(num_lines: int, num_visits: int, distance: int, seed: int) -> None:
    lines, numbers = random_lines(num_lines, seed), visits(num_lines, num_visits, seed)
    assert LineWalk(lines, numbers).read(distance) == reference.read_lines(lines, numbers)


@many
@given(st.integers(1, 20), st.integers(0, 80), distances, st.integers(0, 999))
def test_adding_matches_the_reference(num_lines: int, num_visits: int, distance: int, seed: int) -> None:
    lines, numbers = random_lines(num_lines, seed), visits(num_lines, num_visits, seed)
    expected = lines.copy()
    reference.add_to_lines(expected, numbers)
    LineWalk(lines, numbers).add(distance)
    assert_same(lines, expected)


def test_new_lines_are_zero_whole_and_aligned() -> None:
    lines = new_lines(3 * LINE_BYTES + 1)
    assert lines.shape == (4, 8)
    assert not lines.any()
    assert lines.ctypes.data % LINE_BYTES == 0


def test_what_cannot_be_walked_is_refused() -> None:
    lines, numbers = new_lines(4 * LINE_BYTES), np.array([3, 0])
    with pytest.raises(KernelError, match="num_bytes"):
        new_lines(0)
    with pytest.raises(KernelError, match=r"numbers.*\[0, 4\)"):
        LineWalk(lines, np.array([0, 4]))
    with pytest.raises(KernelError, match=r"numbers.*\[0, 4\)"):
        LineWalk(lines, np.array([-1]))
    with pytest.raises(KernelError, match="dtype"):
        LineWalk(lines.view(np.int64), numbers)
    with pytest.raises(KernelError, match="aligned"):
        LineWalk(lines.reshape(-1)[1:25].reshape(3, 8), np.array([0]))
    for call in (LineWalk(lines, numbers).read, LineWalk(lines, numbers).add):
        with pytest.raises(KernelError, match="distance"):
            call(-1)
