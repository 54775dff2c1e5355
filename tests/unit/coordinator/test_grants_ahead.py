"""What a group may count on: at pipeline depth 1 a worker reports a step once it has fetched the next one, so what
`ahead` announces must come; with batch norm no sample is left alone that could go with others."""

from __future__ import annotations

from coordinator.events import GroupSpec, StepId
from coordinator.grants import GiveGrant, GrantMachine
from geartrain.types import Interval


def opened(num_rows: int, num_groups: int, min_share: int = 0) -> GrantMachine:
    """Groups 0, 1, ... of two workers with batches of 4, at depth 1."""
    machine = GrantMachine(num_rows, pipeline_depth=1, min_share=min_share)
    groups = [GroupSpec(group, (f"w{group}.0", f"w{group}.1"), 4) for group in range(num_groups)]
    machine.set_groups(groups, (), 0)
    machine.open_pass(0)
    return machine


def decide(machine: GrantMachine, group: int, step: int, version: int) -> list[GiveGrant]:
    machine.arrived(StepId(group, step))
    machine.decided(StepId(group, step), version)
    return machine.grants(version)


def ahead(grants: list[GiveGrant]) -> dict[tuple[int, int], list[Interval]]:
    return {(grant.group, grant.step): [one.interval for one in grant.ahead] for grant in grants}


def test_steps_granted_together_announce_each_other() -> None:
    machine = opened(8, 1)
    assert ahead(machine.grants(0)) == {(0, 0): [Interval(0, 4, 8)], (0, 1): []}


def test_the_next_lease_of_a_group_is_not_taken_over_at_the_tail() -> None:
    machine = opened(24, 2)
    grants = ahead(machine.grants(0))
    assert grants[1, 1] == [Interval(0, 20, 24)]
    assert ahead(decide(machine, 0, 0, 1)) == {(0, 2): []}
    # Group 0 could start another step now, and the only lease left is the one that group 1 waits for.
    assert ahead(decide(machine, 0, 1, 2)) == {}
    (given,) = decide(machine, 1, 0, 3)
    assert (given.group, given.interval) == (1, Interval(0, 20, 24))


def test_a_lease_behind_the_next_one_is_taken_over() -> None:
    machine = opened(32, 2)
    machine.grants(0)
    for step in range(3):
        given = decide(machine, 0, step, step + 1)
    assert [(grant.group, grant.interval) for grant in given] == [(0, Interval(0, 28, 32))]


def test_a_group_that_stays_keeps_its_next_lease_when_others_come() -> None:
    machine = opened(24, 2)
    machine.grants(0)
    stays = GroupSpec(1, ("w1.0", "w1.1"), 4)
    machine.set_groups([stays, GroupSpec(2, ("w0.0",), 4), GroupSpec(3, ("w0.1",), 4)], (), 0)
    machine.grants(0)
    (given,) = (grant for grant in decide(machine, 1, 0, 1) if grant.group == 1)
    assert given.interval == Interval(0, 20, 24)


def test_a_step_that_is_skipped_is_not_announced() -> None:
    """It is never sent to the group, so nobody would fetch it."""
    machine = opened(13, 1, min_share=2)
    machine.grants(0)
    assert ahead(decide(machine, 0, 0, 1)) == {(0, 2): []}
    (last,) = decide(machine, 0, 1, 2)
    assert (last.interval, bool(last.skip)) == (Interval(0, 12, 13), True)


def test_a_group_that_draws_alone_leaves_no_single_sample_behind() -> None:
    """Behind four rounds of 8 stand 5 samples: the group that is ahead takes all 5 rather than leave one."""
    machine = opened(37, 2, min_share=2)
    machine.grants(0)
    given = [grant for step in range(3) for grant in decide(machine, 0, step, step + 1)]
    assert [grant.interval for grant in given] == [Interval(0, 16, 20), Interval(0, 24, 28), Interval(0, 32, 37)]
    assert not any(grant.skip for grant in given)
