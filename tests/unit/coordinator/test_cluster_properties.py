"""Random lives of a cluster: whatever the order of arrivals, doubles, deadlines, deaths, new shares and new groups."""

from __future__ import annotations

from itertools import pairwise

from cluster_model import ClusterModel, outline, steady
from cluster_setting import Setting
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.arrivals import AlreadyDecided, Pending
from coordinator.conservation import prove_conservation
from coordinator.cost_model import CostModel
from coordinator.events import StepId
from coordinator.replay import replay
from geartrain.errors import StaleMessageError

SIZES = st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple)

MODES = st.sampled_from(["sync", "hybrid", "async"])
WINDOWS_MS = st.sampled_from([None, 0.0, 10.0])
COSTS = st.builds(
    CostModel,
    st.sampled_from([0.0, 0.0, 0.008]),
    st.sampled_from([0.001, 0.002, 0.005, 0.05]),
    st.sampled_from([0.0, 0.0005]),
)
UNLIKE = st.lists(COSTS, min_size=1, max_size=3).map(tuple)

SETTINGS = st.builds(
    Setting,
    mode=MODES,
    group_sizes=SIZES,
    batch_size=st.integers(1, 12),
    num_rows=st.integers(1, 90),
    depth=st.integers(0, 1),
    lookahead=st.integers(0, 3),
    min_share=st.sampled_from([0, 2]),
    window_ms=WINDOWS_MS,
    decay=st.sampled_from([0.5, 0.9, 1.0]),
    max_staleness=st.sampled_from([None, 1, 1, 3]),
    step_scale=st.booleans(),
    costs=st.just(()) | UNLIKE,
    memory=st.just((None,)) | st.lists(st.none() | st.integers(1, 8), min_size=1, max_size=3).map(tuple),
    tokens=st.just(()) | st.lists(st.integers(0, 50), min_size=1, max_size=5).map(tuple),
)


class RandomLife(RuleBasedStateMachine):
    """The model checks every decision; this machine makes life hard for it, and settles the accounts at the end."""

    @initialize(setting=SETTINGS)
    def start(self, setting: Setting) -> None:
        self.model = ClusterModel(setting)
        self.model.open_pass(0)
        self.pass_index = 0

    @rule(data=st.data())
    @precondition(lambda self: self.model.to_stage)
    def one_member_reports(self, data: st.DataObject) -> None:
        grant = self.model.to_stage[data.draw(st.sampled_from(sorted(self.model.to_stage)))]
        member = data.draw(st.sampled_from(self.model.specs[grant.group].members))
        newer = data.draw(st.integers(grant.version, self.model.window.version))
        self.model.report(grant, member, version=newer)

    @rule(data=st.data())
    @precondition(lambda self: self.model.to_stage)
    def a_whole_group_reports(self, data: st.DataObject) -> None:
        self.model.stage(data.draw(st.sampled_from(sorted(self.model.to_stage))))

    @rule(data=st.data())
    @precondition(lambda self: self.model.to_stage)
    def a_step_is_not_finite(self, data: st.DataObject) -> None:
        self.model.stage(data.draw(st.sampled_from(sorted(self.model.to_stage))), skipped="NaN or Inf")

    @rule(data=st.data())
    @precondition(lambda self: self.model.granted)
    def an_old_report_comes_again(self, data: st.DataObject) -> None:
        grant = data.draw(st.sampled_from(self.model.granted[-12:]))
        step = StepId(grant.group, grant.step)
        if step in self.model.to_stage or grant.skip:
            return
        decisions = len(self.model.decisions)
        if grant.group in self.model.specs:
            member = self.model.specs[grant.group].members[0]
            assert isinstance(self.model.report(grant, member), Pending | AlreadyDecided)
        else:
            try:
                self.model.report(grant, "w0")
                raise AssertionError("a dead group was heard")
            except StaleMessageError:
                pass
        assert len(self.model.decisions) == decisions

    @rule(ms=st.sampled_from([0.5, 4.0, 11.0, 60.0, 2500.0]))
    def time_passes(self, ms: float) -> None:
        self.model.advance(ms)

    @rule(data=st.data(), new_sizes=st.lists(st.integers(1, 2), max_size=2).map(tuple))
    def groups_change(self, data: st.DataObject, new_sizes: tuple[int, ...]) -> None:
        going = data.draw(st.sets(st.sampled_from(sorted(self.model.specs))))
        if going == set(self.model.specs) and not new_sizes:
            new_sizes = (1,)
        self.model.regroup(going, new_sizes)

    @precondition(lambda self: self.model.costs)
    @rule(costs=UNLIKE)
    def shares_change(self, costs: tuple[CostModel, ...]) -> None:
        self.model.reshare(costs)

    @precondition(lambda self: not self.model.paused)
    @rule(settles=st.booleans())
    def grants_pause(self, settles: bool) -> None:
        self.model.pause()
        if settles:
            self.model.settle()

    @precondition(lambda self: self.model.paused)
    @rule(data=st.data())
    def grants_go_on(self, data: st.DataObject) -> None:
        """With other groups of the same workers when nothing is in flight any more, else as they were."""
        if not self.model.grants.idle:
            self.model.resume()
            return
        num_workers = sum(len(spec.members) for spec in self.model.specs.values())
        ends = data.draw(st.sets(st.integers(1, num_workers), max_size=3)) | {0, num_workers}
        self.model.regroup_all([stop - start for start, stop in pairwise(sorted(ends))])

    @rule(mode=MODES, window_ms=WINDOWS_MS)
    def a_person_changes_the_window(self, mode: str, window_ms: float | None) -> None:
        self.model.change_window(mode, window_ms)

    @precondition(lambda self: self.model.grants.drained() and not self.model.paused)
    @rule()
    def next_pass(self) -> None:
        self.model.end_pass(self.pass_index)
        self.pass_index += 1
        self.model.open_pass(self.pass_index)

    @invariant()
    def steps_in_flight_are_bounded(self) -> None:
        per_group: dict[int, int] = {}
        for step in self.model.grants.round_state().in_flight:
            per_group[step.group] = per_group.get(step.group, 0) + 1
        assert all(count <= 1 + self.model.setting.depth for count in per_group.values())

    @invariant()
    def the_journal_agrees(self) -> None:
        state = replay(self.model.entries)
        assert state.version == self.model.window.version
        assert sorted(state.undecided) == self.model.grants.undecided_arrivals()
        assert self.model.window.snapshot(self.model.now_s)["queue_length"] == len(state.undecided)

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        self.model.drain()
        self.model.end_pass(self.pass_index)
        num_passes = self.pass_index + 1
        report = prove_conservation(self.model.entries, self.model.setting.num_rows, num_passes)
        assert report.samples_applied + report.samples_skipped == self.model.setting.num_rows * num_passes


