from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
from contract_samples import (
    EXTREME_KEYS,
    assert_same,
    assert_same_fields,
    contribution,
    dims,
    few,
    floats,
    key_lists,
    keys_from,
    many,
    seeds,
    shard_keys,
)
from hypothesis import given
from hypothesis import strategies as st
from table_programs import RULES, UNIFORM, Pair, Step, Window, life_of, programs, pulled, records_of, windows

from geartrain.errors import KernelError
from geartrain.types import NUM_SHARDS, Keys
from kernels.contribution import Contribution
from kernels.hashing import mix64
from kernels.initializer import Initializer, initial_rows
from kernels.reference.row_store import RowStore as ReferenceStore
from kernels.row_life import RowLife
from kernels.row_records import ROW_DTYPES, RowRecords
from kernels.row_store import RowStore
from kernels.update_rule import SPARSE_KINDS, UpdateRule

sparse_kinds, row_dtypes = st.sampled_from(SPARSE_KINDS), st.sampled_from(sorted(ROW_DTYPES))


def filled(dim: int, kind: str, keys: Keys) -> RowStore:
    store = RowStore(dim, kind, UNIFORM)
    store.apply([contribution(keys, dim, 1)], RULES[1], 7)
    return store


@many
@given(st.lists(windows, max_size=4), dims, sparse_kinds, st.sampled_from(["zero", "uniform", "normal"]), seeds)
def test_windows_match_the_reference(steps: list[Window], dim: int, kind: str, initial: str, seed: int) -> None:
    Pair(lambda store: store(dim, kind, Initializer(initial, 0.1, seed))).play(steps)


@many
@given(programs, st.sampled_from([1, 3, 17]), sparse_kinds, row_dtypes)
def test_programs_match_the_reference(steps: list[Step], dim: int, kind: str, row_dtype: str) -> None:
    Pair(lambda store: store(dim, kind, UNIFORM, row_dtype=row_dtype)).play(steps)


@many
@given(st.lists(key_lists, max_size=4), st.integers(0, 999))
def test_a_row_gets_the_weighted_sum_of_every_worker(parts: list[list[int]], seed: int) -> None:
    """The same key from two workers counts twice, whichever comes last."""
    keys = [keys_from(list(dict.fromkeys(part))) for part in parts]
    given_parts = [contribution(part, 3, seed + i, [1.0, 0.5, 0.1, 0.0][i]) for i, part in enumerate(keys)]
    store = RowStore(3, "sgd", Initializer("zero", 0.0, 0))
    store.apply(given_parts, UpdateRule(lr=1.0), 1)
    records = records_of(store)
    for row, key in enumerate(records.keys.tolist()):
        total, shows, clicks = np.zeros(3), 0.0, 0.0
        for part in given_parts:
            own = part.keys == key
            total += (part.grads[own].astype(np.float64) * part.weight).sum(axis=0)
            shows, clicks = shows + part.shows[own].sum(), clicks + part.clicks[own].sum()
        np.testing.assert_allclose(records.values[row], -total, rtol=1e-5, atol=1e-6)
        assert records.statistics[row].tolist() == [shows, clicks]
    assert sorted(records.keys.tolist()) == sorted({key for part in parts for key in part})


@few
@given(st.permutations(range(30)), sparse_kinds, st.integers(2, 4))
def test_neither_order_nor_threads_change_a_row(order: list[int], kind: str, num_parts: int) -> None:
    """All contributions have the same keys, each in an order of its own."""
    keys = keys_from([*EXTREME_KEYS, *range(3, 25)])
    stores = [RowStore(3, kind, UNIFORM), RowStore(3, kind, UNIFORM)]
    for version, rule in enumerate(RULES[:2], start=1):
        parts = [contribution(keys, 3, version + number, 0.9**number) for number in range(num_parts)]
        orders = [np.roll(order, number) for number in range(num_parts)]
        shuffled = [
            Contribution(*(array[order] for array in part[:4]), part.weight)
            for part, order in zip(parts, orders, strict=True)
        ]
        counts = [stores[0].apply(parts, rule, version), stores[1].apply(shuffled, rule, version, num_threads=3)]
        assert counts[0] == counts[1]
    assert_same_fields(records_of(stores[1]), records_of(stores[0]))


