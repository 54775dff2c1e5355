"""The portrait of a worker: what was measured of it, when and how, as one value that is stored and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any

from coordinator.cost_model import CostModel
from geartrain.errors import WireError


@dataclass(frozen=True, slots=True)
class Portrait:
    """A worker as it was measured on real steps of the job.

    `device` is the spec that it was started with; `model`, `vendor` and `emulated` as the device says. `source`:
    "probed", "set" (by a person), "stored" (measured in an earlier job), "steps" (corrected by steps of training) or
    "tried" (in doubt: its steps will tell); `reason` says the same in words. `cost` was fitted to `num_probes` steps,
    `num_outliers` of them left out.
    `measured_at`: seconds since 1970 of the last change of the cost.

    `step_samples` and `tokens_per_sample` describe the largest step that was probed: what `samples_per_s` is told for.
    `max_samples`: the largest step that fits its memory (None: no bound is known). Transfers are per server, megabytes
    per second each way and milliseconds there and back; `bytes_per_sample` is device memory.

    `doubt` says why its speed may be far off, alone and in steps of other sizes above all; "" if nothing speaks for it.
    """

    worker: str
    device: str
    model: str
    vendor: str
    emulated: bool
    source: str
    cost: CostModel
    num_probes: int
    num_outliers: int
    measured_at: float
    step_samples: int
    tokens_per_sample: float
    max_samples: int | None
    precision: str
    precision_samples_per_s: Mapping[str, float]
    numeric_drift: float
    pull_mb_per_s: Mapping[str, float]
    push_mb_per_s: Mapping[str, float]
    round_trip_ms: Mapping[str, float]
    memory_gb_per_s: float
    bytes_per_sample: float
    reason: str
    sensors: Mapping[str, Any] = field(default_factory=dict)
    doubt: str = ""

    @property
    def samples_per_s(self) -> float:
        """Throughput alone, in steps as large as the largest that was probed."""
        return self.cost.samples_per_s(self.step_samples, self.tokens_per_sample)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data: all fields, and `samples_per_s`, which follows from them."""
        return {**asdict(self), "samples_per_s": self.samples_per_s}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Portrait:
        """The portrait that `to_dict` described; WireError when it is not one."""
        try:
            # Those of earlier releases lack what was added since, which has a default.
            named = [one.name for one in fields(Portrait) if one.name in values or one.default is MISSING]
            known = {name: values[name] for name in named if name != "cost"}
            return Portrait(**known, cost=CostModel(**values["cost"]))
        except (KeyError, TypeError) as error:
            message = f"a portrait cannot be read: {type(error).__name__}: {error}"
            raise WireError(message, expected="Portrait.to_dict()", got=str(error)) from error


@dataclass(frozen=True, slots=True)
class PortraitChange:
    """The cost of a worker's steps is taken to be another from now on."""

    worker: str
    before: CostModel
    after: CostModel
    reason: str
