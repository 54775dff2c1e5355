"""Decisions: in order, once each, complete or not at all; contributions summed in the decision's order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from embedding_tier.dense_blocks import DenseBlock
from embedding_tier.job_state import JobState
from embedding_tier.optimizer import Optimizer
from geartrain.errors import ConflictError, VersionError, WireError
from geartrain.types import Floats
from geartrain.wire.framing import StagedArrays
from geartrain.wire.messages import Apply, Contribution, DenseSegment, Origin, Stage, TableSpec

DIM = 2
SPECS = [TableSpec(name, DIM, {"type": "sgd"}, {"type": "zero"}, 1) for name in ("a", "b")]


@pytest.fixture
def job() -> JobState:
    return JobState(term=1, tables=SPECS, version=0, pipeline_depth=1)


def push(job: JobState, worker: str, keys: list[int], value: float, group: int = 0, step: int = 0) -> None:
    """Stage gradients `value` for `keys` of table a; the dense slice is empty."""
    ones = np.ones(len(keys), dtype=np.float32)
    grads = np.full((len(keys), DIM), value, dtype=np.float32)
    message = Stage(Origin("t", 1, 1, worker, 1, 1, 1.0), group, step, [len(keys), 0], 0, 0)
    job.stage(message, StagedArrays(np.array(keys, dtype=np.uint64), grads, ones, ones * 0, ones[:0]))


def apply_of(version: int, *contributions: Contribution, divisor: float = 1.0) -> Apply:
    return Apply(1, version, list(contributions), divisor, 1.0, 1.0, 1.0, {"a": 1.0, "b": 1.0}, [0, 1])


def one(workers: list[str], group: int = 0, step: int = 0, weight: float = 1.0) -> Contribution:
    return Contribution(group, step, workers, 1, weight)


def rows(job: JobState, keys: list[int]) -> Floats:
    return job.pull_rows(np.array(keys, dtype=np.uint64), [len(keys), 0])[0]


def test_an_early_decision_waits_for_its_turn_and_a_repeated_one_does_nothing(job: JobState) -> None:
    for step in range(3):
        push(job, "w0", [7], 1.0, step=step)
    assert job.decide(apply_of(3, one(["w0"], step=2))) == 0
    assert job.decide(apply_of(2, one(["w0"], step=1))) == 0
    np.testing.assert_array_equal(rows(job, [7]), [[0, 0]])
    assert job.decide(apply_of(1, one(["w0"], step=0))) == 3
    np.testing.assert_array_equal(rows(job, [7]), [[-3, -3]])
    for version in (1, 2, 3):
        assert job.decide(apply_of(version, one(["w0"], step=version - 1))) == 3
    np.testing.assert_array_equal(rows(job, [7]), [[-3, -3]])


def test_a_missing_contribution_is_named_and_nothing_is_applied(job: JobState) -> None:
    push(job, "w0", [7], 1.0)
    with pytest.raises(VersionError, match="step 0 of group 0 was decided, but what w1 computed") as missing:
        job.decide(apply_of(1, one(["w0", "w1"])))
    assert missing.value.facts["worker"] == "w1"
    np.testing.assert_array_equal(rows(job, [7]), [[0, 0]])
    push(job, "w1", [7], 2.0)
    assert job.decide(apply_of(1, one(["w0", "w1"]))) == 1
    np.testing.assert_array_equal(rows(job, [7]), [[-3, -3]])


def test_one_key_from_two_workers_is_summed_with_weights_and_divided(job: JobState) -> None:
    push(job, "w0", [7, 8], 1.0)
    push(job, "w1", [8, 9], 2.0)
    push(job, "w2", [9], 4.0, group=1)
    job.decide(apply_of(1, one(["w0", "w1"]), one(["w2"], group=1, weight=0.5), divisor=2.0))
    np.testing.assert_array_equal(rows(job, [7, 8, 9, 10])[:, 0], [-0.5, -1.5, -2.0, 0.0])
    stats, staged_bytes = job.stats()
    assert (stats["a"].num_rows, stats["a"].num_admitted, stats["a"].push_rows) == (3, 3, 5)
    assert staged_bytes == 0


def test_the_order_of_staging_does_not_matter() -> None:
    results = []
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        job = JobState(term=1, tables=SPECS, version=0, pipeline_depth=0)
        for number in order:
            push(job, f"w{number}", [7, 8], (0.1, 1e8, -1e8)[number])
        job.decide(apply_of(1, one(["w0", "w1", "w2"])))
        results.append(rows(job, [7, 8]).tobytes())
    assert len(set(results)) == 1


def test_a_window_without_samples_moves_the_version_only(job: JobState) -> None:
    push(job, "w0", [], 0.0)
    assert job.decide(apply_of(1, one(["w0"]), divisor=0.0)) == 1
    assert job.decide(apply_of(2)) == 2
    assert job.stats()[0]["a"].num_rows == 0


def test_a_decision_without_a_learning_rate_is_refused(job: JobState) -> None:
    push(job, "w0", [7], 1.0)
    decision = Apply(1, 1, [one(["w0"])], 1.0, 1.0, 1.0, 1.0, {"b": 1.0}, [0])
    with pytest.raises(VersionError, match="table a"):
        job.decide(decision)


def test_a_dense_slice_that_is_missing_stops_the_window_before_any_row_changes(job: JobState) -> None:
    segments = [DenseSegment("w", (2,), 0, 2, "parameter")]
    job.dense = DenseBlock(segments, 0, 2, Optimizer.from_config({"type": "sgd"}))
    job.put_dense(0, np.zeros(2, dtype=np.float32))
    push(job, "w0", [7], 1.0)
    with pytest.raises(VersionError, match="ends at 0"):
        job.decide(apply_of(1, one(["w0"])))
    np.testing.assert_array_equal(rows(job, [7]), [[0, 0]])
    assert job.version == 0


def test_a_dense_gradient_that_is_not_finite_is_refused_before_it_is_kept(job: JobState) -> None:
    job.dense = DenseBlock([DenseSegment("w", (2,), 0, 2, "parameter")], 0, 2, Optimizer.from_config({"type": "sgd"}))
    none = np.empty(0, dtype=np.float32)
    message = Stage(Origin("t", 1, 1, "w0", 1, 1, 1.0), 0, 0, [0, 0], 0, 0)
    for value in (np.nan, np.inf, -np.inf):
        dense = np.array([1.0, value], dtype=np.float32)
        with pytest.raises(WireError, match="dense gradient") as refused:
            job.stage(message, StagedArrays(none.astype(np.uint64), none.reshape(0, DIM), none, none, dense))
        assert refused.value.facts["field"] == "dense"
    assert job.wants(message)


def test_pulls_never_insert_and_dense_calls_need_a_block(job: JobState) -> None:
    rows(job, [1, 2, 3])
    assert job.stats()[0]["a"].num_rows == 0
    with pytest.raises(ConflictError):
        job.pull_dense()
    with pytest.raises(ConflictError):
        job.put_dense(0, np.zeros(1, dtype=np.float32))


def test_tables_of_unlike_dim_are_refused() -> None:
    with pytest.raises(WireError, match=r"\[2, 3\]"):
        JobState(1, [SPECS[0], TableSpec("c", 3, {"type": "sgd"}, {"type": "zero"}, 1)], 0, 0)


def test_counters_are_told_while_a_window_is_applied(job: JobState) -> None:
    push(job, "w0", [7], 1.0)
    before = job.stats()
    assert before[0]["a"].push_rows == 1
    push(job, "w0", [8], 1.0, step=1)
    with ThreadPoolExecutor(1) as pool, job.lock.writing():
        assert pool.submit(job.stats).result(timeout=30)[0]["a"].push_rows == 1
    assert job.stats()[0]["a"].push_rows == 2


def test_counters_go_on_when_the_job_goes_back_to_a_checkpoint() -> None:
    before, after = (JobState(term=term, tables=SPECS, version=0, pipeline_depth=1) for term in (1, 2))
    before.rows.counters.applied(np.array([[7, 2, 1], [0, 0, 0]]))
    after.go_on_counting(before)
    (stats, _) = after.stats()
    assert stats[after.tables[0].name].num_admitted == 7
    assert stats[after.tables[0].name].num_evicted == 1
