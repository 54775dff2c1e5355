"""The report of a job for people: metrics, speed and the table of workers, from the JSON of `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

Result = Mapping[str, Any]

PIPE_WIDTH = 120
"""Columns where there is no terminal to fit."""


def table_console() -> Console:
    """Where tables are printed to: stdout, as wide as the terminal, if it is one."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def render_report(result: Result) -> RenderableType:
    """A block of facts and, where there are workers, a table of them. Fields that a job does not have are left out."""
    parts: list[RenderableType] = [_facts(result)]
    if result.get("workers"):
        parts.append(_workers(result["workers"]))
    return Group(*parts)


def _facts(result: Result) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in _fact_rows(result):
        table.add_row(Text(name), Text(value))
    return table


def _fact_rows(result: Result) -> list[tuple[str, str]]:
    rows = [("job", f"{result['job']} {result['state']}")]
    for split in ("valid", "test"):
        if result.get(split):
            rows.append((f"{split} AUC", metrics_line(result[split])))
    if result.get("samples"):
        passes = "1 pass" if result["passes"] == 1 else f"{result['passes']} passes"
        rows.append(("samples", f"{result['samples']:,} in {passes}, {result['version']:,} windows"))
    if result.get("samples_per_s"):
        rows.append(
            ("speed", f"{result['samples_per_s']:,.0f} samples/s ({result['train_seconds']:.1f} s of training)")
        )
    if result.get("best_pass") is not None:
        rows.append(("best", f"pass {result['best_pass']}, version {result['best_version']}"))
    for name in ("checkpoint", "predictions"):
        if result.get(name):
            rows.append((name, str(result[name])))
    return rows


def metrics_line(metrics: Mapping[str, Any]) -> str:
    """AUC first; a missing one with its reason."""
    auc = metrics.get("auc")
    parts = [f"{auc:.5f}" if auc is not None else f"none ({metrics.get('auc_reason') or 'no reason given'})"]
    if metrics.get("logloss") is not None:
        parts.append(f"logloss {metrics['logloss']:.5f}")
    if metrics.get("gauc") is not None:
        parts.append(f"GAUC {metrics['gauc']:.5f}")
    return ", ".join(parts) + f" on {metrics['num_samples']:,} samples"


def _workers(workers: list[Mapping[str, Any]]) -> Table:
    table = Table(title="Workers", title_justify="left")
    for name in ("worker", "device"):
        table.add_column(name)
    for name in ("group", "share", "samples", "step p50 ms", "step p99 ms", "wait p50 ms", "solo samples/s"):
        table.add_column(name, justify="right")
    for worker in workers:
        step, wait = worker.get("step_ms") or {}, worker.get("wait_ms") or {}
        table.add_row(
            Text(str(worker["worker"])),
            Text(str(worker["device"])),
            str(worker["group"]),
            _number(worker.get("share"), ".2f"),
            _number(worker.get("samples"), ",d"),
            _number(step.get("p50"), ".1f"),
            _number(step.get("p99"), ".1f"),
            _number(wait.get("p50"), ".1f"),
            _number(worker.get("solo_samples_per_s"), ",.0f"),
        )
    return table


def _number(value: float | None, form: str) -> str:
    """ "-" for what was not measured."""
    return "-" if value is None else format(value, form)
