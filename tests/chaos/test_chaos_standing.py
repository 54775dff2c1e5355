"""A role of a standing cluster is killed: every command says which, and so does the job that it ended."""

from __future__ import annotations

import re
import signal

from cluster_support import Commands, free_port, wait_for, write_data, write_job
from training_runs import signal_role

from api.sdk import GeartrainClient

REASON = "worker w1 was killed (SIGKILL)"


def test_commands_say_who_died(commands: Commands) -> None:
    data, port = write_data(commands.folder / "data"), free_port()
    url, places = f"http://127.0.0.1:{port}", [f"--port={port}", "--output=output", f"--allow-root={data}"]
    assert commands.run("up", *places).status == 0
    config = write_job(data, training={"passes": 100_000, "batch_size": 16}, data={"root": str(data)})
    job = commands.run("submit", str(config)).stdout.strip()
    with GeartrainClient(url) as client:
        wait_for(lambda: client.job(job)["state"] == "training", "the training")
    signal_role(commands, "w1", signal.SIGKILL)
    assert commands.all_gone()

    for arguments in (["jobs"], ["show", job], ["stats"], ["stats", "--coordinator", url]):
        done = commands.run(*arguments)
        assert (done.status, done.stdout) == (1, "")
        assert done.error_line.endswith(f"the cluster that was up at {url} has ended: {REASON}")

    ended = f"no cluster is up; the one at {url} has ended: "
    assert commands.run("down").stdout == f"{ended}{REASON}\n"
    assert commands.run("up", *places).status == 0
    for _ in range(2):  # also of a coordinator that has never heard of the death itself
        failed = commands.run("show", job, "--json").json
        assert (failed["state"], failed["reason"], failed["error"]["role"]) == ("failed", REASON, "w1")
        assert commands.run("down").stdout == "stopped\n"
        assert commands.run("up", *places).status == 0
    signal_role(commands, "coordinator", signal.SIGKILL)
    assert commands.all_gone()
    for _ in range(2):
        done = commands.run("down")
        assert (done.status, done.stdout) == (0, f"{ended}coordinator was killed (SIGKILL)\n")


def test_a_worker_that_stood_still_is_named_by_the_waiting_job_and_by_the_end(commands: Commands) -> None:
    data, port = write_data(commands.folder / "data"), free_port()
    places = [f"--port={port}", "--output=output", f"--allow-root={data}"]
    assert commands.run("up", *places).status == 0
    signal_role(commands, "w1", signal.SIGSTOP)
    job = commands.run("submit", str(write_job(data, data={"root": str(data)}))).stdout.strip()
    lost = re.compile(r"1 of 2 worker\(s\) are there, w1 is lost \(w1 is silent for 5")
    with GeartrainClient(f"http://127.0.0.1:{port}") as client:
        wait_for(lambda: lost.search(client.job(job)["reason"]) or client.job(job)["state"] == "failed", "the lease")
    signal_role(commands, "w1", signal.SIGCONT)
    assert commands.all_gone()
    ended = commands.run("jobs").error_line
    assert "worker w1 exited with status 1: w1 is lost (w1 is silent for 5" in ended
