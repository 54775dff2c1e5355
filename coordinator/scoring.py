"""Collecting the scores of a split from the workers that share its rows."""

from __future__ import annotations

from geartrain.errors import StaleMessageError, WireError
from geartrain.types import Interval
from geartrain.wire.messages import Evaluate, Scores


class ScoreCollector:
    """One evaluation: which worker scores which rows, and what has come back. Pure."""

    def __init__(
        self, term: int, evaluation: int, split: str, num_rows: int, workers: list[str], labeled: bool = True
    ) -> None:
        self.evaluation = evaluation
        self.split = split
        self.num_rows = num_rows
        self._term = term
        self._labeled = labeled
        bounds = [num_rows * part // len(workers) for part in range(len(workers) + 1)]
        self._shares = {worker: Interval(0, bounds[i], bounds[i + 1]) for i, worker in enumerate(workers)}
        self._next = {worker: share.start for worker, share in self._shares.items()}
        self._scores: list[Scores] = []

    def tasks(self, version: int) -> dict[str, Evaluate]:
        """What each worker with rows has to score, at the pinned version."""
        return {
            worker: Evaluate(self._term, self.evaluation, self.split, share.start, share.stop, version, self._labeled)
            for worker, share in self._shares.items()
            if share.num_samples > 0
        }

    def handle(self, scores: Scores) -> bool:
        """Take a part; a worker sends its rows in order, without holes. Whether the worker has sent all of its rows.

        A part that was here before (the task may have reached the worker twice) changes nothing.
        """
        if scores.evaluation != self.evaluation:
            raise StaleMessageError(
                f"scores of evaluation {scores.evaluation} from {scores.node}, now is {self.evaluation}",
                got=scores.evaluation,
                current=self.evaluation,
            )
        share = self._shares.get(scores.node)
        if share is not None and share.start <= scores.start < scores.stop <= self._next[scores.node]:
            return self._next[scores.node] == share.stop
        rows = scores.stop - scores.start
        in_order = (
            share is not None and scores.start == self._next[scores.node] and 0 < rows <= share.stop - scores.start
        )
        if share is None or not in_order or len(scores.scores) != 4 * rows or len(scores.labels) != rows:
            raise WireError(
                f"{scores.node} sent {len(scores.scores)} bytes of scores for rows [{scores.start}, {scores.stop})",
                expected=f"rows from {self._next.get(scores.node)} to at most {share.stop if share else None}",
                got=[scores.start, scores.stop],
            )
        self._next[scores.node] = scores.stop
        self._scores.append(scores)
        return scores.stop == share.stop

    @property
    def complete(self) -> bool:
        return all(self._next[worker] == share.stop for worker, share in self._shares.items())

    @property
    def parts(self) -> tuple[Scores, ...]:
        """All parts in the order of rows."""
        return tuple(sorted(self._scores, key=lambda part: part.start))
