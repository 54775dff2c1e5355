from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from contract_samples import EXTREME_KEYS, assert_same, dims, few, floats, key_values, keys_from, many, seeds
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import KernelError
from geartrain.types import Keys
from kernels.hashing import mix64
from kernels.initializer import Initializer, initial_rows
from kernels.reference.row_store import RowStore as ReferenceStore
from kernels.row_store import RowRecords, RowStore, UpdateRule
from kernels.update_rule import SPARSE_KINDS

UNIFORM = Initializer("uniform", 0.1, 5)
RULES = (
    UpdateRule(lr=0.1),
    UpdateRule(lr=0.01, l2=0.2, step_scale=0.5, divisor=64.0, eps=1e-10, step=3),
    UpdateRule(lr=1.0, divisor=0.25, beta1=0.5, beta2=0.9, eps=0.0, step=1000),
)
KEY_POOL = tuple(range(3, 40)) + EXTREME_KEYS


@dataclass(frozen=True)
class Window:
    """One call of `apply`."""

    keys: Keys
    seed: int
    rule: UpdateRule


windows = st.lists(
    st.builds(
        Window,
        st.lists(st.sampled_from(KEY_POOL) | key_values, max_size=30, unique=True).map(keys_from),
        st.integers(0, 999),
        st.sampled_from(RULES),
    ),
    max_size=4,
)


def assert_same_records(got: RowRecords, expected: RowRecords) -> None:
    for field in fields(RowRecords):
        assert_same(getattr(got, field.name), getattr(expected, field.name))


def play(store: RowStore | ReferenceStore, window: Window, version: int) -> int:
    num_keys = len(window.keys)
    grads = floats(window.seed, num_keys, store.dim)
    shows = np.ceil(np.abs(floats(window.seed + 1, num_keys)))
    return store.apply(window.keys, grads, shows, shows * np.float32(0.5), window.rule, version)


def filled(dim: int, kind: str, keys: Keys) -> RowStore:
    store = RowStore(dim, kind, UNIFORM)
    play(store, Window(keys, 1, RULES[1]), 7)
    return store


def pulled(store: RowStore, keys: Keys) -> np.ndarray:
    out = np.full((len(keys), store.dim), np.nan, dtype=np.float32)
    store.pull(keys, out)
    return out


@many
@given(windows, dims, st.sampled_from(SPARSE_KINDS), st.sampled_from(["zero", "uniform", "normal"]), seeds)
def test_store_matches_the_reference(steps: list[Window], dim: int, kind: str, initial: str, seed: int) -> None:
    initializer = Initializer(initial, 0.1, seed)
    store, reference = RowStore(dim, kind, initializer), ReferenceStore(dim, kind, initializer)
    for version, window in enumerate(steps):
        assert play(store, window, version) == play(reference, window, version)
    assert store.num_rows == reference.num_rows
    assert_same_records(store.export(), reference.export())
    keys = keys_from(list(KEY_POOL) * 2)
    expected = np.empty((len(keys), dim), dtype=np.float32)
    reference.pull(keys, expected)
    assert_same(pulled(store, keys), expected)


@few
@given(st.lists(st.sampled_from(KEY_POOL), max_size=50), st.sampled_from(SPARSE_KINDS))
def test_a_key_given_twice_is_updated_twice_in_order(values: list[int], kind: str) -> None:
    store, reference = RowStore(4, kind, UNIFORM), ReferenceStore(4, kind, UNIFORM)
    for part in (store, reference):
        play(part, Window(keys_from(values), 3, RULES[1]), 1)
    assert_same_records(store.export(), reference.export())


def test_pull_reads_initial_values_and_never_inserts() -> None:
    store = filled(6, "adagrad", keys_from([1, 2]))
    unseen = keys_from([3, 2**64 - 1, 0, 3])
    assert_same(pulled(store, unseen), initial_rows(unseen, 6, UNIFORM))
    assert store.num_rows == 2
    assert_same(pulled(store, unseen), initial_rows(unseen, 6, UNIFORM))


@pytest.mark.parametrize("kind", SPARSE_KINDS)
def test_every_optimizer_moves_a_row_and_only_that_row(kind: str) -> None:
    store = filled(5, kind, keys_from([1, 2, 3]))
    before = store.export()
    play(store, Window(keys_from([2]), 9, RULES[1]), 8)
    after = store.export()
    moved = (after.values != before.values).all(axis=1)
    assert moved.tolist() == [False, True, False]
    assert after.last_versions.tolist() == [7, 8, 7]
    assert (after.statistics != before.statistics).all(axis=1).tolist() == [False, True, False]
    if store.state_width:
        assert (after.states != before.states).all(axis=1).tolist() == [False, True, False]


