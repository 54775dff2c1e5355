"""Calls find the cluster that `geartrain up` started, and no cluster that is gone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from geartrain.addresses import API_URL
from geartrain.cli import command
from geartrain.commands import jobs
from geartrain.launch.supervisor import StandingCluster, StandingPlace

URL = "http://127.0.0.1:8123"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandingPlace:
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path))
    return StandingPlace(tmp_path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs that commands have called; no call is answered."""
    urls: list[str] = []

    def client_of(coordinator: str, deadline_s: float = 1.0) -> None:
        urls.append(coordinator)
        raise OSError("nobody is there")

    monkeypatch.setattr(jobs, "client_of", client_of)
    return urls


def call(*arguments: str) -> None:
    assert CliRunner().invoke(command, list(arguments)).exit_code == 1


def test_every_call_finds_the_cluster_that_is_up(place: StandingPlace, asked: list[str]) -> None:
    with place.own():
        place.write(StandingCluster(os.getpid(), URL))
        for arguments in (["jobs"], ["show", "a"], ["cancel", "a"], ["stats"]):
            call(*arguments)
    assert asked == [URL] * 4


def test_a_url_that_is_given_wins(place: StandingPlace, asked: list[str]) -> None:
    with place.own():
        place.write(StandingCluster(os.getpid(), URL))
        call("jobs", "--coordinator", "http://10.0.0.1:9")
    assert asked == ["http://10.0.0.1:9"]


def test_a_cluster_that_is_still_starting_or_stopped_is_not_called(place: StandingPlace, asked: list[str]) -> None:
    with place.own():
        call("jobs")
        place.write(StandingCluster(os.getpid(), URL))
    call("jobs")
    assert asked == [API_URL] * 2


def test_what_a_killed_supervisor_left_behind_is_not_believed(place: StandingPlace, asked: list[str]) -> None:
    place.write(StandingCluster(os.getpid(), URL))  # by nobody who holds the lock
    call("jobs")
    assert asked == [API_URL]


def test_the_note_is_for_its_user_only(tmp_path: Path, place: StandingPlace) -> None:
    with place.own():
        place.write(StandingCluster(os.getpid(), URL))
        (note,) = tmp_path.glob("up-*.json")
        assert stat.S_IMODE(note.stat().st_mode) == 0o600


@pytest.mark.parametrize("home", ["nowhere", "file"])
def test_a_call_makes_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str], home: str) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path / home))
    call("jobs")
    assert asked == [API_URL]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
