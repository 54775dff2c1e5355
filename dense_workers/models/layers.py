"""The dense layers that models are built from. All initial values come from the generator passed in.

Shape letters: B samples of the batch, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, relu

from dense_workers.models.batch_norm import MomentBatchNorm
from dense_workers.models.dropout import SeededDropout


class Affine(nn.Module):
    """x W^T + b with Xavier-normal weights (Glorot and Bengio, 2010) and a zero bias, if any."""

    def __init__(self, num_inputs: int, num_outputs: int, generator: torch.Generator, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_outputs, num_inputs))
        nn.init.xavier_normal_(self.weight, generator=generator)
        self.bias = nn.Parameter(torch.zeros(num_outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """`x` float32[B, I] to float32[B, O]."""
        return linear(x, self.weight, self.bias)


class FirstOrder(nn.Module):
    """One weight per numeric input, all zero at first: the numeric part of a linear term."""

    def __init__(self, num_numeric: int) -> None:
        super().__init__()
        # An empty parameter would be a dense segment without values; there is none then.
        self.weight = nn.Parameter(torch.zeros(num_numeric)) if num_numeric else None

    def forward(self, numeric: Tensor) -> Tensor:
        """`numeric` float32[B, F] to float32[B], also under autocast."""
        if self.weight is None:
            return numeric.new_zeros(numeric.shape[0])
        with torch.autocast(numeric.device.type, enabled=False):
            return numeric.mv(self.weight)


class Tower(nn.Module):
    """Hidden layers: affine, batch norm, ReLU, dropout (the last three elementwise, batch norm and dropout if set)."""

    def __init__(
        self, num_inputs: int, hidden: Sequence[int], generator: torch.Generator, *, dropout: float, batch_norm: bool
    ) -> None:
        """`hidden` may be empty; then the output is the input. `num_outputs` tells the width."""
        super().__init__()
        self.affine = nn.ModuleList()
        self.norm = nn.ModuleList()
        self.dropout = nn.ModuleList()
        self.num_outputs = num_inputs
        for layer, width in enumerate(hidden):
            # Batch norm subtracts the mean, so a bias before it would have no gradient.
            self.affine.append(Affine(self.num_outputs, width, generator, bias=not batch_norm))
            if batch_norm:
                self.norm.append(MomentBatchNorm(width))
            if dropout > 0.0:
                self.dropout.append(SeededDropout(dropout, layer))
            self.num_outputs = width

    def forward(self, x: Tensor) -> Tensor:
        """`x` float32[B, I] to float32[B, num_outputs]."""
        for layer, affine in enumerate(self.affine):
            x = affine(x)
            if self.norm:
                x = self.norm[layer](x)
            x = relu(x, inplace=True)  # nothing before it needs its own output for the gradient
            if self.dropout:
                x = self.dropout[layer](x)
        return x
