"""Run one job on a cluster of its own and show its result: `train`, `evaluate` and `predict` differ in its task."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geartrain.errors import GeartrainError

if TYPE_CHECKING:
    from geartrain.config import JobConfig
    from geartrain.launch.local import ClusterSpec

Job = Mapping[str, Any]

SPLITS = ("train", "valid", "test")


def local_spec(
    server_num: int, devices: tuple[str, ...], output: Path | None, allowed_roots: tuple[Path, ...]
) -> ClusterSpec:
    """A cluster for one job: a free port and a secret of its own; its logs and its journal go under `output`, if there
    is one (see `coordinator.journal_file`)."""
    from geartrain.launch.local import ClusterSpec

    return ClusterSpec(
        num_servers=server_num,
        devices=devices,
        listen="127.0.0.1:0",
        output_dir=output,
        allowed_roots=allowed_roots,
        logs_dir=None if output is None else output / "logs",
        api_token=secrets.token_urlsafe(24),
        state_dir=None if output is None else output / "state",
    )


def run_job(config: JobConfig, spec: ClusterSpec, task: Mapping[str, str]) -> Job:
    """Check the files that the task reads, start the cluster, run the job, stop the cluster; the job as it ended.

    Raises what is wrong with the files before anything starts, what the coordinator refuses, and `RoleDiedError`.
    """
    from rich.console import Console

    from geartrain.launch.local import LocalCluster
    from geartrain.launch.signals import stop_on_signals
    from geartrain.progress import show_progress

    with stop_on_signals():
        _check_files(config, spec, task)
        with LocalCluster(spec) as cluster:
            with show_progress(Console()) as observe:
                job = cluster.run_job(config.to_dict(), task, observe)
            if job["state"] != "succeeded":
                cluster.stop(at_once=True)
            return job


def _check_files(config: JobConfig, spec: ClusterSpec, task: Mapping[str, str]) -> None:
    from geartrain.data.index import build_index

    splits = {"evaluate": (task.get("split", "test"),), "predict": ("test",)}.get(task["kind"], SPLITS)
    # `standard`: the scan for statistics is left to the coordinator, which keeps them.
    build_index(config, splits, standard={}, labeled=task["kind"] != "predict", allowed_roots=spec.allowed_roots)


def show_result(job: Job, *, as_json: bool) -> None:
    """Print what an ended job has to show. Raises `GeartrainError` with the reason if it did not succeed."""
    if as_json:
        told = job.get("result") or {"job": job["id"], **{name: job.get(name) for name in ("state", "reason", "error")}}
        click.echo(json.dumps(told))
    elif job["state"] == "succeeded":
        print_report(job["result"])
    if job["state"] != "succeeded":
        # The job was accepted, so whatever it failed with is no fault of the command: the status is 1.
        error = job.get("error") or {}
        reason = error.get("message") or job.get("reason") or "no reason given"
        raise GeartrainError(reason if job["state"] == "failed" else f"job {job['id']} was cancelled: {reason}")


def print_report(result: Mapping[str, Any]) -> None:
    from geartrain.report import render_report, table_console

    table_console().print(render_report(result))
