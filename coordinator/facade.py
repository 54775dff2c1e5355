"""What the coordinator offers to the API: every method is safe to call from any thread and answers with plain data.

The shapes of the answers are those of the REST interface; `api.schemas` states them as types.
"""

from __future__ import annotations

from typing import Any, Protocol


class ClusterFacade(Protocol):
    """The coordinator as the API sees it. Unknown ids raise `NotFoundError`, calls out of order `ConflictError`."""

    def submit(self, config: dict[str, Any], task: dict[str, Any] | None = None) -> dict[str, Any]:
        """Validate a config (features, paths, headers) and queue it; `{"id", "state"}`.

        `task` says what to do (default: train): `{"kind": "train" | "evaluate" | "predict", "checkpoint": directory,
        "init": "resume" | "init_from", "split": "valid" | "test"}`. Raises `ConfigError`, `DataFileError` or
        `CheckpointError`.
        """

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, oldest first: `{"id", "name", "state", "reason", "error", "submitted_at", "progress", "result"}`"""

    def job(self, job: str) -> dict[str, Any]:
        """One job; `progress` is `{"pass_index", "passes", "samples", "num_rows", "version", "samples_per_s", "loss"}`;
        `result` is the JSON of the command line's `--json` once the job ended, else null."""

    def cancel(self, job: str) -> dict[str, Any]:
        """Cancel a queued or running job; the answer shows its state then. `ConflictError` if it has ended."""

    def metrics(self, job: str, since: float) -> list[dict[str, Any]]:
        """Time series points after Unix time `since`: `{"time", "version", "samples", "samples_per_s", "loss", "auc",
        "staleness", "queue_length"}`; `auc` is null between evaluations."""

    def events(self, job: str, after: int) -> list[dict[str, Any]]:
        """Numbered events after number `after`: `{"number", "time", "kind", "message"}`."""

    def nodes(self) -> list[dict[str, Any]]:
        """Every server and worker: `{"name", "role", "address", "device", "host", "last_heartbeat", "state"}`."""

    def window(self) -> dict[str, Any]:
        """`{"mode", "window_ms", "effective_window_ms", "open_window", "queue_length", "staleness_histogram",
        "staleness_decay", "max_staleness", "reason"}` of the running job; `ConflictError` without one."""

    def routing(self) -> dict[str, Any]:
        """`{"route_epoch", "num_shards", "servers": [{"server", "address", "num_shards"}], "moves": []}`."""

    def tier_stats(self) -> dict[str, Any]:
        """`{"job", "servers": [{"server", "table", ...}], "tables": {...}, "totals": {...}}` of the embedding tier."""

    def readiness(self) -> tuple[bool, str]:
        """Whether jobs can be run now, and why (not)."""

    def control_address(self) -> str:
        """The address on which nodes register, e.g. `tcp://127.0.0.1:41234`."""
