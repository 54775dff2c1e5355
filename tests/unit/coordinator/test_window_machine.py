"""The rules by which windows close, and their arithmetic."""

from __future__ import annotations

import pytest
from cluster_model import outline
from window_support import arrival, arrive, machine, round_of

from coordinator.events import Decide, GroupsChanged, InFlight, RoundState, StepId, Tick, Wait
from coordinator.window import WindowSettings
from geartrain.errors import ConfigError, StaleMessageError

HYBRID = WindowSettings("hybrid", window_ms=20.0)


THREE = round_of((0, 0, 0), (1, 0, 0), (2, 0, 0))


def test_sync_waits_for_all_groups_with_rows_and_says_for_whom() -> None:
    window = machine(WindowSettings("sync"))
    waiting = arrive(window, arrival(0), 0.0, THREE)
    assert waiting == Wait(None, "1 of 3 arrived, sync waits for group 1")
    assert isinstance(arrive(window, arrival(2), 3600.0, THREE), Wait)
    decided = arrive(window, arrival(1), 7200.0, THREE)
    assert isinstance(decided, Decide)
    assert (decided.version, decided.divisor, decided.step_scale) == (1, 24.0, 1.0)
    assert decided.reason == "3 of 3 arrived, nobody is missing"


def test_quorum_counts_only_groups_that_still_have_rows() -> None:
    window = machine(WindowSettings("sync"))
    decided = arrive(window, arrival(1), 0.0, round_of((1, 0, 0), with_rows={1}))
    assert isinstance(decided, Decide)
    assert decided.step_scale == 1.0


def test_a_group_with_rows_but_without_a_step_yet_is_waited_for() -> None:
    window = machine(WindowSettings("sync"))
    assert isinstance(arrive(window, arrival(1), 0.0, round_of((1, 0, 0), with_rows={0, 1})), Wait)


def test_hybrid_waits_window_ms_from_the_first_arrival_and_names_the_deadline() -> None:
    window = machine(HYBRID)
    first = arrive(window, arrival(1), 5.0, THREE)
    assert isinstance(first, Wait)
    assert first.until_s == pytest.approx(5.020)
    second = arrive(window, arrival(0), 5.008, THREE)
    assert second.reason == "2 of 3 arrived, deadline in 12 ms (as set)"
    assert isinstance(window.handle(Tick(5.0199), THREE)[0], Wait)
    (decided,) = window.handle(Tick(first.until_s), THREE)
    assert isinstance(decided, Decide)
    assert [one.arrival.group for one in decided.contributions] == [0, 1]
    assert decided.step_scale == pytest.approx(2 / 3)
    assert decided.reason == "2 of 3 arrived, window of 20 ms (as set) is over without group 2"


def test_hybrid_closes_early_when_all_are_in() -> None:
    window = machine(HYBRID, groups=2)
    rounds = round_of((0, 0, 0), (1, 0, 0))
    arrive(window, arrival(1), 0.0, rounds)
    assert isinstance(arrive(window, arrival(0), 0.001, rounds), Decide)


def test_async_decides_each_arrival_at_once() -> None:
    window = machine(WindowSettings("async"))
    decided = arrive(window, arrival(2), 0.0, THREE)
    assert isinstance(decided, Decide)
    assert decided.steps == [StepId(2, 0)]
    assert decided.step_scale == pytest.approx(1 / 3)


def test_contributions_are_in_the_order_of_group_ids_whatever_the_order_of_arrival() -> None:
    outlines = []
    for order in ([0, 1, 2], [2, 0, 1]):
        window = machine(WindowSettings("sync"))
        decided = [arrive(window, arrival(group), 0.0, THREE) for group in order][-1]
        assert isinstance(decided, Decide)
        outlines.append(outline(decided))
    assert outlines[0] == outlines[1]


def test_a_window_takes_the_oldest_step_of_a_group_and_only_that() -> None:
    window = machine(WindowSettings("sync", pipeline_depth=1), groups=2)
    rounds = round_of((0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0))
    arrive(window, arrival(0, 0), 0.0, rounds)
    arrive(window, arrival(0, 1), 0.0, rounds)
    decided = arrive(window, arrival(1, 0), 0.0, rounds)
    assert isinstance(decided, Decide)
    assert decided.steps == [StepId(0, 0), StepId(1, 0)]
    assert window.snapshot(0.0)["queue_length"] == 1


