"""Pulls through the whole path: a client's process, a socket, a server's process, and back.

One server with 5 million rows of 16 float32; 40,000 distinct keys a request, one request at a time. The peer is what
the same bytes cost at least: a raw echo of them over the same transport, plus the bare gather of the same rows in one
process. Pulls, echoes and gathers take turns; figures are medians of the rounds, percentiles are over all requests.

Four clients, each in a process of its own, against one: rows per second of all of them together.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from benchmarks.support.client_process import ClientPlan, ClientProcess, Times
from benchmarks.support.echo import EchoServer
from benchmarks.support.latencies import median_of_rounds, milliseconds, rows_per_s
from benchmarks.support.lines import Line, figures_table, put_out
from benchmarks.support.tier_cluster import TierCluster

TRANSPORTS = ("ipc", "tcp")
MANY = 4


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    num_rows: int = 5_000_000
    keys_per_request: int = 40_000
    rounds: int = 7
    requests: int = 48


QUICK = Scale(num_rows=20_000, keys_per_request=1_000, rounds=1, requests=4)


def main(json: bool, quick: bool = False) -> int:
    """Print the lines, or the table."""
    return put_out(lines(quick), json, lambda gathered: figures_table("Pulls from one server", gathered))


def lines(quick: bool) -> Iterator[Line]:
    """`pull_ipc`, `pull_tcp`, and `pull_clients` for each number of clients."""
    scale = QUICK if quick else Scale()
    for transport in TRANSPORTS:
        with TierCluster(transport=transport) as tier, ExitStack() as stack:
            tier.fill(scale.num_rows)
            address = f"ipc://{tier.directory}/echo" if transport == "ipc" else "tcp://127.0.0.1:*"
            echo = stack.enter_context(EchoServer(address))
            plan = ClientPlan(
                tier.route, "c0", tier.token, scale.num_rows, scale.keys_per_request, echo.address, tier.version
            )
            first = stack.enter_context(ClientProcess(plan))
            yield _pull_line(transport, first, scale)
            if transport == TRANSPORTS[0]:
                others = [
                    stack.enter_context(ClientProcess(replace(plan, worker=f"c{number}"))) for number in range(1, MANY)
                ]
                yield _clients_line([first, *others], scale)


def _pull_line(transport: str, client: ClientProcess, scale: Scale) -> Line:
    pulls, echoes, gathers = [], [], []
    client.run("gather", 1)
    client.run("echo", 2)
    for _ in range(scale.rounds):
        pulls.append(client.run("pull", scale.requests))
        echoes.append(client.run("echo", scale.requests))
        gathers.append(client.run("gather", scale.requests))
    echo_s, gather_s = median_of_rounds(echoes), median_of_rounds(gathers)
    speed = statistics.median(rows_per_s([run], scale.keys_per_request) for run in pulls)
    limit = scale.keys_per_request / (echo_s + gather_s)
    return {
        "name": f"pull_{transport}",
        "rows_per_s": round(speed),
        **milliseconds([time for run in pulls for time in run.request_s], 50, 99),
        "limit_rows_per_s": round(limit),
        "share_of_limit": round(speed / limit, 4),
        "echo_p50_ms": round(echo_s * 1000, 3),
        "gather_p50_ms": round(gather_s * 1000, 3),
    }


def _clients_line(clients: list[ClientProcess], scale: Scale) -> Line:
    """One client and all of them, taking turns."""
    alone, together = [], []
    for _ in range(scale.rounds):
        alone.append(rows_per_s([clients[0].run("pull", scale.requests)], scale.keys_per_request))
        for client in clients:
            client.begin("pull", scale.requests)
        together.append([client.finish() for client in clients])
    one = statistics.median(alone)
    all_of_them = statistics.median(rows_per_s(runs, scale.keys_per_request) for runs in together)
    return {
        "name": "pull_clients",
        "clients": len(clients),
        "rows_per_s": round(all_of_them),
        **milliseconds(_all_times(together), 50, 99),
        "one_client_rows_per_s": round(one),
        "share_of_one_client": round(all_of_them / one, 4),
    }


def _all_times(rounds: list[list[Times]]) -> list[float]:
    return [time for runs in rounds for run in runs for time in run.request_s]
