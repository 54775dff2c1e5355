"""The compiled builds themselves: which one runs, and that threads run beside it."""

from __future__ import annotations

import importlib
import inspect
import platform
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import kernels
from geartrain.types import NUM_SHARDS
from kernels import _native
from kernels.contribution import Contribution
from kernels.dense_update import apply_dense
from kernels.explain import explain
from kernels.hashing import mix64
from kernels.initializer import Initializer, initial_rows
from kernels.lookup_plan import plan_lookup
from kernels.row_store import RowStore, UpdateRule


def test_the_fastest_build_that_the_cpu_can_run_is_taken() -> None:
    told = explain()
    assert told["reason"]
    if platform.machine() == "x86_64" and _native.supports_v3():
        assert told["variant"] == "x86-64-v3"
    assert importlib.import_module(told["module"]).__name__ == told["module"]


def test_these_are_our_kernels() -> None:
    """`kernels` is also the name of an unrelated package."""
    assert (Path(kernels.__path__[-1]) / "native" / "module.cpp").exists()


def test_both_builds_offer_the_same_functions(build: str) -> None:
    offered = {name for name, _ in inspect.getmembers(importlib.import_module(f"kernels.{build}"))}
    promised = {name for name, _ in inspect.getmembers(_native)}
    assert offered == promised


def long_calls() -> dict[str, Callable[[], object]]:
    """One call per family, each some milliseconds long."""
    keys = mix64(np.arange(400_000, dtype=np.uint64))
    floats = np.ones(3_000_000, dtype=np.float32)
    store = RowStore(8, "sgd", Initializer("normal", 0.1, 0))
    out = np.empty((len(keys), 8), dtype=np.float32)
    owners = np.zeros(NUM_SHARDS, dtype=np.int64)
    bounds, tables = np.array([0, len(keys)]), np.zeros(1, dtype=np.int64)
    states = np.zeros((2, len(floats)), dtype=np.float32)
    return {
        "initial_rows": lambda: initial_rows(keys, 8, Initializer("normal", 0.1, 0)),
        "plan_lookup": lambda: plan_lookup(keys, bounds, tables, 1, owners, 1),
        "pull": lambda: store.pull(keys, out),
        "apply_dense": lambda: apply_dense(floats, floats, states, "adam", UpdateRule(lr=0.0)),
    }


@pytest.mark.parametrize("name", ["initial_rows", "plan_lookup", "pull", "apply_dense"])
def test_other_threads_run_during_a_kernel(name: str) -> None:
    """With a switch interval of hours, another thread only gets a turn when the kernel gives the GIL away."""
    call = long_calls()[name]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10_000.0)
    try:
        assert any(_runs_beside(call) for _ in range(100))
    finally:
        sys.setswitchinterval(interval)


def _runs_beside(call: Callable[[], object]) -> bool:
    started, finished = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        call()
        finished.set()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    beside = not finished.is_set()
    thread.join()
    return beside


def test_many_threads_pull_the_same_rows() -> None:
    store = RowStore(5, "adagrad", Initializer("uniform", 0.1, 1))
    keys = mix64(np.arange(20_000, dtype=np.uint64))
    half = keys[::2].copy()
    ones = np.ones(len(half), dtype=np.float32)
    store.apply([Contribution(half, np.ones((len(half), 5), dtype=np.float32), ones, ones, 1.0)], UpdateRule(lr=0.1), 1)
    expected = np.empty((len(keys), 5), dtype=np.float32)
    store.pull(keys, expected)
    outs = [np.empty_like(expected) for _ in range(4)]
    threads = [threading.Thread(target=store.pull, args=(keys, out)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in outs:
        np.testing.assert_array_equal(out, expected)
