"""Names, incarnations and leases of nodes."""

from __future__ import annotations

import pytest

from coordinator.membership import Joined, Lost, Membership, NodeRefused
from geartrain.errors import AuthError, ConflictError, NotFoundError, StaleMessageError, WireError
from geartrain.wire.messages import Heartbeat, Register

LEASE_S = 5.0


def register(role: str = "worker", incarnation: int = 1, name: str = "", **places: str) -> Register:
    place = {"token": "secret", "address": "", "device": "cpu", "host": "a", **places}
    return Register(role=role, incarnation=incarnation, name=name, **place)


def join(members: Membership, event: Register, now_s: float = 0.0) -> str:
    joined = members.handle(event, now_s)[-1]
    assert isinstance(joined, Joined), joined
    return joined.node.name


def refusal(members: Membership, event: Register | Heartbeat, now_s: float = 0.0) -> Exception:
    before = members.all_nodes()
    (refused,) = members.handle(event, now_s)
    assert isinstance(refused, NodeRefused)
    assert members.all_nodes() == before, "a refusal changes nothing"
    return refused.error


@pytest.fixture
def members() -> Membership:
    return Membership("secret", LEASE_S)


def test_nodes_are_named_by_role_in_the_order_in_which_they_come(members: Membership) -> None:
    names = [join(members, register(role, number)) for number, role in enumerate(["worker", "server", "worker"], 1)]
    assert names == ["w0", "s0", "w1"]
    assert [node.name for node in members.joined("worker")] == ["w0", "w1"]
    assert [node.name for node in members.joined("server")] == ["s0"]


def test_names_are_listed_by_number(members: Membership) -> None:
    for number in range(12):
        join(members, register(incarnation=number + 1))
    assert [node.name for node in members.joined("worker")] == [f"w{number}" for number in range(12)]


def test_a_launcher_names_its_nodes(members: Membership) -> None:
    assert join(members, register(name="w3")) == "w3"
    assert join(members, register(incarnation=2)) == "w0"


def test_a_repeated_registration_is_the_same_node(members: Membership) -> None:
    join(members, register(incarnation=7))
    (again,) = members.handle(register(incarnation=7), 1.0)
    assert isinstance(again, Joined)
    assert (again.again, again.node.name, len(members.all_nodes())) == (True, "w0", 1)


def test_two_processes_with_one_incarnation_number_at_two_addresses_are_two_nodes(members: Membership) -> None:
    names = [join(members, register("server", 7, address=address)) for address in ("tcp://a:1", "tcp://a:2")]
    assert names == ["s0", "s1"]


def test_a_lost_node_that_returns_to_its_host_and_device_keeps_its_name(members: Membership) -> None:
    join(members, register(incarnation=1, host="a"))
    join(members, register(incarnation=2, host="b"))
    members.tick(LEASE_S + 1)
    assert join(members, register(incarnation=9, host="b"), 10.0) == "w1"
    assert join(members, register(incarnation=10, host="a", device="cuda:0"), 10.0) == "w2"
    assert join(members, register(incarnation=11, host="a"), 10.0) == "w0"


def test_a_process_older_than_the_lost_node_of_its_place_gets_a_name_of_its_own(members: Membership) -> None:
    join(members, register(incarnation=9))
    members.tick(LEASE_S + 1)
    assert join(members, register(incarnation=3), 7.0) == "w1"


def test_a_living_node_does_not_lose_its_name_to_a_neighbor(members: Membership) -> None:
    assert join(members, register(incarnation=1)) == "w0"
    assert join(members, register(incarnation=2)) == "w1"


def test_a_process_that_listens_where_another_did_takes_its_place_before_the_lease_ends(members: Membership) -> None:
    join(members, register("server", 1, address="tcp://a:1"))
    lost, joined = members.handle(register("server", 2, address="tcp://a:1"), 0.5)
    assert isinstance(lost, Lost)
    assert lost.reason == "s0 was started again with incarnation 2"
    assert isinstance(joined, Joined)
    assert (joined.node.name, joined.node.incarnation) == ("s0", 2)


def test_a_named_node_that_starts_again_is_lost_and_joins(members: Membership) -> None:
    join(members, register(incarnation=1, name="w0"))
    kinds = [type(command) for command in members.handle(register(incarnation=2, name="w0"), 0.5)]
    assert kinds == [Lost, Joined]


@pytest.mark.parametrize("incarnation", [3, 4])
def test_a_lower_incarnation_is_refused(members: Membership, incarnation: int) -> None:
    join(members, register(incarnation=4, name="w0", address="x"))
    error = refusal(members, register(incarnation=incarnation, name="w0", address="y"))
    assert isinstance(error, StaleMessageError)
    assert error.facts["current"] == 4


def test_a_node_that_is_silent_for_longer_than_its_lease_is_lost(members: Membership) -> None:
    join(members, register(incarnation=1))
    join(members, register("server", 2))
    assert members.handle(Heartbeat("s0", 2), 4.0) == []
    assert members.tick(LEASE_S) == []
    (lost,) = members.tick(LEASE_S + 0.2)
    assert isinstance(lost, Lost)
    assert lost.reason == "w0 is silent for 5.2 s, the lease is 5 s"
    assert (lost.node.state, members.joined("worker")) == ("lost", [])
    assert members.tick(LEASE_S + 0.3) == [], "it is lost once"


def test_a_coordinator_that_stood_still_takes_its_own_pause_for_nobodys_silence(members: Membership) -> None:
    join(members, register(incarnation=1))
    woke_s = 1.0 + 8 * LEASE_S
    assert members.tick(1.0) == members.tick(woke_s) == []
    ticks = [members.tick(woke_s + tenths / 10) for tenths in range(1, int(10 * LEASE_S) + 2)]
    assert [len(lost) for lost in ticks] == [0] * (len(ticks) - 1) + [1], "who stays silent is lost a lease later"


def test_a_lost_node_is_not_heard_again(members: Membership) -> None:
    join(members, register(incarnation=1))
    members.tick(60.0)
    for event in (Heartbeat("w0", 1), register(incarnation=1)):
        error = refusal(members, event, 61.0)
        assert isinstance(error, StaleMessageError)
        assert "must start anew" in error.message


def test_a_heartbeat_of_an_old_incarnation_or_an_unknown_node_is_refused(members: Membership) -> None:
    join(members, register(incarnation=4, name="w0"))
    assert isinstance(refusal(members, Heartbeat("w0", 3)), StaleMessageError)
    assert isinstance(refusal(members, Heartbeat("w1", 3)), NotFoundError)


def test_wrong_tokens_roles_and_names_of_another_role_are_refused(members: Membership) -> None:
    assert isinstance(refusal(members, register(token="guess")), AuthError)
    assert isinstance(refusal(members, register(token="guéss")), AuthError)
    assert isinstance(refusal(members, register("scheduler")), WireError)
    join(members, register("server", 1))
    assert isinstance(refusal(members, register("worker", 2, name="s0")), ConflictError)


def test_a_message_is_taken_only_from_the_living_incarnation(members: Membership) -> None:
    join(members, register(incarnation=3))
    assert members.node("w0", 3).host == "a"
    with pytest.raises(StaleMessageError, match="incarnation 2, the cluster knows 3"):
        members.node("w0", 2)
