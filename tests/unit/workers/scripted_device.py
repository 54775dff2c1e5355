"""A worker whose device, model and way to the servers take exactly the time that a test says, on a clock of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from geartrain.wire.messages import DeviceFacts

NUM_VALUES, NUM_PARAMETERS = 5, 4


@dataclass
class Script:
    """What happens, and the time it takes."""

    sample_s: float = 1e-4
    token_s: float = 0.0
    fixed_s: float = 0.0
    speedup: Mapping[str, float] = field(default_factory=dict)
    drift: Mapping[str, float] = field(default_factory=dict)
    precisions: tuple[str, ...] = ("fp32",)
    mb_per_s: float = 1000.0
    round_trip_s: float = 1e-4
    max_samples: int | None = None
    sample_bytes: int | None = None
    now_s: float = 0.0
    precision: str = "fp32"
    steps: list[tuple[str, int]] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)

    def clock_s(self) -> float:
        return self.now_s


class ScriptedDevice:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._peak = 0
        self.torch_device = torch.device("cpu")
        self.max_samples = script.max_samples
        self.spec = SimpleNamespace(label="emulate:V100")

    def facts(self) -> DeviceFacts:
        return DeviceFacts("V100", "emulated", True, list(self._script.precisions))

    def begin_step(self, num_samples: int, num_tokens: int) -> ScriptedDevice:
        script = self._script
        assert script.max_samples is None or num_samples <= script.max_samples
        speedup = script.speedup.get(script.precision, 1.0)
        seconds = script.fixed_s + script.sample_s * num_samples + script.token_s * num_tokens
        self._until_s = script.now_s + seconds / speedup
        self._peak = max(self._peak, num_samples)
        script.steps.append((script.precision, num_samples))
        return self

    def finish(self) -> bool:
        self._script.now_s = max(self._script.now_s, self._until_s)
        return False

    def synchronize(self) -> None:
        self._script.now_s += 0.001  # a copy is all that is waited for without a step

    def forget_peak(self) -> None:
        self._peak = 0

    def peak_bytes(self) -> int | None:
        size = self._script.sample_bytes
        return None if size is None else 10_000 + self._peak * size


class ScriptedRunner:
    num_values, num_parameters = NUM_VALUES, NUM_PARAMETERS

    def __init__(self, script: Script) -> None:
        self._script = script

    def use_precision(self, precision: str) -> None:
        self._script.precision = precision

    def load_dense(self, values: Any) -> None:
        assert len(values) == NUM_VALUES

    def compute(self, planned: Any, rows: Any, step_seed: int) -> Any:
        assert len(rows) == len(planned.plan.unique_keys)
        drift = self._script.drift.get(self._script.precision, 0.0)
        dense = np.full(NUM_VALUES, 1.0 + drift, dtype=np.float32)
        dense[NUM_PARAMETERS:] = 77 * drift  # moments say nothing about gradients
        return SimpleNamespace(dense=dense)


class ScriptedClient:
    """Two servers, of which the second owns no row."""

    row_dim = 4

    def __init__(self, script: Script) -> None:
        self._script = script
        self.route = SimpleNamespace(servers=["s0", "s1"])
        self.echoed: dict[int, int] = {0: 0, 1: 0}

    def begin_pull(self, keys: Any, counts: Any, version: int) -> int:
        self._script.versions.add(version)
        assert counts.sum() == len(keys)
        return len(keys)

    def pull_dense(self, version: int, out: Any) -> int:
        self._script.versions.add(version)
        out[:] = 0
        return version

    def finish_pull(self, asked: int, out: Any) -> int:
        assert len(out) == asked
        self._pass(24 * asked)
        return 0

    def pull(self, keys: Any, counts: Any, version: int, out: Any) -> int:
        return self.finish_pull(self.begin_pull(keys, counts, version), out)

    def rows_bytes(self, num_rows: int) -> int:
        return 16 * num_rows

    def stage_bytes(self, counts: Any) -> dict[int, int]:
        return {server: int(32 * number) for server, number in enumerate(counts.sum(axis=1))}

    def echo(self, num_bytes: Mapping[int, int]) -> None:
        for server, size in num_bytes.items():
            self.echoed[server] += size
        self._pass(sum(num_bytes.values()))

    def _pass(self, num_bytes: int) -> None:
        self._script.now_s += self._script.round_trip_s + num_bytes / 1e6 / self._script.mb_per_s
