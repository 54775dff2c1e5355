"""The partition into sync groups is the best there is: compared with all partitions, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from random import Random

import pytest
from cluster_model import steady
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.grouping import GROUP_PRICE, Candidate, Partition, partition, partition_cost
from coordinator.natural_order import natural_key
from geartrain.errors import ConfigError

SPEEDS = st.sampled_from([500.0, 1000.0, 2000.0, 4000.0, 6000.0]) | st.floats(100, 10_000)


def cluster(most: int, vendors: int = 2) -> st.SearchStrategy[list[Candidate]]:
    one = st.tuples(st.sampled_from("ABCD"), st.sampled_from(["nvidia", "amd"][:vendors]), SPEEDS)
    return st.lists(one, min_size=1, max_size=most).map(
        lambda drawn: [Candidate(f"w{at}", model, vendor, speed) for at, (model, vendor, speed) in enumerate(drawn)]
    )


def workers(*groups: tuple[str, float, int]) -> list[Candidate]:
    """So many workers of each model and speed, w0 first."""
    flat = [(model, speed) for model, speed, count in groups for _ in range(count)]
    return [Candidate(f"w{at}", model, "nvidia", speed) for at, (model, speed) in enumerate(flat)]


def set_partitions(items: Sequence[Candidate]) -> Iterator[list[list[Candidate]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for smaller in set_partitions(rest):
        yield [[first], *smaller]
        for at, group in enumerate(smaller):
            yield [*smaller[:at], [first, *group], *smaller[at + 1 :]]


def contiguous(items: Sequence[Candidate]) -> Iterator[list[list[Candidate]]]:
    ordered = sorted(items, key=lambda one: -one.samples_per_s)
    for num_cuts in range(len(items)):
        for cuts in combinations(range(1, len(items)), num_cuts):
            yield [ordered[start:stop] for start, stop in pairwise([0, *cuts, len(items)])]


def legal(groups: list[list[Candidate]], candidates: Sequence[Candidate]) -> bool:
    count = Counter(one.vendor for one in candidates)
    models = {vendor: len({one.model for one in candidates if one.vendor == vendor}) for vendor in count}
    used = Counter(group[0].vendor for group in groups)
    return (
        all(len({one.vendor for one in group}) == 1 for group in groups)
        and all(len(group) >= min(2, count[group[0].vendor]) for group in groups)
        and all(used[vendor] <= models[vendor] for vendor in used)
    )


def cost(groups: list[list[Candidate]], candidates: Sequence[Candidate], price: float) -> float:
    idle = sum(one.samples_per_s - min(same.samples_per_s for same in group) for group in groups for one in group)
    whole = sum(one.samples_per_s for one in candidates)
    return idle / whole + price * (len(groups) - len({one.vendor for one in candidates}))


def check_best(
    found: Partition, candidates: list[Candidate], every: Iterator[list[list[Candidate]]], price: float
) -> None:
    by_name = {one.worker: one for one in candidates}
    groups = [[by_name[name] for name in group] for group in found.groups]
    assert legal(groups, candidates)
    assert found.cost == pytest.approx(cost(groups, candidates, price), abs=1e-12)
    assert found.cost == pytest.approx(partition_cost(found.groups, candidates, price), abs=1e-12)
    costs = [(cost(one, candidates, price), len(one)) for one in every if legal(one, candidates)]
    least = min(costs)[0]
    assert found.cost == pytest.approx(least, abs=1e-9)
    assert len(groups) == min(number for value, number in costs if value <= least + 1e-13)


# --- against all partitions ------------------------------------------------------------------------------------------


@steady
@given(cluster(most=7), st.sampled_from([0.0, 0.01, GROUP_PRICE, 0.2]))
def test_no_partition_at_all_is_better(candidates: list[Candidate], price: float) -> None:
    check_best(partition(candidates, price=price), candidates, set_partitions(candidates), price)


@settings(steady, max_examples=40)
@given(cluster(most=8, vendors=1))
def test_no_partition_of_eight_workers_is_better(candidates: list[Candidate]) -> None:
    check_best(partition(candidates), candidates, set_partitions(candidates), GROUP_PRICE)


@steady
@given(cluster(most=10, vendors=1), st.sampled_from([0.0, 0.01, GROUP_PRICE]))
def test_no_contiguous_partition_of_ten_workers_is_better(candidates: list[Candidate], price: float) -> None:
    check_best(partition(candidates, price=price), candidates, contiguous(candidates), price)


@steady
@given(cluster(most=12), st.none() | st.integers(1, 5), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(
    candidates: list[Candidate], group_size: int | None, order: Random
) -> None:
    shuffled = list(candidates)
    order.shuffle(shuffled)
    assert partition(shuffled, group_size) == partition(candidates, group_size)


@steady
@given(cluster(most=12), st.none() | st.integers(1, 5))
def test_everybody_is_in_one_group_and_groups_and_members_are_in_order(
    candidates: list[Candidate], group_size: int | None
) -> None:
    found = partition(candidates, group_size)
    speed = {one.worker: one.samples_per_s for one in candidates}
    assert sorted(name for group in found.groups for name in group) == sorted(speed)
    means = [sum(speed[name] for name in group) / len(group) for group in found.groups]
    assert all(before >= after * (1 - 1e-12) for before, after in pairwise(means))
    assert all(list(group) == sorted(group, key=lambda name: int(name[1:])) for group in found.groups)


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_speeds_3_2_1_1() -> None:
    found = partition(workers(("A", 6000, 1), ("B", 4000, 1), ("C", 2000, 2)))
    assert found.groups == (("w0", "w1"), ("w2", "w3"))
    assert found.cost == pytest.approx(2000 / 14_000 + GROUP_PRICE)
    assert found.reason == ("2 groups, the best by their speeds: equal shares inside would idle 14.3% of the cluster")


def test_two_models_are_two_groups() -> None:
    found = partition(workers(("A100", 6000, 3), ("V100", 3000, 3)))
    assert found.groups == (("w0", "w1", "w2"), ("w3", "w4", "w5"))
    assert found.cost == pytest.approx(GROUP_PRICE)


def test_a_lone_model_joins_the_nearest() -> None:
    assert partition(workers(("A", 4000, 1), ("B", 500, 3))).groups == (("w0", "w1", "w2", "w3"),)
    # T4 is nearer to V100 than V100 to A100.
    found = partition(workers(("A100", 6000, 2), ("V100", 3000, 2), ("T4", 2500, 1)))
    assert found.groups == (("w0", "w1"), ("w2", "w3", "w4"))


def test_four_models_two_cards_each() -> None:
    found = partition(workers(("A", 4000, 2), ("B", 3000, 2), ("C", 2000, 2), ("D", 1000, 2)))
    assert found.groups == (("w0", "w1"), ("w2", "w3"), ("w4", "w5"), ("w6", "w7"))
    assert found.cost == pytest.approx(3 * GROUP_PRICE)


def test_as_many_groups_as_device_models_at_most() -> None:
    assert partition(workers(("A", 6000, 2), ("A", 1000, 2))).groups == (("w0", "w1", "w2", "w3"),)


def test_vendors_are_never_mixed_and_pay_no_price() -> None:
    candidates = [
        Candidate("w0", "A", "amd", 1000),
        Candidate("w1", "B", "nvidia", 1000),
        Candidate("w2", "C", "intel", 5),
    ]
    found = partition(candidates)
    assert found.groups == (("w0",), ("w1",), ("w2",))
    assert found.cost == 0.0


def test_an_equal_card_is_given_away_only_to_make_a_pair() -> None:
    # w3 alone would be slowed by three cards of 1000 or slow them; with one of them it slows one.
    found = partition(workers(("A", 1000, 3), ("B", 100, 1)))
    assert found.groups == (("w0", "w1"), ("w2", "w3"))


def test_of_equal_costs_fewer_groups_then_more_workers_in_the_faster() -> None:
    # Saved: 1000 of 20,000 samples/s, exactly the price of a group.
    assert len(partition(workers(("A", 5500, 2), ("B", 5000, 2)), price=1000 / 21_000).groups) == 1
    even = workers(*((model, speed, 1) for model, speed in zip("ABCDE", [5000, 4000, 3000, 2000, 1000], strict=True)))
    assert partition(even).groups == (("w0", "w1", "w2"), ("w3", "w4"))


def test_size_by_hand_wins_over_at_least_two() -> None:
    candidates = workers(("A", 1000, 2), ("B", 3000, 3))
    assert partition(candidates, 2).groups == (("w2", "w3"), ("w0", "w4"), ("w1",))
    assert partition(candidates, 2).reason.startswith("3 groups, of 2 by hand: equal shares inside would idle 18.2%")
    assert partition(candidates, 1).groups == (("w2",), ("w3",), ("w4",), ("w0",), ("w1",))
    assert partition(candidates, 9).groups == (("w0", "w1", "w2", "w3", "w4"),)
    assert partition(candidates, 5).reason.startswith("1 group, one for each vendor: ")
    with pytest.raises(ConfigError, match=r"sync\.group_size must be at least 1"):
        partition(candidates, 0)


def test_size_by_hand_is_per_vendor() -> None:
    candidates = [Candidate(f"w{at}", "A", vendor, 1000) for at, vendor in enumerate(["amd", "nvidia"] * 3)]
    assert partition(candidates, 2).groups == (("w0", "w2"), ("w1", "w3"), ("w4",), ("w5",))


def test_names_are_ordered_as_people_do() -> None:
    assert sorted(["w10", "w2", "b-2-1", "w1"], key=natural_key) == ["b-2-1", "w1", "w2", "w10"]
    assert sorted(["7", "w"], key=natural_key) == ["7", "w"]
    many = [Candidate(f"w{at}", "A", "nvidia", 1000) for at in (10, 2, 1)]
    assert partition(many).groups == (("w1", "w2", "w10"),)


def test_no_workers_are_no_groups() -> None:
    assert partition([]) == Partition((), 0.0, "no workers")
