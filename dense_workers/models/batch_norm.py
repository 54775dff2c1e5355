"""Batch norm whose running averages belong to the servers: a worker only tells the moments of its batch.

Source: Ioffe and Szegedy, Batch Normalization (2015). Shape letters: B samples of the batch, H features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from geartrain.errors import ConfigError

EPS = 1e-5


class MomentBatchNorm(nn.Module):
    """Normalizes with the worker's own batch in training and with the running averages in evaluation.

    Training adds the batch's moments to `sum` (sum of x) and `square_sum` (sum of x squared), both float32[H], so that
    they travel with the gradients and add up over workers like these. Whoever zeroes the gradients zeroes them too.
    `mean` and `mean_square` float32[H] are the running averages; this module never changes them.
    """

    mean: Tensor
    mean_square: Tensor
    sum: Tensor
    square_sum: Tensor

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("mean_square", torch.ones(num_features))
        self.register_buffer("sum", torch.zeros(num_features), persistent=False)
        self.register_buffer("square_sum", torch.zeros(num_features), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """`x` float32[B, H]. ConfigError in training on one sample: its variance is no variance."""
        if not self.training:
            variance = (self.mean_square - self.mean.square()).clamp_(min=0.0)
            return batch_norm(x, self.mean, variance, self.weight, self.bias, training=False, eps=EPS)
        num_samples = x.shape[0]
        if num_samples == 0:
            return x
        if num_samples == 1:
            raise ConfigError(
                "batch norm cannot normalize a share of one sample; it needs a larger batch or fewer workers",
                field="model.batch_norm",
                value=True,
                expected="at least 2 samples per worker and step",
            )
        out, mean, inverse_std = torch.native_batch_norm(x, self.weight, self.bias, None, None, True, 0.0, EPS)
        # The kernel has the moments already: another pass over x for them would cost as much as the layer.
        with torch.no_grad():
            variance = inverse_std.pow(-2).sub_(EPS).clamp_(min=0.0)
            self.sum.add_(mean, alpha=num_samples)
            self.square_sum.add_(variance.addcmul_(mean, mean), alpha=num_samples)
        return out
