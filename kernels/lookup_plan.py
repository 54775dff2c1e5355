"""From a batch's keys to what is asked of each server, in one sweep.

Letters: N keys, S slots, U unique (table, key) pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geartrain.types import NUM_SHARDS, Indices, Keys, Places
from kernels.checks import mismatch, require_array, require_offsets, require_places, require_range
from kernels.explain import native


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """What to pull for a batch.

    `unique_keys` uint64[U] ordered by (server, table, first occurrence in the batch); `counts` int64[servers, tables]
    how many of them go to each; `inverse` int32[N]: key i of the batch is row `inverse[i]` of the pulled rows.
    """

    unique_keys: Keys
    counts: Indices
    inverse: Places


def plan_lookup(
    keys: Keys, slot_starts: Indices, slot_tables: Indices, num_tables: int, shard_owner: Indices, num_servers: int
) -> LookupPlan:
    """Deduplicate keys per table and sort them by the server that owns their shard.

    `keys` uint64[N] slot-major, N < 2**31; `slot_starts` int64[S + 1]: slot s has the keys
    `[slot_starts[s], slot_starts[s + 1])`; `slot_tables` int64[S] in [0, num_tables); `shard_owner` int64[1024] in
    [0, num_servers). Slots may share a table. Returns new arrays. Raises KernelError on more keys, another dtype, shape
    or range.
    """
    require_array("keys", keys, np.uint64, None)
    require_places("keys", keys)
    require_array("slot_tables", slot_tables, np.int64, None)
    require_array("slot_starts", slot_starts, np.int64, len(slot_tables) + 1)
    require_array("shard_owner", shard_owner, np.int64, NUM_SHARDS)
    if num_tables < 1 or num_servers < 1:
        raise mismatch("num_tables, num_servers", "integers >= 1", f"{num_tables}, {num_servers}")
    require_offsets("slot_starts", slot_starts, len(keys))
    require_range("slot_tables", slot_tables, num_tables)
    require_range("shard_owner", shard_owner, num_servers)
    unique_keys = np.empty_like(keys)
    counts = np.empty((num_servers, num_tables), dtype=np.int64)
    inverse = np.empty(len(keys), dtype=np.int32)
    num_unique = native.plan_lookup(keys, slot_starts, slot_tables, shard_owner, unique_keys, counts, inverse)
    return LookupPlan(unique_keys[:num_unique], counts, inverse)
