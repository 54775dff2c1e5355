"""A job with one table on one server, to which windows are applied one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from embedding_tier.job_state import JobState
from embedding_tier.table import Table
from geartrain.types import NUM_SHARDS, Floats, Keys
from geartrain.wire.framing import StagedArrays
from geartrain.wire.messages import Apply, Contribution, Origin, Stage, TableSpec
from kernels.hashing import mix64, shard_of
from kernels.initializer import initial_rows

DIM = 4
ALL_SHARDS = frozenset(range(NUM_SHARDS))
SPREAD = mix64(np.arange(1, 401, dtype=np.uint64)).tolist()
"""Keys of many shards."""


def in_shard(shard: int, count: int) -> list[int]:
    """Keys of one shard."""
    keys = np.arange(1, 4 * NUM_SHARDS * count, dtype=np.uint64)
    found: list[int] = keys[shard_of(keys) == shard][:count].tolist()
    assert len(found) == count
    return found


def spec(**settings: Any) -> TableSpec:
    """A table whose rows lose 1 per window (sgd), unless `settings` say otherwise."""
    optimizer = settings.pop("optimizer", {"type": "sgd"})
    return TableSpec("t", DIM, optimizer, {"type": "uniform", "range": 0.5}, 1, **settings)


class Life:
    """A table on a server that owns `shards`."""

    def __init__(
        self, spec: TableSpec, shards: frozenset[int] = ALL_SHARDS, version: int = 0, num_threads: int = 1
    ) -> None:
        self.job = JobState(1, [spec], version, 0, num_threads)
        self._shards = np.array(sorted(shards))

    @property
    def table(self) -> Table:
        return self.job.tables[0]

    @property
    def num_rows(self) -> int:
        return self.job.stats()[0]["t"].num_rows

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Admitted, rejected, expired, evicted."""
        stats = self.job.stats()[0]["t"]
        return stats.num_admitted, stats.num_rejected, stats.num_expired, stats.num_evicted

    def window(
        self, keys: Iterable[int] | Keys, shows: float = 1.0, passes: Sequence[int] = (), divisor: float = 1.0
    ) -> None:
        """Apply the next window: a gradient of 1 for those of `keys` that this server owns."""
        given = keys if isinstance(keys, np.ndarray) else np.array(list(keys), dtype=np.uint64)
        mine = given[np.isin(shard_of(given), self._shards)]
        version = self.job.version + 1
        ones = np.ones(len(mine), dtype=np.float32)
        arrays = StagedArrays(mine, np.ones((len(mine), DIM), dtype=np.float32), ones * shows, ones * 0, ones[:0])
        self.job.stage(Stage(Origin("t", 1, 1, "w0", 1, 1, 1.0), 0, version, [len(mine)], 0, 0), arrays)
        contribution = Contribution(0, version, ["w0"], 1, 1.0)
        decision = Apply(1, version, [contribution], divisor, 1.0, 1.0, 1.0, {"t": 1.0}, [0], list(passes))
        assert self.job.decide(decision) == version

    def rows(self, keys: Sequence[int]) -> Floats:
        return self.job.pull_rows(np.array(keys, dtype=np.uint64), [len(keys)])[0]

    def updates(self, keys: Sequence[int]) -> list[int]:
        """How many windows have updated each key's row of a table with sgd; 0 without a row."""
        unborn = initial_rows(np.array(keys, dtype=np.uint64), DIM, self.table.store.initializer)
        lost = unborn - self.rows(keys)
        counts = np.rint(lost[:, 0]).astype(int)
        np.testing.assert_allclose(lost, np.repeat(counts[:, None], DIM, axis=1), atol=1e-5)
        return [int(count) for count in counts]
