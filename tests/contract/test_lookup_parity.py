from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from contract_samples import assert_same, key_lists, key_values, keys_from, many, unmixed
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import KernelError
from geartrain.types import NUM_SHARDS, Indices, Keys
from kernels.dedup import deduplicate, first_repeated
from kernels.hashing import shard_of
from kernels.lookup_plan import LookupPlan, plan_lookup
from kernels.reference import dedup as dedup_reference
from kernels.reference import lookup_plan as plan_reference

Arguments = tuple[Keys, Indices, Indices, int, Indices, int]


@st.composite
def plan_arguments(draw: st.DrawFn) -> Arguments:
    """Slots of any length, in any order of tables; some tables without a slot, some servers without a shard."""
    slots = draw(st.lists(key_lists, max_size=6))
    num_tables, num_servers = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    tables = draw(st.lists(st.integers(0, num_tables - 1), min_size=len(slots), max_size=len(slots)))
    owners = np.random.default_rng(draw(st.integers(0, 99))).integers(0, draw(st.integers(1, num_servers)), NUM_SHARDS)
    starts = np.cumsum([0, *(len(slot) for slot in slots)]).astype(np.int64)
    keys = keys_from([key for slot in slots for key in slot])
    return keys, starts, np.array(tables, dtype=np.int64), num_tables, owners, num_servers


@many
@given(key_lists)
def test_deduplicate_matches_the_reference(values: list[int]) -> None:
    keys = keys_from(values)
    unique, inverse = deduplicate(keys)
    expected_unique, expected_inverse = dedup_reference.deduplicate(keys)
    assert_same(unique, expected_unique)
    assert_same(inverse, expected_inverse)
    assert_same(unique[inverse], keys)


@many
@given(key_values, st.integers(1, 3000))
def test_deduplicate_one_key_many_times(value: int, count: int) -> None:
    unique, inverse = deduplicate(np.full(count, value, dtype=np.uint64))
    assert unique.tolist() == [value]
    assert not inverse.any()


def test_deduplicate_survives_a_batch_after_a_larger_one() -> None:
    random = np.random.default_rng(0)
    for size in (150_000, 3, 0, 20_000, 1):
        keys = random.integers(0, size + 1, size).astype(np.uint64)
        for got, expected in zip(deduplicate(keys), dedup_reference.deduplicate(keys), strict=True):
            assert_same(got, expected)


@pytest.mark.parametrize("low", [0, 5, 15, 1023])
def test_keys_that_look_alike_to_the_set_are_told_apart(low: int) -> None:
    """Hashes that differ only where neither their place in the set nor what it keeps of them shows it."""
    keys = keys_from([unmixed(high << 54 | low) for high in (0, 1, 2, 1, 1023, 0)])
    for got, expected in zip(deduplicate(keys), dedup_reference.deduplicate(keys), strict=True):
        assert_same(got, expected)
    assert first_repeated(keys[:3], np.array([3])) == -1
    assert first_repeated(keys, np.array([6])) == 3
    plan = plan_lookup(keys, np.array([0, 6]), np.array([0]), 1, np.zeros(NUM_SHARDS, dtype=np.int64), 1)
    assert_same(plan.unique_keys[plan.inverse], keys)
    assert len(plan.unique_keys) == 4


def test_more_keys_than_32_bits_number_are_refused(tmp_path: Path) -> None:
    keys = np.memmap(tmp_path / "keys", dtype=np.uint64, mode="w+", shape=(2**31,))  # a sparse file: no memory, no disk
    counts, one = np.array([2**31]), np.zeros(1, dtype=np.int64)
    with pytest.raises(KernelError, match=r"keys: expected fewer than 2\*\*31 keys, got 2147483648"):
        deduplicate(keys)
    with pytest.raises(KernelError, match=r"fewer than 2\*\*31 keys"):
        first_repeated(keys, counts)
    with pytest.raises(KernelError, match=r"fewer than 2\*\*31 keys"):
        plan_lookup(keys, np.array([0, 2**31]), one, 1, np.zeros(NUM_SHARDS, dtype=np.int64), 1)


