"""DCN v2 (Wang et al., 2021), parallel form: a cross network and a tower over the same input, joined by one head.

Rows are embeddings alone. Shape letters: B samples of the batch, X = S*D + F inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dense_workers.models.base import CtrModel, InputShape
from dense_workers.models.layers import Affine, Tower


class CrossNetwork(nn.Module):
    """x_{l+1} = x_0 * (W_l x_l + b_l) + x_l with full matrices W_l (eq. 1 of the paper)."""

    def __init__(self, num_inputs: int, num_layers: int, generator: torch.Generator) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Affine(num_inputs, num_inputs, generator) for _ in range(num_layers))

    def forward(self, x0: Tensor) -> Tensor:
        """`x0` float32[B, X] to float32[B, X]."""
        x = x0
        for layer in self.layers:
            x = torch.addcmul(x, x0, layer(x))
        return x


class Dcn(CtrModel):
    """A cross network beside a tower; one linear head over the outputs of both."""

    def __init__(
        self,
        inputs: InputShape,
        hidden: Sequence[int],
        num_cross_layers: int,
        generator: torch.Generator,
        *,
        dropout: float = 0.0,
        batch_norm: bool = False,
    ) -> None:
        super().__init__(inputs)
        num_inputs = inputs.num_slots * inputs.row_dim + inputs.num_numeric
        self.cross = CrossNetwork(num_inputs, num_cross_layers, generator)
        self.tower = Tower(num_inputs, hidden, generator, dropout=dropout, batch_norm=batch_norm)
        self.head = Affine(num_inputs + self.tower.num_outputs, 1, generator)

    def logits(self, rows: Tensor, numeric: Tensor) -> Tensor:
        x0 = torch.cat([rows.flatten(1), numeric], dim=1)
        joined = torch.cat([self.cross(x0), self.tower(x0)], dim=1)
        logit: Tensor = self.head(joined)
        return logit.squeeze(1)
