"""A model, a planned batch for it and the rows of its keys, all drawn from a seed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from dense_workers.dense_layout import DenseLayout
from dense_workers.models import CtrModel, build_model
from dense_workers.prefetch import BatchPlanner, PlannedBatch
from dense_workers.step import StepRunner
from geartrain.config.model import ModelConfig
from geartrain.data.batch import Batch
from geartrain.types import NUM_SHARDS, Floats
from geartrain.wire.messages import Route

NUM_SLOTS, NUM_NUMERIC = 3, 4
MEAN_SLOTS = np.array([0, 0, 1], dtype=np.uint8)


def model_of(kind: str, **fields: object) -> CtrModel:
    """A small model for `planned_batch`."""
    config = ModelConfig.model_validate({"type": kind, "embedding_dim": 4, "hidden": [16, 8], **fields})
    generator = torch.Generator().manual_seed(3)
    return build_model(config, num_slots=NUM_SLOTS, num_numeric_inputs=NUM_NUMERIC, generator=generator)


def runner_of(model: CtrModel, precision: str = "fp32") -> StepRunner:
    return StepRunner(model, DenseLayout(model), MEAN_SLOTS, torch.device("cpu"), precision)


def planned_batch(num_samples: int, numeric_range: float = 1.0) -> PlannedBatch:
    """Two slots of one key per sample, and a sequence of none to three."""
    rng = np.random.default_rng(5)
    lengths = np.concatenate([np.ones(2 * num_samples, np.int64), rng.integers(0, 4, num_samples)])
    batch = Batch(
        labels=(rng.random(num_samples) < 0.3).astype(np.float32),
        numeric=(rng.standard_normal((num_samples, NUM_NUMERIC)) * numeric_range).astype(np.float32),
        keys=rng.integers(0, 50, lengths.sum()).astype(np.uint64),
        bag_offsets=np.cumsum([0, *lengths], dtype=np.int32),
        group_ids=None,
    )
    schema = SimpleNamespace(slot_tables=np.arange(NUM_SLOTS, dtype=np.int64), table_names=("a", "b", "c"))
    return BatchPlanner(schema, Route(1, ["s0"], ["ipc://s0"], [0] * NUM_SHARDS)).plan(batch)


def rows_for(planned: PlannedBatch, row_dim: int) -> Floats:
    rng = np.random.default_rng(6)
    return (0.3 * rng.standard_normal((len(planned.plan.unique_keys), row_dim))).astype(np.float32)