@many
@given(st.lists(key_lists, max_size=5), st.booleans())
def test_first_repeated_matches_the_reference(ranges: list[list[int]], distinct: bool) -> None:
    if distinct:
        ranges = [list(dict.fromkeys(values)) for values in ranges]
    keys = keys_from([key for values in ranges for key in values])
    counts = np.array([len(values) for values in ranges], dtype=np.int64)
    position = first_repeated(keys, counts)
    assert position == dedup_reference.first_repeated(keys, counts)
    assert position == -1 or not distinct


def test_first_repeated_finds_the_last_of_many_keys() -> None:
    keys = np.random.default_rng(0).permutation(np.arange(50_000, dtype=np.uint64))
    assert first_repeated(keys, np.array([20_000, 0, 30_000])) == -1
    keys[-1] = keys[20_000]
    assert first_repeated(keys, np.array([20_000, 0, 30_000])) == 49_999
    assert first_repeated(keys, np.array([20_001, 0, 29_999])) == -1


@pytest.mark.parametrize("counts", [[1, 1], [4, -1], [3, 1], [2**62, 2**62, 2**62, 2**62, 3]])
def test_first_repeated_refuses_counts_of_other_keys(counts: list[int]) -> None:
    with pytest.raises(KernelError, match="counts: expected counts >= 0 of 3 keys in all"):
        first_repeated(keys_from([1, 2, 3]), np.array(counts, dtype=np.int64))


@many
@given(plan_arguments())
def test_plan_matches_the_reference(arguments: Arguments) -> None:
    expected = LookupPlan(*plan_reference.plan_lookup(*arguments))
    plan = plan_lookup(*arguments)
    assert_same(plan.unique_keys, expected.unique_keys)
    assert_same(plan.counts, expected.counts)
    assert_same(plan.inverse, expected.inverse)


@many
@given(plan_arguments())
def test_plan_asks_each_server_for_its_own_keys_and_gives_all_back(arguments: Arguments) -> None:
    keys, starts, tables, num_tables, owners, num_servers = arguments
    plan = plan_lookup(*arguments)
    assert_same(plan.unique_keys[plan.inverse], keys)
    assert plan.counts.shape == (num_servers, num_tables)
    servers = np.repeat(np.arange(num_servers), plan.counts.sum(axis=1))
    assert (owners[shard_of(plan.unique_keys)] == servers).all()
    cell_tables = np.repeat(np.tile(np.arange(num_tables), num_servers), plan.counts.reshape(-1))
    assert (cell_tables[plan.inverse] == np.repeat(tables, np.diff(starts))).all()
    assert len(set(zip(cell_tables, plan.unique_keys, strict=True))) == len(plan.unique_keys)


def test_one_key_in_two_tables_is_pulled_twice() -> None:
    owners = np.zeros(NUM_SHARDS, dtype=np.int64)
    plan = plan_lookup(keys_from([5, 5, 5]), np.array([0, 1, 2, 3]), np.array([1, 0, 1]), 2, owners, 1)
    assert plan.unique_keys.tolist() == [5, 5]
    assert plan.counts.tolist() == [[1, 1]]
    assert plan.inverse.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("starts", "tables", "owner", "num_tables", "argument"),
    [
        ([0, 2], [0], 0, 1, "slot_starts"),
        ([1, 3], [0], 0, 1, "slot_starts"),
        ([0, 3, 2, 3], [0, 0, 0], 0, 1, "slot_starts"),
        ([0, 3], [0, 0], 0, 1, "slot_starts"),
        ([0, 3], [1], 0, 1, "slot_tables"),
        ([0, 3], [-1], 0, 1, "slot_tables"),
        ([0, 3], [0], 1, 1, "shard_owner"),
        ([0, 3], [0], -1, 1, "shard_owner"),
        ([0, 3], [0], 0, 0, "num_tables, num_servers"),
    ],
)
def test_bad_plans_are_refused(
    starts: list[int], tables: list[int], owner: int, num_tables: int, argument: str
) -> None:
    owners = np.full(NUM_SHARDS, owner, dtype=np.int64)
    with pytest.raises(KernelError) as caught:
        plan_lookup(keys_from([1, 2, 3]), np.array(starts), np.array(tables), num_tables, owners, 1)
    assert caught.value.facts["argument"] == argument
