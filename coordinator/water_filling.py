"""The finishing time that members with linear costs have in common, and the whole samples that each has done by then.

Member i needs `fixed_s[i] + sample_s[i] * samples`, and takes `most[i]` samples at most. As water fills a basin of
uneven ground, samples go where they are done first: the level is the finishing time. Pure; arrays of k members each,
float64, except `most` and what is returned in samples, int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coordinator.events import MemberCost

Seconds = NDArray[np.float64]
Samples = NDArray[np.int64]

LEAST_SAMPLE_S = 1e-12
"""A sample takes time: a member whose cost does not depend on its samples would otherwise take any number at once."""


@dataclass(frozen=True, slots=True)
class Basin:
    """The costs of k members for a step in which nobody can take more than `total` samples."""

    fixed_s: Seconds
    sample_s: Seconds
    most: Samples
    total: int

    @staticmethod
    def of(total: int, costs: Sequence[MemberCost], tokens_per_sample: float = 0.0) -> Basin:
        """With `tokens_per_sample` tokens in every sample."""
        sample_s = np.array([one.cost.sample_s for one in costs], dtype=np.float64)
        if tokens_per_sample:
            sample_s += tokens_per_sample * np.array([one.cost.token_s for one in costs], dtype=np.float64)
        most = [total if one.max_samples is None else min(one.max_samples, total) for one in costs]
        return Basin(
            fixed_s=np.array([one.cost.fixed_s for one in costs], dtype=np.float64),
            sample_s=np.maximum(sample_s, LEAST_SAMPLE_S),
            most=np.array(most, dtype=np.int64),
            total=total,
        )

    def finish_s(self, samples: Samples) -> Seconds:
        """When each member has done these samples."""
        return self.fixed_s + self.sample_s * samples

    def level_s(self) -> float:
        """The finishing time when samples could be divided at will. All together must be able to hold `total`."""
        if self.total == 0:
            return 0.0
        pace = 1.0 / self.sample_s
        order = np.argsort(self.fixed_s, kind="stable")
        left = float(self.total)
        while order.size:
            # The k members with the least fixed cost, alone, end at levels[k-1]: more of them end earlier as long as
            # the next one's fixed cost is below, so the lowest of all levels is that of the members which take part.
            ordered = pace[order]
            level = float(((left + np.cumsum(self.fixed_s[order] * ordered)) / np.cumsum(ordered)).min())
            full = (level - self.fixed_s[order]) * ordered > self.most[order] * (1 + 1e-12)
            if not full.any():
                return level
            # Who is full at this level stays full at any higher one.
            left -= float(self.most[order[full]].sum())
            order = order[~full]
        return float(self.finish_s(self.most).max())

    def shares(self) -> Samples:
        """Whole samples that sum to `total`, so that the last member finishes as early as possible.

        Each sample goes where it is done first, of equals to the member named first.
        """
        if self.total == 0:
            return np.zeros(len(self.most), dtype=np.int64)
        # What is certainly done at the level; the slack keeps rounding errors from giving away a sample too many.
        done = np.floor((self.level_s() - self.fixed_s) / self.sample_s - 1e-6)
        sizes = np.clip(done, 0, self.most).astype(np.int64)
        while (left := self.total - int(sizes.sum())) < 0:
            sizes = np.maximum(sizes - 1, 0)
        if left:
            sizes += self._next(sizes, left)
        return sizes

    def _next(self, sizes: Samples, num_samples: int) -> Samples:
        """How many of the next `num_samples` samples each member does first, after `sizes`."""
        room = np.minimum(self.most - sizes, num_samples)
        ends = np.sort(self.finish_s(sizes + 1)[room > 0])
        if num_samples <= ends.size:  # then none of them ends later than this
            until = np.floor((ends[num_samples - 1] - self.fixed_s) / self.sample_s) + 1
            room = np.minimum(room, np.clip(until - sizes, 0, num_samples).astype(np.int64))
        members = np.repeat(np.arange(len(room)), room)
        nth = np.arange(1, len(members) + 1) - np.repeat(np.cumsum(room) - room, room)
        ends = self.fixed_s[members] + self.sample_s[members] * (sizes[members] + nth)
        first = np.argsort(ends, kind="stable")[:num_samples]
        return np.bincount(members[first], minlength=len(room))

    def shares_of_at_least(self, least: int) -> Samples | None:
        """As `shares`, but each is 0 or at least `least`; None when `total` cannot be cut so."""
        if not self._holds(np.inf, least):
            return None
        sizes = self.shares()
        if not ((sizes > 0) & (sizes < least)).any():
            return sizes
        low, high = 0.0, float(self.finish_s(self.most).max())
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self._holds(middle, least) else (middle, high)
        # Each of those who can do most by then takes `least`, and the rest is cut among them as if that were fixed.
        upper = self._done(high)
        used = np.sort(np.argsort(-upper, kind="stable")[: min(int((upper >= least).sum()), self.total // least)])
        rest = Basin(
            self.fixed_s[used] + least * self.sample_s[used],
            self.sample_s[used],
            self.most[used] - least,
            self.total - least * len(used),
        )
        sizes = np.zeros_like(sizes)
        sizes[used] = least + rest.shares()
        return sizes

    def _done(self, level_s: float) -> Samples:
        done = np.floor((level_s - self.fixed_s) / self.sample_s + 1e-9)
        return np.clip(done, 0, self.most).astype(np.int64)

    def _holds(self, level_s: float, least: int) -> bool:
        """Whether `total` can be done by `level_s` in shares that are 0 or at least `least`."""
        upper = np.sort(self._done(level_s))[::-1]
        num_used = min(int((upper >= least).sum()), self.total // max(least, 1))
        return int(upper[:num_used].sum()) >= self.total
