"""The store: terms only rise, a journal keeps its order, an old coordinator cannot write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from geartrain.errors import GeartrainError, StaleMessageError
from geartrain.store import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "state.sqlite")
    yield opened
    opened.close()


def test_terms_rise_across_reopening(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "state.sqlite")
    assert [first.raise_term(), first.raise_term()] == [1, 2]
    first.close()
    second = SqliteStore(tmp_path / "state.sqlite")
    assert second.raise_term() == 3
    second.close()


def test_two_coordinators_never_get_the_same_term(tmp_path: Path) -> None:
    first, second = SqliteStore(tmp_path / "state.sqlite"), SqliteStore(tmp_path / "state.sqlite")
    terms = [store.raise_term() for _ in range(5) for store in (first, second)]
    assert terms == list(range(1, 11))
    first.close()
    second.close()


def test_journals_of_jobs_keep_their_order_and_do_not_mix(store: SqliteStore) -> None:
    term = store.raise_term()
    for number in range(2500):
        store.append(term, f"job{number % 2}", [str(number).encode()])
    assert list(store.entries("job0")) == [str(number).encode() for number in range(0, 2500, 2)]
    assert list(store.entries("unknown")) == []


def test_an_old_coordinator_cannot_write_beside_its_successor(store: SqliteStore) -> None:
    old = store.raise_term()
    store.append(old, "job", [b"a"])
    new = store.raise_term()
    with pytest.raises(StaleMessageError) as caught:
        store.append(old, "job", [b"late"])
    assert caught.value.facts == {"got": old, "current": new}
    with pytest.raises(StaleMessageError):
        store.put(old, "key", b"late")
    store.append(new, "job", [b"b"])
    assert list(store.entries("job")) == [b"a", b"b"]
    assert store.items("key") == []


def test_named_values_are_replaced_and_listed_by_prefix(store: SqliteStore) -> None:
    term = store.raise_term()
    for key, value in (("job/2", b"x"), ("job/1", b"y"), ("jobs", b"z"), ("job/2", b"w"), ("j%b/1", b"v")):
        store.put(term, key, value)
    assert store.items("job/") == [("job/1", b"y"), ("job/2", b"w")]
    assert store.items("j%") == [("j%b/1", b"v")]


def test_named_values_are_removed_for_good(tmp_path: Path, store: SqliteStore) -> None:
    term = store.raise_term()
    for key in ("portrait/a", "portrait/b", "portrait/c", "job/a"):
        store.put(term, key, b"x")
    store.delete(term, ["portrait/a", "portrait/c", "portrait/unknown"])
    assert SqliteStore(tmp_path / "state.sqlite").items("") == [("job/a", b"x"), ("portrait/b", b"x")]
    with pytest.raises(StaleMessageError):
        store.delete(term - 1, ["portrait/b"])
    assert store.items("portrait/") == [("portrait/b", b"x")]


def test_what_was_appended_survives_a_kill(tmp_path: Path) -> None:
    program = (
        "import os, sys, signal, pathlib\n"
        "from geartrain.store import SqliteStore\n"
        "store = SqliteStore(pathlib.Path(sys.argv[1]))\n"
        "store.append(store.raise_term(), 'job', [b'one', b'two'])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "state.sqlite"
    died = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert died.returncode == -9
    reopened = SqliteStore(path)
    assert list(reopened.entries("job")) == [b"one", b"two"]
    reopened.close()


def test_a_store_that_cannot_be_used_is_named(tmp_path: Path, store: SqliteStore) -> None:
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"no database" * 1000)
    with pytest.raises(GeartrainError, match=r"damaged\.sqlite: the journal cannot be used: file is not a database"):
        SqliteStore(damaged)
    with pytest.raises(GeartrainError, match=r"damaged\.sqlite/state: the journal cannot be used"):
        SqliteStore(damaged / "state")
    term = store.raise_term()
    store._connection.execute("PRAGMA max_page_count = 1")  # as full as a disk can be
    with pytest.raises(GeartrainError, match=r"state\.sqlite: the journal cannot be used: database or disk is full"):
        store.append(term, "job", [bytes(100_000)])
