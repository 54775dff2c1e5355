"""Calls that find nobody say how the standing cluster ended, if it did by itself."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from geartrain.addresses import API_URL
from geartrain.cli import command
from geartrain.errors import DeadlineError
from geartrain.last_end import LastEnd, read_last_end
from geartrain.launch import supervisor
from geartrain.launch.supervisor import StandingCluster, StandingPlace

URL = "http://127.0.0.1:8123"
REASON = "worker w1 was killed (SIGKILL)"
CALLS = [["jobs"], ["show", "a"], ["cancel", "a"], ["stats"]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandingPlace:
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path))
    return StandingPlace(tmp_path)


@pytest.fixture(autouse=True)
def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(connection: object, *arguments: object, **named: object) -> None:
        raise DeadlineError("the coordinator does not answer", role="coordinator")

    monkeypatch.setattr("api.connection.Connection.call", refuse)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


@pytest.mark.parametrize("call", CALLS)
def test_a_call_says_how_the_cluster_ended(place: StandingPlace, call: list[str]) -> None:
    LastEnd(URL, REASON, "w1").write(place.state_dir)
    ended = f"the cluster that was up at {URL} has ended: {REASON}\n"
    for arguments, before in ((["--coordinator", URL], ""), ([], "the coordinator does not answer; ")):
        done = run(*call, *arguments)
        assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"error: {before}{ended}")


def test_a_call_to_another_cluster_says_nothing_of_it(place: StandingPlace) -> None:
    LastEnd(URL, REASON, "w1").write(place.state_dir)
    done = run("jobs", "--coordinator", "http://10.0.0.1:9")
    assert (done.exit_code, done.stderr) == (1, "error: the coordinator does not answer\n")


def test_without_an_end_nothing_is_said_of_one(place: StandingPlace) -> None:
    assert run("jobs").stderr == "error: the coordinator does not answer\n"
    assert run("down").stdout == "no cluster is up\n"


def test_down_says_it_and_leaves_it_to_the_next_coordinator(place: StandingPlace) -> None:
    LastEnd(URL, REASON, "w1").write(place.state_dir)
    for _ in range(2):
        done = run("down")
        assert (done.exit_code, done.stdout) == (0, f"no cluster is up; the one at {URL} has ended: {REASON}\n")
    assert read_last_end(place.state_dir) == LastEnd(URL, REASON, "w1")
    assert REASON in run("jobs").stderr


def test_a_supervisor_that_was_killed_is_named_in_its_place(place: StandingPlace) -> None:
    place.write(StandingCluster(4711, URL))  # by nobody who holds the lock
    reason = "its supervisor (process 4711) was killed"
    assert reason in run("jobs").stderr
    for _ in range(2):
        assert reason in run("down").stdout


def test_the_next_cluster_keeps_the_end_until_it_is_up(place: StandingPlace) -> None:
    """Its coordinator reads it: jobs of before failed with it. Calls are not told: there is a cluster again."""
    place.write(StandingCluster(4711, API_URL))
    with place.own():
        assert (place.state_dir / "last-end.json").is_file()
        assert place.last_end() is None
        place.write(StandingCluster(os.getpid(), API_URL))
        assert not (place.state_dir / "last-end.json").exists()
        assert place.last_end() is None


def test_the_reason_is_waited_for(place: StandingPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call may find nobody before the supervisor has noticed; it looks every 0.2 s."""
    looks: list[float] = []

    def look_again(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            LastEnd(URL, REASON, "w1").write(place.state_dir)

    monkeypatch.setattr(supervisor.time, "sleep", look_again)
    with place.own():
        place.write(StandingCluster(os.getpid(), URL))
        assert REASON in run("jobs").stderr
    assert len(looks) == 3


def test_a_cluster_that_lives_is_not_said_to_have_ended(place: StandingPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "END_DEADLINE_S", 0.0)
    with place.own():
        place.write(StandingCluster(os.getpid(), URL))
        assert run("jobs").stderr == "error: the coordinator does not answer\n"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"url": "x"}', '{"reason": "x", "more": 1}'])
def test_a_note_that_is_none_says_nothing(place: StandingPlace, content: str) -> None:
    place.state_dir.mkdir()
    (place.state_dir / "last-end.json").write_text(content)
    assert "has ended" not in run("jobs").stderr


@pytest.mark.parametrize(
    "text", ["", "{bad", "[]", '{"pid": 1}', '{"pid": 1, "url": 5}', '{"pid": 1, "url": "u", "x": 2}']
)
def test_a_state_file_that_no_supervisor_wrote_is_none(place: StandingPlace, tmp_path: Path, text: str) -> None:
    (tmp_path / f"up-{socket.gethostname()}.json").write_text(text)
    assert (place.read(), place.last_end()) == (None, None)
    with place.own():
        assert place.last_end() is None
    assert run("down").stdout == "no cluster is up\n"
