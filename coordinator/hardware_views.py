"""What people see of unlike hardware: portraits, groups and shares, in the shapes of the REST interface. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from coordinator.core import Core
from coordinator.events import GroupSpec
from coordinator.job_report import ReportBasis
from coordinator.natural_order import natural_key
from coordinator.portrait import Portrait
from coordinator.portrait_book import PortraitBook
from coordinator.portrait_memory import unmeasured
from coordinator.shares import cut_by_time, cut_equally, finishing_s
from geartrain.errors import NotFoundError
from geartrain.types import Interval


def portrait_views(core: Core) -> list[dict[str, Any]]:
    """The portraits of the running job, or of the last one; what was set since for the next one instead, where it was.

    In the natural order of the workers' names.
    """
    book = _book(core)
    measured = book.portraits() if book is not None else {}
    waiting = {worker: _set_by_hand(core, worker) for worker in core.portraits.starting_speeds}
    shown = {**measured, **waiting}
    return [shown[worker].to_dict() for worker in sorted(shown, key=natural_key)]


def portrait_view(core: Core, worker: str) -> dict[str, Any]:
    """One portrait, with those that it replaced. Raises `NotFoundError`."""
    if worker in core.portraits.starting_speeds:
        return {**_set_by_hand(core, worker).to_dict(), "history": []}
    book = _book(core)
    if book is None or worker not in book.portraits():
        raise NotFoundError(f"there is no portrait of {worker!r} yet", field="worker", value=worker)
    history = [earlier.to_dict() for earlier in book.history(worker)]
    return {**book.portrait(worker).to_dict(), "history": history}


def groups_view(core: Core) -> dict[str, Any]:
    """The groups that live, with their shares and the reason for them."""
    run, active = core.run, core.jobs.active
    if run is None or active is None:
        return {"job": None, "generation": 0, "reason": "no job trains", "groups": []}
    basis = run.report_basis()
    return {
        "job": active.id,
        "generation": run.view.generation,
        "reason": "; since then ".join(filter(None, (run.view.groups_reason, run.view.shares_reason))),
        "groups": [_group(basis, spec) for spec in run.view.groups],
    }


def _book(core: Core) -> PortraitBook | None:
    """That of the running job once it has measured, until then that of the last one that did."""
    run = core.run
    return run.matcher.book if run is not None and run.matcher is not None else core.last_book


def _set_by_hand(core: Core, worker: str) -> Portrait:
    device = next((node.device for node in core.members.all_nodes() if node.name == worker), "")
    return unmeasured(worker, device, core.portraits.starting_speeds[worker], core.unix_time())


def _group(basis: ReportBasis, spec: GroupSpec) -> dict[str, Any]:
    expected = None
    if basis.costs and spec.batch_size > 0:
        costs = [basis.costs[member] for member in spec.members]
        expected = round(spec.batch_size / finishing_s(spec.batch_size, costs, basis.tokens_per_sample), 1)
    return {
        "group": spec.group,
        "members": list(spec.members),
        "batch_size": spec.batch_size,
        "shares": _shares(basis, spec),
        "samples_per_s": expected,
    }


def _shares(basis: ReportBasis, spec: GroupSpec) -> dict[str, float]:
    """Each member's part of a batch of typical samples."""
    whole = Interval(0, 0, spec.batch_size)
    if spec.costs:
        tokens = np.rint(np.arange(spec.batch_size + 1) * basis.tokens_per_sample).astype(np.int64)
        cuts, _ = cut_by_time(whole, spec.costs, basis.min_share, tokens if basis.tokens_per_sample else None)
    else:
        cuts, _ = cut_equally(whole, len(spec.members), basis.min_share)
    sizes = [stop - start for start, stop in pairwise(cuts)]
    return {member: size / max(1, spec.batch_size) for member, size in zip(spec.members, sizes, strict=True)}
