"""Unlike hardware: portraits of the workers, the groups that are made by them, and what can be set by hand."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from api.answers import Answer
from geartrain.config.section import PositiveNumber, expected
from geartrain.config.sync import AutoNumber

_BODY = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StepCost(Answer):
    """Seconds of a step: `fixed_s + sample_s * samples + token_s * tokens` (tokens: the values in sequence slots)."""

    fixed_s: float
    sample_s: float
    token_s: float
    error: float = Field(description="Median relative deviation of the steps that it was fitted to.")

    example: ClassVar[dict[str, Any]] = {"fixed_s": 0.0021, "sample_s": 0.000166, "token_s": 0.0, "error": 0.012}


class Portrait(Answer):
    """What was measured of a worker, when, and from how many probes."""

    worker: str
    device: str = Field(description="As it was named to `--device`.")
    model: str | None = Field(default=None, description="The name that cards of a kind share.")
    vendor: str | None = Field(default=None, description="Workers of two vendors are never in one group.")
    emulated: bool | None = None
    source: Literal["probed", "set", "stored", "steps", "tried"] = Field(
        description="Where the cost comes from: probes, a person, an earlier job, the steps of this one, or a guess "
        "that steps will correct."
    )
    samples_per_s: float = Field(description="Speed alone, by the cost, in steps as large as the largest probe.")
    cost: StepCost
    num_probes: int = Field(description="Timed steps that the cost was fitted to.")
    num_outliers: int = Field(description="Timed steps that were left out.")
    measured_at: float = Field(description="When the cost changed last; Unix time, seconds.")
    step_samples: int | None = Field(default=None, description="Samples of the largest step that was probed.")
    tokens_per_sample: float | None = Field(default=None, description="Values in sequence slots, in that step.")
    max_samples: int | None = Field(default=None, description="The largest step that fits; null: no bound was found.")
    precision: str | None = Field(default=None, description="In which it computes.")
    precision_samples_per_s: dict[str, float] | None = None
    numeric_drift: float | None = Field(
        default=None, description="Relative deviation of its dense gradient from that in fp32, measured on one batch."
    )
    pull_mb_per_s: dict[str, float] | None = Field(default=None, description="Megabytes per second, by server.")
    push_mb_per_s: dict[str, float] | None = Field(default=None, description="Megabytes per second, by server.")
    round_trip_ms: dict[str, float] | None = Field(default=None, description="By server.")
    memory_gb_per_s: float | None = None
    bytes_per_sample: float | None = None
    sensors: dict[str, Any] | None = Field(
        default=None, description="What the driver says: clocks in MHz, temperature in C, reasons to throttle."
    )
    doubt: str | None = Field(default=None, description='Why its speed may be far off; "" if nothing says so.')
    reason: str = Field(description="Why it is as it is.")

    example: ClassVar[dict[str, Any]] = {
        "worker": "w0",
        "device": "emulate:name=A100,samples_per_s=6000.0",
        "model": "A100",
        "vendor": "emulated",
        "emulated": True,
        "source": "steps",
        "samples_per_s": 6012.5,
        "cost": StepCost.example,
        "num_probes": 60,
        "num_outliers": 1,
        "measured_at": 1767225603.5,
        "step_samples": 512,
        "tokens_per_sample": 0.0,
        "max_samples": 65536,
        "precision": "fp32",
        "precision_samples_per_s": {"fp32": 6012.5},
        "numeric_drift": 0.0,
        "pull_mb_per_s": {"s0": 812.0, "s1": 796.5},
        "push_mb_per_s": {"s0": 640.2, "s1": 655.0},
        "round_trip_ms": {"s0": 0.31, "s1": 0.29},
        "memory_gb_per_s": 11.4,
        "bytes_per_sample": 5120.0,
        "sensors": {},
        "doubt": "",
        "reason": "w0 needed 0.96 times its predicted step time, by the median of its last 100 steps",
    }


class PortraitHistory(Portrait):
    """A portrait, and those that it replaced."""

    history: list[Portrait] = Field(description="Oldest first; only the last ones are kept.")

    example: ClassVar[dict[str, Any]] = {
        **Portrait.example,
        "history": [
            {
                **Portrait.example,
                "source": "probed",
                "reason": "fitted to 60 probe steps of 128 to 512 samples without 1 outlier",
            }
        ],
    }


class PortraitRequest(BaseModel):
    """The speed that a worker is taken to have until its steps tell better."""

    model_config = _BODY

    samples_per_s: PositiveNumber = Field(description="Samples per second, in steps as large as the largest probe.")

    example: ClassVar[dict[str, Any]] = {"samples_per_s": 3000.0}


class WindowRequest(BaseModel):
    """What is to change of the window; null or left out: it stays as it is."""

    model_config = _BODY

    mode: Literal["sync", "async", "hybrid"] | None = Field(
        default=None, description="sync waits for all groups, async for none, hybrid for `window_ms`."
    )
    window_ms: AutoNumber | None = Field(
        default=None, description="Milliseconds that a hybrid window waits; auto: by the history of arrivals."
    )

    example: ClassVar[dict[str, Any]] = {"mode": "hybrid", "window_ms": 25.0}

    @model_validator(mode="after")
    def _check_something_changes(self) -> WindowRequest:
        if self.mode is None and self.window_ms is None:
            raise expected("at least one of mode and window_ms")
        return self


class Group(Answer):
    """A sync group: its members in rank order, and how its batch is shared among them."""

    group: int = Field(description="Its id, which is never used twice.")
    members: list[str]
    batch_size: int = Field(description="Its part of the cluster's batch, in samples.")
    shares: dict[str, float] = Field(description="The part of the group's batch of each member; they add up to 1.")
    samples_per_s: float | None = Field(
        default=None, description="What the portraits let expect; null while there are none."
    )

    example: ClassVar[dict[str, Any]] = {
        "group": 4,
        "members": ["w0", "w1"],
        "batch_size": 2730,
        "shares": {"w0": 0.5, "w1": 0.5},
        "samples_per_s": 12000.0,
    }


class Groups(Answer):
    """How the workers of the running job are grouped, and why."""

    job: str | None = Field(default=None, description="Null without a job that trains.")
    generation: int = Field(description="Partitions of this job so far; 0 without a job that trains.")
    reason: str = Field(description="Why this partition.")
    groups: list[Group] = Field(description="The fastest first.")

    example: ClassVar[dict[str, Any]] = {
        "job": "movielens-deepfm-1",
        "generation": 1,
        "reason": "2 groups, the best by their speeds: equal shares inside would idle 0.0% of the cluster",
        "groups": [
            Group.example,
            {
                "group": 5,
                "members": ["w2", "w3"],
                "batch_size": 1366,
                "shares": {"w2": 0.5, "w3": 0.5},
                "samples_per_s": 6000.0,
            },
        ],
    }
