"""Workers that exist only as numbers: how long they compute, what passes over their links, when they die. Pure.

Shape letters: K members of a group. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from geartrain.config.simulated_cluster import SimulatedCluster
from geartrain.device_spec import EmulatedCard

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SimulatedWorker:
    """A worker by its card. `device` is the spec, `label` its short name."""

    name: str
    device: str
    label: str
    card: EmulatedCard
    dies_at_s: float | None = None


def simulated_workers(cluster: SimulatedCluster) -> list[SimulatedWorker]:
    """The workers of a cluster file, w0, w1, ... Raises ConfigError for a device that is no emulated card."""
    workers: list[SimulatedWorker] = []
    for kind, spec in zip(cluster.workers, cluster.devices(), strict=True):
        assert spec.card is not None
        for _ in range(kind.count):
            name = f"w{len(workers)}"
            workers.append(SimulatedWorker(name, str(spec), spec.label, spec.card, kind.dies_at_s))
    return workers


class Members:
    """The cards of K workers side by side, each figure one array float64[K]."""

    def __init__(self, workers: Sequence[SimulatedWorker]) -> None:
        cards = [worker.card for worker in workers]
        self.samples_per_s = np.array([card.samples_per_s for card in cards])
        self.sample_s = 1.0 / self.samples_per_s
        self.token_s = np.array([0.0 if card.tokens_per_s is None else 1.0 / card.tokens_per_s for card in cards])
        self.byte_s = np.array([0.0 if card.bandwidth_mb_s is None else 1e-6 / card.bandwidth_mb_s for card in cards])
        self.max_samples = np.array([np.inf if card.max_samples is None else card.max_samples for card in cards])
        self.dies_at_s = np.array([np.inf if one.dies_at_s is None else one.dies_at_s for one in workers])
        self._jitter = np.array([card.jitter for card in cards])
        self.throttle_at_s = np.array([np.inf if card.throttle_at_s is None else card.throttle_at_s for card in cards])
        self._slowdown = np.array([1.0 / card.throttle_to for card in cards])
        self._jitters = bool(self._jitter.any())
        self._throttles = bool(np.isfinite(self.throttle_at_s).any())
        self._counts_tokens = bool(self.token_s.any())

    def __len__(self) -> int:
        return len(self.sample_s)

    def step_s(self, num_samples: Array, num_tokens: Array, start_s: Array) -> Array:
        """Seconds without jitter of steps that begin to be computed at `start_s`; all float64[K]."""
        seconds = num_samples * self.sample_s
        if self._counts_tokens:
            seconds += num_tokens * self.token_s
        if self._throttles:
            seconds *= np.where(start_s >= self.throttle_at_s, self._slowdown, 1.0)
        return seconds

    def jittered(self, seconds: Array, random: np.random.Generator) -> Array:
        """`seconds` float64[K] as they turn out, each within its card's jitter."""
        if not self._jitters:
            return seconds
        return seconds * (1.0 + self._jitter * (2.0 * random.random(len(seconds)) - 1.0))


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a step needs of the servers. A step of `step_samples[i]` samples needs `step_rows[i]` different rows, and
    sizes between two of them lie on the line between; the first size is 0.

    `row_bytes` is a row's vector on the wire, its key not included; `dense_bytes` is the whole dense vector.
    """

    step_samples: Array
    step_rows: Array
    row_bytes: float
    dense_bytes: float

    @staticmethod
    def proportional(rows_per_sample: float, row_bytes: float, dense_bytes: float) -> Traffic:
        """As many rows more with each sample."""
        return Traffic(np.array([0.0, 1.0]), np.array([0.0, rows_per_sample]), row_bytes, dense_bytes)

    def rows(self, num_samples: Array) -> Array:
        """Different rows of steps of `num_samples` samples, float64[K]. Beyond the largest size known it goes on as
        between the last two."""
        known = np.interp(num_samples, self.step_samples, self.step_rows)
        beyond = np.maximum(num_samples - self.step_samples[-1], 0.0)
        run, rise = self.step_samples[-1] - self.step_samples[-2], self.step_rows[-1] - self.step_rows[-2]
        rows: Array = known + beyond * (rise / run)
        return rows


KEY_BYTES = 8
STATISTICS_BYTES = 8
"""Shows and clicks, float32 each, that go with every gradient of a row."""
