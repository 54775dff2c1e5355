from __future__ import annotations

import pytest

from benchmarks.support.progress import Progress


def job(*rates: float, begin_s: float = 100.0) -> Progress:
    """A job with one point a second; in second n it applies `rates[n]` samples."""
    points, samples = [], 0.0
    for number, rate in enumerate(rates, 1):
        samples += rate
        points.append({"time": begin_s + number, "samples": samples, "samples_per_s": rate})
    return Progress(begin_s, points)


def test_samples_lie_on_a_line_between_points() -> None:
    progress = job(10, 30)
    assert [progress.samples_at(100.0 + second) for second in (0, 0.5, 1, 1.5, 2, 9)] == [0, 5, 10, 25, 40, 40]
    assert progress.rate(100.5, 101.5) == 20
    assert progress.end_s == 102.0


def test_points_of_evaluations_do_not_count() -> None:
    evaluation = {"time": 150.0, "samples": 10, "samples_per_s": None}
    assert Progress(100.0, [{"time": 101.0, "samples": 10, "samples_per_s": 10.0}, evaluation]).end_s == 101.0


def test_recovery_is_where_the_old_speed_is_kept() -> None:
    progress = job(10, 10, 2, 2, 9, 9, 9, 9, 9)
    assert progress.recovered_at(102.0, 9.0, look_s=3.0) == 104.0


def test_a_short_spell_is_no_recovery() -> None:
    progress = job(10, 2, 9, 9, 2, 2, 9, 9, 9, 9)
    assert progress.recovered_at(101.0, 9.0, look_s=3.0) == 106.0


@pytest.mark.parametrize("rates", [(10, 2, 2, 2, 2), (10, 2, 2, 2, 9)])
def test_what_never_came_or_came_too_late_is_none(rates: tuple[float, ...]) -> None:
    assert job(*rates).recovered_at(101.0, 9.0, look_s=2.0) is None


def test_a_speed_that_was_never_lost_is_there_at_once() -> None:
    assert job(9, 9, 9, 9).recovered_at(101.0, 9.0, look_s=2.0) == 101.0
