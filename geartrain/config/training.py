"""How long, how fast and with which optimizers a job trains."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from geartrain.config.optimizer import Adam, DenseOptimizer, RowwiseAdagrad, SparseOptimizer
from geartrain.config.schedule import ConstantSchedule, LrSchedule, Metric
from geartrain.config.section import CountInt, Expect, PositiveInt, Section


class EarlyStopping(Section):
    """Stop after `patience` passes in a row without a better `metric` on the valid set; the best pass is kept."""

    metric: Metric = "auc"
    patience: PositiveInt = 1


class TrainingConfig(Section):
    """The training loop of the whole cluster."""

    passes: PositiveInt = 3
    """Readings of the training files."""
    batch_size: PositiveInt = 4096
    """Samples of one step of the whole cluster; groups and workers share them."""
    dense_optimizer: DenseOptimizer = Adam(type="adam", lr=0.001)
    sparse_optimizer: SparseOptimizer = RowwiseAdagrad(type="rowwise_adagrad", lr=0.05)
    """For all tables; `tables` can choose another for one."""
    lr_schedule: LrSchedule = ConstantSchedule()
    seed: Annotated[int, Field(ge=0, lt=2**63), Expect("an integer >= 0 and < 2^63")] = 1
    """Of the initial values, the order of the data and dropout."""
    early_stopping: EarlyStopping | None = None
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Of the dense tower's arithmetic; gradients are exchanged and summed in fp32. auto: for each worker the fastest
    that its device can do, if that pays and its gradient hardly deviates from that in fp32; fp32 on a CPU, and where
    nothing is measured (heterogeneous: false). A worker that cannot do the one that is named fails the job."""
    max_skipped_steps: CountInt = 0
    """Steps with NaN, Inf or an absolute value above 1e12 in a gradient that a job may skip, with all their samples;
    one more and it fails."""
