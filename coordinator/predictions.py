"""The file of a prediction job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from geartrain.files import written_whole
from geartrain.wire.messages import Scores


def write_predictions(path: Path, parts: Sequence[Scores]) -> None:
    """One line per input row, in its order, with the predicted click probability; complete or not there at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as unfinished, unfinished.open("w", encoding="ascii") as file:
        file.write("score\n")
        for part in parts:
            file.writelines(f"{score:.9g}\n" for score in np.frombuffer(part.scores, dtype=np.float32))
