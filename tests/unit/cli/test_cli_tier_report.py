"""What `geartrain stats` prints of the tier's stats."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from api.schemas import TierStats
from geartrain.cli import command
from geartrain.commands import jobs
from geartrain.tier_report import MAX_SHOWN_KEYS, life_lines, load_lines

TOLD: dict[str, Any] = TierStats.example
NO_JOB: dict[str, Any] = {"job": None, "servers": [], "tables": {}, "totals": {}}


def test_a_line_per_server_and_table_and_one_of_all_where_there_are_several() -> None:
    titles, (line,) = load_lines(TOLD)
    assert dict(zip(titles, line, strict=True)) == {
        "server": "s0",
        "table": "item",
        "rows": "1,312",
        "bytes": "187,616",
        "bytes/row": "143",
        "pulled/s": "71,204",
        "pushed/s": "71,204",
        "p50 ms": "0.4",
        "p99 ms": "1.9",
    }
    _, lines = load_lines({**TOLD, "servers": TOLD["servers"] * 2})
    assert lines == [line, line, ("all", "", *line[2:])]


def test_a_line_per_table_of_what_became_of_its_rows() -> None:
    titles, (line,) = life_lines(TOLD)
    assert dict(zip(titles, line, strict=True)) == {
        "table": "item",
        "admitted": "1,490",
        "rejected": "260",
        "expired": "178",
        "evicted": "0",
        "hottest keys (shows)": "9b3c51f6a2e8d047 (5,210), 02d47e18c95fb36a (4,377)",
    }
    many = [{"key": f"{key:016x}", "shows": 1.0} for key in range(32)]
    _, (line,) = life_lines({"tables": {"item": {**TOLD["tables"]["item"], "hottest_keys": many}}})
    assert line[-1].count("(1)") == MAX_SHOWN_KEYS


def test_the_milliseconds_of_a_small_table_are_not_zero() -> None:
    _, (line,) = load_lines({**TOLD, "servers": [{"server": "s0", "table": "item", "pull_p50_ms": 0.004321}]})
    assert "0.00432" in line


def test_what_is_not_known_is_a_dash() -> None:
    load = {"server": "s0", "table": "item", "pull_p50_ms": None}
    assert set(load_lines({**TOLD, "servers": [load]})[1][0][2:]) == {"-"}
    assert set(life_lines({"tables": {"item": {"hottest_keys": []}}})[1][0][1:]) == {"-"}


@pytest.mark.parametrize("told", [TOLD, NO_JOB], ids=["a job", "no job"])
def test_the_command_prints_both(told: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def __enter__(self) -> Client:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def tier_stats(self) -> dict[str, Any]:
            return told

    monkeypatch.setattr(jobs, "client_of", lambda coordinator: Client())
    result = CliRunner().invoke(command, ["stats"])
    assert result.exit_code == 0
    for word in ("server", "rows", "admitted", "evicted", *(["1,312", "9b3c51f6a2e8d047"] if told is TOLD else [])):
        assert word in result.stdout
