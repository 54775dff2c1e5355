"""A cut on its way from an empty folder to a checkpoint, while training goes on. Pure: events in, commands out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from coordinator.checkpoints import Manifest
from coordinator.commands import Command, CutFilesDone
from coordinator.cuts import CutKeeper, PendingCut
from coordinator.questions import Questions
from geartrain.errors import GeartrainError
from geartrain.wire.messages import SnapshotBegun, SnapshotTaken, TakeSnapshot


class CutUnderWay:
    """One cut: its folder is made, servers fix their state (it has `begun`) and write it, it is published (`done`).

    No window may be decided before it has begun; whatever is decided later is not in it.
    """

    def __init__(
        self, keeper: CutKeeper, place: PendingCut, manifest: Manifest, is_best: bool, servers: Iterable[str]
    ) -> None:
        """`manifest` describes the state; what it says of files and base is added when they are known."""
        self.place = place
        self.manifest = manifest
        self.done = False
        self._keeper = keeper
        self._is_best = is_best
        self._servers = frozenset(servers)
        self._begun: set[str] = set()
        self._questions: dict[str, Questions] = {}  # one each: the deadline is of the server that is not heard
        self._files: dict[str, dict[str, dict[str, Any]]] = {}

    @property
    def begun(self) -> bool:
        return self._begun == self._servers

    def start(self) -> list[Command]:
        """The first command."""
        return [self.place.prepare]

    def handle(self, event: object, now_s: float) -> list[Command]:
        """Go on with what happened, which may have nothing to do with it.

        Raises what the shell failed with, and `DeadlineError` when a server does not answer in time.
        """
        commands: list[Command] = []
        if isinstance(event, CutFilesDone):
            commands += self._files_done(event, now_s)
        elif isinstance(event, SnapshotBegun | SnapshotTaken):
            commands += self._heard(event, now_s)
        for server, question in self._questions.items():
            if server not in self._files:
                commands += question.due(now_s)
        return commands

    def _files_done(self, event: CutFilesDone, now_s: float) -> list[Command]:
        if event.error is not None:
            raise GeartrainError.from_dict(event.error)
        if self._questions:
            self.done = True
            return []
        base = self.place.base.version if self.place.base is not None else None
        taking = TakeSnapshot(
            self.manifest.term, self.manifest.passes_done, self.manifest.version, str(self.place.temporary), base
        )
        self._questions = {server: Questions({server: taking}, now_s) for server in sorted(self._servers)}
        return [send for question in self._questions.values() for send in question.first()]

    def _heard(self, event: SnapshotBegun | SnapshotTaken, now_s: float) -> list[Command]:
        question = self._questions.get(event.node)
        if question is None or event.snapshot != self.manifest.passes_done or event.node in self._files:
            return []
        question.heard(now_s)
        self._begun.add(event.node)
        if isinstance(event, SnapshotBegun):
            return []  # asked again while it writes, a server says so
        self._files[event.node] = event.files
        return [self._publish()] if self._files.keys() == self._servers else []

    def _publish(self) -> Command:
        files = {name: about for server in sorted(self._files) for name, about in self._files[server].items()}
        builds_on_base = any(about.get("kind") == "delta" for about in files.values())
        base = self.place.base if builds_on_base else None
        self.manifest = msgspec.structs.replace(self.manifest, files=files, base=base)
        return self._keeper.publish(self.place, self.manifest, self._is_best)
