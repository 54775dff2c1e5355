"""Reading, hashing and deduplicating ahead of the steps, in one background thread.

What a group will probably be granted next is announced to it (`Grant.ahead`), so that by the time a step may start its
batch is in memory and its keys are unique and sorted by server. No result depends on how far the reading runs ahead.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from geartrain.data.batch import Batch
from geartrain.data.permutation import PassOrder
from geartrain.data.reader import SplitReader, give_way
from geartrain.data.schema import DataSchema
from geartrain.types import Indices, Interval
from geartrain.wire.messages import Route
from kernels.lookup_plan import LookupPlan, plan_lookup

MAX_AHEAD = 16
"""Batches kept ready at most; an announced interval that is never granted is dropped when newer ones come."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch and where each of its keys' rows comes from."""

    batch: Batch
    plan: LookupPlan


class BatchPlanner:
    """Turns a batch into a planned batch: which unique keys, in the order of the servers that own them."""

    def __init__(self, schema: DataSchema, route: Route) -> None:
        self._slot_tables = schema.slot_tables
        self._num_tables = len(schema.table_names)
        self._owners: Indices = np.asarray(route.owners, dtype=np.int64)
        self._num_servers = len(route.servers)

    def plan(self, batch: Batch) -> PlannedBatch:
        slot_starts = batch.bag_offsets[:: max(batch.num_samples, 1)]
        if batch.num_samples == 0:
            slot_starts = np.zeros(len(self._slot_tables) + 1, dtype=np.int32)
        plan = plan_lookup(
            batch.keys,
            slot_starts.astype(np.int64),
            self._slot_tables,
            self._num_tables,
            self._owners,
            self._num_servers,
        )
        return PlannedBatch(batch, plan)


class Prefetcher:
    """Plans batches of the train split in a background thread. Owned and called by one thread."""

    def __init__(self, reader: SplitReader, planner: BatchPlanner, seed: int, shuffle: bool) -> None:
        self._reader = reader
        self._planner = planner
        self._seed = seed
        self._shuffle = shuffle
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch", initializer=give_way)
        self._planned: OrderedDict[Interval, Future[PlannedBatch]] = OrderedDict()
        self._order: tuple[int, PassOrder] | None = None
        self._chunk_ahead: int | None = None

    def announce(self, intervals: Iterable[Interval]) -> None:
        """Start to read what will probably be asked for, in this order."""
        for interval in intervals:
            if interval not in self._planned:
                self._planned[interval] = self._pool.submit(self._read, interval)
        while len(self._planned) > MAX_AHEAD:
            _, dropped = self._planned.popitem(last=False)
            dropped.cancel()

    def take(self, interval: Interval) -> Future[PlannedBatch]:
        """The planned batch of `interval`, whether it was announced or not; it raises what reading raised."""
        self.announce([interval])
        return self._planned.pop(interval)

    def close(self) -> None:
        """Drop what was read ahead and end the thread."""
        self._planned.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _read(self, interval: Interval) -> PlannedBatch:
        order = self._pass_order(interval.pass_index)
        batch = self._reader.batch(order, interval.start, interval.stop)
        following = order.chunk_after(max(interval.start, interval.stop - 1))
        if following is not None and following != self._chunk_ahead:
            self._chunk_ahead = following
            self._reader.prefetch(following)
        return self._planner.plan(batch)

    def _pass_order(self, pass_index: int) -> PassOrder:
        if self._order is None or self._order[0] != pass_index:
            order = PassOrder(self._reader.chunk_rows, self._seed, pass_index, self._shuffle)
            self._order = (pass_index, order)
        return self._order[1]
