"""The coordinator as the API sees it (`ClusterFacade`): it checks what is submitted and asks the core in its thread."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from coordinator import adjusting, hardware_views, views
from coordinator.checkpoints import Manifest, load_manifest
from coordinator.control import ControlServer
from coordinator.core import Core
from coordinator.plan import Task
from coordinator.records import JobRecord, PastJob
from coordinator.restoring import check_restorable
from coordinator.token_counts import TokenCounts
from geartrain.config import JobConfig, parse_config
from geartrain.config.paths import resolve_root
from geartrain.config.validation import field_error
from geartrain.data.index import DatasetIndex, build_index
from geartrain.data.tokens import count_tokens
from geartrain.errors import DataFileError, NotFoundError

_T = TypeVar("_T")

log = logging.getLogger("geartrain.coordinator")

TASK_KINDS = ("train", "evaluate", "predict")
INITS = ("", "resume", "init_from")


class Cluster:
    """`ClusterFacade` over a control server. Every method may be called from any thread."""

    def __init__(self, control: ControlServer, allowed_roots: Sequence[Path], output_dir: Path, base_dir: Path) -> None:
        """Data are read below `allowed_roots` only, checkpoints also below `output_dir`, where jobs write them;
        relative roots are below `base_dir`."""
        self._control = control
        self._allowed_roots = tuple(allowed_roots)
        self._output_dir = output_dir
        self._base_dir = base_dir

    def submit(self, config: dict[str, Any], task: dict[str, Any] | None = None) -> dict[str, Any]:
        wanted = self._task(task or {})
        checked = parse_config(config, self._base_dir, self._allowed_roots)
        manifest = _manifest(wanted, checked)
        index = self._index(checked, wanted, manifest)
        name = f"{checked.name}-{secrets.token_hex(4)}"
        record = JobRecord(name, checked, wanted, index, manifest, time.time(), tokens=_tokens(checked, wanted, index))
        state = self._ask(lambda core, now_s: (core.submit(record, now_s), core.state_of(name)[0]))
        return {"id": name, "state": state}

    def jobs(self) -> list[dict[str, Any]]:
        return self._read(lambda core, now_s: views.job_views(core))

    def job(self, job: str) -> dict[str, Any]:
        return self._read(lambda core, now_s: views.job_view(core, _record(core, job)))

    def cancel(self, job: str) -> dict[str, Any]:
        def work(core: Core, now_s: float) -> tuple[list[Any], dict[str, Any]]:
            record = _record(core, job)
            commands = core.cancel(job, now_s)
            return commands, views.job_view(core, record)

        return self._ask(work)

    def metrics(self, job: str, since: float) -> list[dict[str, Any]]:
        return self._read(lambda core, now_s: [point for point in _record(core, job).points if point["time"] > since])

    def events(self, job: str, after: int) -> list[dict[str, Any]]:
        def numbered(core: Core, now_s: float) -> list[dict[str, Any]]:
            events = _record(core, job).events
            return [
                {"number": number, "time": at, "kind": kind, "message": message}
                for number, (at, kind, message) in enumerate(events, start=1)
                if number > after
            ]

        return self._read(numbered)

    def nodes(self) -> list[dict[str, Any]]:
        return self._read(lambda core, now_s: views.node_views(core, now_s, time.time()))

    def window(self) -> dict[str, Any]:
        return self._read(views.window_view)

    def set_window(self, settings: dict[str, Any]) -> dict[str, Any]:
        return self._ask(
            lambda core, now_s: (
                adjusting.change_window(core, settings, now_s),
                views.window_view(core, now_s),
            )
        )

    def portraits(self) -> list[dict[str, Any]]:
        return self._read(lambda core, now_s: hardware_views.portrait_views(core))

    def portrait(self, worker: str) -> dict[str, Any]:
        return self._read(lambda core, now_s: hardware_views.portrait_view(core, worker))

    def put_portrait(self, worker: str, samples_per_s: float) -> dict[str, Any]:
        return self._ask(
            lambda core, now_s: (
                adjusting.put_portrait(core, worker, samples_per_s, now_s),
                hardware_views.portrait_view(core, worker),
            )
        )

    def groups(self) -> dict[str, Any]:
        return self._read(lambda core, now_s: hardware_views.groups_view(core))

    def routing(self) -> dict[str, Any]:
        return self._read(lambda core, now_s: views.routing_view(core))

    def tier_stats(self) -> dict[str, Any]:
        return self._read(lambda core, now_s: views.tier_view(core))

    def readiness(self) -> tuple[bool, str]:
        if self._control.ended.is_set():
            return False, f"the coordinator has ended: {self._control.failure}"
        return self._read(_readiness)

    def control_address(self) -> str:
        return self._control.address

    def _read(self, look: Callable[[Core, float], _T]) -> _T:
        return self._control.call(lambda core, now_s: (look(core, now_s), []))

    def _ask(self, work: Callable[[Core, float], tuple[list[Any], _T]]) -> _T:
        def turned(core: Core, now_s: float) -> tuple[_T, list[Any]]:
            commands, value = work(core, now_s)
            return value, commands

        return self._control.call(turned)

    def _task(self, fields: dict[str, Any]) -> Task:
        known = {"kind": TASK_KINDS, "init": INITS, "split": ("valid", "test")}
        for name, value in fields.items():
            if name != "checkpoint" and value not in known.get(name, ()):
                expected = f"one of {', '.join(repr(one) for one in known[name])}" if name in known else "a known field"
                raise field_error(f"task.{name}", expected, value)
        task = Task(**fields)
        _check_used(task, fields)
        if not task.checkpoint:
            return task
        roots = (*self._allowed_roots, self._output_dir)
        path = resolve_root(task.checkpoint, self._base_dir, roots, "task.checkpoint")
        return Task(task.kind, str(path), task.init, task.split)

    def _index(self, config: JobConfig, task: Task, manifest: Manifest | None) -> DatasetIndex:
        """The data of a job. Whatever starts from a checkpoint sees numbers scaled as the checkpoint's training did."""
        standard = manifest.index.standard if manifest is not None else None
        index = build_index(
            config,
            splits=_splits(task),
            standard=standard,
            labeled=task.kind != "predict",
            allowed_roots=self._allowed_roots,
        )
        for table, kind in index.key_kinds.items():
            trained = manifest.index.key_kinds.get(table, kind) if manifest is not None else kind
            if trained != kind:
                raise DataFileError(
                    f"the ids of table {table} are {kind}s, those of the checkpoint {trained}s: no row would match",
                    field=f"tables.{table}",
                    value=kind,
                    expected=trained,
                )
        return index


