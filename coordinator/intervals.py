"""A set of positions of one pass, kept as sorted, disjoint intervals that do not touch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from geartrain.errors import ConservationError
from geartrain.types import Interval


class IntervalSet:
    """Positions of pass `pass_index`. `add` merges what touches; adding a position twice is a ConservationError."""

    def __init__(self, pass_index: int, intervals: Iterable[Interval] = ()) -> None:
        self.pass_index = pass_index
        self._starts: list[int] = []
        self._stops: list[int] = []
        for interval in intervals:
            self.add(interval)

    def __iter__(self) -> Iterator[Interval]:
        """The intervals, lowest position first."""
        return (Interval(self.pass_index, start, stop) for start, stop in zip(self._starts, self._stops, strict=True))

    def __bool__(self) -> bool:
        return bool(self._starts)

    @property
    def num_samples(self) -> int:
        return sum(self._stops) - sum(self._starts)

    def add(self, interval: Interval) -> None:
        """Add an interval of this pass. Raises ConservationError when a position is in the set already."""
        if interval.pass_index != self.pass_index:
            raise ConservationError(
                f"{interval.start} to {interval.stop} of pass {interval.pass_index}, others are of {self.pass_index}",
                pass_index=interval.pass_index,
                start=interval.start,
                stop=interval.stop,
            )
        if interval.num_samples <= 0:
            return
        place = bisect_left(self._starts, interval.start)
        below = self._stops[place - 1] if place > 0 else -1
        above = self._starts[place] if place < len(self._starts) else interval.stop
        if below > interval.start or above < interval.stop:
            start = interval.start if below > interval.start else above
            raise ConservationError(
                f"position {start} of pass {self.pass_index} is counted twice",
                pass_index=self.pass_index,
                start=start,
                stop=min(interval.stop, below) if below > interval.start else interval.stop,
            )
        joins_below = below == interval.start
        joins_above = place < len(self._starts) and above == interval.stop
        if joins_below and joins_above:
            self._stops[place - 1] = self._stops.pop(place)
            self._starts.pop(place)
        elif joins_below:
            self._stops[place - 1] = interval.stop
        elif joins_above:
            self._starts[place] = interval.start
        else:
            self._starts.insert(place, interval.start)
            self._stops.insert(place, interval.stop)

    def first_length(self) -> int:
        """Samples of the lowest interval; 0 when the set is empty."""
        return self._stops[0] - self._starts[0] if self._starts else 0

    def take(self, num_samples: int) -> Interval:
        """Remove and return the lowest `num_samples` positions, fewer when the lowest interval is shorter."""
        start, length = self._starts[0], min(num_samples, self.first_length())
        if length == self.first_length():
            del self._starts[0], self._stops[0]
        else:
            self._starts[0] += length
        return Interval(self.pass_index, start, start + length)

    def missing(self, num_rows: int) -> IntervalSet:
        """The positions below `num_rows` that are not in the set."""
        rest = IntervalSet(self.pass_index)
        position = 0
        for interval in self:
            rest.add(Interval(self.pass_index, position, min(interval.start, num_rows)))
            position = interval.stop
        rest.add(Interval(self.pass_index, position, num_rows))
        return rest
