"""How long a member of a sync group waits for the others: for slow ones always, for a term that was given up never."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from dense_workers.group import GroupLeftError, SyncGroup, connect_store, host_store, use_loopback
from dense_workers.links import Links
from dense_workers.orders import LatestOrders
from dense_workers.waiting import HostClock
from geartrain.errors import RoleDiedError
from geartrain.types import Floats
from geartrain.wire.messages import CloseJob, OpenJob, Route, Shutdown

MEMBERS = ("w0", "w1")
PATIENT_S = 60.0
WAIT_FOREVER = Path(__file__).with_name("waiting_member.py")


class Looks:
    """Says whether the term is over from the `last` look on; `reached` is set at look `number`."""

    def __init__(self, number: int, last: int | None = None) -> None:
        self.reached = threading.Event()
        self._number = number
        self._last = last
        self._seen = 0

    def __call__(self) -> bool:
        self._seen += 1
        if self._seen >= self._number:
            self.reached.set()
        return self._last is not None and self._seen >= self._last


def never() -> bool:
    return False


def member(worker: str, store: Callable[[], TCPStore], is_over: Callable[[], bool] = never) -> SyncGroup:
    return SyncGroup(1, MEMBERS, worker, store, Links(None, HostClock()), is_over)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def pair(pool: ThreadPoolExecutor, is_over: Callable[[], bool]) -> tuple[SyncGroup, SyncGroup]:
    """Two members; what is asked while the group is formed is not counted as looks."""
    use_loopback()
    store, address = host_store("127.0.0.1")
    formed = [False]
    first = pool.submit(member, "w0", lambda: store, lambda: formed[0] and is_over())
    second = member("w1", lambda: connect_store(address))
    result = first.result(timeout=PATIENT_S), second
    formed[0] = True
    return result


def summed(group: SyncGroup, values: Floats) -> Floats:
    group.sum(values)
    return values


def test_a_slow_member_is_waited_for(pool: ThreadPoolExecutor) -> None:
    looks = Looks(4)
    first, second = pair(pool, looks)
    waiting: Future[Floats] = pool.submit(summed, first, np.full(5, 1.0, dtype=np.float32))
    assert looks.reached.wait(PATIENT_S), "it has waited for three tenths of a second by now"
    assert not waiting.done()
    assert summed(second, np.full(5, 2.0, dtype=np.float32)).tolist() == [3.0] * 5
    assert waiting.result(timeout=PATIENT_S).tolist() == [3.0] * 5
    assert first.waited_s > 0.25


def test_the_first_member_does_not_wait_for_who_takes_what_it_sent(pool: ThreadPoolExecutor) -> None:
    first, second = pair(pool, never)
    for step in range(3):
        first.broadcast(np.arange(step, step + 100_000, dtype=np.float32))
        received = np.zeros(100_000, dtype=np.float32)
        second.broadcast(received)
        assert (received == np.arange(step, step + 100_000)).all()
        waiting = pool.submit(summed, first, np.ones(1, dtype=np.float32))
        assert summed(second, np.ones(1, dtype=np.float32)).tolist() == [2.0]
        waiting.result(timeout=PATIENT_S)


def test_what_nobody_takes_keeps_nobody(pool: ThreadPoolExecutor) -> None:
    first, second = pair(pool, never)
    first.broadcast(np.zeros(1_000_000, dtype=np.float32))
    closing = [pool.submit(one.close) for one in (first, second)]
    for one in closing:
        one.result(timeout=PATIENT_S)


def test_a_member_that_never_comes_is_left_when_the_term_is_given_up(pool: ThreadPoolExecutor) -> None:
    first, second = pair(pool, Looks(1, last=3))
    begun_s = time.perf_counter()
    with pytest.raises(GroupLeftError, match="sync group 1"):
        first.sum(np.zeros(5, dtype=np.float32))
    first.close()
    assert time.perf_counter() - begun_s < PATIENT_S / 2, "neither leaving nor closing waits for gloo"
    second.close()


def test_a_group_that_was_left_computes_no_other_step(pool: ThreadPoolExecutor) -> None:
    """A fetched step may be in the mailbox before the word that its job is closed."""
    first, second = pair(pool, Looks(1, last=3))
    for collective in (first.sum, first.sum, first.broadcast):
        with pytest.raises(GroupLeftError, match="left sync group 1"):
            collective(np.zeros(5, dtype=np.float32))
    first.close()
    second.close()


def test_a_member_that_does_not_join_is_left_when_the_term_is_given_up() -> None:
    use_loopback()
    store, _ = host_store("127.0.0.1")
    with pytest.raises(GroupLeftError):
        member("w0", lambda: store, Looks(1, last=3))


def test_a_member_whose_connection_breaks_is_named_as_lost(pool: ThreadPoolExecutor) -> None:
    looks = Looks(2)
    first, second = pair(pool, looks)
    waiting = pool.submit(first.sum, np.zeros(5, dtype=np.float32))
    assert looks.reached.wait(PATIENT_S)
    second.close()
    error = waiting.exception(timeout=PATIENT_S)
    assert isinstance(error, RoleDiedError)
    assert error.message.startswith("sync group 1 lost a member during all-reduce: ")
    assert error.facts["members"] == list(MEMBERS)
    first.close()


def test_a_store_that_is_not_there_is_a_lost_member() -> None:
    def gone() -> TCPStore:
        raise RuntimeError("[/gloo/somewhere.cc:7] connection refused\nand where")

    with pytest.raises(RoleDiedError) as lost:
        member("w1", gone)
    assert lost.value.message == "sync group 1 lost a member while it was formed: connection refused"


def test_a_process_that_left_a_collective_ends_at_once() -> None:
    done = subprocess.run(
        [sys.executable, str(WAIT_FOREVER)], capture_output=True, text=True, timeout=PATIENT_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr


def opened(term: int) -> OpenJob:
    return OpenJob(term, "job", {}, {}, [], Route(0, [], [], []), 0)


def test_a_term_is_over_when_its_job_is_closed_or_another_one_begins() -> None:
    orders = LatestOrders()
    orders.take(opened(3))
    assert not orders.is_over(3)
    orders.take(opened(3))
    orders.take(CloseJob(2, "earlier", "late"))
    assert not orders.is_over(3), "what comes again, or late, changes nothing"
    orders.take(opened(4))
    assert (orders.is_over(3), orders.is_over(4)) == (True, False)
    orders.take(CloseJob(4, "job", "cancelled"))
    assert orders.is_over(4)


@pytest.mark.parametrize("end", [Shutdown("the coordinator stops"), RoleDiedError("silent", role="coordinator")])
def test_nobody_waits_without_a_coordinator(end: Shutdown | Exception) -> None:
    orders = LatestOrders()
    orders.take(opened(3))
    orders.take(end)
    assert orders.is_over(3)
