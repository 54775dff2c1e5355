"""What the report says of workers: who has no useful share, and who costs most."""

from __future__ import annotations

import pytest
from cluster_model import steady
from hypothesis import given
from hypothesis import strategies as st
from share_support import costs, member

from coordinator.events import MemberCost
from coordinator.shares import advice, finishing_s


def test_equal_workers_are_left_in_peace() -> None:
    assert advice(4096, {f"w{at}": member(1000) for at in range(250)}) == []
    assert advice(4096, {"w0": member(1000)}) == []


def test_the_costliest_worker_at_the_speed_of_the_next_faster_one() -> None:
    workers = {"w10": member(500), "w2": member(500), "w1": member(500), "w0": member(4000)}
    (said,) = advice(4096, workers)
    assert said.worker == "w1"
    assert said.gain == pytest.approx(9000 / 5500)
    assert said.reason == (
        "costs most: 500 samples/s alone; if it were as fast as w0, 4000, training would be 1.636 times as fast"
    )


def test_a_worker_whose_fixed_cost_reaches_the_finishing_time_is_told_so() -> None:
    workers = {"w0": member(4000), "w1": member(4000), "w2": member(4000, fixed_s=2.0)}
    said = advice(4000, workers)[0]
    assert (said.worker, said.gain) == ("w2", 1.0)
    assert said.reason == (
        "no useful share: 2000.0 ms pass in a step before its first sample, and the others finish in 500.0 ms; "
        "without it training would be 1.000 times as fast"
    )


def test_a_share_far_below_an_equal_one_is_hardly_worth_it() -> None:
    said = advice(4000, {"w0": member(3960), "w1": member(40)})[0]
    assert (said.worker, said.gain) == ("w1", pytest.approx(0.99))
    assert said.reason == ("no useful share: 40 of 4000 samples; without it training would be 0.990 times as fast")
    said = advice(4000, {"w0": member(39_999), "w1": member(1)}, min_share=2)[0]
    assert "the others have finished in 100.0 ms, before its first samples" in said.reason


def test_a_worker_whose_memory_is_needed_is_not_told_to_leave() -> None:
    workers = {"w0": member(4000, max_samples=4000), "w1": member(1000, max_samples=4000, fixed_s=0.97)}
    assert [said.worker for said in advice(4000, workers)] == ["w1", "w1"]
    assert [said.worker for said in advice(4010, workers) if said.reason.startswith("no useful")] == []


def test_a_worker_whose_memory_holds_no_sample_is_told_so() -> None:
    said = advice(4000, {"w0": member(4000), "w1": member(4000, max_samples=0)})[0]
    assert (said.worker, said.gain) == ("w1", 1.0)
    assert (
        said.reason == "no useful share: its memory holds 0 samples; without it training would be 1.000 times as fast"
    )


def test_the_mean_tokens_of_a_sample_count() -> None:
    workers = {"w0": member(1000, token_s=1e-3), "w1": member(1000)}
    assert advice(1000, workers) == []
    assert advice(1000, workers, 9.0)[0].worker == "w0"


@steady
@given(st.integers(1, 3000), costs(most=8))
def test_gains_are_those_of_training_without_the_worker(batch_size: int, members: list[MemberCost]) -> None:
    workers = {f"w{at}": one for at, one in enumerate(members)}
    now_s = finishing_s(batch_size, members)
    for said in advice(batch_size, workers):
        at = int(said.worker[1:])
        if said.reason.startswith("no useful share"):
            assert said.gain == pytest.approx(now_s / finishing_s(batch_size, members[:at] + members[at + 1 :]))
            assert said.gain <= 1 + 1e-9
        else:
            assert said.gain > 1
