"""What a job's report says of its workers, and of what unlike hardware cost it. Pure: from accounts and portraits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coordinator.accounts import Accounts, WorkerAccount
from coordinator.events import GroupSpec, MemberCost
from coordinator.portrait import Portrait
from coordinator.shares import advice, equal_shares_s, finishing_s


@dataclass(frozen=True, slots=True)
class ReportBasis:
    """What the report is made from, beside the accounts. Without portraits (equal shares by wish) costs are empty."""

    groups: Sequence[GroupSpec]
    devices: Mapping[str, str]
    portraits: Mapping[str, Portrait]
    costs: Mapping[str, MemberCost]
    batch_size: int
    tokens_per_sample: float
    min_share: int


def worker_rows(accounts: Accounts, basis: ReportBasis) -> list[dict[str, Any]]:
    """The `workers` of a result, in the order of groups and ranks. `share`: of what its group computed."""
    rows = []
    for number, spec in enumerate(basis.groups):
        of_group = {worker: accounts.workers.get(worker, WorkerAccount()) for worker in spec.members}
        in_all = sum(account.samples for account in of_group.values())
        for worker, account in of_group.items():
            portrait = basis.portraits.get(worker)
            rows.append(
                {
                    "worker": worker,
                    "device": basis.devices.get(worker, ""),
                    "group": number,
                    "share": round(account.samples / in_all, 4) if in_all else 1.0 / len(spec.members),
                    "samples": account.samples,
                    "step_ms": {"p50": _percentile(account.step_ms, 50), "p99": _percentile(account.step_ms, 99)},
                    "wait_ms": {"p50": _percentile(account.wait_ms, 50)},
                    "busy_ms": {"p50": _percentile(account.busy_ms, 50)},
                    "solo_samples_per_s": _solo(basis, worker),
                    "emulated": basis.devices.get(worker, "").startswith("emulate:"),
                    "host_bound_steps": account.host_bound_steps,
                    "precision": portrait.precision if portrait is not None else None,
                    "numeric_drift": portrait.numeric_drift if portrait is not None else None,
                    "doubt": portrait.doubt if portrait is not None else None,
                }
            )
    return rows


def heterogeneity(accounts: Accounts, basis: ReportBasis, samples_per_s: float) -> dict[str, Any]:
    """What unlike hardware cost: the throughput over the sum of the solo ones, what equal shares would give, and more.

    Everything that needs portraits is None without them.
    """
    imbalance = {
        f"p{percent}": _percentile(accounts.finishing, percent) if accounts.finishing else None for percent in (50, 90)
    }
    if not basis.costs:
        return {
            "throughput_over_sum_of_solo": None,
            "sum_of_solo_samples_per_s": None,
            "equal_shares_samples_per_s": None,
            "advice": [],
            "imbalance": imbalance,
        }
    solos = sum(_solo(basis, worker) or 0.0 for worker in basis.costs)
    costs = list(basis.costs.values())
    # Grants, decisions and waiting take their time with any shares: as much as they take now.
    matched_s = finishing_s(basis.batch_size, costs, basis.tokens_per_sample)
    besides_s = max(0.0, basis.batch_size / samples_per_s - matched_s) if samples_per_s > 0 else 0.0
    equal_s = besides_s + equal_shares_s(basis.batch_size, costs, basis.tokens_per_sample)
    return {
        "throughput_over_sum_of_solo": round(samples_per_s / solos, 4) if solos else None,
        "sum_of_solo_samples_per_s": round(solos, 1),
        "equal_shares_samples_per_s": round(basis.batch_size / equal_s, 1) if len(costs) > 1 else None,
        "advice": [
            {"worker": one.worker, "reason": one.reason, "gain": round(one.gain, 4)}
            for one in advice(basis.batch_size, basis.costs, basis.tokens_per_sample, basis.min_share)
        ],
        "imbalance": imbalance,
    }


def _solo(basis: ReportBasis, worker: str) -> float | None:
    cost = basis.costs.get(worker)
    return round(cost.cost.samples_per_s(basis.batch_size, basis.tokens_per_sample), 1) if cost is not None else None


def _percentile(values: Collection[float], percent: float) -> float:
    return round(float(np.percentile(np.fromiter(values, np.float32), percent)), 3) if values else 0.0
