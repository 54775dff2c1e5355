"""All tables in one call do what each of them does alone, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from contract_samples import assert_same, assert_same_fields, contribution, few, keys_from
from hypothesis import given
from hypothesis import strategies as st
from table_programs import RULES, UNIFORM, life_of, records_of

from geartrain.errors import KernelError
from geartrain.types import Keys
from kernels.contribution import Contribution
from kernels.row_store import LifeCounts, RowStore
from kernels.row_stores import WorkerRows, apply_tables, pull_tables

DIM = 5
THREADS = [1, 3, 1]

key_sets = st.lists(st.integers(0, 40), max_size=30, unique=True)
workers_keys = st.lists(st.tuples(key_sets, key_sets, key_sets), max_size=3)


def stores_of_all_kinds() -> list[RowStore]:
    return [
        RowStore(DIM, "rowwise_adagrad", UNIFORM),
        RowStore(DIM, "adam", UNIFORM, life_of(("count", "score", "lfu"), max_rows=4096), "bf16"),
        RowStore(DIM, "ftrl", UNIFORM, row_dtype="fp16"),
    ]


def joined(parts: Sequence[Contribution], weight: float) -> WorkerRows:
    keys, grads, shows, clicks = (np.concatenate([part[place] for part in parts]) for place in range(4))
    return WorkerRows(keys, grads, shows, clicks, np.array([len(part.keys) for part in parts]), weight)


@few
@given(st.lists(workers_keys, min_size=1, max_size=3))
def test_windows_of_all_tables_match_windows_of_each(windows: list[list[tuple[list[int], ...]]]) -> None:
    together, alone = stores_of_all_kinds(), stores_of_all_kinds()
    for version, workers in enumerate(windows, start=1):
        weights = [0.9**number for number in range(len(workers))]
        parts = [
            [contribution(keys_from(keys), DIM, 10 * version + table, weight) for table, keys in enumerate(tables)]
            for tables, weight in zip(workers, weights, strict=True)
        ]
        rules = [RULES[(version + table) % len(RULES)] for table in range(3)]
        rows = [joined(tables, weight) for tables, weight in zip(parts, weights, strict=True)]
        lives = apply_tables(together, rows, rules, version, THREADS)
        for table, store in enumerate(alone):
            life = store.apply([tables[table] for tables in parts], rules[table], version, THREADS[table])
            assert LifeCounts(*lives[table].tolist()) == life
    for one, other in zip(together, alone, strict=True):
        assert_same_fields(records_of(one), records_of(other))


@few
@given(st.tuples(key_sets, key_sets, key_sets))
def test_a_pull_of_all_tables_matches_pulls_of_each(tables: tuple[list[int], ...]) -> None:
    stores = stores_of_all_kinds()
    born = keys_from(range(0, 40, 2))
    for store in stores:
        store.apply([contribution(born, DIM, 3, shows=50.0)], RULES[0], 1)
    keys = [keys_from(values) for values in tables]
    out = np.full((sum(map(len, keys)), DIM), np.nan, dtype=np.float32)
    pull_tables(stores, np.concatenate(keys), np.array([len(one) for one in keys]), out)
    expected = [np.empty((len(one), DIM), dtype=np.float32) for one in keys]
    for store, one, rows in zip(stores, keys, expected, strict=True):
        store.pull(one, rows)
    assert_same(out, np.concatenate(expected))


def test_no_tables_have_no_rows() -> None:
    nothing = np.empty(0, dtype=np.int64)
    pull_tables([], keys_from([]), nothing, np.empty((0, 0), dtype=np.float32))
    assert apply_tables([], [], [], 1, []).shape == (0, 3)


def test_bad_arguments_are_refused_by_name() -> None:
    stores = stores_of_all_kinds()
    keys: Keys = keys_from([1, 2, 1])
    counts, out = np.array([2, 0, 1]), np.empty((3, DIM), dtype=np.float32)
    good = joined([contribution(keys[:2], DIM, 0), contribution(keys[:0], DIM, 0), contribution(keys[2:], DIM, 0)], 1.0)
    rules = [RULES[0]] * 3

    def pull(counts: object) -> None:
        pull_tables(stores, keys, counts, out)  # type: ignore[arg-type]

    def apply(**changes: object) -> object:
        return apply_tables(stores, [good, good._replace(**changes)], rules, 1, THREADS)  # type: ignore[arg-type]

    cases: list[tuple[str, Callable[[], object]]] = [
        ("counts", lambda: pull(counts[:2])),
        ("counts", lambda: pull(np.array([2, 0, 2]))),
        ("counts", lambda: pull(np.array([4, -2, 1]))),
        ("counts", lambda: pull(np.array([2**63 - 1, 2**63 - 1, 5]))),  # 3 in 64 bits
        ("counts", lambda: pull(counts.astype(np.int32))),
        ("out", lambda: pull_tables(stores, keys, counts, out[:, :4].copy())),
        ("stores", lambda: pull_tables([*stores, RowStore(3, "sgd", UNIFORM)], keys, np.array([2, 0, 1, 0]), out)),
        ("workers[1].keys", lambda: apply(keys=keys.astype(np.int64))),
        ("workers[1].grads", lambda: apply(grads=good.grads[:2])),
        ("workers[1].shows", lambda: apply(shows=good.shows[:1])),
        ("workers[1].clicks", lambda: apply(clicks=good.clicks.astype(np.float64))),
        ("workers[1].counts", lambda: apply(counts=np.array([2, 1, 1]))),
        ("workers[1].weight", lambda: apply(weight=float("inf"))),
        ("version", lambda: apply_tables(stores, [good], rules, 2**32, THREADS)),
        ("rules", lambda: apply_tables(stores, [good], rules[:2], 1, THREADS)),
        ("num_threads", lambda: apply_tables(stores, [good], rules, 1, [1, 0, 1])),
        ("num_threads", lambda: apply_tables(stores, [good], rules, 1, [1, 1])),
    ]
    for argument, call in cases:
        with pytest.raises(KernelError) as caught:
            call()
        assert caught.value.facts["argument"] == argument
    assert all(store.num_rows == 0 for store in stores)
