"""`geartrain submit`, `jobs`, `show`, `cancel` and `stats`: calls to the API of a running cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from geartrain.addresses import API_URL
from geartrain.commands.options import coordinator_option, json_option, set_option
from geartrain.errors import DeadlineError, RoleDiedError

if TYPE_CHECKING:
    from api.sdk import GeartrainClient
    from geartrain.last_end import LastEnd

ANSWER_S = 30.0
"""Deadline of a call that only looks or cancels."""


@contextmanager
def client_of(coordinator: str, deadline_s: float = ANSWER_S) -> Iterator[GeartrainClient]:
    """A client with the token of `$GEARTRAIN_API_TOKEN` and a deadline for each call.

    Where the standing cluster has ended by itself, a call that finds nobody says why.
    """
    from api.sdk import GeartrainClient

    token = os.environ.get("GEARTRAIN_API_TOKEN") or None
    try:
        with GeartrainClient(coordinator, token, deadline_s=deadline_s) as client:
            yield client
    except (DeadlineError, RoleDiedError) as error:
        end = _last_end(coordinator)
        if end is None or coordinator not in (end.url, API_URL):
            raise
        ended = f"the cluster that was up at {end.url} has ended: {end.reason}"
        message = ended if coordinator == end.url else f"{error.message}; {ended}"
        raise RoleDiedError(message, role=end.role) from error


def _last_end(coordinator: str) -> LastEnd | None:
    from geartrain.launch.home import home_path
    from geartrain.launch.supervisor import StandingPlace

    with suppress(OSError):  # a home folder that cannot be read has no cluster
        return StandingPlace(home_path(os.environ)).last_end(awaited=coordinator)
    return None


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@coordinator_option
@set_option
@click.option("--wait", is_flag=True, help="Follow the job to its end; without it the job's id is printed.")
@json_option
def submit(config: Path, coordinator: str, overrides: tuple[str, ...], wait: bool, as_json: bool) -> None:
    """Submit CONFIG as a job. Its data are read where the coordinator and the workers run."""
    from rich.console import Console

    from geartrain.commands.local_job import show_result
    from geartrain.launch.local import SUBMIT_DEADLINE_S
    from geartrain.progress import show_progress

    fields = portable_config(config, overrides)
    with client_of(coordinator, SUBMIT_DEADLINE_S) as client:
        accepted = client.submit(fields)
    if not wait:
        click.echo(json.dumps(accepted) if as_json else accepted["id"])
        return
    with client_of(coordinator) as client, show_progress(Console()) as observe:
        job = client.wait(accepted["id"], observe)
    show_result(job, as_json=as_json)


def portable_config(path: Path, overrides: tuple[str, ...]) -> dict[str, Any]:
    """A config file's data as they are submitted: environment variables are left for the coordinator to expand, but a
    root relative to the file's folder becomes absolute, as the coordinator does not know that folder."""
    from geartrain.config import read_config

    fields = read_config(path, overrides)
    data = fields.get("data")
    if isinstance(data, dict):
        root = data.get("root", ".")
        if isinstance(root, str) and not root.startswith("${"):
            data["root"] = str(path.resolve().parent / root)
    return fields


@click.command()
@coordinator_option
@json_option
def jobs(coordinator: str, as_json: bool) -> None:
    """List all jobs, oldest first."""
    with client_of(coordinator) as client:
        listed = client.jobs()
    if as_json:
        click.echo(json.dumps(listed))
        return
    rows = [(job["id"], job["name"], job["state"], _progress(job), job.get("reason") or "") for job in listed]
    print_table(("job", "name", "state", "samples", "reason"), rows)


@click.command()
@click.argument("job")
@coordinator_option
@json_option
def show(job: str, coordinator: str, as_json: bool) -> None:
    """Show one job: how it stands, its workers while it trains, and its report once it is done."""
    from geartrain.commands.local_job import print_report
    from geartrain.report import render_running, table_console

    with client_of(coordinator) as client:
        shown = client.job(job)
    if as_json:
        click.echo(json.dumps(shown))
        return
    facts = [(name, str(shown[name])) for name in ("id", "name", "state", "reason") if shown.get(name)]
    print_table(("job", ""), [*facts, ("samples", _progress(shown))])
    if shown.get("result"):
        print_report(shown["result"])
    elif shown.get("report"):
        table_console().print(render_running(shown))


@click.command()
@click.argument("job")
@coordinator_option
def cancel(job: str, coordinator: str) -> None:
    """Cancel a job that waits or runs."""
    with client_of(coordinator) as client:
        click.echo(f"{job} {client.cancel(job)['state']}")


@click.command()
@coordinator_option
@json_option
def stats(coordinator: str, as_json: bool) -> None:
    """Show rows, memory and traffic of the embedding tier, and what became of the rows of each table."""
    from geartrain.tier_report import life_lines, load_lines

    with client_of(coordinator) as client:
        told = client.tier_stats()
    if as_json:
        click.echo(json.dumps(told))
        return
    print_table(*load_lines(told))
    click.echo()
    print_table(*life_lines(told))


def print_table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from geartrain.report import table_console

    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    table_console().print(table)


def _progress(job: Mapping[str, Any]) -> str:
    from geartrain.progress import samples_done

    done, total = samples_done(job.get("progress") or {})
    return f"{done:,} of {total:,}" if total else ""


COMMANDS = (submit, jobs, show, cancel, stats)
