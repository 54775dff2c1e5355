"""The model and the width of its rows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geartrain.config.section import MAX_SIZE, Expect, Many, Section, Size, UnitNumber

_TOWER_FIELDS = ("embedding_dim", "hidden", "dropout", "batch_norm")


class ModelConfig(Section):
    """Which model, and its sizes."""

    type: Literal["lr", "wide_deep", "deepfm", "dcn"]
    """lr: logistic regression. wide_deep, deepfm: linear term and tower (and factorization machine).
    dcn: cross network (version 2) and tower."""
    embedding_dim: Size = 16
    """Length of a slot's vector; lr has none."""
    hidden: Annotated[Many[Size], Field(min_length=1), Expect(f"a list of integers from 1 to {MAX_SIZE}")] = (
        256,
        128,
        64,
    )
    """Sizes of the tower's hidden layers; lr has none."""
    dropout: UnitNumber = 0.0
    """Share of the tower's activations that is dropped in training; lr has none."""
    batch_norm: bool = False
    """Batch normalization after each of the tower's hidden layers; lr has none."""
    num_cross_layers: Size = 3
    """Layers of the cross network; dcn only."""

    def unused_fields(self) -> tuple[str, ...]:
        """Fields that differ from their default although this type of model has no part for them."""
        unused = () if self.type == "dcn" else ("num_cross_layers",)
        if self.type == "lr":
            unused = (*_TOWER_FIELDS, *unused)
        defaults = ModelConfig(type=self.type)
        return tuple(name for name in unused if getattr(self, name) != getattr(defaults, name))


def has_first_order(model: ModelConfig) -> bool:
    """Whether column 0 of a row is the key's first-order (linear) weight."""
    return model.type != "dcn"


def row_dim(model: ModelConfig) -> int:
    """D, the number of float32 values of a row: the first-order weight where there is one, then the embedding."""
    embedding_dim = 0 if model.type == "lr" else model.embedding_dim
    return embedding_dim + int(has_first_order(model))
