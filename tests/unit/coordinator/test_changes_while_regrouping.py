"""What happens between the pause for new groups and their first grant is neither waited for in vain nor forgotten."""

from __future__ import annotations

import pytest
from scripted_nodes import ScriptedNodes, data_index, job_config

from coordinator.conservation import prove_conservation
from coordinator.events import GroupSpec, StepId
from coordinator.grants import GrantMachine
from coordinator.matching import Matching
from geartrain.wire.messages import Staged


def test_a_paused_machine_has_rows_for_nobody() -> None:
    """A window that waited for a group that is granted nothing would wait for ever."""
    grants = GrantMachine(64)
    grants.set_groups([GroupSpec(0, ("w0",), 4), GroupSpec(1, ("w1",), 4)], (), 0)
    grants.open_pass(0)
    grants.grants(0)
    grants.pause()
    assert grants.round_state().with_rows == {0, 1}, "both have a step in flight"
    grants.arrived(StepId(0, 0))
    grants.decided(StepId(0, 0), 1)
    assert grants.grants(1) == []
    assert grants.round_state().with_rows == {1}
    grants.resume()
    assert grants.round_state().with_rows == {0, 1}


@pytest.mark.parametrize("seed", range(3))
def test_a_portrait_that_changes_while_groups_are_formed_counts_from_their_first_grants_on(seed: int) -> None:
    nodes = ScriptedNodes(num_workers=6, seed=seed)
    nodes.speeds = {f"w{number}": 3000.0 if number < 3 else 1000.0 for number in range(6)}
    nodes.models = {worker: f"card{speed:g}" for worker, speed in nodes.speeds.items()}
    fields = {"heterogeneous": True, "training": {"passes": 1, "batch_size": 70}, "sync": {"mode": "hybrid"}}
    nodes.submit(job_config(**fields), data_index(train=70 * 300))
    nodes.run(lambda: nodes.core.run is not None and nodes.core.run.view.version >= 20)
    run = nodes.core.run
    assert run is not None and run.matcher is not None
    matcher, observe, next_group = run.matcher, run.matcher.observe, run.matcher.next_group

    def observe_and_find_w5_slow(report: Staged, unix_time: float) -> Matching | None:
        found = observe(report, unix_time)
        if run.view.generation == 1 and matcher.next_group > next_group and matcher.portraits["w5"].source != "set":
            matcher.book.put("w5", 500.0, unix_time)
            return matcher.reshare("w5 is slow")
        return found

    setattr(matcher, "observe", observe_and_find_w5_slow)
    nodes.speeds["w0"] = 1000.0
    nodes.run(lambda: nodes.core.run is None or run.view.generation > 1)
    assert nodes.core.run is run and matcher.portraits["w5"].source == "set"
    (group,) = (spec for spec in run.view.groups if "w5" in spec.members)
    assert group.costs[group.members.index("w5")].cost.samples_per_s(70) == pytest.approx(500.0)
    nodes.run()
    prove_conservation(nodes.entries, 70 * 300, 1)
