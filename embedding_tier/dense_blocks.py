"""A server's range of the flat dense vector, with its optimizer states.

The vector holds parameters, which the dense optimizer updates, and average segments (batch norm's running moments),
which follow the mean of what was pushed. P values in the whole vector, k state vectors of the optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from embedding_tier.optimizer import Optimizer
from geartrain.errors import ConfigError, ConflictError, VersionError, WireError
from geartrain.types import Floats
from geartrain.wire.framing import MAX_FRAME_BYTES
from geartrain.wire.messages import Apply, DenseSegment
from kernels.dense_update import NUM_DENSE_STATES, apply_dense
from kernels.update_rule import DENSE_KINDS, UpdateRule


class DenseGradient(NamedTuple):
    """The slices of one contribution that were pushed here, each with its start in the flat vector, and the weight."""

    slices: Sequence[tuple[int, Floats]]
    weight: float


@dataclass(frozen=True, slots=True)
class _Run:
    """Values of one kind that lie together: positions [start, stop) of the flat vector, states float32[k, n]."""

    start: int
    stop: int
    kind: str
    states: Floats


class DenseBlock:
    """Positions [start, stop) of the flat dense vector. Many readers or one writer: the caller holds the lock."""

    def __init__(self, segments: Sequence[DenseSegment], start: int, stop: int, optimizer: Optimizer) -> None:
        """Raises `WireError` when the segments do not cover the block, or it is too large to be sent in one answer.

        Raises `ConfigError` for an optimizer that only rows have.
        """
        if optimizer.kind not in DENSE_KINDS:
            raise ConfigError(
                f"dense parameters have no optimizer {optimizer.kind}",
                field="type",
                value=optimizer.kind,
                expected=[kind for kind in DENSE_KINDS if kind != "average"],
            )
        most = MAX_FRAME_BYTES // 4
        if not 0 <= stop - start <= most:
            raise WireError(f"a dense block [{start}, {stop})", expected=f"at most {most} values", got=stop - start)
        self.start = start
        self.stop = stop
        self.optimizer = optimizer
        self._values = np.zeros(stop - start, dtype=np.float32)
        self._runs = _runs(segments, start, stop, optimizer.kind)
        self._placed = start == stop

    def values(self) -> Floats:
        """A copy of the values, float32[stop - start]. Raises `ConflictError` before there are any."""
        if not self._placed:
            raise ConflictError(f"the dense values [{self.start}, {self.stop}) were not placed yet")
        return self._values.copy()

    def states(self) -> Floats:
        """A copy of the optimizer's states, float32[k, stop - start]; zero where values are averages."""
        states = np.zeros((NUM_DENSE_STATES[self.optimizer.kind], len(self._values)), dtype=np.float32)
        for run in self._runs:
            states[: len(run.states), run.start - self.start : run.stop - self.start] = run.states
        return states

    def put(self, start: int, values: Floats) -> None:
        """Set the initial values; where there are values already (it was sent again), nothing changes.

        Raises `WireError` when they are not exactly those of this block.
        """
        if start != self.start or len(values) != len(self._values):
            got = [start, start + len(values)]
            raise WireError(
                f"dense values {got} put on the server that owns [{self.start}, {self.stop})",
                expected=[self.start, self.stop],
                got=got,
            )
        if not self._placed:
            self._values[:] = values
            self._placed = True

    def restore(self, values: Floats, states: Floats) -> None:
        """Set values float32[stop - start] and states float32[k, stop - start] as they were saved."""
        self._values[:] = values
        self._placed = True
        for run in self._runs:
            run.states[:] = states[: len(run.states), run.start - self.start : run.stop - self.start]

    def summed(self, gradients: Sequence[DenseGradient]) -> Floats:
        """The weighted sum over contributions, in their order, float32[stop - start].

        Raises `VersionError` when the slices of a contribution do not cover the block exactly.
        """
        total = np.zeros(len(self._values), dtype=np.float32)
        for gradient in gradients:
            at = self.start
            for start, values in sorted(gradient.slices, key=lambda piece: piece[0]):
                if len(values) == 0:
                    continue
                if start != at or start + len(values) > self.stop:
                    raise VersionError(
                        f"the dense gradient of a decided step has {start} where {at} comes next", got=start, current=at
                    )
                at = start + len(values)
                total[start - self.start : at - self.start] += np.float32(gradient.weight) * values
            if at != self.stop:
                raise VersionError(
                    f"the dense gradient of a decided step ends at {at}, not at {self.stop}", got=at, current=self.stop
                )
        return total

    def rule(self, decision: Apply) -> UpdateRule:
        """The numbers of the update that `decision` makes here. Raises `KernelError` when they cannot be used."""
        return self.optimizer.rule(decision, decision.dense_lr)

    def apply(self, gradient: Floats, decision: Apply) -> None:
        """Update all values once from the summed gradient float32[stop - start]."""
        rule = self.rule(decision)
        for run in self._runs:
            part = slice(run.start - self.start, run.stop - self.start)
            apply_dense(self._values[part], gradient[part], run.states, run.kind, rule)


def _runs(segments: Sequence[DenseSegment], start: int, stop: int, optimizer_kind: str) -> list[_Run]:
    runs: list[_Run] = []
    at = start
    for segment in sorted(segments, key=lambda one: one.start):
        low, high = max(segment.start, start), min(segment.stop, stop)
        if low >= high:
            continue
        if low != at:
            raise WireError(f"segment {segment.name} begins at {low}, not at {at}", expected=at, got=low)
        kind = "average" if segment.kind == "average" else optimizer_kind
        at = high
        if runs and runs[-1].kind == kind:
            low = runs.pop().start
        runs.append(_Run(low, high, kind, np.zeros((NUM_DENSE_STATES[kind], high - low), dtype=np.float32)))
    if at != stop:
        raise WireError(f"the dense segments end at {at}, not at {stop}", expected=stop, got=at)
    return runs
