"""A case of unlike hardware: its cards, what they train, what must be reached, and the line of what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmarks.support.emulated_runs import Card, Data, JobShape, Run
from benchmarks.support.lines import Line
from benchmarks.support.solo_runs import Solo, SoloSpeed

SOLO_BATCH = 4096
SOLO_STEP_S = 4.0
"""No step of a card alone takes longer than this."""


class Limit(NamedTuple):
    """What a figure must reach, and what it must not exceed."""

    least: float | None = None
    most: float | None = None

    def missed_by(self, name: str, value: Any) -> str:
        """What is wrong with the figure, or nothing."""
        if value is None:
            return f"{name} is missing"
        if self.least is not None and value < self.least:
            return f"{name} {value} < {self.least}"
        if self.most is not None and value > self.most:
            return f"{name} {value} > {self.most}"
        return ""


COMMON_LIMITS: Mapping[str, Limit] = {
    # More than all cards can do alone: then cards are not emulated as they are described.
    "throughput_over_sum_of_solo": Limit(most=1.02),
    # Equal shares must be what the slowest card allows, so that the comparison is with a run that is worth its name.
    "equal_over_slowest": Limit(least=0.93),
    "simulated_over_measured": Limit(0.95, 1.05),
    "simulated_equal_over_measured": Limit(0.95, 1.05),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """Rows, the mean number of tokens in a sample, and sections of the config that go with them.

    `solo_batch`: steps of a card alone are no larger.
    """

    name: str
    data: Data
    tokens_per_sample: float = 0.0
    model: Mapping[str, Any] = field(default_factory=dict, hash=False)
    solo_batch: int = SOLO_BATCH

    @property
    def changes(self) -> dict[str, Any]:
        return {"model": dict(self.model)} if self.model else {}


@dataclass(frozen=True, slots=True)
class Case:
    """`cards` train batches that take about `step_s` if all finish together, for about `run_s`.

    `alone` are the cards whose solo runs count, where they are not `cards` themselves; `equal_slowdown` is what chance
    costs equal shares. `more` gives further figures, and the case's `samples_per_s` where that of the whole
    run is not what it is about.
    """

    name: str
    cards: tuple[Card, ...]
    workload: Workload
    limits: Mapping[str, Limit]
    more: Callable[[Measured], dict[str, Any]] = lambda measured: {}
    alone: tuple[Card, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    step_s: float = 0.5
    run_s: float = 20.0
    equal_run_s: float = 15.0
    equal_slowdown: float = 1.0

    @property
    def batch_size(self) -> int:
        return round(self.step_s * sum(self._speeds))

    @property
    def devices(self) -> list[str]:
        return [card.spec for card in self.cards]

    @property
    def shape(self) -> JobShape:
        """The job with matched groups and shares."""
        return self._shape(round(self.run_s / self.step_s), self.changes)

    @property
    def equal_shape(self) -> JobShape:
        """The same job with equal shares; its steps are as long as the slowest card makes them."""
        step_s = self.batch_size / len(self.cards) / min(self._speeds)
        return self._shape(round(self.equal_run_s / step_s), {"heterogeneous": False})

    def solo(self, number: int, seconds: float) -> Solo:
        """The run of the card of worker `number` alone, of about so many seconds."""
        card, workload = (self.alone or self.cards)[number], self.workload
        speed = card.described_speed(workload.tokens_per_sample)
        batch_size = min(workload.solo_batch, round(SOLO_STEP_S * speed))
        num_steps = max(2, round(seconds * speed / batch_size))
        changes = {**workload.changes, "heterogeneous": False}
        shape = JobShape(workload.data, batch_size, batch_size * num_steps, changes)
        return Solo(f"{card.spec} {workload.name}", card, shape)

    @property
    def _speeds(self) -> list[float]:
        return [card.described_speed(self.workload.tokens_per_sample) for card in self.cards]

    def _shape(self, num_steps: int, changes: Mapping[str, Any]) -> JobShape:
        # Whole steps only: a short last one would count as a slow one.
        num_rows = self.batch_size * max(2, num_steps)
        return JobShape(self.workload.data, self.batch_size, num_rows, {**self.workload.changes, **changes})


@dataclass(frozen=True, slots=True)
class Measured:
    """A case as it was run, with matched and with equal shares, and as it was simulated. `solos`: by worker, w0, ..."""

    case: Case
    run: Run
    equal: Run
    solos: tuple[SoloSpeed, ...]
    simulated: Mapping[str, Any]
    simulated_equal: Mapping[str, Any]

    @property
    def solo_speeds(self) -> list[float]:
        return [solo.samples_per_s for solo in self.solos]


def line_of(measured: Measured) -> Line:
    """The line of a case, with what it missed."""
    case, run, equal = measured.case, measured.run, measured.equal
    more = case.more(measured)
    speed, of_solos = more.pop("samples_per_s", run.samples_per_s), sum(measured.solo_speeds)
    of_slowest = len(case.cards) * min(measured.solo_speeds) * case.equal_slowdown
    figures: Line = {
        "samples_per_s": speed,
        "sum_of_solo_samples_per_s": of_solos,
        "throughput_over_sum_of_solo": speed / of_solos,
        "equal_shares_samples_per_s": equal.samples_per_s,
        "speedup_over_equal_shares": speed / equal.samples_per_s,
        "equal_over_slowest": equal.samples_per_s / of_slowest,
        "groups": run.result["groups"],
        "simulated_samples_per_s": measured.simulated["samples_per_s"],
        "simulated_over_measured": measured.simulated["samples_per_s"] / run.samples_per_s,
        "simulated_equal_over_measured": measured.simulated_equal["samples_per_s"] / equal.samples_per_s,
        "host_bound_steps": run.host_bound_steps,
        "equal_host_bound_steps": equal.host_bound_steps,
        "solo_host_bound_steps": sum(solo.host_bound_steps for solo in measured.solos),
        "batch_size": case.batch_size,
        **more,
    }
    line = {"name": case.name} | {name: _rounded(value) for name, value in figures.items()}
    limits = {**COMMON_LIMITS, **case.limits}
    missed = [limit.missed_by(name, line.get(name)) for name, limit in limits.items()]
    return {
        **line,
        "limits": {name: list(limit) for name, limit in limits.items()},
        "missed": [one for one in missed if one],
        "reached": not any(missed),
    }


def _rounded(value: Any) -> Any:
    """Speeds to a tenth, ratios to four digits."""
    if not isinstance(value, float):
        return value
    return round(value, 1 if abs(value) >= 100 else 4)
