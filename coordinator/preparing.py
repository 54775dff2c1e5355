"""What comes before the first step of a job: it opens on all nodes, devices are measured, groups are formed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator.events import GroupSpec
from coordinator.matching import Matcher, Matching, match_equally
from coordinator.plan import JobPlan
from coordinator.portrait_book import PortraitBook
from coordinator.script import JobScript, Script
from geartrain.errors import CheckpointError, GeartrainError
from geartrain.wire.messages import (
    DensePlaced,
    DenseSegment,
    GroupFormed,
    HostGroup,
    JobOpened,
    JoinGroup,
    OpenJob,
    PlaceDense,
    Probe,
    Probed,
    StoreListening,
)


class Preparation(JobScript):
    """The first part of a job's script. `matcher` is there once devices were measured."""

    def __init__(self, plan: JobPlan, term: int, unix_time: Callable[[], float]) -> None:
        super().__init__(plan, term, unix_time)
        self._segments: list[DenseSegment] = []
        self.matcher: Matcher | None = None

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

    def _match(self, version: int) -> Script[Matching]:
        """The first groups and shares: by measured speed, or equal."""
        plan = self._plan
        if not self._config.heterogeneous:
            return match_equally(list(plan.workers), plan.match_settings, plan.first_group)
        book = yield from self._measure(version)
        self.matcher = Matcher(plan.match_settings, book, plan.first_group)
        return self.matcher.match()

    def _measure(self, version: int) -> Script[PortraitBook]:
        """A portrait of every worker: of an earlier job on the same device, or from probes."""
        plan, settings = self._plan, self._config.portrait
        began_s = self._now_s
        settings.check_workers(list(plan.workers))
        probe = Probe(
            term=self.term,
            job=plan.job,
            num_probes=settings.num_probes,
            version=version,
            batch_size=self._config.training.batch_size,
            precision=self._config.training.precision,
        )
        unknown = [worker for worker in plan.workers if worker not in plan.stored_portraits]
        probed = yield from self._ask(Probed, dict.fromkeys(unknown, probe))
        # Only now: speeds may be set while devices are measured.
        speeds = {**{worker: one.samples_per_s for worker, one in settings.initial.items()}, **plan.starting_speeds}
        book = PortraitBook(settings.update_every_steps, speeds)
        for worker, portrait in plan.stored_portraits.items():
            book.restored(portrait)
            if worker in speeds:
                book.put(worker, speeds[worker], self._unix_time())
        for worker in unknown:
            book.probed(worker, plan.devices[worker], probed[worker].measured, self._unix_time())
        self.accounts.probe_seconds += self._now_s - began_s
        for worker, portrait in book.portraits().items():
            self._note("portrait", f"{worker}: {portrait.reason}")
        return book

    def _form_groups(self, groups: Sequence[GroupSpec], reason: str) -> Script[None]:
        hosts = {spec.members[0]: HostGroup(self.term, spec.group) for spec in groups if len(spec.members) > 1}
        listening = yield from self._ask(StoreListening, hosts)
        joining: dict[str, JoinGroup] = {}
        for spec in groups:
            address = listening[spec.members[0]].address if len(spec.members) > 1 else ""
            for member in spec.members:
                precision = self._precision(member)
                joining[member] = JoinGroup(self.term, spec.group, list(spec.members), address, precision)
        yield from self._ask(GroupFormed, joining)
        self.view.groups_formed(groups, reason)
        self._note("groups", reason)

    def _precision(self, worker: str) -> str:
        """What a worker computes in: as its portrait says, else as the config does; auto is fp32 without a portrait."""
        if self.matcher is not None:
            return self.matcher.portraits[worker].precision
        wanted = self._config.training.precision
        return "fp32" if wanted == "auto" else wanted