@pytest.mark.parametrize("num_threads", [2, 3])
def test_many_rows_in_threads_match_one_thread(num_threads: int) -> None:
    life = life_of(("count", "score", "lfu"), max_rows=60_000)
    stores = [RowStore(4, "adagrad", UNIFORM, life, "bf16") for _ in range(2)]
    for version in range(1, 4):
        keys = [mix64(np.arange(start, start + 40_000, dtype=np.uint64)) for start in (0, 20_000 * version)]
        parts = [contribution(part, 4, version + number, 0.9) for number, part in enumerate(keys)]
        counts = [
            store.apply(parts, RULES[0], version, threads)
            for store, threads in zip(stores, (1, num_threads), strict=True)
        ]
        assert counts[0] == counts[1]
        assert stores[0].expire(0, 300, 0) == stores[1].expire(0, 300, 0) > 0
    assert_same_fields(records_of(stores[1]), records_of(stores[0]))


def test_nothing_comes_of_nothing() -> None:
    store = filled(3, "adam", keys_from([5]))
    before = records_of(store)
    empty = contribution(keys_from([]), 3, 0)
    for parts in ([], [empty], [empty, empty]):
        assert tuple(store.apply(parts, RULES[0], 9)) == (0, 0, 0)
    assert_same_fields(records_of(store), before)


def test_pull_reads_initial_values_and_never_inserts() -> None:
    store = filled(6, "adagrad", keys_from([1, 2]))
    unseen = keys_from([3, 2**64 - 1, 0, 3])
    assert_same(pulled(store, unseen), initial_rows(unseen, 6, UNIFORM))
    assert store.num_rows == 2
    assert_same(pulled(store, unseen), initial_rows(unseen, 6, UNIFORM))


@pytest.mark.parametrize("kind", SPARSE_KINDS)
def test_every_optimizer_moves_a_row_and_only_that_row(kind: str) -> None:
    store = filled(5, kind, keys_from([1, 2, 3]))
    before = records_of(store)
    store.apply([contribution(keys_from([2]), 5, 9)], RULES[1], 8)
    after = records_of(store)
    moved = (before.keys == 2).tolist()
    assert after.keys.tolist() == before.keys.tolist()
    assert (after.values != before.values).all(axis=1).tolist() == moved
    assert after.last_versions.tolist() == [8 if each else 7 for each in moved]
    assert (after.statistics != before.statistics).all(axis=1).tolist() == moved
    if store.state_width:
        assert (after.states != before.states).all(axis=1).tolist() == moved


