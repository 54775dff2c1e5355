"""The states of jobs and the queue."""

from __future__ import annotations

from itertools import product

import pytest

from coordinator.jobs import ACTIVE_STATES, NEXT_STATES, CloseJob, JobMachine, StartJob
from geartrain.errors import ConflictError, NotFoundError
from geartrain.job_states import ENDED_STATES

PATHS = {
    "queued": [],
    "probing": [],
    "training": ["training"],
    "evaluating": ["training", "evaluating"],
    "succeeded": ["training", "evaluating", "succeeded"],
    "failed": ["failed"],
}


def machine_with_job_in(state: str) -> JobMachine:
    """Job `j` in this state."""
    jobs = JobMachine()
    if state == "queued":
        jobs.submit("before", 0.0)
    jobs.submit("j", 1.0)
    for step in PATHS.get(state, []):
        jobs.advance("j", step, "test", 2.0)
    if state == "cancelled":
        jobs.cancel("j", "test", 2.0)
    assert jobs.job("j").state == state
    return jobs


def test_the_first_job_starts_at_once_and_others_queue() -> None:
    jobs = JobMachine()
    (start,) = jobs.submit("a", 1.0)
    assert start == StartJob("a", "first of 1 queued, nothing else holds the cluster")
    assert jobs.submit("b", 2.0) == []
    assert [(one, jobs.job(one).state, jobs.job(one).reason) for one in ("a", "b")] == [
        ("a", "probing", "first of 1 queued, nothing else holds the cluster"),
        ("b", "queued", "waits for job a, which is probing"),
    ]


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled"])
def test_the_next_job_starts_when_the_one_before_has_ended_and_is_closed(end: str) -> None:
    jobs = JobMachine()
    for job in ("a", "b", "c"):
        jobs.submit(job, 0.0)
    jobs.advance("a", "training", "probed", 1.0)
    ended = jobs.cancel("a", "by a user", 2.0) if end == "cancelled" else jobs.advance("a", end, "by a user", 2.0)
    assert ended == [CloseJob("a", "by a user")]
    assert jobs.job("b").state == "queued", "the nodes still hold job a"
    (start,) = jobs.closed("a", 3.0)
    assert isinstance(start, StartJob)
    assert (start.job, jobs.job("b").state, jobs.job("b").started_s) == ("b", "probing", 3.0)
    assert jobs.closed("a", 4.0) == []
    assert jobs.job("a").ended_s == 2.0


def test_at_most_one_job_holds_the_cluster() -> None:
    jobs = JobMachine()
    for number in range(4):
        jobs.submit(str(number), 0.0)
    for number in range(4):
        assert jobs.active is not None
        assert jobs.active.id == str(number)
        assert sum(jobs.job(str(one)).state in ACTIVE_STATES for one in range(4)) == 1
        jobs.advance(str(number), "failed", "test", 1.0)
        jobs.closed(str(number), 1.0)
    assert jobs.active is None


@pytest.mark.parametrize(("state", "target"), list(product(NEXT_STATES, NEXT_STATES)))
def test_transitions_are_checked(state: str, target: str) -> None:
    jobs = machine_with_job_in(state)
    allowed = target in NEXT_STATES[state] and target not in ("cancelled", "probing")
    if allowed:
        jobs.advance("j", target, "because", 3.0)
        assert (jobs.job("j").state, jobs.job("j").reason) == (target, "because")
    else:
        with pytest.raises(ConflictError, match=f"job j is {state}"):
            jobs.advance("j", target, "because", 3.0)
        assert jobs.job("j").state == state


@pytest.mark.parametrize("state", [*PATHS, "cancelled"])
def test_cancellation_in_each_state(state: str) -> None:
    jobs = machine_with_job_in(state)
    if state in ENDED_STATES:
        with pytest.raises(ConflictError, match=f"job j has ended: it is {state}"):
            jobs.cancel("j", "by a user", 5.0)
        return
    commands = jobs.cancel("j", "by a user", 5.0)
    job = jobs.job("j")
    assert (job.state, job.reason, job.ended_s) == ("cancelled", "by a user", 5.0)
    assert commands == ([] if state == "queued" else [CloseJob("j", "by a user")])
    assert job.closed == (state == "queued"), "a queued job holds nothing on the nodes"


def test_a_cancelled_job_in_the_queue_never_starts() -> None:
    jobs = JobMachine()
    for job in ("a", "b", "c"):
        jobs.submit(job, 0.0)
    jobs.cancel("b", "by a user", 1.0)
    jobs.advance("a", "failed", "test", 2.0)
    (start,) = jobs.closed("a", 3.0)
    assert isinstance(start, StartJob)
    assert start.job == "c"


def test_unknown_and_doubled_jobs_are_refused() -> None:
    jobs = JobMachine()
    jobs.submit("a", 0.0)
    with pytest.raises(ConflictError, match="job a exists already"):
        jobs.submit("a", 1.0)
    for call in (lambda: jobs.job("x"), lambda: jobs.cancel("x", "", 1.0), lambda: jobs.closed("x", 1.0)):
        with pytest.raises(NotFoundError, match="no job x"):
            call()


def test_a_running_job_cannot_be_closed() -> None:
    jobs = machine_with_job_in("training")
    with pytest.raises(ConflictError, match="before it ends"):
        jobs.closed("j", 1.0)


def test_jobs_survive_a_restart_of_the_coordinator() -> None:
    jobs = machine_with_job_in("queued")
    after = JobMachine([jobs.job("before"), jobs.job("j")])
    assert after.job("j") == jobs.job("j")
    assert after.active == jobs.job("before")
    after.advance("before", "failed", "the coordinator was started again", 9.0)
    (start,) = after.closed("before", 9.0)
    assert isinstance(start, StartJob)
    assert start.job == "j"
