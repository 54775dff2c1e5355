"""Batches for probes: the rows that were asked for, whole, and of unlike numbers of tokens."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dense_workers.prefetch import BatchPlanner
from dense_workers.probe_batches import ProbeBatches, select
from geartrain.data.batch import Batch
from geartrain.errors import DataFileError
from geartrain.types import NUM_SHARDS
from geartrain.wire.messages import Route


def batch_of(bags: list[list[list[int]]], one_key_bags: bool = False) -> Batch:
    """A batch whose `bags[slot][sample]` are the keys; label and numeric value of a sample are its number."""
    num_samples = len(bags[0])
    lengths = [len(bag) for slot in bags for bag in slot]
    return Batch(
        labels=np.arange(num_samples, dtype=np.float32),
        numeric=np.arange(num_samples, dtype=np.float32)[:, None],
        keys=np.array([key for slot in bags for bag in slot for key in bag], dtype=np.uint64),
        bag_offsets=np.cumsum([0, *lengths], dtype=np.int32),
        group_ids=np.arange(num_samples, dtype=np.uint64) + np.uint64(100),
        one_key_bags=one_key_bags,
    )


def bags_in(batch: Batch, num_slots: int) -> list[list[list[int]]]:
    def bag(place: int) -> list[int]:
        return batch.keys[batch.bag_offsets[place] : batch.bag_offsets[place + 1]].tolist()

    return [[bag(slot * batch.num_samples + one) for one in range(batch.num_samples)] for slot in range(num_slots)]


@st.composite
def batches_and_rows(draw: st.DrawFn) -> tuple[list[list[list[int]]], list[int]]:
    num_samples, num_slots = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    bag = st.lists(st.integers(0, 2**64 - 1), max_size=3)
    slot = st.lists(bag, min_size=num_samples, max_size=num_samples)
    bags = draw(st.lists(slot, min_size=num_slots, max_size=num_slots))
    return bags, draw(st.lists(st.integers(0, num_samples - 1), max_size=8))


@given(batches_and_rows())
def test_a_selection_has_these_samples_in_this_order(drawn: tuple[list[list[list[int]]], list[int]]) -> None:
    bags, rows = drawn
    selected = select(batch_of(bags), np.array(rows, dtype=np.int64))
    assert selected.labels.tolist() == rows
    assert selected.numeric[:, 0].tolist() == rows
    assert selected.group_ids is not None and selected.group_ids.tolist() == [100 + row for row in rows]
    assert bags_in(selected, len(bags)) == [[slot[row] for row in rows] for slot in bags]
    assert (selected.keys.dtype, selected.bag_offsets.dtype) == (np.uint64, np.int32)


def test_a_selection_is_known_to_have_one_key_a_bag_where_all_have() -> None:
    bags = [[[1], [2]], [[3], [4]]]
    rows = np.array([1], dtype=np.int64)
    assert select(batch_of(bags, one_key_bags=True), rows).pooling_offsets is None
    assert select(batch_of(bags), rows).pooling_offsets is not None


def test_a_selection_from_a_batch_without_slots() -> None:
    batch = Batch(
        np.ones(3, np.float32), np.ones((3, 2), np.float32), np.empty(0, np.uint64), np.zeros(1, np.int64), None
    )
    selected = select(batch, np.array([2, 0], dtype=np.int64))
    assert (selected.num_samples, selected.bag_offsets.tolist(), selected.group_ids) == (2, [0], None)


NUM_ROWS = 40


@pytest.fixture
def batches() -> ProbeBatches:
    """40 rows: a user each, and a history of row % 10 items."""
    users = [[row] for row in range(NUM_ROWS)]
    histories = [[1000 + row] * (row % 10) for row in range(NUM_ROWS)]
    schema = SimpleNamespace(slot_tables=np.array([0, 1], dtype=np.int64), table_names=("user", "item"))
    planner = BatchPlanner(schema, Route(1, ["s0"], ["ipc://s0"], [0] * NUM_SHARDS))
    return ProbeBatches(batch_of([users, histories]), np.array([1], dtype=np.int64), planner)


def test_batches_walk_through_the_rows_and_begin_again(batches: ProbeBatches) -> None:
    for expected in (range(15), range(15, 30), [*range(30, 40), *range(5)], range(5, 20)):
        planned, num_tokens = batches.take(15)
        assert planned.batch.labels.tolist() == list(expected)
        assert num_tokens == sum(row % 10 for row in expected)
        assert num_tokens == planned.batch.num_values(np.array([1]))
    assert batches.take(NUM_ROWS)[0].batch.num_samples == NUM_ROWS


def test_a_plan_has_the_keys_of_its_batch_once(batches: ProbeBatches) -> None:
    planned, _ = batches.take(4)
    assert sorted(planned.plan.unique_keys.tolist()) == [0, 1, 2, 3, 1001, 1002, 1003]
    assert planned.plan.counts.tolist() == [[4, 3]]


def test_batches_of_alike_rows_differ_in_tokens(batches: ProbeBatches) -> None:
    taken = [batches.take_alike(8) for _ in range(20)]
    tokens = [num_tokens for _, num_tokens in taken]
    assert all(planned.batch.num_samples == 8 for planned, _ in taken)
    assert min(tokens) <= 8 * 2 and max(tokens) >= 8 * 7
    for planned, num_tokens in taken:
        lengths = [int(label) % 10 for label in planned.batch.labels]
        assert sum(lengths) == num_tokens and max(lengths) - min(lengths) <= 2
    assert batches.take_alike(NUM_ROWS)[1] == sum(row % 10 for row in range(NUM_ROWS))


def test_what_alike_batches_tell_of_tokens_does_not_move_the_others(batches: ProbeBatches) -> None:
    batches.take(10)
    batches.take_alike(8)
    assert batches.take(2)[0].batch.labels.tolist() == [10, 11]
    assert batches.has_tokens


def test_a_split_without_rows_is_refused_by_name() -> None:
    reader = SimpleNamespace(chunk_rows=[0], schema=None)
    with pytest.raises(DataFileError, match="no rows"):
        ProbeBatches.read(reader, None, 1, True, 100)  # type: ignore[arg-type]
