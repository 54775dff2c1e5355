"""The gradient of one step on real batches: of shares, summed as a group and the servers sum them, and in float64."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from dense_workers.dense_layout import DenseLayout
from dense_workers.models import build_model
from dense_workers.prefetch import BatchPlanner, PlannedBatch
from dense_workers.step import StepRunner
from geartrain.config import parse_config, row_dim
from geartrain.data.index import build_index
from geartrain.data.permutation import PassOrder
from geartrain.data.reader import SplitReader
from geartrain.types import NUM_SHARDS, Floats
from geartrain.wire.messages import DenseSegment, Route

ROUTE = Route(1, ["s0", "s1"], ["ipc://s0", "ipc://s1"], [0, 1] * (NUM_SHARDS // 2))


@dataclass(frozen=True)
class Gradient:
    """Sums over samples: of named dense values, and of the rows [U, D] of all keys, in the order of the keys."""

    dense: dict[str, Floats]
    rows: Floats
    loss_sum: float

    def error(self, truth: Gradient) -> float:
        """The largest error of any part, relative: norm of the difference over the norm of the part."""
        pairs = [(self.rows, truth.rows), *((self.dense[name], part) for name, part in truth.dense.items())]
        return max(_relative(found, expected) for found, expected in pairs)


def _relative(found: Floats, expected: Floats) -> float:
    size = float(np.linalg.norm(expected))
    difference = float(np.linalg.norm(found.astype(np.float64) - expected))
    return difference / size if size > 0 else difference


class StepGradients:
    """A model and the first batch of a pass over real files; the rows of its keys are drawn from a seed."""

    def __init__(self, folder: Path, config: Mapping[str, Any], num_samples: int) -> None:
        self.config = parse_config(config, folder, (folder,))
        self.num_samples = num_samples
        index = build_index(self.config)
        self._reader = SplitReader(index, self.config, "train")
        self._order = PassOrder(self._reader.chunk_rows, self.config.training.seed, 0, self.config.data.shuffle)
        schema = self._reader.schema
        self._planner = BatchPlanner(schema, ROUTE)
        self._mean_slots = schema.mean_slots
        self.model = build_model(
            self.config.model,
            num_slots=len(schema.slots),
            num_numeric_inputs=schema.num_numeric_inputs,
            generator=torch.Generator().manual_seed(3),
        )
        self._layout = DenseLayout(self.model)
        self._runner = StepRunner(self.model, self._layout, self._mean_slots, torch.device("cpu"))
        self._whole = self._planned(0, num_samples)
        self._keys = np.sort(self._whole.plan.unique_keys)
        shape = (len(self._keys), row_dim(self.config.model))
        self._rows = (0.3 * np.random.default_rng(4).standard_normal(shape)).astype(np.float32)

    def close(self) -> None:
        self._reader.close()

    @property
    def segments(self) -> list[DenseSegment]:
        return self._layout.segments

    def of_shares(self, cuts: Sequence[int]) -> Gradient:
        """Member i computes positions [cuts[i], cuts[i+1]); sums are in float32, in the order of the members."""
        dense, loss = np.zeros(self._layout.num_values, dtype=np.float32), 0.0
        rows = np.zeros_like(self._rows)
        for start, stop in pairwise(cuts):
            planned = self._planned(start, stop)
            places = np.searchsorted(self._keys, planned.plan.unique_keys)
            step = self._runner.compute(planned, self._rows[places], 1)
            assert step.non_finite == 0
            dense += step.dense
            rows[places] += step.grads
            loss += step.loss_sum
        return Gradient({one.name: dense[one.start : one.stop] for one in self.segments}, rows, loss)

    def in_one_process(self) -> Gradient:
        """Of the whole batch at once, by plain PyTorch in float64."""
        batch, plan = self._whole.batch, self._whole.plan
        model = copy.deepcopy(self.model).double()
        rows = torch.from_numpy(self._rows).double().requires_grad_()
        places = torch.from_numpy(np.searchsorted(self._keys, plan.unique_keys)[plan.inverse])
        logits = model(self._pooled(rows[places]), torch.from_numpy(batch.numeric).double())
        loss = binary_cross_entropy_with_logits(logits, torch.from_numpy(batch.labels).double(), reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]
        assert rows.grad is not None
        dense = {name: one.grad.flatten().numpy() for name, one in model.named_parameters() if one.grad is not None}
        return Gradient(dense, rows.grad.numpy(), float(loss.detach()))

    def _pooled(self, values: Tensor) -> Tensor:
        """[B, S, D] of the values [N, D] of all keys: bags lie slot by slot, and in a slot sample by sample."""
        lengths = torch.from_numpy(np.diff(self._whole.batch.bag_offsets))
        num_bags, num_slots = len(lengths), len(self._mean_slots)
        bags = torch.repeat_interleave(torch.arange(num_bags), lengths)
        pooled = torch.zeros(num_bags, values.shape[1], dtype=values.dtype).index_add(0, bags, values)
        by_slot = pooled.view(num_slots, self.num_samples, -1)
        divisors = lengths.clamp(min=1).view(num_slots, self.num_samples, 1)
        is_mean = torch.from_numpy(self._mean_slots).bool().view(-1, 1, 1)
        return torch.where(is_mean, by_slot / divisors, by_slot).transpose(0, 1)

    def _planned(self, start: int, stop: int) -> PlannedBatch:
        return self._planner.plan(self._reader.batch(self._order, start, stop))
