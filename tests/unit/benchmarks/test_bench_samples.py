from __future__ import annotations

import numpy as np

from benchmarks.kernels import lines_per_row
from benchmarks.support.kernel_rounds import Batches
from benchmarks.support.samples import DIM, uniform_ids, uniform_keys, zipf_ids
from kernels.initializer import Initializer
from kernels.row_store import RowStore
from kernels.update_rule import SPARSE_KINDS


def test_uniform_ids_come_once() -> None:
    batches = uniform_ids(1000, 300, 1)
    assert [len(batch) for batch in batches] == [300] * 3
    together = np.concatenate(batches)
    assert len(np.unique(together)) == 900
    assert together.min() >= 0
    assert together.max() < 1000
    assert len(np.unique(uniform_keys(0, 1000))) == 1000


def test_zipf_ids_fall_off_by_rank() -> None:
    batches = zipf_ids(10_000, 20_000, 3, 1)
    assert [len(batch) for batch in batches] == [20_000] * 3
    counts = np.sort(np.bincount(np.concatenate(batches), minlength=10_000))[::-1]
    assert len(counts) == 10_000
    # 60,000 draws; the weights sum to 7.9 at exponent 1.05, so the first id has 12.6% of them.
    assert 0.11 < counts[0] / 60_000 < 0.14
    assert 1.8 < counts[0] / counts[1] < 2.4


def test_batches_are_dealt_out_whole_and_what_is_left_is_cut() -> None:
    keys = uniform_keys(0, 50)
    batches = Batches([np.arange(at, at + 10) for at in range(0, 50, 10)], keys)
    first, second = batches.parts(2)
    assert [len(part) for part in first] == [10, 10, 5]
    assert [len(part) for part in second] == [10, 10, 5]
    assert set(np.concatenate([*first, *second]).tolist()) == set(keys.tolist())
    assert batches.size == 50


def test_equal_ids_visit_equal_lines() -> None:
    batches = Batches([np.array([3, 4, 3]), np.array([4, 5, 6])], uniform_keys(0, 10))
    numbers = batches.line_numbers(1000)
    assert numbers[0] == numbers[2]
    assert numbers[1] == numbers[3]
    assert len(set(numbers.tolist())) == 4


def test_distinct_ids_keep_their_order() -> None:
    batches = Batches([np.array([7, 3, 7, 1, 3]), np.array([2, 2])], uniform_keys(0, 10))
    distinct = batches.distinct()
    assert [batch.tolist() for batch in distinct.ids] == [[7, 3, 1], [2]]
    assert distinct.size == 4
    assert distinct.keys[0].tolist() == uniform_keys(0, 10)[[7, 3, 1]].tolist()


def test_lines_of_an_update() -> None:
    """The index's line, and those that 16 values and the state fill."""
    stores = {kind: RowStore(DIM, kind, Initializer("zero", 0.0, 0)) for kind in SPARSE_KINDS}
    assert {kind: lines_per_row(store.state_width) for kind, store in stores.items()} == {
        "sgd": 2,
        "adagrad": 3,
        "rowwise_adagrad": 2,
        "adam": 4,
        "rowwise_adam": 3,
        "ftrl": 4,
    }
