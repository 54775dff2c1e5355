"""`geartrain simulate`: how fast a cluster would train, without the cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geartrain.commands.options import json_option, set_option

if TYPE_CHECKING:
    from coordinator.simulated_data import SimulatedData
    from geartrain.config import JobConfig
    from geartrain.config.simulated_cluster import SimulatedCluster


@click.command()
@click.argument("cluster", type=click.Path(path_type=Path))
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--steps", type=click.IntRange(1), help="Batches of the whole cluster [default: the config's passes].")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of chance: jitter and probes.")
@set_option
@json_option
def simulate(
    cluster: Path, config: Path, steps: int | None, seed: int, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Simulate training of CONFIG on the machines that the file CLUSTER describes.

    The coordinator's own decisions are made by a virtual clock: groups, shares, windows and portraits are those that
    such a cluster would have. Nothing is trained, and no process is started.
    """
    from rich.console import Console

    from coordinator.simulated_report import simulate as run
    from geartrain.config.simulated_cluster import load_cluster
    from geartrain.progress import show_simulation
    from geartrain.report import table_console
    from geartrain.simulation_report import render_simulation

    machines = load_cluster(cluster)
    if machines.num_rows is None:
        job, data = _from_files(machines, config, overrides)
    else:
        job, data = _from_description(machines, config, overrides, machines.num_rows, seed)
    training = job.training
    num_samples = training.passes * data.num_rows if steps is None else steps * training.batch_size
    with nullcontext() if as_json else show_simulation(Console()) as observe:
        told = run(machines, job, data, num_samples, seed, observe)
    if as_json:
        click.echo(json.dumps(told))
    else:
        table_console().print(render_simulation(told))


def _from_description(
    machines: SimulatedCluster, path: Path, overrides: tuple[str, ...], num_rows: int, seed: int
) -> tuple[JobConfig, SimulatedData]:
    """The config, whose data need not exist, and data as CLUSTER describes them."""
    from coordinator.simulated_data import drawn_data
    from geartrain.config import JobConfig, read_config

    job = JobConfig.from_resolved(read_config(path, overrides))
    return job, drawn_data(machines, job, num_rows, seed)


def _from_files(machines: SimulatedCluster, path: Path, overrides: tuple[str, ...]) -> tuple[JobConfig, SimulatedData]:
    """The config and what its training files hold."""
    from geartrain.config import default_allowed_roots, load_config

    job = load_config(path, overrides)
    return job, read_data(machines, job, default_allowed_roots(path.resolve().parent))


def read_data(machines: SimulatedCluster, job: JobConfig, allowed_roots: Sequence[Path]) -> SimulatedData:
    """What the job's training files hold: samples, their tokens, and the rows that steps need of the servers. What the
    cluster file says of them wins."""
    from coordinator.simulated_data import SimulatedData, drawn_data
    from coordinator.token_counts import TokenCounts
    from geartrain.data.index import build_index
    from geartrain.data.step_rows import count_step_rows
    from geartrain.data.tokens import count_tokens

    index = build_index(job, ("train",), standard={}, allowed_roots=allowed_roots)
    num_rows = index.num_rows("train")
    drawn = drawn_data(machines, job, num_rows, job.training.seed)
    tokens, mean = drawn.tokens, drawn.tokens_per_sample
    counts = count_tokens(job, index) if machines.tokens_per_sample is None else None
    if counts is not None:
        chunk_rows = [chunk.num_rows for chunk in index.train]
        tokens = TokenCounts(counts, chunk_rows, job.training.seed, job.data.shuffle)
        mean = tokens.mean
    sizes, rows = drawn.step_samples, drawn.step_rows
    if machines.rows_per_sample is None:
        sizes, rows = count_step_rows(job, index, job.training.batch_size)
    return SimulatedData(num_rows, tokens, mean, sizes, rows)


COMMANDS = (simulate,)
