"""Measuring a worker: real steps of the job on real rows, and the ways to the servers. It leaves no trace on them.

A probe step is what a step of training is to a worker alone: it pulls rows and the dense parameters, computes, and
pushes as many bytes as its gradients have, which the servers drop.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch

from dense_workers.device import Device
from dense_workers.precision import Trial, choose, relative_deviation, require_supported, trial_pairs, worth_trying
from dense_workers.prefetch import PlannedBatch
from dense_workers.probe_batches import ProbeBatches
from dense_workers.probe_timing import largest_size, largest_that_fits, probe_sizes, timed_sizes
from dense_workers.step import StepRunner
from embedding_tier.client import TierClient
from geartrain.errors import DeviceMemoryError
from geartrain.types import Floats, Indices
from geartrain.wire.messages import Probe, ProbeReport, ProbeTiming

NUM_ECHOES = 10
"""Empty messages to each server whose median time is its round trip."""
NUM_TRANSFERS = 3
"""Transfers each way to and from each server, ..."""
TRANSFER_BYTES = 1_000_000
"""... of about so many bytes."""
PATIENCE_S = 0.1
"""What takes this long is measured once: the clock is no matter then."""
COPIED_BYTES = 64 << 20
NUM_COPIES = 3

log = logging.getLogger("geartrain.worker")


@dataclass(frozen=True, slots=True)
class PulledStep:
    """A planned batch, its tokens, the rows of its keys, and what it took to pull them."""

    planned: PlannedBatch
    num_tokens: int
    rows: Floats
    seconds: float


class Prober:
    """Measures one worker's device within a job that is open, before or between its steps."""

    def __init__(
        self,
        worker: str,
        device: Device,
        runner: StepRunner,
        batches: ProbeBatches,
        client: TierClient,
        smallest: int,
        clock_s: Callable[[], float],
    ) -> None:
        """`client` has the dense vector placed and is used by nobody else meanwhile; no step is below `smallest`."""
        self._worker = worker
        self._device = device
        self._runner = runner
        self._batches = batches
        self._client = client
        self._smallest = smallest
        self._clock_s = clock_s
        self._version = 0

    def run(self, probe: Probe) -> ProbeReport:
        """All measurements. From now on the runner computes in the precision that was chosen.

        Raises `ConfigError` for a precision that the device cannot compute in, `DeviceMemoryError` when not even the
        smallest step fits its memory, and what pulling and pushing raise.
        """
        begun_s = self._clock_s()
        self._version = probe.version
        facts = self._device.facts()
        is_auto = probe.precision == "auto"
        tried = worth_trying(facts) if is_auto else [probe.precision]
        if not is_auto:
            require_supported(probe.precision, facts.precisions, self._worker, self._device.spec.label)
        self._runner.use_precision("fp32" if is_auto else probe.precision)
        limit = min(probe.batch_size, self._batches.num_rows)
        max_samples = self._max_samples(limit)
        limit = limit if max_samples is None else min(limit, max_samples)
        smallest = min(self._smallest, limit)
        largest = largest_size(self._step_s, smallest, limit)
        sizes = probe_sizes(largest, smallest)
        trials = {one: self._try(one, sizes[len(sizes) // 2]) for one in tried if one != "fp32"}
        precision = choose(trials) if is_auto else probe.precision
        self._runner.use_precision(precision)
        timings = [
            self._timing(size, alike=number % 2 == 1)
            for number, size in enumerate(timed_sizes(self._step_s, sizes, probe.num_probes))
        ]
        round_trips = [self._round_trip_s(server) for server in self._servers]
        report = ProbeReport(
            device=facts,
            timings=timings,
            max_samples=max_samples,
            pull_mb_per_s=self._by_name([self._pull_rate(*one) for one in enumerate(round_trips)]),
            push_mb_per_s=self._by_name([self._push_rate(*one) for one in enumerate(round_trips)]),
            round_trip_ms=self._by_name([1000 * seconds for seconds in round_trips]),
            memory_gb_per_s=self._copy_rate(),
            bytes_per_sample=self._bytes_per_sample(sizes[0], largest),
            precision=precision,
            precision_samples_per_s=_speeds(sizes, trials, timings),
            numeric_drift=trials[precision].drift if precision in trials else 0.0,
            seconds=self._clock_s() - begun_s,
        )
        log.info("probed in %.2f s: up to %d samples a step, in %s", report.seconds, largest, precision)
        return report

    # --- steps -------------------------------------------------------------------------------------------------------

    def _timing(self, num_samples: int, alike: bool) -> ProbeTiming:
        """One step, from its pull to the end of its push. `alike`: of samples with about equally many tokens."""
        is_alike = alike and self._batches.has_tokens
        step = self._pull((self._batches.take_alike if is_alike else self._batches.take)(num_samples))
        computed_s = self._compute_s(step)
        pushed_s = self._push_s(step.planned.plan.counts)
        return ProbeTiming(num_samples, step.num_tokens, step.seconds + computed_s + pushed_s, step.seconds + pushed_s)

    def _step_s(self, num_samples: int) -> float:
        return self._timing(num_samples, alike=False).seconds

    def _pull(self, batch: tuple[PlannedBatch, int]) -> PulledStep:
        planned, num_tokens = batch
        plan = planned.plan
        rows = np.empty((len(plan.unique_keys), self._client.row_dim), dtype=np.float32)
        dense = np.empty(self._runner.num_values, dtype=np.float32)
        begun_s = self._clock_s()
        asked = self._client.begin_pull(plan.unique_keys, plan.counts, self._version)
        self._client.pull_dense(self._version, dense)
        self._client.finish_pull(asked, rows)
        self._runner.load_dense(dense)
        return PulledStep(planned, num_tokens, rows, self._clock_s() - begun_s)

    def _compute_s(self, step: PulledStep) -> float:
        begun_s = self._clock_s()
        pace = self._device.begin_step(step.planned.batch.num_samples, step.num_tokens)
        self._runner.compute(step.planned, step.rows, step_seed=0)
        pace.finish()
        return self._clock_s() - begun_s

    def _push_s(self, counts: Indices) -> float:
        begun_s = self._clock_s()
        self._client.echo(self._client.stage_bytes(counts))
        return self._clock_s() - begun_s

    # --- memory and precision ----------------------------------------------------------------------------------------

    def _max_samples(self, limit: int) -> int | None:
        """The largest step that fits the device's memory; None where no bound below `limit` was found."""
        found = self._device.max_samples
        if found is None and self._device.torch_device.type == "cuda":
            found = largest_that_fits(self._fits, limit)
        if found is not None and found < self._smallest:
            raise DeviceMemoryError(
                f"worker {self._worker} on {self._device.spec.label}: a step of {self._smallest} samples does not fit",
                device=str(self._device.spec),
                num_samples=self._smallest,
                max_samples=found,
            )
        return found

    def _fits(self, num_samples: int) -> bool:
        try:
            self._step_s(num_samples)
            return True
        except torch.OutOfMemoryError:
            pass
        torch.cuda.empty_cache()  # not before the error, which holds on to what the step had, is gone
        return False

    def _bytes_per_sample(self, smaller: int, larger: int) -> float:
        """Memory that each sample of a step takes at the peak; 0 where nobody counts."""
        if self._device.peak_bytes() is None:
            return 0.0
        peak = self._peak_bytes(larger)
        if larger == smaller:
            return peak / larger
        return max(0.0, (peak - self._peak_bytes(smaller)) / (larger - smaller))

    def _peak_bytes(self, num_samples: int) -> int:
        self._device.forget_peak()
        self._step_s(num_samples)
        return self._device.peak_bytes() or 0

    def _try(self, precision: str, num_samples: int) -> Trial:
        """The same step in fp32 and in `precision`: how long each takes, and how far their gradients are apart."""
        step = self._pull(self._batches.take(num_samples))

        def step_s(one: str) -> float:
            self._runner.use_precision(one)
            return self._compute_s(step)

        def gradient(one: str) -> Floats:
            self._runner.use_precision(one)
            computed = self._runner.compute(step.planned, step.rows, step_seed=0)
            return computed.dense[: self._runner.num_parameters].copy()

        drift = relative_deviation(gradient(precision), gradient("fp32"))
        return Trial(trial_pairs(lambda: step_s("fp32"), lambda: step_s(precision)), drift)

    # --- ways and memory ---------------------------------------------------------------------------------------------

    @property
    def _servers(self) -> range:
        return range(len(self._client.route.servers))

    def _by_name(self, values: list[float]) -> dict[str, float]:
        return dict(zip(self._client.route.servers, values, strict=True))

    def _round_trip_s(self, server: int) -> float:
        return median(self._seconds(lambda: self._client.echo({server: 0}), NUM_ECHOES))

    def _push_rate(self, server: int, round_trip_s: float) -> float:
        seconds = median(self._seconds(lambda: self._client.echo({server: TRANSFER_BYTES}), NUM_TRANSFERS))
        return _mb_per_s(TRANSFER_BYTES, seconds, round_trip_s)

    def _pull_rate(self, server: int, round_trip_s: float) -> float:
        """Of the bytes that pass in a pull of real rows, both ways; 0 for a server that owns none of them."""
        row_dim = self._client.row_dim
        planned, _ = self._batches.take(min(self._batches.num_rows, TRANSFER_BYTES // (4 * row_dim)))
        plan = planned.plan
        start, stop = (int(plan.counts[:place].sum()) for place in (server, server + 1))
        if start == stop:
            return 0.0
        keys, counts = plan.unique_keys[start:stop], np.zeros_like(plan.counts)
        counts[server] = plan.counts[server]
        rows = np.empty((len(keys), row_dim), dtype=np.float32)
        seconds = median(self._seconds(lambda: self._client.pull(keys, counts, self._version, rows), NUM_TRANSFERS))
        return _mb_per_s(keys.nbytes + self._client.rows_bytes(len(keys)), seconds, round_trip_s)

    def _copy_rate(self) -> float:
        """Gigabytes per second that the device reads and writes in a copy."""
        device = self._device.torch_device
        if device.type == "cpu":  # the allocator would keep such memory for the rest of the job
            source, target = (torch.frombuffer(mmap.mmap(-1, COPIED_BYTES), dtype=torch.uint8) for _ in range(2))
        else:
            source, target = (torch.empty(COPIED_BYTES, dtype=torch.uint8, device=device) for _ in range(2))
        source.fill_(1)
        target.fill_(0)

        def copy() -> None:
            target.copy_(source)
            self._device.synchronize()

        return 2 * COPIED_BYTES / 1e9 / median(self._seconds(copy, NUM_COPIES))

    def _seconds(self, action: Callable[[], object], repeats: int) -> list[float]:
        """What an action takes, so many times, or once when that takes long; the first is not counted before that."""
        taken: list[float] = []
        while len(taken) <= repeats:
            begun_s = self._clock_s()
            action()
            taken.append(self._clock_s() - begun_s)
            if taken[-1] > PATIENCE_S:
                return taken[-1:]
        return taken[1:]


def _mb_per_s(num_bytes: int, seconds: float, round_trip_s: float) -> float:
    """Without the time that a message takes however small it is, but for half of the time at the most."""
    return num_bytes / 1e6 / max(seconds - round_trip_s, seconds / 2)


def _speeds(sizes: list[int], trials: dict[str, Trial], timings: list[ProbeTiming]) -> dict[str, float]:
    """Samples per second of computing, without transfers, in each precision that was measured."""
    num_samples = sizes[len(sizes) // 2]
    if not trials:
        return {
            "fp32": num_samples
            / median(one.seconds - one.transfer_s for one in timings if one.num_samples == num_samples)
        }
    exact_s = median(exact for trial in trials.values() for exact, _ in trial.pairs)
    return {"fp32": num_samples / exact_s} | {name: num_samples / trial.seconds for name, trial in trials.items()}
