"""From the scores that workers sent to the metrics of a split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from geartrain.evaluation import evaluate
from geartrain.wire.messages import Scores


def metrics_of(parts: Sequence[Scores]) -> dict[str, Any]:
    """AUC, logloss and, where group ids were sent, GAUC over all parts (exact, in one piece)."""
    scores = np.frombuffer(b"".join(part.scores for part in parts), dtype=np.float32)
    labels = np.frombuffer(b"".join(part.labels for part in parts), dtype=np.uint8)
    group_bytes = b"".join(part.group_ids for part in parts)
    group_ids = np.frombuffer(group_bytes, dtype=np.uint64) if group_bytes else None
    return evaluate(labels, scores, group_ids).to_dict()
