"""How progress is shown where there is no terminal, and where there is one."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from geartrain.progress import LINE_EVERY_S, PlainLines, samples_done, show_progress, show_simulation


def job(state: str, **progress: Any) -> dict[str, Any]:
    return {"state": state, "progress": {"passes": 2, "num_rows": 5000, "pass_index": 0, "samples": 0, **progress}}


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


@pytest.fixture
def lines() -> list[str]:
    return []


def test_a_line_for_each_state_and_pass_and_now_and_then(clock: list[float], lines: list[str]) -> None:
    observe = PlainLines(lines.append, lambda: clock[0])
    observe({"state": "queued", "progress": None})
    observe({"state": "queued", "progress": None})
    observe(job("training"))
    clock[0] += LINE_EVERY_S - 0.1
    observe(job("training", samples=100))
    clock[0] += 0.2
    observe(job("training", samples=2500, samples_per_s=1234.5, loss=0.25))
    observe(job("training", samples=5100, pass_index=1))
    observe(job("succeeded", samples=10000, pass_index=1))
    assert lines == [
        "queued",
        "training: pass 1 of 2",
        "training: pass 1 of 2, 2,500 of 10,000 samples, 1,234 samples/s, loss 0.2500",
        "training: pass 2 of 2, 5,100 of 10,000 samples",
        "succeeded, 10,000 of 10,000 samples",
    ]


def test_what_a_queued_job_waits_for_is_said_whenever_it_changes(clock: list[float], lines: list[str]) -> None:
    observe = PlainLines(lines.append, lambda: clock[0])
    for reason in (
        "waits for job a-1, which is training",
        "waits for nodes: 1 of 2 workers",
        "waits for nodes: 1 of 2 workers",
    ):
        observe({"state": "queued", "reason": reason, "progress": None})
    observe({"state": "probing", "reason": "all nodes are there", "progress": None})
    assert lines == [
        "queued: waits for job a-1, which is training",
        "queued: waits for nodes: 1 of 2 workers",
        "probing",
    ]


def test_how_far_a_run_is() -> None:
    assert samples_done({"samples": 7, "num_rows": 10, "passes": 3}) == (7, 30)
    assert samples_done({"samples": None, "num_rows": None, "passes": 3}) == (0, None)


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    screen = io.StringIO()
    with show_progress(Console(file=screen, force_terminal=True, width=100, _environ={"TERM": "xterm"})) as observe:
        observe(job("training", samples=5000, samples_per_s=900.0))
    assert "training: pass 1 of 2" in screen.getvalue()
    assert "50%" in screen.getvalue()


def test_a_pipe_gets_no_control_characters() -> None:
    pipe = io.StringIO()
    with show_progress(Console(file=pipe, force_terminal=False)) as observe:
        observe(job("training", samples=5000))
    assert pipe.getvalue() == "training: pass 1 of 2, 5,000 of 10,000 samples\n"


@pytest.mark.parametrize(("is_terminal", "shown"), [(True, True), (False, False)])
def test_a_simulation_has_a_bar_on_a_terminal_only(is_terminal: bool, shown: bool) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=is_terminal, width=100, _environ={"TERM": "xterm"})
    with show_simulation(console) as observe:
        observe("equal shares in one group", 300, 400)
    assert ("simulating: equal shares in one group" in screen.getvalue()) == shown
    assert ("75%" in screen.getvalue()) == shown
    assert shown or screen.getvalue() == ""
