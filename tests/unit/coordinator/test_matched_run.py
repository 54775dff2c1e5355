"""A whole job whose workers are unlike, on scripted nodes: probes, shares by speed, corrections, other groups."""

from __future__ import annotations

import numpy as np
import pytest
from scripted_nodes import ScriptedNodes, data_index, job_config

from coordinator import adjusting, hardware_views, journal
from coordinator.conservation import prove_conservation
from coordinator.matching import Matching
from coordinator.token_counts import TokenCounts
from geartrain.errors import ConfigError, ConflictError, NotFoundError
from geartrain.wire import messages as wire

UNLIKE = {"w0": 3000.0, "w1": 2000.0, "w2": 1000.0, "w3": 1000.0}


def unlike_nodes(speeds: dict[str, float] = UNLIKE, seed: int = 0) -> ScriptedNodes:
    nodes = ScriptedNodes(num_workers=len(speeds), seed=seed)
    nodes.speeds = dict(speeds)
    nodes.models = {worker: f"card{speed:g}" for worker, speed in speeds.items()}
    return nodes


def config(**sync: object) -> dict[str, object]:
    return {
        "heterogeneous": True,
        "training": {"passes": 1, "batch_size": 70},
        "sync": {"mode": "hybrid", "window_ms": 5, **sync},
    }


def shares(nodes: ScriptedNodes, since: int = 0) -> dict[str, list[int]]:
    """Samples of each worker's steps, in the order of the grants from the `since`-th message on."""
    members: dict[int, list[str]] = {}
    found: dict[str, list[int]] = {}
    for place, (node, message) in enumerate(nodes.sent):
        if isinstance(message, wire.JoinGroup):
            members[message.group] = message.members
        if isinstance(message, wire.Grant) and place >= since:
            rank = members[message.group].index(node)
            found.setdefault(node, []).append(message.interval.cuts[rank + 1] - message.interval.cuts[rank])
    return found


def test_workers_get_what_they_can_do_in_the_same_time() -> None:
    nodes = unlike_nodes()
    job = nodes.submit(job_config(**config()), data_index(train=700))
    nodes.run()
    result = nodes.core.records[job].result
    assert result is not None
    assert result["groups"] == [["w0", "w1"], ["w2", "w3"]]
    for worker, sizes in shares(nodes).items():
        assert all(size == round(UNLIKE[worker] / 100) for size in sizes[:5]), (worker, sizes)
    assert [row["solo_samples_per_s"] for row in result["workers"]] == [3000.0, 2000.0, 1000.0, 1000.0]
    assert result["heterogeneity"]["sum_of_solo_samples_per_s"] == 7000.0
    assert result["heterogeneity"]["equal_shares_samples_per_s"] == pytest.approx(4000.0, rel=0.03)
    assert result["heterogeneity"]["imbalance"]["p90"] == pytest.approx(1.0, abs=0.1)
    prove_conservation(nodes.entries, 700, 1)


def test_equal_shares_without_heterogeneous() -> None:
    nodes = unlike_nodes()
    job = nodes.submit(job_config(**{**config(), "heterogeneous": False}), data_index(train=280))
    nodes.run()
    result = nodes.core.records[job].result
    assert result is not None
    assert result["groups"] == [["w0", "w1", "w2", "w3"]]
    assert not any(isinstance(message, wire.Probe) for _, message in nodes.sent)
    assert {size for sizes in shares(nodes).values() for size in sizes} <= {17, 18}
    assert result["heterogeneity"]["throughput_over_sum_of_solo"] is None


def test_like_workers_share_equally_in_one_group() -> None:
    nodes = ScriptedNodes(num_workers=4)
    nodes.speeds = {"w0": 1000.0, "w1": 1040.0, "w2": 980.0, "w3": 1010.0}
    job = nodes.submit(job_config(**config()), data_index(train=280))
    nodes.run()
    result = nodes.core.records[job].result
    assert result is not None
    assert result["groups"] == [["w0", "w1", "w2", "w3"]]
    assert {size for sizes in shares(nodes).values() for size in sizes} <= {17, 18}


def test_groups_of_one_in_async_mode() -> None:
    nodes = unlike_nodes()
    job = nodes.submit(job_config(**config(mode="async")), data_index(train=280))
    nodes.run()
    result = nodes.core.records[job].result
    assert result is not None
    assert sorted(result["groups"]) == [["w0"], ["w1"], ["w2"], ["w3"]]
    prove_conservation(nodes.entries, 280, 1)


