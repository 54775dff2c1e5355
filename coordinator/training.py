"""The steps of one job, from grant to decision: the pure machines composed, in messages and journal entries.

`Training` owns no clock and no socket. Whatever happens (a report, time passing) goes in as a call, and what is to be
done comes out as commands, journal entries before the messages that depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator import journal
from coordinator.accounts import Accounts
from coordinator.arrivals import AlreadyDecided, ArrivalCollector
from coordinator.commands import Command, Journal, Send
from coordinator.events import Arrival, Decide, GroupsChanged, StepArrived, StepId, Tick, Wait
from coordinator.grants import CutInterval, GiveGrant, GrantMachine, TokenLookup
from coordinator.matching import Matching
from coordinator.observing import StepObserver, Unobserved
from coordinator.window import WindowMachine, WindowSettings
from geartrain.errors import NonFiniteError, WireError
from geartrain.wire.messages import Apply, Contribution, Decided, Grant, GrantedInterval, Staged


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What stays the same for all steps of a job in one term.

    `pass_versions` are the versions on which the passes before it began; a decision tells the latest `num_passes_told`,
    its own among them.
    """

    job: str
    term: int
    num_rows: int
    servers: Mapping[str, int]
    workers: Mapping[str, int]
    matching: Matching
    window: WindowSettings
    dense_lr: float
    sparse_lr: Mapping[str, float]
    max_skipped_steps: int
    min_share: int
    pass_versions: tuple[int, ...] = ()
    num_passes_told: int = 0
    tokens: TokenLookup | None = None


