"""What a simulated job trains, and what is known of its workers before its first step. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from coordinator.matching import MatchSettings
from coordinator.portrait import Portrait
from coordinator.portrait_book import PortraitBook
from coordinator.simulated_devices import KEY_BYTES, STATISTICS_BYTES, Members, SimulatedWorker
from coordinator.simulated_steps import Surroundings
from coordinator.window import WindowSettings
from geartrain.wire.message import DeviceFacts, ProbeReport, ProbeTiming

PROBED_OF_A_KIND = 8
"""Workers of one device that are probed; the others take over what these measured, in turn."""


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """`num_steps` batches of the whole cluster, over as many passes of `num_rows` samples as it takes."""

    num_rows: int
    num_steps: int
    match: MatchSettings
    window: WindowSettings
    heterogeneous: bool
    around: Surroundings
    num_probes: int = 20
    update_every_steps: int = 100

    @property
    def num_samples(self) -> int:
        return self.num_steps * self.match.batch_size


def probe_workers(
    workers: Sequence[SimulatedWorker], job: SimulatedJob, starting_speeds: Mapping[str, float], seed: int
) -> list[Portrait]:
    """The portraits that probes of these workers would give. `starting_speeds`: samples/s that a person set."""
    random = np.random.default_rng([seed, 1])
    book = PortraitBook(job.update_every_steps, starting_speeds)
    probed: dict[str, list[ProbeReport]] = {}
    for worker in workers:
        of_kind = probed.setdefault(worker.device, [])
        if len(of_kind) < PROBED_OF_A_KIND:
            of_kind.append(_probe(worker, job, random))
            measured = of_kind[-1]
        else:
            of_kind.append(of_kind.pop(0))
            measured = of_kind[-1]
        book.probed(worker.name, worker.device, measured, 0.0)
    return list(book.portraits().values())


def book_of(portraits: Sequence[Portrait], job: SimulatedJob) -> PortraitBook:
    """A book of its own for one simulation: what steps correct in it concerns no other."""
    book = PortraitBook(job.update_every_steps, {})
    for portrait in portraits:
        book.restored(replace(portrait))
    return book


def _probe(worker: SimulatedWorker, job: SimulatedJob, random: np.random.Generator) -> ProbeReport:
    """Timed steps of three sizes, as `dense_workers.prober` takes them: pull, compute, push, nobody beside."""
    around, card, members = job.around, worker.card, Members([worker])
    most = min(job.match.batch_size, card.max_samples or job.match.batch_size)
    sizes = [max(1, most // part) for part in (4, 2, 1)]
    samples = np.repeat(np.array(sizes, dtype=np.float64), job.num_probes)
    # Up to a quarter more or fewer tokens, by the content of the batch: else their cost would be one with that of samples.
    tokens = np.round(samples * job.match.tokens_per_sample * random.uniform(0.75, 1.25, len(samples)))
    rows = around.traffic.rows(samples)
    row_bytes = 2 * (KEY_BYTES + around.traffic.row_bytes) + STATISTICS_BYTES
    transfer = (row_bytes * rows + 2 * around.traffic.dense_bytes) * members.byte_s
    transfer += rows / (around.servers * around.overheads.pull_rows_per_s)
    compute = np.array(
        [
            members.jittered(members.step_s(np.array([n]), np.array([t]), np.array([-np.inf])), random)[0]
            for n, t in zip(samples, tokens, strict=True)
        ]
    )
    seconds = transfer + compute + around.overheads.step_ms / 1000
    speed = 0.0 if card.bandwidth_mb_s is None else card.bandwidth_mb_s
    return ProbeReport(
        device=DeviceFacts(card.name, card.vendor, True, list(card.precisions)),
        timings=[
            ProbeTiming(int(n), int(t), float(whole), float(part))
            for n, t, whole, part in zip(samples, tokens, seconds, transfer, strict=True)
        ],
        max_samples=card.max_samples,
        pull_mb_per_s={"s0": speed},
        push_mb_per_s={"s0": speed},
        round_trip_ms={"s0": around.overheads.round_trip_ms},
        memory_gb_per_s=0.0,
        bytes_per_sample=0.0,
        precision="fp32",
        precision_samples_per_s={},
        numeric_drift=0.0,
        seconds=float(seconds.sum()),
    )
