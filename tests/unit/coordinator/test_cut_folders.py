"""Checkpoint folders: complete or invisible, pruned, and cleared of what was not finished."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from checkpoint_folders import cut, files, manifest, write_files
from scripted_nodes import ScriptedNodes, data_index, job_config

from coordinator.checkpoints import load_manifest
from coordinator.commands import ClearCuts, Command, CutFilesDone, PrepareCut, PublishCut
from coordinator.cut_folders import CutFolders, clear_unfinished
from geartrain.errors import CheckpointError


@pytest.fixture
def folders() -> CutFolders:
    return CutFolders()


def names(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir())


def test_a_published_cut_loads_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = cut(tmp_path, "pass-1")
    assert load_manifest(path).version == 3
    assert names(tmp_path) == ["pass-1"]


def test_a_cut_replaces_one_of_the_same_name_and_removes_the_expired(tmp_path: Path, folders: CutFolders) -> None:
    old = cut(tmp_path, "old")
    cut(tmp_path, "pass-1")
    temporary = tmp_path / ".tmp-again"
    folders.prepare(temporary)
    write_files(temporary, b"wxyz")
    told = manifest(version=4, files=files(4, b"wxyz"))
    folders.publish(temporary, tmp_path / "pass-1", told, (old, tmp_path / "gone-already"))
    assert load_manifest(tmp_path / "pass-1").version == 4
    assert names(tmp_path) == ["pass-1"]


def leave(root: Path) -> None:
    """What deaths and failed saves leave behind, beside a whole checkpoint."""
    cut(root, "pass-0")
    for name in ("pass-1", "pass-7", "removed-pass-0"):
        (root / f".tmp-{name}").mkdir()
        (root / f".tmp-{name}" / "half.npy").write_bytes(b"x")


def test_what_a_death_left_is_cleared(tmp_path: Path, folders: CutFolders) -> None:
    leave(tmp_path)
    folders.clear(tmp_path)
    assert names(tmp_path) == ["pass-0"]
    folders.clear(tmp_path / "nowhere")


def test_what_a_death_left_is_cleared_before_the_next_cut(tmp_path: Path, folders: CutFolders) -> None:
    leave(tmp_path)
    folders.prepare(tmp_path / ".tmp-pass-1")
    assert names(tmp_path / ".tmp-pass-1") == []
    assert names(tmp_path) == [".tmp-pass-1", "pass-0"]


def test_a_cut_that_failed_is_cleared_by_the_process_that_began_it(tmp_path: Path, folders: CutFolders) -> None:
    folders.prepare(tmp_path / ".tmp-pass-1")
    with pytest.raises(FileNotFoundError):
        folders.publish(tmp_path / ".tmp-gone", tmp_path / "pass-1", manifest(), ())
    folders.clear(tmp_path)
    assert names(tmp_path) == []
    folders.prepare(tmp_path / ".tmp-pass-1")


def test_another_process_that_is_at_a_cut_keeps_it(tmp_path: Path, folders: CutFolders) -> None:
    """Until it has died."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            CutFolders().prepare(tmp_path / ".tmp-live")
            (tmp_path / ".tmp-live" / "half.npy").write_bytes(b"x")
        finally:
            os.write(tell, b"x")
            signal.pause()
    try:
        os.read(ready, 1)
        folders.clear(tmp_path)
        folders.prepare(tmp_path / ".tmp-ours")
        assert names(tmp_path) == [".tmp-live", ".tmp-ours"]
        assert names(tmp_path / ".tmp-live") == ["half.npy"]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    folders.clear(tmp_path)
    assert names(tmp_path) == []


def test_a_folder_that_is_cleared_away_while_it_is_made_is_made_again(
    tmp_path: Path, folders: CutFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a process that locks it first."""
    make, made = Path.mkdir, list[Path]()

    def slowly(path: Path, *arguments: object, **named: object) -> None:
        make(path, *arguments, **named)  # type: ignore[arg-type]
        if path.name.startswith(".tmp-"):
            made.append(path)
            if len(made) == 1:
                CutFolders().clear(tmp_path)

    monkeypatch.setattr(Path, "mkdir", slowly)
    folders.prepare(tmp_path / ".tmp-pass-1")
    assert made == [tmp_path / ".tmp-pass-1"] * 2
    CutFolders().clear(tmp_path)
    assert names(tmp_path) == [".tmp-pass-1"]


def test_a_death_in_the_middle_of_a_removal_leaves_no_half_of_a_checkpoint(
    tmp_path: Path, folders: CutFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = cut(tmp_path, "old")
    folders.prepare(tmp_path / ".tmp-new")
    write_files(tmp_path / ".tmp-new")

    def dies(path: Path, ignore_errors: bool = False) -> None:
        if path.exists():
            raise SystemExit

    monkeypatch.setattr(shutil, "rmtree", dies)
    with pytest.raises(SystemExit):
        folders.publish(tmp_path / ".tmp-new", tmp_path / "new", manifest(), (old,))
    assert [name for name in names(tmp_path) if not name.startswith(".")] == ["new"]
    load_manifest(tmp_path / "new")


@pytest.mark.parametrize("job_folders", [True, False])
def test_a_coordinator_clears_what_jobs_of_the_one_before_left(tmp_path: Path, job_folders: bool) -> None:
    config = job_config(checkpoint={"directory": "cuts"}).to_dict()
    jobs = [{"id": f"job-{state}", "state": state, "config": config} for state in ("training", "failed")]
    roots = [tmp_path / str(job["id"] if job_folders else "") / "cuts" for job in jobs]
    for root in roots:
        (root / ".tmp-pass-1").mkdir(parents=True, exist_ok=True)
    clear_unfinished(jobs, tmp_path, job_folders)
    assert names(roots[0]) == []
    assert names(roots[1]) == ([".tmp-pass-1"] if job_folders else [])


class Shell(ScriptedNodes):
    """Keeps what is said of cuts, in order; `failing` is not carried out."""

    def __init__(self, failing: type | None = None) -> None:
        self.told: list[Command] = []
        self.failing = failing
        super().__init__()

    def deliver(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, ClearCuts | PrepareCut | PublishCut):
                self.told.append(command)
            if self.failing is not None and isinstance(command, self.failing):
                self._answer_shell(CutFilesDone("job0", CheckpointError("the disk is full").to_dict()))
            else:
                super().deliver([command])


@pytest.mark.parametrize("failing", [None, PrepareCut, PublishCut])
def test_a_job_clears_its_place_before_its_first_cut_and_when_it_has_ended(failing: type | None) -> None:
    shell = Shell(failing)
    job = shell.submit(job_config(), data_index())
    shell.run()
    assert shell.core.state_of(job)[0] == ("succeeded" if failing is None else "failed")
    clear = ClearCuts(Path("/out/checkpoints"))
    assert shell.told[0] == shell.told[-1] == clear
    assert shell.told.count(clear) == 2
