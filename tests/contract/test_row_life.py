"""Which keys get a row, which rows leave, and how many there may be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contract_samples import assert_same, assert_same_fields, contribution, keys_from, many, shard_keys
from hypothesis import given, settings
from hypothesis import strategies as st
from table_programs import (
    POLICIES,
    RULES,
    UNIFORM,
    Pair,
    Step,
    busy_program,
    life_of,
    programs,
    pulled,
    records_of,
)

from geartrain.errors import KernelError
from geartrain.types import NUM_SHARDS, Floats, Keys
from kernels.contribution import Contribution
from kernels.hashing import mix64, shard_of
from kernels.initializer import initial_rows
from kernels.row_life import RowLife
from kernels.row_records import ROW_DTYPES, RowRecords
from kernels.row_store import RowStore
from kernels.update_rule import SPARSE_KINDS

KINDS_AND_DTYPES = [(kind, row_dtype) for kind in SPARSE_KINDS for row_dtype in sorted(ROW_DTYPES)]


@pytest.mark.parametrize("policies", POLICIES, ids="-".join)
def test_every_pair_of_policies_matches_the_reference(policies: tuple[str, str, str]) -> None:
    """With every optimizer and row dtype: keys come, are rejected, leave and come back, cuts go on meanwhile."""
    life = life_of(policies)
    for seed, (kind, row_dtype) in enumerate(KINDS_AND_DTYPES):
        dim = (1, 3, 17)[seed % 3]
        make = lambda store: store(dim, kind, UNIFORM, life, row_dtype)  # noqa: E731
        Pair(make).play(busy_program(seed))


@settings(many, max_examples=200)
@given(
    programs,
    st.sampled_from(POLICIES),
    st.sampled_from([1, 700, 1024, 3000, 20_000]),
    st.integers(0, 2**64 - 1),
    st.sampled_from(KINDS_AND_DTYPES),
)
def test_any_program_matches_the_reference(
    steps: list[Step], policies: tuple[str, str, str], max_rows: int, seed: int, form: tuple[str, str]
) -> None:
    bound = {} if policies[2] == "unbounded" else {"max_rows": max_rows}
    life = life_of(policies, seed, **bound)
    Pair(lambda store: store(3, form[0], UNIFORM, life, form[1])).play(steps)


@many
@given(programs, st.sampled_from(POLICIES))
def test_the_hottest_rows_are_known_through_any_program(steps: list[Step], policies: tuple[str, str, str]) -> None:
    life = life_of(policies)
    Pair(lambda store: store(1, "sgd", UNIFORM, life), hottest=True).play(steps)


def shown(keys: Keys | list[int], shows: float | Floats = 1.0, dim: int = 2, weight: float = 1.0) -> Contribution:
    part = contribution(keys_from(keys), dim, 3, weight)
    counts = np.broadcast_to(np.asarray(shows, dtype=np.float32), len(part.keys)).copy()
    return part._replace(shows=counts, clicks=np.zeros_like(counts))


def store_with(**life: Any) -> RowStore:
    return RowStore(2, "sgd", UNIFORM, RowLife(seed=9, **life))


def keys_of(store: RowStore) -> set[int]:
    return set(records_of(store).keys.tolist())


# --- admission


def test_a_key_is_admitted_when_it_was_shown_often_enough() -> None:
    store = store_with(admission="count", min_shows=3)
    keys = keys_from([5, 6])
    assert tuple(store.apply([shown([5, 6], [1, 2])], RULES[0], 1)) == (0, 2, 0)
    assert_same(pulled(store, keys), initial_rows(keys, 2, UNIFORM))
    assert store.num_rows == 0
    assert tuple(store.apply([shown([5, 6])], RULES[0], 2)) == (1, 1, 0)
    assert keys_of(store) == {6}
    assert tuple(store.apply([shown([5])], RULES[0], 3)) == (1, 0, 0)
    records = records_of(store)
    assert dict(zip(records.keys.tolist(), records.statistics[:, 0].tolist(), strict=True)) == {5: 1.0, 6: 1.0}


def test_the_shows_of_all_workers_count_together() -> None:
    store = store_with(admission="count", min_shows=3)
    assert tuple(store.apply([shown([5]), shown([5, 7]), shown([7, 5])], RULES[0], 1)) == (1, 1, 0)
    assert keys_of(store) == {5}


@pytest.mark.parametrize("min_shows", [2, 3, 5])
def test_few_keys_are_admitted_too_early(min_shows: int) -> None:
    """New ids without end, each shown once: those that get a row share all their counters with others."""
    store = store_with(admission="count", min_shows=min_shows, sketch_bytes=2**20)
    num_admitted, num_keys = 0, 400_000
    for version, keys in enumerate(np.split(mix64(np.arange(num_keys, dtype=np.uint64)), 20), start=1):
        num_admitted += store.apply([shown(keys, dim=2)], RULES[0], version)[0]
    bound = {2: 4e-3, 3: 2e-5, 5: 0}[min_shows]
    assert num_admitted <= bound * num_keys


def test_a_key_shown_often_among_many_others_is_admitted() -> None:
    """Halving forgets, but not what comes back before width / 4 others have been counted."""
    store = store_with(admission="count", min_shows=4, sketch_bytes=2**18)
    others = iter(np.split(mix64(np.arange(10**6, 10**6 + 40_000, dtype=np.uint64)), 10))
    wanted = [1, 2, 3]
    for version in range(1, 9):
        store.apply([shown(np.concatenate([next(others), keys_from(wanted)]))], RULES[0], version)
    assert set(wanted) <= keys_of(store)


def test_old_shows_are_forgotten() -> None:
    """A shard of 16 counters a row is halved after every 4 shows: a count of 1 is gone by then."""
    store = store_with(admission="count", min_shows=2, sketch_bytes=2**16)
    one_shard = shard_keys(8, range(40))
    for version, key in enumerate([one_shard[0], *one_shard[1:4], one_shard[0]], start=1):
        assert tuple(store.apply([shown([key])], RULES[0], version)) == (0, 1, 0)
    assert tuple(store.apply([shown([one_shard[0]])], RULES[0], 9)) == (1, 0, 0)


@pytest.mark.parametrize("probability", [0.1, 0.5, 1.0])
def test_the_share_that_is_drawn_is_the_probability(probability: float) -> None:
    store = store_with(admission="probability", probability=probability)
    keys = mix64(np.arange(20_000, dtype=np.uint64))
    drawn = [set[int]()]
    for version in (1, 2):
        before = store.num_rows
        num_admitted, num_rejected, _ = store.apply([shown(keys)], RULES[0], version)
        trials = len(keys) - before
        assert num_admitted + num_rejected == trials
        assert abs(num_admitted - probability * trials) <= 5 * (trials * probability * (1 - probability)) ** 0.5
        drawn.append(keys_of(store) - drawn[-1])
    assert drawn[1] & drawn[2] == set()


# --- capacity


def test_a_full_shard_keeps_the_rows_seen_last() -> None:
    """64 rows may be in a shard: then 1/16 of them and more leave for new ones."""
    keys = shard_keys(3, range(100))
    store = store_with(max_rows=64 * NUM_SHARDS)
    for version, start in enumerate((0, 32), start=1):
        store.apply([shown(keys[start : start + 32])], RULES[0], version)
    store.apply([shown(keys[:16])], RULES[0], 3)
    assert tuple(store.apply([shown([keys[64]])], RULES[0], 4)) == (1, 0, 4)
    left = set(keys[:64]) - keys_of(store)
    assert left == lowest(keys[16:32], 4)
    assert tuple(store.apply([shown(keys[70:73])], RULES[0], 5)) == (3, 0, 0)
    assert tuple(store.apply([shown(keys[73:100])], RULES[0], 6)) == (27, 0, 27)
    assert set(keys[:16]) | {keys[64]} | set(keys[70:100]) <= keys_of(store)
    assert store.num_rows == 64


def test_a_full_shard_keeps_the_rows_shown_most_and_those_of_this_window() -> None:
    keys = shard_keys(3, range(70))
    store = store_with(max_rows=64 * NUM_SHARDS, eviction="lfu")
    store.apply([shown(keys[:64], np.arange(64, 0, -1, dtype=np.float32))], RULES[0], 1)
    assert tuple(store.apply([shown([keys[63], keys[64]])], RULES[0], 2)) == (1, 0, 4)
    assert set(keys[:64]) - keys_of(store) == set(keys[59:63])


def test_more_new_keys_than_a_shard_may_hold() -> None:
    keys = shard_keys(3, range(100))
    store = store_with(max_rows=64 * NUM_SHARDS)
    store.apply([shown(keys[:10])], RULES[0], 1)
    assert tuple(store.apply([shown(keys[10:])], RULES[0], 2)) == (64, 26, 10)
    assert keys_of(store) == lowest(keys[10:], 64)


def lowest(keys: list[int], number: int) -> set[int]:
    """Those that the hash of key and seed puts first."""
    ranks = mix64(keys_from(keys) ^ np.uint64(9))
    return {keys[i] for i in np.argsort(ranks)[:number]}


@pytest.mark.parametrize("eviction", ["lru", "lfu"])
@pytest.mark.parametrize("max_rows", [1, 1023, 1500, 40_000])
def test_a_stream_of_new_ids_stays_within_its_bound(max_rows: int, eviction: str) -> None:
    store = store_with(max_rows=max_rows, eviction=eviction)
    total = np.zeros(3, dtype=np.int64)
    for version, keys in enumerate(np.split(mix64(np.arange(120_000, dtype=np.uint64)), 12), start=1):
        counts = store.apply([shown(keys)], RULES[0], version)
        total += counts
        assert sum(counts[:2]) == len(keys)
        assert store.num_rows == total[0] - total[2] <= max_rows
    shards = np.arange(NUM_SHARDS)
    assert (store.rows_by_shard() <= max_rows // NUM_SHARDS + (shards < max_rows % NUM_SHARDS)).all()
    assert store.num_rows >= 0.9 * max_rows
    assert store.memory_bytes <= max_rows * 120 + 2**18


@pytest.mark.parametrize(("max_rows", "error"), [(5_000, 0.02), (20_000, 0.01)])
@pytest.mark.parametrize("eviction", ["lru", "lfu"])
def test_a_table_keeps_nearly_the_ids_that_one_without_shards_would_keep(
    eviction: str, max_rows: int, error: float
) -> None:
    """How many ids of Zipf windows have a row, in their second half: at most `error` less than with one exact list."""
    store, exact, random = (
        store_with(max_rows=max_rows, eviction=eviction),
        ExactTable(max_rows, eviction),
        np.random.default_rng(1),
    )
    found, found_by_exact, asked = 0, 0, 0
    for version in range(1, 81):
        ids, counts = np.unique(random.zipf(1.2, 2000) % (10 * max_rows), return_counts=True)
        keys = mix64(ids.astype(np.uint64))
        if version > 40:
            rows = np.empty(len(keys), dtype=np.int64)
            store.lookup(keys, rows)
            found += int((rows >= 0).sum())
            found_by_exact += sum(key in exact.rows for key in keys.tolist())
            asked += len(keys)
        store.apply([shown(keys, counts)], RULES[0], version)
        exact.apply(keys.tolist(), counts.tolist(), version)
    assert found >= found_by_exact - error * asked
    assert found_by_exact > 0.4 * asked, "or the comparison means nothing"


class ExactTable:
    """What an eviction means without shards: shows and last version of each row."""

    def __init__(self, max_rows: int, eviction: str) -> None:
        self.rows: dict[int, tuple[int, int]] = {}
        self._max_rows, self._eviction = max_rows, eviction

    def apply(self, keys: list[int], counts: list[int], version: int) -> None:
        for key, count in zip(keys, counts, strict=True):
            self.rows[key] = (self.rows.get(key, (0, 0))[0] + count, version)
        excess = max(0, len(self.rows) - self._max_rows)
        for key in sorted(self.rows, key=lambda key: self._order(*self.rows[key], version))[:excess]:
            del self.rows[key]

    def _order(self, shows: int, last: int, version: int) -> tuple[int, int]:
        if self._eviction == "lru":
            return last, 0
        return int(last == version), shows


def test_a_shard_that_was_loaded_over_its_limit_is_brought_under_it_by_the_next_window() -> None:
    keys = shard_keys(3, range(40))
    store = store_with()
    store.apply([shown(keys[:30])], RULES[0], 1)
    smaller = store_with(max_rows=20 * NUM_SHARDS)
    smaller.load(records_of(store))
    assert tuple(smaller.apply([shown(keys[:1])], RULES[0], 2)) == (0, 0, 10)
    assert tuple(smaller.apply([shown([keys[30]])], RULES[0], 3)) == (1, 0, 1)
    assert {keys[0], keys[30]} <= keys_of(smaller)


# --- expiry


def test_rows_not_seen_for_long_leave_and_come_back_as_new() -> None:
    store = store_with(expiry="unseen")
    keys = keys_from([1, 2, 3])
    store.apply([shown([1, 2])], RULES[0], 1)
    store.apply([shown([2, 3])], RULES[0], 2)
    assert store.expire(0, NUM_SHARDS, 2) == 1
    assert keys_of(store) == {2, 3}
    assert_same(pulled(store, keys[:1]), initial_rows(keys[:1], 2, UNIFORM))
    fresh = store_with()
    for each in (store, fresh):
        each.apply([shown([1])], RULES[0], 5)
    assert_same(pulled(store, keys[:1]), pulled(fresh, keys[:1]))


def test_a_sweep_leaves_other_shards_alone() -> None:
    store = store_with(expiry="unseen")
    keys = [key for shard in (0, 4, 5, 1023) for key in shard_keys(shard, range(5))]
    store.apply([shown(keys)], RULES[0], 1)
    assert store.expire(4, 5, 9) == 5
    assert store.expire(4, 4, 9) == 0
    assert store.rows_by_shard()[[0, 4, 5, 1023]].tolist() == [5, 0, 5, 5]
    assert store.expire(5, NUM_SHARDS, 9) == 10


def test_rows_leave_when_their_score_has_decayed() -> None:
    life = {"expiry": "score", "decay": 0.5, "show_weight": 1.0, "click_weight": 3.0, "min_score": 1.0}
    store = store_with(**life)
    part = shown([1, 2, 3], [8.0, 3.0, 2.0])
    store.apply([part._replace(clicks=np.array([0.0, 0.0, 2.0], dtype=np.float32))], RULES[0], 1)
    sizes = []
    for _ in range(4):
        store.expire(0, NUM_SHARDS, 0)
        sizes.append(sorted(keys_of(store)))
    assert sizes == [[1, 2, 3], [1, 3], [1, 3], []] or sizes == [[1, 2, 3], [1, 3], [1], []]


# --- what all of it has in common


@pytest.mark.parametrize("policies", [("count", "score", "lfu"), ("probability", "unseen", "lru")])
def test_a_table_on_several_servers_is_the_same_table(policies: tuple[str, str, str]) -> None:
    """The keys are split by shard over 1, 2 and 3 stores, each contribution's in another order."""
    life = life_of(policies, max_rows=2500)
    whole = RowStore(3, "adagrad", UNIFORM, life, "bf16")
    split = {number: [RowStore(3, "adagrad", UNIFORM, life, "bf16") for _ in range(number)] for number in (1, 2, 3)}
    random = np.random.default_rng(0)
    for version in range(1, 7):
        parts = [
            contribution(
                np.unique(mix64(random.integers(0, 6000, 4000).astype(np.uint64))), 3, version * 10 + n, 0.9**n
            )
            for n in range(3)
        ]
        total = [np.array(whole.apply(parts, RULES[0], version)), whole.expire(200, 800, version - 2)]
        for number, servers in split.items():
            counts, num_expired = np.zeros(3, dtype=np.int64), 0
            for server, store in enumerate(servers):
                own = [of_server(part, server, number, random) for part in parts]
                counts += store.apply(own, RULES[0], version)
                num_expired += store.expire(200, 800, version - 2)
            assert counts.tolist() == total[0].tolist()
            assert num_expired == total[1]
    for servers in split.values():
        assert_same_fields(joined(servers), records_of(whole))


