"""Which checkpoints of a run exist, what the next is called, and which are no longer kept. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from coordinator.checkpoints import TEMPORARY_PREFIX, Manifest
from coordinator.commands import PrepareCut, PublishCut


@dataclass(frozen=True, slots=True)
class PendingCut:
    """A checkpoint that is being taken: servers write into `temporary`, which becomes `final`."""

    job: str
    temporary: Path
    final: Path

    @property
    def prepare(self) -> PrepareCut:
        return PrepareCut(self.job, self.temporary)


def cut_name(pass_index: int, version: int) -> str:
    """The folder of the cut at the end of a pass."""
    return f"pass-{pass_index + 1:04d}-version-{version:08d}"


class CutKeeper:
    """Names cuts below `root`, keeps the newest `keep` of this run and the best one.

    `latest` and `best` may be set to cuts of the run that is resumed; those are never removed.
    """

    def __init__(self, root: Path, keep: int) -> None:
        self._root = root
        self._keep = keep
        self._finished: list[Path] = []
        self.latest: Path | None = None
        self.best: Path | None = None

    def begin(self, job: str, pass_index: int, version: int) -> PendingCut:
        """The cut at the end of a pass."""
        name = cut_name(pass_index, version)
        return PendingCut(job, self._root / (TEMPORARY_PREFIX + name), self._root / name)

    def publish(self, cut: PendingCut, manifest: Manifest, is_best: bool) -> PublishCut:
        """Finish a cut; older ones that are neither among the newest nor the best are removed with it."""
        if is_best or self.best is None:
            self.best = cut.final
        self.latest = cut.final
        self._finished.append(cut.final)
        kept = {*self._finished[-self._keep :], self.best}
        expired = tuple(path for path in self._finished if path not in kept)
        self._finished = [path for path in self._finished if path in kept]
        return PublishCut(cut.job, cut.temporary, cut.final, msgspec.to_builtins(manifest), expired)
