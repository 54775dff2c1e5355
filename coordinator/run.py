"""The life of one job, from its opening on all nodes to its result, written as one script.

`JobRun` is pure: messages, answers of the shell and time go in, commands come out. The script is a generator that is
resumed with the next event, so that a job's life reads from top to bottom.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordinator import journal
from coordinator.checkpoints import FORMAT, Manifest
from coordinator.commands import ClearCuts, Command, ComputeMetrics, MetricsComputed, WritePredictions
from coordinator.cutting import CutUnderWay
from coordinator.job_report import ReportBasis, heterogeneity, worker_rows
from coordinator.matching import Matching, MatchSettings, match_equally
from coordinator.observing import MatchingObserver
from coordinator.plan import JobPlan
from coordinator.preparing import Preparation
from coordinator.questions import Questions
from coordinator.run_view import brief
from coordinator.schedule import after_pass, rate_factor
from coordinator.scoring import ScoreCollector
from coordinator.script import Event, Script
from coordinator.training import Training
from geartrain.errors import ConflictError, StaleMessageError
from geartrain.wire.messages import Applied, Refused, Scores, Staged

log = logging.getLogger("geartrain.coordinator")

RESEND_S = 1.0
"""A grant that was not reported, and a decision that was not confirmed, is sent again after this long."""


class JobRun(Preparation):
    """One job. `start` and `handle` give commands; `result` is there when the script is over; faults are raised."""

    def __init__(self, plan: JobPlan, term: int, unix_time: Callable[[], float]) -> None:
        super().__init__(plan, term, unix_time)
        self._script = self._live()
        self._training: Training | None = None
        self._observer: MatchingObserver | None = None
        self._regrouping = False
        self._changed_settings: MatchSettings | None = None
        self._next_equal_group = plan.first_group + len(plan.workers)
        self._cuts = plan.cut_keeper()
        self._cut: CutUnderWay | None = None
        self._best = plan.best_pass()
        self._schedule = plan.schedule_state()
        self._evaluations = 0
        self._total_samples = plan.total_samples
        self._resend_s = 0.0
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

    def change_window(self, changes: dict[str, Any], now_s: float) -> list[Command]:
        """Close windows differently from now on (`mode`, `window_ms`). Raises `ConflictError` before the training.

        Another mode also gives the groups that a job has which begins with it; they are formed when what is in flight
        is decided.
        """
        self._now_s = now_s
        training = self._training
        if training is None:
            raise ConflictError("the job does not train yet: there is no window", expected="a job in state training")
        self._emit(training.change_window(replace(training.window_settings, **changes), now_s))
        if "mode" in changes:
            settings = self._plan.match_settings_in(changes["mode"])
            if self.matcher is not None:
                self.matcher.change(settings)
            else:
                self._changed_settings = settings
        said = ", ".join(f"{name} is {'auto' if value is None else value}" for name, value in changes.items())
        self._note("window", f"set by a call: {said}")
        return self._take_commands()

    def put_portrait(self, worker: str, samples_per_s: float, now_s: float) -> list[Command]:
        """Set a worker's speed by hand; measurement takes over from there. Raises `ConflictError` without portraits."""
        self._now_s = now_s
        matcher = self.matcher
        if matcher is None:
            raise ConflictError("the job has no portraits", expected="a job with heterogeneous: true that was probed")
        change = matcher.book.put(worker, samples_per_s, self._unix_time())
        # At other times the pass that begins next, or the new groups, take it over.
        if self._training is not None and self.view.state == "training" and not self._regrouping:
            self._change_shares(self._training, matcher.reshare(f"{worker} is {change.reason}"))
        return self._take_commands()

    def report_basis(self) -> ReportBasis:
        """What the report of the job is made from, as it is now."""
        plan, matcher = self._plan, self.matcher
        return ReportBasis(
            groups=self.view.groups,
            devices=plan.device_labels,
            portraits=matcher.portraits if matcher is not None else {},
            costs=matcher.book.costs() if matcher is not None else {},
            batch_size=self._config.training.batch_size,
            tokens_per_sample=plan.match_settings.tokens_per_sample,
            min_share=plan.min_share,
        )

    def report(self, now_s: float) -> dict[str, Any]:
        """The job's report as far as it has come."""
        seconds = self.accounts.seconds_until(now_s)
        speed = self.accounts.samples_applied / seconds if seconds > 0 else 0.0
        basis = self.report_basis()
        return {
            "workers": worker_rows(self.accounts, basis),
            "groups": [list(spec.members) for spec in self.view.groups],
            "heterogeneity": heterogeneity(self.accounts, basis, speed),
        }

    @property
    def next_group(self) -> int:
        """The first group id that the job has not used."""
        if self.matcher is not None:
            return self.matcher.next_group
        return self._next_equal_group

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
        self._emit([ClearCuts(plan.checkpoint_root)])
        matching = yield from self._match(version)
        yield from self._form_groups(matching.groups, matching.reason)
        if self.matcher is not None:
            self._observer = MatchingObserver(self.matcher, self._unix_time)
        training = self._training = Training(
            plan.training_plan(self.term, matching), version, self.accounts, self._learning_rate_factor, self._observer
        )
        self._emit(training.start(self._now_s))
        if plan.start_pass == self._config.training.passes:
            self._note("pass", f"all {plan.start_pass} passes were done before: the model is evaluated as it is")
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

    def _train_pass(self, training: Training, pass_index: int) -> Script[None]:
        """One pass, to its last applied window."""
        self.view.state, self.view.pass_index = "training", pass_index
        self._note("pass", f"pass {pass_index + 1} of {self._config.training.passes} begins")
        if self.matcher is not None:  # speeds may have been set by hand while groups were formed, or between passes
            self._change_shares(training, self.matcher.reshare("portraits as they are now"))
        self.accounts.pass_opened(self._now_s)
        self._emit(training.open_pass(pass_index, self._now_s))
        self._resend_s = self._now_s + RESEND_S
        while not training.drained:
            yield from self._training_event(training)
            if self._observer is not None:
                self._change_shares(training, self._observer.take_shares(training.version))
            yield from self._regroup(training)
        self.accounts.pass_drained(self._now_s)

    def _training_event(self, training: Training) -> Script[None]:
        """Wait for the next event and let the training take it in."""
        event = yield
        if isinstance(event, Staged):
            self._take_report(training, event)
        elif isinstance(event, Applied):
            training.applied(event.node, event.version)
        self._emit(training.tick(self._now_s))
        if self._now_s >= self._resend_s:
            self._emit(training.unconfirmed())
            self._resend_s = self._now_s + RESEND_S
        self.view.version = training.version

    def _change_shares(self, training: Training, matching: Matching | None) -> None:
        """Carry out what changed portraits ask for."""
        if matching is not None:
            self._note("shares", matching.reason)
            self.view.shares_changed(matching.groups, matching.reason)
            self._emit(training.change_shares(matching, self._now_s))

    def _regroup(self, training: Training) -> Script[None]:
        """Form other groups, if they are better now, once nothing is in flight."""
        matching = self._other_groups(training.version)
        if matching is None:
            return
        self._regrouping = True
        training.pause()
        while not training.idle:
            yield from self._training_event(training)
        yield from self._form_groups(matching.groups, matching.reason)
        self._emit(training.regroup(matching, self._now_s))
        self._regrouping = False
        if self.matcher is not None and self._observer is not None:
            # Portraits may have changed while the groups were formed: by steps, or by hand.
            changed = self._observer.take_shares(training.version)
            self._change_shares(training, self.matcher.reshare("portraits as they are now") or changed)

    def _other_groups(self, version: int) -> Matching | None:
        """Groups to form in place of those that live: by portraits, or as the mode that was set asks for."""
        if self.matcher is not None:
            return self.matcher.regroup(version)
        settings, self._changed_settings = self._changed_settings, None
        if settings is None:
            return None
        matching = match_equally(list(self._plan.workers), settings, self._next_equal_group)
        if [spec.members for spec in matching.groups] == [spec.members for spec in self.view.groups]:
            return None
        self._next_equal_group += len(matching.groups)
        return replace(matching, reason=f"sync.mode is now {settings.mode}: {matching.reason}")

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
            servers=list(plan.servers),
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
        result = self._result(metrics, str(checkpoint) if checkpoint else None, best.pass_index, version)
        return {**result, "best_by": best.metric}

    # --- tools of the script -----------------------------------------------------------------------------------------

    def _result(
        self, metrics: dict[str, dict[str, Any]], checkpoint: str | None, pass_index: int, version: int
    ) -> dict[str, Any]:
        basis = self.report_basis()
        return self._plan.result(self.accounts, self.view, basis, metrics, checkpoint, pass_index, version)

    def _learning_rate_factor(self, samples: int) -> float:
        schedule = self._config.training.lr_schedule
        return rate_factor(schedule, self._schedule, samples, self._total_samples)
