"""Wide & Deep (Cheng et al., 2016): a first-order term beside a tower over all embeddings and numeric inputs.

Rows are [first-order weight | embedding]. The wide part is the first-order weights of all keys and numeric inputs; the
tower's head holds the one bias of both.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dense_workers.models.base import CtrModel, InputShape
from dense_workers.models.layers import Affine, FirstOrder, Tower
from dense_workers.models.split_rows import split_rows


class WideDeep(CtrModel):
    """A first-order term beside a tower; their sum is the logit."""

    pairwise = False
    """Whether the shallow part has the products of all pairs of embeddings."""

    def __init__(
        self,
        inputs: InputShape,
        hidden: Sequence[int],
        generator: torch.Generator,
        *,
        dropout: float = 0.0,
        batch_norm: bool = False,
    ) -> None:
        super().__init__(inputs)
        num_inputs = inputs.num_slots * (inputs.row_dim - 1) + inputs.num_numeric
        self.numeric = FirstOrder(inputs.num_numeric)
        self.tower = Tower(num_inputs, hidden, generator, dropout=dropout, batch_norm=batch_norm)
        self.head = Affine(self.tower.num_outputs, 1, generator)

    def logits(self, rows: Tensor, numeric: Tensor) -> Tensor:
        x, shallow = split_rows(rows, numeric, pairwise=self.pairwise)
        deep: Tensor = self.head(self.tower(x))
        linear: Tensor = self.numeric(numeric)
        return deep.squeeze(1) + shallow + linear
