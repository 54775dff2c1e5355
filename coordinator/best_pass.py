"""The best pass of a run: which it is, whether early stopping has run out of patience, where its cut is. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator.checkpoints import BestSoFar, Manifest
from coordinator.cuts import cut_name
from coordinator.schedule import is_better
from geartrain.config import JobConfig
from geartrain.config.training import EarlyStopping


class BestPass:
    """The pass with the best metric so far, and whether early stopping has run out of patience."""

    def __init__(self, stopping: EarlyStopping | None) -> None:
        self._stopping = stopping
        self._value: float | None = None
        self._without_gain = 0
        self.pass_index = 0
        self.version: int | None = None
        self.metrics: dict[str, Any] = {}

    @staticmethod
    def resumed(stopping: EarlyStopping | None, manifest: Manifest) -> BestPass:
        """What the run that a checkpoint belongs to knew. Its best counts if it was chosen by the same metric."""
        best = BestPass(stopping)
        if stopping is None:
            best.passed(manifest.passes_done - 1, manifest.version, manifest.metrics)
        elif _knows_best(stopping, manifest):
            known = manifest.best
            best._value, best._without_gain = known.value, known.without_gain
            best.pass_index, best.version, best.metrics = known.pass_index, known.version, known.metrics
        return best

    def passed(self, pass_index: int, version: int, metrics: dict[str, Any]) -> bool:
        """Account for a pass; whether it is the best so far. Without early stopping the last pass counts."""
        stopping = self._stopping
        value = metrics.get(stopping.metric) if stopping is not None else None
        if stopping is not None and value is not None and is_better(stopping.metric, value, self._value):
            self._value, self._without_gain = value, 0
        elif stopping is not None:
            self._without_gain += 1
            if self._value is not None:
                return False
        # The best; or, as long as no pass had a value that can be compared, the last.
        self.pass_index, self.version, self.metrics = pass_index, version, metrics
        return True

    @property
    def metric(self) -> str | None:
        """What the best pass is the best by; None while it is just the last one."""
        return self._stopping.metric if self._stopping is not None and self._value is not None else None

    @property
    def exhausted(self) -> bool:
        return self._stopping is not None and self._without_gain >= self._stopping.patience

    @property
    def reason(self) -> str:
        """Why early stopping stops, once it is `exhausted`."""
        stopping = self._stopping
        if stopping is None:
            return "there is no early stopping"
        gain = "had no value" if self._value is None else f"did not improve on {self._value}"
        return f"{stopping.metric} {gain} for {self._without_gain} pass(es), patience is {stopping.patience}"

    def to_dict(self) -> BestSoFar:
        """For the manifest."""
        return BestSoFar(self.pass_index, self.version, self.metrics, self._value, self._without_gain)


def best_cut(checkpoint: Path, manifest: Manifest, config: JobConfig) -> Path:
    """Where the best pass of a checkpoint's run was cut: there, or beside it."""
    stopping = config.training.early_stopping
    best = manifest.best
    if stopping is None or not _knows_best(stopping, manifest) or best.version in (None, manifest.version):
        return checkpoint
    return checkpoint.with_name(cut_name(best.pass_index, best.version))


def _knows_best(stopping: EarlyStopping, manifest: Manifest) -> bool:
    trained = JobConfig.from_resolved(manifest.config).training.early_stopping
    return manifest.best.value is not None and trained is not None and trained.metric == stopping.metric
