"""The coordinator's core: nodes, jobs and the one job that runs. Pure: events and time in, commands out.

It decides who belongs to the cluster and when a job starts, and hands everything else to the run (`coordinator.run`).
What goes wrong in a run ends that job with a reason; the coordinator itself goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator import journal
from coordinator.commands import ClearCuts, Command, Journal, SaveJob, Send, ShellAnswer, TermRaised, TimePassed
from coordinator.jobs import CloseJob, Job, JobCommand, JobMachine
from coordinator.membership import Lost, MemberCommand, Membership, Node, NodeRefused
from coordinator.plan import JobPlan
from coordinator.portrait_book import PortraitBook
from coordinator.portrait_memory import PortraitMemory
from coordinator.records import JobRecord, PastJob
from coordinator.routing import initial_route
from coordinator.run import JobRun
from coordinator.script import Event
from coordinator.tier_counters import TierCounters
from geartrain.errors import GeartrainError, RoleDiedError, StaleMessageError
from geartrain.wire.messages import (
    CloseJob as CloseJobMessage,
)
from geartrain.wire.messages import (
    FromNode,
    Heartbeat,
    JobClosed,
    NodeFailed,
    Refused,
    Register,
    Route,
    Staged,
)

log = logging.getLogger("geartrain.coordinator")

NODES_DEADLINE_S = 60.0
"""How long a job that could run waits for the cluster's nodes to register."""
CLOSE_DEADLINE_S = 20.0
"""How long nodes may take to give up a job."""


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """What the cluster is: its token, its lease, how many nodes a job needs, where the files of jobs go.

    With `job_folders` each job has a folder of its own, named by its id, in `output_dir`.
    """

    token: str
    lease_s: float
    num_servers: int
    num_workers: int
    output_dir: Path
    job_folders: bool = False


