"""In which precision a worker computes: how a step runs in it, and which one is worth it.

A lower precision concerns products of matrices inside the model. Parameters, losses, sums over samples and all
gradients that leave the worker are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from geartrain.errors import ConfigError
from geartrain.types import Floats
from geartrain.wire.messages import DeviceFacts

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

MIN_GAIN = 1.1
"""A lower precision must be faster than fp32 by more than this factor to be chosen."""
MAX_DRIFT = 0.05
"""... and its gradient must deviate from that in fp32 by less than this, as a share of its length."""
NUM_PAIRS = 10
"""Steps that are timed in both precisions, one after the other, before one is chosen."""
FIRST_PAIRS = 4
"""A precision that shows no gain in these is not timed further."""
_FP16_SCALE = 2.0**13
"""What the mean loss of a batch is multiplied by in fp16. Gradients of single samples then stay above the smallest
numbers of fp16 in batches of some ten thousand, and sums over them below the largest (65504)."""


def in_precision(precision: str, device_type: str) -> AbstractContextManager[object]:
    """Within it, a model's forward pass computes in `precision` (fp32, bf16 or fp16)."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device_type, dtype=_DTYPES[precision])


def loss_scale(precision: str, num_samples: int) -> float:
    """What the loss, a sum over `num_samples`, is multiplied by before the backward pass; 1 but for fp16.

    A power of two: dividing gradients by it in float32 is exact.
    """
    if precision != "fp16":
        return 1.0
    return float(_FP16_SCALE / 2 ** (num_samples - 1).bit_length())


def worth_trying(device: DeviceFacts) -> list[str]:
    """The precisions that auto looks at. A CPU computes in fp32 unless it is told otherwise: what a trial of a few
    steps says of it depends on what else runs there, and two runs of one seed would give different numbers."""
    return ["fp32"] if device.vendor == "cpu" else device.precisions


def require_supported(precision: str, supported: Sequence[str], worker: str, device: str) -> None:
    """Raises `ConfigError`, naming the worker, for a precision that its device cannot compute in."""
    if precision not in supported:
        expected = f"auto, or one of {', '.join(supported)}"
        raise ConfigError(
            f"training.precision: worker {worker} on {device} cannot compute in {precision}; expected {expected}",
            field="training.precision",
            value=precision,
            expected=expected,
            worker=worker,
        )


def relative_deviation(gradient: Floats, exact: Floats) -> float:
    """The length of the difference of two gradients as a share of that of `exact`; 0 where both are 0."""
    length = float(np.linalg.norm(exact.astype(np.float64)))
    difference = float(np.linalg.norm(gradient.astype(np.float64) - exact))
    return difference / length if length > 0 else float(difference > 0)


@dataclass(frozen=True, slots=True)
class Trial:
    """A precision that was tried: pairs of seconds of a step, in fp32 and in it, and how far its gradient deviates."""

    pairs: Sequence[tuple[float, float]]
    drift: float

    @property
    def seconds(self) -> float:
        """Median seconds of the step in this precision."""
        return median(own for _, own in self.pairs)

    @property
    def is_faster(self) -> bool:
        """Whether all pairs but one in ten show the gain: noise of the host must not choose a precision."""
        gains = sum(exact > MIN_GAIN * own for exact, own in self.pairs)
        return gains >= len(self.pairs) - len(self.pairs) // 10


def trial_pairs(exact_s: Callable[[], float], own_s: Callable[[], float]) -> list[tuple[float, float]]:
    """Seconds of a step in fp32 and in a lower precision by turns, so that what slows the host slows both.

    The first pair is not counted. Most steps are left out where there is no gain to be seen.
    """
    pairs: list[tuple[float, float]] = []
    for number in range(NUM_PAIRS + 1):
        pair = exact_s(), own_s()
        if number:
            pairs.append(pair)
        if len(pairs) == FIRST_PAIRS and sum(exact > MIN_GAIN * own for exact, own in pairs) < FIRST_PAIRS - 1:
            break
    return pairs


def choose(trials: Mapping[str, Trial]) -> str:
    """The fastest of the tried precisions that is faster than fp32 and near enough to it; else fp32."""
    worth = [name for name, trial in trials.items() if trial.is_faster and trial.drift < MAX_DRIFT]
    return min(worth, key=lambda name: trials[name].seconds, default="fp32")
