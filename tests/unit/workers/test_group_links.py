"""Collectives of a sync group and the links of its members; gloo is left out."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from manual_clock import ManualClock

from dense_workers import group as group_module
from dense_workers.group import SyncGroup
from dense_workers.links import Links

MEMBERS = ("w0", "w1", "w2", "w3")
VALUES = 250_000
"""Floats: one megabyte."""


class Peers:
    """Stands for gloo: notes at what time of the worker's clock a collective began, and ends it 7 s later."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.began_s: list[float] = []

    def __call__(self, *_: object) -> Peers:
        return self

    def _set_default_timeout(self, patience: object) -> None: ...

    def allreduce(self, tensors: list[torch.Tensor], *_: object) -> Peers:
        self.began_s.append(self._clock.time_s - 100.0)
        return self

    scatter = allreduce

    def is_completed(self) -> bool:
        return True

    def wait(self) -> None:
        self._clock.work(7.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def peers(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Peers:
    peers = Peers(clock)
    monkeypatch.setattr(group_module, "ProcessGroupGloo", peers)
    monkeypatch.setattr(group_module, "PrefixStore", lambda *_: None)
    monkeypatch.setattr(group_module.time, "perf_counter", clock.now_s)
    return peers


def group(worker: str, clock: ManualClock, members: tuple[str, ...] = MEMBERS) -> SyncGroup:
    return SyncGroup(7, members, worker, lambda: cast(Any, None), Links(1.0, clock), lambda: False)


def test_the_first_member_sends_to_one_after_the_other_and_waits_for_none(clock: ManualClock, peers: Peers) -> None:
    sync_group = group("w0", clock)
    sync_group.broadcast(np.zeros(VALUES, dtype=np.float32))
    assert peers.began_s == [pytest.approx(3.0)]
    assert clock.time_s == pytest.approx(103.0)
    assert sync_group.waited_s == 0.0


def test_the_others_receive_what_was_sent(clock: ManualClock, peers: Peers) -> None:
    sync_group = group("w2", clock)
    sync_group.broadcast(np.zeros(VALUES, dtype=np.float32))
    assert peers.began_s == [0.0]
    assert clock.time_s == pytest.approx(108.0)
    assert sync_group.waited_s == pytest.approx(7.0)


def test_a_sum_takes_as_long_as_a_ring(clock: ManualClock, peers: Peers) -> None:
    sync_group = group("w1", clock)
    sync_group.sum(np.zeros(VALUES, dtype=np.float32))
    assert peers.began_s == [0.0]
    assert clock.time_s == pytest.approx(107.0 + 2 * 3 / 4)
    assert sync_group.waited_s == pytest.approx(7.0)


def test_a_group_of_one_sends_nothing(clock: ManualClock, peers: Peers) -> None:
    alone = group("w0", clock, ("w0",))
    alone.broadcast(np.zeros(VALUES, dtype=np.float32))
    alone.sum(np.zeros(VALUES, dtype=np.float32))
    assert (peers.began_s, clock.time_s, alone.waited_s) == ([], 100.0, 0.0)