class Core:
    """All state of a coordinator. `unix_time` is asked for the times that people see."""

    def __init__(
        self,
        settings: CoreSettings,
        term: int,
        unix_time: Callable[[], float],
        saved: Iterable[dict[str, Any]] = (),
        portraits: PortraitMemory | None = None,
    ) -> None:
        """`saved`: the records that an earlier coordinator stored. What it had not finished has failed with it.

        `portraits`: those of earlier jobs.
        """
        self.settings = settings
        self.term = term
        self.members = Membership(settings.token, settings.lease_s)
        before = sorted(map(PastJob.restored, saved), key=lambda past: past.submitted_at)
        self.jobs = JobMachine(Job(one.id, one.state, one.reason, closed=True) for one in before)
        self.past = {one.id: one for one in before}
        self.records: dict[str, JobRecord] = {}
        self.run: JobRun | None = None
        self.last_book: PortraitBook | None = None
        self.portraits = portraits or PortraitMemory({})
        self.route: Route | None = None
        self.stats = TierCounters()
        self.unix_time = unix_time
        self._to_start: tuple[str, float] | None = None
        self._closing: tuple[str, set[str], float] | None = None
        self._suspicion: tuple[float, GeartrainError] | None = None
        self._next_group = 0
        self._lost: dict[str, str] = {}

    # --- calls of the API ---------------------------------------------------------------------------------------------

    def submit(self, record: JobRecord, now_s: float) -> list[Command]:
        """Queue a checked job."""
        self.records[record.id] = record
        self._note(record.id, "queued", "submitted")
        commands = self.jobs.submit(record.id, now_s)
        return [self._save(record.id), *self._obey(commands, now_s)]

    def record(self, job: str) -> JobRecord | PastJob | None:
        """What can be shown of a job, of this coordinator or of an earlier one."""
        return self.records.get(job) or self.past.get(job)

    def state_of(self, job: str) -> tuple[str, str]:
        """The state of a job and why, as people see it: queued until nodes are there, done when they told the last."""
        if self._to_start is not None and self._to_start[0] == job:
            there = {role: len(self.members.joined(role)) for role in ("server", "worker")}
            wanted = {"server": self.settings.num_servers, "worker": self.settings.num_workers}
            counts = " and ".join(f"{there[role]} of {wanted[role]} {role}(s)" for role in wanted)
            names = {node.name for role in there for node in self.members.joined(role)}
            lost = "".join(f", {name} is lost ({why})" for name, why in self._lost.items() if name not in names)
            return "queued", f"waits for nodes: {counts} are there{lost}"
        found = self.jobs.job(job)
        if found.state == "succeeded" and self._closing is not None and self._closing[0] == job:
            # Whoever waits for the end may look at the tier's counters then.
            return "evaluating", "done; its nodes give it up"
        return found.state, found.reason

    def cancel(self, job: str, now_s: float) -> list[Command]:
        """Cancel a job that has not ended."""
        return self._obey(self.jobs.cancel(job, "cancelled by a call", now_s), now_s)

    # --- events ------------------------------------------------------------------------------------------------------

    def member(self, event: Register | Heartbeat, now_s: float) -> list[MemberCommand]:
        """A registration or heartbeat; the shell answers the node by what comes back."""
        commands = self.members.handle(event, now_s)
        if isinstance(event, Heartbeat) and not _refused(commands):
            self.stats.take(event.node, event.stats, now_s)
        return commands

    def knows(self, node: str, incarnation: int) -> bool:
        """Whether this process is a living node."""
        try:
            self.members.node(node, incarnation)
        except GeartrainError:
            return False
        return True

    @property
    def wake_at_s(self) -> float | None:
        """When a window is due, if one is open."""
        return self.run.wake_at_s if self.run is not None else None

    def message(self, message: FromNode, now_s: float) -> list[Command]:
        """Any other message of a node that is known. Stale ones are refused by name and change nothing."""
        if isinstance(message, JobClosed):
            if self._closing is not None and self._closing[0] == message.job:
                self.stats.take(message.node, message.stats, now_s)
            return self._closed_by(message.node, message.job, now_s)
        run = self.run
        term = getattr(message, "term", self.term)
        if run is None or term != run.term:
            current = run.term if run is not None else self.term
            why = f"it is of term {term}, now is {current}" if run is not None else "no job runs"
            return self._refuse(message, why, term, current)
        if isinstance(message, NodeFailed):
            return self._node_failed(message, now_s)
        if isinstance(message, Staged):
            try:
                self.members.node(message.node, message.incarnation)
            except GeartrainError as error:
                return [Send(message.node, Refused(error.to_dict()))]
        return self._resume(message, now_s)

    def shell(self, event: ShellAnswer, now_s: float) -> list[Command]:
        """An answer of the shell. One for a job that ended meanwhile must not be taken for one for its successor."""
        if isinstance(event, TermRaised):
            self.term = event.term
        active = self.jobs.active
        return self._resume(event, now_s) if active is not None and active.id == event.job else []

    def members_lost(self, lost: Lost, now_s: float) -> list[Command]:
        """A node is gone: the running job ends, naming it, if it runs there."""
        log.warning("%s is lost: %s", lost.node.name, lost.reason)
        self._lost[lost.node.name] = lost.reason
        commands: list[Command] = []
        if self.run is not None and self.run.needs(lost.node.name, lost.node.incarnation):
            error = RoleDiedError(f"{lost.node.role} {lost.node.name} died: {lost.reason}", role=lost.node.name)
            commands += self._fail(error, now_s)
        if self._closing is not None:
            commands += self._closed_by(lost.node.name, self._closing[0], now_s)
        return commands

    def tick(self, now_s: float) -> list[Command]:
        """Time has passed: leases, deadlines, windows."""
        commands: list[Command] = []
        for command in self.members.tick(now_s):
            if isinstance(command, Lost):
                commands += self.members_lost(command, now_s)
        if self._suspicion is not None and now_s >= self._suspicion[0]:
            commands += self._fail(self._suspicion[1], now_s)
        if self._to_start is not None:
            commands += self._try_start(now_s)
        if self._closing is not None and now_s >= self._closing[2]:
            commands += self._closed(self._closing[0], f"not confirmed by {sorted(self._closing[1])}", now_s)
        if self.run is not None:
            commands += self._resume(TimePassed(), now_s)
        return commands

    # --- the running job ---------------------------------------------------------------------------------------------

    def _resume(self, event: Event, now_s: float) -> list[Command]:
        run, job = self.run, self.jobs.active
        if run is None or job is None:
            return []
        try:
            commands = run.handle(event, now_s)
            self._publish(job.id, run, now_s)
        except Exception as error:
            return self._fail(_contained(error, job.id), now_s)
        if run.result is not None:
            self.records[job.id].result = run.result
            return commands + self._end(job.id, "succeeded", "finished", now_s)
        if run.view.state != self.jobs.job(job.id).state:
            self._obey(self.jobs.advance(job.id, run.view.state, run.view.state, now_s), now_s)
        return commands

    def _publish(self, job: str, run: JobRun, now_s: float) -> None:
        """Copy what people may see of the run into the record."""
        record = self.records[job]
        if run.matcher is not None:
            self.portraits.starting_speeds.clear()  # the run has taken them over
        record.events += [(self.unix_time(), kind, message) for kind, message in run.view.events]
        for kind, message in run.view.events:
            log.info("%s: %s: %s", job, kind, message)
        run.view.events.clear()
        run.accounts.close_point(now_s, self.unix_time(), run.view.version, lambda: run.window(now_s))
        is_due = len(record.points) != len(run.accounts.points)
        if is_due:
            record.points = list(run.accounts.points)
        if run.view.groups and (is_due or not record.report):
            record.report = run.report(now_s)  # it looks at all steps: as often as the time series, not at each event
        seconds = run.accounts.seconds_until(now_s)
        record.progress = {
            "pass_index": run.view.pass_index,
            "passes": record.config.training.passes,
            "samples": run.accounts.samples_applied,
            "num_rows": record.num_rows,
            "version": run.view.version,
            "samples_per_s": run.accounts.samples_applied / seconds if seconds > 0 else 0.0,
            "loss": run.accounts.last_loss,
        }

    def _node_failed(self, message: NodeFailed, now_s: float) -> list[Command]:
        error = GeartrainError.from_dict(message.error)
        if isinstance(error, RoleDiedError):
            # A peer saw a connection break. Who died is known when the lease is over; until then this is a suspicion.
            if self._suspicion is None:
                self._suspicion = (now_s + self.settings.lease_s + 1.0, error)
            return []
        return self._fail(error, now_s)

    def _fail(self, error: GeartrainError, now_s: float) -> list[Command]:
        job = self.jobs.active
        return [] if job is None or self.run is None else self._give_up(job.id, error, now_s)

    def _give_up(self, job: str, error: GeartrainError, now_s: float) -> list[Command]:
        self.records[job].error = error.to_dict()
        return self._end(job, "failed", error.message, now_s)

    def _end(self, job: str, state: str, reason: str, now_s: float) -> list[Command]:
        return self._obey(self.jobs.advance(job, state, reason, now_s), now_s)

    def _obey(self, commands: list[JobCommand], now_s: float) -> list[Command]:
        done: list[Command] = []
        for command in commands:
            if isinstance(command, CloseJob):
                done += self._close(command, now_s)
            else:
                self._to_start = (command.job, now_s + NODES_DEADLINE_S)
                done += self._try_start(now_s)
        return done

    def _try_start(self, now_s: float) -> list[Command]:
        """Start the job that is due, once the cluster has its nodes."""
        assert self._to_start is not None
        job, deadline_s = self._to_start
        servers, workers = self.members.joined("server"), self.members.joined("worker")
        settings = self.settings
        if len(servers) < settings.num_servers or len(workers) < settings.num_workers:
            if now_s < deadline_s:
                return []
            _, why = self.state_of(job)
            self._to_start = None
            message = f"after {NODES_DEADLINE_S:g} s the job still {why}"
            return self._give_up(job, RoleDiedError(message, role="cluster"), now_s)
        self._to_start = None
        self.stats.clear()
        self.route = initial_route([node.name for node in servers], [node.address for node in servers])
        try:
            plan = self._plan(self.records[job], servers, workers, self.route)
            run = JobRun(plan, self.term, self.unix_time)
        except Exception as error:
            return self._give_up(job, _contained(error, job), now_s)
        self.run = run
        self._suspicion = None
        self._note(job, "started", f"{len(servers)} server(s), {len(workers)} worker(s)")
        return run.start(now_s)

    def _plan(self, record: JobRecord, servers: list[Node], workers: list[Node], route: Route) -> JobPlan:
        return JobPlan(
            job=record.id,
            task=record.task,
            config=record.config,
            index=record.index,
            servers={node.name: node.incarnation for node in servers},
            workers={node.name: node.incarnation for node in workers},
            devices={node.name: node.device for node in workers},
            route=route,
            output_dir=self._output_of(record),
            manifest=record.manifest,
            first_group=self._next_group,
            tokens=record.tokens,
            stored_portraits=self.portraits.known(record.config, workers),
            starting_speeds=self.portraits.starting_speeds,
        )

    # --- the end of a job --------------------------------------------------------------------------------------------

    def _close(self, command: CloseJob, now_s: float) -> list[Command]:
        """The job has ended: journal it, and let all living nodes give it up."""
        state = self.jobs.job(command.job).state
        self._note(command.job, state, command.reason)
        if self._to_start is not None and self._to_start[0] == command.job:
            self._to_start = None
        run, self.run = self.run, None
        if run is not None:
            self._next_group = run.next_group
        self._suspicion = None
        record = self.records[command.job]
        record.tokens = None  # two bytes for each row of the data, and nobody will cut them again
        done: list[Command] = [self._save(command.job)]
        if run is not None and run.matcher is not None:
            self.last_book = run.matcher.book
            done += self.portraits.remember(record.config, self.members.joined("worker"), run.matcher.portraits)
        if run is None:
            return done + self._closed(command.job, "it had not started", now_s)
        done.insert(0, Journal(command.job, (journal.encode(journal.JobEnded(run.term, state, command.reason)),)))
        nodes = [node.name for role in ("worker", "server") for node in self.members.joined(role)]
        self._closing = (command.job, set(nodes), now_s + CLOSE_DEADLINE_S)
        return done + [Send(node, CloseJobMessage(run.term, command.job, command.reason)) for node in nodes]

    def _closed_by(self, node: str, job: str, now_s: float) -> list[Command]:
        if self._closing is None or self._closing[0] != job:
            return []
        self._closing[1].discard(node)
        return [] if self._closing[1] else self._closed(job, "all nodes have closed it", now_s)

    def _closed(self, job: str, reason: str, now_s: float) -> list[Command]:
        log.info("%s is closed: %s", job, reason)
        self._closing = None
        self.stats.settle()
        record, done = self.records[job], list[Command]()
        if record.result is not None:  # only now the servers have told their last counters
            record.result = {**record.result, "embedding_tier": self.stats.row_counts()}
            done.append(self._save(job))
        if record.task.kind == "train":  # nobody writes any more: what is unfinished now stays so
            done.append(ClearCuts(self._output_of(record) / record.config.checkpoint.directory))
        return done + self._obey(self.jobs.closed(job, now_s), now_s)

    def _output_of(self, record: JobRecord) -> Path:
        root = self.settings.output_dir
        return root / record.id if self.settings.job_folders else root

    def _save(self, job: str) -> SaveJob:
        state = self.jobs.job(job)
        return SaveJob(job, self.records[job].stored(state.state, state.reason))

    def _note(self, job: str, kind: str, message: str) -> None:
        self.records[job].events.append((self.unix_time(), kind, message))
        log.info("%s: %s: %s", job, kind, message)

    def _refuse(self, message: FromNode, why: str, got: int, current: int) -> list[Command]:
        name = type(message).__name__
        error = StaleMessageError(f"{name} is refused: {why}", got=got, current=current)
        log.info("%s", error)
        return [Send(getattr(message, "node", ""), Refused(error.to_dict()))]


def _contained(error: Exception, job: str) -> GeartrainError:
    """What ends a job when its run raised; a fault of ours must not end the standing coordinator."""
    if isinstance(error, GeartrainError):
        return error
    log.error("the run of %s failed", job, exc_info=error)
    return GeartrainError(f"the run failed: {error!r}")


def _refused(commands: list[MemberCommand]) -> bool:
    return any(isinstance(command, NodeRefused) for command in commands)