def test_a_step_that_overtook_the_oldest_of_its_group_waits_for_it() -> None:
    window = machine(WindowSettings("async", pipeline_depth=1), groups=1)
    rounds = round_of((0, 0, 0), (0, 1, 0))
    assert arrive(window, arrival(0, 1), 0.0, rounds) == Wait(None, "no step has arrived")
    decided = arrive(window, arrival(0, 0), 0.1, rounds)
    assert isinstance(decided, Decide)
    assert decided.steps == [StepId(0, 0)]


@pytest.mark.parametrize(("depth", "staleness"), [(0, 0), (0, 1), (0, 3), (1, 1), (1, 3)])
def test_weight_is_the_decay_to_the_power_of_the_staleness_beyond_the_depth(depth: int, staleness: int) -> None:
    window = machine(WindowSettings("async", staleness_decay=0.5, pipeline_depth=depth), groups=2, version=7)
    rounds = round_of((0, 0, 7 - staleness), (1, 0, 7))
    decided = arrive(window, arrival(0, version=7 - staleness), 0.0, rounds)
    assert isinstance(decided, Decide)
    (contribution,) = decided.contributions
    assert contribution.staleness == max(0, staleness - depth)
    assert contribution.weight == 0.5 ** max(0, staleness - depth)
    assert decided.divisor == 8 * contribution.weight
    assert decided.step_scale == 8 * contribution.weight / 16


def test_weight_decays_only_beyond_the_usual_staleness() -> None:
    window = machine(WindowSettings("async", staleness_decay=0.5), groups=2, version=9)
    decided = []
    for step, staleness in enumerate([3, 3, 3, 5, 1]):
        rounds = round_of((0, step, window.version - staleness), (1, 0, window.version))
        decided.append(arrive(window, arrival(0, step, window.version - staleness), 0.0, rounds))
    contributions = [one.contributions[0] for one in decided if isinstance(one, Decide)]
    assert [one.weight for one in contributions] == [0.125, 1.0, 1.0, 0.25, 1.0]
    assert [one.staleness for one in contributions] == [3, 3, 3, 5, 1]


def test_most_windows_are_those_of_a_round() -> None:
    window = machine(WindowSettings("async", staleness_decay=0.5), groups=2, version=1)
    rounds = RoundState((InFlight(0, 0, 0, 30), InFlight(1, 0, 1, 10)), frozenset({0, 1}))
    decided = arrive(window, arrival(0, version=0, num_samples=30), 0.0, rounds)
    assert isinstance(decided, Decide)
    assert (decided.contributions[0].weight, decided.most_windows) == (0.5, 40 / 30)
    whole = machine(WindowSettings("async", step_scale=False), groups=2, version=1)
    decided = arrive(whole, arrival(0, version=0, num_samples=30), 0.0, rounds)
    assert isinstance(decided, Decide)
    assert (decided.step_scale, decided.most_windows) == (1.0, 1.0)


def test_divisor_and_scale_of_unequal_groups() -> None:
    window = machine(WindowSettings("sync", staleness_decay=0.5), groups=2, version=4)
    in_flight = (InFlight(0, 0, 3, 30), InFlight(1, 0, 4, 10))
    rounds = RoundState(in_flight, frozenset({0, 1}))
    arrive(window, arrival(0, version=3, num_samples=30), 0.0, rounds)
    decided = arrive(window, arrival(1, version=4, num_samples=10), 0.0, rounds)
    assert isinstance(decided, Decide)
    assert decided.divisor == 0.5 * 30 + 10
    assert decided.step_scale == 25 / 40