RandomLife.TestCase.settings = settings(steady, max_examples=100, stateful_step_count=40)
TestRandomLife = RandomLife.TestCase


def run_in_order(setting: Setting, random_order: st.DataObject, max_gap_ms: float = 0.0) -> ClusterModel:
    """One pass in which the granted steps are staged in a drawn order, with drawn gaps between them."""
    model = ClusterModel(setting)
    model.open_pass(0)
    while model.to_stage:
        model.stage(random_order.draw(st.sampled_from(sorted(model.to_stage))))
        if max_gap_ms:
            model.advance(random_order.draw(st.floats(0, max_gap_ms)))
    assert model.grants.drained()
    return model


SYNC_SETTINGS = st.builds(
    Setting,
    group_sizes=SIZES,
    batch_size=st.integers(4, 12),
    num_rows=st.integers(1, 60),
    depth=st.integers(0, 1),
    lookahead=st.integers(0, 3),
)


@settings(steady, max_examples=60)
@given(SYNC_SETTINGS, st.data())
def test_sync_decisions_do_not_depend_on_the_order_of_arrivals(setting: Setting, data: st.DataObject) -> None:
    one, other = run_in_order(setting, data), run_in_order(setting, data, max_gap_ms=5000)
    assert [outline(decision) for decision in one.decisions] == [outline(decision) for decision in other.decisions]
    assert one.granted == other.granted


@settings(steady, max_examples=60)
@given(SYNC_SETTINGS, st.data())
def test_hybrid_is_sync_when_all_arrive_inside_the_window(setting: Setting, data: st.DataObject) -> None:
    in_sync = run_in_order(setting, data)
    # A window of 2 s, and at most 2 x 4 arrivals in one: gaps of up to 200 ms never reach the deadline.
    hybrid_setting = Setting(**{**setting.__dict__, "mode": "hybrid", "window_ms": 2000.0})
    hybrid = run_in_order(hybrid_setting, data, max_gap_ms=200)
    assert [outline(decision) for decision in hybrid.decisions] == [outline(decision) for decision in in_sync.decisions]


@settings(steady, max_examples=60)
@given(SYNC_SETTINGS, st.data())
def test_one_group_is_synchronous_in_every_mode(setting: Setting, data: st.DataObject) -> None:
    alone = {**setting.__dict__, "group_sizes": (2,), "window_ms": 0.0}
    runs = [run_in_order(Setting(**{**alone, "mode": mode}), data, 100) for mode in ("sync", "hybrid", "async")]
    outlines = [[outline(decision) for decision in run.decisions] for run in runs]
    assert outlines[0] == outlines[1] == outlines[2]
    assert all(decision.step_scale == 1 for decision in runs[0].decisions)


@settings(steady, max_examples=60)
@given(SYNC_SETTINGS)
def test_sync_rounds_of_several_groups_cover_the_global_batches(setting: Setting) -> None:
    model = ClusterModel(setting)
    model.open_pass(0)
    model.drain()
    size = setting.batch_size
    for number, decision in enumerate(model.decisions):
        covered = [position for one in decision.contributions for position in span(one.arrival.interval)]
        assert covered == list(range(number * size, min((number + 1) * size, setting.num_rows)))


def span(interval) -> range:
    return range(interval.start, interval.stop)
