"""Groups and shares from portraits: whole batches, like cards alike, memory kept, ids never used twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from card_support import Card, book_of, staged
from cluster_model import steady
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_nodes import job_config

from coordinator.events import GroupSpec, StepId
from coordinator.matching import LOOK_EVERY, Matcher, Matching, MatchSettings, match_equally
from coordinator.plan import match_settings
from coordinator.shares import cut_by_time, cut_equally
from geartrain.errors import ConfigError
from geartrain.types import Interval

SPEEDS = {"A100": 6000.0, "V100": 3000.0, "T4": 1000.0, "MI50": 2500.0}


def card(model: str, factor: float = 1.0, max_samples: int | None = None) -> Card:
    return Card(SPEEDS[model] * factor, model, "amd" if model == "MI50" else "nvidia", max_samples)


def named(cards: Sequence[Card]) -> dict[str, Card]:
    return {f"w{place}": one for place, one in enumerate(cards)}


def matcher_of(
    cards: Mapping[str, Card], batch_size: int, mode: str = "hybrid", group_size: int | None = None, **more: float
) -> Matcher:
    settings = MatchSettings(
        batch_size, mode, group_size, int(more.get("min_share", 0)), more.get("tokens_per_sample", 0.0)
    )
    return Matcher(settings, book_of(cards), first_group=3)


CARDS = st.lists(
    st.builds(
        card,
        st.sampled_from(sorted(SPEEDS)),
        st.sampled_from([1.0, 1.0, 0.97, 1.04, 0.5]),
        st.none() | st.integers(1, 400),
    ),
    min_size=1,
    max_size=9,
).map(named)


def capacity(cards: Mapping[str, Card]) -> float:
    return sum(float("inf") if one.max_samples is None else one.max_samples for one in cards.values())


def shares(groups: Sequence[GroupSpec]) -> dict[str, int]:
    """Samples of each worker in one round, cut as grants are."""
    found = {}
    for spec in groups:
        whole = Interval(0, 0, spec.batch_size)
        cuts, refused = cut_by_time(whole, spec.costs) if spec.costs else cut_equally(whole, len(spec.members))
        assert refused == ""
        found |= {member: stop - start for member, (start, stop) in zip(spec.members, pairwise(cuts), strict=True)}
    return found


@settings(steady, max_examples=60)
@given(CARDS, st.integers(1, 3000), st.sampled_from([("sync", None), ("hybrid", None), ("hybrid", 2), ("async", 1)]))
def test_the_batch_is_whole_everybody_is_in_one_group_and_memory_holds(
    cards: dict[str, Card], batch_size: int, how: tuple[str, int | None]
) -> None:
    matcher = matcher_of(cards, batch_size, *how)
    if capacity(cards) < batch_size:
        with pytest.raises(ConfigError, match=r"training\.batch_size"):
            matcher.match()
        return
    found = matcher.match()
    assert sum(spec.batch_size for spec in found.groups) == batch_size
    assert sorted(member for spec in found.groups for member in spec.members) == sorted(cards)
    assert [spec.group for spec in found.groups] == list(range(3, 3 + len(found.groups)))
    for worker, share in shares(found.groups).items():
        most = cards[worker].max_samples
        assert most is None or share <= most
    assert found.reason


@settings(steady, max_examples=30)
@given(st.lists(st.sampled_from([0.95, 0.98, 1.0, 1.03]), min_size=1, max_size=8), st.integers(8, 3000))
def test_like_cards_share_equally_as_in_the_classic_way(factors: list[float], batch_size: int) -> None:
    found = matcher_of(named([card("V100", factor) for factor in factors]), batch_size).match()
    classic = match_equally(
        [f"w{place}" for place in range(len(factors))], MatchSettings(batch_size, "hybrid", None), 3
    )
    assert found.groups == classic.groups


@settings(steady, max_examples=30)
@given(st.lists(st.sampled_from(["A100", "V100", "T4"]), min_size=2, max_size=8), st.integers(100, 3000))
def test_like_cards_have_like_shares_in_whichever_groups_they_are(models: list[str], batch_size: int) -> None:
    cards = named([card(model) for model in models])
    by_worker = shares(matcher_of(cards, batch_size).match().groups)
    for model in models:
        of_model = [share for worker, share in by_worker.items() if cards[worker].model == model]
        # Both the batch among groups and a group's among its members are cut in whole samples.
        assert max(of_model) - min(of_model) <= 2
    slow, fast = (sorted(by_worker, key=lambda worker: cards[worker].samples_per_s)[place] for place in (0, -1))
    expected = cards[fast].samples_per_s / cards[slow].samples_per_s
    assert (by_worker[fast] + 1) / max(1, by_worker[slow] - 1) >= expected


def test_in_sync_mode_a_vendor_is_one_group() -> None:
    cards = named([card("A100"), card("T4"), card("MI50"), card("A100"), card("MI50"), card("V100")])
    found = matcher_of(cards, 1000, "sync").match()
    assert {spec.members for spec in found.groups} == {("w0", "w1", "w3", "w5"), ("w2", "w4")}
    by_hand = matcher_of(cards, 1000, "sync", 2).match()
    assert {spec.members for spec in by_hand.groups} == {("w0", "w3"), ("w1", "w5"), ("w2", "w4")}


def test_groups_put_like_with_like_and_name_their_batches() -> None:
    cards = named([card("A100"), card("V100")] * 3)
    found = matcher_of(cards, 900).match()
    assert [(spec.members, spec.batch_size, spec.costs) for spec in found.groups] == [
        (("w0", "w2", "w4"), 600, ()),
        (("w1", "w3", "w5"), 300, ()),
    ]
    assert found.reason.endswith("batches are 600 for w0+w2+w4, 300 for w1+w3+w5")


@pytest.mark.parametrize(
    ("sync", "expected"),
    [
        ({"mode": "async"}, 1),
        ({"mode": "async", "group_size": 2}, 2),
        ({"mode": "hybrid"}, None),
        ({"mode": "sync"}, None),
        ({"mode": "hybrid", "group_size": 3}, 3),
    ],
)
def test_the_group_size_that_a_config_means(sync: dict[str, object], expected: int | None) -> None:
    assert match_settings(job_config(sync=sync), 0.0).group_size == expected


def test_async_groups_without_a_size_are_one_worker_each_with_or_without_portraits() -> None:
    settings = match_settings(job_config(sync={"mode": "async"}, training={"passes": 1, "batch_size": 70}), 0.0)
    cards = named([card("A100"), card("V100"), card("V100")])
    found = Matcher(settings, book_of(cards), 0).match()
    assert [spec.members for spec in found.groups] == [("w0",), ("w1",), ("w2",)]
    assert [spec.batch_size for spec in found.groups] == pytest.approx([35, 17.5, 17.5], abs=1)
    equal = match_equally(list(cards), settings, 0)
    assert [(spec.members, spec.batch_size) for spec in equal.groups] == [(("w0",), 24), (("w1",), 23), (("w2",), 23)]


@settings(steady, max_examples=40)
@given(st.integers(1, 9), st.none() | st.integers(1, 12), st.integers(0, 500), st.integers(0, 5))
def test_equal_shares_by_hand_cover_the_batch(workers: int, size: int | None, batch_size: int, first: int) -> None:
    names = [f"w{place}" for place in range(workers)]
    found = match_equally(names, MatchSettings(batch_size, "hybrid", size), first)
    assert [member for spec in found.groups for member in spec.members] == names
    assert sum(spec.batch_size for spec in found.groups) == batch_size
    assert [spec.group for spec in found.groups] == list(range(first, first + len(found.groups)))
    assert all(len(spec.members) == min(size or workers, workers) for spec in found.groups[:-1])
    assert not any(spec.costs for spec in found.groups)


# --- while the job runs -----------------------------------------------------------------------------------------------


def slow_steps(
    matcher: Matcher, groups: Sequence[GroupSpec], worker: str, samples_per_s: float, count: int
) -> list[Matching]:
    """`count` steps of a worker at this speed; what changes with them."""
    share = max(1, shares(groups)[worker])
    group = next(spec.group for spec in groups if worker in spec.members)
    reports = [staged(worker, StepId(group, step), share, 1000 * share / samples_per_s) for step in range(count)]
    return [one for one in (matcher.observe(report, 1000.0) for report in reports) if one is not None]


def test_nothing_changes_without_a_reason() -> None:
    matcher = matcher_of(named([card("A100"), card("V100"), card("T4")]), 1000, group_size=3)
    found = matcher.match()
    assert matcher.reshare("asked") is None
    for worker, share in shares(found.groups).items():
        speed = matcher.portraits[worker].samples_per_s
        assert slow_steps(matcher, found.groups, worker, speed, 200) == []
        assert matcher.observe(staged(worker, StepId(3, 0), share, 60_000.0, skipped="NaN or Inf"), 1.0) is None
        assert matcher.observe(staged(worker, StepId(3, 0), 0, 60_000.0), 1.0) is None
    assert matcher.regroup(10 * LOOK_EVERY) is None


def test_a_slow_worker_gets_less_for_the_reason_told() -> None:
    matcher = matcher_of(named([card("A100"), card("V100"), card("T4")]), 1000, group_size=3)
    before = matcher.match()
    (change,) = slow_steps(matcher, before.groups, "w0", SPEEDS["V100"], 40)
    assert change.reason.startswith(
        "w0 needs 2.0 times its predicted step time since 24 steps: what was stored of it was far off; "
        "batches are 1000 for"
    )
    assert [(spec.group, spec.members) for spec in change.groups] == [(3, ("w0", "w1", "w2"))]
    assert shares(change.groups) == pytest.approx({"w0": 428.6, "w1": 428.6, "w2": 142.9}, abs=1)
    assert matcher.reshare("asked") is None, "the change has been told"


def test_clearly_better_groups_replace_those_that_are_under_new_ids() -> None:
    cards = named([card("A100"), card("A100"), card("A100"), card("V100"), card("V100"), card("V100")])
    matcher = matcher_of(cards, 900)
    before = matcher.match()
    changes = slow_steps(matcher, before.groups, "w0", SPEEDS["T4"], 40)
    assert {spec.group for spec in changes[-1].groups} == {3, 4}
    looks = [matcher.regroup(LOOK_EVERY * look) for look in range(1, 4)]
    found = next(look for look in looks if look is not None)
    assert {spec.members for spec in found.groups} == {("w1", "w2"), ("w0", "w3", "w4", "w5")}
    assert [spec.group for spec in found.groups] == [5, 6]
    assert sum(spec.batch_size for spec in found.groups) == 900
    assert looks.count(None) == len(looks) - 1, "and they are not changed again"


@pytest.mark.parametrize(("mode", "group_size"), [("sync", None), ("hybrid", 3)])
def test_groups_that_were_asked_for_stay(mode: str, group_size: int | None) -> None:
    cards = named([card("A100")] * 3 + [card("V100")] * 3)
    matcher = matcher_of(cards, 900, mode, group_size)
    slow_steps(matcher, matcher.match().groups, "w0", SPEEDS["T4"], 40)
    assert [matcher.regroup(LOOK_EVERY * look) for look in range(1, 20)] == [None] * 19


def test_without_a_lost_worker_its_group_is_a_new_one_and_the_others_stay() -> None:
    cards = named([card("A100")] * 3 + [card("V100")] * 3)
    matcher = matcher_of(cards, 900)
    matcher.match()
    found = matcher.lost(["w1"], "w1 died")
    assert [(spec.group, spec.members) for spec in found.groups] == [(5, ("w0", "w2")), (4, ("w3", "w4", "w5"))]
    assert sum(spec.batch_size for spec in found.groups) == 900
    assert found.reason.startswith("w1 died; ")
    found = matcher.lost(["w3", "w4", "w5"], "three died")
    assert [(spec.group, spec.members, spec.batch_size) for spec in found.groups] == [(5, ("w0", "w2"), 900)]


@settings(steady, max_examples=40)
@given(CARDS.filter(lambda cards: len(cards) > 2), st.data())
def test_whatever_happens_an_id_means_one_membership_and_the_batch_is_whole(
    cards: dict[str, Card], data: st.DataObject
) -> None:
    roomy = {worker: Card(one.samples_per_s, one.model, one.vendor) for worker, one in cards.items()}
    matcher = matcher_of(roomy, 700)
    members: dict[int, tuple[str, ...]] = {}
    living = set(roomy)

    def check(found: Matching | None) -> None:
        if found is None:
            return
        for spec in found.groups:
            assert members.setdefault(spec.group, spec.members) == spec.members
            assert spec.group < matcher.next_group
        assert {member for spec in found.groups for member in spec.members} == living
        assert sum(spec.batch_size for spec in found.groups) == 700

    check(matcher.match())
    for version in range(LOOK_EVERY, 12 * LOOK_EVERY, LOOK_EVERY):
        worker = data.draw(st.sampled_from(sorted(living)))
        happens = data.draw(st.sampled_from(["set", "set", "dies", "adopt", "nothing"]))
        if happens == "set":
            matcher.book.put(worker, data.draw(st.sampled_from([500.0, 2000.0, 8000.0])), 1.0)
            check(matcher.reshare("a person wants it"))
        elif happens == "dies" and len(living) > 1:
            living.remove(worker)
            check(matcher.lost([worker], f"{worker} died"))
        elif happens == "adopt":
            check(matcher.adopt([tuple(sorted(living))], "by hand"))
        check(matcher.regroup(version))
