"""`geartrain evaluate` and `geartrain predict`: what a checkpoint's model makes of data, on a cluster of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geartrain.commands.options import cluster_options, json_option, resolve_devices, set_option
from geartrain.errors import ConfigError

if TYPE_CHECKING:
    from geartrain.config import JobConfig

_GLOB_CHARACTERS = frozenset("*?[")


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--split", type=click.Choice(["valid", "test"]), default="test", show_default=True, help="What to read.")
@click.option("--config", type=click.Path(path_type=Path), help="Another config than the checkpoint's own.")
@set_option
@cluster_options
@json_option
def evaluate(
    checkpoint: Path,
    split: str,
    config: Path | None,
    overrides: tuple[str, ...],
    server_num: int,
    worker_num: int | None,
    devices: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print AUC and logloss of CHECKPOINT's model on a split of the data."""
    from coordinator.checkpoints import load_manifest
    from coordinator.restoring import check_restorable
    from geartrain.commands.local_job import local_spec, run_job, show_result
    from geartrain.config import default_allowed_roots, load_config

    checkpoint = checkpoint.resolve()
    roots: tuple[Path, ...]
    if config is None:
        if overrides:
            raise ConfigError("--set: expected --config beside it", field="--set", expected="--config beside it")
        job = _config_of(checkpoint)
        roots = (Path(job.data.root),)
    else:
        job = load_config(config, overrides)
        check_restorable(checkpoint, load_manifest(checkpoint), job, resumes=False)
        roots = default_allowed_roots(config.resolve().parent)
    if not getattr(job.data, split):
        field = f"data.{split}"
        raise ConfigError(f"{field}: expected files to evaluate, got none", field=field, expected="paths or globs")
    spec = local_spec(server_num, resolve_devices(worker_num, devices), None, (*roots, checkpoint))
    task = {"kind": "evaluate", "checkpoint": str(checkpoint), "split": split}
    show_result(run_job(job, spec, task), as_json=as_json)


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--input", "pattern", metavar="GLOB", required=True, help="Files in the format of the training data.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File for one probability a row.")
@cluster_options
@json_option
def predict(
    checkpoint: Path,
    pattern: str,
    out: Path,
    server_num: int,
    worker_num: int | None,
    devices: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write what CHECKPOINT's model predicts for the rows of files, in their order."""
    from geartrain.commands.local_job import local_spec, run_job, show_result

    out, checkpoint = out.resolve(), checkpoint.resolve()
    if not out.parent.is_dir() or out.is_dir():
        message = f"--out: expected a file in a folder that exists, got {out}"
        raise ConfigError(message, field="--out", value=str(out), expected="a file in a folder that exists")
    job = _reading(_config_of(checkpoint), pattern)
    roots = (Path(job.data.root), checkpoint)
    # Written beside `out`, so that it gets its name in one step.
    spec = replace(local_spec(server_num, resolve_devices(worker_num, devices), None, roots), output_dir=out.parent)
    done = run_job(job, spec, {"kind": "predict", "checkpoint": str(checkpoint)})
    if done["state"] == "succeeded":
        Path(done["result"]["predictions"]).replace(out)
        done = {**done, "result": {**done["result"], "predictions": str(out)}}
    show_result(done, as_json=as_json)


def _config_of(checkpoint: Path) -> JobConfig:
    """The config that a checkpoint's model was trained with. Raises `CheckpointError`."""
    from coordinator.checkpoints import load_manifest
    from coordinator.restoring import trained_config

    return trained_config(checkpoint, load_manifest(checkpoint))


def _reading(config: JobConfig, pattern: str) -> JobConfig:
    """`config` with the files of a glob as the data of every split."""
    root, files = split_pattern(pattern)
    splits = {"train": (files,), "valid": (files,), "test": (files,)}
    return config.model_copy(update={"data": config.data.model_copy(update={"root": str(root), **splits})})


def split_pattern(pattern: str) -> tuple[Path, str]:
    """The deepest folder of a glob that is named in full, with links followed, and the rest of the glob."""
    parts = Path(pattern).parts
    fixed = next((number for number, part in enumerate(parts) if _GLOB_CHARACTERS & set(part)), len(parts))
    fixed = min(fixed, len(parts) - 1)
    return Path(*parts[:fixed]).resolve(), str(Path(*parts[fixed:]))


COMMANDS = (evaluate, predict)
