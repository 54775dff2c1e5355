"""Files that are there as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from geartrain.files import flush, write_text, written_whole


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_text(path, "old")
    with written_whole(path) as unfinished:
        unfinished.write_text("n")
        assert path.read_text() == "old"
        unfinished.write_text("new")
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


def test_a_failure_leaves_the_file_before_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), written_whole(path) as unfinished:
        unfinished.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


def test_files_and_folders_can_be_flushed(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "b")
    flush(tmp_path / "a")
    flush(tmp_path)
    with pytest.raises(FileNotFoundError):
        flush(tmp_path / "gone")
