"""A role of a standing cluster is killed: every command says which, and so does the job that it ended."""

from __future__ import annotations

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

    assert commands.run("up", *places).status == 0
    for _ in range(2):  # also of a coordinator that has never heard of the death itself
        failed = commands.run("show", job, "--json").json
        assert (failed["state"], failed["reason"], failed["error"]["role"]) == ("failed", REASON, "w1")
        assert commands.run("down").stdout == "stopped\n"
        assert commands.run("up", *places).status == 0
    signal_role(commands, "coordinator", signal.SIGKILL)
    assert commands.all_gone()
    done = commands.run("down")
    assert (done.status, done.stdout) == (
        0,
        f"no cluster is up; the one at {url} has ended: coordinator was killed (SIGKILL)\n",
    )
    assert commands.run("down").stdout == "no cluster is up\n"
