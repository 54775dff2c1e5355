"""Logistic regression: one weight per key and per numeric input. Rows are the first-order weights alone (D = 1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dense_workers.models.base import CtrModel, InputShape
from dense_workers.models.layers import FirstOrder


class LogisticRegression(CtrModel):
    """A linear model: the sum of all weights and a bias."""

    def __init__(self, inputs: InputShape) -> None:
        super().__init__(inputs)
        self.numeric = FirstOrder(inputs.num_numeric)
        self.bias = nn.Parameter(torch.zeros(1))

    def logits(self, rows: Tensor, numeric: Tensor) -> Tensor:
        linear: Tensor = self.numeric(numeric)
        return rows.flatten(1).sum(1) + linear + self.bias
