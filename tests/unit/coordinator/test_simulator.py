"""The simulator against what can be said on paper."""

from __future__ import annotations

import numpy as np
import pytest
from simulation_support import FREE, Setting, card

from coordinator.simulated_data import DrawnTokens
from coordinator.simulated_devices import Traffic
from coordinator.simulated_steps import CAUSES, COMPUTING, DEATHS, MISMATCH, PASS_END, TRANSFERS, WINDOW
from geartrain.config.simulated_cluster import SimulatedTokens
from geartrain.errors import ConfigError, GeartrainError


def test_two_equal_workers_are_twice_as_fast_as_one() -> None:
    run = Setting([card("A", 3000, count=2)]).run()
    assert run.samples_per_s == pytest.approx(6000, rel=1e-9)
    assert run.samples == 100_000
    assert run.version == 100
    assert run.staleness == {0: 100}


def test_equal_shares_are_as_fast_as_the_slowest() -> None:
    run = Setting([card("A", 6000), card("B", 4000), card("C", 2000, count=2)], heterogeneous=False).run()
    assert run.samples_per_s == pytest.approx(4 * 2000, rel=1e-9)


def test_matched_shares_reach_the_sum_but_for_whole_samples() -> None:
    run = Setting([card("A", 6000), card("B", 4000), card("C", 2000, count=2)]).run()
    assert 0.995 * 14_000 < run.samples_per_s <= 14_000


@pytest.mark.parametrize("count", [2, 4, 8, 32])
def test_jitter_costs_what_order_statistics_say(count: int) -> None:
    # The mean of the longest of k times that are uniform within 1 +- 0.2 is 1 + 0.2 (k - 1) / (k + 1).
    setting = Setting(
        [card("A", 3000, count=count, jitter=0.2)], batch_size=640, num_samples=640 * 4000, num_rows=10**7
    )
    expected = count * 3000 / (1 + 0.2 * (count - 1) / (count + 1))
    assert setting.run().samples_per_s == pytest.approx(expected, rel=0.01)


def test_a_synchronous_window_waits_for_the_slower_group() -> None:
    cards = [card("A", 4000, count=2), card("B", 1000, count=2)]
    setting = Setting(cards, mode="sync", heterogeneous=False, group_size=2)
    run = setting.run()
    assert run.samples_per_s == pytest.approx(4 * 1000, rel=1e-9)
    # Workers of the faster group compute a quarter of the time and wait for the window for the rest.
    fast = run.spent[:, 0] / run.seconds
    assert fast[COMPUTING] == pytest.approx(0.25)
    assert fast[WINDOW] == pytest.approx(0.75)


def test_asynchronous_groups_do_not_wait_and_are_stale() -> None:
    cards = [card("A", 4000, count=2), card("B", 1000, count=2)]
    run = Setting(cards, mode="async", heterogeneous=False, group_size=2, num_samples=1_000_000, num_rows=10**6).run()
    assert run.samples_per_s == pytest.approx(10_000, rel=0.01)
    assert max(run.staleness) == 4  # the slower group misses four windows of the faster one


def test_round_trips_and_the_hosts_work_add_to_every_step() -> None:
    overheads = {"round_trip_ms": 10.0, "step_ms": 30.0, "first_step_ms": 200.0, "apply_ms": 5.0}
    run = Setting([card("A", 2000)], overheads=overheads).run()
    # A step: to the worker and back 10 ms, applied after 5, the host's 30, and 1,000 samples in 500 ms.
    assert run.seconds == pytest.approx(0.2 + 100 * 0.545, rel=1e-3)


def test_a_deeper_pipeline_hides_round_trips() -> None:
    overheads = {**FREE, "round_trip_ms": 40.0, "apply_ms": 20.0}
    setting = Setting([card("A", 2000)], overheads=overheads)
    hidden = Setting([card("A", 2000)], overheads=overheads, depth=1).run()
    assert setting.run().seconds == pytest.approx(100 * 0.56, rel=1e-3)
    assert hidden.seconds == pytest.approx(100 * 0.5, rel=0.01)
    assert hidden.staleness == {0: 100}


def test_bytes_pass_at_the_bandwidth_of_the_link() -> None:
    # A sample has 10 rows of 34 bytes: 8 + 34 bytes each are pulled, 8 + 34 + 8 pushed; 1 MB/s.
    traffic = Traffic.proportional(10.0, 34.0, 0.0)
    run = Setting([card("A", 2000, bandwidth_mb_s=1.0)], traffic=traffic, overheads=FREE).run()
    servers_s = 10_000 / 2 / 30e6 + 10_000 / 2 / 20e6
    assert run.seconds == pytest.approx(100 * (0.5 + 10_000 * 92e-6 + servers_s), rel=1e-6)
    assert run.spent[TRANSFERS, 0] == pytest.approx(100 * (10_000 * 92e-6 + 10_000 / 2 / 30e6), rel=1e-3)


def test_the_share_of_a_slow_link_accounts_for_its_transfers() -> None:
    traffic = Traffic.proportional(10.0, 64.0, 40_000.0)
    cards = [card("A", 3000, count=3, bandwidth_mb_s=200), card("A", 3000, bandwidth_mb_s=5)]
    run = Setting(cards, traffic=traffic, mode="sync").run()
    assert run.worker_samples[3] < 0.75 * run.worker_samples[0]
    equal = Setting(cards, traffic=traffic, mode="sync", heterogeneous=False).run()
    assert run.samples_per_s > 1.2 * equal.samples_per_s


