"""The plan of a job as the coordinator made it at its start, and what is remembered from pass to pass. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator.accounts import Accounts
from coordinator.best_pass import BestPass, best_cut
from coordinator.checkpoints import DataStatistics, Manifest
from coordinator.cuts import CutKeeper
from coordinator.job_report import ReportBasis, heterogeneity, worker_rows
from coordinator.matching import Matching, MatchSettings
from coordinator.portrait import Portrait
from coordinator.schedule import ScheduleState, resumed
from coordinator.token_counts import TokenCounts
from coordinator.training import TrainingPlan
from coordinator.window import WindowSettings
from geartrain.config import JobConfig
from geartrain.data.index import DatasetIndex
from geartrain.device_label import device_label
from geartrain.wire.messages import DenseSegment, Route, TableSpec

if TYPE_CHECKING:
    from coordinator.run_view import RunView


@dataclass(frozen=True, slots=True)
class Task:
    """What a job does: `train` (`init`: `resume` or `init_from` a checkpoint), `evaluate` a split, or `predict`."""

    kind: str = "train"
    checkpoint: str = ""
    init: str = ""
    split: str = "test"

    @property
    def resumes(self) -> bool:
        """Whether training goes on where the checkpoint ends, with its optimizers' states, schedule and accounts."""
        return self.init == "resume"


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Everything that is fixed when a job starts. `servers` and `workers` map names to incarnations."""

    job: str
    task: Task
    config: JobConfig
    index: DatasetIndex
    servers: Mapping[str, int]
    workers: Mapping[str, int]
    devices: Mapping[str, str]
    route: Route
    output_dir: Path
    manifest: Manifest | None = None
    first_group: int = 0
    tokens: TokenCounts | None = None
    stored_portraits: Mapping[str, Portrait] = field(default_factory=dict)
    starting_speeds: Mapping[str, float] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.task.kind

    @property
    def split(self) -> str:
        return self.task.split

    @property
    def restore(self) -> str:
        return self.task.checkpoint

    @property
    def resumed(self) -> Manifest | None:
        """The checkpoint that training goes on from, if it does."""
        return self.manifest if self.task.resumes else None

    @property
    def restore_states(self) -> bool:
        return self.task.resumes

    @property
    def start_version(self) -> int:
        return self.manifest.version if self.manifest is not None and self.task.init != "init_from" else 0

    @property
    def start_pass(self) -> int:
        return self.manifest.passes_done if self.manifest is not None and self.task.init != "init_from" else 0

    def accounts(self) -> Accounts:
        """Accounts of the whole run: those of the checkpoint that is resumed go on."""
        if self.resumed is None:
            return Accounts()
        return Accounts(samples_applied=self.resumed.samples, train_seconds=self.resumed.train_seconds)

    def best_pass(self) -> BestPass:
        """What is known of the best pass at the start."""
        stopping = self.config.training.early_stopping
        return BestPass(stopping) if self.resumed is None else BestPass.resumed(stopping, self.resumed)

    def cut_keeper(self) -> CutKeeper:
        """The cuts at the start: those that a resumed run may come back to."""
        settings = self.config.checkpoint
        keeper = CutKeeper(self.checkpoint_root, settings.keep, settings.full_every)
        if self.resumed is not None:
            keeper.latest = Path(self.restore)
            keeper.best = best_cut(Path(self.restore), self.resumed, self.config)
        return keeper

    @property
    def checkpoint_root(self) -> Path:
        return self.output_dir / self.config.checkpoint.directory

    @property
    def predictions_path(self) -> Path:
        return self.output_dir / f"{self.job}-predictions.csv"

    @property
    def config_fields(self) -> dict[str, Any]:
        return self.config.to_dict()

    @property
    def index_fields(self) -> dict[str, Any]:
        return self.index.to_dict()

    @property
    def statistics(self) -> DataStatistics:
        """What later jobs on the checkpoint must know of the training data."""
        return DataStatistics(dict(self.index.standard), dict(self.index.key_kinds))

    @property
    def tables(self) -> list[TableSpec]:
        return self.config.table_specs()

    @property
    def dense_optimizer(self) -> dict[str, Any]:
        return self.config.training.dense_optimizer.model_dump(mode="json")

    @property
    def match_settings(self) -> MatchSettings:
        """What groups and shares are made for."""
        return match_settings(self.config, self.tokens.mean if self.tokens is not None else 0.0)

    def match_settings_in(self, mode: str) -> MatchSettings:
        """The same for a job that begins with this `sync.mode`."""
        sync = self.config.sync.model_copy(update={"mode": mode})
        return match_settings(self.config.model_copy(update={"sync": sync}), self.match_settings.tokens_per_sample)

    @property
    def device_labels(self) -> dict[str, str]:
        """Devices as results show them: of an emulated one its name."""
        return {worker: device_label(device) for worker, device in self.devices.items()}

    @property
    def min_share(self) -> int:
        """The fewest samples that a share may have, unless it has none: batch norm cannot normalize a single one."""
        return min_share(self.config)

    def rows(self, split: str) -> int:
        return self.index.num_rows(split)

    def dense_bounds(self, segments: list[DenseSegment]) -> list[int]:
        """Where the flat dense vector is cut among the servers, as evenly as whole values allow."""
        length = segments[-1].stop if segments else 0
        count = len(self.servers)
        return [length * part // count for part in range(count + 1)]

    def schedule_state(self) -> ScheduleState:
        """What the learning-rate schedule remembers at the start."""
        if self.resumed is None:
            return ScheduleState()
        before = JobConfig.from_resolved(self.resumed.config).training.lr_schedule
        return resumed(ScheduleState.from_dict(self.resumed.schedule), before, self.config.training.lr_schedule)

    @property
    def pass_versions(self) -> tuple[int, ...]:
        """The versions on which the passes before the start began: those of the checkpoint that is resumed."""
        return tuple(self.resumed.pass_versions) if self.resumed is not None else ()

    @property
    def _num_passes_told(self) -> int:
        """How many beginnings of passes servers must know: that of the pass under way, and those looked back to."""
        most = max((table.expiry.get("passes") or 0 for table in self.tables), default=0)
        return most + 1 if most else 0

    @property
    def total_samples(self) -> int:
        return self.config.training.passes * self.rows("train")

    def training_plan(self, term: int, matching: Matching) -> TrainingPlan:
        """What the training loop needs."""
        training = self.config.training
        return TrainingPlan(
            job=self.job,
            term=term,
            num_rows=self.rows("train"),
            servers=self.servers,
            workers=self.workers,
            matching=matching,
            window=window_settings(self.config),
            dense_lr=training.dense_optimizer.lr,
            sparse_lr={table.name: float(table.optimizer["lr"]) for table in self.tables},
            max_skipped_steps=training.max_skipped_steps,
            min_share=self.min_share,
            pass_versions=self.pass_versions,
            num_passes_told=self._num_passes_told,
            tokens=self.tokens,
        )

    def result(
        self,
        accounts: Accounts,
        view: RunView,
        basis: ReportBasis,
        metrics: dict[str, dict[str, Any]],
        checkpoint: str | None,
        pass_index: int,
        version: int,
    ) -> dict[str, Any]:
        """The JSON object that a finished job answers with."""
        samples, seconds = accounts.samples_applied, accounts.train_seconds
        samples_per_s = samples / seconds if seconds > 0 else 0.0
        return {
            "job": self.job,
            "state": "succeeded",
            "passes": max(view.pass_index + 1, self.start_pass) if self.kind == "train" else 0,
            "samples": samples,
            "samples_skipped": accounts.samples_skipped,
            "version": view.version,
            "probe_seconds": round(accounts.probe_seconds, 3),
            "train_seconds": round(seconds, 4),
            "samples_per_s": round(samples_per_s, 1),
            "valid": metrics.get("valid") or None,
            "test": metrics.get("test") or None,
            "workers": worker_rows(accounts, basis),
            "groups": [list(spec.members) for spec in view.groups],
            "heterogeneity": heterogeneity(accounts, basis, samples_per_s),
            "staleness": {
                "histogram": {str(key): count for key, count in sorted(accounts.staleness.items())},
                "max": max(accounts.staleness, default=0),
            },
            "best_pass": pass_index + 1,
            "best_version": version,
            "best_by": None,
            "checkpoint": checkpoint,
        }


def min_share(config: JobConfig) -> int:
    """The fewest samples that a share may have, unless it has none: batch norm cannot normalize a single one."""
    return 2 if config.model.batch_norm else 0


def match_settings(config: JobConfig, tokens_per_sample: float) -> MatchSettings:
    """What groups and shares of a job are made for."""
    sync = config.sync
    size = None if sync.group_size == "auto" else sync.group_size
    return MatchSettings(
        batch_size=config.training.batch_size,
        mode=sync.mode,
        # A window that waits for nobody is for groups that do not: auto is one worker each.
        group_size=1 if size is None and sync.mode == "async" else size,
        min_share=min_share(config),
        tokens_per_sample=tokens_per_sample,
    )


def window_settings(config: JobConfig) -> WindowSettings:
    """How the windows of a job close."""
    sync = config.sync
    return WindowSettings(
        mode=sync.mode,
        window_ms=None if sync.window_ms == "auto" else sync.window_ms,
        staleness_decay=sync.staleness_decay,
        max_staleness=None if sync.max_staleness == "auto" else sync.max_staleness,
        pipeline_depth=sync.pipeline_depth,
        step_scale=sync.step_scale,
    )
