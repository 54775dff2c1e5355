"""The figures of the kernels as tables: million rows or ids per second, one and two threads; codecs by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Group
from rich.table import Table
from rich.text import Text

from benchmarks.support.lines import Line
from kernels.explain import explain

ZIPF = "_zipf"


def kernel_table(lines: Sequence[Line]) -> Group:
    """Rows by kernel, columns by kind of ids, in each `1 thread -> 2 threads`; limit and share for uniform ids."""
    build = explain()
    title = f"Million rows or ids per second, 1 -> 2 threads; build {build['variant']}: {build['reason']}"
    table = Table(title=title, title_justify="left", box=SIMPLE)
    table.add_column("what", no_wrap=True)
    for name in ("Zipf", "uniform", "limit", "share of limit"):
        table.add_column(name, justify="right", no_wrap=True)
    codecs = [line for line in lines if "rows_from" in line]
    for name, by_kind in _by_name([line for line in lines if "rows_from" not in line]).items():
        zipf, uniform = by_kind.get("zipf", []), by_kind.get("uniform", [])
        table.add_row(
            name,
            _millions(zipf, "rows_per_s"),
            _millions(uniform, "rows_per_s"),
            _millions(uniform, "limit_rows_per_s"),
            " -> ".join(f"{line['share_of_limit']:.2f}" for line in uniform if line["share_of_limit"] is not None),
        )
        if any("geartrain_rows_per_s" in line for line in [*zipf, *uniform]):
            cells = (_millions(lines, "geartrain_rows_per_s") for lines in (zipf, uniform))
            table.add_row("  the same step here", *cells)
            times = (_times(lines) for lines in (zipf, uniform))
            table.add_row("  here / there", *times)
    missing = [Text(f"{line['name']}: needs {line['missing']}") for line in lines if "missing" in line]
    return Group(table, *([_codec_table(codecs)] if codecs else []), *missing)


def _codec_table(lines: Sequence[Line]) -> Table:
    table = Table(title="Rows to the wire and back, ns a value, 1 thread", title_justify="left", box=SIMPLE)
    for name in ("what", "rows from", "here", "FBGEMM", "FBGEMM + isfinite", "share of a copy"):
        table.add_column(name, justify="left" if name in ("what", "rows from") else "right", no_wrap=True)
    for line in lines:
        times = (line.get(f"{prefix}ns_per_value") for prefix in ("", "fbgemm_", "fbgemm_checked_"))
        cells = ("" if time is None else f"{time:.3f}" for time in times)
        table.add_row(line["name"], line["rows_from"], *cells, f"{line['share_of_limit']:.2f}")
    return table


def _by_name(lines: Sequence[Line]) -> dict[str, dict[str, list[Line]]]:
    """Lines by kernel and kind of ids; that is a part of the name where a line has no `ids`."""
    found: dict[str, dict[str, list[Line]]] = {}
    for line in lines:
        name = str(line["name"])
        kind = line.get("ids") or ("zipf" if name.endswith(ZIPF) else "uniform")
        found.setdefault(name.removesuffix(ZIPF), {}).setdefault(str(kind), []).append(line)
    return found


def _millions(lines: Sequence[Line], field: str) -> str:
    return " -> ".join(_short(line[field]) for line in lines if line.get(field) is not None)


def _short(rows_per_s: Any) -> str:
    return f"{rows_per_s / 1e6:.{0 if rows_per_s >= 1e8 else 1 if rows_per_s >= 1e6 else 2}f}"


def _times(lines: Sequence[Line]) -> str:
    return " -> ".join(f"{line['geartrain_over_fbgemm']:.1f}" for line in lines)