def test_a_large_store_finds_every_row_after_growing() -> None:
    keys = mix64(np.arange(200_000, dtype=np.uint64))
    store = RowStore(2, "sgd", UNIFORM)
    for part in np.array_split(keys, 37):
        still = contribution(part, 2, 0, weight=0.0)
        store.prepare_growth(len(part) // 2)
        assert tuple(store.apply([still], RULES[0], 1)) == (len(part), 0, 0)
    assert store.num_rows == len(keys)
    records = records_of(store)
    assert_same(np.sort(records.keys), np.sort(keys))
    assert_same(records.values, initial_rows(records.keys, 2, UNIFORM))
    assert_same(pulled(store, keys[::-1].copy()), initial_rows(keys[::-1].copy(), 2, UNIFORM))
    assert store.rows_by_shard().sum() == len(keys)
    row_bytes = 4 * (2 + 2 + 1)
    assert store.memory_bytes <= (row_bytes + 40) * len(keys)


def test_a_shard_of_its_own_size_grows_and_shrinks() -> None:
    """All keys in one shard, half of them with one and the same place in it; most leave and come back."""
    together = shard_keys(77, range(3000))
    apart = shard_keys(77, range(2**40, 2**53, 2**53 // 3000))
    keys = keys_from(together + apart)
    life = RowLife(seed=1, expiry="unseen")
    stores = [make(1, "sgd", UNIFORM, life) for make in (RowStore, ReferenceStore)]
    for version, part in enumerate((keys, keys[::7].copy(), keys[1::2].copy(), keys), start=1):
        for store in stores:
            store.apply([contribution(part, 1, version)], RULES[0], version)
            store.expire(0, NUM_SHARDS, version - (version < 4))
        assert_same_fields(records_of(stores[0]), records_of(stores[1]))
    assert stores[0].num_rows == len(keys)
    assert stores[0].rows_by_shard()[77] == len(keys)
    assert_same(pulled(stores[0], keys), pulled(stores[1], keys))


def test_a_key_that_is_not_there_is_looked_for_once_around_its_shard() -> None:
    """A shard of two buckets of five: keys displaced past either of them, by others that have left, chain into a ring.

    The last shard takes six keys before it grows.
    """
    low, high = shard_keys(1023, range(6)), shard_keys(1023, [2**53 + number for number in range(5)])
    store = RowStore(1, "sgd", UNIFORM, RowLife(seed=0, expiry="unseen"))
    store.apply([contribution(keys_from(low), 1, 0)], RULES[0], 1)
    store.apply([contribution(keys_from(low[5:]), 1, 0)], RULES[0], 2)
    assert store.expire(0, NUM_SHARDS, 2) == 5
    store.apply([contribution(keys_from(high), 1, 0)], RULES[0], 3)
    absent = keys_from(low[:5] + shard_keys(1023, [77, 2**53 + 77]))
    assert_same(pulled(store, absent), initial_rows(absent, 1, UNIFORM))
    assert store.num_rows == 6


@pytest.mark.parametrize("row_dtype", sorted(ROW_DTYPES))
@pytest.mark.parametrize("kind", SPARSE_KINDS)
@pytest.mark.parametrize("num_rows", [0, 1, 5000])
def test_records_round_trip_and_train_on(kind: str, num_rows: int, row_dtype: str) -> None:
    keys = np.arange(num_rows, dtype=np.uint64)
    store, copy = (RowStore(3, kind, UNIFORM, row_dtype=row_dtype) for _ in range(2))
    store.apply([contribution(keys, 3, 1)], RULES[1], 7)
    records = records_of(store)
    assert records.values.dtype == ROW_DTYPES[row_dtype]
    for part in np.array_split(np.arange(num_rows), 3):
        arrays = (getattr(records, field.name)[part] for field in fields(RowRecords))
        copy.load(RowRecords(*arrays))
    assert_same_fields(records_of(copy), records)
    more = contribution(np.arange(num_rows // 2, num_rows + 5, dtype=np.uint64), 3, 4)
    for target in (store, copy):
        target.apply([more], RULES[2], 9)
    assert_same_fields(records_of(copy), records_of(store))


def test_records_that_do_not_fit_are_refused_and_change_nothing() -> None:
    good = records_of(filled(3, "adam", keys_from([1, 2])))
    store = filled(3, "adam", keys_from([9]))
    before = records_of(store)
    cases = {
        "records.keys": [
            replace(good, keys=keys_from([4, 4])),
            replace(good, keys=keys_from([4, 9])),
        ],
        "records.values": [
            replace(good, values=floats(0, 2, 4)),
            replace(good, values=floats(0, 1, 3)),
            replace(good, values=good.values.astype(np.float16)),
        ],
        "records.states": [replace(good, states=floats(0, 2, 3)), replace(good, states=good.states[:1])],
        "records.statistics": [replace(good, statistics=floats(0, 2, 3))],
        "records.last_versions": [replace(good, last_versions=np.zeros(3, dtype=np.uint32))],
    }
    for argument, wrong in cases.items():
        for records in wrong:
            with pytest.raises(KernelError) as caught:
                store.load(records)
            assert caught.value.facts["argument"] == argument
            assert_same_fields(records_of(store), before)


def test_bad_arguments_are_refused_by_name() -> None:
    store, keys, ones = RowStore(3, "sgd", UNIFORM), keys_from([1, 2]), np.ones(2, dtype=np.float32)
    good = contribution(keys, 3, 0)
    read_only = np.empty((2, 3), dtype=np.float32)
    read_only.flags.writeable = False
    unaligned = np.frombuffer(bytes(1 + 16), dtype=np.uint8)[1:].view(np.uint64)
    wrong: dict[str, Contribution] = {
        "keys": good._replace(keys=keys.astype(np.int64)),  # type: ignore[arg-type]
        "grads": good._replace(grads=np.asfortranarray(good.grads)),
        "shows": good._replace(shows=ones[:1]),
        "clicks": good._replace(clicks=ones.astype(np.float64)),  # type: ignore[arg-type]
        "weight": good._replace(weight=float("nan")),
    }
    cases: list[tuple[str, Callable[[], object]]] = [
        ("dim", lambda: RowStore(0, "sgd", UNIFORM)),
        ("optimizer_kind", lambda: RowStore(3, "lion", UNIFORM)),
        ("row_dtype", lambda: RowStore(3, "sgd", UNIFORM, row_dtype="int8")),
        ("out", lambda: store.pull(keys, read_only)),
        ("keys", lambda: store.pull(unaligned, np.empty((2, 3), dtype=np.float32))),
        ("version", lambda: store.apply([good], RULES[0], 2**32)),
        ("num_threads", lambda: store.apply([good], RULES[0], 1, num_threads=0)),
        *((name, lambda bad=bad: store.apply([good, bad], RULES[0], 1)) for name, bad in wrong.items()),  # type: ignore[misc]
    ]
    for argument, call in cases:
        with pytest.raises(KernelError) as caught:
            call()
        assert argument in caught.value.facts["argument"]
    assert store.num_rows == 0


def test_a_machine_that_refuses_memory_is_an_error_with_facts() -> None:
    script = """
import resource
from geartrain.errors import KernelError
from kernels.row_store import RowStore
from kernels.initializer import Initializer
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
try:
    RowStore(3, "sgd", Initializer("zero", 0.0, 0))
except KernelError as error:
    print(error.facts["argument"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "rows\n"


@pytest.mark.parametrize("kind", ["rowwise_adagrad", "rowwise_adam", "adagrad"])
@pytest.mark.parametrize("known_share", [0.01, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("num_parts", [1, 2])
@pytest.mark.parametrize("row_dtype", ["fp32", "bf16"])
def test_rows_that_stand_alone_among_new_keys_are_updated_in_their_place(
    kind: str, known_share: float, num_parts: int, row_dtype: str
) -> None:
    """Rows are asked for, and their updates finished, some keys apart: however few of the keys have a row."""
    rng = np.random.default_rng(int(1000 * known_share) + num_parts)
    keys = mix64(np.arange(5000, dtype=np.uint64))
    known = keys[rng.random(len(keys)) < known_share]
    pair = (
        RowStore(5, kind, UNIFORM, RowLife(seed=3), row_dtype),
        ReferenceStore(5, kind, UNIFORM, RowLife(seed=3), row_dtype),
    )
    for version, window in enumerate((known, keys), start=1):
        parts = []
        for _ in range(num_parts):
            grads = rng.standard_normal((len(window), 5)).astype(np.float32)
            ones = np.ones(len(window), dtype=np.float32)
            parts.append(Contribution(rng.permutation(window), grads, ones, ones, 1.0))
        for store in pair:
            store.apply(parts, RULES[0], version, num_threads=1 + version % 2)
    assert_same_fields(records_of(pair[0]), pair[1].export())


def test_a_forked_child_of_a_process_with_threads_applies_alone_and_ends() -> None:
    script = """
import os, sys
import numpy as np
from kernels.contribution import Contribution
from kernels.hashing import mix64
from kernels.initializer import Initializer
from kernels.row_store import RowStore, UpdateRule
store = RowStore(2, "sgd", Initializer("zero", 0.0, 1))
keys = mix64(np.arange(2000, dtype=np.uint64))
ones = np.ones(len(keys), dtype=np.float32)
part = Contribution(keys, np.ones((len(keys), 2), dtype=np.float32), ones, ones, 1.0)
for version in (1, 2):
    store.apply([part], UpdateRule(lr=1.0), version, num_threads=2)
child = os.fork()
store.apply([part], UpdateRule(lr=1.0), 3, num_threads=2)
rows = np.empty((2000, 2), dtype=np.float32)
store.pull(keys, rows)
assert (rows == -3).all()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
