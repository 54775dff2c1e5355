"""Reading a checkpoint, written by any number of servers, into the rows and the dense block that one server owns.

Of the rows' files only the blocks of the server's own shards are read, a few at a time. Whatever is missing, cut short,
damaged, ragged or of another model is refused, naming file and field; the job is then not opened: half a restore is
never used.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from embedding_tier.dense_blocks import DenseBlock
from embedding_tier.dense_file import DENSE_PARTS, read_dense
from embedding_tier.row_loading import check_fits, load_rows
from embedding_tier.table import Table
from embedding_tier.table_file import TABLE_PART, refusal
from embedding_tier.table_reader import TableReader
from geartrain.checkpoint_files import RowsFile, described_files, part_of
from geartrain.checkpoint_layout import (
    MANIFEST_NAME,
    BaseCheckpoint,
    Count,
    Version,
    base_directory,
    check_base,
    read_manifest,
)
from geartrain.errors import CheckpointError
from geartrain.types import Floats
from geartrain.wire.messages import Route


class _Manifest(msgspec.Struct, frozen=True):
    """What a server must know of the coordinator's manifest."""

    job: str
    term: Count
    version: Version
    files: dict[str, Any]
    base: BaseCheckpoint | None = None


class Checkpoint:
    """The files of one checkpoint directory, as its manifest describes them.

    That it describes all parts of all servers that wrote the checkpoint, the coordinator has seen before a job begins.
    """

    def __init__(self, directory: Path) -> None:
        """Raises `CheckpointError` when the manifest is missing or cannot be understood."""
        self.directory = directory
        self.manifest = read_manifest(directory, _Manifest)
        files = described_files(directory, self.manifest.files)
        self._names = {part_of(about): name for name, about in files.items()}
        self.servers = sorted({about.server for about in files.values()})
        self.tables = sorted({about.table for about in files.values() if isinstance(about, RowsFile)})

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

    def rows(self, server: str, table: str) -> TableReader:
        """The rows that a server wrote of a table. Raises `CheckpointError` when they cannot be used."""
        name = self._name(TABLE_PART, server, table)
        reader = TableReader(self.directory / name, self.manifest.files[name])
        reader.expect("version", self.manifest.version, reader.schema.version)
        return reader

    def load_table(self, table: Table, route: Route, server: int, with_states: bool) -> None:
        """Load the rows of `table` in the shards of the server with this number.

        Without `with_states` only values and statistics are taken. Raises `CheckpointError`.
        """
        shards = np.flatnonzero(np.asarray(route.owners) == server).tolist()
        for writer in self.servers:
            with ExitStack() as opened:
                newest = opened.enter_context(self.rows(writer, table.name))
                check_fits(table, newest, with_states)
                base = None
                if newest.schema.kind == "delta":
                    base = opened.enter_context(self._base.rows(writer, table.name))
                    check_fits(table, base, with_states)
                    base.expect("kind", "full", base.schema.kind)
                    newest.expect("base", base.schema.version, newest.schema.base)
                load_rows(table, newest, base, shards, with_states)

    def load_dense(self, block: DenseBlock, num_values: int, with_states: bool) -> None:
        """Load the values of `block`, out of a flat vector of `num_values`. Raises `CheckpointError`."""
        width = len(block.states())
        values = np.zeros(block.stop - block.start, dtype=np.float32)
        states = np.zeros((width, len(values)), dtype=np.float32)
        at = 0
        ranges = [(self._range(writer), writer) for writer in self.servers]
        for (start, stop), writer in sorted(ranges):
            if start != at or stop > num_values:
                break
            at = stop
            low, high = max(start, block.start), min(stop, block.stop)
            mine, theirs = slice(low - block.start, high - block.start), slice(low - start, high - start)
            found = self._dense(DENSE_PARTS[0], writer, (stop - start,))
            if low < high:
                values[mine] = found[theirs]
            if with_states:
                self._expect(DENSE_PARTS[1], writer, "optimizer", block.optimizer.kind)
                found = self._dense(DENSE_PARTS[1], writer, (width, stop - start))
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

    @cached_property
    def _base(self) -> Checkpoint:
        """The checkpoint that this one builds on. Raises `CheckpointError` when it is not there, or is another."""
        base = self.manifest.base
        if base is None:
            path = self.directory / MANIFEST_NAME
            raise CheckpointError(f"{path}: a delta without a base", file=str(path), field="base", expected="a base")
        found = Checkpoint(base_directory(self.directory, base))
        check_base(self.directory, self.manifest, base, found.manifest)
        return found

    def _name(self, part: str, server: str, table: str | None) -> str:
        what = part if table is None else f"table {table}: {part}"
        name = self._names.get((server, part, table))
        if name is None:
            raise CheckpointError(
                f"{self.directory}: {what} of server {server} is missing",
                file=str(self.directory / MANIFEST_NAME),
                field=what,
                expected=f"a file of server {server}",
            )
        return name

    def _dense(self, part: str, server: str, shape: tuple[int, ...]) -> Floats:
        name = self._name(part, server, None)
        return read_dense(self.directory / name, part, self.manifest.files[name], shape)

    def _range(self, server: str) -> tuple[int, int]:
        name = self._name(DENSE_PARTS[0], server, None)
        start, stop = (self.manifest.files[name].get(field) for field in ("start", "stop"))
        if not (isinstance(start, int) and isinstance(stop, int) and 0 <= start <= stop):
            raise refusal(self.directory / name, DENSE_PARTS[0], "start and stop", "0 <= start <= stop", [start, stop])
        return start, stop

    def _expect(self, part: str, server: str, field: str, wanted: object) -> None:
        name = self._name(part, server, None)
        got = self.manifest.files[name].get(field)
        if got != wanted:
            raise refusal(self.directory / name, part, field, wanted, got)
