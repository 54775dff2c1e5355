"""What predictions are worth: exact AUC, grouped AUC, logloss, normalized entropy, calibration.

Every figure is computed once over all rows of a split; nothing accumulates between evaluations.
Shape letters: B rows, G groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from geartrain.errors import KernelError, NonFiniteError

Array: TypeAlias = NDArray[Any]

CLIP = 1e-7
"""Probabilities are kept this far from 0 and 1 in logarithms: a float32 probability can round to 1."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """The figures of one evaluation. A figure that does not exist for these rows is None and `reasons` says why."""

    num_samples: int
    auc: float | None
    logloss: float | None
    normalized_entropy: float | None
    calibration: float | None
    gauc: float | None
    has_groups: bool
    reasons: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: each figure by name, `<name>_reason` beside each that is None; `gauc` only with groups."""
        figures: dict[str, Any] = {
            "auc": self.auc,
            "logloss": self.logloss,
            "num_samples": self.num_samples,
            "normalized_entropy": self.normalized_entropy,
            "calibration": self.calibration,
        }
        if self.has_groups:
            figures["gauc"] = self.gauc
        return figures | {f"{name}_reason": reason for name, reason in self.reasons.items()}


def evaluate(labels: Array, scores: Array, group_ids: Array | None = None) -> Metrics:
    """All figures of `scores` (probabilities of label 1), `labels` (0 or 1), optional `group_ids` (uint64), each [B].

    The arguments are read only. NonFiniteError when a score is NaN or Inf; KernelError when a score is not within
    [0, 1], a label is neither 0 nor 1, or lengths differ.
    """
    _check(labels, scores, group_ids)
    positive = labels != 0
    num_samples = len(positive)
    num_positive = int(np.count_nonzero(positive))
    reasons: dict[str, str] = {}
    figures: dict[str, float | None] = {
        "auc": auc(positive, scores),
        "logloss": logloss(positive, scores),
        "normalized_entropy": normalized_entropy(positive, scores),
        "calibration": calibration(positive, scores),
    }
    if group_ids is not None:
        figures["gauc"] = gauc(positive, scores, group_ids)
    for name, figure in figures.items():
        if figure is None:
            reasons[name] = _reason(num_samples, num_positive)
    return Metrics(
        num_samples=num_samples,
        auc=figures["auc"],
        logloss=figures["logloss"],
        normalized_entropy=figures["normalized_entropy"],
        calibration=figures["calibration"],
        gauc=figures.get("gauc"),
        has_groups=group_ids is not None,
        reasons=reasons,
    )


def auc(labels: Array, scores: Array) -> float | None:
    """The chance that a random positive scores above a random negative, ties counting half; None with one class.

    Exact: pairs are counted in integers, in O(B log B).
    """
    order = np.argsort(scores)
    doubled_wins, positives, negatives = _count_pairs(labels[order] != 0, scores[order], None)
    num_pairs = int(positives.sum()) * int(negatives.sum())
    return int(doubled_wins.sum()) / (2 * num_pairs) if num_pairs else None


def gauc(labels: Array, scores: Array, group_ids: Array) -> float | None:
    """The mean of the groups' AUC, weighted by rows, over groups with both classes; None if no group has both.

    Source: Zhu et al., Optimized Cost per Click in Taobao Display Advertising (2017), section 6.
    """
    order = np.lexsort((scores, group_ids))
    doubled_wins, positives, negatives = _count_pairs(labels[order] != 0, scores[order], group_ids[order])
    both = (positives > 0) & (negatives > 0)
    if not both.any():
        return None
    group_auc = doubled_wins[both] / (2 * positives[both] * negatives[both])
    rows = positives[both] + negatives[both]
    return float(np.dot(group_auc, rows) / rows.sum())


