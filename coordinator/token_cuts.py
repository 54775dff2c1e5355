"""Cuts of an interval among members in their order, by the tokens that lie in each part of it. Pure.

Samples cost unequally here, and shares are contiguous, so the order of the samples decides. Two facts make it simple:

- The earliest common finishing time T is the least at which members, each taking as much as it can do by T, one after
  the other, reach the end of the interval.
- At that T there is also a cut in which everybody who is not full finishes at most one sample's cost before T
  (for equal members: Bárány and Grinberg, "Block partitions of sequences", 2015): the positions that can be reached
  when everybody finishes in such a window are an interval, and the end lies in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coordinator.water_filling import Basin, Seconds

_SLACK = 1e-9
"""Relative: how exactly T is found, and what comparisons of sums of seconds allow for rounding."""


@dataclass(frozen=True, slots=True)
class _Member:
    """`work_s[q] - work_s[p]` are the seconds of positions p to q; `largest_s` those of the dearest sample."""

    fixed_s: float
    work_s: Seconds
    largest_s: float
    most: int

    def end(self, start: int, level_s: float) -> int:
        """How far the member gets from `start` by `level_s`."""
        last = int(self.work_s.searchsorted(self.work_s[start] + (level_s - self.fixed_s), side="right")) - 1
        return max(start, min(last, start + self.most))

    def least_end(self, start: int, level_s: float) -> int:
        """How far it must get to finish at `level_s` or later, unless it is full. May lie past the end."""
        first = int(self.work_s.searchsorted(self.work_s[start] + (level_s - self.fixed_s), side="left"))
        return max(start, min(first, start + self.most))

    def starts(self, end: int, earliest_s: float, latest_s: float) -> tuple[int, int]:
        """Where the member may begin to reach `end` between the two times, or full before."""
        first = int(self.work_s.searchsorted(self.work_s[end] - (latest_s - self.fixed_s), side="left"))
        last = int(self.work_s.searchsorted(self.work_s[end] - (earliest_s - self.fixed_s), side="right")) - 1
        low = min(max(first, end - self.most), end)
        return low, max(low, min(max(last, end - self.most), end))


def cut_by_tokens(cumulative_tokens: NDArray[np.int64], basin: Basin, token_s: Seconds) -> list[int]:
    """Cuts [0, ..., n] of `basin.total` = n positions: member i takes [cuts[i], cuts[i+1]).

    `cumulative_tokens[k]` are the tokens of the first k positions (length n + 1), `basin` the members' costs without
    them, `token_s` their seconds per token; together they can hold n samples. The last member finishes as early as
    contiguous shares in this order allow, and all others that are not full at most one sample's cost before it.
    """
    samples = np.arange(basin.total + 1)
    work: dict[tuple[float, float], tuple[Seconds, float]] = {}
    members = []
    for fixed, most, *key in zip(
        basin.fixed_s.tolist(), basin.most.tolist(), basin.sample_s.tolist(), token_s.tolist(), strict=True
    ):
        sample, token = key
        if (sample, token) not in work:
            seconds = sample * samples + token * cumulative_tokens
            work[sample, token] = (seconds, float(np.diff(seconds).max(initial=0.0)))
        members.append(_Member(fixed, *work[sample, token], most))
    mean = float(cumulative_tokens[-1] - cumulative_tokens[0]) / max(1, basin.total)
    likely = Basin(basin.fixed_s, basin.sample_s + token_s * mean, basin.most, basin.total).level_s()
    return _balanced(members, basin.total, _earliest(members, basin.total, likely))


def _earliest(members: list[_Member], num_samples: int, likely_s: float) -> float:
    """The least level at which all positions are done; it is looked for around `likely_s`."""
    low, high = 0.0, np.inf
    step = max(member.largest_s for member in members)
    level = likely_s
    while high == np.inf or high - low > _SLACK * high:
        reached, makespan, next_s = _fill(members, num_samples, level)
        if reached:
            high = makespan
        else:
            low = min(next_s, high)  # below `next_s` nobody gets any further than at `level`
        level = low + step if high == np.inf else max(high - step, (low + high) / 2)
        step *= 2
    return high


def _fill(members: list[_Member], num_samples: int, level_s: float) -> tuple[bool, float, float]:
    """Whether all positions are done by `level_s`, when the last member finishes, and when the next sample would be."""
    start, makespan, next_s = 0, 0.0, np.inf
    for member in members:
        end = member.end(start, level_s)
        begin_s = member.fixed_s - float(member.work_s[start])
        if end > start:
            makespan = max(makespan, begin_s + float(member.work_s[end]))
        if end == num_samples:
            return True, makespan, np.inf
        if end < start + member.most:
            next_s = min(next_s, begin_s + float(member.work_s[end + 1]))
        start = end
    return False, makespan, next_s


def _balanced(members: list[_Member], num_samples: int, level_s: float) -> list[int]:
    """The cut in which everybody finishes within its dearest sample before `level_s`, which is the earliest."""
    latest, earliest = level_s * (1 + _SLACK), level_s * (1 - 3 * _SLACK)
    lows, highs = [0], [0]
    for member in members:
        lows.append(min(num_samples, member.least_end(lows[-1], earliest - member.largest_s)))
        highs.append(min(num_samples, member.end(highs[-1], latest)))
    # From the end back: of the positions allowed, the one that lies between the two extremes where the end does.
    along = (num_samples - lows[-1]) / max(1, highs[-1] - lows[-1])
    cuts = [num_samples]
    for member, low, high in zip(reversed(members), reversed(lows[:-1]), reversed(highs[:-1]), strict=True):
        first, last = member.starts(cuts[-1], earliest - member.largest_s, latest)
        start = min(max(round(low + along * (high - low)), first), last)
        cuts.append(min(max(start, low), high))  # rounded seconds or not: the first member begins at 0
    return cuts[::-1]
