"""Scoring a split of the data on a pinned version: evaluation and prediction. It leaves no trace on the servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dense_workers.prefetch import BatchPlanner
from dense_workers.step import StepRunner
from embedding_tier.client import TierClient
from geartrain.data.permutation import PassOrder
from geartrain.data.reader import SplitReader
from geartrain.errors import VersionError
from geartrain.wire.messages import Evaluate, Scores

BATCH_ROWS = 8192
"""Rows scored at a time: bounds the memory of scoring, whatever the size of the split."""
MESSAGE_ROWS = 500_000
"""Rows whose scores go into one message (13 bytes each)."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores rows in file order with the worker's model, pulling through `client` (used by one thread)."""

    runner: StepRunner
    planner: BatchPlanner
    client: TierClient
    num_params: int

    def run(self, task: Evaluate, reader: SplitReader, node: str) -> Iterator[Scores]:
        """Yields the scores of rows [task.start, task.stop) in order, in messages of bounded size.

        Raises `VersionError` when a server has another version than the pinned one.
        """
        dense = np.empty(self.num_params, dtype=np.float32)
        _check_pinned(self.client.pull_dense(task.version, dense), task)
        self.runner.load_dense(dense)
        order = PassOrder(reader.chunk_rows, 0, 0, False)
        for start in range(task.start, task.stop, MESSAGE_ROWS):
            yield self._message(task, reader, order, start, min(start + MESSAGE_ROWS, task.stop), node)

    def _message(
        self, task: Evaluate, reader: SplitReader, order: PassOrder, start: int, stop: int, node: str
    ) -> Scores:
        scores, labels, groups = [], [], []
        for at in range(start, stop, BATCH_ROWS):
            planned = self.planner.plan(reader.batch(order, at, min(at + BATCH_ROWS, stop)))
            rows = np.empty((len(planned.plan.unique_keys), self.client.row_dim), dtype=np.float32)
            _check_pinned(self.client.pull(planned.plan.unique_keys, planned.plan.counts, task.version, rows), task)
            scores.append(self.runner.score(planned, rows))
            labels.append(planned.batch.labels.astype(np.uint8))
            if planned.batch.group_ids is not None:
                groups.append(planned.batch.group_ids)
        return Scores(
            node=node,
            term=task.term,
            evaluation=task.evaluation,
            start=start,
            stop=stop,
            scores=np.concatenate(scores).tobytes(),
            labels=np.concatenate(labels).tobytes(),
            group_ids=np.concatenate(groups).tobytes() if groups else b"",
        )


def _check_pinned(version: int, task: Evaluate) -> None:
    if version != task.version:
        raise VersionError(
            f"evaluation {task.evaluation} is pinned to version {task.version}, the servers answered with {version}",
            got=version,
            current=task.version,
        )
