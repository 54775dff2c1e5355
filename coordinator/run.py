"""The life of one job, from its opening on all nodes to its result, written as one script.

`JobRun` is pure: messages, answers of the shell and time go in, commands come out. The script is a generator that is
resumed with the next event, so that a job's life reads from top to bottom.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from coordinator import journal
from coordinator.checkpoints import FORMAT, Manifest
from coordinator.commands import (
    Command,
    ComputeMetrics,
    FilesDone,
    Journal,
    MetricsComputed,
    RaiseTerm,
    Send,
    ShellEvent,
    TermRaised,
    WritePredictions,
)
from coordinator.cutting import CutUnderWay
from coordinator.plan import JobPlan
from coordinator.questions import Questions
from coordinator.run_view import RunView, brief
from coordinator.schedule import after_pass, rate_factor
from coordinator.scoring import ScoreCollector
from coordinator.training import Training
from geartrain.errors import CheckpointError, GeartrainError, StaleMessageError
from geartrain.wire.messages import (
    Applied,
    DensePlaced,
    DenseSegment,
    FromNode,
    GroupFormed,
    HostGroup,
    JobOpened,
    JoinGroup,
    OpenJob,
    PlaceDense,
    Refused,
    Scores,
    Staged,
    StoreListening,
    ToNode,
)

Event: TypeAlias = FromNode | ShellEvent
_T = TypeVar("_T")
Script: TypeAlias = Generator[None, Event, _T]

log = logging.getLogger("geartrain.coordinator")

RESEND_S = 1.0
"""A grant that was not reported, and a decision that was not confirmed, is sent again after this long."""


class JobRun:
    """One job. `start` and `handle` give commands; `result` is there when the script is over; faults are raised."""

    def __init__(self, plan: JobPlan, term: int) -> None:
        self._plan = plan
        self._config = plan.config
        self._now_s = 0.0
        self._commands: list[Command] = []
        self._script = self._live()
        self._training: Training | None = None
        self._cuts = plan.cut_keeper()
        self._cut: CutUnderWay | None = None
        self._best = plan.best_pass()
        self._schedule = plan.schedule_state()
        self._segments: list[DenseSegment] = []
        self._evaluations = 0
        self._total_samples = plan.total_samples
        self.term = term
        self.accounts = plan.accounts()
        self.view = RunView()
        self.result: dict[str, Any] | None = None

    def start(self, now_s: float) -> list[Command]:
        """Begin the script; the first commands."""
        self._now_s = now_s
        next(self._script)
        return self._take_commands()

    def handle(self, event: Event, now_s: float) -> list[Command]:
        """Resume the script with an event; commands to carry out in order."""
        self._now_s = now_s
        if self.result is None:
            self._advance_cut(event)
            try:
                self._script.send(event)
            except StopIteration as end:
                self.result = end.value
        return self._take_commands()

    @property
    def wake_at_s(self) -> float | None:
        """When a window is due, if one is open."""
        return self._training.wake_at_s if self._training is not None else None

    def needs(self, node: str, incarnation: int) -> bool:
        """Whether the job runs on this process; others of the cluster may come and go."""
        return {**self._plan.servers, **self._plan.workers}.get(node) == incarnation

    def window(self, now_s: float) -> dict[str, Any] | None:
        """The window machine's state while there is one."""
        return self._training.snapshot(now_s) if self._training is not None else None

    # --- the script --------------------------------------------------------------------------------------------------

    def _live(self) -> Script[dict[str, Any]]:
        plan = self._plan
        version = plan.start_version
        # A term of its own for each job: what a worker of an earlier job may still send is refused by its term.
        yield from self._raise_term()
        self._journal(journal.JobStarted(self.term, plan.job, version, plan.start_pass, list(plan.pass_versions)))
        yield from self._open(plan.restore, plan.restore_states, version)
        if plan.kind == "evaluate":
            metrics = yield from self._score(plan.split, version)
            return self._result({plan.split: metrics}, plan.restore, plan.start_pass - 1, version)
        if plan.kind == "predict":
            return (yield from self._predict(version))
        yield from self._form_groups()
        training = self._training = Training(
            plan.training_plan(self.term), version, self.accounts, self._learning_rate_factor
        )
        self._emit(training.start(self._now_s))
        for pass_index in range(plan.start_pass, self._config.training.passes):
            if self._best.exhausted:
                self._note("early_stopping", self._best.reason)
                break
            yield from self._train_pass(training, pass_index)
            metrics = yield from self._score("valid", training.version)
            self._journal(journal.PassEnded(self.term, pass_index, metrics))
            self._schedule = after_pass(self._config.training.lr_schedule, self._schedule, metrics)
            is_best = self._best.passed(pass_index, training.version, metrics)
            yield from self._begin_cut(pass_index, training, metrics, is_best)
        return (yield from self._finish(training.version))

    def _open(self, restore: str, restore_states: bool, version: int) -> Script[None]:
        """Open the job on all nodes in the current term, and place the dense vector."""
        plan = self._plan
        opening = OpenJob(
            term=self.term,
            job=plan.job,
            config=plan.config_fields,
            index=plan.index_fields,
            tables=plan.tables,
            route=plan.route,
            version=version,
            restore=restore,
            restore_states=restore_states,
        )
        opened = yield from self._ask(JobOpened, dict.fromkeys([*plan.servers, *plan.workers], opening))
        self._segments = self._agreed_segments({worker: opened[worker].dense for worker in plan.workers})
        placing = PlaceDense(
            term=self.term,
            job=plan.job,
            segments=self._segments,
            bounds=plan.dense_bounds(self._segments),
            optimizer=plan.dense_optimizer,
            put_by="" if restore else next(iter(plan.workers)),
        )
        # The servers first: the worker that uploads initial values must find them ready.
        for role in (plan.servers, plan.workers):
            yield from self._ask(DensePlaced, dict.fromkeys(role, placing))
        self.view.version = version

    def _agreed_segments(self, layouts: dict[str, list[DenseSegment]]) -> list[DenseSegment]:
        """The dense layout: the same on all workers and in the checkpoint that is restored."""
        segments = next(iter(layouts.values()))
        for worker, layout in layouts.items():
            if layout != segments:
                raise GeartrainError(f"worker {worker} built another model than its peers", worker=worker)
        manifest = self._plan.manifest
        if manifest is not None and manifest.segments != segments:
            pairs = zip(segments, manifest.segments, strict=False)
            different = next((one.name for one, other in pairs if one != other), "their number")
            raise CheckpointError(
                f"{self._plan.restore}: its dense parameters are of another model; first difference: {different}",
                file=self._plan.restore,
                field=different,
            )
        return segments

    def _form_groups(self) -> Script[None]:
        groups = self._plan.groups
        hosts = {spec.members[0]: HostGroup(self.term, spec.group) for spec in groups if len(spec.members) > 1}
        listening = yield from self._ask(StoreListening, hosts)
        joining: dict[str, JoinGroup] = {}
        for spec in groups:
            address = listening[spec.members[0]].address if len(spec.members) > 1 else ""
            joining |= dict.fromkeys(spec.members, JoinGroup(self.term, spec.group, list(spec.members), address))
        yield from self._ask(GroupFormed, joining)
        self.view.groups = {spec.group: spec.members for spec in groups}

    def _train_pass(self, training: Training, pass_index: int) -> Script[None]:
        """One pass, to its last applied window."""
        self.view.state, self.view.pass_index = "training", pass_index
        self._note("pass", f"pass {pass_index + 1} of {self._config.training.passes} begins")
        self.accounts.pass_opened(self._now_s)
        self._emit(training.open_pass(pass_index, self._now_s))
        resend_s = self._now_s + RESEND_S
        while not training.drained:
            event = yield
            if isinstance(event, Staged):
                self._take_report(training, event)
            elif isinstance(event, Applied):
                training.applied(event.node, event.version)
            self._emit(training.tick(self._now_s))
            if self._now_s >= resend_s:
                self._emit(training.unconfirmed())
                resend_s = self._now_s + RESEND_S
            self.view.version = training.version
        self.accounts.pass_drained(self._now_s)

    def _take_report(self, training: Training, report: Staged) -> None:
        """A report that is stale is refused by name and changes nothing."""
        try:
            self._emit(training.staged(report, self._now_s))
        except StaleMessageError as error:
            log.info("refused: %s", error)
            self._send([report.node], Refused(error.to_dict()))

    def _score(self, split: str, version: int) -> Script[dict[str, Any]]:
        """The metrics of a split on the pinned version (empty when there is no such split)."""
        if self._plan.rows(split) == 0:
            return {}
        parts = yield from self._collect_scores(split, version)
        self._emit([ComputeMetrics(self._plan.job, self._evaluations, split, parts)])
        computed = yield from self._await(MetricsComputed)
        metrics = computed.metrics
        if split == "valid":  # the time series is of one split
            self.accounts.evaluated(computed.unix_time, version, metrics)
        self._note("metrics", f"{split} at version {version}: {brief(metrics)}")
        return metrics

    def _collect_scores(self, split: str, version: int) -> Script[tuple[Scores, ...]]:
        self.view.state = "evaluating"
        self._evaluations += 1
        collector = ScoreCollector(
            self.term,
            self._evaluations,
            split,
            self._plan.rows(split),
            list(self._plan.workers),
            self._plan.kind != "predict",
        )
        questions = Questions(collector.tasks(version), self._now_s)
        self._emit(questions.first())
        while not collector.complete:
            event = yield
            if isinstance(event, Scores) and event.evaluation == self._evaluations:
                questions.heard(self._now_s)
                if collector.handle(event):
                    questions.answered(event.node, self._now_s)
            self._emit(questions.due(self._now_s))
        return collector.parts

    def _predict(self, version: int) -> Script[dict[str, Any]]:
        plan = self._plan
        parts = yield from self._collect_scores("test", version)
        self._emit([WritePredictions(plan.job, plan.predictions_path, parts)])
        yield from self._files_done()
        result = self._result({}, plan.restore, plan.start_pass - 1, version)
        return {**result, "predictions": str(plan.predictions_path), "num_predictions": plan.rows("test")}

    def _begin_cut(self, pass_index: int, training: Training, metrics: dict[str, Any], is_best: bool) -> Script[None]:
        """Fix the state at the end of a pass; its checkpoint is written while the job goes on."""
        yield from self._cut_done()
        plan, version = self._plan, training.version
        manifest = Manifest(
            format=FORMAT,
            job=plan.job,
            config=plan.config_fields,
            version=version,
            term=self.term,
            passes_done=pass_index + 1,
            samples=self.accounts.samples_applied,
            train_seconds=self.accounts.train_seconds,
            schedule=self._schedule.to_dict(),
            metrics=metrics,
            best=self._best.to_dict(),
            index=plan.statistics,
            segments=self._segments,
            dense_optimizer=plan.dense_optimizer,
            files={},
            pass_versions=list(training.pass_versions),
        )
        place = self._cuts.begin(plan.job, pass_index, version)
        self._cut = cut = CutUnderWay(self._cuts, place, manifest, is_best, plan.servers)
        self._journal(journal.CutBegun(self.term, version))
        self._emit(cut.start())
        while not cut.begun:
            yield

    def _advance_cut(self, event: Event) -> None:
        """Let the cut that is under way hear of everything, whatever the script waits for."""
        cut = self._cut
        if cut is None:
            return
        self._emit(cut.handle(event, self._now_s))
        if cut.done:
            self._cut = None
            self._journal(journal.Cut(self.term, cut.manifest.version, str(cut.place.final)))
            self._note("checkpoint", f"version {cut.manifest.version}: {cut.place.final.name}")

    def _cut_done(self) -> Script[None]:
        while self._cut is not None:
            yield

    def _finish(self, version: int) -> Script[dict[str, Any]]:
        """Test on the cut that counts: the best with early stopping, else the last."""
        best = self._best
        goes_back = best.version is not None and best.version != version
        if best.version is not None and goes_back:
            version = best.version
            self._note("best", f"back to the best pass {best.pass_index + 1}, version {version}")
            yield from self._cut_done()  # a server that opens a checkpoint gives up what it writes
            yield from self._raise_term()
            last_version = self.view.version
            yield from self._open(str(self._cuts.best), True, version)
            self.view.version = last_version
        test = yield from self._score("test", version)
        yield from self._cut_done()
        checkpoint = self._cuts.best if goes_back else self._cuts.latest
        metrics = {"valid": best.metrics, "test": test}
        return self._result(metrics, str(checkpoint) if checkpoint else None, best.pass_index, version)

    # --- tools of the script -----------------------------------------------------------------------------------------

    def _result(
        self, metrics: dict[str, dict[str, Any]], checkpoint: str | None, pass_index: int, version: int
    ) -> dict[str, Any]:
        return self._plan.result(self.accounts, self.view, metrics, checkpoint, pass_index, version)

    def _learning_rate_factor(self, samples: int) -> float:
        schedule = self._config.training.lr_schedule
        return rate_factor(schedule, self._schedule, samples, self._total_samples)

    def _ask(self, kind: type[_T], messages: Mapping[str, ToNode]) -> Script[dict[str, _T]]:
        """Send a message to each node and wait until all have answered with one of `kind`."""
        questions = Questions(messages, self._now_s)
        self._emit(questions.first())
        answers: dict[str, _T] = {}
        while questions.missing:
            event = yield
            node = getattr(event, "node", "")
            if isinstance(event, kind) and node in questions.missing:
                questions.answered(node, self._now_s)
                answers[node] = event
            self._emit(questions.due(self._now_s) if questions.missing else ())
        return answers

    def _await(self, kind: type[_T]) -> Script[_T]:
        """Wait for one event of `kind`. Raises what the shell failed with instead."""
        while True:
            event = yield
            if isinstance(event, FilesDone) and event.error is not None:
                raise GeartrainError.from_dict(event.error)
            if isinstance(event, kind):
                return event

    def _raise_term(self) -> Script[None]:
        self._emit([RaiseTerm(self._plan.job)])
        self.term = (yield from self._await(TermRaised)).term

    def _files_done(self) -> Script[None]:
        yield from self._await(FilesDone)

    def _send(self, nodes: Iterable[str], message: ToNode) -> None:
        self._emit(Send(node, message) for node in nodes)

    def _journal(self, *entries: journal.Entry) -> None:
        self._emit([Journal(self._plan.job, tuple(journal.encode(entry) for entry in entries))])

    def _note(self, kind: str, message: str) -> None:
        self.view.events.append((kind, message))

    def _emit(self, commands: Iterable[Command]) -> None:
        self._commands.extend(commands)

    def _take_commands(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands
