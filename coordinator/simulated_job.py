"""What a simulated job trains, and what is known of its workers before its first step. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from coordinator.matching import MatchSettings
from coordinator.portrait import Portrait
from coordinator.portrait_book import PortraitBook
from coordinator.simulated_devices import KEY_BYTES, STATISTICS_BYTES, Array, Members, SimulatedWorker
from coordinator.simulated_steps import Surroundings
from coordinator.window import WindowSettings
from geartrain.wire.message import DeviceFacts, ProbeReport, ProbeTiming

PROBE_S = 0.1
"""About this long is the largest probe step, as in `dense_workers.probe_timing`."""
PROBED_OF_A_KIND = 8
"""Workers of one device that are probed; the others take over what these measured, in turn."""

_NEVER_SLOW = np.array([-np.inf])


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """`num_samples` samples, over as many passes of `num_rows` as it takes."""

    num_rows: int
    num_samples: int
    match: MatchSettings
    window: WindowSettings
    heterogeneous: bool
    around: Surroundings
    num_probes: int = 20
    update_every_steps: int = 100


def probe_workers(
    workers: Sequence[SimulatedWorker], job: SimulatedJob, starting_speeds: Mapping[str, float], seed: int
) -> list[Portrait]:
    """The portraits that probes of these workers would give. `starting_speeds`: samples/s that a person set."""
    random = np.random.default_rng([seed, 1])
    book = PortraitBook(job.update_every_steps, starting_speeds)
    of_kind: dict[str, list[Portrait]] = {}
    portraits: list[Portrait] = []
    for worker in workers:
        known = of_kind.setdefault(worker.device, [])
        if len(known) < PROBED_OF_A_KIND or worker.name in starting_speeds:
            portraits.append(book.probed(worker.name, worker.device, _probe(worker, job, random), 0.0))
            if worker.name not in starting_speeds:
                known.append(portraits[-1])
        else:
            known.append(known.pop(0))
            portraits.append(replace(known[-1], worker=worker.name))
    return portraits


def book_of(portraits: Sequence[Portrait], job: SimulatedJob) -> PortraitBook:
    """A book of its own for one simulation: what steps correct in it concerns no other."""
    book = PortraitBook(job.update_every_steps, {})
    for portrait in portraits:
        book.restored(portrait)
    return book


def _probe(worker: SimulatedWorker, job: SimulatedJob, random: np.random.Generator) -> ProbeReport:
    """Timed steps of three sizes, as `dense_workers.prober` takes them: pull, compute, push, nobody beside."""
    card, members, mean_tokens = worker.card, Members([worker]), job.match.tokens_per_sample
    most = _largest_probe(worker, job)
    sizes = sorted({max(1, job.match.min_share, most // part) for part in (4, 2, 1)})
    samples = np.repeat(np.array(sizes, dtype=np.float64), job.num_probes)
    # Up to a quarter more or fewer tokens, by content: else their cost could not be told from that of samples.
    tokens = np.round(samples * mean_tokens * random.uniform(0.75, 1.25, len(samples)))
    others = _solo_others_s(members, job, samples)
    seconds = [
        float(members.jittered(members.step_s(one, of_it, _NEVER_SLOW), random)[0])
        for one, of_it in zip(samples[:, None], tokens[:, None], strict=True)
    ]
    speed = 0.0 if card.bandwidth_mb_s is None else card.bandwidth_mb_s
    return ProbeReport(
        device=DeviceFacts(card.name, card.vendor, True, list(card.precisions)),
        timings=[
            ProbeTiming(int(size), int(of_it), other_s + compute_s, other_s)
            for size, of_it, other_s, compute_s in zip(samples, tokens, others.tolist(), seconds, strict=True)
        ],
        max_samples=card.max_samples,
        pull_mb_per_s={"s0": speed},
        push_mb_per_s={"s0": speed},
        round_trip_ms={"s0": job.around.overheads.round_trip_ms},
        memory_gb_per_s=0.0,
        bytes_per_sample=0.0,
        precision="fp32",
        precision_samples_per_s={},
        numeric_drift=0.0,
        seconds=sum(seconds) + float(others.sum()),
    )


def _largest_probe(worker: SimulatedWorker, job: SimulatedJob) -> int:
    """The samples of a step of about `PROBE_S`, or the most that the job and the card's memory allow."""
    limit = min(job.match.batch_size, worker.card.max_samples or job.match.batch_size)
    one, tokens = np.ones(1), np.array([job.match.tokens_per_sample])
    sample_s = float(Members([worker]).step_s(one, tokens, _NEVER_SLOW)[0])
    return max(1, min(limit, int(PROBE_S / sample_s)))


def _solo_others_s(members: Members, job: SimulatedJob, num_samples: Array) -> Array:
    """Seconds beside the card's own of steps of `num_samples` float64[N] that the one member takes alone."""
    around = job.around
    rows = around.traffic.rows(num_samples)
    row_bytes = 2 * (KEY_BYTES + around.traffic.row_bytes) + STATISTICS_BYTES
    transfers_s = (row_bytes * rows + 2 * around.traffic.dense_bytes) * members.byte_s
    servers_s = rows / (around.servers * around.overheads.pull_rows_per_s)
    seconds: Array = transfers_s + servers_s + around.overheads.step_ms / 1000
    return seconds
