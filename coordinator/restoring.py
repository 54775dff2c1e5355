"""Whether a job can start from a checkpoint: told when it is submitted, not when servers and workers try."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator.best_pass import best_cut
from coordinator.checkpoints import Manifest, read_manifests
from coordinator.resuming import check_resumable
from geartrain.checkpoint_layout import MANIFEST_NAME
from geartrain.config import JobConfig
from geartrain.errors import CheckpointError, ConfigError

_NOT_THE_MODELS = frozenset({"name", "separator", "max_length", "dropout"})
"""Fields of features and model that say how data are read or steps computed, not what the parameters mean."""


def check_restorable(directory: Path, manifest: Manifest, config: JobConfig, *, resumes: bool) -> None:
    """Raises `CheckpointError` unless a job of `config` can begin with the checkpoint's parameters.

    `resumes`: it goes on with the run, as if that had never stopped.
    """
    try:
        trained = JobConfig.from_resolved(manifest.config)
    except ConfigError as error:
        raise _refusal(directory, f"config.{error.facts.get('field')}", error.message) from error
    theirs, ours = _meaning(trained), _meaning(config)
    for field in dict.fromkeys([*theirs, *ours]):
        if theirs.get(field) != ours.get(field):
            raise CheckpointError(
                f"{directory} is of another model: {field} is {theirs.get(field)} there and {ours.get(field)} in the "
                "config",
                file=str(directory / MANIFEST_NAME),
                field=field,
                expected=theirs.get(field),
                value=ours.get(field),
            )
    _check_parts(directory, manifest, config)
    if resumes:
        check_resumable(directory, manifest, trained, config)
        _check_best(directory, best_cut(directory, manifest, config))


def _check_best(directory: Path, best: Path) -> None:
    """The best pass of the run is there, and if it is a delta, what it builds on."""
    if not best.is_dir():
        raise CheckpointError(
            f"{best}: the best pass so far, which early stopping may return to, was expected beside {directory.name}",
            file=str(best),
            field="best",
            expected="the checkpoint of the best pass beside the one that is resumed",
        )
    if best != directory:
        read_manifests(best)


def _meaning(config: JobConfig) -> dict[str, Any]:
    """What decides about the shape and the meaning of parameters."""
    meaning: dict[str, Any] = {"features": len(config.features)}
    for place, feature in enumerate(config.features):
        meaning |= _fields(f"features.{place}", feature.model_dump(mode="json"))
    meaning |= _fields("model", config.model.model_dump(mode="json"))
    meaning |= {f"tables.{table.name}.row_dtype": table.row_dtype for table in config.table_specs()}
    return meaning


def _fields(path: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{path}.{name}": value for name, value in values.items() if name not in _NOT_THE_MODELS}


def _check_parts(directory: Path, manifest: Manifest, config: JobConfig) -> None:
    """No server's part of a table is left out, whatever the manifest says about the rest."""
    written = {(about.get("server"), about.get("table"), about.get("part")) for about in manifest.files.values()}
    servers = sorted({str(server) for server, _, _ in written}) or ["s0"]
    parts = sorted({str(part) for _, table, part in written if table is not None}) or ["rows"]
    for table, server, part in itertools.product(config.table_names(), servers, parts):
        if (server, table, part) not in written:
            raise _refusal(directory, f"tables.{table}", f"the {part} of server {server} are missing")


def _refusal(directory: Path, field: str, reason: str) -> CheckpointError:
    path = directory / MANIFEST_NAME
    return CheckpointError(f"{path}: {field}: {reason}", file=str(path), field=field)