def test_a_card_that_slows_down_gets_less() -> None:
    nodes = unlike_nodes()
    nodes.submit(job_config(**config(group_size=4)), data_index(train=70 * 120))
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 20)
    nodes.speeds["w0"] = 1500.0
    nodes.run()
    last = {worker: sizes[-2] for worker, sizes in shares(nodes).items()}  # the very last step may be a short one
    assert last["w0"] < last["w1"]
    assert sum(last.values()) == 70
    reasons = [entry.reason for entry in nodes.entries if isinstance(entry, journal.SharesChanged)]
    assert reasons
    assert "w0" in reasons[0]
    prove_conservation(nodes.entries, 70 * 120, 1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pipeline_depth", [0, 1])
def test_groups_are_formed_anew_when_a_card_becomes_another(seed: int, pipeline_depth: int) -> None:
    speeds = {f"w{number}": 3000.0 if number < 3 else 1000.0 for number in range(6)}
    nodes = unlike_nodes(speeds, seed)
    nodes.submit(job_config(**config(pipeline_depth=pipeline_depth)), data_index(train=70 * 400))
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 20)
    assert nodes.core.run is not None
    assert [set(spec.members) for spec in nodes.core.run.view.groups] == [{"w0", "w1", "w2"}, {"w3", "w4", "w5"}]
    before = {spec.group for spec in nodes.core.run.view.groups}
    nodes.speeds["w0"] = 1000.0
    nodes.run(lambda: nodes.core.run is None or nodes.core.run.view.generation > 1)
    assert nodes.core.run is not None, "the job ended before groups were formed anew"
    after = nodes.core.run.view.groups
    assert [set(spec.members) for spec in after] == [{"w1", "w2"}, {"w0", "w3", "w4", "w5"}]
    assert not before & {spec.group for spec in after}
    nodes.run()
    assert nodes.core.records["job0"].result is not None
    prove_conservation(nodes.entries, 70 * 400, 1)


def test_a_portrait_set_by_hand_counts_at_once_and_is_corrected() -> None:
    nodes = unlike_nodes()
    nodes.submit(job_config(**config(group_size=4)), data_index(train=70 * 200))
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 5)
    nodes.deliver(adjusting.put_portrait(nodes.core, "w3", 3000.0, nodes.now_s))
    assert hardware_views.portrait_view(nodes.core, "w3")["source"] == "set"
    version = nodes.core.run.view.version if nodes.core.run is not None else 0
    place = len(nodes.sent)
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= version + 4)
    assert shares(nodes, place)["w3"][-1] == pytest.approx(23, abs=2)
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= version + 60)
    assert shares(nodes)["w3"][-1] == pytest.approx(10, abs=1)
    assert hardware_views.portrait_view(nodes.core, "w3")["source"] == "steps"


def test_what_cannot_be_set_is_refused_by_name() -> None:
    nodes = unlike_nodes()
    with pytest.raises(NotFoundError, match="w9"):
        adjusting.put_portrait(nodes.core, "w9", 10.0, 0.0)
    with pytest.raises(NotFoundError, match="s0"):
        adjusting.put_portrait(nodes.core, "s0", 10.0, 0.0)
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="samples_per_s"):
            adjusting.put_portrait(nodes.core, "w0", wrong, 0.0)
    with pytest.raises(ConflictError):
        adjusting.change_window(nodes.core, {"window_ms": 5}, 0.0)


def test_a_speed_set_before_any_job_is_where_the_next_one_begins() -> None:
    nodes = unlike_nodes()
    adjusting.put_portrait(nodes.core, "w3", 3000.0, 0.0)
    assert hardware_views.portrait_view(nodes.core, "w3")["samples_per_s"] == 3000.0
    nodes.submit(job_config(**config(group_size=4)), data_index(train=700))
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 1)
    assert shares(nodes)["w3"][0] == pytest.approx(23, abs=1)


def test_the_second_job_on_the_same_devices_needs_no_probes() -> None:
    nodes = unlike_nodes()
    nodes.submit(job_config(**config()), data_index(train=140))
    nodes.run()
    first = sum(isinstance(message, wire.Probe) for _, message in nodes.sent)
    nodes.submit(job_config(**config()), data_index(train=140))
    nodes.run()
    assert first == 4
    assert sum(isinstance(message, wire.Probe) for _, message in nodes.sent) == 4
    changed = {**config(), "model": {"type": "deepfm", "embedding_dim": 4, "hidden": [2]}}
    nodes.submit(job_config(**changed), data_index(train=140))
    nodes.run()
    assert sum(isinstance(message, wire.Probe) for _, message in nodes.sent) == 8, "another model costs something else"


