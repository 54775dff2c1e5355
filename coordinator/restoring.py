"""Whether a job can start from a checkpoint: told when it is submitted, not when servers and workers try."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator.best_pass import best_cut
from coordinator.checkpoints import Manifest, read_manifests
from coordinator.manifest_checks import check_complete
from coordinator.resuming import check_resumable
from geartrain.checkpoint_files import RowsFile, described_files, file_field
from geartrain.checkpoint_layout import MANIFEST_NAME, manifest_refusal
from geartrain.config import JobConfig
from geartrain.errors import CheckpointError, ConfigError

_NOT_THE_MODELS = frozenset({"name", "separator", "max_length", "dropout"})
"""Fields of features and model that say how data are read or steps computed, not what the parameters mean."""


def check_restorable(directory: Path, manifest: Manifest, config: JobConfig, *, resumes: bool) -> None:
    """Raises `CheckpointError` unless a job of `config` can begin with the checkpoint's parameters.

    `resumes`: it goes on with the run, as if that had never stopped.
    """
    trained = trained_config(directory, manifest)
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
    if resumes:
        check_resumable(directory, manifest, trained, config)
        _check_best(directory, best_cut(directory, manifest, config))


def trained_config(directory: Path, manifest: Manifest) -> JobConfig:
    """The config that the checkpoint was trained with.

    Raises `CheckpointError` when it is none, and when the manifest's files are not of its model.
    """
    try:
        trained = JobConfig.from_resolved(manifest.config)
    except ConfigError as error:
        raise manifest_refusal(directory, f"config.{error.facts.get('field')}", error.message) from error
    _check_files(directory, manifest, trained)
    return trained


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


def _check_files(directory: Path, manifest: Manifest, trained: JobConfig) -> None:
    """The files are of the model that the manifest's own config describes."""
    files = described_files(directory, manifest.files)
    specs = {spec.name: spec for spec in trained.table_specs()}
    for name, about in files.items():
        if not isinstance(about, RowsFile):
            continue
        spec = specs.get(about.table)
        if spec is None:
            reason = f"expected one of the config's tables, {', '.join(specs)}, got {about.table}"
            raise manifest_refusal(directory, file_field(name, "table"), reason)
        wanted = {"dim": spec.dim, "row_dtype": spec.row_dtype, "optimizer": spec.optimizer["type"]}
        for field, value in wanted.items():
            got = getattr(about, field)
            if got != value:
                reason = f"expected {value} by the config, got {got}"
                raise manifest_refusal(directory, file_field(name, field), reason)
    check_complete(directory, manifest.servers, specs, files.values())
    dense = trained.training.dense_optimizer.model_dump(mode="json")
    for field in dict.fromkeys([*dense, *manifest.dense_optimizer]):
        got = manifest.dense_optimizer.get(field)
        if got != dense.get(field):
            reason = f"expected {dense.get(field)} by the config, got {got}"
            raise manifest_refusal(directory, f"dense_optimizer.{field}", reason)
