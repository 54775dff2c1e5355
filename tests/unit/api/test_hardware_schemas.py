"""What the coordinator tells of unlike hardware is what the schemas describe, field by field."""

from __future__ import annotations

import json
from array import array
from typing import Any

from pydantic import BaseModel

from api.schemas import Heterogeneity, Portrait, PortraitHistory, Report, WorkerReport
from coordinator.accounts import Accounts, WorkerAccount
from coordinator.cost_model import CostModel
from coordinator.events import GroupSpec, MemberCost
from coordinator.job_report import ReportBasis, heterogeneity, worker_rows
from coordinator.portrait import Portrait as MeasuredPortrait
from coordinator.portrait_book import PortraitBook
from geartrain.wire.message import DeviceFacts, ProbeReport, ProbeTiming

COST = CostModel(fixed_s=0.002, sample_s=0.0001)


def probed() -> ProbeReport:
    timings = [
        ProbeTiming(num_samples=size, num_tokens=0, seconds=COST.seconds(size), transfer_s=0.001)
        for size in (64, 128, 256)
        for _ in range(20)
    ]
    return ProbeReport(
        device=DeviceFacts("V100", "nvidia", emulated=True, precisions=["fp32"], sensors={"clock_mhz": 1380}),
        timings=timings,
        max_samples=4096,
        pull_mb_per_s={"s0": 100.0},
        push_mb_per_s={"s0": 90.0},
        round_trip_ms={"s0": 0.2},
        memory_gb_per_s=10.0,
        bytes_per_sample=512.0,
        precision="fp32",
        precision_samples_per_s={"fp32": 9000.0},
        numeric_drift=0.0,
        seconds=1.5,
    )


def has_exactly_its_fields(model: type[BaseModel], told: dict[str, Any]) -> None:
    """After a way over the wire, `told` is of the model, has all of its fields, and none that it does not describe."""
    parsed = model.model_validate(json.loads(json.dumps(told, allow_nan=False)), strict=True)
    assert set(told) == set(model.model_fields)
    assert not parsed.model_extra


def test_a_portrait_from_the_book() -> None:
    book = PortraitBook(update_every_steps=100, initial={})
    book.probed("w0", "emulate:name=V100,samples_per_s=9000", probed(), unix_time=5.0)
    has_exactly_its_fields(Portrait, book.portrait("w0").to_dict())
    book.put("w0", 3000.0, unix_time=6.0)
    shown = book.portrait("w0").to_dict()
    has_exactly_its_fields(Portrait, shown)
    assert shown["source"] == "set"
    history = [one.to_dict() for one in book.history("w0")]
    assert [one["source"] for one in history] == ["probed"]
    has_exactly_its_fields(PortraitHistory, {**shown, "history": history})
    assert isinstance(MeasuredPortrait.from_dict(shown), MeasuredPortrait)
    book.doubt("w0", 2.0, "is tried again", unix_time=7.0)
    has_exactly_its_fields(Portrait, book.portrait("w0").to_dict())


def basis(costs: dict[str, MemberCost]) -> tuple[Accounts, ReportBasis]:
    book = PortraitBook(update_every_steps=100, initial={})
    for worker in costs:
        book.probed(worker, "cpu", probed(), unix_time=5.0)
    account = WorkerAccount(samples=10, step_ms=array("f", [1.0, 2.0]), wait_ms=array("f", [0.1]))
    told = ReportBasis(
        groups=[GroupSpec(0, ("w0", "w1"), 100)],
        devices={"w0": "emulate:V100", "w1": "cpu"},
        portraits=book.portraits(),
        costs=costs,
        batch_size=100,
        tokens_per_sample=0.0,
        min_share=0,
    )
    return Accounts(workers={"w0": account}), told


def test_the_report_of_workers_that_were_measured() -> None:
    slow = MemberCost(COST.scaled(30.0))
    accounts, told = basis({"w0": MemberCost(COST), "w1": slow})
    rows = worker_rows(accounts, told)
    cost = heterogeneity(accounts, told, 5000.0)
    for row in rows:
        has_exactly_its_fields(WorkerReport, row)
    has_exactly_its_fields(Heterogeneity, cost)
    assert cost["advice"]
    has_exactly_its_fields(Report, {"workers": rows, "groups": [["w0", "w1"]], "heterogeneity": cost})


def test_the_report_of_workers_that_were_not_measured() -> None:
    accounts, told = basis({})
    rows = worker_rows(accounts, told)
    cost = heterogeneity(accounts, told, 5000.0)
    has_exactly_its_fields(Report, {"workers": rows, "groups": [["w0", "w1"]], "heterogeneity": cost})
    assert [row["solo_samples_per_s"] for row in rows] == [None, None]
    assert cost["sum_of_solo_samples_per_s"] is None
