"""What single cases of unlike hardware are about, beyond their throughput: figures from runs that have ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.support.best_matching import best_groups, best_shares
from benchmarks.support.emulated_runs import Run
from benchmarks.support.progress import Progress
from benchmarks.support.unlike_case import Measured
from coordinator.grouping import Candidate, partition_cost
from geartrain.device_spec import parse_device

LOOK_S = 10.0
"""A throughput is looked at for this long before it counts as recovered."""
RECOVERED = 0.90
RIGHT = 0.10
"""A portrait is right within this part of the card's speed."""


def groups_by_model(measured: Measured) -> dict[str, Any]:
    """Whether each model has a group of its own."""
    models: dict[str, set[str]] = {}
    for number, card in enumerate(measured.case.cards):
        models.setdefault(card.name, set()).add(f"w{number}")
    found = {frozenset(group) for group in measured.run.result["groups"]}
    return {"groups_by_model": found == {frozenset(workers) for workers in models.values()}}


def beside_the_best(measured: Measured) -> dict[str, Any]:
    """Groups and shares beside those that are found by trying all of them, by the solo speeds.

    `worst_share_error`: how far the samples of a worker are from its best share, at most.
    """
    speeds, batch_size = measured.solo_speeds, measured.case.batch_size
    candidates = [
        Candidate(f"w{number}", card.name, "emulated", speed)
        for number, (card, speed) in enumerate(zip(measured.case.cards, speeds, strict=True))
    ]
    best, best_cost = best_groups(candidates)
    own = tuple(tuple(group) for group in measured.run.result["groups"])
    shares = _shares(measured)
    wanted = {
        one.worker: size / batch_size for one, size in zip(candidates, best_shares(batch_size, speeds), strict=True)
    }
    return {
        "best_groups": [list(group) for group in best],
        "groups_are_best": partition_cost(own, candidates) <= best_cost + 1e-9,
        "worst_share_error": max(abs(shares[worker] / share - 1.0) for worker, share in wanted.items()),
    }


def beside_chance(measured: Measured) -> dict[str, Any]:
    """The throughput over what is possible when each step of a group takes as long as its unluckiest member."""
    solos = dict(zip((f"w{number}" for number in range(len(measured.solos))), measured.solo_speeds, strict=True))
    card = parse_device(measured.case.cards[0].spec).card
    assert card is not None
    groups = measured.run.result["groups"]
    bound = sum(sum(solos[worker] for worker in group) * chance(len(group), card.jitter) for group in groups)
    return {"bound_samples_per_s": bound, "throughput_over_bound": measured.run.samples_per_s / bound}


def chance(num_members: int, jitter: float) -> float:
    """What is left of the speed of equal cards that wait for each other, when each step takes a uniform 1 ± `jitter`
    times its mean: the largest of k such times is 1 + `jitter` (k - 1) / (k + 1) on average."""
    return 1.0 / (1.0 + jitter * (num_members - 1) / (num_members + 1))


def after_throttling(measured: Measured) -> dict[str, Any]:
    """How soon the cluster has `RECOVERED` of what its cards can still do, and how fast it is from there.

    `samples_per_s` is the speed after that; steps, of the cluster's whole batch, are None when it never came.
    """
    case, run = measured.case, measured.run
    cards = [parse_device(card.spec).card for card in case.cards]
    number, throttle_s = next(
        (number, card.throttle_at_s)
        for number, card in enumerate(cards)
        if card is not None and card.throttle_at_s is not None
    )
    progress, since_s = _progress(measured), _begin_s(measured) + throttle_s
    target = RECOVERED * sum(measured.solo_speeds)
    recovered_s = progress.recovered_at(since_s, target, LOOK_S)
    found: dict[str, Any] = {
        "whole_run_samples_per_s": run.samples_per_s,
        "before_samples_per_s": progress.rate(_begin_s(measured), since_s),
        "samples_per_s": progress.rate(recovered_s or since_s, progress.end_s),
        "steps_to_recover": None,
        "steps_after": _steps(progress.samples_at(progress.end_s) - progress.samples_at(since_s), case.batch_size),
        "reason": _reason(run, f"w{number}", since_s),
    }
    if recovered_s is not None:
        recovered = progress.samples_at(recovered_s) - progress.samples_at(since_s)
        found["steps_to_recover"] = _steps(recovered, case.batch_size)
    return found


