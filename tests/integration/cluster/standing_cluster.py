"""A cluster that stays, as tests use it: its commands, its API, jobs on its data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_support import Commands, job_fields, wait_for

from api.sdk import GeartrainClient

FINAL = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class Standing:
    """A cluster that is up: its commands, its API, and the only folder whose data it may read."""

    commands: Commands
    client: GeartrainClient
    url: str
    data: Path
    output: Path

    def submit(self, task: dict[str, str] | None = None, **sections: Any) -> str:
        """Queue a job on the shared data; its id."""
        fields = job_fields(**sections)
        fields["data"] = {"root": str(self.data), **fields["data"]}
        return str(self.client.submit(fields, task)["id"])

    def run(self, task: dict[str, str] | None = None, **sections: Any) -> dict[str, Any]:
        """A job that must succeed: its result."""
        job = self.ended(self.submit(task, **sections))
        assert job["state"] == "succeeded", job
        result = job["result"]
        assert isinstance(result, dict)
        return result

    def ended(self, job: str) -> dict[str, Any]:
        return self.in_state(job, *FINAL)

    def in_state(self, job: str, *states: str) -> dict[str, Any]:
        """The job once it is in one of these states; the test fails when it ends in another one."""

        def look() -> dict[str, Any] | None:
            status = self.client.job(job)
            assert status["state"] in states or status["state"] not in FINAL, status
            return status if status["state"] in states else None

        return wait_for(look, f"{job} to be {states}")
