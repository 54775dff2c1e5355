"""What a step costs a worker: a line in samples and tokens, fitted to measured steps. Pure.

Tokens are the values in sequence slots: a sample with a long history costs more than one with a short one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


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

    def samples_per_s(self, batch_size: int, tokens_per_sample: float = 0.0) -> float:
        """Throughput alone, in steps of `batch_size` samples."""
        return batch_size / self.seconds(batch_size, batch_size * tokens_per_sample)