class Training:
    """Grants steps, collects reports, decides windows.

    `rate_factor` gives the schedule's factor for the learning rates after a number of applied samples; `observer` hears
    of all steps.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        version: int,
        accounts: Accounts,
        rate_factor: Callable[[int], float],
        observer: StepObserver | None = None,
    ) -> None:
        self._plan = plan
        self._rate_factor = rate_factor
        self._accounts = accounts
        self._observer = observer or Unobserved()
        self._grants = GrantMachine(
            plan.num_rows,
            pipeline_depth=plan.window.pipeline_depth,
            min_share=plan.min_share,
            highest_group=min(spec.group for spec in plan.matching.groups) - 1,
            tokens=plan.tokens,
        )
        self._window = WindowMachine(plan.window, version)
        self._arrivals = ArrivalCollector(plan.term, plan.servers)
        self._members: dict[int, tuple[str, ...]] = {}
        self._current_grants: dict[tuple[int, int], Grant] = {}
        self._reported: dict[tuple[int, int], set[str]] = {}
        self._unconfirmed: dict[str, list[Apply]] = {server: [] for server in plan.servers}
        self.pass_versions = list(plan.pass_versions)
        self.wake_at_s: float | None = None

    @property
    def version(self) -> int:
        return self._window.version

    @property
    def drained(self) -> bool:
        """The pass is decided to its end and every server has applied it."""
        return self._grants.drained() and self.idle

    def start(self, now_s: float) -> list[Command]:
        """Make the first groups live (once, before the first pass)."""
        return self._set_groups(self._plan.matching, now_s)

    def change_shares(self, matching: Matching, now_s: float) -> list[Command]:
        """Other batches and shares for the groups that live, from the next grant on."""
        # Steps of groups that have gone may still wait for their decision.
        self._grants.set_groups(matching.groups, self._grants.undecided_arrivals(), self.version)
        batches = {spec.group: spec.batch_size for spec in matching.groups}
        return [
            self._journal(journal.SharesChanged(self._plan.term, batches, matching.reason)),
            *self._advance(now_s),
        ]

    def pause(self) -> None:
        """Grant nothing more until `regroup`; what is in flight goes on to its decision."""
        self._grants.pause()

    @property
    def idle(self) -> bool:
        """Nothing is in flight, and every server has applied what was decided."""
        return self._grants.idle and not any(self._unconfirmed.values())

    def regroup(self, matching: Matching, now_s: float) -> list[Command]:
        """Make these groups live in place of all that were, while nothing is in flight; grant again."""
        self._grants.resume()
        return [*self._set_groups(matching, now_s), *self._advance(now_s)]

    def _set_groups(self, matching: Matching, now_s: float) -> list[Command]:
        plan = self._plan
        self._members = {spec.group: spec.members for spec in matching.groups}
        self._arrivals.set_groups(self._members, plan.workers, ())
        self._grants.set_groups(matching.groups, (), self.version)
        self._window.handle(GroupsChanged(frozenset(self._members), frozenset(), now_s), self._grants.round_state())
        groups = {group: list(members) for group, members in self._members.items()}
        return [self._journal(journal.GroupsChanged(plan.term, groups, [], matching.reason))]

    def open_pass(self, pass_index: int, now_s: float) -> list[Command]:
        """Begin a pass and grant its first steps."""
        self._grants.open_pass(pass_index)
        self.pass_versions.append(self.version)
        entry = journal.PassOpened(self._plan.term, pass_index, self._plan.num_rows)
        return [self._journal(entry), *self._advance(now_s)]

    def staged(self, report: Staged, now_s: float) -> list[Command]:
        """A member's report; raises what the arrival collector refuses by name."""
        outcome = self._arrivals.handle(report)
        if isinstance(outcome, AlreadyDecided):
            again = Decided(self._plan.term, outcome.step.group, outcome.step.step, outcome.version)
            return [Send(report.node, again), *self._grants_again(report)]
        seen = self._reported.setdefault((report.group, report.step), set())
        if report.node not in seen:
            seen.add(report.node)
            self._accounts.reported(report)
            self._observer.reported(report)
        return self._arrived(outcome, now_s) if isinstance(outcome, Arrival) else []

    def tick(self, now_s: float) -> list[Command]:
        """Time has passed: a window may be due."""
        if self.wake_at_s is None or now_s < self.wake_at_s:
            return []
        return self._decide_all(Tick(now_s), now_s)

    def applied(self, server: str, version: int) -> None:
        """A server confirmed all windows up to `version`. Raises WireError for a node that is no server of the job."""
        waiting = self._unconfirmed.get(server)
        if waiting is None:
            expected = sorted(self._unconfirmed)
            raise WireError(
                f"{server} confirms version {version}, the servers are {expected}", expected=expected, got=server
            )
        self._unconfirmed[server] = [apply for apply in waiting if apply.version > version]

    def unconfirmed(self) -> Iterable[Send]:
        """Grants without a report and decisions without a confirmation, to be sent again: twice changes nothing."""
        for step, grant in self._current_grants.items():
            for member in self._members[grant.group]:
                if member not in self._reported.get(step, ()):
                    yield Send(member, grant)
        for server, waiting in self._unconfirmed.items():
            for apply in waiting:
                yield Send(server, apply)

    def change_window(self, settings: WindowSettings, now_s: float) -> list[Command]:
        """Close windows by other settings from now on."""
        self._window.change(settings)
        return self._decide_all(Tick(now_s), now_s)

    @property
    def window_settings(self) -> WindowSettings:
        """The settings by which windows close now."""
        return self._window.settings

    def snapshot(self, now_s: float) -> dict[str, Any]:
        """The state of the window for `/v1/window`."""
        return self._window.snapshot(now_s)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _journal(self, *entries: journal.Entry) -> Journal:
        return Journal(self._plan.job, tuple(journal.encode(entry) for entry in entries))

    def _arrived(self, arrival: Arrival, now_s: float) -> list[Command]:
        entry = journal.Arrived(
            term=self._plan.term,
            group=arrival.group,
            step=arrival.step,
            version=arrival.version,
            pass_index=arrival.interval.pass_index,
            start=arrival.interval.start,
            stop=arrival.interval.stop,
            workers=list(arrival.workers),
            servers=dict(arrival.servers),
        )
        self._grants.arrived(arrival.id)
        self._accounts.step_arrived(arrival.id)
        self._observer.arrived(arrival.id, arrival.workers, now_s)
        return [self._journal(entry), *self._decide_all(StepArrived(arrival, now_s), now_s)]

    def _decide_all(self, event: StepArrived | Tick, now_s: float) -> list[Command]:
        """Hand the event to the window, and go on as long as windows close."""
        commands: list[Command] = []
        (command,) = self._window.handle(event, self._grants.round_state())
        while isinstance(command, Decide):
            commands += self._carry_out(command)
            commands += self._grant(now_s)
            (command,) = self._window.handle(Tick(now_s), self._grants.round_state())
        self.wake_at_s = command.until_s if isinstance(command, Wait) else None
        return commands

    def _advance(self, now_s: float) -> list[Command]:
        return [*self._grant(now_s), *self._decide_all(Tick(now_s), now_s)]

    def _grant(self, now_s: float) -> list[Command]:
        commands: list[Command] = []
        refused: list[Arrival] = []
        for grant in self._grants.grants(self.version):
            skipped = self._arrivals.expect(grant)
            if skipped is not None:
                refused.append(skipped)
            else:
                commands += self._send_grant(grant)
                self._observer.granted(StepId(grant.group, grant.step), now_s)
        # Only now: a decision about them grants again, and no grant may overtake one that was made before it.
        for skipped in refused:
            commands += self._arrived(skipped, now_s)
        return commands

    def _send_grant(self, grant: GiveGrant) -> list[Command]:
        message = Grant(
            term=self._plan.term,
            group=grant.group,
            step=grant.step,
            version=grant.version,
            interval=_wire_interval(CutInterval(grant.interval, grant.cuts)),
            ahead=[_wire_interval(ahead) for ahead in grant.ahead],
        )
        self._current_grants[(grant.group, grant.step)] = message
        return [Send(member, message) for member in self._members[grant.group]]

    def _grants_again(self, report: Staged) -> list[Command]:
        later = [grant for (group, step), grant in self._current_grants.items() if group == report.group]
        return [Send(report.node, grant) for grant in later if grant.step > report.step]

    def _carry_out(self, decision: Decide) -> list[Command]:
        plan = self._plan
        entries: list[journal.Entry] = [
            journal.Skipped(plan.term, skipped.group, skipped.step, skipped.skipped) for skipped in decision.skipped
        ]
        sends: list[Command] = []
        if decision.contributions:
            apply = self._apply_message(decision)
            entries.append(_journal_decision(plan.term, decision, apply))
            for server in plan.servers:
                self._unconfirmed[server].append(apply)
                sends.append(Send(server, apply))
        for step in decision.steps:
            self._arrivals.decided(step, decision.version)
            self._grants.decided(step, decision.version)
            self._current_grants.pop((step.group, step.step), None)
            self._reported.pop((step.group, step.step), None)
            named = Decided(plan.term, step.group, step.step, decision.version)
            sends += [Send(member, named) for member in self._members[step.group]]
        self._accounts.decided(decision)
        self._check_skipped()
        return [self._journal(*entries), *sends]

    def _apply_message(self, decision: Decide) -> Apply:
        plan = self._plan
        contributions = [
            Contribution(
                one.arrival.group, one.arrival.step, list(one.arrival.workers), one.arrival.num_samples, one.weight
            )
            for one in decision.contributions
        ]
        factor = self._rate_factor(self._accounts.samples_applied)
        return Apply(
            term=plan.term,
            version=decision.version,
            contributions=contributions,
            divisor=decision.divisor,
            step_scale=decision.step_scale,
            most_windows=decision.most_windows,
            dense_lr=plan.dense_lr * factor,
            sparse_lr={table: lr * factor for table, lr in plan.sparse_lr.items()},
            live_groups=sorted(self._members),
            pass_versions=self.pass_versions[-plan.num_passes_told :] if plan.num_passes_told else [],
        )

    def _check_skipped(self) -> None:
        skipped, allowed = self._accounts.num_non_finite, self._plan.max_skipped_steps
        if skipped > allowed:
            raise NonFiniteError(
                f"{skipped} step(s) had gradients with NaN, Inf or values above 1e12, training.max_skipped_steps "
                f"allows {allowed}: {self._accounts.last_skip}",
                field="training.max_skipped_steps",
                num_skipped=skipped,
                allowed=allowed,
            )


def _wire_interval(cut: CutInterval) -> GrantedInterval:
    return GrantedInterval(cut.interval.pass_index, list(cut.cuts))


def _journal_decision(term: int, decision: Decide, apply: Apply) -> journal.Decided:
    return journal.Decided(
        term=term,
        version=decision.version,
        steps=[(one.group, one.step) for one in apply.contributions],
        weights=[one.weight for one in apply.contributions],
        divisor=decision.divisor,
        step_scale=decision.step_scale,
        most_windows=decision.most_windows,
        dense_lr=apply.dense_lr,
        sparse_lr=apply.sparse_lr,
        reason=decision.reason,
    )