def test_a_repeated_arrival_changes_nothing() -> None:
    window = machine(WindowSettings("sync"), groups=2)
    rounds = round_of((0, 0, 0), (1, 0, 0))
    arrive(window, arrival(0), 0.0, rounds)
    again = arrive(window, arrival(0), 0.1, rounds)
    assert isinstance(again, Wait)
    assert window.snapshot(0.1)["queue_length"] == 1
    arrive(window, arrival(1), 0.2, rounds)
    late = arrive(window, arrival(0), 0.3, round_of((0, 1, 1), (1, 1, 1)))
    assert late == Wait(None, "no step has arrived")
    assert (window.version, window.snapshot(0.3)["queue_length"]) == (1, 0)


def test_a_step_of_a_group_that_does_not_live_is_refused_by_name() -> None:
    window = machine(WindowSettings("async"), groups=2)
    with pytest.raises(StaleMessageError, match="group 5, which does not live") as refused:
        arrive(window, arrival(5), 0.0, THREE)
    assert refused.value.facts == {"got": 5, "current": [0, 1]}
    assert window.version == 0


def test_kept_steps_of_a_group_that_went_are_decided_and_others_of_it_dropped() -> None:
    window = machine(WindowSettings("sync", pipeline_depth=1), groups=2)
    rounds = round_of((0, 0, 0), (0, 1, 0), (1, 0, 0))
    arrive(window, arrival(0, 0), 0.0, rounds)
    arrive(window, arrival(0, 1), 0.0, rounds)
    after = round_of((0, 0, 0), (1, 0, 0))
    (waiting,) = window.handle(GroupsChanged(frozenset({1}), frozenset({StepId(0, 0)}), 1.0), after)
    assert waiting.reason == "1 of 2 arrived, sync waits for group 1"
    assert window.snapshot(1.0)["queue_length"] == 1
    decided = arrive(window, arrival(1, 0), 2.0, after)
    assert isinstance(decided, Decide)
    assert decided.steps == [StepId(0, 0), StepId(1, 0)]
    assert decided.step_scale == 1.0


def test_a_window_of_skipped_steps_makes_no_version() -> None:
    window = machine(WindowSettings("sync"), groups=1, version=6)
    decided = arrive(window, arrival(0, version=6, skipped="NaN or Inf"), 0.0, round_of((0, 0, 6)))
    assert isinstance(decided, Decide)
    assert (decided.version, window.version, decided.contributions) == (6, 6, ())
    assert decided.steps == [StepId(0, 0)]
    assert decided.reason.endswith("skipped step 0 of group 0 (NaN or Inf)")


def test_a_skipped_step_counts_as_arrived_and_is_missing_in_the_scale() -> None:
    window = machine(WindowSettings("sync"), groups=2)
    rounds = round_of((0, 0, 0), (1, 0, 0))
    arrive(window, arrival(0, skipped="NaN or Inf"), 0.0, rounds)
    decided = arrive(window, arrival(1), 0.0, rounds)
    assert isinstance(decided, Decide)
    assert [one.arrival.group for one in decided.contributions] == [1]
    assert (decided.divisor, decided.step_scale, decided.version) == (8.0, 0.5, 1)


def test_staleness_is_bounded_groups_ahead_wait_and_the_reason_names_the_step() -> None:
    window = machine(WindowSettings("async", max_staleness=2), groups=2)
    slow = (1, 0, 0)
    for step in range(2):
        assert isinstance(arrive(window, arrival(0, step, step), 0.0, round_of((0, step, step), slow)), Decide)
    held = arrive(window, arrival(0, 2, 2), 0.0, round_of((0, 2, 2), slow))
    assert held == Wait(
        None,
        "1 of 2 arrived, but version 3 waits for step 0 of group 1: it builds on version 0, max_staleness is 2",
    )
    decided = arrive(window, arrival(1, 0, 0), 0.0, round_of((0, 2, 2), slow))
    assert isinstance(decided, Decide)
    assert [(one.arrival.group, one.staleness) for one in decided.contributions] == [(0, 0), (1, 2)]


