"""Reading a checkpoint, written by any number of servers, into the rows and the dense block that one server owns.

Files are streamed: beside the rows themselves only a chunk is in memory. Whatever is missing, cut short, damaged,
ragged or of another model is refused, naming file and field; the job is then not opened: half a restore is never used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from embedding_tier.dense_blocks import DenseBlock
from embedding_tier.part_reader import PartReader
from embedding_tier.shard import owned_by
from embedding_tier.snapshot import DENSE_PARTS, ROW_PARTS, Description
from embedding_tier.table import Table
from geartrain.checkpoint_layout import MANIFEST_NAME
from geartrain.errors import CheckpointError, KernelError
from geartrain.wire.messages import Route
from kernels.row_records import RowRecords

CHUNK_ROWS = 1 << 16


class Checkpoint:
    """The files of one checkpoint directory, as its manifest describes them."""

    def __init__(self, directory: Path) -> None:
        """Raises `CheckpointError` when the manifest is missing or cannot be understood."""
        self.directory = directory
        path = directory / MANIFEST_NAME
        try:
            self.files: dict[str, Description] = dict(json.loads(path.read_text())["files"])
            parts = [(entry["part"], entry["server"], entry.get("table"), name) for name, entry in self.files.items()]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} is not a manifest: {error!r}", file=str(path), field="files") from error
        self._names = {(part, server, table): name for part, server, table, name in parts}
        self.servers = sorted({server for _, server, _, _ in parts})
        self.tables = sorted({table for _, _, table, _ in parts if table is not None})

    def expect_tables(self, tables: Sequence[str]) -> None:
        """Raises `CheckpointError` unless the checkpoint has exactly these tables."""
        if self.tables != sorted(tables):
            strange = sorted(set(self.tables) ^ set(tables))[0]
            raise CheckpointError(
                f"{self.directory}: table {strange} is only in the {'checkpoint' if strange in self.tables else 'job'}",
                file=str(self.directory / MANIFEST_NAME),
                field=strange,
                expected=sorted(tables),
                got=self.tables,
            )

    def part(self, part: str, server: str, table: str | None) -> PartReader:
        """The reader of one file. Raises `CheckpointError` when the manifest has no such file, or it cannot be read."""
        what = part if table is None else f"table {table}: {part}"
        name = self._names.get((part, server, table))
        if name is None or Path(name).name != name:
            raise CheckpointError(
                f"{self.directory}: {what} of server {server} is missing",
                file=str(self.directory / MANIFEST_NAME),
                field=what,
                expected=f"a file of server {server}",
            )
        return PartReader(self.directory / name, what, self.files[name])

    def load_table(self, table: Table, route: Route, server: int, with_states: bool) -> None:
        """Load the rows of `table` in the shards of the server with this number.

        Without `with_states` only values are taken, and rows are as if new otherwise. Raises `CheckpointError`.
        """
        for writer in self.servers:
            with ExitStack() as stack:
                readers = {
                    part: stack.enter_context(self.part(part, writer, table.name))
                    for part in ROW_PARTS
                    if with_states or part in ("keys", "values")
                }
                _load_rows(table, readers, route, server)

    def load_dense(self, block: DenseBlock, num_values: int, with_states: bool) -> None:
        """Load the values of `block`, out of a flat vector of `num_values`. Raises `CheckpointError`."""
        width = len(block.states())
        values = np.zeros(block.stop - block.start, dtype=np.float32)
        states = np.zeros((width, len(values)), dtype=np.float32)
        at = 0
        ranges = [(self._range(writer), writer) for writer in self.servers]
        for (start, stop), writer in sorted(ranges):
            if start != at:
                break
            at = stop
            low, high = max(start, block.start), min(stop, block.stop)
            mine, theirs = slice(low - block.start, high - block.start), slice(low - start, high - start)
            with self.part(DENSE_PARTS[0], writer, None) as reader:
                found = reader.whole((stop - start,))
                if low < high:
                    values[mine] = found[theirs]
            if with_states:
                with self.part(DENSE_PARTS[1], writer, None) as reader:
                    reader.expect("optimizer", block.optimizer.kind)
                    found = reader.whole((width, stop - start))
                    if low < high:
                        states[:, mine] = found[:, theirs]
        if at != num_values:
            raise CheckpointError(
                f"{self.directory}: the dense blocks hold {at} values, the model has {num_values}",
                file=str(self.directory / MANIFEST_NAME),
                field="dense",
                expected=num_values,
            )
        block.restore(values, states)

    def _range(self, server: str) -> tuple[int, int]:
        with self.part(DENSE_PARTS[0], server, None) as reader:
            return reader.number("start"), reader.number("stop")


def _load_rows(table: Table, readers: dict[str, PartReader], route: Route, server: int) -> None:
    store = table.store
    num_rows = readers["keys"].number("num_rows")
    forms: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
        "keys": (np.uint64, ()),
        "values": (np.float32, (store.dim,)),
        "states": (np.float32, (store.state_width,)),
        "statistics": (np.float32, (2,)),
        "last_versions": (np.uint32, ()),
    }
    for part, reader in readers.items():
        reader.expect("num_rows", num_rows)
        reader.expect("dim", store.dim)
        if part == "states":
            reader.expect("optimizer", table.optimizer.kind)
        dtype, row_shape = forms[part]
        reader.open(dtype, (num_rows, *row_shape))
    for begin in range(0, num_rows, CHUNK_ROWS):
        count = min(CHUNK_ROWS, num_rows - begin)
        chunk = {part: reader.rows(count) for part, reader in readers.items()}
        mine = owned_by(route, server, chunk["keys"])
        kept = int(mine.sum())
        for part, (dtype, row_shape) in forms.items():
            chunk[part] = chunk[part][mine] if part in chunk else np.zeros((kept, *row_shape), dtype=dtype)
        try:
            store.load(RowRecords(**chunk))
        except KernelError as error:
            raise CheckpointError(f"table {table.name}: {error.message}", field=table.name, **error.facts) from error
    for reader in readers.values():
        reader.close_checked()
