"""Jobs as the coordinator remembers them: those that were submitted to it, and what is known of earlier ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from coordinator.checkpoints import Manifest
from coordinator.plan import Task
from coordinator.token_counts import TokenCounts
from geartrain.config import JobConfig
from geartrain.data.index import DatasetIndex
from geartrain.errors import RoleDiedError
from geartrain.job_states import ENDED_STATES
from geartrain.last_end import LastEnd


@dataclass(slots=True)
class JobRecord:
    """A submitted job and what was said about it. `events` are (unix time, kind, message)."""

    id: str
    config: JobConfig
    task: Task
    index: DatasetIndex
    manifest: Manifest | None
    submitted_at: float
    error: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    points: list[dict[str, Any]] = field(default_factory=list)
    progress: dict[str, Any] = field(default_factory=dict)
    events: list[tuple[float, str, str]] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)
    tokens: TokenCounts | None = None
    num_rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_rows = self.index.num_rows("train")

    @property
    def name(self) -> str:
        return self.config.name

    def stored(self, state: str, reason: str) -> dict[str, Any]:
        """The job in this state, as plain data that `PastJob.restored` reads."""
        return {
            "id": self.id,
            "state": state,
            "reason": reason,
            "config": self.config.to_dict(),
            "task": asdict(self.task),
            "submitted_at": self.submitted_at,
            "error": self.error,
            "result": self.result,
        }


@dataclass(frozen=True, slots=True)
class PastJob:
    """What can still be shown of a job of an earlier coordinator: how it ended, not how it got there."""

    id: str
    name: str
    state: str
    reason: str
    submitted_at: float
    error: dict[str, Any] | None
    result: dict[str, Any] | None

    @property
    def points(self) -> list[dict[str, Any]]:
        return []

    @property
    def progress(self) -> dict[str, Any]:
        return {}

    @property
    def report(self) -> dict[str, Any]:
        return {}

    @property
    def events(self) -> list[tuple[float, str, str]]:
        return []

    @staticmethod
    def restored(saved: dict[str, Any]) -> PastJob:
        """The job of a stored record; what had not ended has failed with its coordinator.

        Its config may be one that this version no longer takes: nothing but its name is looked at.
        """
        saved = settled(saved, None)
        return PastJob(
            id=saved["id"],
            name=str(saved["config"].get("name", saved["id"])),
            state=saved["state"],
            reason=saved["reason"],
            submitted_at=saved["submitted_at"],
            error=saved["error"],
            result=saved["result"],
        )


def settled(saved: dict[str, Any], end: LastEnd | None) -> dict[str, Any]:
    """The stored record of a job, failed if it had not ended when its coordinator did; `end`: why, as far as known."""
    if saved["state"] in ENDED_STATES:
        return saved
    role, reason = (
        ("coordinator", "the coordinator ended before the job did") if end is None else (end.role, end.reason)
    )
    return {**saved, "state": "failed", "reason": reason, "error": RoleDiedError(reason, role=role).to_dict()}
