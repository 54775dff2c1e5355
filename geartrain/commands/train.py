"""`geartrain train`: a config goes in, a cluster of local processes trains it, the report comes out."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geartrain.commands.options import cluster_options, json_option, resolve_devices, set_option
from geartrain.errors import ConfigError

if TYPE_CHECKING:
    from geartrain.config import JobConfig


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@cluster_options
@click.option(
    "--heterogeneous/--no-heterogeneous",
    default=None,
    help="Workers are measured first, shares and groups follow their speeds; or equal shares, for comparison.",
)
@click.option("--sync-mode", type=click.Choice(["sync", "async", "hybrid"]), help="How long a window waits.")
@click.option("--sync-group-size", metavar="N|auto", help="Workers in a sync group; auto: like with like.")
@set_option
@json_option
@click.option("--output", type=click.Path(path_type=Path), help="Checkpoints and logs [default: runs/NAME-TIME].")
@click.option("--resume", metavar="CHECKPOINT", type=click.Path(path_type=Path), help="Go on from a checkpoint.")
@click.option("--init-from", metavar="CHECKPOINT", type=click.Path(path_type=Path), help="Begin with its parameters.")
def train(
    config: Path,
    server_num: int,
    worker_num: int | None,
    devices: tuple[str, ...],
    heterogeneous: bool | None,
    sync_mode: str | None,
    sync_group_size: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
    output: Path | None,
    resume: Path | None,
    init_from: Path | None,
) -> None:
    """Train CONFIG (YAML or JSON) on a cluster of local processes.

    The processes are started and stopped by this command, and stop with it however it ends.
    """
    from coordinator.device_checks import check_devices
    from geartrain.commands.local_job import local_spec, run_job, show_result
    from geartrain.config import default_allowed_roots, load_config

    named = {"heterogeneous": heterogeneous, "sync.mode": sync_mode, "sync.group_size": sync_group_size}
    options = [f"{path}={str(value).lower()}" for path, value in named.items() if value is not None]
    job = load_config(config, [*overrides, *options])
    task = _task(job, resume, init_from)
    workers = resolve_devices(worker_num, devices)
    check_devices(job, {f"w{number}": device for number, device in enumerate(workers)})
    roots = default_allowed_roots(config.resolve().parent)
    if "checkpoint" in task:
        roots = (*roots, Path(task["checkpoint"]))
    if output is not None:
        _check_output(output / job.checkpoint.directory, resumes=resume is not None)
    spec = local_spec(server_num, workers, output.resolve() if output else _new_output(job.name), roots)
    show_result(run_job(job, spec, task), as_json=as_json)


def _check_output(checkpoints: Path, resumes: bool) -> None:
    """Raises `ConfigError` where a run would write among another run's checkpoints. What a run left there that was
    stopped in the middle of a save is no checkpoint, and goes."""
    from coordinator.cut_folders import CutFolders
    from geartrain.launch.home import usable_folder

    if not checkpoints.exists():
        return
    usable_folder(checkpoints, "--output")
    CutFolders().clear(checkpoints)
    if not resumes and any(checkpoints.iterdir()):
        raise ConfigError(
            f"--output: {checkpoints} has checkpoints of an earlier run; name another folder, or go on with --resume",
            field="--output",
            value=str(checkpoints),
            expected="a folder without checkpoints",
        )


def _new_output(name: str) -> Path:
    """A folder that does not exist yet: `runs/NAME-TIME`, with a number behind it if need be."""
    base = Path("runs").resolve() / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = itertools.chain([base], (base.with_name(f"{base.name}-{number}") for number in itertools.count(2)))
    return next(folder for folder in candidates if not folder.exists())


def _task(job: JobConfig, resume: Path | None, init_from: Path | None) -> dict[str, str]:
    """What the job does. Raises `CheckpointError` when it cannot start from the checkpoint."""
    from coordinator.checkpoints import load_manifest
    from coordinator.restoring import check_restorable

    if resume is not None and init_from is not None:
        message = "--resume and --init-from: expected one of them, got both"
        raise ConfigError(message, field="--init-from", value=str(init_from), expected="no --resume beside it")
    for kind, path in (("resume", resume), ("init_from", init_from)):
        if path is not None:
            checkpoint = path.resolve()
            check_restorable(checkpoint, load_manifest(checkpoint), job, resumes=kind == "resume")
            return {"kind": "train", "init": kind, "checkpoint": str(checkpoint)}
    return {"kind": "train"}


COMMANDS = (train,)
