"""Groups and shares by trying all of them: slow, and independent of how the coordinator finds its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator.grouping import Candidate, Groups, partition_cost


def best_groups(candidates: Sequence[Candidate]) -> tuple[Groups, float]:
    """The cheapest of all partitions of up to about ten workers that keep the rules, and its cost.

    The rules: vendors are not mixed, a vendor has at most as many groups as models, and every group has two workers at
    least unless its vendor has only one.
    """
    allowed = [groups for groups in _partitions([one.worker for one in candidates]) if _is_legal(groups, candidates)]
    best = min(allowed, key=lambda groups: (round(partition_cost(groups, candidates), 12), len(groups)))
    return best, partition_cost(best, candidates)


def _partitions(workers: Sequence[str]) -> Iterator[Groups]:
    """All partitions of a set: the last worker joins each group of each partition of the others, or is alone."""
    if not workers:
        yield ()
        return
    *others, last = workers
    for groups in _partitions(others):
        for at, group in enumerate(groups):
            yield (*groups[:at], (*group, last), *groups[at + 1 :])
        yield (*groups, (last,))


def _is_legal(groups: Groups, candidates: Sequence[Candidate]) -> bool:
    by_name = {one.worker: one for one in candidates}
    for vendor in {one.vendor for one in candidates}:
        same = [one for one in candidates if one.vendor == vendor]
        own = [group for group in groups if any(by_name[worker].vendor == vendor for worker in group)]
        if any(by_name[worker].vendor != vendor for group in own for worker in group):
            return False
        if len(own) > len({one.model for one in same}) or any(len(group) < min(2, len(same)) for group in own):
            return False
    return True


def best_shares(batch_size: int, speeds: Sequence[float]) -> list[int]:
    """Samples for workers of these speeds: one by one, to whom would finish first with it. No other shares are done
    sooner."""
    shares = [0] * len(speeds)
    for _ in range(batch_size):
        at = min(range(len(speeds)), key=lambda worker: ((shares[worker] + 1) / speeds[worker], worker))
        shares[at] += 1
    return shares
