"""All time-outs that depend on each other, derived from one: the lease of a node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeOuts:
    """Each must be well above the one before, or a fault is blamed on the wrong one."""

    lease_s: float = 5.0
    """A node that the coordinator has not heard for this long is dead."""

    @property
    def heartbeat_s(self) -> float:
        """Between two heartbeats of a node: ten fit into a lease."""
        return self.lease_s / 10

    @property
    def silence_s(self) -> float:
        """A launcher takes a coordinator for dead that answers nothing for this long: nodes have told before."""
        return 3 * self.lease_s

    @property
    def join_s(self) -> float:
        """Until all members of a sync group have come together, which they are told to at the same time."""
        return 12 * self.lease_s

    @property
    def group_s(self) -> float:
        """A collective of a sync group: it waits for slow members. Dead and frozen ones are found by their leases."""
        return 360 * self.lease_s


DEFAULT = TimeOuts()
