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


class CutKeeper:
    """Names cuts below `root`, keeps the newest `keep` of this run and the best one."""

    def __init__(self, root: Path, keep: int) -> None:
        self._root = root
        self._keep = keep
        self._finished: list[Path] = []
        self.best: Path | None = None

    @property
    def latest(self) -> Path | None:
        return self._finished[-1] if self._finished else None

    def begin(self, job: str, pass_index: int, version: int) -> PendingCut:
        """The cut at the end of a pass."""
        name = f"pass-{pass_index + 1:04d}-version-{version:08d}"
        return PendingCut(job, self._root / (TEMPORARY_PREFIX + name), self._root / name)

    def publish(self, cut: PendingCut, manifest: Manifest, is_best: bool) -> PublishCut:
        """Finish a cut; older ones that are neither among the newest nor the best are removed with it."""
        if is_best or self.best is None:
            self.best = cut.final
        self._finished.append(cut.final)
        kept = {*self._finished[-self._keep :], self.best}
        expired = tuple(path for path in self._finished if path not in kept)
        self._finished = [path for path in self._finished if path in kept]
        return PublishCut(cut.job, cut.temporary, cut.final, msgspec.to_builtins(manifest), expired)
