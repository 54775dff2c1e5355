"""Rows of a checkpoint's files into a table: the shards that a server owns, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from embedding_tier.table import Table
from embedding_tier.table_reader import Block, TableReader
from geartrain.errors import CheckpointError, KernelError
from geartrain.types import Keys
from kernels.row_records import RowRecords

BATCH_ROWS = 1 << 14
"""Beside the table itself only so many rows, or one shard's, are in memory."""


def check_fits(table: Table, reader: TableReader, with_states: bool) -> None:
    """Raises `CheckpointError` unless the file's rows are of this table's form; `with_states`: and all they carry."""
    store, schema = table.store, reader.schema
    reader.expect("dim", store.dim, schema.dim)
    reader.expect("row_dtype", store.row_dtype, schema.row_dtype)
    if with_states:
        reader.expect("optimizer", table.optimizer.kind, schema.optimizer)
        reader.expect("state_width", store.state_width, schema.state_width)
        reader.expect("sketch_bytes", store.sketch_bytes, schema.sketch_bytes)


def load_rows(
    table: Table, newest: TableReader, base: TableReader | None, shards: Sequence[int], with_states: bool
) -> None:
    """Load the rows of `newest` in these shards; for a delta, also those of `base` that it did not replace or delete.

    Without `with_states` only values and statistics are taken: optimizer states start anew, and versions, which begin
    at 0 then. Raises `CheckpointError`.
    """
    try:
        for batch in _batches(shards, [newest] if base is None else [newest, base]):
            blocks = {shard: newest.read(shard) for shard in batch}
            if base is not None:
                older = _joined([base.read(shard).rows for shard in batch])
                gone = [keys for block in blocks.values() for keys in (block.rows.keys, block.deleted)]
                _load(table, _without(older, np.concatenate(gone)), with_states)
            _load(table, _joined([block.rows for block in blocks.values()]), with_states)
            if with_states:
                _load_sketches(table, blocks)
    except KernelError as error:
        raise CheckpointError(f"table {table.name}: {error.message}", field=table.name, **error.facts) from error


def _batches(shards: Sequence[int], readers: Sequence[TableReader]) -> Iterator[list[int]]:
    """Those of the shards that have a block, in groups of about BATCH_ROWS rows."""
    batch: list[int] = []
    num_rows = 0
    for shard in shards:
        entries = [reader.entries[shard] for reader in readers if shard in reader.entries]
        if not entries:
            continue
        batch.append(shard)
        num_rows += sum(entry.num_rows + entry.num_deleted for entry in entries)
        if num_rows >= BATCH_ROWS:
            yield batch
            batch, num_rows = [], 0
    if batch:
        yield batch


def _joined(parts: Sequence[RowRecords]) -> RowRecords:
    if len(parts) == 1:
        return parts[0]
    return RowRecords(
        keys=np.concatenate([part.keys for part in parts]),
        values=np.concatenate([part.values for part in parts]),
        states=np.concatenate([part.states for part in parts]),
        statistics=np.concatenate([part.statistics for part in parts]),
        last_versions=np.concatenate([part.last_versions for part in parts]),
    )


def _without(rows: RowRecords, gone: Keys) -> RowRecords:
    kept = ~np.isin(rows.keys, gone)
    return RowRecords(
        rows.keys[kept], rows.values[kept], rows.states[kept], rows.statistics[kept], rows.last_versions[kept]
    )


def _load(table: Table, rows: RowRecords, with_states: bool) -> None:
    num_rows = len(rows.keys)
    if num_rows == 0:
        return
    if not with_states:
        rows = RowRecords(
            rows.keys,
            rows.values,
            np.zeros((num_rows, table.store.state_width), dtype=np.float32),
            rows.statistics,  # without their shows, expiry by score would remove all rows at once
            np.zeros(num_rows, dtype=np.uint32),
        )
    table.store.load(rows)


def _load_sketches(table: Table, blocks: dict[int, Block]) -> None:
    for shard, block in blocks.items():
        if len(block.sketch):
            totals = np.array([block.sketch_total], dtype=np.uint64)
            table.store.load_sketches(shard, block.sketch[np.newaxis], totals)
