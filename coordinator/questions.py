"""Messages that wait for an answer: sent again while none comes, given up by name after a deadline. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.commands import Send
from geartrain.errors import DeadlineError
from geartrain.timeouts import DEFAULT
from geartrain.wire.messages import ToNode

RESEND_S = DEFAULT.lease_s
"""A connection that breaks may lose a message; the same one twice changes nothing on a node."""
ANSWER_DEADLINE_S = 600.0
"""Without any answer for this long (reading a large checkpoint takes long) the job fails."""


class Questions:
    """One message to each of several nodes, of which all must answer."""

    def __init__(self, messages: Mapping[str, ToNode], now_s: float) -> None:
        self._missing = dict(messages)
        self._resend_s = now_s + RESEND_S
        self._give_up_s = now_s + ANSWER_DEADLINE_S

    @property
    def missing(self) -> frozenset[str]:
        """The nodes that have not answered."""
        return frozenset(self._missing)

    def first(self) -> list[Send]:
        """All messages."""
        return [Send(node, message) for node, message in self._missing.items()]

    def heard(self, now_s: float) -> None:
        """Something came, although it was not the whole answer yet: the deadline starts anew."""
        self._give_up_s = now_s + ANSWER_DEADLINE_S

    def answered(self, node: str, now_s: float) -> None:
        """A node has answered."""
        self._missing.pop(node, None)
        self.heard(now_s)

    def due(self, now_s: float) -> list[Send]:
        """What is to be sent again now. Raises `DeadlineError` naming the nodes that have not answered in time."""
        if now_s >= self._give_up_s:
            names = ", ".join(sorted(self._missing))
            kinds = " and ".join(sorted({type(message).__name__ for message in self._missing.values()}))
            raise DeadlineError(
                f"{names} did not answer {kinds} within {ANSWER_DEADLINE_S:g} s",
                role=names,
                deadline_s=ANSWER_DEADLINE_S,
            )
        if now_s < self._resend_s:
            return []
        self._resend_s = now_s + RESEND_S
        return self.first()
