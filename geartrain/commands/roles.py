"""`geartrain coordinator`, `server` and `worker`: one role in this process, until it is stopped.

Local clusters start their roles through these commands, too.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from geartrain.addresses import API_ADDRESS
from geartrain.commands.options import DEVICE_HELP, zmq_address
from geartrain.errors import ConfigError
from geartrain.logs import write_log

_control_option = click.option("--control", metavar="ADDRESS", help="The control channel: HOST:PORT or ipc://PATH.")
_name_option = click.option("--name", default="", help="A fixed name [default: the coordinator gives one].")


@click.command()
@click.option("--listen", metavar="HOST:PORT", default=API_ADDRESS, show_default=True, help="Address of the API.")
@_control_option
@click.option(
    "--state-dir", type=click.Path(path_type=Path), help="Jobs and journal [default: by address, in ~/.geartrain]."
)
@click.option("--output", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Checkpoints.")
@click.option(
    "--allow-root", "allowed_roots", metavar="DIR", multiple=True, type=click.Path(path_type=Path),
    help="Folder whose data jobs may read [default: this folder and $GEARTRAIN_DATA].",
)  # fmt: skip
@click.option("--server-num", type=click.IntRange(1), default=1, show_default=True, help="Servers a job waits for.")
@click.option("--worker-num", type=click.IntRange(1), default=1, show_default=True, help="Workers a job waits for.")
@click.option(
    "--job-folders/--one-folder", default=True, show_default=True,
    help="A folder in --output for each job, or all files straight into --output (a cluster for one job).",
)  # fmt: skip
@click.option("--ready-file", type=click.Path(path_type=Path), help="Written once the coordinator listens.")
def coordinator(
    listen: str,
    control: str | None,
    state_dir: Path | None,
    output: Path,
    allowed_roots: tuple[Path, ...],
    server_num: int,
    worker_num: int,
    job_folders: bool,
    ready_file: Path | None,
) -> None:
    """Run the coordinator: jobs, the control channel and the API."""
    from geartrain.commands.options import parse_address
    from geartrain.config import default_allowed_roots
    from geartrain.launch.home import cluster_token, home_directory

    host, port = parse_address(listen, "--listen")
    write_log("coordinator", os.environ)
    from coordinator.__main__ import run

    run(
        listen=listen,
        control_address=zmq_address(control, "--control")
        if control
        else zmq_address(f"{_bracketed(host)}:0", "--listen"),
        state_dir=state_dir or home_directory(os.environ) / "coordinator" / f"{host.replace(':', '_')}-{port}",
        output_dir=output.resolve(),
        allowed_roots=[root.resolve() for root in allowed_roots] or list(default_allowed_roots(Path.cwd())),
        cluster_token=cluster_token(os.environ),
        api_token=os.environ.get("GEARTRAIN_API_TOKEN") or None,
        num_servers=server_num,
        num_workers=worker_num,
        job_folders=job_folders,
        ready_file=ready_file,
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@click.command()
@click.option("--coordinator", metavar="HOST:PORT", help="The coordinator's API.")
@_control_option
@click.option("--listen", metavar="ADDRESS", help="The data plane: HOST:PORT or ipc://PATH [default: a free port].")
@_name_option
@click.option(
    "--threads", type=click.IntRange(1, 64), metavar="N",
    help="Threads that answer requests, and that apply a large window [default: 2, and 1].",
)  # fmt: skip
def server(coordinator: str | None, control: str | None, listen: str | None, name: str, threads: int | None) -> None:
    """Run an embedding server. It may be started before the coordinator.

    More threads help a server that has cores of its own, and many rows in a window: one of fewer than 20,000 rows for a
    table is applied by one thread.
    """
    from geartrain.launch.home import cluster_token

    _check_reachable(coordinator, control)
    write_log(name or "server", os.environ)
    from embedding_tier.__main__ import run

    run(
        coordinator=coordinator,
        control_address=zmq_address(control, "--control") if control else None,
        data_address=zmq_address(listen, "--listen") if listen else None,
        name=name,
        token=cluster_token(os.environ),
        num_threads=threads,
    )


@click.command()
@click.option("--coordinator", metavar="HOST:PORT", help="The coordinator's API.")
@_control_option
@click.option("--device", metavar="SPEC", default="cpu", show_default=True, help=DEVICE_HELP)
@_name_option
def worker(coordinator: str | None, control: str | None, device: str, name: str) -> None:
    """Run a dense worker. It may be started before the coordinator."""
    from geartrain.launch.home import cluster_token

    _check_reachable(coordinator, control)
    write_log(name or "worker", os.environ)
    # Before torch starts its threads: idle ones would spin, and take the cores from the other roles of this host.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from dense_workers.__main__ import run

    run(
        coordinator=coordinator,
        control_address=zmq_address(control, "--control") if control else None,
        device=device,
        name=name,
        token=cluster_token(os.environ),
    )


def _check_reachable(coordinator: str | None, control: str | None) -> None:
    from geartrain.commands.options import parse_address

    if coordinator is not None:
        parse_address(coordinator, "--coordinator")
    elif control is None:
        message = "--coordinator: expected HOST:PORT of the coordinator, got nothing"
        raise ConfigError(message, field="--coordinator", expected="HOST:PORT")


COMMANDS = (coordinator, server, worker)