def after_a_wrong_portrait(measured: Measured) -> dict[str, Any]:
    """How soon the portrait that a person set is within `RIGHT` of its card's speed, and the throughput from there."""
    case = measured.case
    worker = next(iter(case.changes["portrait"]["initial"]))
    speed = measured.solo_speeds[int(worker.removeprefix("w"))]
    share = case.batch_size * speed / sum(measured.solo_speeds)
    portrait = measured.run.portraits[worker]
    known = [*portrait["history"], {name: value for name, value in portrait.items() if name != "history"}]
    progress = _progress(measured)
    right = next((one for one in known if abs(_told_speed(one, share) / speed - 1.0) <= RIGHT), None)
    found: dict[str, Any] = {
        "told_samples_per_s": [round(_told_speed(one, share), 1) for one in known],
        "steps_to_correct": None,
        "once_right_over_sum_of_solo": None,
        "reason": _reason(measured.run, worker, _begin_s(measured)),
    }
    if right is not None:
        found["steps_to_correct"] = _steps(progress.samples_at(right["measured_at"]), case.batch_size)
        if right["measured_at"] < progress.end_s:
            rate = progress.rate(right["measured_at"], progress.end_s)
            found["once_right_over_sum_of_solo"] = rate / sum(measured.solo_speeds)
    return found


def balance(measured: Measured) -> dict[str, Any]:
    """How nearly the members of a group finish together: their time over the median of their step."""
    runs = {"": measured.run, "equal_": measured.equal}
    return {
        f"{whose}imbalance_{percent}": run.result["heterogeneity"]["imbalance"][percent]
        for whose, run in runs.items()
        for percent in ("p50", "p90")
    }


def beside_the_possible(measured: Measured) -> dict[str, Any]:
    """The throughput over the best that the simulator knows, and the share of the last worker, whose link is thin."""
    possible = max(one["samples_per_s"] for one in (measured.simulated, *measured.simulated["choices"]))
    return {
        "possible_samples_per_s": possible,
        "throughput_over_possible": measured.run.samples_per_s / possible,
        "share_of_thin_link": _shares(measured)[f"w{len(measured.solos) - 1}"],
    }


def _shares(measured: Measured) -> dict[str, float]:
    """Each worker's part of all samples."""
    samples = {worker["worker"]: worker["samples"] for worker in measured.run.result["workers"]}
    return {worker: count / sum(samples.values()) for worker, count in samples.items()}


def _begin_s(measured: Measured) -> float:
    """When training began: Unix time of the first pass."""
    return float(next(event["time"] for event in measured.run.events if event["kind"] == "pass"))


def _progress(measured: Measured) -> Progress:
    return Progress(_begin_s(measured), measured.run.points)


def _reason(run: Run, worker: str, since_s: float) -> str | None:
    """Why shares first changed for this worker, in the words of the job's events."""
    changes = (event for event in run.events if event["kind"] == "shares" and event["time"] >= since_s)
    return next((event["message"] for event in changes if event["message"].startswith(f"{worker} ")), None)


def _steps(samples: float, batch_size: int) -> int:
    return round(samples / batch_size)


def _told_speed(portrait: Mapping[str, Any], num_samples: float) -> float:
    """Samples per second in steps of `num_samples`, by the portrait's cost."""
    cost = portrait["cost"]
    return float(num_samples / (cost["fixed_s"] + cost["sample_s"] * num_samples))
