"""What the coordinator said last, known as soon as it has arrived: the thread that computes may be busy for long."""

from __future__ import annotations

from geartrain.wire.messages import CloseJob, OpenJob, Shutdown, ToNode


class LatestOrders:
    """Told by the thread that receives, asked by the one that computes."""

    def __init__(self) -> None:
        self._term: int | None = None

    def take(self, message: ToNode | Exception) -> None:
        """Note a message when it arrives, or what ended the connection, before it waits for its turn."""
        match message:
            case OpenJob():
                self._term = message.term
            case CloseJob() if message.term == self._term:
                self._term = None
            case Shutdown() | Exception():
                self._term = None

    def is_over(self, term: int) -> bool:
        """Whether nobody waits any more for what is done in `term`: its job was given up, or goes on in another."""
        return term != self._term
