"""How long work is shown: a bar on a terminal, now and then a plain line elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Job = Mapping[str, Any]

LINE_EVERY_S = 10.0
"""Between two plain lines of one pass in one state."""


@contextmanager
def show_progress(console: Console) -> Iterator[Callable[[Job], None]]:
    """What to tell how a job stands, as the API shows it, whenever that was asked."""
    if not console.is_terminal:
        yield PlainLines(console.out, time.monotonic)
        return
    with _bar(console) as progress:
        bar = progress.add_task("starting", total=None, detail="")

        def observe(job: Job) -> None:
            stand = job.get("progress") or {}
            completed, total = samples_done(stand)
            progress.update(bar, description=_heading(job), completed=completed, total=total, detail=_speed(stand))

        yield observe


@contextmanager
def show_simulation(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """What to tell how far a simulation is: of what, samples done, samples in all. Nothing is shown off a terminal."""
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    with _bar(console) as progress:
        bar = progress.add_task("simulating", total=None, detail="")

        def observe(what: str, done: int, total: int) -> None:
            progress.update(bar, description=f"simulating: {what}", completed=done, total=total)

        yield observe


def _bar(console: Console) -> Progress:
    """A bar that goes away when its work is done; its tasks have a field `detail`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True)


class PlainLines:
    """A line when the state or the pass changes, and every `LINE_EVERY_S` between. `now_s` is a clock in seconds."""

    def __init__(self, write: Callable[[str], None], now_s: Callable[[], float]) -> None:
        self._write = write
        self._now_s = now_s
        self._heading = ""
        self._written_s = 0.0

    def __call__(self, job: Job) -> None:
        heading, now_s = _heading(job), self._now_s()
        if heading == self._heading and now_s - self._written_s < LINE_EVERY_S:
            return
        self._heading, self._written_s = heading, now_s
        stand = job.get("progress") or {}
        completed, total = samples_done(stand)
        samples = f"{completed:,} of {total:,} samples" if total and completed else ""
        self._write(", ".join(part for part in (heading, samples, _speed(stand)) if part))


def samples_done(progress: Mapping[str, Any]) -> tuple[int, int | None]:
    """Samples applied in the whole run and how many it has; None while that is not known."""
    num_rows, passes = progress.get("num_rows"), progress.get("passes")
    return int(progress.get("samples") or 0), int(num_rows) * int(passes) if num_rows and passes else None


def _heading(job: Job) -> str:
    stand = job.get("progress") or {}
    if job["state"] in ("training", "evaluating") and stand.get("passes"):
        return f"{job['state']}: pass {min(int(stand['pass_index']) + 1, int(stand['passes']))} of {stand['passes']}"
    if job["state"] == "queued" and job.get("reason"):
        return f"queued: {job['reason']}"
    return str(job["state"])


def _speed(progress: Mapping[str, Any]) -> str:
    parts = []
    if progress.get("samples_per_s"):
        parts.append(f"{progress['samples_per_s']:,.0f} samples/s")
    if progress.get("loss") is not None:
        parts.append(f"loss {progress['loss']:.4f}")
    return ", ".join(parts)
