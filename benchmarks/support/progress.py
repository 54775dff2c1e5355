"""How far a job had come when: from the points of its time series, which tell samples applied by Unix time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Progress:
    """Samples applied over time, on a line between the points. Times are Unix times in seconds."""

    def __init__(self, begin_s: float, points: Sequence[Mapping[str, Any]]) -> None:
        """`begin_s`: when training began; `points`: at least one, with `time` and `samples`."""
        counted = [point for point in points if point["samples_per_s"] is not None]
        self._times = np.array([begin_s, *(point["time"] for point in counted)])
        self._samples = np.array([0.0, *(point["samples"] for point in counted)])

    @property
    def end_s(self) -> float:
        """The last point's time."""
        return float(self._times[-1])

    def samples_at(self, time_s: float) -> float:
        """Samples applied by then."""
        return float(np.interp(time_s, self._times, self._samples))

    def rate(self, from_s: float, to_s: float) -> float:
        """Mean samples per second in between."""
        return (self.samples_at(to_s) - self.samples_at(from_s)) / (to_s - from_s)

    def recovered_at(self, since_s: float, target_per_s: float, look_s: float) -> float | None:
        """The first point from `since_s` on from which the job has at least `target_per_s`, both in the next `look_s`
        seconds and from there to its end; None if there is none with `look_s` seconds left."""
        for time_s in self._times[(self._times >= since_s) & (self._times <= self.end_s - look_s)].tolist():
            if min(self.rate(time_s, time_s + look_s), self.rate(time_s, self.end_s)) >= target_per_s:
                return float(time_s)
        return None
