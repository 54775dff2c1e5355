"""Killed in the middle of a save: what was saved before is whole, what was being saved is not there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from cluster_support import Commands, wait_for
from training_runs import ended_by, signal_role, start_training

from coordinator.checkpoints import load_manifest


def frozen_in_a_save(commands: Commands, cuts: Path) -> Path:
    """Stop the coordinator while a cut is being written that is not the first: nobody can finish it then.

    The cut's temporary folder.
    """
    pid = commands.role("coordinator")

    def catch() -> Path | None:
        for folder in cuts.glob(".tmp-pass-*") if any(cuts.glob("pass-*")) else ():
            os.kill(pid, signal.SIGSTOP)
            wait_for(lambda: "T" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0], "the stop")
            if folder.exists():
                return folder
            os.kill(pid, signal.SIGCONT)  # it was just finished: the next one
        return None

    return wait_for(catch, "a save")


def test_the_previous_checkpoint_outlives_a_server_that_dies_in_mid_save(commands: Commands) -> None:
    process = start_training(commands, "--set=checkpoint.full_every=3", "--worker-num=1", batch_size=512)
    cuts = commands.folder / "output" / "checkpoints"
    folder = frozen_in_a_save(commands, cuts)
    signal_role(commands, "s0", signal.SIGKILL)
    signal_role(commands, "coordinator", signal.SIGCONT)
    done = ended_by(commands, process)
    assert (done.status, done.error_line) == (1, "server s0 was killed (SIGKILL)")
    whole = sorted(entry for entry in cuts.iterdir() if not entry.name.startswith("."))
    assert whole
    for entry in whole:  # that of the save itself among them, if both servers had written it before
        load_manifest(entry)
    assert folder.exists() or cuts / folder.name.removeprefix(".tmp-") in whole


def test_the_previous_checkpoint_outlives_a_kill_in_mid_save(commands: Commands) -> None:
    process = start_training(commands, "--set=checkpoint.keep=1", "--worker-num=1", batch_size=512)
    cuts = commands.folder / "output" / "checkpoints"
    folder = frozen_in_a_save(commands, cuts)
    process.kill()
    process.communicate()
    assert commands.all_gone()

    assert folder.exists()
    whole = sorted(entry for entry in cuts.iterdir() if entry != folder)
    assert len(whole) == 1 and not whole[0].name.startswith(".")
    before = load_manifest(whole[0])
    assert f"pass-{before.passes_done + 1:04d}" in folder.name

    settings = [f"--set=training.passes={before.passes_done + 1}", "--set=data.test=[test.csv]"]
    config = str(commands.folder / "data" / "job.json")
    places = ["--resume", str(whole[0]), "--output=output", "--worker-num=1"]
    resumed = commands.run("train", config, *places, *settings, "--json")
    assert (resumed.status, resumed.stderr) == (0, "")
    assert resumed.json["passes"] == before.passes_done + 1
    # In the same place: the cut that the kill broke off is there now, and the rest of it is gone.
    assert sorted(cuts.iterdir()) == sorted([whole[0], Path(resumed.json["checkpoint"])])
