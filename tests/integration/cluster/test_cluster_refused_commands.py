"""What is wrong with the command, the config, a file or its header: status 2, one line, and no process was started."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_support import HEADER, Commands, commands_in, spoil, write_data, write_job

from coordinator.journal_file import STATE_FILE
from geartrain.store import SqliteStore


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Commands]:
    """Commands that note in `spawned` whatever process they start."""
    with commands_in(tmp_path) as commands:
        commands.extra["SPAWN_LOG"] = str(tmp_path / "spawned")
        commands.extra["PYTHONPATH"] = str(Path(__file__).with_name("spawn_log"))
        yield commands


def refusal(commands: Commands, *arguments: str) -> str:
    """The line with which a command is refused."""
    done = commands.run(*arguments)
    assert (done.status, done.stdout) == (2, ""), done
    assert not (commands.folder / "spawned").exists()
    assert not (commands.folder / "output").exists()
    return done.error_line


def train(commands: Commands, folder: Path, *options: str, **sections: Any) -> str:
    return refusal(commands, "train", str(write_job(folder, **sections)), "--output=output", *options)


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"colour": "red"}, ["colour", "one of name, features", "unknown field"]),
    ({"training": {"batch_size": "many"}}, ["training.batch_size", "an integer >= 1", '"many"']),
    ({"training": {"batch_size": 0}}, ["training.batch_size", "an integer >= 1", "got 0"]),
    ({"model": {"embedding_dim": 0}}, ["model.embedding_dim", "an integer >= 1", "got 0"]),
    ({"model": {"type": "transformer"}}, ["model.type", "deepfm", '"transformer"']),
    ({"data": {"valid": ["gone.csv"]}}, ["data.valid.0", "a file", "no such file", "gone.csv"]),
    ({"data": {"train": ["part-*.csv"]}}, ["data.train.0", "at least one file", "part-*.csv"]),
    ({"data": {"test": ["../test.csv"]}}, ["data.test.0", "a path inside", "../test.csv"]),
    ({"data": {"test": ["/etc/passwd"]}}, ["data.test.0", "a path inside", "/etc/passwd"]),
    ({"data": {"root": "/etc"}}, ["data.root", "a path inside", "/etc"]),
]


@pytest.mark.parametrize(("sections", "words"), WRONG)
def test_a_wrong_config(audited: Commands, sections: dict[str, Any], words: list[str]) -> None:
    line = train(audited, write_data(audited.folder / "data", num_rows=10), **sections)
    for word in words:
        assert word in line


def link(folder: Path) -> None:
    outside = write_data(folder.parent / "outside", num_rows=10)
    (folder / "valid.csv").unlink()
    (folder / "valid.csv").symlink_to(outside / "valid.csv")


FILES: list[tuple[Callable[[Path], object], list[str]]] = [
    (lambda folder: (folder / "valid.csv").write_text("user,item,price,tags\nu,i,1,t\n"), ["the label column label"]),
    (lambda folder: (folder / "valid.csv").write_text(""), ["valid.csv", "empty"]),
    (lambda folder: (folder / "valid.csv").write_text(HEADER + "\n"), ["valid.csv", "at least one row"]),
    (link, ["data.valid.0", "a path outside the allowed roots"]),
]


@pytest.mark.parametrize(("damage", "words"), FILES)
def test_a_wrong_file(audited: Commands, damage: Callable[[Path], object], words: list[str]) -> None:
    folder = write_data(audited.folder / "data", num_rows=10)
    damage(folder)
    line = train(audited, folder)
    for word in words:
        assert word in line


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_port_in_use(audited: Commands, taken: str) -> None:
    port = taken.rpartition(":")[2]
    assert refusal(audited, "up", f"--port={port}") == f"cannot listen on {taken}: the port is in use"


@pytest.mark.parametrize("option", ["--listen", "--control"])
def test_a_coordinator_whose_port_is_in_use_takes_no_term(commands: Commands, taken: str, option: str) -> None:
    state = commands.folder / "state"
    addresses = {"--listen": "127.0.0.1:0", "--control": "127.0.0.1:0", option: taken}
    options = [f"{name}={address}" for name, address in addresses.items()]
    done = commands.run("coordinator", f"--state-dir={state}", *options)
    assert done.status == 2
    assert taken in done.error_line and "in use" in done.error_line
    store = SqliteStore(state / STATE_FILE)
    assert store.raise_term() == 1
    store.close()


def test_a_bad_row_is_found_by_the_roles_that_were_started(audited: Commands) -> None:
    """The proof that `spawned` would tell, and what `train` says of a bad row."""
    folder = write_data(audited.folder / "data", num_rows=400)
    spoil(folder / "train-0.csv", 123, "2,u1,i1,0.5,t1")
    done = audited.run("train", str(write_job(folder)), "--output=output", "--json")
    assert done.status == 1
    file = str(folder / "train-0.csv")
    for word in (file, "row 123", "label", "'2'"):
        assert word in done.error_line
    job = done.json
    assert (job["state"], job["error"]["code"]) == ("failed", "bad_row")
    assert (job["error"]["file"], job["error"]["row"], job["error"]["column"]) == (file, 123, "label")
    spawned = (audited.folder / "spawned").read_text()
    for role in ("'coordinator'", "--name=s0", "--name=s1", "--name=w0", "--name=w1"):
        assert role in spawned
