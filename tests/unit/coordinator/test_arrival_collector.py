"""The rules by which a step arrives."""

from __future__ import annotations

import msgspec
import pytest

from coordinator.arrivals import NUM_REMEMBERED, AlreadyDecided, ArrivalCollector, Pending
from coordinator.events import Arrival, StepId
from coordinator.grants import GiveGrant
from geartrain.errors import RoleDiedError, StaleMessageError, WireError
from geartrain.types import Interval
from geartrain.wire.messages import Staged

SERVERS = {"s0": 5, "s1": 6}
GRANT = GiveGrant(4, 9, 20, Interval(1, 100, 107), (100, 104, 107), (), "", "test")


def collector() -> ArrivalCollector:
    collects = ArrivalCollector(2, SERVERS)
    collects.set_groups({4: ("w0", "w1")}, {"w0": 7, "w1": 8})
    assert collects.expect(GRANT) is None
    return collects


def report(node: str, **changes: object) -> Staged:
    rank = ("w0", "w1").index(node)
    start, stop = GRANT.cuts[rank], GRANT.cuts[rank + 1]
    staged = Staged(
        node=node,
        incarnation=7 + rank,
        term=2,
        group=4,
        step=9,
        version=20 + rank,
        num_samples=stop - start,
        start=start,
        stop=stop,
        servers=SERVERS,
        loss_sum=1.5,
        skipped="",
        step_ms=1.0,
        wait_ms=0.5,
    )
    return msgspec.structs.replace(staged, **changes)


def test_a_step_arrives_when_all_members_have_staged_it() -> None:
    collects = collector()
    assert collects.handle(report("w1")) == Pending("1 of 2 members staged step 9 of group 4, w0 has not")
    assert collects.handle(report("w0")) == Arrival(
        group=4,
        step=9,
        version=20,
        interval=Interval(1, 100, 107),
        num_samples=7,
        workers=("w0", "w1"),
        servers=SERVERS,
        loss_sum=3.0,
        skipped="",
    )


def test_the_version_of_a_step_is_the_lowest_that_a_member_pulled() -> None:
    collects = collector()
    collects.handle(report("w0", version=23))
    arrived = collects.handle(report("w1", version=21))
    assert isinstance(arrived, Arrival)
    assert arrived.version == 21


def test_a_repeated_report_changes_nothing() -> None:
    collects = collector()
    for _ in range(3):
        assert isinstance(collects.handle(report("w0")), Pending)
    assert isinstance(collects.handle(report("w1")), Arrival)
    for node in ("w0", "w1"):
        assert collects.handle(report(node)) == Pending("step 9 of group 4 has arrived and waits for its window")


def test_a_report_that_crossed_its_decision_is_answered_with_the_version() -> None:
    collects = collector()
    collects.handle(report("w0"))
    collects.handle(report("w1"))
    collects.decided(StepId(4, 9), 21)
    assert collects.handle(report("w0")) == AlreadyDecided(StepId(4, 9), 21)


def test_decisions_are_remembered_for_long_but_not_for_ever() -> None:
    collects = collector()
    for step in range(NUM_REMEMBERED + 1):
        collects.decided(StepId(4, step), step + 1)
    assert collects.handle(report("w0", step=1)) == AlreadyDecided(StepId(4, 1), 2)
    with pytest.raises(StaleMessageError, match="step 0 of group 4"):
        collects.handle(report("w0", step=0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"term": 1}, "lower term 1, the term is 2"),
        ({"term": 3}, "higher term 3, the term is 2"),
        ({"group": 3}, "group 3, which does not live"),
        ({"incarnation": 6}, "incarnation 6, the one that lives has 7"),
        ({"incarnation": 8}, "incarnation 8, the one that lives has 7"),
        ({"step": 10}, r"step 10 of group 4; in flight are \[9\]"),
    ],
)
def test_stale_reports_are_refused_by_name(changes: dict[str, object], message: str) -> None:
    collects = collector()
    with pytest.raises(StaleMessageError, match=message):
        collects.handle(report("w0", **changes))
    assert isinstance(collects.handle(report("w1")), Pending)


def test_a_report_of_another_groups_member_is_refused() -> None:
    collects = collector()
    collects.set_groups({4: ("w0", "w1"), 5: ("w2",)}, {"w0": 7, "w1": 8, "w2": 9})
    with pytest.raises(StaleMessageError, match="w0 is no member of group 5"):
        collects.handle(report("w0", group=5))


@pytest.mark.parametrize("incarnation", [4, 60])
def test_a_server_that_restarted_in_between_is_an_error_by_name(incarnation: int) -> None:
    collects = collector()
    collects.handle(report("w0"))
    with pytest.raises(RoleDiedError, match="server s1 restarted") as died:
        collects.handle(report("w1", servers={"s0": 5, "s1": incarnation}))
    assert died.value.facts == {"role": "s1", "got": incarnation, "current": 6}


@pytest.mark.parametrize("servers", [{"s0": 5}, {"s0": 5, "s1": 6, "s2": 1}, {}])
def test_a_step_must_be_staged_at_every_server(servers: dict[str, int]) -> None:
    with pytest.raises(WireError, match=r"the servers are \['s0', 's1'\]"):
        collector().handle(report("w0", servers=servers))


@pytest.mark.parametrize("changes", [{"start": 101}, {"stop": 105}, {"num_samples": 3}])
def test_a_report_that_contradicts_the_grant_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(WireError, match="its share is 100 to 104"):
        collector().handle(report("w0", **changes))


def test_a_skipped_step_arrives_with_its_reason_and_needs_no_server() -> None:
    collects = collector()
    collects.handle(report("w0", skipped="NaN or Inf on 1 of 2", servers={}))
    arrived = collects.handle(report("w1", skipped="NaN or Inf on 1 of 2", servers={}))
    assert isinstance(arrived, Arrival)
    assert (arrived.skipped, arrived.num_samples, arrived.loss_sum) == ("NaN or Inf on 1 of 2", 7, 0.0)


@pytest.mark.parametrize("order", [("w0", "w1"), ("w1", "w0")])
def test_an_arrival_does_not_depend_on_the_order_of_its_reports(order: tuple[str, str]) -> None:
    collects = collector()
    arrived = [collects.handle(report(node, skipped=f"{node} saw NaN", servers={})) for node in order][-1]
    assert isinstance(arrived, Arrival)
    assert (arrived.workers, arrived.skipped) == (("w0", "w1"), "w0 saw NaN")


def test_a_grant_to_skip_arrives_at_once_staged_by_nobody() -> None:
    collects = collector()
    refused = GiveGrant(4, 10, 20, Interval(1, 107, 108), (107, 108, 108), (), "1 sample is left", "test")
    arrived = collects.expect(refused)
    assert arrived is not None
    assert (arrived.skipped, arrived.num_samples, arrived.workers) == ("1 sample is left", 1, ())


def test_a_change_of_groups_forgets_what_does_not_live_and_is_not_kept() -> None:
    collects = collector()
    collects.handle(report("w0"))
    collects.set_groups({5: ("w0",)}, {"w0": 7})
    with pytest.raises(StaleMessageError, match="group 4, which does not live"):
        collects.handle(report("w1"))
    collects.decided(StepId(4, 9), 21)
    with pytest.raises(StaleMessageError, match="group 4, which does not live"):
        collects.handle(report("w0"))
