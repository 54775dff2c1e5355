"""A worker's part of one job: it opens the model and the data, joins groups, computes granted steps, scores rows.

`JobTrainer` is driven by one thread; what it has to say goes out through `send`. `pipeline_depth` 1 needs one rule: the
report of step s waits until the pull of step s+1 was answered, so that the window of s cannot be applied before it and
the pulled version is exact.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from dense_workers.dense_layout import DenseLayout
from dense_workers.device import Device
from dense_workers.fetch import FetchFailed, ReadyStep, StepFeed, share_of
from dense_workers.group import SyncGroup, connect_store, host_store
from dense_workers.models import build_model
from dense_workers.orders import LatestOrders
from dense_workers.precision import require_supported
from dense_workers.prefetch import BatchPlanner, Prefetcher
from dense_workers.probe_batches import ProbeBatches
from dense_workers.prober import Prober
from dense_workers.scoring import Scorer
from dense_workers.step import StepGradients, StepRunner
from dense_workers.step_times import step_times
from embedding_tier.client import TierClient
from geartrain.config import JobConfig, row_dim
from geartrain.data.index import DatasetIndex
from geartrain.data.permutation import PassOrder
from geartrain.data.reader import ChunkCache, SplitReader
from geartrain.data.schema import DataSchema
from geartrain.types import Interval
from geartrain.wire.messages import (
    Decided,
    DensePlaced,
    Evaluate,
    FromNode,
    Grant,
    GroupFormed,
    HostGroup,
    JobOpened,
    JoinGroup,
    OpenJob,
    PlaceDense,
    Probe,
    Probed,
    Staged,
    StoreListening,
)

PULL_DEADLINE_S = 60.0
"""A pull also waits until its version, which is decided by then, is applied."""
PUSH_DEADLINE_S = 10.0
CACHE_BYTES = 1 << 30
"""Decoded chunks kept in memory; a data set below this is parsed and hashed once, not once per pass."""
ONE_PASS_CACHE_BYTES = 64 << 20
"""The same where nothing is read twice: every chunk takes the memory of one before it, which is there already."""


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who this worker is: its name, its incarnation, the cluster's token, the host it listens on, its device."""

    name: str
    incarnation: int
    token: str
    host: str
    device: Device


@dataclass(frozen=True, slots=True)
class HostedStore:
    """The rendezvous store that this worker keeps open for a group, as its first member."""

    group: int
    store: TCPStore
    address: str


