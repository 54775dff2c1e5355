"""What a job's report says of its workers and of what unlike hardware cost it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from card_support import Card, book_of, staged
from cluster_model import steady
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.accounts import Accounts
from coordinator.events import GroupSpec, StepId
from coordinator.job_report import ReportBasis, heterogeneity, worker_rows
from coordinator.shares import equal_shares_s, finishing_s

CARDS = {
    "w0": Card(3000, "A", precision="bf16", numeric_drift=0.01),
    "w1": Card(2000, "B"),
    "w2": Card(1000, "C"),
}
GROUPS = (GroupSpec(7, ("w2",), 100), GroupSpec(9, ("w0", "w1"), 500))
DEVICES = {"w0": "emulate:A", "w1": "emulate:B", "w2": "cpu"}


def basis(cards: dict[str, Card] = CARDS, batch_size: int = 600, tokens_per_sample: float = 0.0) -> ReportBasis:
    book = book_of(cards)
    return ReportBasis(GROUPS, DEVICES, book.portraits(), book.costs(), batch_size, tokens_per_sample, 0)


def classic(groups: Sequence[GroupSpec] = GROUPS) -> ReportBasis:
    return ReportBasis(groups, DEVICES, {}, {}, 600, 0.0, 0)


def accounts_of(*steps: dict[str, tuple[int, float]]) -> Accounts:
    """Steps of one group: samples and milliseconds of each member."""
    accounts = Accounts()
    for number, members in enumerate(steps):
        for worker, (num_samples, busy_ms) in members.items():
            accounts.reported(staged(worker, StepId(9, number), num_samples, busy_ms))
        accounts.step_arrived(StepId(9, number))
    return accounts


def test_a_row_for_every_worker_in_the_order_of_groups_and_ranks() -> None:
    accounts = Accounts()
    for step, busy_ms in enumerate([100.0, 110.0, 190.0]):
        accounts.reported(staged("w0", StepId(9, step), 300, busy_ms, wait_ms=5.0 * step, host_bound=step == 2))
        accounts.reported(staged("w1", StepId(9, step), 200, 100.0))
    rows = worker_rows(accounts, basis())
    assert [(row["worker"], row["group"], row["device"]) for row in rows] == [
        ("w2", 0, "cpu"),
        ("w0", 1, "emulate:A"),
        ("w1", 1, "emulate:B"),
    ]
    assert rows[1] == {
        "worker": "w0",
        "device": "emulate:A",
        "group": 1,
        "share": 0.6,
        "samples": 900,
        "step_ms": {"p50": 115.0, "p99": pytest.approx(198.3)},
        "wait_ms": {"p50": 5.0},
        "busy_ms": {"p50": 110.0},
        "solo_samples_per_s": 3000.0,
        "emulated": True,
        "host_bound_steps": 1,
        "precision": "bf16",
        "numeric_drift": 0.01,
        "doubt": "",
    }


def test_a_worker_without_a_step_has_a_row_of_zeros_and_an_equal_share() -> None:
    (alone, one, other) = worker_rows(Accounts(), basis())
    assert (alone["share"], one["share"], other["share"]) == (1.0, 0.5, 0.5)
    assert (one["samples"], one["step_ms"], one["host_bound_steps"]) == (0, {"p50": 0.0, "p99": 0.0}, 0)


def test_without_portraits_nothing_is_said_that_needs_them() -> None:
    accounts = accounts_of({"w0": (250, 10.0), "w1": (250, 20.0)})
    rows = worker_rows(accounts, classic())
    assert [row["share"] for row in rows] == [1.0, 0.5, 0.5]
    for row in rows:
        assert all(row[name] is None for name in ("solo_samples_per_s", "precision", "numeric_drift", "doubt"))
        assert row["emulated"] == row["device"].startswith("emulate:")
    said = heterogeneity(accounts, classic(), 1000.0)
    assert said.pop("imbalance") == {"p50": 1.0, "p90": pytest.approx(1.267, abs=1e-3)}
    assert said.pop("advice") == []
    assert set(said.values()) == {None}


@settings(steady, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=20))
def test_shares_of_a_group_are_what_its_members_computed(steps: list[tuple[int, int]]) -> None:
    accounts = accounts_of(*({"w0": (one, 1.0), "w1": (other, 1.0)} for one, other in steps))
    _, *rows = worker_rows(accounts, basis())
    totals = [sum(one for one, _ in steps), sum(other for _, other in steps)]
    assert [row["samples"] for row in rows] == totals
    assert sum(row["share"] for row in rows) == pytest.approx(1.0, abs=1e-3)
    if sum(totals):
        assert [row["share"] for row in rows] == pytest.approx([one / sum(totals) for one in totals], abs=1e-4)


def test_throughput_is_told_beside_the_sum_of_the_solo_ones_and_equal_shares() -> None:
    said = heterogeneity(Accounts(), basis(), 5700.0)
    assert said["sum_of_solo_samples_per_s"] == 6000.0
    assert said["throughput_over_sum_of_solo"] == 0.95
    # A batch of 600 takes 5.3 ms more than its members' steps: it would with equal shares, too.
    assert said["equal_shares_samples_per_s"] == pytest.approx(600 / (600 / 3000 + 600 / 5700 - 600 / 6000), rel=1e-3)
    assert heterogeneity(Accounts(), basis(), 0.0)["equal_shares_samples_per_s"] == 3000.0
    assert said["imbalance"] == {"p50": None, "p90": None}


def test_solo_throughputs_are_those_of_whole_batches_of_typical_samples() -> None:
    cards = {"w0": Card(1000, "A", fixed_s=0.1, token_s=0.001), "w1": Card(500, "B", token_s=0.002)}
    groups = (GroupSpec(0, ("w0", "w1"), 600),)
    book = book_of(cards)
    known = ReportBasis(groups, DEVICES, book.portraits(), book.costs(), 600, 10.0, 0)
    rows = worker_rows(Accounts(), known)
    solos = [600 / (0.1 + 600 * 0.001 + 6000 * 0.001), 600 / (600 * 0.002 + 6000 * 0.002)]
    assert [row["solo_samples_per_s"] for row in rows] == pytest.approx(solos, rel=1e-3)
    said = heterogeneity(Accounts(), known, 100.0)
    assert said["sum_of_solo_samples_per_s"] == pytest.approx(sum(solos), rel=1e-3)
    costs = list(book.costs().values())
    besides_s = 600 / 100.0 - finishing_s(600, costs, 10.0)
    equal_s = equal_shares_s(600, costs, 10.0) + besides_s
    assert said["equal_shares_samples_per_s"] == pytest.approx(600 / equal_s, rel=1e-3)


def test_who_costs_most_and_who_has_no_useful_share_is_told() -> None:
    cards = {**CARDS, "w3": Card(900, "D", fixed_s=10.0)}
    groups = (*GROUPS, GroupSpec(10, ("w3",), 0))
    book = book_of(cards)
    known = ReportBasis(groups, DEVICES, book.portraits(), book.costs(), 600, 0.0, 0)
    said = heterogeneity(Accounts(), known, 5000.0)["advice"]
    assert [one["worker"] for one in said] == ["w3", "w3"]
    assert "no useful share" in said[0]["reason"] and said[0]["gain"] == 1.0
    assert "costs most" in said[1]["reason"] and said[1]["gain"] > 1.1
    assert heterogeneity(Accounts(), basis(dict.fromkeys(CARDS, Card(1000))), 5000.0)["advice"] == []


def test_imbalance_is_how_far_members_finish_from_the_middle_of_their_step() -> None:
    accounts = accounts_of(
        {"w0": (10, 50.0), "w1": (10, 100.0), "w2": (10, 200.0)},
        {"w0": (10, 100.0), "w1": (10, 100.0), "w2": (0, 900.0)},
        {"w0": (10, 700.0)},
    )
    # 0.5, 1, 2 and then 1, 1: who had no samples did not finish, and who was alone did not differ.
    assert list(accounts.finishing) == [0.5, 1.0, 2.0, 1.0, 1.0]
    assert heterogeneity(accounts, basis(), 1.0)["imbalance"] == {"p50": 1.0, "p90": pytest.approx(1.6)}
