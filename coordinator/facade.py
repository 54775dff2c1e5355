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
        `report` is `{"workers", "groups", "heterogeneity"}` as in the result, so far, and null before it trains;
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

    def set_window(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Change `mode` ("sync", "async", "hybrid") or `window_ms` (milliseconds, or "auto") of the running job, or
        both, from the next decision on; the window as `window()` tells it then. `ConflictError` without a job that
        trains, `ConfigError` (fact field: `sync.` and the setting's name) for a value that cannot be."""

    def portraits(self) -> list[dict[str, Any]]:
        """What was measured of each worker, in the natural order of their names: `Portrait.to_dict()` with
        `samples_per_s`, the speed alone in steps as large as the largest probe; empty before the first job."""

    def portrait(self, worker: str) -> dict[str, Any]:
        """One of `portraits()` with `history`: the portraits that it replaced, oldest first. `NotFoundError`."""

    def put_portrait(self, worker: str, samples_per_s: float) -> dict[str, Any]:
        """Set the speed that a worker is taken to have until its steps tell better; the portrait as it is then.

        Of a worker that no job has measured yet it is kept as the starting value of the next job. `NotFoundError` for
        a worker that the cluster does not have, `ConfigError` (field: samples_per_s) for what is no speed.
        """

    def groups(self) -> dict[str, Any]:
        """`{"job", "generation", "reason", "groups": [{"group", "members", "batch_size", "shares", "samples_per_s"}]}`.

        `members` in rank order, `shares` by the member's name, each the part of the group's `batch_size`, which add up
        to 1; `samples_per_s` is what the portraits let expect (null while there are none). `generation` counts the
        partitions of a job from 1. Without a job that trains: job null, generation 0, "no job trains", no groups.
        """

    def routing(self) -> dict[str, Any]:
        """`{"route_epoch", "num_shards", "servers": [{"server", "address", "num_shards"}], "moves": []}`."""

    def tier_stats(self) -> dict[str, Any]:
        """`{"job", "servers": [{"server", "table", ...}], "tables": {...}, "totals": {...}}` of the embedding tier."""

    def readiness(self) -> tuple[bool, str]:
        """Whether jobs can be run now, and why (not)."""

    def control_address(self) -> str:
        """The address on which nodes register, e.g. `tcp://127.0.0.1:41234`."""