def test_the_window_can_be_changed_while_a_job_trains() -> None:
    nodes = unlike_nodes()
    nodes.submit(job_config(**config()), data_index(train=1400))
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 2)
    nodes.deliver(adjusting.change_window(nodes.core, {"mode": "async", "window_ms": 7.0}, nodes.now_s))
    assert nodes.core.run is not None
    window = nodes.core.run.window(nodes.now_s)
    assert window is not None
    assert (window["mode"], window["window_ms"]) == ("async", 7.0)
    with pytest.raises(ConfigError, match="window_ms"):
        adjusting.change_window(nodes.core, {"window_ms": -1.0}, nodes.now_s)
    nodes.run()
    prove_conservation(nodes.entries, 1400, 1)


def test_a_starting_speed_for_a_worker_that_is_not_there_fails_the_job_by_name() -> None:
    nodes = unlike_nodes()
    job = nodes.submit(
        job_config(**{**config(), "portrait": {"initial": {"w7": {"samples_per_s": 10.0}}}}), data_index(train=70)
    )
    nodes.run()
    error = nodes.core.records[job].error
    assert error is not None
    assert error["field"] == "portrait.initial.w7"


def test_a_speed_set_between_jobs_is_shown_and_serves_one_job() -> None:
    nodes = unlike_nodes()
    nodes.submit(job_config(**config(group_size=4)), data_index(train=140))
    nodes.run()
    adjusting.put_portrait(nodes.core, "w3", 3000.0, nodes.now_s)
    assert hardware_views.portrait_view(nodes.core, "w3")["samples_per_s"] == 3000.0
    assert {one["worker"]: one["source"] for one in hardware_views.portrait_views(nodes.core)}["w3"] == "set"
    place = len(nodes.sent)
    nodes.submit(job_config(**config(group_size=4)), data_index(train=140))
    nodes.run()
    assert shares(nodes, place)["w3"][0] == pytest.approx(23, abs=1)
    assert nodes.core.portraits.starting_speeds == {}, "the next job begins with what steps have told since"


def test_a_speed_set_while_devices_are_measured_counts() -> None:
    nodes = unlike_nodes()
    nodes.never_answer = {"w0"}
    nodes.submit(job_config(**config(group_size=4)), data_index(train=700))
    nodes.run(lambda: any(isinstance(message, wire.OpenJob) for _, message in nodes.sent))
    adjusting.put_portrait(nodes.core, "w3", 3000.0, nodes.now_s)
    nodes.never_answer.clear()
    nodes.pass_time(3.0)
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 1)
    assert shares(nodes)["w3"][0] == pytest.approx(23, abs=1)


def test_a_speed_set_while_the_first_groups_are_formed_counts_from_the_first_step() -> None:
    nodes = unlike_nodes()
    nodes.submit(job_config(**config(group_size=4)), data_index(train=700))
    nodes.run(lambda: any(isinstance(message, wire.JoinGroup) for _, message in nodes.sent))
    nodes.deliver(adjusting.put_portrait(nodes.core, "w3", 3000.0, nodes.now_s))
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 1)
    assert shares(nodes)["w3"][0] == pytest.approx(23, abs=1)


def test_a_speed_set_between_two_passes_counts_from_the_next_one() -> None:
    nodes = unlike_nodes()
    fields = {**config(group_size=4), "training": {"passes": 2, "batch_size": 70}}
    nodes.submit(job_config(**fields), data_index(train=140))
    nodes.run(lambda: any(isinstance(message, wire.Evaluate) for _, message in nodes.sent))
    place = len(nodes.sent)
    nodes.deliver(adjusting.put_portrait(nodes.core, "w3", 3000.0, nodes.now_s))
    nodes.run()
    assert shares(nodes, place)["w3"][0] == pytest.approx(23, abs=1)
    prove_conservation(nodes.entries, 140, 2)


def test_a_speed_set_after_the_last_pass_writes_nothing_of_an_older_term() -> None:
    nodes = unlike_nodes()
    nodes.aucs = [0.6, 0.5, 0.5]
    training = {"passes": 9, "batch_size": 70, "early_stopping": {"metric": "auc", "patience": 1}}
    nodes.submit(job_config(**{**config(group_size=4), "training": training}), data_index(train=140))
    nodes.run(lambda: any(isinstance(one, wire.Evaluate) and one.split == "test" for _, one in nodes.sent))
    assert nodes.core.run is not None
    term, place = nodes.core.run.term, len(nodes.entries)
    nodes.deliver(adjusting.put_portrait(nodes.core, "w3", 3000.0, nodes.now_s))
    nodes.run()
    assert nodes.core.records["job0"].result is not None
    assert {entry.term for entry in nodes.entries[place:]} == {term}


