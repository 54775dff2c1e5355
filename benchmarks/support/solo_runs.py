"""What each card does alone: real jobs on clusters of one worker, all at the same time in processes of their own.

They hardly disturb each other, because an emulated card leaves the host idle; all clusters start first, then all train.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier, Semaphore
from threading import BrokenBarrierError
from typing import TypeAlias

from benchmarks.support.emulated_runs import ANSWER_S, Card, JobShape, cluster_of, job_of, train_on
from geartrain.launch.local import LocalCluster

START_DEADLINE_S = 60.0
"""Until all roles of a cluster are there."""
ALL_READY_DEADLINE_S = 300.0
RUN_DEADLINE_S = 300.0
STARTING_AT_ONCE = 3
"""Clusters that start at the same time: a start keeps the cores busy."""
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Solo:
    """A card's own run. `key` names it; equal keys are equal runs."""

    key: str
    card: Card
    shape: JobShape


@dataclass(frozen=True, slots=True)
class SoloSpeed:
    """Samples per second, and the steps in which the host was slower than the card."""

    samples_per_s: float
    host_bound_steps: int


_Answers: TypeAlias = "multiprocessing.Queue[tuple[str, SoloSpeed | str]]"


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Where the processes meet: few at a time start their clusters, all of them begin to train together."""

    starting: Semaphore
    ready: Barrier
    answers: _Answers


def solo_speeds(solos: Sequence[Solo]) -> Mapping[str, SoloSpeed]:
    """The speeds by key. Raises RuntimeError with what went wrong in a run."""
    context = multiprocessing.get_context("spawn")
    meeting = _Meeting(context.Semaphore(STARTING_AT_ONCE), context.Barrier(len(solos)), context.Queue())
    processes = [context.Process(target=_solo_process, args=(solo, meeting)) for solo in solos]
    for process in processes:
        process.start()
    told = dict(meeting.answers.get(timeout=ALL_READY_DEADLINE_S + RUN_DEADLINE_S) for _ in processes)
    for process in processes:
        process.join()
    speeds = {key: speed for key, speed in told.items() if isinstance(speed, SoloSpeed)}
    if len(speeds) < len(solos):
        raise RuntimeError("; ".join(f"{key}: {error}" for key, error in told.items() if isinstance(error, str)))
    return speeds


def _solo_process(solo: Solo, meeting: _Meeting) -> None:
    # There are more clusters than cores: threads of one would only be in the way of the others.
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        with job_of(solo.shape) as config, ExitStack() as stack:
            with meeting.starting:
                cluster = stack.enter_context(cluster_of([solo.card.spec], config))
                _await_nodes(cluster)
            meeting.ready.wait(ALL_READY_DEADLINE_S)
            run = train_on(cluster, config)
        meeting.answers.put((solo.key, SoloSpeed(run.samples_per_s, run.host_bound_steps)))
    except BrokenBarrierError:
        meeting.answers.put((solo.key, "given up, because not all could start"))
    except Exception as error:  # whatever it is, it is told, and no other run waits for this one
        meeting.ready.abort()
        meeting.answers.put((solo.key, f"{type(error).__name__}: {error}"))


def _await_nodes(cluster: LocalCluster) -> None:
    """Return when all roles are there, so that no cluster still starts while others train."""
    expected = len(cluster.roles) - 1  # the coordinator is no node
    deadline_s = time.monotonic() + START_DEADLINE_S
    with cluster.client(ANSWER_S) as client:
        while len(client.nodes()) < expected:
            cluster.check()
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{expected} nodes were not there after {START_DEADLINE_S:g} s")
            time.sleep(POLL_S)
