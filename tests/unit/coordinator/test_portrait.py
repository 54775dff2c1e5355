"""The book of portraits: from probes, a person, the store and real steps; like cards cost the same."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from cluster_model import steady
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.cost_model import CostModel, StepTiming
from coordinator.events import MemberCost
from coordinator.portrait import Portrait
from coordinator.portrait_book import HISTORY_LENGTH, LIKE, PortraitBook
from geartrain.errors import ConfigError, NotFoundError, WireError
from geartrain.wire.message import DeviceFacts, ProbeReport, ProbeTiming

SIZES = (64, 128, 256)
TRUTH = CostModel(0.002, 1 / 3000, 0.00002)
V100 = DeviceFacts("V100", "nvidia", True, ["fp32", "fp16"], sensors={"clock_mhz": 1380, "throttle": ["power"]})
NUMBERS = st.floats(1e-6, 1e6)


def report_of(truth: CostModel, seed: int = 0, noise: float = 0.02, device: DeviceFacts = V100) -> ProbeReport:
    rng = random.Random(seed)
    timings = []
    for num_samples in SIZES:
        for _ in range(20):
            num_tokens = round(num_samples * rng.uniform(1, 50))
            seconds = truth.seconds(num_samples, num_tokens) * rng.uniform(1 - noise, 1 + noise)
            timings.append(ProbeTiming(num_samples, num_tokens, seconds, 0.1 * seconds))
    return ProbeReport(
        device=device,
        timings=timings,
        max_samples=4096,
        pull_mb_per_s={"s0": 200.0, "s1": 180.0},
        push_mb_per_s={"s0": 150.0, "s1": 140.0},
        round_trip_ms={"s0": 0.2, "s1": 0.3},
        memory_gb_per_s=800.0,
        bytes_per_sample=12_000.0,
        precision="fp16",
        precision_samples_per_s={"fp32": 2000.0, "fp16": 3000.0},
        numeric_drift=0.003,
        seconds=1.5,
    )


def book_with(*truths: CostModel, initial: dict[str, float] | None = None, noise: float = 0.02) -> PortraitBook:
    """Workers w0, w1, ... that were probed at time 100, all of one kind of card."""
    book = PortraitBook(100, initial or {})
    for place, truth in enumerate(truths):
        book.probed(f"w{place}", "emulate:name=V100", report_of(truth, seed=place, noise=noise), 100.0)
    return book


def run(book: PortraitBook, worker: str, truth: CostModel, num_steps: int, seed: int = 0, jitter: float = 0.1) -> Any:
    """Real steps of varying shares; the changes, with the number of the step (from 1) that brought each."""
    rng = random.Random(seed)
    changes = []
    for step in range(1, num_steps + 1):
        num_samples = rng.randrange(100, 200)
        num_tokens = round(num_samples * rng.uniform(20, 30))
        seconds = truth.seconds(num_samples, num_tokens) * rng.uniform(1 - jitter, 1 + jitter)
        change = book.observe(worker, StepTiming(num_samples, num_tokens, seconds), 1000.0 + step)
        if change is not None:
            changes.append((step, change))
    return changes


def test_probes_give_a_portrait() -> None:
    book = PortraitBook(100, {})
    report = report_of(TRUTH)
    slow = report.timings[5]
    report.timings[5] = ProbeTiming(slow.num_samples, slow.num_tokens, 10 * slow.seconds, slow.transfer_s)
    portrait = book.probed("w0", "emulate:name=V100", report, 100.0)
    assert portrait == book.portrait("w0") == book.portraits()["w0"]
    assert (portrait.worker, portrait.device, portrait.model) == ("w0", "emulate:name=V100", "V100")
    assert (portrait.vendor, portrait.emulated, portrait.source) == ("nvidia", True, "probed")
    assert portrait.cost.seconds(128, 3000) == pytest.approx(TRUTH.seconds(128, 3000), rel=0.02)
    assert (portrait.num_probes, portrait.num_outliers, portrait.measured_at) == (60, 1, 100.0)
    assert portrait.reason.startswith(
        "fitted to 60 probe steps of 64 to 256 samples, 1 outlier left out, median deviation"
    )
    assert portrait.step_samples == 256
    tokens = sum(one.num_tokens for one in report.timings) / sum(one.num_samples for one in report.timings)
    assert portrait.tokens_per_sample == pytest.approx(tokens)
    assert portrait.samples_per_s == pytest.approx(TRUTH.samples_per_s(256, tokens), rel=0.02)
    assert (portrait.max_samples, portrait.precision, portrait.numeric_drift) == (4096, "fp16", 0.003)
    assert portrait.sensors == {"clock_mhz": 1380, "throttle": ["power"]}
    assert book.history("w0") == []


def test_probes_that_scatter_or_have_many_outliers_are_in_doubt() -> None:
    clean = book_with(TRUTH, noise=0.2).portrait("w0")
    assert clean.doubt == clean.to_dict()["doubt"] == ""
    scattered = book_with(TRUTH, noise=0.6).portrait("w0")
    assert scattered.doubt == f"its probes were noisy: their median deviation was {100 * scattered.cost.error:.2g}%"
    assert scattered.reason.endswith("%: too noisy to rely on")

    report = report_of(TRUTH)
    for place in range(0, 60, 3):
        one = report.timings[place]
        report.timings[place] = ProbeTiming(one.num_samples, one.num_tokens, 5 * one.seconds, 0.0)
    book = PortraitBook(100, {})
    assert book.probed("w0", "cpu", report, 1.0).doubt == "its probes were noisy: 20 of 60 were outliers"
    assert book.restored(book.portrait("w0")).doubt == book.portrait("w0").doubt != ""
    book.put("w0", 1000.0, 2.0)
    assert book.portrait("w0").doubt == "", "a person knows better"


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_probes_that_the_first_steps_prove_wrong_are_in_doubt(factor: float) -> None:
    book = book_with(TRUTH)
    run(book, "w0", TRUTH.scaled(factor), 40, jitter=0.01)
    wrong = f"its probes were far off: its steps take {factor:.2g} times what they let expect"
    assert book.portrait("w0").doubt == wrong
    run(book, "w0", TRUTH.scaled(factor * 1.3), 40)
    assert book.portrait("w0").doubt == wrong, "what is known of larger steps still comes from the probes"


def test_a_device_that_slows_down_later_is_not_in_doubt() -> None:
    book = PortraitBook(100, {})
    book.restored(replace(book_with(TRUTH).portrait("w0"), cost=TRUTH))
    assert run(book, "w0", TRUTH, 80, jitter=0.01) == []
    ((_, change),) = run(book, "w0", TRUTH.scaled(2.0), 40, jitter=0.01)
    assert "probes" not in change.reason
    assert book.portrait("w0").doubt == ""


@pytest.mark.parametrize("too_high_s", [0.02, 0.1, 0.5])
def test_a_fixed_part_that_was_fitted_too_high_makes_no_impossible_solo_speed(too_high_s: float) -> None:
    book = PortraitBook(100, {})
    probed = replace(TRUTH, fixed_s=TRUTH.fixed_s + too_high_s)
    book.restored(replace(book_with(TRUTH).portrait("w0"), cost=probed))
    run(book, "w0", TRUTH, 60, jitter=0.01)
    found = book.portrait("w0").cost
    assert found.seconds(150, 3750) == pytest.approx(TRUTH.seconds(150, 3750), rel=0.05)
    assert found.samples_per_s(4096, 25.0) == pytest.approx(TRUTH.samples_per_s(4096, 25.0), rel=0.05)


def test_a_portrait_of_an_earlier_release_has_no_doubt() -> None:
    data = book_with(TRUTH).portrait("w0").to_dict()
    del data["doubt"]
    assert Portrait.from_dict(data).doubt == ""


def test_a_report_that_says_nothing_is_refused_by_name() -> None:
    book = PortraitBook(100, {})
    report = report_of(TRUTH)
    with pytest.raises(WireError, match=r"w3 was probed: expected a timed probe step, got 1 timings"):
        book.probed("w3", "cpu", msgspec.structs.replace(report, timings=[ProbeTiming(0, 0, 1.0, 0.0)]), 1.0)
    with pytest.raises(WireError, match=r"w3 was probed: pull_mb_per_s\.s1: expected a number, got inf"):
        book.probed("w3", "cpu", msgspec.structs.replace(report, pull_mb_per_s={"s0": 1.0, "s1": float("inf")}), 1.0)
    assert book.portraits() == {}


def test_a_portrait_is_plain_json_and_comes_back_the_same() -> None:
    book = book_with(TRUTH)
    portrait = book.portrait("w0")
    data = portrait.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert Portrait.from_dict(json.loads(json.dumps(data))) == portrait
    assert data["samples_per_s"] == portrait.samples_per_s
    assert data["cost"].keys() == {"fixed_s", "sample_s", "token_s", "error"}


@steady
@given(
    st.builds(
        Portrait,
        cost=st.builds(CostModel, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
        step_samples=st.integers(1, 10**6),
        tokens_per_sample=st.floats(0, 1e3),
        max_samples=st.none() | st.integers(1, 10**9),
        measured_at=NUMBERS,
        numeric_drift=NUMBERS,
        memory_gb_per_s=NUMBERS,
        bytes_per_sample=NUMBERS,
        precision_samples_per_s=st.dictionaries(st.text(), NUMBERS),
        pull_mb_per_s=st.dictionaries(st.text(), NUMBERS),
        push_mb_per_s=st.dictionaries(st.text(), NUMBERS),
        round_trip_ms=st.dictionaries(st.text(), NUMBERS),
        sensors=st.dictionaries(st.text(), st.none() | st.text() | st.lists(st.integers())),
    )
)
def test_any_portrait_comes_back_the_same(portrait: Portrait) -> None:
    assert Portrait.from_dict(json.loads(json.dumps(portrait.to_dict(), allow_nan=False))) == portrait


def test_what_is_no_portrait_is_refused() -> None:
    data = book_with(TRUTH).portrait("w0").to_dict()
    del data["precision"]
    with pytest.raises(WireError, match="a portrait cannot be read: KeyError: 'precision'"):
        Portrait.from_dict(data)
    with pytest.raises(WireError, match="TypeError"):
        Portrait.from_dict({**data, "precision": "fp32", "cost": {"fixed_ms": 1.0}})


# --- set by a person -------------------------------------------------------------------------------------------------


def test_a_starting_value_wins_over_the_cost_of_probes_and_the_rest_stays() -> None:
    probed = book_with(TRUTH).portrait("w0")
    started = book_with(TRUTH, initial={"w0": 3 * probed.samples_per_s, "w7": 5.0}).portrait("w0")
    assert started.source == "set"
    assert started.samples_per_s == pytest.approx(3 * probed.samples_per_s)
    assert started.cost.seconds(10, 0) == pytest.approx(probed.cost.seconds(10, 0) / 3)
    assert replace(started, source="probed", cost=probed.cost, reason=probed.reason) == probed
    assert started.reason == (
        f"set to {3 * probed.samples_per_s:.6g} samples/s by a person; before: {probed.samples_per_s:.6g}, probed"
    )


def test_a_person_sets_a_speed() -> None:
    book = book_with(TRUTH)
    before = book.portrait("w0")
    change = book.put("w0", 1234.0, 500.0)
    after = book.portrait("w0")
    assert (change.worker, change.before, change.after, change.reason) == ("w0", before.cost, after.cost, after.reason)
    assert after.samples_per_s == pytest.approx(1234.0)
    assert (after.source, after.measured_at) == ("set", 500.0)
    assert book.history("w0") == [before]


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-9, 3e38, float("nan"), float("inf")])
def test_what_is_no_speed_is_refused(value: float) -> None:
    book = book_with(TRUTH)
    with pytest.raises(ConfigError, match=r"samples_per_s: expected a number from 0\.001 to 1e\+12") as refused:
        book.put("w0", value, 1.0)
    assert json.loads(json.dumps(refused.value.facts, allow_nan=False))["field"] == "samples_per_s"
    assert book.history("w0") == []


def test_unknown_workers_are_not_found() -> None:
    book = book_with(TRUTH)
    for call in (
        lambda: book.put("w9", 1.0, 1.0),
        lambda: book.portrait("w9"),
        lambda: book.history("w9"),
        lambda: book.observe("w9", StepTiming(1, 1, 1.0), 1.0),
    ):
        with pytest.raises(NotFoundError, match="there is no portrait of 'w9'"):
            call()


@pytest.mark.parametrize("times", [3.0, 1 / 3])
@pytest.mark.parametrize("by", ["put", "initial"])
def test_a_speed_set_wrong_by_hand_is_corrected_by_steps(times: float, by: str) -> None:
    speed = times * book_with(TRUTH).portrait("w0").samples_per_s
    book = book_with(TRUTH, initial={"w0": speed} if by == "initial" else {})
    if by == "put":
        book.put("w0", speed, 200.0)
    changes = run(book, "w0", TRUTH, 150)
    assert changes[0][0] == 24
    assert book.portrait("w0").source == "steps"
    # What tokens cost beside samples was not lost by setting one number.
    for num_tokens in (128, 6400):
        predicted_s = book.portrait("w0").cost.seconds(128, num_tokens)
        assert predicted_s == pytest.approx(TRUTH.seconds(128, num_tokens), rel=0.08)


# --- real steps ------------------------------------------------------------------------------------------------------


@settings(steady, max_examples=40)
@given(st.one_of(st.floats(0.3, 0.77), st.floats(1.3, 3.0)), st.integers(0, 150), st.integers(0, 2**32))
def test_a_worker_that_changes_its_speed_is_corrected_within_40_steps(factor: float, quiet: int, seed: int) -> None:
    book = book_with(TRUTH, noise=0.01)
    run(book, "w0", TRUTH, quiet, seed)
    # A look at small deviations may fall into the time before the drift is sure: the last change is the one.
    *_, (step, change) = run(book, "w0", TRUTH.scaled(factor), 40, seed + 1)
    assert step <= 40
    assert change.after == book.portrait("w0").cost
    assert change.after.seconds(150, 3000) == pytest.approx(factor * TRUTH.seconds(150, 3000), rel=0.12)
    assert book.portrait("w0").measured_at == 1000.0 + step


def test_a_drift_is_told_in_words() -> None:
    book = book_with(TRUTH)
    ((step, change),) = run(book, "w0", TRUTH.scaled(2.0), 99, jitter=0.01)
    assert step == 24
    told = "w0 needs 2.0 times its predicted step time since 24 steps"
    assert change.reason == book.portrait("w0").reason == f"{told}: its probes were far off"
    assert [one.source for one in book.history("w0")] == ["probed"]

    ((_, later),) = run(book, "w0", TRUTH.scaled(6.0), 99, jitter=0.01)
    assert later.reason == "w0 needs 3.0 times its predicted step time since 24 steps", "steps are not probes"


@pytest.mark.parametrize("seed", range(6))
def test_jitter_and_hiccups_change_nothing(seed: int) -> None:
    book = book_with(TRUTH, noise=0.01)
    before = book.portrait("w0")
    assert run(book, "w0", TRUTH, 2000, seed, jitter=0.2) == []
    for _ in range(10):
        book.observe("w0", StepTiming(128, 3000, 10 * TRUTH.seconds(128, 3000)), 9.0)
        assert run(book, "w0", TRUTH, 30, seed) == []
    assert book.portrait("w0") == before


def test_steps_without_samples_or_a_time_say_nothing() -> None:
    book = book_with(TRUTH)
    for timing in (StepTiming(0, 0, 1.0), StepTiming(5, 0, 0.0), StepTiming(5, 0, float("nan"))):
        assert all(book.observe("w0", timing, 1.0) is None for _ in range(200))
    assert book.history("w0") == []


def test_after_a_change_old_steps_say_nothing() -> None:
    """The window begins anew: 23 steps of the old speed before a `put` bring no verdict on the new one."""
    book = book_with(TRUTH)
    assert run(book, "w0", TRUTH.scaled(2.0), 23) == []
    speed = book.portrait("w0").samples_per_s
    book.put("w0", speed / 2, 1.0)
    assert run(book, "w0", TRUTH.scaled(2.0), 90) == []


def test_history_is_bounded() -> None:
    book = book_with(TRUTH)
    for place in range(2 * HISTORY_LENGTH):
        book.put("w0", 1000.0 + place, float(place))
    history = book.history("w0")
    assert len(history) == HISTORY_LENGTH - 1
    assert [one.measured_at for one in history] == [
        float(place) for place in range(HISTORY_LENGTH, 2 * HISTORY_LENGTH - 1)
    ]


def test_a_portrait_from_the_store_is_used_as_it_was() -> None:
    stored = book_with(TRUTH).portrait("w0")
    book = PortraitBook(100, {"w0": 1.0})
    restored = book.restored(stored)
    assert restored.source == "stored"
    assert restored.reason == f"measured in an earlier job: {stored.reason}"
    assert replace(restored, source=stored.source, reason=stored.reason) == stored
    assert book.restored(restored).reason == restored.reason
    assert run(book, "w0", TRUTH.scaled(2.0), 30)[0][0] == 24


# --- like cards ------------------------------------------------------------------------------------------------------


@settings(steady, max_examples=25)
@given(st.integers(2, 7), st.integers(0, 2**32))
def test_like_cards_cost_exactly_the_same(num_workers: int, seed: int) -> None:
    rng = random.Random(seed)
    truths = [TRUTH.scaled(rng.uniform(0.95, 1.05)) for _ in range(num_workers)]
    costs = book_with(*truths).costs()
    assert list(costs) == [f"w{place}" for place in range(num_workers)]
    assert len(set(costs.values())) == 1
    seconds = sorted(truth.seconds(256, 6000) for truth in truths)
    assert seconds[0] * 0.97 <= costs["w0"].cost.seconds(256, 6000) <= seconds[-1] * 1.03


def test_the_shared_cost_is_the_median() -> None:
    book = book_with(*(TRUTH.scaled(factor) for factor in (0.9, 1.0, 1.12)), noise=0.0)
    assert book.costs()["w2"].cost.seconds(200, 5000) == pytest.approx(TRUTH.seconds(200, 5000), rel=1e-6)


def test_a_card_unlike_its_kind_keeps_its_own_cost() -> None:
    book = book_with(TRUTH, TRUTH, TRUTH.scaled(2.0), TRUTH)
    costs = book.costs()
    assert costs["w0"] == costs["w1"] == costs["w3"]
    assert costs["w2"].cost == book.portrait("w2").cost


def test_of_two_like_cards_one_that_slows_down_leaves_the_other() -> None:
    book = book_with(TRUTH, TRUTH)
    assert book.costs()["w0"] == book.costs()["w1"]
    run(book, "w1", TRUTH.scaled(1 + 2 * LIKE), 40, jitter=0.02)
    assert book.costs()["w0"].cost == book.portrait("w0").cost
    assert book.costs()["w1"].cost == book.portrait("w1").cost


def test_only_cards_of_one_device_model_and_vendor_are_like() -> None:
    book = PortraitBook(100, {})
    others = [("cuda:0", V100), ("cuda:1", V100), ("cuda:2", DeviceFacts("V100", "amd", True, ["fp32"]))]
    others += [("cuda:3", DeviceFacts("A100", "nvidia", True, ["fp32"])), ("cpu", V100)]
    for place, (device, facts) in enumerate(others):
        book.probed(f"w{place}", device, report_of(TRUTH, seed=place, device=facts), 1.0)
    costs = book.costs()
    assert costs["w0"] == costs["w1"]
    assert all(costs[worker].cost == book.portrait(worker).cost for worker in ("w2", "w3", "w4"))


def test_memory_stays_that_of_each_worker() -> None:
    book = book_with(TRUTH)
    book.probed("w1", "emulate:name=V100", msgspec.structs.replace(report_of(TRUTH, 1), max_samples=None), 1.0)
    costs = book.costs()
    assert costs["w0"].cost == costs["w1"].cost
    assert (costs["w0"].max_samples, costs["w1"].max_samples) == (4096, None)
    assert isinstance(costs["w0"], MemberCost)
