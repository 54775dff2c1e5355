"""Clusters of unlike cards beside the sum of what each card does alone, and beside equal shares.

Every case is a real cluster (a coordinator, two servers, a worker process for each card) that trains DeepFM on Frappe
or Amazon Beauty. The cards are emulated: the CPU computes the real step, and the worker then waits as long as the card
it stands for would need. First each kind of card trains alone; then each case is run with matched groups and shares,
and with equal ones in one group (`heterogeneous: false`), and both are simulated. `reached` says whether the case is
within all its `limits` ([at least, at most] by figure).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from rich.box import SIMPLE
from rich.table import Table

from benchmarks.support.emulated_runs import Card, JobShape, Run, job_of, run_on, simulate_on
from benchmarks.support.lines import Line, put_out, readable
from benchmarks.support.solo_runs import Solo, SoloSpeed, solo_speeds
from benchmarks.support.unlike_case import Case, Limit, Measured, Workload, line_of
from benchmarks.support.unlike_data import data_folder, write_beauty, write_frappe
from benchmarks.support.unlike_findings import (
    after_a_wrong_portrait,
    after_throttling,
    balance,
    beside_chance,
    beside_the_best,
    beside_the_possible,
    chance,
    groups_by_model,
)

SOLO_S = 20.0
QUICK_S = 2.0
QUICK_CASES = ("3:2:1:1",)

FRAPPE = Workload("frappe", write_frappe)
BEAUTY = Workload("beauty", write_beauty, tokens_per_sample=7.92)
# Rows so wide that they weigh on a thin link, and solo steps as large as shares are: small steps need more rows for
# each of their samples.
WIDE_FRAPPE = Workload(
    "frappe-64", write_frappe, model={"type": "deepfm", "embedding_dim": 64, "hidden": [32, 16]}, solo_batch=1000
)

A100, RTX4000, V100, T4 = Card("A100", 6000), Card("RTX4000", 4000), Card("V100", 3000), Card("T4", 2000)
P4, K80 = Card("P4", 1000), Card("K80", 500)
JITTER = 0.2
JITTERY = Card("V100", 3000, f"jitter={JITTER}")
# 64 samples take 80 ms, their tokens 320 ms.
READER = Card("T4", 800, "tokens_per_s=1584")
WIDE_LINK, THIN_LINK = Card("T4", 2000, "bandwidth_mb_s=200"), Card("T4", 2000, "bandwidth_mb_s=5")
THROTTLING = Card("A100", 6000, "throttle_at_s=15,throttle_to=0.5")

MIXED = (A100, RTX4000, T4, T4)

CASES = (
    Case(
        "3:2:1:1",
        MIXED,
        FRAPPE,
        {"throughput_over_sum_of_solo": Limit(0.95, 1.02), "speedup_over_equal_shares": Limit(1.65)},
    ),
    Case(
        "3+3",
        (A100,) * 3 + (V100,) * 3,
        FRAPPE,
        {
            "throughput_over_sum_of_solo": Limit(0.95, 1.02),
            "speedup_over_equal_shares": Limit(1.43),
            "groups_by_model": Limit(1),
        },
        groups_by_model,
    ),
    Case(
        "4000+3x500",
        (RTX4000, K80, K80, K80),
        FRAPPE,
        {"throughput_over_sum_of_solo": Limit(0.93, 1.02), "speedup_over_equal_shares": Limit(2.5)},
    ),
    Case(
        "4 models x 2",
        (RTX4000, RTX4000, V100, V100, T4, T4, P4, P4),
        FRAPPE,
        {
            "throughput_over_sum_of_solo": Limit(0.93, 1.02),
            "groups_are_best": Limit(1),
            "worst_share_error": Limit(most=0.05),
        },
        beside_the_best,
    ),
    Case(
        "jitter",
        (JITTERY,) * 4,
        FRAPPE,
        {"throughput_over_bound": Limit(0.97, 1.02)},
        beside_chance,
        # The mean of jitter is nothing: alone, a card is as fast with it as without, which is sooner measured.
        alone=(V100,) * 4,
        run_s=40.0,
        equal_run_s=30.0,
        equal_slowdown=chance(4, JITTER),
    ),
    Case(
        "throttle",
        (THROTTLING, RTX4000, T4, T4),
        FRAPPE,
        {
            "throughput_over_sum_of_solo": Limit(0.90, 1.02),
            "steps_to_recover": Limit(most=200),
            "reason": Limit(),
        },
        after_throttling,
        # Half an A100 is as fast as a V100.
        alone=(V100, RTX4000, T4, T4),
        step_s=0.2,
        run_s=48.0,
    ),
    Case(
        "wrong-portrait",
        MIXED,
        FRAPPE,
        {"steps_to_correct": Limit(most=200), "once_right_over_sum_of_solo": Limit(0.90, 1.02), "reason": Limit()},
        after_a_wrong_portrait,
        changes={"portrait": {"initial": {"w2": {"samples_per_s": 3 * T4.samples_per_s}}}},
        step_s=0.2,
        run_s=30.0,
    ),
    Case(
        "long-histories",
        (READER,) * 4,
        BEAUTY,
        # Equal counts are no equal work here: the slowest of a step is slower than a card on its own.
        {"imbalance_p90": Limit(most=1.10), "equal_over_slowest": Limit()},
        balance,
        step_s=0.4,
        run_s=30.0,
        equal_run_s=25.0,
    ),
    Case(
        "thin-link",
        (WIDE_LINK, WIDE_LINK, WIDE_LINK, THIN_LINK),
        WIDE_FRAPPE,
        {"throughput_over_possible": Limit(0.90)},
        beside_the_possible,
    ),
)


def main(json: bool, quick: bool = False) -> int:
    """Print the lines, or the table."""
    return put_out(lines(quick), json, unlike_table)


def lines(quick: bool, names: Collection[str] = ()) -> Iterator[Line]:
    """The lines of the cases of these names, or of all; `quick`: of one case, and shortened to seconds."""
    for name, file in (("frappe", "train.csv.gz"), ("beauty_seq", "beauty.txt")):
        data_folder(name, file)  # said before anything starts
    chosen = [case for case in CASES if not names or case.name in names]
    solo_s = SOLO_S
    if quick:
        solo_s = QUICK_S
        chosen = [
            replace(case, run_s=QUICK_S, equal_run_s=QUICK_S) for case in chosen if names or case.name in QUICK_CASES
        ]
    yield from measure(chosen, solo_s)


def measure(cases: Sequence[Case], solo_s: float) -> Iterator[Line]:
    """The lines of these cases, each as soon as it is there."""
    solos = {solo.key: solo for case in cases for solo in _solos(case, solo_s)}
    speeds = solo_speeds(list(solos.values()))
    for case in cases:
        yield line_of(_measure(case, [speeds[solo.key] for solo in _solos(case, solo_s)]))


def _solos(case: Case, seconds: float) -> list[Solo]:
    return [case.solo(number, seconds) for number in range(len(case.cards))]


def _measure(case: Case, solos: Sequence[SoloSpeed]) -> Measured:
    run, simulated = _run_and_simulate(case, case.shape)
    equal, simulated_equal = _run_and_simulate(case, case.equal_shape)
    return Measured(case, run, equal, tuple(solos), simulated, simulated_equal)


def _run_and_simulate(case: Case, shape: JobShape) -> tuple[Run, Mapping[str, object]]:
    with job_of(shape) as config:
        return run_on(case.devices, config), simulate_on(case.devices, config)


def unlike_table(gathered: Sequence[Line]) -> Table:
    """A case a row; below it what it missed."""
    table = Table(title="Unlike hardware", title_justify="left", box=SIMPLE)
    table.add_column("case", no_wrap=True)
    columns = {
        "samples_per_s": "samples/s",
        "throughput_over_sum_of_solo": "of the solo sum",
        "speedup_over_equal_shares": "times equal shares",
        "equal_over_slowest": "equal, of slowest",
        "simulated_over_measured": "simulated",
        "host_bound_steps": "host-bound steps",
    }
    for title in columns.values():
        table.add_column(title, justify="right")
    table.add_column("groups")
    table.add_column("besides", overflow="fold")
    for line in gathered:
        figures = (readable(line[name]) for name in columns)
        groups = " | ".join("+".join(group) for group in line["groups"])
        judged = "reached" if line["reached"] else f"missed: {', '.join(line['missed'])}"
        others = [f"{name} {readable(line[name])}" for name in line["limits"] if name not in columns]
        table.add_row(line["name"], *figures, groups, "; ".join([judged, *others]))
    return table