def test_the_later_steps_of_a_group_have_their_versions_of_the_bound_in_reserve() -> None:
    window = machine(WindowSettings("async", max_staleness=2, pipeline_depth=1), groups=2)
    slow = ((1, 0, 0), (1, 1, 0))
    assert isinstance(arrive(window, arrival(0, 0, 0), 0.0, round_of((0, 0, 0), (0, 1, 0), *slow)), Decide)
    # Step 0 of group 1 could wait for one more window; but then step 1, a window later, would be 3 versions old.
    rounds = round_of((0, 1, 0), (0, 2, 1), *slow)
    held = arrive(window, arrival(0, 1, 0), 0.0, rounds)
    assert "version 2 waits for step 1 of group 1: it builds on version 0" in held.reason
    assert isinstance(arrive(window, arrival(1, 0, 0), 0.0, rounds), Decide)


def test_a_bound_of_zero_is_sync() -> None:
    window = machine(WindowSettings("async", max_staleness=0))
    assert isinstance(arrive(window, arrival(0), 0.0, THREE), Wait)
    assert isinstance(arrive(window, arrival(1), 0.0, THREE), Wait)
    decided = arrive(window, arrival(2), 0.0, THREE)
    assert isinstance(decided, Decide)
    assert decided.step_scale == 1.0


def test_the_automatic_bound_is_two_per_group_plus_the_depth_and_does_not_fall_under_steps_in_flight() -> None:
    window = machine(WindowSettings("async", pipeline_depth=1), groups=3)
    assert window.max_staleness == 7
    window.handle(GroupsChanged(frozenset({0}), frozenset(), 0.0), round_of())
    assert window.max_staleness == 7


def test_what_is_in_flight_beyond_the_bound_blocks_nobody_for_ever() -> None:
    window = machine(WindowSettings("async", max_staleness=1, pipeline_depth=1), groups=1, version=6)
    decided = arrive(window, arrival(0, 0, 0), 0.0, round_of((0, 0, 0), (0, 1, 0)))
    assert isinstance(decided, Decide)


def test_steps_decided_in_one_burst_open_the_next_window_at_the_decision() -> None:
    window = machine(WindowSettings("hybrid", window_ms=20.0, pipeline_depth=1), groups=2)
    rounds = round_of((0, 0, 0), (0, 1, 0), (1, 0, 0))
    arrive(window, arrival(0, 0), 0.0, rounds)
    arrive(window, arrival(0, 1), 0.005, rounds)
    assert isinstance(window.handle(Tick(0.020), rounds)[0], Decide)
    (waiting,) = window.handle(Tick(0.020), round_of((0, 1, 0), (1, 0, 0)))
    assert waiting == Wait(0.040, "1 of 2 arrived, deadline in 20 ms (as set)")


def test_snapshot_tells_mode_window_queue_and_staleness() -> None:
    window = machine(WindowSettings("hybrid", window_ms=20.0), groups=2, version=5)
    rounds = round_of((0, 0, 3), (1, 0, 5))
    arrive(window, arrival(0, version=3), 1.0, rounds)
    assert window.snapshot(1.012) == {
        "mode": "hybrid",
        "window_ms": 20.0,
        "effective_window_ms": 20.0,
        "open_window": {"version": 6, "open_ms": pytest.approx(12.0), "groups": [0]},
        "queue_length": 1,
        "staleness_histogram": {},
        "staleness_decay": 0.9,
        "max_staleness": 4,
        "reason": "1 of 2 arrived, deadline in 20 ms (as set)",
    }
    arrive(window, arrival(1, version=5), 1.015, rounds)
    after = window.snapshot(1.015)
    assert after["staleness_histogram"] == {"0": 1, "2": 1}
    assert (after["open_window"], after["queue_length"]) == (None, 0)
    assert after["reason"] == "2 of 2 arrived, nobody is missing"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mode", "eventual"),
        ("window_ms", -1.0),
        ("staleness_decay", 0.0),
        ("staleness_decay", 1.1),
        ("max_staleness", 0),
    ],
)
def test_settings_that_no_window_could_work_with_are_refused_by_field(field: str, value: object) -> None:
    fields = {"mode": "sync", "pipeline_depth": 1, field: value}
    with pytest.raises(ConfigError) as refused:
        WindowSettings(**fields)  # type: ignore[arg-type]
    assert refused.value.facts["field"] == f"sync.{field}"
