"""The rules by which positions are leased, granted and given back."""

from __future__ import annotations

import pytest

from coordinator.events import GroupSpec, StepId
from coordinator.grants import GiveGrant, GrantMachine
from geartrain.errors import ConflictError, StaleMessageError, VersionError
from geartrain.types import Interval


def spec(group: int, batch_size: int = 4, members: int = 2) -> GroupSpec:
    return GroupSpec(group, tuple(f"w{group}.{rank}" for rank in range(members)), batch_size)


def opened(num_rows: int, specs: list[GroupSpec], **options: int) -> GrantMachine:
    machine = GrantMachine(num_rows, **options)
    machine.set_groups(specs, (), 0)
    machine.open_pass(0)
    return machine


def spans(grants: list[GiveGrant]) -> list[tuple[int, int, int]]:
    return [(grant.group, grant.interval.start, grant.interval.stop) for grant in grants]


def decide(machine: GrantMachine, group: int, step: int, version: int) -> None:
    machine.arrived(StepId(group, step))
    machine.decided(StepId(group, step), version)


def test_one_group_is_granted_the_global_batches_one_after_the_other() -> None:
    machine = opened(10, [spec(0)])
    seen = []
    for version in range(3):
        (grant,) = machine.grants(version)
        seen.append((grant.step, grant.version, grant.interval))
        decide(machine, 0, grant.step, version + 1)
    assert seen == [(0, 0, Interval(0, 0, 4)), (1, 1, Interval(0, 4, 8)), (2, 2, Interval(0, 8, 10))]
    assert machine.drained()
    assert machine.grants(3) == []


def test_a_round_of_several_groups_is_one_global_batch() -> None:
    machine = opened(40, [spec(0, 3), spec(1, 5), spec(2, 2)])
    for batch in range(4):
        grants = machine.grants(batch)
        start = 10 * batch
        assert spans(grants) == [(0, start, start + 3), (1, start + 3, start + 8), (2, start + 8, start + 10)]
        for grant in grants:
            decide(machine, grant.group, grant.step, batch + 1)


def test_a_grant_is_cut_into_the_shares_of_the_members() -> None:
    machine = opened(7, [spec(0, 7, members=3)])
    (grant,) = machine.grants(0)
    assert grant.cuts == (0, 3, 5, 7)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_group_has_at_most_one_plus_depth_undecided_steps(depth: int) -> None:
    machine = opened(40, [spec(0)], pipeline_depth=depth)
    first = machine.grants(0)
    assert [grant.step for grant in first] == list(range(1 + depth))
    assert machine.grants(0) == []
    decide(machine, 0, 0, 1)
    assert [grant.step for grant in machine.grants(1)] == [1 + depth]


def test_a_grant_builds_on_the_version_at_which_the_step_before_its_pipeline_was_decided() -> None:
    machine = opened(40, [spec(0)], pipeline_depth=1)
    grants = machine.grants(0)
    for step in range(4):
        decide(machine, 0, step, 10 * (step + 1))
        grants += machine.grants(10 * (step + 1))
    assert [(grant.step, grant.version) for grant in grants] == [(0, 0), (1, 0), (2, 10), (3, 20), (4, 30), (5, 40)]


def test_what_is_ahead_is_what_the_next_grants_give() -> None:
    machine = opened(40, [spec(0), spec(1)], lookahead=2)
    grants = machine.grants(0)
    told = {grant.group: [ahead.interval for ahead in grant.ahead] for grant in grants}
    for version in (1, 2):
        for group in (0, 1):
            decide(machine, group, version - 1, version)
        for grant in machine.grants(version):
            assert grant.interval == told[grant.group].pop(0)
    assert told == {0: [], 1: []}


def test_rows_left_at_the_tail_are_shared_in_proportion() -> None:
    machine = opened(12 + 6, [spec(0, 8), spec(1, 4)])
    for grant in machine.grants(0):
        decide(machine, grant.group, grant.step, 1)
    assert spans(machine.grants(1)) == [(0, 12, 16), (1, 16, 18)]


def test_lookahead_does_not_let_a_slow_group_hoard_the_tail() -> None:
    machine = opened(24, [spec(0), spec(1)], lookahead=2)
    (slow, fast) = machine.grants(0)
    done = []
    for version in range(1, 9):
        done.append(fast.interval)
        decide(machine, 1, fast.step, version)
        following = machine.grants(version)
        if not following:
            break
        (fast,) = following
        assert fast.group == 1
    assert sum(interval.num_samples for interval in done) == 20
    assert machine.round_state().with_rows == {0}
    decide(machine, 0, slow.step, 6)
    assert machine.drained()