def test_a_job_that_has_ended_keeps_no_tokens_of_its_rows() -> None:
    nodes = unlike_nodes()
    job = nodes.submit(job_config(**config()), data_index(train=140))
    nodes.core.records[job].tokens = TokenCounts(np.ones(140, dtype=np.uint16), [140], seed=1, shuffle=True)
    nodes.run()
    assert nodes.core.records[job].result is not None
    assert nodes.core.records[job].tokens is None


def test_portraits_are_still_shown_after_a_job_that_only_evaluates() -> None:
    nodes = unlike_nodes()
    nodes.submit(job_config(**config()), data_index(train=140))
    nodes.run()
    shown = hardware_views.portrait_views(nodes.core)
    nodes.submit(job_config(heterogeneous=False), data_index(train=140))
    nodes.run()
    assert len(shown) == 4
    assert hardware_views.portrait_views(nodes.core) == shown


def test_groups_that_need_longer_for_themselves_get_smaller_batches() -> None:
    """The members of the slow pair need no longer than they say, but their steps arrive late: what they do together
    takes long."""
    nodes = unlike_nodes()
    nodes.submit(job_config(**config(window_ms=0)), data_index(train=70 * 100))
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 1)
    assert nodes.core.run is not None
    matcher = nodes.core.run.matcher
    assert matcher is not None
    fast, slow = nodes.core.run.view.groups
    for _ in range(30):
        matcher.step_took(fast.group, 0.010, [0.010, 0.010])
        matcher.step_took(slow.group, 0.014, [0.010, 0.010])
    changed = matcher.rebalance(1000, 0.0)
    assert changed is not None
    assert "what groups need beside their members' own times" in changed.reason
    sizes = {spec.group: spec.batch_size for spec in changed.groups}
    assert sum(sizes.values()) == 70
    # 5,000 a second for t, and 2,000 a second for t - 4 ms, make 70 samples in 11.1 ms.
    assert sizes[slow.group] == pytest.approx(14, abs=1)
    assert matcher.rebalance(1000, 0.0) is None
    nodes.run()
    prove_conservation(nodes.entries, 70 * 100, 1)


@pytest.mark.parametrize("true_speed", [1000.0, 40.0])
def test_a_worker_that_gets_nothing_by_a_wrong_portrait_is_tried(true_speed: float) -> None:
    """No step could ever correct the portrait of a worker that has none."""
    nodes = unlike_nodes({**UNLIKE, "w3": true_speed})
    initial = {"portrait": {"initial": {"w3": {"samples_per_s": 1.0}}}}
    nodes.submit(job_config(**{**config(group_size=4), **initial}), data_index(train=70 * 300))
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 5)
    assert shares(nodes)["w3"][-1] == 0
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 150)
    assert nodes.core.run is not None
    reasons = [entry.reason for entry in nodes.entries if isinstance(entry, journal.SharesChanged)]
    assert "w3 gets nothing by its portrait and is tried" in reasons[0]
    assert nodes.core.run.matcher is not None
    assert nodes.core.run.matcher.portraits["w3"].source == "steps"
    assert shares(nodes)["w3"][-1] == pytest.approx(70 * true_speed / (6000 + true_speed), abs=1)
    nodes.run()
    prove_conservation(nodes.entries, 70 * 300, 1)


def test_a_lag_never_leaves_a_group_without_a_batch() -> None:
    nodes = unlike_nodes()
    nodes.submit(job_config(**config(window_ms=0)), data_index(train=70 * 60))
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 1)
    assert nodes.core.run is not None
    matcher = nodes.core.run.matcher
    assert matcher is not None
    fast, slow = nodes.core.run.view.groups
    for _ in range(70):  # lags of more than a step, again and again
        matcher.step_took(fast.group, 0.010, [0.010, 0.010])
        matcher.step_took(slow.group, 9.0, [0.010, 0.010])
        matcher.rebalance(10_000, 0.0)
    batches = {spec.group: spec.batch_size for spec in (matcher.reshare("look again") or fast_and_slow(nodes)).groups}
    assert min(batches.values()) > 0
    nodes.run()
    prove_conservation(nodes.entries, 70 * 60, 1)


def fast_and_slow(nodes: ScriptedNodes) -> Matching:
    """The groups as they live."""
    assert nodes.core.run is not None
    return Matching(nodes.core.run.view.groups, "")
