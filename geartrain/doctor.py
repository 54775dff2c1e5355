"""`geartrain doctor`: what of an installation may stand in the way, each check with what was found."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import geartrain
from geartrain.addresses import API_PORT
from geartrain.timeouts import DEFAULT

OUR_PACKAGES = ("api", "benchmarks", "coordinator", "dense_workers", "embedding_tier", "kernels")
"""Top-level packages beside `geartrain`; `coordinator` and `kernels` are also names of unrelated ones."""

LOCKSTEP = {"torch": "2.13.0", "fbgemm": "1.8.0"}
"""Versions that only work together."""
FBGEMM_BUILDS = ("fbgemm-gpu-cpu", "fbgemm-gpu")
COMPILERS = ("g++", "c++", "clang++")


@dataclass(frozen=True, slots=True)
class Check:
    """`state`: ok, note (worth knowing) or wrong (something will fail)."""

    name: str
    state: str
    found: str


def run_checks() -> list[Check]:
    """All checks, in the order in which a set-up goes."""
    return [
        check_python(),
        check_compiler(shutil.which),
        *(check_package(name, _origin) for name in OUR_PACKAGES),
        *check_kernels(),
        check_lockstep(_version),
        check_torch(),
        check_port(API_PORT),
        *time_outs(),
    ]


def check_python() -> Check:
    found = f"{platform.python_version()} at {sys.executable}"
    return Check("python", "ok" if sys.version_info >= (3, 11) else "wrong", f"{found}; 3.11 or later is needed")


def check_compiler(which: Callable[[str], str | None]) -> Check:
    found = next((path for path in map(which, COMPILERS) if path), None)
    if found is None:
        return Check("compiler", "note", f"none of {', '.join(COMPILERS)}: the native kernels cannot be built again")
    return Check("compiler", "ok", found)


def check_package(name: str, origin: Callable[[str], Path | None]) -> Check:
    """Whether the package that is imported under one of our names is ours: it lies beside `geartrain`."""
    place, ours = origin(name), Path(str(geartrain.__file__)).parent.parent
    if place is None:
        return Check(f"package {name}", "wrong", f"not found; expected in {ours}")
    if place.parent != ours:
        return Check(
            f"package {name}", "wrong", f"another package of that name is imported, from {place}; expected {ours}"
        )
    return Check(f"package {name}", "ok", str(place))


def check_kernels() -> list[Check]:
    try:
        from kernels.explain import explain
    except ImportError as error:
        return [Check("kernels", "wrong", f"the native kernels cannot be imported: {error}; run `make setup`")]
    return [Check(f"kernels {topic}", "ok", reason) for topic, reason in explain().items()]


def check_lockstep(version: Callable[[str], str | None]) -> Check:
    """Whether torch and FBGEMM are the two versions that work together; pip does not know that they must be."""
    expected = f"expected torch {LOCKSTEP['torch']} with one of {', '.join(FBGEMM_BUILDS)} at {LOCKSTEP['fbgemm']}"
    torch = version("torch")
    builds = {name: found for name in FBGEMM_BUILDS if (found := version(name)) is not None}
    found = ", ".join([f"torch {torch}", *(f"{name} {each}" for name, each in builds.items())])
    fits = torch is not None and _release(torch) == LOCKSTEP["torch"]
    fits = fits and [_release(each) for each in builds.values()] == [LOCKSTEP["fbgemm"]]
    return Check("torch and FBGEMM", "ok" if fits else "wrong", found if fits else f"{found}; {expected}")


def check_torch() -> Check:
    """Import both in a process of their own: a mismatch breaks the import with an OSError."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import torch, fbgemm_gpu; print(torch.cuda.device_count())"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return Check("torch import", "wrong", (done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return Check("torch import", "ok", f"{done.stdout.split()[-1]} CUDA devices")


def check_port(port: int) -> Check:
    """Whether `geartrain up` could listen on its default port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return Check(f"port {port}", "note", f"{error.strerror}; a cluster that is up has it, else use `up --port`")
    return Check(f"port {port}", "ok", "free")


def time_outs() -> list[Check]:
    """The derived set, and whether each is above the one before."""
    named = {
        "heartbeat": DEFAULT.heartbeat_s,
        "lease": DEFAULT.lease_s,
        "silence": DEFAULT.silence_s,
        "join": DEFAULT.join_s,
        "group": DEFAULT.group_s,
    }
    ordered = list(named.values()) == sorted(set(named.values()))
    state = "ok" if ordered else "wrong"
    return [Check(f"time-out {name}", state, f"{seconds:g} s") for name, seconds in named.items()]


def has_failed(checks: Sequence[Check]) -> bool:
    return any(check.state == "wrong" for check in checks)


def _origin(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _release(version: str) -> str:
    """Without a local build such as +cpu."""
    return version.partition("+")[0]
