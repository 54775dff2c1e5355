"""`geartrain data`, `bench` and `doctor`."""

from __future__ import annotations

import importlib
import json
import pkgutil
from dataclasses import asdict
from pathlib import Path

import click

from geartrain.commands.options import json_option
from geartrain.errors import ConfigError


@click.command()
@click.argument("name")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("data"), show_default=True, help="Where to.")
def data(name: str, directory: Path) -> None:
    """Fetch the public data set NAME: movielens-100k or adult. Nothing is done if it is there already."""
    from geartrain.data.datasets import DATASETS, fetch

    for path in fetch(name, directory).values():
        click.echo(path)
    # Beside the paths, which scripts may read.
    click.echo(f"examples/{DATASETS[name].example} reads them: export GEARTRAIN_DATA={directory.resolve()}", err=True)


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--quick", is_flag=True, help="Small and once, to see that it runs: the figures mean nothing.")
@click.pass_context
def bench(context: click.Context, name: str, as_json: bool, quick: bool) -> None:
    """Run the benchmark NAME: end-to-end, kernels, tier, heterogeneity, convergence; or a part, say tier-growth."""
    known = benchmark_names()
    if name not in known:
        expected = f"one of {', '.join(known)}"
        raise ConfigError(f"bench: expected {expected}, got {name!r}", field="NAME", value=name, expected=expected)
    module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
    context.exit(module.main(json=as_json, quick=quick))


def benchmark_names() -> list[str]:
    """Names as they are typed: each is a module of `benchmarks` with `main(json: bool, quick: bool) -> int`."""
    places = importlib.import_module("benchmarks").__path__
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(places) if not module.ispkg)


@click.command()
@json_option
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Check this installation; exit status 1 if something is wrong."""
    from geartrain.doctor import has_failed, run_checks

    checks = run_checks()
    if as_json:
        click.echo(json.dumps({"checks": [asdict(check) for check in checks]}))
    else:
        for check in checks:
            click.echo(f"{check.state:5}  {check.name:24}  {check.found}")
    context.exit(1 if has_failed(checks) else 0)


COMMANDS = (data, bench, doctor)
