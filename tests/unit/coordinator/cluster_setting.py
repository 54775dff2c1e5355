"""What a run of the cluster model is made of: how windows close, who computes at which cost, which samples are long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coordinator.cost_model import CostModel
from coordinator.events import GroupSpec, MemberCost
from coordinator.shares import batch_sizes_by_time, cut_by_time, cut_equally, group_batch_sizes
from coordinator.window import WindowSettings
from geartrain.types import Indices, Interval

Costs = tuple[CostModel, ...]


@dataclass(frozen=True)
class Setting:
    """Worker `wN` has the memory `memory[N % len]`, and of the costs in force the N-th in the same way; without costs
    shares are equal. `tokens` are those of the samples, over and over."""

    mode: str = "sync"
    group_sizes: tuple[int, ...] = (2,)
    batch_size: int = 8
    num_rows: int = 64
    depth: int = 0
    lookahead: int = 2
    min_share: int = 0
    window_ms: float | None = 10.0
    decay: float = 0.9
    max_staleness: int | None = None
    step_scale: bool = True
    costs: Costs = ()
    memory: tuple[int | None, ...] = (None,)
    tokens: tuple[int, ...] = ()

    @property
    def window_settings(self) -> WindowSettings:
        return WindowSettings(
            self.mode, self.window_ms, self.decay, self.max_staleness, self.depth, step_scale=self.step_scale
        )


class RepeatedTokens:
    """The sample at position p of pass q has the (7p + q)-th of `pattern`, over and over."""

    def __init__(self, pattern: Sequence[int]) -> None:
        self._pattern = pattern

    def cumulative(self, interval: Interval) -> Indices:
        positions = range(interval.start, interval.stop)
        counts = [self._pattern[(7 * one + interval.pass_index) % len(self._pattern)] for one in positions]
        return np.cumsum([0, *counts], dtype=np.int64)


def specs_of(setting: Setting, costs: Costs, groups: Sequence[tuple[int, tuple[str, ...]]]) -> dict[int, GroupSpec]:
    """The groups with their batches, and the costs of their members if there are any."""
    if not costs:
        batches = group_batch_sizes(setting.batch_size, [len(members) for _, members in groups], setting.min_share)
        return {group: GroupSpec(group, names, batch) for (group, names), batch in zip(groups, batches, strict=True)}
    members = [tuple(_cost(setting, costs, name) for name in names) for _, names in groups]
    tokens = sum(setting.tokens) / len(setting.tokens) if setting.tokens else 0.0
    batches = batch_sizes_by_time(_what_fits(setting, members), members, tokens, setting.min_share)
    return {
        group: GroupSpec(group, names, batch, own)
        for (group, names), batch, own in zip(groups, batches, members, strict=True)
    }


def shares_of(setting: Setting, spec: GroupSpec, interval: Interval) -> list[int]:
    """The cuts of an interval among the members of a group, by what they cost now."""
    if not spec.costs:
        return cut_equally(interval, len(spec.members), setting.min_share).cuts
    tokens = RepeatedTokens(setting.tokens).cumulative(interval) if setting.tokens else None
    return cut_by_time(interval, spec.costs, setting.min_share, tokens).cuts


def _cost(setting: Setting, costs: Costs, worker: str) -> MemberCost:
    number = int(worker[1:])
    return MemberCost(costs[number % len(costs)], setting.memory[number % len(setting.memory)])


def _what_fits(setting: Setting, members: Sequence[Sequence[MemberCost]]) -> int:
    """The cluster's batch, or as much of it as the workers that are left can hold."""
    bounds = [one.max_samples for group in members for one in group]
    return min([setting.batch_size, *([sum(one or 0 for one in bounds)] if None not in bounds else [])])