def of_server(part: Contribution, server: int, num_servers: int, random: np.random.Generator) -> Contribution:
    mine = random.permutation(np.flatnonzero(shard_of(part.keys) * num_servers // NUM_SHARDS == server))
    return Contribution(*(array[mine] for array in part[:4]), part.weight)


def joined(stores: list[RowStore]) -> RowRecords:
    """Shards are in ascending ranges, so the records of all stores in order are those of one."""
    parts = [records_of(store) for store in stores]
    names = RowRecords.__dataclass_fields__
    return RowRecords(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def test_the_hottest_rows_are_those_shown_most() -> None:
    store = store_with()
    keys = mix64(np.arange(5000, dtype=np.uint64))
    shows = np.random.default_rng(1).permutation(5000).astype(np.float32)
    for version in (1, 2):
        store.apply([shown(keys, shows)], RULES[0], version)
    hottest, counts = store.hottest()
    order = np.argsort(-shows)[:32]
    assert_same(hottest, keys[order])
    assert_same(counts, 2 * shows[order])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("admission", "sometimes"),
        ("expiry", "soon"),
        ("eviction", "random"),
        ("seed", -1),
        ("probability", 0.0),
        ("min_shows", 256),
        ("sketch_bytes", 3 * 2**16),
        ("decay", 0.0),
        ("min_score", float("nan")),
        ("max_rows", 0),
    ],
)
def test_rules_of_life_that_cannot_be_used_are_refused(argument: str, value: Any) -> None:
    with pytest.raises(KernelError) as caught:
        replace(RowLife(seed=0), **{argument: value})
    assert caught.value.facts["argument"] == argument