def logloss(labels: Array, scores: Array) -> float | None:
    """Mean binary cross entropy in nats, probabilities clipped to [CLIP, 1 - CLIP]; None without rows."""
    if len(labels) == 0:
        return None
    probabilities = np.clip(scores.astype(np.float64), CLIP, 1.0 - CLIP)
    return float(-np.log(np.where(labels != 0, probabilities, 1.0 - probabilities)).mean())


def normalized_entropy(labels: Array, scores: Array) -> float | None:
    """Logloss over that of always predicting the mean label; None with one class.

    Source: He et al., Practical Lessons from Predicting Clicks on Ads at Facebook (2014), section 3.
    """
    loss = logloss(labels, scores)
    rate = np.count_nonzero(labels) / max(len(labels), 1)
    if loss is None or rate in (0.0, 1.0):
        return None
    return float(loss / -(rate * np.log(rate) + (1.0 - rate) * np.log1p(-rate)))


def calibration(labels: Array, scores: Array) -> float | None:
    """Expected positives over observed ones (1 is best); None without a positive."""
    num_positive = np.count_nonzero(labels)
    return float(scores.sum(dtype=np.float64) / num_positive) if num_positive else None


def _count_pairs(positive: Array, scores: Array, groups: Array | None) -> tuple[Array, Array, Array]:
    """Per group, of rows sorted by (group, score): twice the pairs that a positive wins, positives, negatives.

    int64[G] each. A tie counts as half a win, hence twice: everything stays an integer (to 4e9 rows).
    """
    if len(scores) == 0:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty
    new_group = np.zeros(len(scores), dtype=bool)
    new_group[0] = True
    if groups is not None:
        np.not_equal(groups[1:], groups[:-1], out=new_group[1:])
    new_tie = new_group.copy()
    new_tie[1:] |= scores[1:] != scores[:-1]
    tie_starts = np.flatnonzero(new_tie)
    sizes = np.diff(tie_starts, append=len(scores))
    tie_positives = np.add.reduceat(positive, tie_starts, dtype=np.int64)
    tie_negatives = sizes - tie_positives
    first_ties = np.flatnonzero(new_group[tie_starts])
    below = np.cumsum(tie_negatives) - tie_negatives
    below -= np.repeat(below[first_ties], np.diff(first_ties, append=len(tie_starts)))  # of the own group only
    doubled_wins = np.add.reduceat(tie_positives * (2 * below + tie_negatives), first_ties)
    return doubled_wins, np.add.reduceat(tie_positives, first_ties), np.add.reduceat(tie_negatives, first_ties)


def _reason(num_samples: int, num_positive: int) -> str:
    if num_samples == 0:
        return "no rows"
    if num_positive == 0:
        return f"all {num_samples} labels are 0"
    if num_positive == num_samples:
        return f"all {num_samples} labels are 1"
    return "no group has labels of both classes"


def _check(labels: Array, scores: Array, group_ids: Array | None) -> None:
    for argument, array in (("scores", scores), ("group_ids", group_ids)):
        if array is not None and (array.ndim != 1 or array.shape != labels.shape):
            raise _wrong(argument, f"one value for each of {labels.shape} labels", f"shape {array.shape}")
    finite = np.isfinite(scores)
    if not finite.all():
        num_bad = int(len(scores) - np.count_nonzero(finite))
        first = int(np.argmin(finite))
        raise NonFiniteError(
            f"{num_bad} of {len(scores)} scores are NaN or Inf, the first is {scores[first]} at row {first}",
            num_non_finite=num_bad,
            num_scores=len(scores),
            row=first,
        )
    for argument, valid, array, expected in (
        ("scores", (scores >= 0) & (scores <= 1), scores, "a probability in [0, 1]"),
        ("labels", (labels == 0) | (labels == 1), labels, "0 or 1"),
    ):
        if not valid.all():
            row = int(np.argmin(valid))
            raise _wrong(argument, expected, f"{array[row]} at row {row}")


def _wrong(argument: str, expected: str, got: str) -> KernelError:
    return KernelError(
        f"{argument} of an evaluation must be {expected}, not {got}", argument=argument, expected=expected, got=got
    )