def test_a_large_store_finds_every_row_after_growing() -> None:
    keys = mix64(np.arange(200_000, dtype=np.uint64))
    store = RowStore(2, "sgd", UNIFORM)
    for part in np.array_split(keys, 37):
        num_rows = len(part)
        ones = np.ones(num_rows, dtype=np.float32)
        assert store.apply(part, np.zeros((num_rows, 2), dtype=np.float32), ones, ones, RULES[0], 1) == num_rows
    assert store.num_rows == len(keys)
    records = store.export()
    assert_same(records.keys, keys)
    assert_same(records.values, initial_rows(keys, 2, UNIFORM))
    assert_same(pulled(store, keys[::-1].copy()), records.values[::-1].copy())
    row_bytes = 4 * (2 + 2 + 1)
    assert store.memory_bytes <= (row_bytes + 30) * len(keys)


def test_keys_of_one_bucket_chain_and_come_apart() -> None:
    """Keys whose hashes share their low 14 bits stay together until there are 2**14 buckets."""
    candidates = np.arange(4_000_000, dtype=np.uint64)
    together = candidates[(mix64(candidates) & np.uint64(2**14 - 1)) == 5]
    assert len(together) > 150
    store, reference = RowStore(1, "sgd", UNIFORM), ReferenceStore(1, "sgd", UNIFORM)
    for part in (store, reference):
        play(part, Window(together, 1, RULES[0]), 1)
    assert_same_records(store.export(), reference.export())
    others = np.arange(2**40, 2**40 + 60_000, dtype=np.uint64)
    play(store, Window(others, 2, RULES[0]), 2)
    expected = np.empty((len(together), 1), dtype=np.float32)
    reference.pull(together, expected)
    assert_same(pulled(store, together), expected)
    assert store.num_rows == len(together) + len(others)


@pytest.mark.parametrize("kind", SPARSE_KINDS)
@pytest.mark.parametrize("num_rows", [0, 1, 5000])
def test_records_round_trip_and_train_on(kind: str, num_rows: int) -> None:
    store = filled(3, kind, np.arange(num_rows, dtype=np.uint64))
    records = store.export()
    copy = RowStore(3, kind, UNIFORM)
    for part in np.array_split(np.arange(num_rows), 3):
        arrays = (getattr(records, field.name)[part] for field in fields(RowRecords))
        copy.load(RowRecords(*arrays))
    assert_same_records(copy.export(), records)
    for target in (store, copy):
        play(target, Window(np.arange(num_rows // 2, num_rows + 5, dtype=np.uint64), 4, RULES[2]), 9)
    assert_same_records(copy.export(), store.export())


def test_records_that_do_not_fit_are_refused_and_change_nothing() -> None:
    good = filled(3, "adam", keys_from([1, 2])).export()
    store = filled(3, "adam", keys_from([9]))
    before = store.export()
    cases = {
        "records.keys": [
            replace(good, keys=keys_from([4, 4])),
            replace(good, keys=keys_from([4, 9])),
        ],
        "records.values": [replace(good, values=floats(0, 2, 4)), replace(good, values=floats(0, 1, 3))],
        "records.states": [replace(good, states=floats(0, 2, 3)), replace(good, states=good.states[:1])],
        "records.statistics": [replace(good, statistics=floats(0, 2, 3))],
        "records.last_versions": [replace(good, last_versions=np.zeros(3, dtype=np.uint32))],
    }
    for argument, wrong in cases.items():
        for records in wrong:
            with pytest.raises(KernelError) as caught:
                store.load(records)
            assert caught.value.facts["argument"] == argument
            assert_same_records(store.export(), before)


def test_bad_arguments_are_refused_by_name() -> None:
    store, keys, ones = RowStore(3, "sgd", UNIFORM), keys_from([1, 2]), np.ones(2, dtype=np.float32)
    good = floats(0, 2, 3)
    read_only = np.empty((2, 3), dtype=np.float32)
    read_only.flags.writeable = False
    unaligned = np.frombuffer(bytes(1 + 16), dtype=np.uint8)[1:].view(np.uint64)
    cases: dict[str, Callable[[], object]] = {
        "dim": lambda: RowStore(0, "sgd", UNIFORM),
        "optimizer_kind": lambda: RowStore(3, "ftrl", UNIFORM),
        "out": lambda: store.pull(keys, read_only),
        "keys": lambda: store.pull(unaligned, np.empty((2, 3), dtype=np.float32)),
        "grads": lambda: store.apply(keys, np.asfortranarray(good), ones, ones, RULES[0], 1),
        "shows": lambda: store.apply(keys, good, ones[:1], ones, RULES[0], 1),
        "clicks": lambda: store.apply(keys, good, ones, ones.astype(np.float64), RULES[0], 1),
        "version": lambda: store.apply(keys, good, ones, ones, RULES[0], 2**32),
    }
    for argument, call in cases.items():
        with pytest.raises(KernelError) as caught:
            call()
        assert caught.value.facts["argument"] == argument
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
