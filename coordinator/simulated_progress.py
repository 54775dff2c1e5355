"""How far a simulation is, for whoever waits for it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Observe: TypeAlias = Callable[[str, int, int], None]
"""Hears what is being simulated, samples done, samples in all."""

TOLD = 400
"""Times that a simulation tells how far it is: what happens with every step must not cost much."""


class SimulatedProgress:
    """Counts the samples of one simulation, `total` of them, and tells `observe` now and then."""

    def __init__(self, what: str, total: int, observe: Observe | None) -> None:
        self._what = what
        self._total = total
        self._observe = observe
        self._done = 0
        self._tell_at = 0

    def add(self, num_samples: int) -> None:
        """A step of so many samples has arrived. What a death made void comes again; never more than all is told."""
        self._done += num_samples
        if self._observe is not None and self._done >= self._tell_at:
            self._tell_at = self._done + max(1, self._total // TOLD)
            self._observe(self._what, min(self._done, self._total), self._total)