def test_a_lease_taken_over_is_cut_to_the_batch_of_the_group_that_takes_it() -> None:
    machine = opened(18, [spec(0, 8), spec(1, 1)], lookahead=1)
    assert spans(machine.grants(0)) == [(0, 0, 8), (1, 8, 9)]
    decide(machine, 1, 0, 1)
    assert spans(machine.grants(1)) == [(1, 17, 18)]
    decide(machine, 1, 1, 2)
    # Group 0 was to read [9, 17) next; group 1 takes one sample of it, the rest is free for both.
    assert spans(machine.grants(2)) == [(1, 9, 10)]
    decide(machine, 0, 0, 3)
    assert spans(machine.grants(3)) == [(0, 10, 17)]


def test_only_groups_with_rows_are_in_the_quorum() -> None:
    machine = opened(4, [spec(0), spec(1), spec(2)])
    assert spans(machine.grants(0)) == [(0, 0, 2), (1, 2, 3), (2, 3, 4)]
    decide(machine, 1, 0, 1)
    machine.grants(1)
    assert machine.round_state().with_rows == {0, 2}


def test_fewer_rows_than_groups_leave_groups_without_a_step() -> None:
    machine = opened(2, [spec(group) for group in range(8)])
    assert sum(grant.interval.num_samples for grant in machine.grants(0)) == 2
    assert len(machine.round_state().with_rows) == 2


def test_a_group_whose_batch_is_zero_gets_nothing_and_blocks_nobody() -> None:
    machine = opened(3, [spec(0, 0), spec(1, 1)])
    assert spans(machine.grants(0)) == [(1, 0, 1)]
    assert machine.round_state().with_rows == {1}


def test_round_state_names_undecided_steps_with_their_versions_and_plans() -> None:
    machine = opened(40, [spec(0, 3), spec(1, 5)], pipeline_depth=1)
    machine.grants(0)
    decide(machine, 0, 0, 1)
    machine.grants(1)
    state = machine.round_state()
    assert [(one.group, one.step, one.version) for one in state.in_flight] == [
        (0, 1, 0),
        (0, 2, 1),
        (1, 0, 0),
        (1, 1, 0),
    ]
    assert state.planned == {0: 3, 1: 5}


# --- batch norm ------------------------------------------------------------------------------------------------------


def test_no_member_gets_a_single_sample_with_batch_norm() -> None:
    machine = opened(8, [spec(0, 5, members=3)], min_share=2)
    (grant,) = machine.grants(0)
    assert (grant.cuts, grant.skip) == ((0, 3, 5, 5), "")


def test_a_step_of_one_sample_is_marked_as_skipped_with_batch_norm() -> None:
    machine = opened(5, [spec(0, 4)], min_share=2)
    machine.grants(0)
    decide(machine, 0, 0, 1)
    (grant,) = machine.grants(1)
    assert grant.interval == Interval(0, 4, 5)
    assert grant.skip == "1 sample is left, batch norm needs 2 in a share"


# --- passes ----------------------------------------------------------------------------------------------------------


def test_a_pass_opens_only_after_the_last_is_drained() -> None:
    machine = opened(4, [spec(0)])
    (grant,) = machine.grants(0)
    machine.arrived(StepId(0, 0))
    with pytest.raises(ConflictError, match="pass 1 cannot open"):
        machine.open_pass(1)
    machine.decided(StepId(0, 0), 1)
    machine.open_pass(1)
    (grant,) = machine.grants(1)
    assert (grant.step, grant.interval) == (1, Interval(1, 0, 4))


def test_a_pass_that_was_begun_before_grants_only_what_is_missing() -> None:
    machine = GrantMachine(12)
    machine.set_groups([spec(0)], (), 5)
    machine.open_pass(2, [Interval(2, 6, 8), Interval(2, 0, 3)])
    seen = []
    version = 5
    while not machine.drained():
        (grant,) = machine.grants(version)
        version += 1
        seen.append((grant.interval.start, grant.interval.stop))
        decide(machine, 0, grant.step, version)
    assert seen == [(3, 6), (8, 12)]


