"""A whole cluster on this machine: one coordinator, embedding servers and workers, each a process of its own."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from geartrain.errors import DeadlineError, GeartrainError, RoleDiedError
from geartrain.launch.home import HOME_VARIABLE, locked_folder, usable_folder
from geartrain.launch.role_process import RoleCommand, RoleProcess, geartrain_command, start_role
from geartrain.launch.run_directory import run_directory
from geartrain.launch.signals import StopRequested, raise_if_requested
from geartrain.timeouts import DEFAULT

if TYPE_CHECKING:
    from api.sdk import GeartrainClient

Job = Mapping[str, Any]
"""A job as the API shows it: id, name, state, reason, error, progress, result."""

READY_DEADLINE_S = 60.0
SUBMIT_DEADLINE_S = 300.0
"""The coordinator looks at all data files before it takes a job."""
ANSWER_S = 3.0
"""Deadline of one look at the job; a coordinator that misses it is looked at again, until it counts as dead."""
POLL_S = 0.5
STOP_GRACE_S = 5.0
"""How long a role may take to end after SIGTERM before it is killed."""
REASON_GRACE_S = 2.0
"""How long a job may take to tell why a role gave up; only then the role's own last words count."""
_PROCESS_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What to start.

    `devices`: one per worker; `listen`: HOST:PORT of the API (port 0: a free one); `output_dir`: where checkpoints go;
    `allowed_roots`: the only folders data are read from; `logs_dir`: where the roles' logs go; `api_token`: None leaves
    the API open to every user of this machine; `state_dir`: where the coordinator keeps jobs and journals;
    `job_folders`: whether each job gets a folder in `output_dir` (else all write into it: a cluster for one job).
    Checkpoints, logs or state without a folder vanish with the cluster.
    """

    num_servers: int
    devices: tuple[str, ...]
    listen: str
    output_dir: Path | None
    allowed_roots: tuple[Path, ...]
    logs_dir: Path | None
    api_token: str | None
    state_dir: Path | None = None
    job_folders: bool = False


class LocalCluster:
    """Starts all roles on entry, stops them on exit: in order as a rule, at once after an error.

    Enter it from a thread that lives as long as the cluster (the main thread): see `lifeline`.
    """

    def __init__(self, spec: ClusterSpec, command: RoleCommand = geartrain_command) -> None:
        self._spec = spec
        self._command = command
        self._roles: list[RoleProcess] = []
        self._resources = ExitStack()
        self._url = ""

    @property
    def url(self) -> str:
        """Of the API, e.g. `http://127.0.0.1:40123`."""
        return self._url

    @property
    def roles(self) -> tuple[RoleProcess, ...]:
        return tuple(self._roles)

    def __enter__(self) -> Self:
        try:
            directory = self._resources.enter_context(run_directory())
            self._start(directory)
            self._url = self._await_ready(directory / "ready.json")
        except BaseException:
            self.stop(at_once=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(at_once=isinstance(error, Exception))

    def client(self, deadline_s: float) -> GeartrainClient:
        """A client of this cluster's API with a deadline per call; the caller closes it."""
        from api.sdk import GeartrainClient

        return GeartrainClient(self._url, self._spec.api_token, deadline_s=deadline_s)

    def check(self) -> None:
        """Raise `RoleDiedError` if a role has ended; a killed one, or the coordinator, is named before those that fell
        with it.

        Also raises a `StopRequested` that was swallowed before.
        """
        raise_if_requested()
        ended = [role for role in self._roles if role.exit_status is not None]
        if ended:
            raise min(ended, key=lambda role: (role.process.returncode >= 0, role.role != "coordinator")).death()

    def run_job(self, config: Mapping[str, Any], task: Mapping[str, str], observe: Callable[[Job], None]) -> Job:
        """Submit a job, follow it to its end and return it as it ended; interrupted on the way, it is cancelled.

        `config`: a resolved config as plain data; `task`: `{"kind": "train" | "evaluate" | "predict", ...}`; `observe`
        is told how the job stands. Raises what the coordinator refuses the job with, and `RoleDiedError` when a role
        dies without the job saying why.
        """
        with self.client(SUBMIT_DEADLINE_S) as client:
            job = str(client.submit(dict(config), dict(task))["id"])
        with self.client(ANSWER_S) as client:
            try:
                return self._follow(client, job, observe)
            except (KeyboardInterrupt, StopRequested):
                with suppress(GeartrainError):
                    client.cancel(job)
                raise

    def stop(self, *, at_once: bool) -> None:
        """End all roles and wait for them; `at_once` kills (stopped processes, too), else they may finish first."""
        for role in self._roles:
            if at_once:
                role.process.kill()
            else:
                role.process.terminate()
        deadline_s = time.monotonic() + STOP_GRACE_S
        for role in self._roles:
            try:
                role.process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                role.process.kill()
                role.process.wait()
        self._roles.clear()
        self._resources.close()

    def _start(self, directory: Path) -> None:
        """Start everything at once: nodes try again until the coordinator is there, and their imports take longest."""
        spec = self._spec
        output = spec.output_dir or directory / "output"
        logs = spec.logs_dir or directory / "logs"
        state = spec.state_dir or directory / "state"
        for folder in (output, logs):
            usable_folder(folder, "--output" if folder.is_relative_to(output) else HOME_VARIABLE)
        if spec.state_dir is not None and not spec.job_folders:
            self._resources.enter_context(locked_folder(output, "--output"))
        environment = self._environment()
        control = f"ipc://{directory}/control"

        def start(name: str, role: str, *options: str) -> None:
            command = self._command(role, options)
            self._roles.append(start_role(name, role, command, environment, logs / f"{name}.log"))

        start(
            "coordinator", "coordinator", f"--listen={spec.listen}", f"--control={control}",
            f"--state-dir={state}", f"--output={output}", f"--server-num={spec.num_servers}",
            f"--worker-num={len(spec.devices)}", f"--ready-file={directory}/ready.json",
            "--job-folders" if spec.job_folders else "--one-folder",
            *(f"--allow-root={root}" for root in spec.allowed_roots),
        )  # fmt: skip
        for number in range(spec.num_servers):
            name = f"s{number}"
            start(name, "server", f"--name={name}", f"--control={control}", f"--listen=ipc://{directory}/{name}")
        for number, device in enumerate(spec.devices):
            name = f"w{number}"
            start(name, "worker", f"--name={name}", f"--control={control}", f"--device={device}")

    def _environment(self) -> dict[str, str]:
        """The cluster's secrets, and threads so that the workers together use every core once."""
        environment = {"GEARTRAIN_CLUSTER_TOKEN": secrets.token_hex(16)}
        if self._spec.api_token is not None:
            environment["GEARTRAIN_API_TOKEN"] = self._spec.api_token
        if "OMP_NUM_THREADS" not in os.environ:
            environment["OMP_NUM_THREADS"] = str(max(1, num_cores() // len(self._spec.devices)))
        return environment

    def _await_ready(self, ready_file: Path) -> str:
        deadline_s = time.monotonic() + READY_DEADLINE_S
        while True:
            self.check()
            with suppress(FileNotFoundError, json.JSONDecodeError):  # not there yet, or still being written
                return str(json.loads(ready_file.read_text())["url"])
            if time.monotonic() > deadline_s:
                message = f"the coordinator was not ready after {READY_DEADLINE_S:.0f} s"
                raise DeadlineError(message, role="coordinator", deadline_s=READY_DEADLINE_S)
            time.sleep(_PROCESS_POLL_S)

    def _follow(self, client: GeartrainClient, job: str, observe: Callable[[Job], None]) -> Job:
        def look(status: Job) -> None:
            self.check()
            observe(status)

        while True:
            try:
                return client.wait(job, look, poll_s=POLL_S)
            except DeadlineError:
                self._await_answer(client, job)
            except RoleDiedError as death:
                if not _gave_up(death):
                    raise
                reason = self._failure_of(client, job)
                if reason is None:
                    self.check()  # names the coordinator, if it has ended in the meantime
                    raise
                return reason

    def _await_answer(self, client: GeartrainClient, job: str) -> None:
        """Return when a coordinator that did not answer does so again; raise `RoleDiedError` when it is lost."""
        deadline_s = time.monotonic() + DEFAULT.silence_s - ANSWER_S
        while time.monotonic() < deadline_s:
            try:
                self.check()
            except RoleDiedError as death:
                if not _gave_up(death):
                    raise
                # A coordinator that stops tells its nodes to, and ends soon after. Otherwise nodes give up when they do
                # not hear it.
                if death.facts["status"] != 0:
                    message = f"the coordinator does not answer, and {death.message}"
                    raise RoleDiedError(message, role="coordinator") from death
            with suppress(DeadlineError):
                client.job(job)
                return
            time.sleep(_PROCESS_POLL_S)
        raise RoleDiedError(f"the coordinator did not answer for {DEFAULT.silence_s:g} s", role="coordinator")

    def _failure_of(self, client: GeartrainClient, job: str) -> Job | None:
        """The failed job, if it says within `REASON_GRACE_S` why a role ended by itself; the reason is then there.

        Raises `RoleDiedError` when the coordinator says that it ends itself: nodes were only told to.
        """
        deadline_s = time.monotonic() + REASON_GRACE_S
        while time.monotonic() < deadline_s:
            try:
                status = client.job(job)
                if status["state"] == "failed" and (status["error"] or {}).get("code") != RoleDiedError.code:
                    return status
            except RoleDiedError:
                raise
            except GeartrainError:
                pass
            time.sleep(POLL_S)
        return None


def _gave_up(death: RoleDiedError) -> bool:
    """Whether a node ended by itself, so that the job may know why: it was not killed, nor is it the coordinator.

    A coordinator that is about to end tells so itself, without a status.
    """
    return int(death.facts.get("status", -1)) >= 0 and death.facts.get("role") != "coordinator"


def num_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
