"""The portraits of all workers, and how real steps correct them. Pure: reports and timings in, changes out.

Every change carries its reason; who owns the book cuts shares anew, and groups if need be.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from statistics import median, median_low

from coordinator.cost_model import CostModel, StepTiming, fit_cost_model, is_usable
from coordinator.drift import CHECK_EVERY_STEPS, NUM_RECENT, RatioWatch, Verdict
from coordinator.events import MemberCost
from coordinator.portrait import Portrait, PortraitChange
from geartrain.device_spec import LEAST_SPEED, MOST_SPEED
from geartrain.errors import ConfigError, NotFoundError, WireError
from geartrain.wire.message import ProbeReport

HISTORY_LENGTH = 50
"""Portraits that are kept of a worker, the current one included."""
LIKE = 0.15
"""Cards of a kind whose predictions lie within this of their median are taken to be equally fast."""

NOISY = 0.15
"""Probes with a larger median deviation, ..."""
MANY_OUTLIERS = 0.25
"""... or a larger share of outliers, may be far off."""
FAR_OFF = 1.5
"""So were they when the first steps need so many times what they let expect, or so many times less. ..."""
FIRST_STEPS = NUM_RECENT + 3 * CHECK_EVERY_STEPS
"""... What is seen later is a device that has changed."""


class PortraitBook:
    """Portraits by worker, from probes, a person, the store, and steps of training."""

    def __init__(self, update_every_steps: int, initial: Mapping[str, float]) -> None:
        """`update_every_steps`: how often small deviations are looked for. `initial`: samples/s set by a person."""
        self._update_every_steps = update_every_steps
        self._initial = dict(initial)
        self._known: dict[str, deque[Portrait]] = {}
        self._watches: dict[str, RatioWatch] = {}
        self._latest: dict[str, deque[StepTiming]] = {}

    # --- where portraits come from -----------------------------------------------------------------------------------

    def probed(self, worker: str, device_spec: str, report: ProbeReport, unix_time: float) -> Portrait:
        """The portrait that these probes give; a speed that a person set for the worker wins over their cost.

        Raises WireError for a report without a usable timing, or with a figure that is no number.
        """
        _check_finite(worker, report)
        timings = [StepTiming(probe.num_samples, probe.num_tokens, probe.seconds) for probe in report.timings]
        usable = [timing for timing in timings if is_usable(timing)]
        if not usable:
            expected, got = "a timed probe step", f"{len(timings)} timings, none with samples and a time"
            raise WireError(f"{worker} was probed: expected {expected}, got {got}", expected=expected, got=got)
        cost, num_outliers = fit_cost_model(timings)
        doubt = _doubt_of_probes(len(timings), num_outliers, cost)
        portrait = Portrait(
            worker=worker,
            device=device_spec,
            model=report.device.model,
            vendor=report.device.vendor,
            emulated=report.device.emulated,
            source="probed",
            cost=cost,
            num_probes=len(timings),
            num_outliers=num_outliers,
            measured_at=unix_time,
            step_samples=max(timing.num_samples for timing in usable),
            tokens_per_sample=sum(timing.num_tokens for timing in usable)
            / sum(timing.num_samples for timing in usable),
            max_samples=report.max_samples,
            precision=report.precision,
            precision_samples_per_s=dict(report.precision_samples_per_s),
            numeric_drift=report.numeric_drift,
            pull_mb_per_s=dict(report.pull_mb_per_s),
            push_mb_per_s=dict(report.push_mb_per_s),
            round_trip_ms=dict(report.round_trip_ms),
            memory_gb_per_s=report.memory_gb_per_s,
            bytes_per_sample=report.bytes_per_sample,
            reason=_reason_of_probes(usable, cost, num_outliers, doubt),
            sensors=dict(report.device.sensors),
            doubt=doubt,
        )
        if worker in self._initial:
            portrait = _set(portrait, self._initial[worker], unix_time)
        return self._keep(portrait)

    def restored(self, portrait: Portrait) -> Portrait:
        """Take over what was measured of the same device before a restart; no starting value wins over that."""
        reason = portrait.reason if portrait.source == "stored" else f"measured in an earlier job: {portrait.reason}"
        return self._keep(replace(portrait, source="stored", reason=reason))

    def put(self, worker: str, samples_per_s: float, unix_time: float) -> PortraitChange:
        """Set the speed of a worker by hand, in steps as they were probed. Steps correct it from there.

        Raises ConfigError for what is no speed, NotFoundError for a worker without a portrait.
        """
        check_speed(samples_per_s)
        return self._change(_set(self.portrait(worker), samples_per_s, unix_time))

    def doubt(self, worker: str, factor: float, reason: str, unix_time: float) -> PortraitChange:
        """Take the worker to need `factor` times what its portrait says, until its steps tell."""
        portrait = self.portrait(worker)
        said = f"{worker} {reason}; before: {portrait.reason}"
        cost = portrait.cost.scaled(factor)
        return self._change(replace(portrait, source="tried", cost=cost, measured_at=unix_time, reason=said))

    def observe(self, worker: str, timing: StepTiming, unix_time: float) -> PortraitChange | None:
        """A real step of the worker; the change, when its steps show that the portrait is no longer right.

        A step without samples or without a time says nothing. Raises NotFoundError for a worker without a portrait.
        """
        portrait = self.portrait(worker)
        if not is_usable(timing):
            return None
        predicted_s = portrait.cost.seconds(timing.num_samples, timing.num_tokens)
        watch = self._watches[worker]
        self._latest[worker].append(timing)
        verdict = watch.add(timing.seconds / predicted_s)
        return self._corrected(portrait, verdict, watch.num_steps, unix_time) if verdict is not None else None

    def _corrected(self, portrait: Portrait, verdict: Verdict, num_steps: int, unix_time: float) -> PortraitChange:
        """What `num_steps` steps of a worker, the first ones of its portrait, say of it."""
        factor, cost, doubt = verdict.factor, portrait.cost.scaled(verdict.factor), portrait.doubt
        reason = f"{portrait.worker} {verdict.reason}"
        if portrait.source in ("probed", "stored"):
            if factor < 1.0:
                latest = self._latest[portrait.worker]
                num_samples = median(timing.num_samples for timing in latest)
                cost = portrait.cost.cheaper(factor, num_samples, median(timing.num_tokens for timing in latest))
            if num_steps <= FIRST_STEPS and not 1 / FAR_OFF <= factor <= FAR_OFF:
                what = "its probes were" if portrait.source == "probed" else "what was stored of it was"
                doubt = f"{what} far off: its steps take {factor:.2g} times what they let expect"
                reason = f"{reason}: {what} far off"
        cost = replace(cost, error=verdict.deviation)
        changed = replace(portrait, source="steps", cost=cost, measured_at=unix_time, reason=reason, doubt=doubt)
        return self._change(changed)

    def _change(self, portrait: Portrait) -> PortraitChange:
        before = self.portrait(portrait.worker).cost
        self._keep(portrait)
        return PortraitChange(portrait.worker, before, portrait.cost, portrait.reason)

    def _keep(self, portrait: Portrait) -> Portrait:
        self._known.setdefault(portrait.worker, deque(maxlen=HISTORY_LENGTH)).append(portrait)
        self._latest[portrait.worker] = deque(maxlen=NUM_RECENT)
        self._watches[portrait.worker] = RatioWatch(self._update_every_steps, unsettled=portrait.source != "steps")
        return portrait

    # --- what they say -----------------------------------------------------------------------------------------------

    def portrait(self, worker: str) -> Portrait:
        """The current portrait; NotFoundError without one."""
        if worker not in self._known:
            raise NotFoundError(f"there is no portrait of {worker!r}", worker=worker)
        return self._known[worker][-1]

    def portraits(self) -> dict[str, Portrait]:
        """The current portraits by worker."""
        return {worker: known[-1] for worker, known in self._known.items()}

    def history(self, worker: str) -> list[Portrait]:
        """The portraits that the current one replaced, oldest first, as far as they are kept; NotFoundError."""
        self.portrait(worker)
        known = self._known[worker]
        return list(islice(known, len(known) - 1))

    def costs(self) -> dict[str, MemberCost]:
        """What a step costs each worker, for shares and groups: like cards that measure alike have one cost.

        Measurements of equal cards differ a little; equal shares are right for them, and no share changes for noise.
        """
        alike: dict[tuple[str, str, str], list[Portrait]] = defaultdict(list)
        for portrait in self.portraits().values():
            alike[(_without_place(portrait.device), portrait.model, portrait.vendor)].append(portrait)
        pooled = {worker: cost for kind in alike.values() for worker, cost in _pooled(kind).items()}
        return {
            worker: MemberCost(pooled[worker], portrait.max_samples) for worker, portrait in self.portraits().items()
        }


def check_speed(samples_per_s: float) -> None:
    """Raises ConfigError for what is no speed."""
    if not LEAST_SPEED <= samples_per_s <= MOST_SPEED:
        allowed = f"a number from {LEAST_SPEED:g} to {MOST_SPEED:g}"
        raise ConfigError(
            f"samples_per_s: expected {allowed}, got {samples_per_s}",
            field="samples_per_s",
            value=str(samples_per_s),  # JSON has no word for NaN and infinity
            expected=allowed,
        )


def _set(portrait: Portrait, samples_per_s: float, unix_time: float) -> Portrait:
    """The portrait with another speed, of the same kind: scaled, so that what a step costs apart from its samples, and
    what tokens cost, stay in proportion, and steps can make it right again by a factor."""
    cost = portrait.cost.scaled(portrait.samples_per_s / samples_per_s)
    reason = (
        f"set to {samples_per_s:.6g} samples/s by a person; before: {portrait.samples_per_s:.6g}, {portrait.source}"
    )
    return replace(portrait, source="set", cost=cost, measured_at=unix_time, reason=reason, doubt="")


def _pooled(kind: Sequence[Portrait]) -> dict[str, CostModel]:
    """The costs of cards of one kind: one for those near their median, its own for every other."""
    step_samples = median(one.step_samples for one in kind)
    num_tokens = step_samples * median(one.tokens_per_sample for one in kind)
    predicted = {one.worker: one.cost.seconds(step_samples, num_tokens) for one in kind}
    # The lower of two: a card that slows down leaves its only twin when it differs by that much, not by twice that.
    middle = median_low(predicted.values())
    # Measurements that scatter much say little: it takes more to tell such cards apart.
    like = max(LIKE, 2.0 * max(one.cost.error for one in kind))
    near = [one for one in kind if abs(predicted[one.worker] / middle - 1.0) <= like]
    costs = [one.cost for one in near]
    mean = CostModel(
        math.fsum(cost.fixed_s for cost in costs) / len(costs),
        math.fsum(cost.sample_s for cost in costs) / len(costs),
        math.fsum(cost.token_s for cost in costs) / len(costs),
        median(cost.error for cost in costs),
    )
    shared = mean.scaled(median(predicted[one.worker] for one in near) / mean.seconds(step_samples, num_tokens))
    return {one.worker: one.cost for one in kind} | {one.worker: shared for one in near}


def _without_place(device_spec: str) -> str:
    """`cuda:0` and `cuda:1` are two cards, and may be of one kind."""
    return re.sub(r":\d+$", "", device_spec)


def _reason_of_probes(usable: Sequence[StepTiming], cost: CostModel, num_outliers: int, doubt: str) -> str:
    sizes = [timing.num_samples for timing in usable]
    outliers = "1 outlier" if num_outliers == 1 else f"{num_outliers} outliers"
    return (
        f"fitted to {len(usable)} probe steps of {min(sizes)} to {max(sizes)} samples, {outliers} left out, "
        f"median deviation {100 * cost.error:.2g}%" + (": too noisy to rely on" if doubt else "")
    )


def _doubt_of_probes(num_probes: int, num_outliers: int, cost: CostModel) -> str:
    if num_outliers > MANY_OUTLIERS * num_probes:
        return f"its probes were noisy: {num_outliers} of {num_probes} were outliers"
    if cost.error > NOISY:
        return f"its probes were noisy: their median deviation was {100 * cost.error:.2g}%"
    return ""


def _check_finite(worker: str, report: ProbeReport) -> None:
    figures = {name: getattr(report, name) for name in ("numeric_drift", "memory_gb_per_s", "bytes_per_sample")}
    for name in ("pull_mb_per_s", "push_mb_per_s", "round_trip_ms", "precision_samples_per_s"):
        figures |= {f"{name}.{key}": value for key, value in getattr(report, name).items()}
    for name, value in figures.items():
        if not math.isfinite(value):
            message = f"{worker} was probed: {name}: expected a number, got {value}"
            raise WireError(message, field=name, expected="a number", got=str(value))
