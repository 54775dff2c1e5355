"""A table as it was at a version, while training goes on; and training that goes on from it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from contract_samples import assert_same, assert_same_fields, contribution, keys_from, many, shard_keys
from hypothesis import given
from hypothesis import strategies as st
from table_programs import (
    KEY_POOL,
    POLICIES,
    RULES,
    UNIFORM,
    Sweep,
    Window,
    life_of,
    pulled,
    records_of,
    sweeps,
    windows,
)

from geartrain.errors import KernelError
from geartrain.types import NUM_SHARDS
from kernels.hashing import shard_of
from kernels.initializer import Initializer
from kernels.row_life import RowLife
from kernels.row_records import RowRecords, ShardRows
from kernels.row_store import RowStore, UpdateRule
from kernels.update_rule import SPARSE_KINDS

policies_of_life = st.sampled_from(POLICIES)
trainings = st.lists(windows | sweeps, max_size=6)
DIM = 3


def play(store: RowStore, steps: list[Window | Sweep], version: int) -> int:
    """Plays steps from `version` on; returns the version reached."""
    for step in steps:
        if isinstance(step, Window):
            version += 1
            store.apply(step.contributions(DIM), step.rule, version, step.num_threads)
        else:
            store.expire(step.first_shard, step.last_shard, max(0, version - step.age))
    return version


def whole(store: RowStore, version: int, base: int | None = None) -> ShardRows:
    store.begin_cut(version, base)
    cut = store.cut_shards(0, NUM_SHARDS)
    store.end_cut()
    return cut


def restored(store: RowStore, *cuts: ShardRows) -> RowStore:
    """A store like `store` that has loaded a full cut and a delta behind it."""
    rows = cuts[0].rows
    for delta in cuts[1:]:
        kept = ~np.isin(rows.keys, np.concatenate([delta.deleted, delta.rows.keys]))
        names = [field.name for field in fields(RowRecords)]
        rows = RowRecords(*(np.concatenate([getattr(rows, n)[kept], getattr(delta.rows, n)]) for n in names))
    copy = RowStore(store.dim, store.optimizer_kind, store.initializer, store.life, store.row_dtype)
    copy.load(rows)
    copy.load_sketches(0, cuts[-1].sketches, cuts[-1].sketch_totals)
    return copy


def make(policies: tuple[str, str, str], kind: str = "adagrad", row_dtype: str = "fp32") -> RowStore:
    return RowStore(DIM, kind, UNIFORM, life_of(policies), row_dtype)


@many
@given(trainings, trainings, policies_of_life, st.sampled_from(SPARSE_KINDS), st.sampled_from(["fp32", "fp16", "bf16"]))
def test_training_from_a_cut_goes_on_bit_for_bit(
    before: list[Window | Sweep], after: list[Window | Sweep], policies: tuple[str, str, str], kind: str, row_dtype: str
) -> None:
    store = make(policies, kind, row_dtype)
    version = play(store, before, 0)
    copy = restored(store, whole(store, version))
    for each in (store, copy):
        play(each, after, version)
    assert_same_fields(whole(copy, 2**32 - 1), whole(store, 2**32 - 1))


@many
@given(trainings, trainings, trainings, policies_of_life)
def test_a_full_cut_and_its_last_delta_are_a_full_cut(
    first: list[Window | Sweep],
    second: list[Window | Sweep],
    third: list[Window | Sweep],
    policies: tuple[str, str, str],
) -> None:
    """Each delta is against the full cut, not against the delta before it. A twin, never cut, is what it should be."""
    store, twin = make(policies), make(policies)
    version = play(store, first, 0)
    play(twin, first, 0)
    base_version, base = version, whole(store, version)
    for steps in (second, third):
        play(twin, steps, version)
        version = play(store, steps, version)
        assert store.delta_base == base_version
        delta = whole(store, version, base_version)
        assert_same_fields(records_of(restored(store, base, delta)), records_of(twin))


@many
@given(trainings, st.lists(st.tuples(trainings, st.integers(1, 500)), max_size=5), policies_of_life, st.booleans())
def test_a_cut_does_not_see_what_comes_later(
    before: list[Window | Sweep],
    meanwhile: list[tuple[list[Window | Sweep], int]],
    policies: tuple[str, str, str],
    delta: bool,
) -> None:
    """Shards are read a few at a time while windows and sweeps go on; an undisturbed twin is cut at once."""
    twin, store = make(policies), make(policies)
    base = None
    for each in (twin, store):
        version = play(each, before[: len(before) // 2], 0)
        if delta:
            whole(each, version)
            base = version
        version = play(each, before[len(before) // 2 :], version)
        each.begin_cut(version, base)
    expected = twin.cut_shards(0, NUM_SHARDS)
    parts, shard = [], 0
    for steps, num_shards in [*meanwhile, ([], NUM_SHARDS)]:
        version = play(store, steps, version)
        last = min(shard + num_shards, NUM_SHARDS)
        parts.append(store.cut_shards(shard, last))
        shard = last
    store.end_cut()
    assert_same_fields(joined(parts), expected)


def joined(parts: list[ShardRows]) -> ShardRows:
    rows = RowRecords(*(np.concatenate([getattr(p.rows, f.name) for p in parts]) for f in fields(RowRecords)))
    others = (np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(ShardRows) if f.name != "rows")
    return ShardRows(rows, *others)


def trained(kind: str, num_times: dict[int, int], store: RowStore, version: int) -> int:
    """Trains every key so many times with a gradient of 1, one window at a time."""
    for turn in range(max(num_times.values())):
        version += 1
        keys = keys_from([key for key, times in num_times.items() if turn < times])
        part = contribution(keys, store.dim, 0, shows=1.0)._replace(grads=np.ones((len(keys), store.dim), np.float32))
        store.apply([part], UpdateRule(lr=0.5, step=version, eps=0.0), version)
    return version


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad"])
def test_rows_trained_differently_often_have_their_exact_value_after_a_restore(kind: str) -> None:
    """A constant gradient: every row is known by arithmetic, from a full cut and a delta as without them."""
    store = RowStore(DIM, kind, Initializer("zero", 0.0, 0))
    version = trained(kind, {1: 20, 2: 20, 3: 10}, store, 0)
    base = whole(store, version)
    delta = whole(store, trained(kind, {2: 20, 3: 20, 4: 10}, store, version), version)
    assert sorted(delta.rows.keys.tolist()) == [2, 3, 4]
    copy = restored(store, base, delta)
    values = pulled(copy, keys_from([1, 2, 3, 4]))
    for row, times in enumerate((20, 40, 30, 10)):
        each = 1 if kind == "sgd" else 1 / np.sqrt(np.arange(1, times + 1, dtype=np.float64))
        np.testing.assert_allclose(values[row], -0.5 * np.sum(np.broadcast_to(each, times)), rtol=1e-6)
    records = records_of(copy)
    shows = dict(zip(records.keys.tolist(), records.statistics[:, 0].tolist(), strict=True))
    assert shows == {1: 20.0, 2: 40.0, 3: 30.0, 4: 10.0}
    if kind != "sgd":
        sums = dict(zip(records.keys.tolist(), records.states[:, 0].tolist(), strict=True))
        assert sums == shows


def test_a_key_that_left_and_came_back_is_a_row_of_the_delta() -> None:
    store = RowStore(DIM, "sgd", UNIFORM, RowLife(seed=0, expiry="unseen"))
    store.apply([contribution(keys_from([1, 2, 3]), DIM, 0)], RULES[0], 1)
    base = whole(store, 1)
    assert store.expire(0, NUM_SHARDS, 2) == 3
    store.apply([contribution(keys_from([2, 4]), DIM, 0)], RULES[0], 2)
    assert store.expire(0, NUM_SHARDS, 2) == 0
    store.apply([contribution(keys_from([2, 5]), DIM, 0)], RULES[0], 3)
    store.expire(0, NUM_SHARDS, 3)
    delta = whole(store, 3, 1)
    assert set(delta.deleted.tolist()) == {1, 3, 4}
    assert set(delta.rows.keys.tolist()) == {2, 5}
    assert_same_fields(records_of(restored(store, base, delta)), records_of(store))


def test_a_cut_without_rows() -> None:
    store = RowStore(DIM, "adam", UNIFORM, life_of(("count", "never", "unbounded")))
    cut = whole(store, 0)
    assert len(cut.rows.keys) == cut.counts.sum() == len(cut.deleted) == 0
    assert cut.sketches.shape == (NUM_SHARDS, 2**16 // NUM_SHARDS)
    assert restored(store, cut).num_rows == 0
    delta = whole(store, 5, 0)
    assert len(delta.rows.keys) == len(delta.deleted) == 0


def test_counts_say_which_shard_a_row_is_of() -> None:
    store = RowStore(DIM, "sgd", UNIFORM, life_of(("always", "unseen", "unbounded")))
    store.apply([contribution(keys_from(KEY_POOL), DIM, 0)], RULES[0], 1)
    whole(store, 1)
    store.apply([contribution(keys_from(KEY_POOL[::2]), DIM, 0)], RULES[0], 2)
    store.expire(0, NUM_SHARDS, 2)
    delta = whole(store, 2, 1)
    for keys, counts in ((delta.rows.keys, delta.counts), (delta.deleted, delta.deleted_counts)):
        shards = shard_of(keys).astype(np.int64)
        assert_same(counts, np.bincount(shards, minlength=NUM_SHARDS))
        assert_same(keys, keys[np.lexsort((keys, shards))])
    assert set(delta.rows.keys.tolist()) | set(delta.deleted.tolist()) == set(KEY_POOL)


def test_many_rows_survive_one_by_one() -> None:
    """A shard index, parts and a large number of different rows."""
    store = RowStore(5, "rowwise_adagrad", UNIFORM)
    keys = keys_from([*range(20_000), *shard_keys(5, range(3000))])
    store.apply([contribution(keys, 5, 1)], RULES[0], 1)
    expected = pulled(store, keys)
    copy = RowStore(5, "rowwise_adagrad", UNIFORM)
    store.begin_cut(1, None)
    for first in range(0, NUM_SHARDS, 100):
        part = store.cut_shards(first, min(first + 100, NUM_SHARDS))
        store.apply([contribution(keys, 5, first)], RULES[0], 2 + first)
        copy.load(part.rows)
        assert len(part.rows.keys) == part.counts.sum()
    assert_same(pulled(copy, keys), expected)
    assert len(np.unique(expected, axis=0)) == len(keys)


def test_what_is_no_part_of_a_cut_is_refused() -> None:
    store = RowStore(DIM, "sgd", UNIFORM, life_of(("count", "never", "unbounded")))
    good = whole(store, 4)
    cases: list[tuple[str, Any]] = [
        ("base", lambda: store.begin_cut(5, 3)),
        ("base", lambda: RowStore(DIM, "sgd", UNIFORM).begin_cut(5, 4)),
        ("version", lambda: store.begin_cut(-1, None)),
        ("cut", lambda: store.cut_shards(0, 1)),
        ("shards", lambda: store.expire(0, NUM_SHARDS + 1, 0)),
        ("shards", lambda: store.expire(5, 4, 0)),
        ("sketches", lambda: store.load_sketches(0, good.sketches[:, 1:], good.sketch_totals)),
        ("shards", lambda: store.load_sketches(1, good.sketches, good.sketch_totals)),
        ("sketches", lambda: RowStore(DIM, "sgd", UNIFORM).load_sketches(0, good.sketches, good.sketch_totals)),
    ]
    for argument, call in cases:
        with pytest.raises(KernelError) as caught:
            call()
        assert argument in caught.value.facts["argument"]
    store.begin_cut(5, None)
    store.cut_shards(0, 10)
    with pytest.raises(KernelError, match="first_shard"):
        store.cut_shards(9, 11)
    assert store.delta_base == 5


def test_rows_that_are_kept_for_a_cut_count_as_memory_until_they_are_read() -> None:
    num_rows = 4096
    store, keys = RowStore(DIM, "adagrad", UNIFORM), np.arange(num_rows, dtype=np.uint64)
    store.apply([contribution(keys, DIM, 1)], RULES[0], 1)
    before = store.memory_bytes
    store.begin_cut(1, None)
    store.apply([contribution(keys, DIM, 2)], RULES[0], 2)
    kept = num_rows * (8 + 4 * DIM + 4 * DIM + 12)  # key, values, states, statistics
    assert store.memory_bytes - before == kept
    store.cut_shards(0, NUM_SHARDS // 2)
    assert 0.4 * kept < store.memory_bytes - before < 0.6 * kept
    store.cut_shards(NUM_SHARDS // 2, NUM_SHARDS)
    assert store.memory_bytes == before
    store.end_cut()
    assert store.memory_bytes == before
