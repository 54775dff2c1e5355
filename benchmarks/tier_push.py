"""Push and apply through the whole path: a client stages gradients, and the decision that follows is applied.

One server with 5 million rows of 16 float32, rowwise Adagrad; 40,000 distinct keys a window. A window's time runs from
the staging request to the server's word that it applied the decision; this process is client and coordinator. The peer
is what the same work costs at least: a raw echo of the staged bytes over the same transport with a short answer, plus
the bare apply of the same contribution in this process. Nothing stands for the decision: its way there and back is the
tier's own cost. Windows, echoes and applies take turns; the limit is from medians of the rounds, percentiles are over
all windows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from benchmarks.support.client_process import Times
from benchmarks.support.echo import EchoClient, EchoServer
from benchmarks.support.latencies import median_of_rounds, milliseconds, rows_per_s
from benchmarks.support.lines import Line, figures_table, put_out
from benchmarks.support.samples import DIM, RULE, contribution, filled_store, uniform_ids, uniform_keys
from benchmarks.support.step_sums import StepSums
from benchmarks.support.tier_cluster import TierCluster
from geartrain.memory import keep_freed_memory
from geartrain.types import Floats, Keys

ANSWER_BYTES = 64
"""Of an echo: about as much as a server's word that it staged something."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    num_rows: int = 5_000_000
    keys_per_window: int = 40_000
    rounds: int = 9
    windows: int = 48
    """In each round."""


QUICK = Scale(num_rows=20_000, keys_per_window=1_000, rounds=2, windows=4)


def main(json: bool, quick: bool = False) -> int:
    """Print the line, or the table."""
    return put_out(lines(quick), json, lambda gathered: figures_table("Push and apply on one server", gathered))


def lines(quick: bool) -> Iterator[Line]:
    """`push_apply`."""
    scale = QUICK if quick else Scale()
    keep_freed_memory()
    all_keys = uniform_keys(0, scale.num_rows)
    batches = [all_keys[ids] for ids in uniform_ids(scale.num_rows, scale.keys_per_window, 1)]
    grads = np.random.default_rng(0).standard_normal((scale.keys_per_window, DIM)).astype(np.float32)
    with TierCluster() as tier, ExitStack() as stack:
        tier.fill(scale.num_rows)
        echo = stack.enter_context(EchoServer(f"ipc://{tier.directory}/echo"))
        pushes, echoes, applies = _Pushes(tier, grads), _Echoes(echo.address, grads), _Applies(scale.num_rows, grads)
        stack.callback(pushes.close)
        stack.callback(echoes.close)
        calls = (pushes.push, echoes.ask, applies.apply)
        rounds: list[list[Times]] = []
        for number in range(1 + scale.rounds):
            turn = range(number * scale.windows, (number + 1) * scale.windows)
            rounds.append([_timed(call, [batches[index % len(batches)] for index in turn]) for call in calls])
    # In the first round all of them are still cold.
    pushed, echoed, applied = zip(*rounds[1:], strict=True)
    echo_s, apply_s = median_of_rounds(echoed), median_of_rounds(applied)
    speed = statistics.median(rows_per_s([run], scale.keys_per_window) for run in pushed)
    limit = scale.keys_per_window / (echo_s + apply_s)
    yield {
        "name": "push_apply",
        "rows_per_s": round(speed),
        **milliseconds([time for run in pushed for time in run.request_s], 50, 99),
        "limit_rows_per_s": round(limit),
        "share_of_limit": round(speed / limit, 4),
        "stage_p50_ms": milliseconds(pushes.stage_s[scale.windows :], 50)["p50_ms"],
        "echo_p50_ms": round(echo_s * 1000, 3),
        "apply_p50_ms": round(apply_s * 1000, 3),
    }


def _timed(call: Callable[[Keys], object], batches: Sequence[Keys]) -> Times:
    times: list[float] = []
    began_s = now_s = time.perf_counter()
    for keys in batches:
        call(keys)
        ended_s = time.perf_counter()
        times.append(ended_s - now_s)
        now_s = ended_s
    return Times(began_s, now_s, times)


class _Pushes:
    def __init__(self, tier: TierCluster, grads: Floats) -> None:
        self.stage_s: list[float] = []
        self._tier, self._client, self._sums = tier, tier.client(), StepSums(grads)
        self._counts = np.array([[len(grads)]], dtype=np.int64)

    def push(self, keys: Keys) -> None:
        began_s = time.perf_counter()
        self._tier.stage(self._client, keys, self._counts, self._sums)
        self.stage_s.append(time.perf_counter() - began_s)
        self._tier.apply_staged(len(keys))

    def close(self) -> None:
        self._client.close()


class _Echoes:
    def __init__(self, address: str, grads: Floats) -> None:
        self._echo, self._sums = EchoClient(address), StepSums(grads)

    def ask(self, keys: Keys) -> None:
        self._echo.ask([keys, self._sums.grads, self._sums.shows, self._sums.clicks], ANSWER_BYTES)

    def close(self) -> None:
        self._echo.close()


class _Applies:
    def __init__(self, num_rows: int, grads: Floats) -> None:
        self._store, self._version = filled_store(num_rows, "rowwise_adagrad"), 1
        self._sums = contribution(np.empty(len(grads), dtype=np.uint64), grads)

    def apply(self, keys: Keys) -> None:
        self._version += 1
        self._store.apply([self._sums._replace(keys=keys)], RULE, self._version)
