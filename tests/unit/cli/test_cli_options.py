"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from geartrain.commands.evaluate import split_pattern
from geartrain.commands.options import parse_address, resolve_devices, zmq_address
from geartrain.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:8000", ("127.0.0.1", 8000)), ("node-1:0", ("node-1", 0)), ("[::1]:80", ("::1", 80))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, "--listen") == address


@pytest.mark.parametrize("text", ["8000", ":8000", "host", "host:", "host:http", "host:65536", "host:-1", ""])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(text, "--listen")
    assert caught.value.facts["field"] == "--listen"


def test_addresses_of_the_control_channel() -> None:
    assert zmq_address("10.0.0.1:9000", "--control") == "tcp://10.0.0.1:9000"
    assert zmq_address("ipc:///tmp/x", "--control") == "ipc:///tmp/x"
    with pytest.raises(ConfigError):
        zmq_address("10.0.0.1", "--control")


def test_devices() -> None:
    assert resolve_devices(None, ()) == ("cpu", "cpu")
    assert resolve_devices(3, ()) == ("cpu", "cpu", "cpu")
    assert resolve_devices(None, ("cpu",)) == ("cpu",)
    assert resolve_devices(2, ("cpu", "cpu")) == ("cpu", "cpu")
    with pytest.raises(ConfigError, match="one for each of the 1 workers, got 2"):
        resolve_devices(1, ("cpu", "cpu"))
    emulated = ("emulate:name=A,samples_per_s=3000", "emulate:samples_per_s=1")
    assert resolve_devices(None, emulated) == emulated


def test_a_wrong_card_is_named_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"--device emulate:name=A,jitter=x: samples_per_s: .* got nothing"):
        resolve_devices(None, ("cpu", "emulate:name=A,jitter=x"))
    with pytest.raises(ConfigError, match=r"sees \d+ CUDA devices here") as caught:
        resolve_devices(None, ("cuda:9999",))
    assert (caught.value.facts["field"], caught.value.exit_status) == ("--device", 2)


@pytest.mark.parametrize(
    ("pattern", "root", "files"),
    [
        ("new/*.csv", "new", "*.csv"),
        ("new/one.csv", "new", "one.csv"),
        ("one.csv", ".", "one.csv"),
        ("*/part-[0-9].csv", ".", "*/part-[0-9].csv"),
        ("a/b?/c.csv", "a", "b?/c.csv"),
    ],
)
def test_a_glob_is_cut_where_it_begins_to_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, root: str, files: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert split_pattern(pattern) == ((tmp_path / root).resolve(), files)
    assert split_pattern(str(tmp_path / pattern)) == ((tmp_path / root).resolve(), files)
