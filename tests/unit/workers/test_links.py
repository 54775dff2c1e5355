"""Emulated links: bytes pass one after the other, unused time is lost, the directions do not hinder each other."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manual_clock import ManualClock

from dense_workers.links import Link, Links


def test_bytes_take_their_time() -> None:
    clock = ManualClock()
    link = Link(2.0, clock)
    assert link.spend(1_000_000) == pytest.approx(0.5)
    assert link.spend(0) == 0.0
    assert clock.time_s == pytest.approx(100.5)


def test_unused_time_is_no_credit() -> None:
    clock = ManualClock()
    link = Link(1.0, clock)
    link.spend(1000)
    clock.work(3600)
    assert link.spend(1_000_000) == pytest.approx(1.0)


def test_what_comes_while_the_link_is_busy_stands_behind() -> None:
    clock = ManualClock()
    link = Link(1.0, clock)
    assert link.reserve(2_000_000) == pytest.approx(102.0)
    clock.work(0.5)
    assert link.spend(1_000_000) == pytest.approx(2.5)


def test_directions_do_not_hinder_each_other() -> None:
    clock = ManualClock()
    links = Links(1.0, clock)
    links.up.reserve(3_000_000)
    assert links.download(1_000_000) == pytest.approx(1.0)
    assert links.upload(1_000_000) == pytest.approx(3.0)


def test_an_exchange_takes_as_long_as_its_slower_direction() -> None:
    clock = ManualClock()
    links = Links(1.0, clock)
    assert links.exchange(1_000_000) == pytest.approx(1.0)
    links.down.reserve(500_000)
    assert links.exchange(1_000_000) == pytest.approx(1.5)
    assert links.upload(1_000_000) == pytest.approx(1.0), "the direction up was free again after 1 s of these"


def test_without_a_bandwidth_nothing_is_waited_for() -> None:
    clock = ManualClock()
    links = Links(None, clock)
    assert [links.upload(10**12), links.download(10**12), links.exchange(10**12)] == [0.0, 0.0, 0.0]
    assert clock.time_s == 100.0


@given(
    st.floats(0.1, 1000),
    st.lists(st.tuples(st.integers(0, 10**7), st.floats(0, 1)), min_size=1, max_size=30),
)
def test_no_order_of_transfers_beats_the_bandwidth(bandwidth: float, transfers: list[tuple[int, float]]) -> None:
    clock = ManualClock()
    link = Link(bandwidth, clock)
    free_s = clock.time_s
    for num_bytes, pause_s in transfers:
        clock.work(pause_s)
        free_s = max(free_s, clock.time_s) + num_bytes / 1e6 / bandwidth
        link.spend(num_bytes)
        assert clock.time_s == pytest.approx(free_s)


def test_two_threads_share_a_direction() -> None:
    clock = ManualClock()
    link = Link(1.0, clock)
    threads = [threading.Thread(target=lambda: [link.reserve(1000) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert link.reserve(0) == pytest.approx(100.0 + 4 * 500 * 0.001)
