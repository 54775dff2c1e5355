"""A cluster that stays: `up`, `submit`, `jobs`, `show`, `cancel`, `stats`, `down`, and what its queue does."""

from __future__ import annotations

import pytest
from cluster_support import Commands, ended, spoil, wait_for, write_data, write_job
from standing_cluster import Standing

ENDLESS = {"passes": 100_000, "batch_size": 16}


def test_submit_and_wait_shows_the_result(standing: Standing) -> None:
    config = write_job(standing.data)
    done = standing.commands.run("submit", str(config), "--wait", "--json")  # it finds the cluster that is up
    assert (done.status, done.stderr) == (0, "")
    result = done.json
    assert result["state"] == "succeeded"
    assert (result["passes"], result["samples"], result["version"]) == (2, 4000, 32)
    assert result["valid"]["num_samples"] == result["test"]["num_samples"] == 500
    assert result["test"]["auc"] > 0.6

    shown = standing.commands.run("show", result["job"], "--json", "--coordinator", standing.url).json
    assert (shown["state"], shown["result"]) == ("succeeded", result)
    assert shown["progress"]["samples"] == 4000
    table = standing.commands.run("show", result["job"], "--coordinator", standing.url).stdout
    assert result["job"] in table and "4,000 of 4,000" in table and f"{result['test']['auc']:.5f}" in table
    listed = standing.commands.run("jobs").stdout
    assert any(result["job"] in line and "succeeded" in line for line in listed.splitlines())


def test_two_jobs_queue_and_both_succeed(standing: Standing) -> None:
    config = str(write_job(standing.data, "queued.json", name="queued"))
    first, second = (
        standing.commands.run("submit", config, "--coordinator", standing.url).stdout.strip() for _ in range(2)
    )
    jobs = [standing.ended(job) for job in (first, second)]
    assert [job["state"] for job in jobs] == ["succeeded", "succeeded"]
    order = [(event["kind"], job) for job in (first, second) for event in standing.client.events(job)]
    assert [kind for kind, job in order if job == second][:2] == ["queued", "started"]
    ended = next(event["time"] for event in standing.client.events(first) if event["kind"] == "succeeded")
    started = next(event["time"] for event in standing.client.events(second) if event["kind"] == "started")
    assert started >= ended
    # The same config and data, in sync mode: the same numbers.
    assert jobs[0]["result"]["test"] == jobs[1]["result"]["test"]


def test_cancelling_the_running_one_lets_the_next_start(standing: Standing) -> None:
    def cancel(job: str) -> tuple[int, str, str]:
        done = standing.commands.run("cancel", job, "--coordinator", standing.url)
        return done.status, done.stdout, done.stderr

    running = standing.submit(training=ENDLESS)
    try:
        queued, last = standing.submit(), standing.submit()
        standing.in_state(running, "training")
        assert standing.client.job(queued)["state"] == "queued"

        assert cancel(queued) == (0, f"{queued} cancelled\n", "")
        assert standing.client.job(running)["state"] in ("training", "evaluating")
    finally:  # whatever happens: it would hold the cluster of all other tests
        cancelled = cancel(running)
    assert cancelled == (0, f"{running} cancelled\n", "")
    assert standing.ended(last)["state"] == "succeeded"
    assert [standing.client.job(job)["state"] for job in (running, queued)] == ["cancelled", "cancelled"]

    status, _, error = cancel(running)
    assert status == 1 and running in error and "has ended" in error
    status, _, error = cancel("nobody")
    assert status == 1 and "nobody" in error


def test_a_job_that_is_cancelled_while_it_is_waited_for(standing: Standing) -> None:
    config = str(write_job(standing.data, "endless.json", name="endless", training=ENDLESS))
    waiting = standing.commands.start("submit", config, "--wait", "--coordinator", standing.url)
    job = wait_for(lambda: next((one["id"] for one in standing.client.jobs() if one["name"] == "endless"), None), "it")
    try:
        standing.in_state(job, "training")
    finally:  # whatever happens: it would hold the cluster of all other tests
        standing.client.cancel(job)
    done = ended(waiting)
    assert (done.status, done.error_line) == (1, f"job {job} was cancelled: cancelled by a call")


BAD_ROWS = [
    ("maybe,u1,i1,0.1,t1", "label", "maybe"),
    ("1,u1,i1", "price", "3 columns"),
    ("1,u1,i1,cheap,t1", "price", "cheap"),
]


@pytest.mark.parametrize(("line", "column", "value"), BAD_ROWS)
def test_a_bad_row_fails_the_job_and_nothing_else(standing: Standing, line: str, column: str, value: str) -> None:
    folder = write_data(standing.data / f"bad-{value.replace(' ', '-')}", num_rows=400)
    spoil(folder / "train-1.csv", 77, line)
    done = standing.commands.run("submit", str(write_job(folder)), "--wait", "--json", "--coordinator", standing.url)
    assert done.status == 1
    for word in (str(folder / "train-1.csv"), "row 77", column, value):
        assert word in done.error_line
    job = done.json["job"]
    failed = standing.client.job(job)
    assert failed["state"] == "failed"
    error = failed["error"]
    assert (error["code"], error["message"]) == ("bad_row", done.error_line)
    assert (error["file"], error["row"], error["column"]) == (str(folder / "train-1.csv"), 77, column)
    assert error["value"] == value
    assert standing.run(training={"passes": 1})["samples"] == 2000


def test_a_second_up_changes_nothing(standing: Standing) -> None:
    again = standing.commands.run("up", "--port=1")
    assert (again.status, again.stdout) == (0, f"already up at {standing.url}; nothing was changed\n")


def test_down_without_a_cluster(commands: Commands) -> None:
    done = commands.run("down")
    assert (done.status, done.stdout, done.stderr) == (0, "no cluster is up\n", "")
