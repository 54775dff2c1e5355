"""Pictures of benchmarks' lines, for docs: `python -m benchmarks.support.pictures LINES FOLDER`.

LINES is what `geartrain bench heterogeneity --json` or `geartrain bench convergence --json` printed, or both in one
file. Needs matplotlib: `pip install geartrain[bench]`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.lines import Line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_INCHES = 8.0
MATCHED, EQUAL, SOLO = "#0072b2", "#e69f00", "#444444"
"""Colors that people who see few colors can tell apart."""


def draw(lines: Sequence[Line], folder: Path) -> list[Path]:
    """Write an SVG file for each benchmark that has lines here; their paths."""
    import matplotlib

    # The same lines give the same bytes; text stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "geartrain", "svg.fonttype": "none", "font.size": 10})
    pictures: dict[str, tuple[str, Callable[[Sequence[Line]], Figure]]] = {
        "heterogeneity.svg": ("throughput_over_sum_of_solo", unlike_figure),
        "convergence.svg": ("auc_mean", convergence_figure),
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (field, figure_of) in pictures.items():
        shown = [line for line in lines if field in line]
        if shown:
            figure_of(shown).savefig(folder / name, metadata={"Date": None})
            written.append(folder / name)
    return written


def unlike_figure(lines: Sequence[Line]) -> Figure:
    """Matched and equal shares of each case as parts of what its cards do alone, added up."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, 0.8 + 0.62 * len(lines)), layout="constrained")
    axes = figure.add_subplot()
    for place, line in enumerate(lines):
        whole = line["sum_of_solo_samples_per_s"]
        bars = (("samples_per_s", MATCHED, -0.19), ("equal_shares_samples_per_s", EQUAL, 0.19))
        for name, color, offset in bars:
            axes.barh(place + offset, line[name] / whole, height=0.36, color=color)
            axes.text(0.01, place + offset, f"{line[name]:,.0f}", va="center", color="white", fontsize=8)
    axes.axvline(1.0, color=SOLO, linewidth=1.2)
    axes.set_yticks(
        range(len(lines)), [f"{line['name']}\n{line['sum_of_solo_samples_per_s']:,.0f} samples/s" for line in lines]
    )
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.1)
    axes.set_xlabel("over the sum of the solo runs (line); figures: samples/s")
    for label, color in (("matched groups and shares", MATCHED), ("equal shares, one group", EQUAL)):
        axes.bar(0, 0, color=color, label=label)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    _plain(axes.spines)
    return figure


def convergence_figure(lines: Sequence[Line]) -> Figure:
    """The test AUC of every seed and their mean, case by case, and how far from sync's mean each may be."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, 0.9 + 0.5 * len(lines)), layout="constrained")
    axes = figure.add_subplot()
    for place, line in enumerate(lines):
        axes.plot(line["aucs"], [place] * len(line["aucs"]), "o", color=MATCHED, alpha=0.45, markersize=5)
        axes.plot(line["auc_mean"], place, "|", color=MATCHED, markersize=18, markeredgewidth=2.5)
        if line["limit"] is not None:
            low, high = (line["sync_auc_mean"] + sign * line["limit"] for sign in (-1, 1))
            axes.fill_betweenx([place - 0.4, place + 0.4], low, high, color=EQUAL, alpha=0.25, linewidth=0)
    axes.axvline(lines[0]["sync_auc_mean"], color=SOLO, linewidth=1.2)
    axes.set_yticks(range(len(lines)), [line["name"] for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.set_xlabel("test AUC: seeds and their mean; what is allowed (shaded) beside sync on one worker (line)")
    _plain(axes.spines)
    return figure


def _plain(spines: object) -> None:
    spines[["top", "right"]].set_visible(False)  # type: ignore[index]


def main(arguments: Sequence[str]) -> int:
    """Draw what the command line names, and print the paths."""
    if len(arguments) != 2:
        print("usage: python -m benchmarks.support.pictures LINES FOLDER", file=sys.stderr)
        return 2
    text = Path(arguments[0]).read_text(encoding="utf-8")
    for path in draw([json.loads(line) for line in text.splitlines() if line.strip()], Path(arguments[1])):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
