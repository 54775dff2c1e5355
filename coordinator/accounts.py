"""What a job did, in numbers: samples, losses, step times, staleness; the source of its result and its time series."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from coordinator.events import Decide, StepId
from geartrain.wire.messages import Staged

NUM_LATEST = 1024
"""Steps of a worker whose times are kept: the report is made again and again while a job runs, however long."""
POINT_EVERY_S = 0.5
"""A point of the time series covers at least this much training time: short passes share one."""


@dataclass(slots=True)
class WorkerAccount:
    """Steps of one worker: samples it computed; in ms, of its latest steps, the time per step (start to start), the
    waiting in it, and what the step itself took; steps in which an emulated device was slower than it should be,
    because its host was."""

    samples: int = 0
    step_ms: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_LATEST))
    wait_ms: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_LATEST))
    busy_ms: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_LATEST))
    host_bound_steps: int = 0


@dataclass(slots=True)
class Accounts:
    """Counters of one job over its whole run; pure, times come in as arguments."""

    samples_applied: int = 0
    samples_skipped: int = 0
    num_non_finite: int = 0
    last_skip: str = ""
    staleness: dict[int, int] = field(default_factory=dict)
    workers: dict[str, WorkerAccount] = field(default_factory=dict)
    train_seconds: float = 0.0
    points: list[dict[str, Any]] = field(default_factory=list)
    last_loss: float | None = None
    probe_seconds: float = 0.0
    # A member's own time in a step over the median of its group's members in that step.
    finishing: deque[float] = field(default_factory=lambda: deque(maxlen=8 * NUM_LATEST))
    _busy_ms: dict[StepId, list[float]] = field(default_factory=dict)
    _pass_start_s: float | None = None
    _point_start_s: float = 0.0
    _point_seconds: float = 0.0
    _point_samples: int = 0
    _point_staleness: int = 0
    _point_loss: float = 0.0

    def pass_opened(self, now_s: float) -> None:
        """Training time runs from the first grant of a pass ..."""
        self._pass_start_s = self._point_start_s = now_s

    def pass_drained(self, now_s: float) -> None:
        """... to its last applied window."""
        if self._pass_start_s is not None:
            self.train_seconds += now_s - self._pass_start_s
            self._point_seconds += now_s - self._point_start_s
            self._pass_start_s = None
            self._take_loss()

    def seconds_until(self, now_s: float) -> float:
        """Training time so far, the open pass included."""
        return self.train_seconds + (now_s - self._pass_start_s if self._pass_start_s is not None else 0.0)

    def reported(self, report: Staged) -> None:
        """A member's report, counted once."""
        account = self.workers.setdefault(report.node, WorkerAccount())
        account.samples += report.num_samples
        account.step_ms.append(report.step_ms)
        account.wait_ms.append(report.wait_ms)
        account.busy_ms.append(report.busy_ms)
        account.host_bound_steps += report.host_bound
        if report.num_samples > 0:
            self._busy_ms.setdefault(StepId(report.group, report.step), []).append(report.busy_ms)

    def step_arrived(self, step: StepId) -> None:
        """All members have reported the step: how nearly did they finish together?"""
        busy_ms = self._busy_ms.pop(step, [])
        middle = median(busy_ms) if len(busy_ms) > 1 else 0.0
        if middle > 0:
            self.finishing.extend(one / middle for one in busy_ms)

    def decided(self, decision: Decide) -> None:
        """A window was decided."""
        for one in decision.contributions:
            self.samples_applied += one.arrival.num_samples
            self.staleness[one.staleness] = self.staleness.get(one.staleness, 0) + 1
            self._point_staleness = max(self._point_staleness, one.staleness)
            self._point_samples += one.arrival.num_samples
            self._point_loss += one.arrival.loss_sum
        for skipped in decision.skipped:
            self.samples_skipped += skipped.num_samples
            self.last_skip = skipped.skipped
            # A share too small for batch norm is no fault of the numbers: only steps that workers computed count.
            self.num_non_finite += bool(skipped.workers)

    def close_point(
        self, now_s: float, unix_time: float, version: int, window: Callable[[], dict[str, Any] | None]
    ) -> None:
        """Add a point to the time series if its time is over; `window` is asked for the state of the window then."""
        elapsed = self._point_seconds + now_s - self._point_start_s
        if self._pass_start_s is None or elapsed < POINT_EVERY_S or self._point_samples == 0:
            return
        self._take_loss()
        self._add_point(unix_time, version, self._point_samples / elapsed, window() or {}, auc=None)
        self._point_start_s, self._point_seconds, self._point_samples, self._point_loss = now_s, 0.0, 0, 0.0
        self._point_staleness = 0

    def evaluated(self, unix_time: float, version: int, metrics: dict[str, Any]) -> None:
        """Add a point with the AUC of an evaluation."""
        self._add_point(unix_time, version, None, {}, auc=metrics.get("auc"))

    def _take_loss(self) -> None:
        """The mean loss since the last point is the loss that is shown; a pass may be too short for a point."""
        if self._point_samples > 0:
            self.last_loss = self._point_loss / self._point_samples

    def _add_point(
        self, unix_time: float, version: int, rate: float | None, window: dict[str, Any], auc: float | None
    ) -> None:
        self.points.append(
            {
                "time": unix_time,
                "version": version,
                "samples": self.samples_applied,
                "samples_per_s": rate,
                "loss": self.last_loss,
                "auc": auc,
                "staleness": self._point_staleness,
                "queue_length": window.get("queue_length", 0),
            }
        )
