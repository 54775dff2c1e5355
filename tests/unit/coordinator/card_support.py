"""Cards of known cost, and the portraits that probes of them give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from coordinator.cost_model import CostModel
from coordinator.events import StepId
from coordinator.portrait import Portrait
from coordinator.portrait_book import PortraitBook
from geartrain.wire.message import DeviceFacts, ProbeReport, ProbeTiming
from geartrain.wire.messages import Staged


@dataclass(frozen=True)
class Card:
    """What a card is, and what steps cost on it."""

    samples_per_s: float
    model: str = "A100"
    vendor: str = "nvidia"
    max_samples: int | None = None
    fixed_s: float = 0.0
    token_s: float = 0.0
    precision: str = "fp32"
    numeric_drift: float = 0.0

    @property
    def cost(self) -> CostModel:
        return CostModel(self.fixed_s, 1 / self.samples_per_s, self.token_s)

    @property
    def device(self) -> str:
        return f"emulate:name={self.model}"


def probe_report(card: Card) -> ProbeReport:
    """Exact timings at three sizes; the tokens of equal sizes differ, so that their cost can be told."""
    timings = [
        ProbeTiming(size, size * tokens, card.cost.seconds(size, size * tokens), 0.0)
        for size in (64, 128, 256)
        for tokens in (1, 5, 20)
    ]
    return ProbeReport(
        device=DeviceFacts(card.model, card.vendor, True, ["fp32", "bf16"]),
        timings=timings,
        max_samples=card.max_samples,
        pull_mb_per_s={"s0": 200.0},
        push_mb_per_s={"s0": 150.0},
        round_trip_ms={"s0": 0.2},
        memory_gb_per_s=800.0,
        bytes_per_sample=1000.0,
        precision=card.precision,
        precision_samples_per_s={"fp32": card.samples_per_s},
        numeric_drift=card.numeric_drift,
        seconds=0.5,
    )


@cache
def portrait_of(card: Card) -> Portrait:
    """What probes of the card give, at the time 100. (To fit a cost takes milliseconds, and tests have many cards.)"""
    return PortraitBook(100, {}).probed("w0", card.device, probe_report(card), 100.0)


def book_of(cards: Mapping[str, Card]) -> PortraitBook:
    """A book with the portraits of these workers."""
    book = PortraitBook(100, {})
    for worker, card in cards.items():
        book.restored(replace(portrait_of(card), worker=worker))
    return book


def staged(
    worker: str,
    step: StepId,
    num_samples: int,
    busy_ms: float,
    *,
    wait_ms: float = 0.0,
    skipped: str = "",
    host_bound: bool = False,
) -> Staged:
    """A member's report of a step."""
    return Staged(
        node=worker,
        incarnation=1,
        term=1,
        group=step.group,
        step=step.step,
        version=0,
        num_samples=num_samples,
        start=0,
        stop=num_samples,
        servers={},
        loss_sum=0.0,
        skipped=skipped,
        step_ms=busy_ms + wait_ms,
        wait_ms=wait_ms,
        busy_ms=busy_ms,
        host_bound=host_bound,
    )
