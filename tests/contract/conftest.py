"""Every contract test runs against each compiled build of the kernels that this CPU can run."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from kernels import _native

CALLERS = (
    "checks",
    "dedup",
    "dense_update",
    "hashing",
    "initializer",
    "lookup_plan",
    "memory_limit",
    "pool",
    "row_life",
    "row_store",
    "row_stores",
    "take_columns",
    "wire_codec",
)


def runnable_builds() -> list[str]:
    return ["_native", "_native_v3"] if _native.supports_v3() else ["_native"]


@pytest.fixture(scope="module", params=runnable_builds(), autouse=True)
def build(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the build that the public functions call during the test."""
    module = importlib.import_module(f"kernels.{request.param}")
    with pytest.MonkeyPatch.context() as patch:
        for caller in CALLERS:
            patch.setattr(f"kernels.{caller}.native", module)
        yield request.param
