"""The tools of a job's script: a generator that is resumed with every event and says what it wants as commands.

Pure: messages, answers of the shell and time go in, commands come out. `coordinator.preparing` and `coordinator.run`
hold the script itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TypeAlias, TypeVar

from coordinator import journal
from coordinator.accounts import Accounts
from coordinator.commands import Command, FilesDone, Journal, RaiseTerm, Send, ShellEvent, TermRaised
from coordinator.plan import JobPlan
from coordinator.questions import Questions
from coordinator.run_view import RunView
from geartrain.errors import GeartrainError
from geartrain.wire.messages import FromNode, ToNode

Event: TypeAlias = FromNode | ShellEvent
_T = TypeVar("_T")
Script: TypeAlias = Generator[None, Event, _T]


class JobScript:
    """What every part of a job's script needs: its plan, the time, what it wants done, what others may see of it."""

    def __init__(self, plan: JobPlan, term: int, unix_time: Callable[[], float]) -> None:
        """`unix_time` is asked for the times that people see."""
        self._plan = plan
        self._config = plan.config
        self._unix_time = unix_time
        self._now_s = 0.0
        self._commands: list[Command] = []
        self.term = term
        self.accounts: Accounts = plan.accounts()
        self.view = RunView()

    def _ask(self, kind: type[_T], messages: Mapping[str, ToNode]) -> Script[dict[str, _T]]:
        """Send a message to each node and wait until all have answered with one of `kind`."""
        questions = Questions(messages, self._now_s)
        self._emit(questions.first())
        answers: dict[str, _T] = {}
        while questions.missing:
            event = yield
            node = getattr(event, "node", "")
            if isinstance(event, kind) and node in questions.missing:
                questions.answered(node, self._now_s)
                answers[node] = event
            self._emit(questions.due(self._now_s) if questions.missing else ())
        return answers

    def _await(self, kind: type[_T]) -> Script[_T]:
        """Wait for one event of `kind`. Raises what the shell failed with instead."""
        while True:
            event = yield
            if isinstance(event, FilesDone) and event.error is not None:
                raise GeartrainError.from_dict(event.error)
            if isinstance(event, kind):
                return event

    def _raise_term(self) -> Script[None]:
        self._emit([RaiseTerm(self._plan.job)])
        self.term = (yield from self._await(TermRaised)).term

    def _files_done(self) -> Script[None]:
        yield from self._await(FilesDone)

    def _send(self, nodes: Iterable[str], message: ToNode) -> None:
        self._emit(Send(node, message) for node in nodes)

    def _journal(self, *entries: journal.Entry) -> None:
        self._emit([Journal(self._plan.job, tuple(journal.encode(entry) for entry in entries))])

    def _note(self, kind: str, message: str) -> None:
        self.view.events.append((kind, message))

    def _emit(self, commands: Iterable[Command]) -> None:
        self._commands.extend(commands)

    def _take_commands(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands
