"""Pulls that ask for a version which is not there yet, kept until it is or their deadline passes. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from geartrain.errors import BusyError

Kept = TypeVar("Kept")

MAX_PARKED = 4096
REMEMBERED_VERSIONS = 64

Place = tuple[str, int, int]
"""Worker, incarnation and sequence: the same pull sent again takes the place of the first."""


@dataclass(frozen=True, slots=True)
class _Parked(Generic[Kept]):
    version: int
    deadline_s: float
    kept: Kept


class ParkingLot(Generic[Kept]):
    """Parked requests by who asked. The caller holds a lock."""

    def __init__(self) -> None:
        self._parked: dict[Place, _Parked[Kept]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, place: Place, version: int, deadline_s: float, kept: Kept) -> None:
        """Keep `kept` until `version` is there. Raises `BusyError` when far too many are parked."""
        if len(self._parked) >= MAX_PARKED and place not in self._parked:
            raise BusyError(f"{len(self._parked)} pulls wait for a version", num_parked=len(self._parked))
        self._parked[place] = _Parked(version, deadline_s, kept)

    def release(self, version: int) -> list[Kept]:
        """Those that waited for `version` or an older one."""
        return self._take([place for place, parked in self._parked.items() if parked.version <= version])

    def expired(self, now_s: float) -> list[Kept]:
        """Those whose deadline has passed."""
        return self._take([place for place, parked in self._parked.items() if parked.deadline_s <= now_s])

    def clear(self) -> list[Kept]:
        """All."""
        return self._take(list(self._parked))

    def _take(self, places: list[Place]) -> list[Kept]:
        return [self._parked.pop(place).kept for place in places]


class VersionTimes:
    """Since when the last versions have been there. The caller holds a lock."""

    def __init__(self) -> None:
        self._reached: deque[tuple[int, float]] = deque(maxlen=REMEMBERED_VERSIONS)

    def reached(self, version: int, now_s: float) -> None:
        """All versions up to `version` are there; those that were not there before are since `now_s`."""
        if not self._reached or version > self._reached[-1][0]:
            self._reached.append((version, now_s))

    def waited_s(self, version: int, arrived_s: float) -> float:
        """How long a request for `version`, which is there by now, had to wait for it; 0 for versions before those
        that are remembered."""
        if not self._reached or version < self._reached[0][0]:
            return 0.0
        # A version is there a moment before it is noted here: who asks for it in between has not waited.
        since_s = next((since_s for reached, since_s in self._reached if reached >= version), arrived_s)
        return max(0.0, since_s - arrived_s)

    def clear(self) -> None:
        """Forget all: another job counts its versions anew."""
        self._reached.clear()
