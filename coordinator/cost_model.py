"""What a step costs a worker: a line in samples and tokens, fitted to measured steps. Pure.

Tokens are the values in sequence slots: a sample with a long history costs more than one with a short one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

_Array: TypeAlias = NDArray[np.float64]

_ALIKE_SIZES = 1.25
"""Sizes within this factor say nothing about what a step costs apart from its samples."""
_COLLINEAR = 1e-3
"""Tokens that the other terms explain but for this part say nothing of their own."""
_SURE = 2.0
"""A cost of tokens counts from this many standard errors on; below, it may as well be noise."""
_LEAST_ABSOLUTE_STEPS = 40
_REFITS = 20
_NUM_DEVIATIONS = 3.5
_NEVER_AN_OUTLIER = 0.1
"""A step this near its prediction (relative) is no outlier, however alike the others are."""


class StepTiming(NamedTuple):
    """A measured step: its samples, the tokens in them, the seconds that it took."""

    num_samples: int
    num_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of one step: `fixed_s + sample_s * samples + token_s * tokens`; all three are at least 0, and one is not.

    `error` is the median relative deviation of the steps that it was fitted to.
    """

    fixed_s: float
    sample_s: float
    token_s: float = 0.0
    error: float = 0.0

    def seconds(self, num_samples: float, num_tokens: float = 0.0) -> float:
        """Predicted seconds of a step."""
        return self.fixed_s + self.sample_s * num_samples + self.token_s * num_tokens

    def scaled(self, factor: float) -> CostModel:
        """The model of a device that needs `factor` times as long for everything."""
        return CostModel(self.fixed_s * factor, self.sample_s * factor, self.token_s * factor, self.error)

    def cheaper(self, factor: float, num_samples: float, num_tokens: float = 0.0) -> CostModel:
        """The model when steps of this size take `factor` (below 1) of their prediction, which comes from other sizes.

        The fixed part is lowered, and only when nothing is left of it the rest: such a step says little about samples,
        and if those were made cheaper by the same factor, far larger steps would be as fast as no device is.
        """
        whole_s = self.seconds(num_samples, num_tokens)
        rest_s = whole_s - self.fixed_s
        if factor * whole_s > rest_s:
            return replace(self, fixed_s=factor * whole_s - rest_s)
        return replace(self, fixed_s=0.0).scaled(factor * whole_s / rest_s)

    def samples_per_s(self, batch_size: int, tokens_per_sample: float = 0.0) -> float:
        """Throughput alone, in steps of `batch_size` samples."""
        return batch_size / self.seconds(batch_size, batch_size * tokens_per_sample)


def is_usable(timing: StepTiming) -> bool:
    """Whether a timing says anything: it has samples, and a time."""
    return timing.num_samples > 0 and timing.num_tokens >= 0 and 0.0 < timing.seconds < float("inf")


def fit_cost_model(timings: Sequence[StepTiming]) -> tuple[CostModel, int]:
    """The cost model of these steps and the number of steps left out of it: outliers, and those without a time.

    What is made small is the relative deviation of each step: first by least absolute deviations, which a minority of
    slow steps cannot move (Boscovich's method, by reweighting), then, without what lies far from that line (3.5 robust
    deviations), by least squares. No coefficient is ever negative. What the steps cannot tell apart is put down to
    samples: `fixed_s` is 0 when all have about the same size, `token_s` is 0 when tokens follow samples so closely
    that their cost would be a guess. Raises ValueError when no timing is usable.
    """
    usable = [timing for timing in timings if is_usable(timing)]
    if not usable:
        raise ValueError(f"none of {len(timings)} timings has samples and a time")
    terms = np.array([(1.0, timing.num_samples, timing.num_tokens) for timing in usable])
    seconds = np.array([timing.seconds for timing in usable])
    has_fixed = terms[:, 1].max() >= _ALIKE_SIZES * terms[:, 1].min()
    others = [0, 1] if has_fixed else [1]
    found, kept = _robust(terms, seconds, [*others, 2])
    if found[2] > 0.0 and not _tokens_tell(terms[kept], seconds[kept], found, others):
        found, kept = _robust(terms, seconds, others)
    error = float(np.median(np.abs(_deviations(terms[kept], seconds[kept], found))))
    fixed_s, sample_s, token_s = (float(value) for value in found)
    return CostModel(fixed_s, sample_s, token_s, error), len(timings) - int(kept.sum())


def _deviations(terms: _Array, seconds: _Array, found: _Array) -> _Array:
    """Relative deviation of each step from its prediction: 1.0 took twice as long."""
    return seconds / (terms @ found) - 1.0


def _robust(terms: _Array, seconds: _Array, used: Sequence[int]) -> tuple[_Array, NDArray[np.bool_]]:
    """Coefficients of the `used` terms (0 for others), and which steps are no outliers."""
    found = np.array([0.0, np.median(seconds / terms[:, 1]), 0.0])
    for _ in range(_LEAST_ABSOLUTE_STEPS):
        apart = np.abs(_deviations(terms, seconds, found))
        found = _non_negative(terms, seconds, 1.0 / (terms @ found) / np.sqrt(np.maximum(apart, 1e-3)), used)
    kept = np.zeros(len(seconds), dtype=np.bool_)
    for _ in range(_REFITS):
        apart = np.abs(_deviations(terms, seconds, found))
        limit = max(_NEVER_AN_OUTLIER, _NUM_DEVIATIONS * 1.4826 * float(np.median(apart)))
        before, kept = kept, apart <= limit
        found = _non_negative(terms[kept], seconds[kept], 1.0 / (terms[kept] @ found), used)
        if np.array_equal(kept, before):
            break
    return found, kept


def _non_negative(terms: _Array, seconds: _Array, weights: _Array, used: Sequence[int]) -> _Array:
    """Weighted least squares with coefficients >= 0: the best of the few sets of terms whose solution has none below.

    With at most three terms all sets can be tried; one term alone always has a solution, since all values are positive.
    """
    best, least = np.zeros(terms.shape[1]), np.inf
    for size in range(1, len(used) + 1):
        for chosen in combinations(used, size):
            columns = terms[:, chosen] * weights[:, None]
            scale = np.maximum(np.abs(columns).max(axis=0), np.finfo(float).tiny)
            solution = np.linalg.lstsq(columns / scale, seconds * weights, rcond=None)[0] / scale
            if (solution < 0.0).any() or not (terms[:, chosen] @ solution > 0.0).all():
                continue
            loss = float(np.square(columns @ solution - seconds * weights).sum())
            if loss < least * (1.0 - 1e-9):
                best, least = np.zeros(terms.shape[1]), loss
                best[list(chosen)] = solution
    return best


def _tokens_tell(terms: _Array, seconds: _Array, found: _Array, others: Sequence[int]) -> bool:
    """Whether the cost of tokens stands out of the noise, given what the other terms explain of them."""
    rows = terms / (terms @ found)[:, None]
    tokens = rows[:, 2]
    explained = rows[:, others] @ np.linalg.lstsq(rows[:, others], tokens, rcond=None)[0]
    own = float(np.linalg.norm(tokens - explained))
    freedom = len(seconds) - len(others) - 1
    if freedom <= 0 or own < _COLLINEAR * float(np.linalg.norm(tokens)):
        return False
    noise = float(np.sqrt(np.square(_deviations(terms, seconds, found)).sum() / freedom))
    return float(found[2]) >= _SURE * noise / own
