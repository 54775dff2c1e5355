"""One training step on one worker: forward, backward, the group's sum, and what is staged of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import binary_cross_entropy_with_logits

from dense_workers.dense_layout import DenseLayout
from dense_workers.group import SyncGroup
from dense_workers.models import CtrModel
from dense_workers.precision import in_precision, loss_scale
from dense_workers.prefetch import PlannedBatch
from geartrain.types import Floats
from kernels.contribution import MAX_GRADIENT, within
from kernels.pool import count_shows, pool_backward, pool_forward


@dataclass(frozen=True, slots=True)
class StepGradients:
    """What a member stages: per unique key its gradient sum [U, D], shows and clicks [U]; its slice of the dense sum.

    `non_finite` counts the members whose gradients had NaN, Inf or values above MAX_GRADIENT; above 0 nobody stages
    anything.
    """

    grads: Floats
    shows: Floats
    clicks: Floats
    dense_start: int
    dense: Floats
    loss_sum: float
    non_finite: int


class StepRunner:
    """The model of one worker and the arithmetic of its steps. Used by one thread."""

    def __init__(
        self,
        model: CtrModel,
        layout: DenseLayout,
        mean_slots: NDArray[np.uint8],
        device: torch.device,
        precision: str = "fp32",
    ) -> None:
        """`precision` (fp32, bf16 or fp16): of the model's products of matrices in training. Scores are in fp32."""
        self._model = model
        self._layout = layout
        self._mean_slots = mean_slots
        self._device = device
        self._precision = precision
        self.num_values = layout.num_values
        self.num_parameters = max((one.stop for one in layout.segments if one.kind == "parameter"), default=0)
        """Parameters are the first of the dense values."""
        self._pooled_rows: Floats = np.empty((0, 0, 0), dtype=np.float32)
        # The flat gradient and, behind it, the number of members with a non-finite one: one all-reduce for both.
        self._reduced = np.zeros(layout.num_values + 1, dtype=np.float32)

    def use_precision(self, precision: str) -> None:
        """Compute steps in `precision` from now on."""
        self._precision = precision

    def load_dense(self, values: Floats) -> None:
        """Take over the flat dense vector float32[P]."""
        self._layout.write(values)

    def compute(self, planned: PlannedBatch, rows: Floats, step_seed: int) -> StepGradients:
        """Forward and backward on this worker's share. The gradient is a sum over samples, never a mean.

        It is float32 in every precision; one that does not hold a value of the step makes it NaN or Inf.
        """
        batch, plan = planned.batch, planned.plan
        self._model.train()
        self._model.seed_step(step_seed)
        self._layout.zero_gradient()
        num_rows = len(plan.unique_keys)
        loss_sum = 0.0
        scale = loss_scale(self._precision, batch.num_samples)
        grads = np.zeros((num_rows, rows.shape[1]), dtype=np.float32)
        if batch.num_samples > 0:
            pooled = self._pooled(planned, rows).requires_grad_()
            numeric = self._on_device(batch.numeric)
            with in_precision(self._precision, self._device.type):
                logits = self._model(pooled, numeric)
            loss = binary_cross_entropy_with_logits(logits.float(), self._on_device(batch.labels), reduction="sum")
            (loss if scale == 1.0 else loss * scale).backward()  # type: ignore[no-untyped-call]
            loss_sum = float(loss.detach())
            assert pooled.grad is not None
            if scale != 1.0:
                pooled.grad /= scale
            pooled_grad = pooled.grad.contiguous().cpu().numpy()
            grads = pool_backward(pooled_grad, plan.inverse, batch.pooling_offsets, self._mean_slots, num_rows)
        shows, clicks = count_shows(plan.inverse, batch.pooling_offsets, batch.labels, num_rows)
        flat = self._reduced[:-1]
        self._layout.read_gradient(flat)
        if scale != 1.0:
            flat[: self.num_parameters] /= scale
        gradient, averages = flat[: self.num_parameters], flat[self.num_parameters :]
        finite = within(gradient, MAX_GRADIENT) and within(grads, MAX_GRADIENT)
        finite = finite and math.isfinite(loss_sum) and bool(np.isfinite(averages).all())
        self._reduced[-1] = 0.0 if finite else 1.0
        if not finite:
            flat[:] = 0.0
        return StepGradients(grads, shows, clicks, 0, flat, loss_sum, 0 if finite else 1)

    def reduce(self, gradients: StepGradients, group: SyncGroup) -> StepGradients:
        """Sum the dense gradient over the group and cut out the slice that this member stages."""
        group.sum(self._reduced)
        start, stop = group.slice_of(self._layout.num_values)
        return StepGradients(
            grads=gradients.grads,
            shows=gradients.shows,
            clicks=gradients.clicks,
            dense_start=start,
            dense=self._reduced[start:stop],
            loss_sum=gradients.loss_sum,
            non_finite=round(float(self._reduced[-1])),
        )

    def score(self, planned: PlannedBatch, rows: Floats) -> Floats:
        """Predicted click probabilities float32[B], without a gradient and on running averages."""
        if planned.batch.num_samples == 0:
            return np.empty(0, dtype=np.float32)
        self._model.eval()
        with torch.inference_mode():
            logits = self._model(self._pooled(planned, rows), self._on_device(planned.batch.numeric))
            return torch.sigmoid(logits).cpu().numpy()

    def _pooled(self, planned: PlannedBatch, rows: Floats) -> torch.Tensor:
        batch = planned.batch
        shape = (batch.num_samples, len(self._mean_slots), rows.shape[1])
        if self._pooled_rows.shape != shape:
            self._pooled_rows = np.empty(shape, dtype=np.float32)
        # One array for all steps of this size: fresh memory of some megabytes costs more than the pooling itself.
        pool_forward(
            rows, planned.plan.inverse, batch.pooling_offsets, self._mean_slots, batch.num_samples, self._pooled_rows
        )
        return self._on_device(self._pooled_rows)

    def _on_device(self, values: Floats) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)
