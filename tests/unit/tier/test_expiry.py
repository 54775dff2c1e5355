"""The schedule of sweeps: every shard once in a period, rows that leave in time, none too early."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedding_tier.admission import row_life
from embedding_tier.expiry import Expiry, Sweep, shards_due
from geartrain.errors import ConfigError, KernelError
from geartrain.types import NUM_SHARDS
from geartrain.wire.messages import TableSpec
from kernels.initializer import initializer_seed
from kernels.row_life import RowLife

periods = st.one_of(st.integers(1, 5000), st.sampled_from([1, 2, 1023, 1024, 1025, 2048]))
versions = st.integers(1, 2**31)


def spec(**settings: Any) -> TableSpec:
    return TableSpec("t", 4, {"type": "sgd"}, {"type": "zero"}, 7, **settings)


def expiry(**fields: Any) -> Expiry:
    return Expiry.of(spec(expiry=fields))


def sweeps_of(shard: int, of: Expiry, first: int, last: int, pass_versions: list[int]) -> list[tuple[int, Sweep]]:
    """The versions in [first, last) that look at `shard`, with what they look for."""
    found = [(version, of.sweep(version, pass_versions)) for version in range(first, last)]
    return [(version, one) for version, one in found if one is not None and one.first_shard <= shard < one.last_shard]


@given(periods, versions)
def test_any_versions_of_a_period_look_at_every_shard_once(period: int, first: int) -> None:
    seen = [range(*shards_due(version, period)) for version in range(first, first + period)]
    assert sorted(shard for part in seen for shard in part) == list(range(NUM_SHARDS))


@given(periods, versions)
def test_no_version_looks_at_much_more_than_its_part(period: int, version: int) -> None:
    first, last = shards_due(version, period)
    assert 0 <= first <= last <= NUM_SHARDS
    assert last - first <= -(-NUM_SHARDS // period)


@given(st.integers(1, 3000), versions, st.integers(0, NUM_SHARDS - 1))
def test_by_versions_a_row_leaves_at_the_first_sweep_when_so_many_have_passed(
    absence: int, last_version: int, shard: int
) -> None:
    rule = expiry(type="unseen", versions=absence)
    period = min(absence, NUM_SHARDS)
    found = sweeps_of(shard, rule, last_version + 1, last_version + absence + period, [])
    removing = [version for version, sweep in found if last_version < sweep.unseen_before]
    assert len(removing) == 1
    assert absence <= removing[0] - last_version < absence + period


def test_by_versions_the_last_version_that_is_kept_is_exact() -> None:
    assert expiry(type="unseen", versions=1).sweep(5, []) == Sweep(0, NUM_SHARDS, 5)
    assert expiry(type="unseen", versions=2).sweep(5, []) == Sweep(0, 512, 4)
    assert expiry(type="unseen", versions=5).sweep(4, []) is None, "nothing is old enough yet"


@given(
    st.integers(1, 4),
    st.lists(st.integers(0, 40), min_size=1, max_size=9),
    st.integers(0, NUM_SHARDS - 1),
    st.data(),
)
def test_by_passes_a_row_leaves_that_was_in_none_of_the_last_whole_passes(
    passes: int, lengths: list[int], shard: int, data: st.DataObject
) -> None:
    rule = expiry(type="unseen", passes=passes)
    begins = [sum(lengths[:place]) for place in range(len(lengths))]
    last_version = data.draw(st.integers(0, sum(lengths)))
    seen_in = {place for place, begin in enumerate(begins) if begin < last_version <= begin + lengths[place]}
    for place, begin in enumerate(begins):
        told = begins[: place + 1][-1 - passes :]
        found = sweeps_of(shard, rule, max(begin, last_version) + 1, begin + lengths[place] + 1, told)
        absent = place >= passes and not seen_in & set(range(place - passes, place + 1))
        assert all((last_version < sweep.unseen_before) == absent for _, sweep in found)
        long_enough = place > 0 and lengths[place] >= max(1, lengths[place - 1]) and begin >= last_version
        assert found or not (absent and long_enough), "a pass as long as the one before looks at every shard"


def test_by_passes_nothing_leaves_before_so_many_are_over() -> None:
    rule = expiry(type="unseen", passes=2)
    assert rule.sweep(5, []) is None
    assert rule.sweep(15, [0, 10]) is None
    assert rule.sweep(21, [0, 10, 20]) == Sweep(0, 102, 1)
    assert expiry(type="unseen", passes=1).sweep(21, [10, 10]) == Sweep(0, NUM_SHARDS, 11)


def test_a_score_is_looked_at_once_in_every_versions() -> None:
    assert expiry(type="score", every_versions=2).sweep(4, []) == Sweep(512, NUM_SHARDS, 0)
    sweeps = [expiry(type="score", every_versions=2048).sweep(version, []) for version in range(1, 2049)]
    assert sum(sweep is not None for sweep in sweeps) == NUM_SHARDS


def test_a_table_without_expiry_is_never_swept() -> None:
    assert all(expiry(type="never").sweep(version, [0, 1, 2]) is None for version in range(1, 2000))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"type": "idle"},
        {"type": "unseen"},
        {"type": "unseen", "versions": 3, "passes": 3},
        {"type": "never", "versions": 3},
        {"type": "score", "passes": 3},
        {"type": ["never"]},
    ],
)
def test_an_expiry_that_is_not_known_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="table t: expiry") as caught:
        expiry(**fields)
    assert caught.value.facts["field"] == "tables.t.expiry"


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "unseen", "versions": 0},
        {"type": "unseen", "passes": "two"},
        {"type": "score", "every_versions": 0.5},
        {"type": "score", "decay": "half"},
    ],
)
def test_a_field_that_is_no_such_number_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        expiry(**fields)
    assert caught.value.facts["field"] in fields


@pytest.mark.parametrize("fields", [{}, {"type": "rarely"}, {"type": "count"}, {"type": "probability"}, {"type": {}}])
def test_an_admission_that_is_not_known_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="table t: admission") as caught:
        row_life(spec(admission=fields), Expiry())
    assert caught.value.facts["field"] == "tables.t.admission"


def test_settings_become_what_the_store_obeys() -> None:
    seed = initializer_seed(7, "t")
    assert row_life(spec(), Expiry()) == RowLife(seed)
    counting = spec(admission={"type": "count", "n": 3, "sketch_mb": 2}, max_rows=50, eviction="lfu")
    assert row_life(counting, Expiry()) == RowLife(
        seed, admission="count", min_shows=3, sketch_bytes=2 << 20, max_rows=50, eviction="lfu"
    )
    drawing = spec(admission={"type": "probability", "p": 0.25})
    scored = expiry(type="score", threshold=2.0, decay=0.5, show_weight=0.1, click_weight=3.0, every_versions=9)
    assert row_life(drawing, scored) == RowLife(
        seed,
        admission="probability",
        probability=0.25,
        expiry="score",
        decay=0.5,
        show_weight=0.1,
        click_weight=3.0,
        min_score=2.0,
    )
    assert row_life(spec(), expiry(type="unseen", passes=3)) == RowLife(seed, expiry="unseen")


def test_numbers_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(KernelError):
        row_life(spec(admission={"type": "probability", "p": 2.0}), Expiry())
    with pytest.raises(KernelError):
        row_life(spec(max_rows=-1), Expiry())
    for fields in ({"type": "count", "n": "3"}, {"type": "count", "n": 3, "sketch_mb": 1.5}):
        with pytest.raises(ConfigError):
            row_life(spec(admission=fields), Expiry())
