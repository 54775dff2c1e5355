"""Which settings a run that is resumed may change: those of speed, scale and length, and where its data are. Pure.

All others decide what its steps compute. With one of them changed, training would not go on as if it had never stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from coordinator.checkpoints import Manifest
from geartrain.checkpoint_layout import MANIFEST_NAME
from geartrain.config import JobConfig
from geartrain.errors import CheckpointError

MAY_CHANGE = (
    "name",
    # Where the data are and how their files are written: a run may go on with the files of another day.
    *("features.*.name", "features.*.separator", "label.*"),
    *("data.root", "data.format", "data.columns", "data.header", "data.separator", "data.strip_whitespace"),
    *("data.missing", "data.train", "data.valid", "data.test", "data.group_by"),
    # How fast and how long it learns.
    *("training.passes", "training.early_stopping*", "training.max_skipped_steps", "training.lr_schedule.*"),
    *("training.dense_optimizer.lr", "tables.*.optimizer.lr"),
    # What the work runs on, and how it is shared out and sent.
    *("training.precision", "heterogeneous", "sync.*", "compression.*", "portrait.*", "routing.*", "replication"),
    "checkpoint.*",
)
"""Fields that may differ from those that a checkpoint was trained with. `tables` are meant as they apply to each table,
whatever they come from."""


def check_resumable(directory: Path, manifest: Manifest, trained: JobConfig, config: JobConfig) -> None:
    """Raises `CheckpointError` unless a run of `config` can go on where the checkpoint of a run of `trained` ends."""
    theirs, ours = fixed_settings(trained), fixed_settings(config)
    for field in dict.fromkeys([*theirs, *ours]):
        if theirs.get(field) != ours.get(field):
            raise CheckpointError(
                f"{directory} cannot be resumed: {field} is {theirs.get(field)} there and {ours.get(field)} in the "
                "config; a run that goes on keeps it (init-from begins a new one with the parameters)",
                file=str(directory / MANIFEST_NAME),
                field=field,
                expected=theirs.get(field),
                value=ours.get(field),
            )
    passes, done = config.training.passes, manifest.passes_done
    if passes < done:
        raise CheckpointError(
            f"{directory} cannot be resumed: training.passes is {passes}, and {done} are done; it counts the passes of "
            "the whole run",
            file=str(directory / MANIFEST_NAME),
            field="training.passes",
            expected=f"at least {done}",
            value=passes,
        )


def fixed_settings(config: JobConfig) -> dict[str, Any]:
    """The settings of a run that stay as they are, by their paths."""
    fields = config.to_dict()
    del fields["training"]["sparse_optimizer"]  # it is that of the tables
    fields["tables"] = {
        table.name: {
            "dim": table.dim,
            "optimizer": table.optimizer,
            "initializer": table.initializer,
            "row_dtype": table.row_dtype,
            "admission": table.admission,
            "expiry": table.expiry,
            "max_rows": table.max_rows,
            "eviction": table.eviction,
        }
        for table in config.table_specs()
    }
    return {path: value for path, value in _leaves("", fields) if not _may_change(path)}


def _may_change(path: str) -> bool:
    return any(path == one or fnmatchcase(path, one) for one in MAY_CHANGE)


def _leaves(path: str, value: Any) -> list[tuple[str, Any]]:
    """Every value that is no mapping, nor a list of mappings, with its path."""
    if isinstance(value, Mapping):
        parts = [(str(name), one) for name, one in value.items()]
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        parts = [(str(number), one) for number, one in enumerate(value)]
    else:
        return [(path, value)]
    return [leaf for name, one in parts for leaf in _leaves(f"{path}.{name}" if path else name, one)]
