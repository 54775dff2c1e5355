"""`window_ms: auto`: what the window machine learns from the times of arrivals."""

from __future__ import annotations

import pytest
from window_support import arrival, arrive, machine, round_of

from coordinator.events import Decide, GroupsChanged, Tick, Wait
from coordinator.window import WindowMachine, WindowSettings


def run_rounds(window: WindowMachine, spreads_ms: list[float]) -> float:
    """Rounds of two groups, 10 s apart, the second group late by these times; the time of the end."""
    now_s = 0.0
    for step, spread_ms in enumerate(spreads_ms):
        now_s += 10.0
        rounds = round_of((0, step, window.version), (1, step, window.version))
        arrive(window, arrival(0, step, window.version), now_s, rounds)
        last_s = now_s + spread_ms / 1000
        (command,) = window.handle(Tick(last_s), rounds)
        if isinstance(command, Decide):
            rounds = round_of((1, step, window.version - 1))
        decided = arrive(window, arrival(1, step, rounds.oldest[1].version), last_s, rounds)
        assert isinstance(decided, Decide)
    return now_s


def test_auto_window_is_50_ms_until_there_is_history() -> None:
    window = machine(WindowSettings("hybrid"), groups=2)
    now_s = run_rounds(window, [10.0] * 4)
    assert window.snapshot(now_s)["window_ms"] == "auto"
    assert window.snapshot(now_s)["effective_window_ms"] == 50.0


def test_auto_window_is_median_plus_three_mad_of_the_spreads() -> None:
    window = machine(WindowSettings("hybrid"), groups=2)
    now_s = run_rounds(window, [10.0, 12.0, 14.0, 16.0, 30.0])
    assert window.snapshot(now_s)["effective_window_ms"] == pytest.approx(14.0 + 3 * 2.0)


@pytest.mark.parametrize(("spread_ms", "window_ms"), [(0.01, 1.0), (5000.0, 2000.0)])
def test_auto_window_is_bounded(spread_ms: float, window_ms: float) -> None:
    window = machine(WindowSettings("sync"), groups=2)
    now_s = run_rounds(window, [spread_ms] * 6)
    assert window.snapshot(now_s)["effective_window_ms"] == window_ms


def test_what_async_and_lonely_groups_do_is_no_history_of_arrivals() -> None:
    window = machine(WindowSettings("async"), groups=2)
    now_s = run_rounds(window, [10.0] * 8)
    assert window.snapshot(now_s)["effective_window_ms"] == 50.0
    alone = machine(WindowSettings("hybrid"), groups=1)
    for step in range(8):
        assert isinstance(arrive(alone, arrival(0, step, step), float(step), round_of((0, step, step))), Decide)
    assert alone.snapshot(8.0)["effective_window_ms"] == 50.0


def test_auto_window_learns_from_arrivals_that_missed_their_window() -> None:
    window = machine(WindowSettings("hybrid"), groups=2)
    now_s = run_rounds(window, [80.0] * 6)
    assert window.snapshot(now_s)["effective_window_ms"] == pytest.approx(80.0)


def test_one_hiccup_does_not_move_the_auto_window() -> None:
    window = machine(WindowSettings("hybrid"), groups=2)
    now_s = run_rounds(window, [10.0, 11.0, 10.0, 11.0, 10.0, 1900.0, 11.0])
    assert window.snapshot(now_s)["effective_window_ms"] < 15.0


def test_one_hopeless_group_does_not_make_the_others_wait() -> None:
    window = machine(WindowSettings("hybrid"), groups=3)
    now_s, slow = 0.0, (2, 0, 0)
    for step in range(6):
        now_s += 10.0
        rounds = round_of((0, step, window.version), (1, step, window.version), slow)
        arrive(window, arrival(0, step, window.version), now_s, rounds)
        arrive(window, arrival(1, step, window.version), now_s + 0.004, rounds)
        assert isinstance(window.handle(Tick(now_s + 3.0), rounds)[0], Decide)
    arrive(window, arrival(2, 0, 0), now_s + 5.0, round_of(slow))
    assert window.snapshot(now_s)["effective_window_ms"] == pytest.approx(4.0, abs=1e-6)


def test_a_group_that_goes_owes_nothing_to_the_history() -> None:
    window = machine(WindowSettings("hybrid"), groups=3)
    rounds = round_of((0, 0, 0), (1, 0, 0), (2, 0, 0))
    arrive(window, arrival(0), 0.0, rounds)
    arrive(window, arrival(1), 0.007, rounds)
    assert isinstance(window.handle(Tick(0.060), rounds)[0], Decide)
    window.handle(GroupsChanged(frozenset({0, 1}), frozenset(), 900.0), round_of())
    now_s = run_rounds_from(window, [7.0] * 4, first_step=1)
    assert window.snapshot(now_s)["effective_window_ms"] == pytest.approx(7.0, abs=1e-6)


def run_rounds_from(window: WindowMachine, spreads_ms: list[float], first_step: int) -> float:
    now_s = 1000.0
    for step, spread_ms in enumerate(spreads_ms, first_step):
        now_s += 10.0
        rounds = round_of((0, step, window.version), (1, step, window.version))
        arrive(window, arrival(0, step, window.version), now_s, rounds)
        assert isinstance(arrive(window, arrival(1, step, window.version), now_s + spread_ms / 1000, rounds), Decide)
    return now_s


def alternate(window: WindowMachine, num_windows: int) -> tuple[list[Decide | Wait], float]:
    """Two groups whose steps take 1 s each and end half a second apart; what the machine does at each arrival."""
    answers: list[Decide | Wait] = []
    now_s = 0.0
    for number in range(num_windows):
        now_s += 0.5
        group, step = number % 2, number // 2
        version = max(0, window.version - 1)
        rounds = round_of((group, step, version), (1 - group, step + group, window.version))
        answer = arrive(window, arrival(group, step, version), now_s, rounds)
        answers.append(answer)
        if isinstance(answer, Wait):
            assert answer.until_s is not None
            (closed,) = window.handle(Tick(answer.until_s), rounds)
            assert isinstance(closed, Decide)
    return answers, now_s


def test_nobody_is_waited_for_who_cannot_come_in_time() -> None:
    window = machine(WindowSettings("hybrid", window_ms=100.0), groups=2)
    answers, _ = alternate(window, 24)
    assert isinstance(answers[0], Wait), "nothing is known of the groups yet"
    assert all(isinstance(answer, Decide) for answer in answers[-8:])
    assert "cannot come within the window of 100 ms" in answers[-1].reason


def test_who_may_come_in_time_is_waited_for() -> None:
    window = machine(WindowSettings("hybrid", window_ms=600.0), groups=2)
    answers, _ = alternate(window, 24)
    assert not any("cannot come" in answer.reason for answer in answers)
