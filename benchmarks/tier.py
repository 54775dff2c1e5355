"""The embedding tier through its whole path: every claim has a module of its own, and this runs them one by one."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import tier_growth, tier_memory, tier_pull, tier_push, tier_snapshot
from benchmarks.support.lines import Line, figures_table, put_out


def main(json: bool, quick: bool = False) -> int:
    """Print the lines, or the table."""
    return put_out(lines(quick), json, lambda gathered: figures_table("The embedding tier", gathered))


def lines(quick: bool) -> Iterator[Line]:
    """The lines of all claims."""
    for claim in (tier_pull, tier_push, tier_growth, tier_memory, tier_snapshot):
        yield from claim.lines(quick)
