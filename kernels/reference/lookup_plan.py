"""NumPy definition of a lookup plan."""

from __future__ import annotations

import numpy as np

from geartrain.types import Indices, Keys, Places
from kernels.reference.dedup import deduplicate
from kernels.reference.hashing import shard_of


def plan_lookup(
    keys: Keys, slot_starts: Indices, slot_tables: Indices, num_tables: int, shard_owner: Indices, num_servers: int
) -> tuple[Keys, Indices, Places]:
    """Deduplicate per table, then sort the unique keys by (server, table), stably."""
    tables = np.repeat(slot_tables, np.diff(slot_starts))
    uniques = [np.empty(0, dtype=np.uint64)]
    unique_tables = [np.empty(0, dtype=np.int64)]
    inverse = np.empty(len(keys), dtype=np.int32)
    num_unique = 0
    for table in range(num_tables):
        of_table = tables == table
        unique, places = deduplicate(keys[of_table])
        inverse[of_table] = num_unique + places
        num_unique += len(unique)
        uniques.append(unique)
        unique_tables.append(np.full(len(unique), table, dtype=np.int64))
    unique_keys = np.concatenate(uniques)
    cell = shard_owner[shard_of(unique_keys)] * num_tables + np.concatenate(unique_tables)
    order = np.argsort(cell, kind="stable")
    position = np.empty(num_unique, dtype=np.int32)
    position[order] = np.arange(num_unique)
    counts = np.bincount(cell, minlength=num_servers * num_tables).reshape(num_servers, num_tables)
    return unique_keys[order], counts.astype(np.int64), position[inverse]