class JobTrainer:
    """One job on one worker, from `OpenJob` to `close`. A second `OpenJob` of the same job raises its term."""

    def __init__(
        self,
        identity: WorkerIdentity,
        opening: OpenJob,
        send: Callable[[FromNode], None],
        deliver: Callable[[ReadyStep | FetchFailed], None],
        orders: LatestOrders,
    ) -> None:
        """`deliver` is called from the fetching thread with steps that can be computed.

        `orders` tell when nobody waits any more for what a step waits for.
        """
        self._identity = identity
        self._device = identity.device
        self._device.begin_job(identity.name)
        self._send = send
        self._deliver = deliver
        self._orders = orders
        self.config = JobConfig.from_resolved(opening.config)
        self._index = DatasetIndex.from_dict(opening.index)
        self._schema = DataSchema.from_config(self.config)
        self._sequence_slots = self._schema.sequence_slots
        self._cache = ChunkCache(CACHE_BYTES if self.config.training.passes > 1 else ONE_PASS_CACHE_BYTES)
        self._reader = SplitReader(self._index, self.config, "train", self._cache)
        seed = self.config.training.seed
        self._model = build_model(
            self.config.model,
            num_slots=len(self._schema.slots),
            num_numeric_inputs=self._schema.num_numeric_inputs,
            generator=torch.Generator().manual_seed(seed),
        ).to(self._device.torch_device)
        self._layout = DenseLayout(self._model)
        self._group: SyncGroup | None = None
        self._hosted: HostedStore | None = None
        self._feed: StepFeed | None = None
        self._prefetcher: Prefetcher | None = None
        self._open(opening)
        if self._reader.chunk_rows:  # the first pass begins with this chunk; other nodes are still opening the job
            order = PassOrder(self._reader.chunk_rows, seed, 0, self.config.data.shuffle)
            self._reader.prefetch(order.locate(0, 1)[0][0])

    def _open(self, opening: OpenJob) -> None:
        self.term = opening.term
        self.job = opening.job
        # A group that was left in the term before may still write to the runner's arrays.
        self._runner = StepRunner(self._model, self._layout, self._schema.mean_slots, self._device.torch_device)
        self._planner = BatchPlanner(self._schema, opening.route)
        self._pulls = self._client(opening, PULL_DEADLINE_S)
        self._pushes = self._client(opening, PUSH_DEADLINE_S)
        self._unconfirmed: dict[int, Staged] = {}
        self._held: Staged | None = None
        self._last_granted = -1
        self._evaluated = (-1, -1)
        self._probed: Probed | None = None
        self._pass_index = -1
        self._cycle_start_s = 0.0

    def reopen(self, opening: OpenJob) -> None:
        """The job goes on in a higher term (back at a checkpoint): forget the group and all steps, keep the data."""
        self._leave_group()
        self._close_clients()
        self._open(opening)

    def announce(self) -> None:
        """Tell the coordinator that the job is open here, with the dense layout of the model."""
        self._send(JobOpened(self._identity.name, self.term, self.job, self._layout.segments))

    def place_dense(self, message: PlaceDense) -> None:
        """Learn which server owns which part of the dense vector, and upload initial values if it is our turn."""
        for client in (self._pulls, self._pushes):
            client.place_dense(message.bounds)
        if message.put_by == self._identity.name:
            self._pushes.put_dense(self._layout.read())
        self._send(DensePlaced(self._identity.name, self.term, self.job))

    def probe(self, message: Probe) -> None:
        """Measure this device on steps of the job, once in a term; asked again, it tells the same."""
        if self._probed is None:
            seed, shuffle = self.config.training.seed, self.config.data.shuffle
            batches = ProbeBatches.read(self._reader, self._planner, seed, shuffle, message.batch_size)
            smallest = 2 if self.config.model.batch_norm else 1  # one sample cannot be normalized
            prober = Prober(
                self._identity.name,
                self._device,
                self._runner,
                batches,
                self._pushes,  # this thread's own
                smallest,
                time.perf_counter,
            )
            self._probed = Probed(self._identity.name, self.term, self.job, prober.run(message))
        self._send(self._probed)

    def host_group(self, message: HostGroup) -> None:
        """Open the rendezvous store of a coming group (once, however often it is asked for)."""
        if self._hosted is None or self._hosted.group != message.group:
            self._hosted = HostedStore(message.group, *host_store(self._identity.host))
        self._send(StoreListening(self._identity.name, self.term, message.group, self._hosted.address))

    def join_group(self, message: JoinGroup) -> None:
        """Form the sync group, unless it is formed; a group of one needs no store."""
        if self._group is not None and self._group.group == message.group:
            self._send(GroupFormed(self._identity.name, self.term, message.group))
            return
        supported = self._device.facts().precisions
        require_supported(message.precision, supported, self._identity.name, self._device.spec.label)
        self._runner.use_precision(message.precision)
        self._leave_group()
        rank = message.members.index(self._identity.name)
        hosted = self._hosted

        def store() -> TCPStore:
            return hosted.store if rank == 0 and hosted is not None else connect_store(message.address)

        self._group = SyncGroup(
            message.group,
            message.members,
            self._identity.name,
            store,
            self._device.links,
            lambda: self._orders.is_over(message.term),
        )
        data = self.config.data
        self._prefetcher = Prefetcher(self._reader, self._planner, self.config.training.seed, data.shuffle)
        self._feed = StepFeed(self._prefetcher, self._pulls, rank, self._layout.num_values, self._deliver)
        self._send(GroupFormed(self._identity.name, self.term, message.group))

    def granted(self, message: Grant) -> None:
        """Start to fetch a granted step; one that was granted before (it may be sent again) changes nothing."""
        group, feed = self._group, self._feed
        if (
            group is not None
            and feed is not None
            and message.group == group.group
            and message.step > self._last_granted
        ):
            self._last_granted = message.step
            if message.interval.pass_index != self._pass_index:
                # Before a pass, workers wait for each other's probes and scores: that is no part of a step.
                self._pass_index, self._cycle_start_s = message.interval.pass_index, time.perf_counter()
            feed.fetch(message)

    def decided(self, message: Decided) -> None:
        """A decision names the step: it need not be reported any more."""
        if self._group is not None and message.group == self._group.group:
            self._unconfirmed.pop(message.step, None)

    def fetch_failed(self, failure: FetchFailed) -> None:
        """Raise what ended the fetching, unless it belongs to a group that was left."""
        if self._group is not None and failure.grant.group == self._group.group and failure.grant.term == self.term:
            raise failure.error

    def repeat_reports(self) -> None:
        """Report again what no decision has named yet; the coordinator drops doubles."""
        for report in self._unconfirmed.values():
            self._send(report)

    def compute(self, ready: ReadyStep) -> None:
        """Compute a fetched step with the group, stage it on all servers, and report it."""
        group = self._group
        if group is None or ready.grant.group != group.group or ready.grant.term != self.term:
            return
        if self._held is not None:  # the pull of this step was answered: now the window of the last one may come
            self._report(self._held)
        own = share_of(ready.grant.interval, group.rank)
        self._device.check_fits(own.num_samples)
        self._device.begin_training()
        start_s, waited_s = time.perf_counter(), group.waited_s
        if len(group.members) > 1 or ready.dense is not None:
            self._spread_dense(ready, group)
        num_tokens = ready.planned.batch.num_values(self._sequence_slots)
        pace = self._device.begin_step(own.num_samples, num_tokens)
        gradients = self._runner.compute(ready.planned, ready.rows, self._step_seed(own))
        host_bound = pace.finish()
        gradients = self._runner.reduce(gradients, group)
        servers = self._stage(ready, gradients) if gradients.non_finite == 0 else {}
        end_s = time.perf_counter()
        times = step_times(self._cycle_start_s, start_s, end_s, ready, group.waited_s - waited_s)
        report = Staged(
            node=self._identity.name,
            incarnation=self._identity.incarnation,
            term=self.term,
            group=ready.grant.group,
            step=ready.grant.step,
            version=ready.version,
            num_samples=own.num_samples,
            start=own.start,
            stop=own.stop,
            servers=servers,
            loss_sum=gradients.loss_sum,
            skipped=""
            if gradients.non_finite == 0
            else f"NaN, Inf or too large on {gradients.non_finite} of {len(group.members)}",
            step_ms=times.step_ms,
            wait_ms=times.wait_ms,
            num_tokens=num_tokens,
            busy_ms=times.busy_ms,
            host_bound=host_bound,
        )
        self._cycle_start_s = end_s
        if self._must_hold(ready):
            self._held = report
        else:
            self._report(report)

    def evaluate(self, task: Evaluate) -> None:
        """Score the rows asked for and send the scores; a task that was done changes nothing when it comes again."""
        if (task.term, task.evaluation) == self._evaluated:
            return
        reader = SplitReader(self._index, self.config, task.split, self._cache, task.labeled)
        scorer = Scorer(self._runner, self._planner, self._pushes, self._layout.num_values)
        with closing(reader):
            for scores in scorer.run(task, reader, self._identity.name):
                self._send(scores)
        self._evaluated = (task.term, task.evaluation)

    def close(self) -> None:
        """Leave the group and release threads, files and sockets."""
        self._leave_group()
        self._reader.close()
        self._close_clients()

    def _spread_dense(self, ready: ReadyStep, group: SyncGroup) -> None:
        values = ready.dense if ready.dense is not None else self._layout.read()
        group.broadcast(values)
        self._runner.load_dense(values)

    def _stage(self, ready: ReadyStep, gradients: StepGradients) -> dict[str, int]:
        grant, plan = ready.grant, ready.planned.plan
        return self._pushes.stage(grant.group, grant.step, plan.unique_keys, plan.counts, gradients)

    def _must_hold(self, ready: ReadyStep) -> bool:
        if self.config.sync.pipeline_depth == 0 or not ready.grant.ahead or self._feed is None:
            return False
        return self._feed.last_fetched <= ready.grant.step

    def _report(self, report: Staged) -> None:
        self._held = None
        self._unconfirmed[report.step] = report
        self._send(report)

    def _step_seed(self, own: Interval) -> int:
        # Of integers, Python's hash is the same in every process.
        return hash((self.config.training.seed, own.pass_index, own.start, own.stop)) & 0x7FFF_FFFF_FFFF_FFFF

    def _client(self, opening: OpenJob, deadline_s: float) -> TierClient:
        # Pulls and pushes run in two threads, so each has a client of its own.
        client = TierClient(
            opening.route,
            worker=self._identity.name,
            incarnation=self._identity.incarnation,
            term=opening.term,
            token=self._identity.token,
            row_dim=row_dim(self.config.model),
            deadline_s=deadline_s,
        )
        client.use_codec(self.config.compression.row_codec)
        client.use_links(self._device.links)
        return client

    def _leave_group(self) -> None:
        if self._feed is not None:
            self._feed.close()
        if self._prefetcher is not None:
            self._prefetcher.close()
        if self._group is not None:
            self._group.close()
        self._feed, self._prefetcher, self._group = None, None, None
        self._last_granted = -1
        self._unconfirmed.clear()
        self._held = None

    def _close_clients(self) -> None:
        self._pulls.close()
        self._pushes.close()
