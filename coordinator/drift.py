"""Whether a worker still needs the time that is predicted for it: from the ratios of its steps, robustly. Pure.

A ratio is the measured time of a step over the predicted one. Two rules look at them, and both go by medians, so that
a few slow steps say nothing: drift is seen within some tens of steps, a small deviation when there are many.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from statistics import median
from typing import NamedTuple

NUM_RECENT = 16
CHECK_EVERY_STEPS = 8
DRIFT = 0.15
"""Drift is a median of the recent ratios further from 1 than this, at two checks in a row."""
SMALL = 0.03
"""A deviation that is not larger than this is not worth new shares."""
DRIFT_ERRORS = 4.0
"""Neither is it drift within so many standard errors of the median: chance does that, on a noisy machine."""
SMALL_ERRORS = 6.0
"""As much for small deviations: there is no second check, and thousands of steps are looked at."""

SETTLED = 0.01
"""The first look, after `NUM_RECENT` steps: probes are smaller than steps, and what they let expect is off a little."""
SETTLED_ERRORS = 4.0


class Verdict(NamedTuple):
    """The worker needs `factor` times the predicted time. `deviation`: MAD of the ratios over their median."""

    factor: float
    deviation: float
    reason: str


class RatioWatch:
    """The latest ratios of one worker to one prediction: after a verdict, a new prediction begins with a new watch.

    A prediction that does not come from steps (`unsettled`) gets an early first look.
    """

    def __init__(self, refresh_every_steps: int, unsettled: bool = False) -> None:
        self._unsettled = unsettled
        self._refresh_every_steps = refresh_every_steps
        self._ratios: deque[float] = deque(maxlen=max(refresh_every_steps, NUM_RECENT))
        self._num_steps = 0
        self._last_drift = 0

    @property
    def num_steps(self) -> int:
        """Steps that were taken in."""
        return self._num_steps

    def add(self, ratio: float) -> Verdict | None:
        """Take in one step; the verdict, when the prediction must change."""
        self._ratios.append(ratio)
        self._num_steps += 1
        if len(self._ratios) < NUM_RECENT:
            return None
        verdict = self._check_drift() if self._num_steps % CHECK_EVERY_STEPS == 0 else None
        if verdict is None and self._unsettled and self._num_steps == NUM_RECENT:
            verdict = self._refresh(SETTLED, SETTLED_ERRORS)
            if verdict is not None and abs(verdict.factor - 1.0) > DRIFT:
                verdict = None  # so much is drift, or a hiccup: that rule looks twice
        if verdict is None and self._num_steps % self._refresh_every_steps == 0:
            verdict = self._refresh(SMALL, SMALL_ERRORS)
        return verdict

    def _check_drift(self) -> Verdict | None:
        old = list(islice(self._ratios, len(self._ratios) - NUM_RECENT))
        recent = list(islice(self._ratios, len(old), None))
        middle = median(recent)
        # The noise is that of the steps before: among the recent ones it cannot be told from the drift itself.
        noise = _standard_error(_deviation(old), NUM_RECENT) if len(old) >= NUM_RECENT else 0.0
        is_off = abs(middle - 1.0) > max(DRIFT, DRIFT_ERRORS * noise)
        drift = 0 if not is_off else 1 if middle > 1.0 else -1
        before, self._last_drift = self._last_drift, drift
        if drift == 0 or drift != before:
            return None
        since = NUM_RECENT + CHECK_EVERY_STEPS
        reason = f"needs {_times(middle)} times its predicted step time since {since} steps"
        return Verdict(middle, _deviation(recent) / middle, reason)

    def _refresh(self, small: float, small_errors: float) -> Verdict | None:
        ratios = list(self._ratios)
        middle, deviation = median(ratios), _deviation(ratios)
        if abs(middle - 1.0) <= max(small, small_errors * _standard_error(deviation, len(ratios))):
            return None
        reason = f"needed {_times(middle)} times its predicted step time, by the median of its last {len(ratios)} steps"
        return Verdict(middle, deviation / middle, reason)


def _deviation(ratios: list[float]) -> float:
    """Median absolute deviation from the median."""
    middle = median(ratios)
    return median(abs(ratio - middle) for ratio in ratios)


def _standard_error(deviation: float, num_ratios: int) -> float:
    """Of the median of normal noise with this MAD."""
    return 1.2533 * 1.4826 * deviation / math.sqrt(num_ratios)


def _times(factor: float) -> str:
    """Two decimals near 1, where one would not tell the direction."""
    return f"{factor:.2f}" if 0.5 < factor < 1.5 else f"{factor:.1f}" if factor >= 1.0 else f"{factor:.2g}"
