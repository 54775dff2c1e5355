"""How large probe steps become, how many are run before any is timed, and what fits a memory."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from dense_workers.probe_timing import (
    FIRST_SIZE,
    LARGEST_STEP_S,
    MAX_WARM_UP,
    MIN_WARM_UP,
    NEAR_ENOUGH,
    largest_size,
    largest_that_fits,
    probe_sizes,
    timed_sizes,
    warm_up,
)


class Steps:
    """Runs steps of a device whose time is a function of samples, and remembers them."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self.run: list[int] = []
        self._seconds = seconds

    def __call__(self, num_samples: int) -> float:
        self.run.append(num_samples)
        return self._seconds(num_samples)


def repeated(*seconds: float) -> Callable[[int], float]:
    """Times of steps, one after the other; the last one from there on."""
    left = list(seconds)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


@given(
    fixed_s=st.floats(0, 0.05),
    sample_s=st.floats(1e-8, 0.02),
    smallest=st.integers(1, 2),
    limit=st.integers(2, 100_000),
)
def test_the_largest_step_takes_about_the_time_that_is_wanted(
    fixed_s: float, sample_s: float, smallest: int, limit: int
) -> None:
    def seconds(num_samples: int) -> float:
        return fixed_s + sample_s * num_samples

    steps = Steps(seconds)
    largest = largest_size(steps, smallest, limit)
    assert smallest <= largest <= limit
    assert max(steps.run) <= max(limit if seconds(limit) <= LARGEST_STEP_S else largest, FIRST_SIZE)
    assert all(seconds(size) <= 1.01 * LARGEST_STEP_S or size <= FIRST_SIZE for size in steps.run)
    if largest < limit and largest > FIRST_SIZE:
        assert LARGEST_STEP_S / (NEAR_ENOUGH + 0.1) <= seconds(largest) <= 1.01 * LARGEST_STEP_S
    assert len(steps.run) < 30


def test_a_slow_device_is_probed_in_steps_of_few_samples() -> None:
    assert largest_size(Steps(lambda size: 0.05 * size), 1, 4096) == 2
    assert largest_size(Steps(lambda size: 5.0 * size), 1, 4096) == 1
    assert largest_size(Steps(lambda size: 5.0 * size), 2, 4096) == 2


def test_a_fast_device_is_probed_in_whole_batches() -> None:
    assert largest_size(Steps(lambda size: 1e-6 * size), 1, 1000) == 1000
    assert largest_size(Steps(lambda _: 0.0), 1, 1000) == 1000


def test_neither_the_first_step_nor_one_hiccup_is_believed() -> None:
    def seconds(steps: list[int]) -> float:
        return 3.0 if len(steps) in (1, 2) else 0.0001 * steps[-1]

    slow_at_first = Steps(lambda _: seconds(slow_at_first.run))
    assert largest_size(slow_at_first, 1, 500) == 500


@given(st.integers(1, 10_000), st.integers(1, 2))
def test_three_sizes_about_a_quarter_a_half_and_all(largest: int, smallest: int) -> None:
    largest = max(largest, smallest)
    sizes = probe_sizes(largest, smallest)
    assert sizes == sorted(set(sizes)) and sizes[-1] == largest and sizes[0] >= smallest
    if largest >= 8:
        assert sizes == [largest // 4, largest // 2, largest]


def test_warm_up_ends_when_two_steps_are_alike() -> None:
    steady = Steps(repeated(1.0))
    warm_up(steady, 7)
    assert steady.run == [7] * MIN_WARM_UP
    late = Steps(repeated(9.0, 5.0, 3.0, 1.2, 1.0))
    warm_up(late, 7)
    assert len(late.run) == 5


def test_warm_up_ends_also_where_no_two_steps_are_alike() -> None:
    restless = Steps(lambda _: 1.0 + len(restless.run) % 2)
    warm_up(restless, 7)
    assert len(restless.run) == MAX_WARM_UP


def test_each_size_is_warm_before_its_steps_are_timed() -> None:
    warming = Steps(repeated(1.0))
    timed = list(timed_sizes(warming, [10, 20], 20))
    assert timed == [10] * 20 + [20] * 20
    assert warming.run == [10] * MIN_WARM_UP + [20] * MIN_WARM_UP


@given(st.integers(0, 5000), st.integers(1, 5000))
def test_the_largest_step_that_fits_is_found(bound: int, limit: int) -> None:
    asked = Steps(lambda size: float(size <= bound))
    found = largest_that_fits(lambda size: bool(asked(size)), limit)
    assert found == (None if bound >= limit else bound)
    assert len(asked.run) <= 15
