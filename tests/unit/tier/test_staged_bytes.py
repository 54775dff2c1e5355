"""Bytes that are staged, table by table: what was pushed for each, until its window is applied."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from embedding_tier.dense_blocks import DenseBlock
from embedding_tier.job_state import JobState
from embedding_tier.optimizer import Optimizer
from geartrain.wire.framing import StagedArrays
from geartrain.wire.messages import Apply, Contribution, DenseSegment, Origin, Stage, TableSpec

DIM = 5
ROW_BYTES = 8 + 4 * DIM + 4 + 4
NUM_DENSE = 6
SPECS = [TableSpec(name, DIM, {"type": "sgd"}, {"type": "zero"}, 1) for name in ("a", "b", "c")]


@pytest.fixture
def job() -> JobState:
    job = JobState(term=1, tables=SPECS, version=0, pipeline_depth=1)
    segments = [DenseSegment("w", (NUM_DENSE,), 0, NUM_DENSE, "parameter")]
    job.dense = DenseBlock(segments, 0, NUM_DENSE, Optimizer.from_config({"type": "sgd"}))
    job.put_dense(0, np.zeros(NUM_DENSE, dtype=np.float32))
    return job


def push(job: JobState, counts: list[int], worker: str = "w0", step: int = 0, num_dense: int = NUM_DENSE) -> None:
    ones = np.ones(sum(counts), dtype=np.float32)
    keys = np.arange(len(ones), dtype=np.uint64)
    grads = np.ones((len(ones), DIM), dtype=np.float32)
    message = Stage(Origin("t", 1, 1, worker, 1, 1, 1.0), 0, step, counts, 0, num_dense)
    job.stage(message, StagedArrays(keys, grads, ones, ones * 0, np.ones(num_dense, dtype=np.float32)))


def staged(job: JobState) -> tuple[list[int], int]:
    """Of each table, and of the server."""
    tables, num_bytes = job.stats()
    assert list(tables) == [spec.name for spec in SPECS]
    return [table.staged_bytes for table in tables.values()], num_bytes


def test_each_table_tells_its_own_and_the_server_all(job: JobState) -> None:
    assert staged(job) == ([0, 0, 0], 0)
    push(job, [3, 0, 1])
    push(job, [0, 0, 0], worker="w1", num_dense=0)
    push(job, [2, 7, 0], worker="w2", num_dense=0)
    assert staged(job) == ([5 * ROW_BYTES, 7 * ROW_BYTES, ROW_BYTES], 13 * ROW_BYTES + 4 * NUM_DENSE)


def test_a_window_takes_what_it_applies(job: JobState) -> None:
    push(job, [3, 0, 1])
    push(job, [0, 4, 0], step=1)
    decision = Apply(1, 1, [Contribution(0, 0, ["w0"], 1, 1.0)], 1.0, 1.0, 1.0, 1.0, dict.fromkeys("abc", 1.0), [0])
    assert job.decide(decision) == 1
    assert staged(job) == ([0, 4 * ROW_BYTES, 0], 4 * ROW_BYTES + 4 * NUM_DENSE)


def test_they_are_told_also_while_a_window_is_applied(job: JobState) -> None:
    push(job, [3, 0, 1])
    with ThreadPoolExecutor(1) as pool, job.lock.writing():
        assert pool.submit(staged, job).result(timeout=30)[0] == [3 * ROW_BYTES, 0, ROW_BYTES]