# --- who counts ------------------------------------------------------------------------------------------------------


def test_intervals_of_discarded_steps_are_granted_again_lowest_position_first() -> None:
    machine = opened(40, [spec(0), spec(1)], pipeline_depth=1)
    machine.grants(0)
    returned = machine.set_groups([spec(1), spec(2)], (), 0)
    assert returned == [Interval(0, 0, 4), Interval(0, 8, 12)]
    assert spans(machine.grants(0)) == [(2, 0, 4), (2, 8, 12)]
    returned = machine.set_groups([spec(3)], (), 0)
    assert returned == [Interval(0, start, start + 4) for start in (0, 4, 8, 12)]
    assert spans(machine.grants(0)) == [(3, 0, 4), (3, 4, 8)]


def test_arrived_steps_of_a_group_that_goes_are_kept_and_decided() -> None:
    machine = opened(8, [spec(0), spec(1)])
    machine.grants(0)
    machine.arrived(StepId(0, 0))
    assert machine.undecided_arrivals() == [StepId(0, 0)]
    assert machine.set_groups([spec(1)], [StepId(0, 0)], 0) == []
    assert machine.round_state().planned == {0: 4, 1: 4}
    assert machine.round_state().with_rows == {1}
    machine.decided(StepId(0, 0), 1)
    decide(machine, 1, 0, 1)
    assert machine.drained()


def test_a_step_that_has_not_arrived_cannot_be_kept() -> None:
    machine = opened(8, [spec(0), spec(1)])
    machine.grants(0)
    with pytest.raises(ConflictError, match="step 0 of group 0 has not arrived"):
        machine.set_groups([spec(1)], [StepId(0, 0)], 0)


def test_a_group_that_stays_keeps_its_id_and_its_steps_in_flight() -> None:
    machine = opened(40, [spec(0), spec(1)])
    machine.grants(0)
    machine.set_groups([spec(1, batch_size=8)], (), 0)
    assert [(one.group, one.step) for one in machine.round_state().in_flight] == [(1, 0)]
    decide(machine, 1, 0, 1)
    assert spans(machine.grants(1)) == [(1, 0, 4)]
    decide(machine, 1, 1, 2)
    assert spans(machine.grants(2)) == [(1, 8, 16)]


@pytest.mark.parametrize(
    "again",
    [
        GroupSpec(0, ("w0.0",), 4),
        GroupSpec(1, ("w9",), 4),
        GroupSpec(3, (), 4),
    ],
)
def test_group_ids_are_never_used_twice(again: GroupSpec) -> None:
    machine = opened(40, [spec(0), spec(1)])
    machine.set_groups([spec(0), spec(2)], (), 0)
    with pytest.raises(ConflictError, match=f"group {again.group}"):
        machine.set_groups([again], (), 0)
    assert {grant.group for grant in machine.grants(0)} == {0, 2}


def test_ids_used_before_a_restart_stay_used() -> None:
    machine = GrantMachine(8, highest_group=6)
    with pytest.raises(ConflictError, match="a new membership needs a new id"):
        machine.set_groups([spec(6)], (), 0)
    machine.set_groups([spec(7)], (), 0)


def test_a_worker_is_a_member_of_one_group_only() -> None:
    machine = GrantMachine(8)
    with pytest.raises(ConflictError, match="named twice"):
        machine.set_groups([GroupSpec(0, ("w0", "w1"), 4), GroupSpec(1, ("w1",), 4)], (), 0)


# --- what must not happen --------------------------------------------------------------------------------------------


def test_steps_that_are_not_in_flight_are_refused_by_name() -> None:
    machine = opened(8, [spec(0)])
    machine.grants(0)
    decide(machine, 0, 0, 1)
    for call in (machine.arrived, lambda step: machine.decided(step, 1)):
        with pytest.raises(StaleMessageError, match="step 0 of group 0 is not in flight"):
            call(StepId(0, 0))


def test_a_step_cannot_be_decided_before_it_arrived() -> None:
    machine = opened(8, [spec(0)])
    machine.grants(0)
    with pytest.raises(ConflictError, match="has not arrived"):
        machine.decided(StepId(0, 0), 1)


def test_versions_never_go_back() -> None:
    machine = opened(8, [spec(0)])
    machine.grants(4)
    with pytest.raises(VersionError, match="version 3 after version 4"):
        machine.grants(3)
