"""How long the steps of one simulated group take, member by member, and what the time goes to. Pure.

Shape letters: K members of the group, C causes. Times are seconds of the virtual clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coordinator.events import GroupSpec, StepId
from coordinator.grants import GiveGrant, TokenLookup
from coordinator.simulated_devices import KEY_BYTES, STATISTICS_BYTES, Array, Members, Traffic
from geartrain.config.simulated_cluster import SimulatedOverheads
from geartrain.types import Indices

CAUSES = (
    "computing",
    "jitter",
    "mismatch",
    "window",
    "transfers",
    "overhead",
    "pass_end",
    "regrouping",
    "deaths",
)
"""What a worker's time goes to; all but the first is lost.

jitter, mismatch: waiting for members of the group that took longer by chance, and by their speed and share. window:
waiting for the decision. overhead: messages, the servers' work, a worker's own work beside its card's. pass_end:
waiting for the next pass. regrouping: from a group's last step to the first grant of the next one, work that is thrown
away included; deaths: the same where a member died.
"""
COMPUTING, JITTER, MISMATCH, WINDOW, TRANSFERS, OVERHEAD, PASS_END, REGROUPING, DEATHS = range(len(CAUSES))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is the same for all groups."""

    traffic: Traffic
    servers: int
    overheads: SimulatedOverheads
    pipeline_depth: int
    tokens: TokenLookup | None

    @property
    def half_trip_s(self) -> float:
        return self.overheads.round_trip_ms / 2000

    def apply_s(self, num_rows: float) -> float:
        """From a decision until all servers answer pulls of its version, for a window of `num_rows` row gradients."""
        own_s = num_rows / (self.servers * self.overheads.apply_rows_per_s)
        return self.half_trip_s + self.overheads.apply_ms / 1000 + own_s


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """A granted step with its whole future: arrays are float64[K], `parts` is float64[C, K].

    `pulled_s`: when the answers of the servers were there; `end_s`: when the member had staged its part. `own_s`: what
    the step itself took (`Staged.busy_ms`), `expected_s` the same without jitter. `num_pushed`: rows, of all members.
    """

    grant: GiveGrant
    num_samples: Array
    num_tokens: Array
    num_pushed: float
    pulled_s: Array
    end_s: Array
    own_s: Array
    expected_s: Array
    parts: Array

    @property
    def id(self) -> StepId:
        return StepId(self.grant.group, self.grant.step)