def _tokens(config: JobConfig, task: Task, index: DatasetIndex) -> TokenCounts | None:
    """What tells long samples from short ones when a batch is shared out; None where all cost the same."""
    if task.kind != "train" or not config.heterogeneous:
        return None
    try:
        counts = count_tokens(config, index)
    except DataFileError as error:
        # A row that cannot be read fails the job when it comes to it, by name; it is no reason to refuse the config.
        log.warning("shares are not cut by tokens: %s", error)
        return None
    if counts is None:
        return None
    rows = [chunk.num_rows for chunk in index.train]
    return TokenCounts(counts, rows, config.training.seed, config.data.shuffle)


def _check_used(task: Task, fields: dict[str, Any]) -> None:
    """Raises `ConfigError` for a field that the kind of task has no use for, or lacks."""
    trains = task.kind == "train"
    if not task.checkpoint and (not trains or task.init):
        raise field_error("task.checkpoint", "a checkpoint directory", task.checkpoint)
    if trains and task.checkpoint and not task.init:
        raise field_error("task.init", "resume or init_from, beside task.checkpoint", task.init)
    if not trains and task.init:
        raise field_error("task.init", f"nothing, as task.kind is {task.kind}", task.init)
    if task.kind != "evaluate" and "split" in fields:
        raise field_error("task.split", f"nothing, as task.kind is {task.kind}", task.split)


def _manifest(task: Task, config: JobConfig) -> Manifest | None:
    """The manifest of the checkpoint that the task starts from. Raises `CheckpointError` when it cannot."""
    if not task.checkpoint:
        return None
    directory = Path(task.checkpoint)
    manifest = load_manifest(directory)
    check_restorable(directory, manifest, config, resumes=task.resumes)
    return manifest


def _splits(task: Task) -> tuple[str, ...]:
    if task.kind == "evaluate":
        return (task.split,)
    return ("test",) if task.kind == "predict" else ("train", "valid", "test")


def _record(core: Core, job: str) -> JobRecord | PastJob:
    record = core.record(job)
    if record is None:
        raise NotFoundError(f"there is no job {job!r}", field="job", value=job)
    return record


def _readiness(core: Core, now_s: float) -> tuple[bool, str]:
    servers, workers = len(core.members.joined("server")), len(core.members.joined("worker"))
    wanted = core.settings
    ready = servers >= wanted.num_servers and workers >= wanted.num_workers
    return ready, f"{servers} of {wanted.num_servers} servers, {workers} of {wanted.num_workers} workers"
