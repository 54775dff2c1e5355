"""What a benchmark puts out: JSON lines for programs, a table for people."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console, RenderableType
from rich.table import Table

Line = dict[str, Any]
"""One result: `name`, then figures with their unit in the name."""

MAIN_FIGURES = ("rows_per_s", "p50_ms", "p99_ms")
PLAIN_WIDTH = 120
"""Columns of a table that does not go to a terminal."""


def put_out(lines: Iterable[Line], json: bool, render: Callable[[Sequence[Line]], RenderableType]) -> int:
    """Print every line as it comes, or all of them in the end as `render` shows them; the exit status."""
    if json:
        for line in lines:
            print(jsonlib.dumps(line), flush=True)
        return 0
    console = Console()
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    gathered = []
    for line in lines:
        gathered.append(line)
        if console.is_terminal:
            console.print(f"{line['name']} ...", style="dim")
    console.print(render(gathered))
    return 0


def figures_table(title: str, lines: Sequence[Line]) -> Table:
    """One line a row: speed and latencies in columns of their own, the other figures as `name value` pairs."""
    table = Table(title=title, title_justify="left", box=SIMPLE)
    table.add_column("name", no_wrap=True)
    for name in MAIN_FIGURES:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("besides")
    for line in lines:
        main = (readable(line[name]) if name in line else "" for name in MAIN_FIGURES)
        others = (f"{name} {readable(value)}" for name, value in line.items() if name not in ("name", *MAIN_FIGURES))
        table.add_row(str(line["name"]), *main, ", ".join(others))
    return table


def readable(value: object) -> str:
    """A figure with thousands separated, or with four significant digits below a thousand."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 or isinstance(value, int) else f"{value:.4g}"
