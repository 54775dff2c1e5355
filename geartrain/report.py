"""The report of a job for people: metrics, speed, and its workers; from the JSON of `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from geartrain.hardware_report import hardware_rows, worker_table

Result = Mapping[str, Any]

PIPE_WIDTH = 120
"""Columns where there is no terminal to fit."""


def table_console() -> Console:
    """Where tables are printed to: stdout, as wide as the terminal, if it is one."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def render_report(result: Result) -> RenderableType:
    """A block of facts and, where there are workers, a table of them and a block on what their differences cost.

    Fields that a job does not have are left out.
    """
    return Group(_facts(_fact_rows(result)), *_hardware(result))


def render_running(job: Mapping[str, Any]) -> RenderableType:
    """The workers of a job that trains, as far as it has come: `job` as the API tells it, with a `report`."""
    speed = (job.get("progress") or {}).get("samples_per_s")
    return Group(*_hardware({**job["report"], "samples_per_s": speed}))


def _hardware(result: Result) -> list[RenderableType]:
    """The workers, and what their differences cost, as far as it is known."""
    if not result.get("workers"):
        return []
    parts: list[RenderableType] = [worker_table(result["workers"])]
    rows = hardware_rows(result)
    return [*parts, _facts(rows)] if rows else parts


def _facts(rows: list[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
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
        probing = f", {result['probe_seconds']:.1f} s of probing" if result.get("probe_seconds") else ""
        seconds = f"{result['train_seconds']:.1f} s of training{probing}"
        rows.append(("speed", f"{result['samples_per_s']:,.0f} samples/s ({seconds})"))
    if result.get("best_pass") is not None:
        rows.append(_chosen(result))
    if result.get("embedding_tier"):
        rows.append(("rows", rows_line(result["embedding_tier"])))
    for name in ("checkpoint", "predictions"):
        if result.get(name):
            rows.append((name, str(result[name])))
    return rows


def _chosen(result: Result) -> tuple[str, str]:
    """Which pass's model the metrics and the checkpoint are: the best only where passes were compared."""
    pass_version = f"pass {result['best_pass']}, version {result['best_version']}"
    if result.get("best_by"):
        return "best", f"{pass_version} (by {result['best_by']})"
    return "last" if result.get("passes") else "model", pass_version


def rows_line(tier: Mapping[str, Any]) -> str:
    """How many rows there are, and what became of them since the job began; what did not happen is left out."""
    totals, num_tables = tier["totals"], len(tier["tables"])
    lives = {"born": "num_admitted", "rejected": "num_rejected", "evicted": "num_evicted", "expired": "num_expired"}
    told = [f"{totals[count]:,} {name}" for name, count in lives.items() if totals[count]]
    tables = "1 table" if num_tables == 1 else f"{num_tables} tables"
    return f"{totals['num_rows']:,} in {tables}" + (f" ({', '.join(told)})" if told else "")


def metrics_line(metrics: Mapping[str, Any]) -> str:
    """AUC first; a missing one with its reason."""
    auc = metrics.get("auc")
    parts = [f"{auc:.5f}" if auc is not None else f"none ({metrics.get('auc_reason') or 'no reason given'})"]
    if metrics.get("logloss") is not None:
        parts.append(f"logloss {metrics['logloss']:.5f}")
    if metrics.get("gauc") is not None:
        parts.append(f"GAUC {metrics['gauc']:.5f}")
    return ", ".join(parts) + f" on {metrics['num_samples']:,} samples"