def test_dense_bytes_go_around_the_group() -> None:
    # 1 MB: pulled and sent on by the first member, received by the other, 2 (k - 1) / k of it summed, half pushed each.
    traffic = Traffic.proportional(0.0, 0.0, 1e6)
    run = Setting([card("A", 1000, count=2, bandwidth_mb_s=10)], traffic=traffic, heterogeneous=False).run()
    assert run.seconds == pytest.approx(100 * (0.5 + 0.1 + 0.1 + 0.1 + 0.1 + 0.05), rel=1e-3)


def test_tokens_cost_and_shares_follow_them() -> None:
    tokens = DrawnTokens(SimulatedTokens(least=1, most=50), seed=1)
    cards = [card("A", 100_000, count=4, tokens_per_s=50_000)]
    setting = Setting(cards, tokens=tokens, tokens_per_sample=25.5, mode="sync")
    run = setting.run()
    # 1,000 samples of 25.5 tokens on four cards.
    assert run.samples_per_s == pytest.approx(1000 / (250 / 100_000 + 250 * 25.5 / 50_000), rel=0.01)
    equal = Setting(cards, tokens=tokens, tokens_per_sample=25.5, heterogeneous=False).run()
    assert equal.samples_per_s < 0.98 * run.samples_per_s
    waited = float(run.spent[MISMATCH].sum() / run.spent.sum())
    assert waited < 0.005 < float(equal.spent[MISMATCH].sum() / equal.spent.sum())


def test_a_card_that_slows_down_gets_a_smaller_share() -> None:
    cards = [card("A", 4000, throttle_at_s=10, throttle_to=0.5), card("A", 4000, count=3)]
    setting = Setting(cards, num_samples=1_000_000, num_rows=1_000_000)
    run = setting.run()
    assert any("w0 needs 2.0 times its predicted step time" in reason for _, reason in run.events)
    slowed_s = next(at_s for at_s, reason in run.events if "2.0 times" in reason)
    assert 10 < slowed_s < 40
    assert run.samples / setting.capacity(run.seconds) > 0.95
    without = Setting(cards, num_samples=1_000_000, num_rows=1_000_000, heterogeneous=False).run()
    assert without.samples_per_s == pytest.approx(8000, rel=0.1)


def test_a_speed_set_too_high_is_corrected() -> None:
    setting = Setting(
        [card("A", 4000), card("B", 3000)], initial={"w1": 9000}, num_samples=400_000, num_rows=10**6, group_size=2
    )
    run = setting.run()
    assert any(reason.startswith("w1 need") for _, reason in run.events)
    assert run.worker_samples[1] / run.samples < 0.5
    assert run.samples_per_s > 0.9 * 7000


def test_a_death_costs_its_lease_and_its_step() -> None:
    setting = Setting([card("A", 1000, count=2), card("A", 1000, dies_at_s=10.0)], batch_size=300)
    run = setting.run()
    assert run.samples == 100_000
    # Three workers for 10 s, nobody for the lease of 2 s and 0.3 s of forming the group, then two.
    assert run.seconds == pytest.approx(10 + 2.3 + (100_000 - 30_000) / 2000, abs=0.2)
    assert run.spent[DEATHS, 0] == pytest.approx(2.3, abs=0.15)
    assert run.spent[:, 2].sum() == pytest.approx(10.0)
    assert "w2 died 2 s ago" in run.events[1][1]


def test_the_group_of_a_death_stands_still_and_others_go_on() -> None:
    cards = [card("A", 1000, count=2), card("B", 500), card("B", 500, dies_at_s=10.0)]
    run = Setting(cards, batch_size=300, mode="async", group_size=2, heterogeneous=False).run()
    assert run.samples == 100_000
    assert run.spent[DEATHS, 0] > 2.0  # equal shares: all groups are formed anew
    matched = Setting(cards, batch_size=300, mode="async", group_size=2).run()
    assert matched.spent[DEATHS, 0] == 0.0
    assert matched.spent[DEATHS, 2] == pytest.approx(2.3, abs=0.3)


def test_all_dead_is_an_error() -> None:
    with pytest.raises(GeartrainError, match="all workers have died"):
        Setting([card("A", 1000, count=2, dies_at_s=1.0)]).run()


def test_the_last_pass_ends_with_the_last_sample_asked_for() -> None:
    run = Setting([card("A", 1000)], num_samples=2500, num_rows=1000, batch_size=300).run()
    assert run.samples == 2500
    assert run.version == 4 + 4 + 2
    assert float(run.spent[PASS_END].sum()) == pytest.approx(0.0, abs=1e-9)


def test_samples_that_batch_norm_cannot_take_are_skipped() -> None:
    run = Setting([card("A", 1000)], num_samples=101, num_rows=101, batch_size=100, min_share=2).run()
    assert (run.samples, run.samples_skipped) in {(101, 0), (100, 1)}


def test_what_does_not_fit_the_memory_is_computed_by_others() -> None:
    cards = [card("A", 9000, memory_mb=1, sample_kb=10), card("A", 1000)]
    run = Setting(cards, mode="sync").run()
    assert run.worker_samples[0] == 100 * 100
    with pytest.raises(ConfigError, match=r"training\.batch_size"):
        Setting([card("A", 9000, count=2, memory_mb=1, sample_kb=10)], mode="sync").run()


def test_causes_have_names() -> None:
    run = Setting([card("A", 1000)]).run()
    assert run.spent.shape == (len(CAUSES), 1)
    assert np.isfinite(run.spent).all()
