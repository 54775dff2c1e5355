"""What tests of the simulator share: clusters by a few words, and a job on them without any overhead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.grants import TokenLookup
from coordinator.matching import MatchSettings
from coordinator.simulated_devices import Members, SimulatedWorker, Traffic, simulated_workers
from coordinator.simulated_groups import GroupChooser
from coordinator.simulated_job import SimulatedJob, probe_workers
from coordinator.simulated_solo import SoloRun
from coordinator.simulated_steps import Surroundings
from coordinator.simulator import SimulatedRun, Simulation
from coordinator.window import WindowSettings
from geartrain.config.simulated_cluster import SimulatedCluster
from geartrain.config.validation import validate

FREE = {"round_trip_ms": 0.0, "step_ms": 0.0, "first_step_ms": 0.0, "apply_ms": 0.0}
"""Nothing but cards takes time."""
NO_TRAFFIC = Traffic.proportional(0.0, 0.0, 0.0)


def card(name: str, samples_per_s: float, *, count: int = 1, dies_at_s: float | None = None, **more: float) -> Any:
    """Workers as a cluster file has them."""
    settings = "".join(f",{key}={value}" for key, value in more.items())
    device = f"emulate:name={name},samples_per_s={samples_per_s}{settings}"
    return {"device": device, "count": count, "dies_at_s": dies_at_s}


@dataclass(frozen=True)
class Setting:
    """A cluster and a job on it; by default of 100 batches of 1,000 in one pass, hybrid, without overhead."""

    cards: Sequence[Any]
    batch_size: int = 1000
    num_samples: int = 100_000
    num_rows: int = 100_000
    mode: str = "hybrid"
    window_ms: float | None = None
    depth: int = 0
    group_size: int | None = None
    min_share: int = 0
    heterogeneous: bool = True
    overheads: Mapping[str, float] = field(default_factory=lambda: FREE)
    traffic: Traffic = NO_TRAFFIC
    tokens: TokenLookup | None = None
    tokens_per_sample: float = 0.0
    initial: Mapping[str, float] = field(default_factory=dict)

    @property
    def cluster(self) -> SimulatedCluster:
        return validate(SimulatedCluster, {"workers": list(self.cards), "overheads": dict(self.overheads)})

    @property
    def workers(self) -> list[SimulatedWorker]:
        return simulated_workers(self.cluster)

    @property
    def around(self) -> Surroundings:
        return Surroundings(self.traffic, 2, self.cluster.overheads, self.depth, self.tokens)

    @property
    def job(self) -> SimulatedJob:
        return SimulatedJob(
            num_rows=self.num_rows,
            num_samples=self.num_samples,
            match=MatchSettings(self.batch_size, self.mode, self.group_size, self.min_share, self.tokens_per_sample),
            window=WindowSettings(self.mode, self.window_ms, pipeline_depth=self.depth),
            heterogeneous=self.heterogeneous,
            around=self.around,
        )

    def run(self, seed: int = 1, fixed: Sequence[tuple[str, ...]] | None = None) -> SimulatedRun:
        workers, job = self.workers, self.job
        portraits = probe_workers(workers, job, self.initial, seed)
        return Simulation(workers, job, GroupChooser(workers, job, portraits, fixed), seed).run()

    def capacity(self, seconds: float) -> float:
        """Samples that all workers would compute alone in this time."""
        solo = SoloRun(self.around, self.batch_size, self.tokens_per_sample)
        return float(solo.capacity(Members(self.workers), seconds).sum())
