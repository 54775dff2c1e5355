"""What workers would do alone: the speeds that a simulated cluster is compared with. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coordinator.simulated_devices import KEY_BYTES, STATISTICS_BYTES, Array, Members
from coordinator.simulated_steps import Surroundings


@dataclass(frozen=True, slots=True)
class SoloRun:
    """A worker that has the whole batch, or what fits its memory, and the servers, for itself; step after step, without
    overlap (pipeline depth 0)."""

    around: Surroundings
    batch_size: int
    tokens_per_sample: float

    def samples_per_s(self, members: Members, throttled: bool) -> Array:
        """Throughput float64[K] of each member alone, before or after it has slowed down."""
        around, overheads = self.around, self.around.overheads
        samples = np.minimum(float(self.batch_size), members.max_samples)
        tokens = samples * self.tokens_per_sample
        rows = around.traffic.rows(samples)
        row_bytes = 2 * (KEY_BYTES + around.traffic.row_bytes) + STATISTICS_BYTES
        transfers_s = (row_bytes * rows + 2 * around.traffic.dense_bytes) * members.byte_s
        servers_s = rows * (1 / overheads.pull_rows_per_s + 1 / overheads.apply_rows_per_s) / around.servers
        fixed_s = (overheads.round_trip_ms + overheads.apply_ms + overheads.step_ms) / 1000
        at_s = members.throttle_at_s if throttled else np.full(len(members), -np.inf)
        speeds: Array = samples / (fixed_s + servers_s + transfers_s + members.step_s(samples, tokens, at_s))
        return speeds

    def capacity(self, members: Members, until_s: float) -> Array:
        """Samples float64[K] that each member alone would compute in `until_s` seconds, until it dies, and more slowly
        from where it slows down."""
        lives_s = np.minimum(until_s, members.dies_at_s)
        fast_s = np.minimum(lives_s, members.throttle_at_s)
        slow_s = lives_s - fast_s
        samples: Array = fast_s * self.samples_per_s(members, throttled=False)
        if slow_s.any():
            samples += slow_s * self.samples_per_s(members, throttled=True)
        return samples
