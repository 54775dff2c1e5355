from __future__ import annotations

import threading

import numpy as np
import pytest

from benchmarks.support.client_process import Times
from benchmarks.support.latencies import median_of_rounds, milliseconds, rows_per_s
from benchmarks.support.measuring import percentile, seconds_beside
from benchmarks.support.memory_limits import MemoryLimit, own_lines
from kernels.memory_limit import DISTANCES, LINE_BYTES, new_lines


def test_a_percentile_is_one_of_the_values() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, at) for at in (0, 20, 21, 50, 100)] == [1.0, 1.0, 2.0, 3.0, 5.0]
    assert percentile(list(map(float, range(1, 1001))), 99.9) == 999.0
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_calls_run_beside_each_other() -> None:
    """Each waits for the other one: one after the other they would never end."""
    meeting = threading.Barrier(2)
    assert seconds_beside([meeting.wait, meeting.wait]) > 0


@pytest.mark.parametrize("num_calls", [1, 2])
def test_what_a_call_raises_is_raised(num_calls: int) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        seconds_beside([fail] * num_calls)


def test_threads_that_write_have_lines_of_their_own() -> None:
    numbers = np.random.default_rng(1).integers(0, 1000, 5000)
    parts = [own_lines(numbers, thread, 3, 1000) for thread in range(3)]
    assert all(part.min() >= 0 and part.max() < 1000 for part in parts)
    assert all(not np.intersect1d(parts[a], parts[b]).size for a, b in ((0, 1), (0, 2), (1, 2)))
    # Nearly all lines are visited, so the bytes that a thread walks over are those of the whole.
    assert len(np.unique(np.concatenate(parts))) > 900


def test_a_limit_is_taken_at_its_best_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walks seem to take `distance` milliseconds, the last one of the best distance far longer."""
    limit = MemoryLimit(new_lines(64 * LINE_BYTES), np.arange(64), 1, add=False)
    taken: list[int] = []

    def pretend(calls: list[object]) -> float:
        distance = DISTANCES[len(taken) % len(DISTANCES)]
        taken.append(distance)
        return 9.0 if len(taken) == 2 * len(DISTANCES) + 1 else distance / 1000

    monkeypatch.setattr("benchmarks.support.memory_limits.seconds_beside", pretend)
    for _ in range(3):
        limit.measure()
    assert limit.lines_per_s() == pytest.approx(64 / (DISTANCES[0] / 1000))


def test_rows_of_clients_side_by_side_count_together() -> None:
    runs = [Times(10.0, 12.0, [1.0, 1.0]), Times(11.0, 14.0, [1.0, 2.0])]
    assert rows_per_s(runs, 100) == 100.0
    assert median_of_rounds([Times(0, 1, [1.0, 3.0, 2.0]), Times(0, 1, [9.0]), Times(0, 1, [4.0])]) == 4.0
    assert milliseconds([0.001, 0.002, 0.0104], 50, 99.9) == {"p50_ms": 2.0, "p99.9_ms": 10.4}
