"""CTR models: `build_model` makes the one that a config names."""

from __future__ import annotations

import torch

from dense_workers.models.base import CtrModel, InputShape
from dense_workers.models.dcn import Dcn
from dense_workers.models.deepfm import DeepFM
from dense_workers.models.lr import LogisticRegression
from dense_workers.models.wide_deep import WideDeep
from geartrain.config.model import ModelConfig, row_dim

__all__ = ["CtrModel", "InputShape", "build_model"]


def build_model(
    config: ModelConfig, *, num_slots: int, num_numeric_inputs: int, generator: torch.Generator
) -> CtrModel:
    """The model that `config` describes, on the CPU, in training mode.

    All initial values come from `generator` (a CPU one), drawn in a fixed order, so equal seeds give equal values.
    """
    inputs = InputShape(num_slots, row_dim(config), num_numeric_inputs)
    match config.type:
        case "lr":
            return LogisticRegression(inputs)
        case "wide_deep" | "deepfm":
            kind = DeepFM if config.type == "deepfm" else WideDeep
            return kind(inputs, config.hidden, generator, dropout=config.dropout, batch_norm=config.batch_norm)
        case "dcn":
            return Dcn(
                inputs,
                config.hidden,
                config.num_cross_layers,
                generator,
                dropout=config.dropout,
                batch_norm=config.batch_norm,
            )
