"""What a training job says of its workers, while it trains and when it is done."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from api.answers import Answer


class StepTimes(Answer):
    """Percentiles of a time per step, in milliseconds, over the latest 1,024 steps of the worker."""

    p50: float
    p99: float | None = Field(default=None, description="Of step_ms only.")

    example: ClassVar[dict[str, Any]] = {"p50": 168.2, "p99": 181.5}


class WorkerReport(Answer):
    """What a worker did for the job."""

    worker: str
    device: str
    emulated: bool | None = Field(default=None, description="Whether the device is emulated: by waiting, on a CPU.")
    group: int = Field(description="Its place in `groups`.")
    share: float | None = Field(default=None, description="Its part of its group's batch.")
    samples: int = Field(description="Samples that it computed.")
    step_ms: StepTimes = Field(description="From the end of a step to the end of the next.")
    busy_ms: StepTimes | None = Field(default=None, description="The part of a step in which it waited for nobody.")
    wait_ms: StepTimes = Field(description="The part of a step in which it waited for its group or for a grant.")
    solo_samples_per_s: float | None = Field(default=None, description="Its speed alone, by its portrait.")
    precision: str | None = Field(default=None, description="In which it computes.")
    numeric_drift: float | None = Field(
        default=None, description="Relative deviation of its dense gradient from that in fp32, measured on one batch."
    )
    doubt: str | None = Field(default=None, description='Why its solo speed may be far off; "" if nothing says so.')
    host_bound_steps: int | None = Field(
        default=None, description="Steps in which its host was slower than the device that is emulated."
    )

    example: ClassVar[dict[str, Any]] = {
        "worker": "w0",
        "device": "emulate:A100",
        "emulated": True,
        "group": 0,
        "share": 0.5,
        "samples": 300000,
        "step_ms": StepTimes.example,
        "busy_ms": {"p50": 165.9},
        "wait_ms": {"p50": 2.3},
        "solo_samples_per_s": 6000.0,
        "precision": "fp32",
        "numeric_drift": 0.0,
        "doubt": "",
        "host_bound_steps": 2,
    }


class Advice(Answer):
    """A change of the hardware that would pay, and by how much."""

    worker: str
    reason: str
    gain: float = Field(description="Throughput with the change over throughput without.")

    example: ClassVar[dict[str, Any]] = {
        "worker": "w3",
        "reason": "costs most: 2000 samples/s alone; if it were as fast as w1, 3000, training would be 1.080 times as "
        "fast",
        "gain": 1.08,
    }


class Imbalance(Answer):
    """Finishing time of a group's members over the median of their step; 1 is all together."""

    p50: float | None = None
    p90: float | None = None

    example: ClassVar[dict[str, Any]] = {"p50": 1.01, "p90": 1.05}


class Heterogeneity(Answer):
    """What unlike hardware cost the job. Null is what was not measured, as in a job that is not heterogeneous."""

    throughput_over_sum_of_solo: float | None = None
    sum_of_solo_samples_per_s: float | None = Field(default=None, description="What all workers reach, each alone.")
    equal_shares_samples_per_s: float | None = Field(
        default=None, description="What one group of equal shares would reach, by the portraits."
    )
    imbalance: Imbalance | None = None
    advice: list[Advice] | None = Field(default=None, description="Workers without a useful share first.")

    example: ClassVar[dict[str, Any]] = {
        "throughput_over_sum_of_solo": 0.97,
        "sum_of_solo_samples_per_s": 14000.0,
        "equal_shares_samples_per_s": 8000.0,
        "imbalance": Imbalance.example,
        "advice": [Advice.example],
    }


class Report(Answer):
    """The workers of a job that trains, as far as it has come; the result has the same fields in the end."""

    workers: list[WorkerReport] = Field(description="In the order of groups and ranks.")
    groups: list[list[str]] = Field(description="Members of each group, in rank order.")
    heterogeneity: Heterogeneity | None = None

    example: ClassVar[dict[str, Any]] = {
        "workers": [WorkerReport.example],
        "groups": [["w0", "w1"], ["w2", "w3"]],
        "heterogeneity": Heterogeneity.example,
    }
