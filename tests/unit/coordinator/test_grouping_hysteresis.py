"""Groups change when speeds have changed, once, and never because of noise."""

from __future__ import annotations

import random

import pytest
from cluster_model import steady
from hypothesis import given
from hypothesis import strategies as st

from coordinator.grouping import (
    REGROUP_AFTER_STEPS,
    REGROUP_GAIN,
    Candidate,
    Groups,
    Regrouper,
    partition,
    partition_cost,
)

LOOK_EVERY = 20

Spec = list[tuple[str, float]]

CLUSTERS: dict[str, Spec] = {
    "3:2:1:1": [("A", 6000), ("B", 4000), ("C", 2000), ("C", 2000)],
    "two models": [("A100", 6000)] * 3 + [("V100", 3000)] * 3,
    "one fast": [("A", 4000)] + [("B", 500)] * 3,
    "four models": [(str(speed), speed) for speed in (4000.0, 3000.0, 2000.0, 1000.0) for _ in range(2)],
    "one model": [("A", 4000)] * 8,
    "three models": [("A100", 6000)] * 6 + [("V100", 3000)] * 4 + [("T4", 1500)] * 2,
}


def noisy(spec: Spec, noise: random.Random, slow: str = "", amount: float = 0.1) -> list[Candidate]:
    """The workers as they are measured: off by up to 10%; `slow` runs at half its speed."""
    return [
        Candidate(
            f"w{at}",
            model,
            "nvidia",
            speed * (0.5 if f"w{at}" == slow else 1.0) * noise.uniform(1 - amount, 1 + amount),
        )
        for at, (model, speed) in enumerate(spec)
    ]


def exact(spec: Spec, slow: str = "") -> list[Candidate]:
    return noisy(spec, random.Random(0), slow, amount=0.0)


@pytest.mark.parametrize("name", CLUSTERS)
def test_noise_of_ten_percent_moves_nobody(name: str) -> None:
    spec = CLUSTERS[name]
    groups = partition(exact(spec)).groups
    for seed in range(20):
        noise, regrouper = random.Random(seed), Regrouper()
        for look in range(50):
            assert regrouper.consider(groups, noisy(spec, noise), look * LOOK_EVERY) is None


@pytest.mark.parametrize("name", ["two models", "four models", "three models"])
def test_a_card_at_half_its_speed_moves_once_in_spite_of_noise(name: str) -> None:
    spec = CLUSTERS[name]
    right = partition(exact(spec, slow="w0")).groups
    for seed in range(20):
        noise, regrouper = random.Random(seed), Regrouper()
        groups = partition(exact(spec)).groups
        changes: list[Groups] = []
        for look in range(60):
            slow = "w0" if look >= 10 else ""
            found = regrouper.consider(groups, noisy(spec, noise, slow), look * LOOK_EVERY)
            if found is not None:
                groups = found.groups
                changes.append(groups)
        assert changes == [right], seed


def test_it_takes_two_looks_in_a_row_and_says_why() -> None:
    spec = CLUSTERS["two models"]
    groups, regrouper = partition(exact(spec)).groups, Regrouper()
    assert regrouper.consider(groups, exact(spec, slow="w2"), 20) is None
    assert regrouper.consider(groups, exact(spec), 40) is None
    assert regrouper.consider(groups, exact(spec, slow="w2"), 60) is None
    found = regrouper.consider(groups, exact(spec, slow="w2"), 80)
    assert found is not None
    assert found.groups == (("w0", "w1"), ("w2", "w3", "w4", "w5"))
    assert found.reason == (
        "with equal shares inside, the cluster had 2 groups that idle 25.0% of it and now has 2 groups that idle 0.0%, "
        "at two looks in a row"
    )


