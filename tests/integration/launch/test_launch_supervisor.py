"""A cluster that stays: `up` and `down`, twice, and after a kill."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from process_watch import Watched

from api.sdk import GeartrainClient
from geartrain.errors import RoleDiedError
from geartrain.launch.supervisor import StandingPlace, bring_down, bring_up

DRIVER = str(Path(__file__).with_name("cluster_driver.py"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[StandingPlace]:
    place = StandingPlace(tmp_path)
    yield place
    bring_down(place)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    return [sys.executable, DRIVER, "stand", str(tmp_path), str(tmp_path)]


def roles(place: StandingPlace) -> Watched:
    return Watched(json.loads(place.log.read_text()))


def test_up_answers_and_down_leaves_nothing(place: StandingPlace, command: list[str]) -> None:
    assert place.read() is None
    cluster = bring_up(place, command)
    assert place.read() == cluster
    with GeartrainClient(cluster.url, "secret") as client:
        assert client.ready()[0]
    running = roles(place)
    supervisor = Watched([cluster.pid])
    assert bring_down(place)
    assert place.read() is None
    assert running.all_gone()
    os.waitpid(cluster.pid, 0)  # here the supervisor is a child of the test; of `geartrain up` it is not
    assert supervisor.all_gone()
    assert not bring_down(place)


def test_a_second_one_is_refused_and_changes_nothing(place: StandingPlace, command: list[str]) -> None:
    cluster = bring_up(place, command)
    with pytest.raises(RoleDiedError, match="a cluster is up already"):
        bring_up(place, command)
    assert place.read() == cluster


def test_a_killed_supervisor_takes_its_roles_along_and_up_works_again(place: StandingPlace, command: list[str]) -> None:
    cluster = bring_up(place, command)
    running = roles(place)
    os.kill(cluster.pid, signal.SIGKILL)
    assert running.all_gone()
    os.waitpid(cluster.pid, 0)
    assert place.read() is None
    assert bring_up(place, command).pid != cluster.pid


def test_a_supervisor_that_gives_up_says_why(place: StandingPlace) -> None:
    with pytest.raises(RoleDiedError, match="no luck"):
        bring_up(place, [sys.executable, "-c", "raise SystemExit('error: no luck')"])


@pytest.mark.parametrize("number", range(5))
def test_a_role_that_dies_ends_the_cluster_and_the_reason_stays(
    place: StandingPlace, command: list[str], number: int
) -> None:
    cluster = bring_up(place, command)
    pids = json.loads(place.log.read_text())
    running = Watched(pids)
    os.kill(pids[number], signal.SIGKILL)
    name = ["coordinator", "server s0", "server s1", "worker w0", "worker w1"][number]
    end = place.last_end(awaited=cluster.url)
    assert end is not None
    assert (end.url, end.reason) == (cluster.url, f"{name} was killed (SIGKILL)")
    assert end.role == name.split()[-1]
    os.waitpid(cluster.pid, 0)
    assert running.all_gone()
    assert not bring_down(place)
    assert place.last_end() == end
    bring_up(place, command)
    assert place.last_end() is None
    assert bring_down(place)
    assert place.last_end() is None, "it was told to stop"