class SimulatedGroup:
    """The members of a group, their clocks, and the accounts of their time."""

    def __init__(
        self,
        spec: GroupSpec,
        workers: Indices,
        members: Members,
        surroundings: Surroundings,
        free_s: float,
        random: np.random.Generator,
    ) -> None:
        """`workers` int64[K]: the members' places in the cluster. They are free from `free_s` on."""
        self.spec = spec
        self.workers = workers
        self.members = members
        self.spent = np.zeros((len(CAUSES), len(members)))
        self.samples = np.zeros(len(members))
        self.step_s: list[float] = []
        self.steps: dict[int, SimulatedStep] = {}
        self.decided_s = free_s
        self._around = surroundings
        self._random = random
        self._free_s = np.full(len(members), free_s)
        self._accounted_s = self._free_s
        self._held: SimulatedStep | None = None

    def grant(self, grant: GiveGrant, now_s: float, applied_s: float) -> list[tuple[SimulatedStep, float]]:
        """Take a grant; the steps whose end is known by it, and when the coordinator has all reports of each.

        `applied_s`: when the servers have applied the version that the grant builds on. A step that a member does not
        live to report never arrives.
        """
        step = self._times(grant, now_s, applied_s)
        self.steps[grant.step] = step
        self._free_s = step.end_s
        known: list[tuple[SimulatedStep, float]] = []
        if self._held is not None:
            # Its report had to wait until the pull of this step was answered.
            known.append((self._held, self._reported_s(np.maximum(self._held.end_s, step.pulled_s))))
            self._held = None
        if self._around.pipeline_depth > 0 and grant.ahead:
            self._held = step
        else:
            known.append((step, self._reported_s(step.end_s)))
        return [one for one in known if math.isfinite(one[1])]

    def account(self, step: SimulatedStep) -> None:
        """The step arrived: what it took is spent."""
        self.spent += step.parts
        self.samples += step.num_samples
        self.step_s.append(float(step.end_s[0] - self._accounted_s[0]))
        self._accounted_s = step.end_s

    def close(self, now_s: float, cause: int) -> None:
        """The group ends at `now_s`; what its members did since its last step is put down to `cause`.

        Time after a member's death is nobody's. At the end of training no step is open, and what was waited for first
        is the window.
        """
        until_s = np.minimum(now_s, self.members.dies_at_s)
        left = np.maximum(until_s - self._accounted_s, 0.0)
        if cause == PASS_END:
            waited = min(self.decided_s, now_s) - float(self._accounted_s.max()) - self._around.half_trip_s
            window = np.minimum(max(waited, 0.0), left)
            self.spent[WINDOW] += window
            left = left - window
        self.spent[cause] += left

    def _reported_s(self, told_s: Array) -> float:
        lost = bool((told_s > self.members.dies_at_s).any())
        return math.inf if lost else float(told_s.max()) + self._around.half_trip_s

    def _tokens(self, grant: GiveGrant, cuts: Indices) -> Array:
        lookup = self._around.tokens
        if lookup is None:
            return np.zeros(len(self.members))
        at_cuts = lookup.cumulative(grant.interval)[cuts - grant.interval.start]
        return np.diff(at_cuts).astype(np.float64)

    def _times(self, grant: GiveGrant, now_s: float, applied_s: float) -> SimulatedStep:
        """The step's future. The order is that of `dense_workers.trainer`, transfers are those of its links."""
        around, members, count = self._around, self.members, len(self.members)
        cuts = np.array(grant.cuts)
        num_samples = (cuts[1:] - cuts[:-1]).astype(np.float64)
        num_tokens = self._tokens(grant, cuts)
        rows = around.traffic.rows(num_samples)
        num_rows = float(rows.sum())
        row_s, dense_s = rows * members.byte_s, around.traffic.dense_bytes * members.byte_s
        host_s = around.overheads.step_ms / 1000

        pull_s = (KEY_BYTES + around.traffic.row_bytes) * row_s
        pull_s += num_rows / (around.servers * around.overheads.pull_rows_per_s)
        pull_s[0] += dense_s[0]  # the first member pulls the dense vector for all
        asked_s = max(now_s + around.half_trip_s, applied_s)
        pulled_s = asked_s + pull_s
        begin_s = np.maximum(self._free_s, pulled_s)
        collective_s = 2.0 * (count - 1) / count * dense_s
        push_s = (KEY_BYTES + STATISTICS_BYTES + around.traffic.row_bytes) * row_s + dense_s / count
        # The first member sends the dense vector to each of the others, who take it when they have their rows.
        spread_s = dense_s.copy()
        spread_s[0] *= count - 1
        begin_s[1:] = np.maximum(begin_s[1:], begin_s[0] + spread_s[0])
        begin_s += spread_s
        expected = members.step_s(num_samples, num_tokens, begin_s + host_s)
        seconds = members.jittered(expected, self._random)
        done_s = begin_s + host_s + seconds
        end_s = done_s.max() + collective_s + push_s
        own_s = pull_s + host_s + spread_s + collective_s + push_s

        parts = np.zeros((len(CAUSES), count))
        parts[COMPUTING] = seconds
        expected_done_s = begin_s + expected
        parts[MISMATCH] = expected_done_s.max() - expected_done_s
        parts[JITTER] = done_s.max() - done_s - parts[MISMATCH]
        parts[TRANSFERS] = collective_s + push_s
        parts[OVERHEAD] = host_s
        self._split_gap(parts, begin_s - self._free_s, now_s, applied_s)
        return SimulatedStep(
            grant, num_samples, num_tokens, num_rows, pulled_s, end_s, own_s + seconds, own_s + expected, parts
        )

    def _split_gap(self, parts: Array, gap_s: Array, now_s: float, applied_s: float) -> None:
        """What each member did between its last step and this one, `gap_s` float64[K]: it waited for the decision and,
        without rows, for the next pass; then come messages and the servers' work; the rest is the pull."""
        half_trip_s = self._around.half_trip_s
        waited = np.minimum(max(0.0, now_s - float(self._free_s.max()) - half_trip_s), gap_s)
        without_rows = np.minimum(max(0.0, now_s - self.decided_s), waited)
        overhead = np.minimum(
            2.0 * half_trip_s + max(0.0, applied_s - now_s - half_trip_s),
            gap_s - waited,
        )
        parts[WINDOW] = waited - without_rows
        parts[PASS_END] = without_rows
        parts[OVERHEAD] += overhead
        parts[TRANSFERS] += gap_s - waited - overhead
