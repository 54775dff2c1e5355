"""The states of jobs: one holds the cluster, the others queue; every transition is checked and has a reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from geartrain.errors import ConflictError, NotFoundError
from geartrain.job_states import ENDED_STATES

ACTIVE_STATES = frozenset({"probing", "training", "evaluating"})

NEXT_STATES = {
    "queued": frozenset({"probing", "failed", "cancelled"}),
    # A job that only evaluates a checkpoint, or has no pass left to train, goes to evaluating at once.
    "probing": frozenset({"training", "evaluating", "failed", "cancelled"}),
    # Without valid and test files there is nothing to evaluate.
    "training": frozenset({"evaluating", "succeeded", "failed", "cancelled"}),
    "evaluating": frozenset({"training", "evaluating", "succeeded", "failed", "cancelled"}),
    "succeeded": frozenset[str](),
    "failed": frozenset[str](),
    "cancelled": frozenset[str](),
}


@dataclass(frozen=True, slots=True)
class Job:
    """One job. `closed`: it has ended and its nodes gave up all they held for it; only then may the next one start."""

    id: str
    state: str
    reason: str
    started_s: float | None = None
    ended_s: float | None = None
    closed: bool = False

    @property
    def holds_cluster(self) -> bool:
        return self.state in ACTIVE_STATES or (self.state in ENDED_STATES and not self.closed)


@dataclass(frozen=True, slots=True)
class StartJob:
    """The cluster is free and it is this job's turn: open it on the nodes. The job is probing from now on."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class CloseJob:
    """The job has ended: stop its work on all nodes, then report `closed`."""

    job: str
    reason: str


JobCommand: TypeAlias = StartJob | CloseJob


class JobMachine:
    """All jobs, oldest first. A job starts when the one before has ended and is closed."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        """`jobs`: what the store remembers, in the order of their submission."""
        self._jobs = {job.id: job for job in jobs}

    def submit(self, job: str, now_s: float) -> list[JobCommand]:
        """Queue a job; it starts at once when nothing holds the cluster. Raises ConflictError for a known id."""
        if job in self._jobs:
            raise ConflictError(f"job {job} exists already", job=job)
        active = self.active
        reason = "nothing runs" if active is None else f"waits for job {active.id}, which is {active.state}"
        self._jobs[job] = Job(job, "queued", reason)
        return self._start_next(now_s)

    def advance(self, job: str, state: str, reason: str, now_s: float) -> list[JobCommand]:
        """Move the running job on: to training, evaluating, succeeded or failed.

        A queued job can only fail (it starts by `StartJob` alone). Raises NotFoundError, ConflictError.
        """
        current = self.job(job)
        if state in ("cancelled", "probing") or state not in NEXT_STATES[current.state]:
            raise ConflictError(
                f"job {job} is {current.state} ({current.reason}): it cannot become {state}",
                job=job,
                got=state,
                current=current.state,
            )
        if state in ENDED_STATES:
            return self._end(current, state, reason, now_s)
        self._jobs[job] = replace(current, state=state, reason=reason)
        return []

    def cancel(self, job: str, reason: str, now_s: float) -> list[JobCommand]:
        """Cancel a queued or running job. Raises NotFoundError, ConflictError when it has ended."""
        current = self.job(job)
        if current.state in ENDED_STATES:
            raise ConflictError(
                f"job {job} has ended: it is {current.state} ({current.reason})", job=job, current=current.state
            )
        return self._end(current, "cancelled", reason, now_s)

    def closed(self, job: str, now_s: float) -> list[JobCommand]:
        """All nodes have closed the ended job: the next one may start. Saying it twice changes nothing."""
        current = self.job(job)
        if current.state not in ENDED_STATES:
            raise ConflictError(f"job {job} is {current.state}: it cannot be closed before it ends", job=job)
        self._jobs[job] = replace(current, closed=True)
        return self._start_next(now_s)

    def job(self, job: str) -> Job:
        """One job. Raises NotFoundError."""
        if job not in self._jobs:
            raise NotFoundError(f"there is no job {job}", job=job)
        return self._jobs[job]

    @property
    def active(self) -> Job | None:
        """The job that holds the cluster, from its start until it is closed."""
        return next((job for job in self._jobs.values() if job.holds_cluster), None)

    def _end(self, current: Job, state: str, reason: str, now_s: float) -> list[JobCommand]:
        never_started = current.state == "queued"
        self._jobs[current.id] = replace(current, state=state, reason=reason, ended_s=now_s, closed=never_started)
        return [] if never_started else [CloseJob(current.id, reason)]

    def _start_next(self, now_s: float) -> list[JobCommand]:
        queued = [job for job in self._jobs.values() if job.state == "queued"]
        if self.active is not None or not queued:
            return []
        reason = f"first of {len(queued)} queued, nothing else holds the cluster"
        self._jobs[queued[0].id] = replace(queued[0], state="probing", reason=reason, started_s=now_s)
        return [StartJob(queued[0].id, reason)]
