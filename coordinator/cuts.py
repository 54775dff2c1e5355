"""Which checkpoints of a run exist, what the next is called, and which are no longer kept. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from coordinator.checkpoints import TEMPORARY_PREFIX, Manifest
from coordinator.commands import PrepareCut, PublishCut
from geartrain.checkpoint_layout import BaseCheckpoint


@dataclass(frozen=True, slots=True)
class PendingCut:
    """A checkpoint that is being taken: servers write into `temporary`, which becomes `final`.

    `base` is what they may build on, None for a full one.
    """

    job: str
    temporary: Path
    final: Path
    base: BaseCheckpoint | None

    @property
    def prepare(self) -> PrepareCut:
        return PrepareCut(self.job, self.temporary)


def cut_name(pass_index: int, version: int) -> str:
    """The folder of the cut at the end of a pass."""
    return f"pass-{pass_index + 1:04d}-version-{version:08d}"


class CutKeeper:
    """Names cuts below `root`, keeps the newest `keep` of this run, the best one, and what those build on.

    Every `full_every`-th cut is full, the others are deltas on the last full one. `latest` and `best` may be set to
    cuts of the run that is resumed; those are never removed.
    """

    def __init__(self, root: Path, keep: int, full_every: int) -> None:
        self._root = root
        self._keep = keep
        self._full_every = full_every
        self._finished: dict[Path, Path | None] = {}  # with their bases, oldest first
        self._full: BaseCheckpoint | None = None
        self._num_deltas = 0  # since the last full cut
        self.latest: Path | None = None
        self.best: Path | None = None

    def begin(self, job: str, pass_index: int, version: int) -> PendingCut:
        """The cut at the end of a pass."""
        name = cut_name(pass_index, version)
        base = self._full if self._num_deltas + 1 < self._full_every else None
        return PendingCut(job, self._root / (TEMPORARY_PREFIX + name), self._root / name, base)

    def publish(self, cut: PendingCut, manifest: Manifest, is_best: bool) -> PublishCut:
        """Finish a cut; older ones that nothing needs any more are removed with it, deltas before what they build on.

        A cut in which no file is a delta is a full one, whatever was asked for.
        """
        if is_best or self.best is None:
            self.best = cut.final
        self.latest = cut.final
        if manifest.base is None:
            self._full = BaseCheckpoint(cut.final.name, manifest.job, manifest.term, manifest.version)
            self._num_deltas = 0
        else:
            self._num_deltas += 1
        self._finished.pop(cut.final, None)
        self._finished[cut.final] = cut.final.with_name(manifest.base.checkpoint) if manifest.base else None
        wanted = {*list(self._finished)[-self._keep :], self.best}
        kept = wanted | {self._finished.get(path) for path in wanted if path is not None}
        expired = tuple(path for path in reversed(self._finished) if path not in kept)
        self._finished = {path: base for path, base in self._finished.items() if path in kept}
        return PublishCut(cut.job, cut.temporary, cut.final, msgspec.to_builtins(manifest), expired)
