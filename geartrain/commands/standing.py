"""`geartrain up` and `geartrain down`: a local cluster that stays."""

from __future__ import annotations

import os
from pathlib import Path

import click

from geartrain.addresses import API_PORT
from geartrain.commands.options import cluster_options, resolve_devices


@click.command()
@cluster_options
@click.option(
    "--port", type=click.IntRange(1, 65535), default=API_PORT, show_default=True, help="Of the API, on 127.0.0.1."
)
@click.option("--output", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Checkpoints.")
@click.option(
    "--allow-root", "allowed_roots", metavar="DIR", multiple=True, type=click.Path(path_type=Path),
    help="Folder whose data jobs may read [default: this folder and $GEARTRAIN_DATA].",
)  # fmt: skip
@click.option("--foreground", is_flag=True, help="Stay in this terminal, until Ctrl-C.")
def up(
    server_num: int,
    worker_num: int | None,
    devices: tuple[str, ...],
    port: int,
    output: Path,
    allowed_roots: tuple[Path, ...],
    foreground: bool,
) -> None:
    """Start a local cluster that stays; `geartrain submit` and the other calls find it, whatever its port.

    One cluster per user and host. Jobs and checkpoints are kept when it is stopped; a job that was running then has
    failed. The calls of its API need the token in $GEARTRAIN_API_TOKEN if that is set now.
    """
    from api.serve import listen
    from geartrain.config import default_allowed_roots
    from geartrain.launch.home import home_directory
    from geartrain.launch.local import ClusterSpec, LocalCluster
    from geartrain.launch.role_process import geartrain_command
    from geartrain.launch.supervisor import StandingCluster, StandingPlace, bring_up, supervise

    def announce(cluster: StandingCluster) -> None:
        click.echo(f"up at {cluster.url} with {server_num} servers and {len(workers)} workers")

    place = StandingPlace(home_directory(os.environ))
    standing = place.read()
    if standing is not None:
        click.echo(f"already up at {standing.url}; nothing was changed")
        return
    workers = resolve_devices(worker_num, devices)
    listen("127.0.0.1", port).close()
    roots = tuple(root.resolve() for root in allowed_roots) or default_allowed_roots(Path.cwd())
    if foreground:
        spec = ClusterSpec(
            num_servers=server_num,
            devices=workers,
            listen=f"127.0.0.1:{port}",
            output_dir=output.resolve(),
            allowed_roots=roots,
            logs_dir=place.role_logs,
            api_token=os.environ.get("GEARTRAIN_API_TOKEN") or None,
            state_dir=place.state_dir,
            job_folders=True,
        )
        supervise(place, LocalCluster(spec), announce)
        return
    options = [f"--server-num={server_num}", f"--port={port}", f"--output={output}", "--foreground"]
    options += [f"--device={device}" for device in workers] + [f"--allow-root={root}" for root in roots]
    announce(bring_up(place, geartrain_command("up", options)))


@click.command()
def down() -> None:
    """Stop the cluster that `geartrain up` started, and wait until nothing of it runs.

    If it had ended by itself, say why.
    """
    from geartrain.launch.home import home_directory
    from geartrain.launch.supervisor import StandingPlace, bring_down

    place = StandingPlace(home_directory(os.environ))
    stopped = bring_down(place)
    end = place.last_end()
    if end is not None:
        click.echo(f"no cluster is up; the one at {end.url} has ended: {end.reason}")
    else:
        click.echo("stopped" if stopped else "no cluster is up")


COMMANDS = (up, down)