def test_new_groups_are_left_alone_for_a_while() -> None:
    spec = CLUSTERS["two models"]
    groups, regrouper = partition(exact(spec)).groups, Regrouper()
    regrouper.consider(groups, exact(spec, slow="w2"), 1000)
    found = regrouper.consider(groups, exact(spec, slow="w2"), 1020)
    assert found is not None
    for step in range(1040, 1120, LOOK_EVERY):
        assert regrouper.consider(found.groups, exact(spec), step) is None
    back = regrouper.consider(found.groups, exact(spec), 1120)
    assert back is not None
    assert back.groups == groups


def test_other_groups_at_the_second_look_are_looked_at_again() -> None:
    spec = CLUSTERS["two models"]
    groups, regrouper = partition(exact(spec)).groups, Regrouper()
    assert regrouper.consider(groups, exact(spec, slow="w2"), 20) is None
    assert regrouper.consider(groups, exact(spec, slow="w1"), 40) is None
    found = regrouper.consider(groups, exact(spec, slow="w1"), 60)
    assert found is not None
    assert found.groups == (("w0", "w2"), ("w1", "w3", "w4", "w5"))


def test_groups_that_the_second_look_could_clearly_better_are_not_formed() -> None:
    first = exact([*[("A", 4000.0), ("B", 4000.0)] * 2, *[("C", 1000.0)] * 4])
    then = exact([("A", 8000.0), ("B", 4000.0), ("A", 8000.0), ("B", 4000.0), *[("C", 1000.0)] * 4])
    groups: Groups = (tuple(one.worker for one in first),)
    regrouper = Regrouper()
    assert regrouper.consider(groups, first, 20) is None  # two groups would be better
    assert regrouper.consider(groups, then, 40) is None  # and now three better than two
    found = regrouper.consider(groups, then, 60)
    assert found is not None
    assert found.groups == (("w0", "w2"), ("w1", "w3"), ("w4", "w5", "w6", "w7"))


def test_workers_that_come_or_go_are_grouped_at_once() -> None:
    spec = CLUSTERS["two models"]
    groups, regrouper = partition(exact(spec)).groups, Regrouper()
    found = regrouper.consider(groups, exact(spec)[1:], 20)
    assert found is not None
    assert found.groups == (("w1", "w2"), ("w3", "w4", "w5"))
    assert found.reason.startswith("workers have come or gone: 2 groups, the best by their speeds")


def test_groups_wanted_before_a_worker_went_are_forgotten() -> None:
    spec = CLUSTERS["two models"]
    regrouper = Regrouper()
    assert regrouper.consider(partition(exact(spec)).groups, exact(spec, slow="w2"), 20) is None
    left = exact(spec, slow="w2")[:-1]  # w5 has gone, and the caller has formed groups without it
    without: Groups = (("w0", "w1", "w2"), ("w3", "w4"))
    assert regrouper.consider(without, left, 40) is None
    found = regrouper.consider(without, left, 60)
    assert found is not None
    assert found.groups == (("w0", "w1"), ("w2", "w3", "w4"))


speeds_at_looks = st.lists(st.lists(st.floats(100, 10_000), min_size=5, max_size=5), min_size=2, max_size=30)


@steady
@given(speeds_at_looks, st.integers(1, 60))
def test_whatever_the_speeds_groups_change_for_a_gain_and_not_too_often(looks: list[list[float]], every: int) -> None:
    models = ["A", "A", "B", "B", "C"]
    regrouper, changed_at = Regrouper(), None
    before: list[Candidate] = []
    groups: Groups = (("w0", "w1"), ("w2", "w3", "w4"))
    for number, speeds in enumerate(looks):
        now = [Candidate(f"w{at}", models[at], "nvidia", speed) for at, speed in enumerate(speeds)]
        found = regrouper.consider(groups, now, number * every)
        if found is not None:
            for candidates in (before, now):
                gain = partition_cost(groups, candidates) - partition_cost(found.groups, candidates)
                assert gain >= REGROUP_GAIN - 1e-9
            assert changed_at is None or number * every - changed_at >= REGROUP_AFTER_STEPS
            changed_at, groups = number * every, found.groups
        before = now
