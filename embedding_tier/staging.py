"""Gradients that were pushed and not yet decided. Pure: no lock, no clock, no socket.

A part is kept under (group, step, worker) within one term. Staging it again changes nothing, also after its step was
decided: a group's steps are decided in order, so a decided step is at or below the group's last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from geartrain.errors import BusyError, StaleMessageError, VersionError, WireError
from geartrain.types import Indices
from geartrain.wire.framing import StagedArrays
from kernels.contribution import MAX_GRADIENT, within
from kernels.dedup import first_repeated


@dataclass(frozen=True, slots=True)
class StagedPart:
    """What one worker staged of a step: row counts per table int64[T], the buffers, where its dense slice begins."""

    counts: Indices
    arrays: StagedArrays
    dense_start: int

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    @property
    def table_bytes(self) -> Indices:
        """Of each table, the bytes of its keys, gradients, shows and clicks: int64[T]."""
        keys, grads, shows, clicks, _ = self.arrays
        num_bytes = keys.nbytes + grads.nbytes + shows.nbytes + clicks.nbytes
        return self.counts * (num_bytes // max(len(keys), 1))


def check_rows(part: StagedPart, tables: Sequence[str]) -> None:
    """What the application of a window relies on: the keys of each table differ, shows and clicks are counts, and
    gradients numbers that can be squared and summed.

    `tables` names those that the counts are of. Raises `WireError`.
    """
    arrays = part.arrays
    for name, values in (("shows", arrays.shows), ("clicks", arrays.clicks)):
        # Written so that it holds for no NaN.
        if len(values) and not (values.min() >= 0 and values.max() < np.inf):
            raise WireError(f"{name} that are no counts", field=name, expected="finite numbers >= 0", got=name)
    if not within(arrays.grads, MAX_GRADIENT):
        expected = f"absolute values of at most {MAX_GRADIENT:g}"
        raise WireError("gradients with NaN, Inf or too large", field="grads", expected=expected, got="others")
    position = first_repeated(arrays.keys, part.counts)
    if position >= 0:
        key, table = int(arrays.keys[position]), tables[int(np.searchsorted(part.counts.cumsum(), position, "right"))]
        raise WireError(
            f"key {key:016x} of table {table} twice in one push",
            field="keys",
            expected="keys that are all different",
            got=f"{key:016x}",
            table=table,
        )


class StagingArea:
    """Parts of steps that are under way, bounded per worker so that one that runs wild shuts nobody else out.

    Group ids grow and are never used twice. A group is dead when a decision's list of live groups knows of younger
    ones but not of it, so a group's first gradients may come before the first decision that lists it.
    """

    def __init__(self, max_parts_per_worker: int) -> None:
        self._max_parts = max_parts_per_worker
        self._parts: dict[tuple[int, int, str], StagedPart] = {}
        self._held: Counter[str] = Counter()
        self._decided: dict[int, int] = {}
        self._live: frozenset[int] = frozenset()
        self._youngest = -1
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._parts)

    def table_bytes(self, num_tables: int) -> Indices:
        """Of each table, the bytes of all parts: int64[T]. Dense gradients are of no table."""
        return sum((part.table_bytes for part in self._parts.values()), start=np.zeros(num_tables, dtype=np.int64))

    def wants(self, group: int, step: int, worker: str) -> bool:
        """Whether such a part is new here. Raises `StaleMessageError` for a dead group, `BusyError` when full,
        `WireError` for a step that is none."""
        if step < 0:
            raise WireError(f"step {step} of group {group}", field="step", expected="a step >= 0", got=step)
        if group <= self._youngest and group not in self._live:
            raise StaleMessageError(
                f"group {group} no longer lives", got=group, current=sorted(self._live), worker=worker, step=step
            )
        if step <= self._decided.get(group, -1) or (group, step, worker) in self._parts:
            return False
        if self._held[worker] >= self._max_parts:
            raise BusyError(
                f"{worker} has {self._held[worker]} steps staged, at most {self._max_parts} may be",
                worker=worker,
                num_staged=self._held[worker],
                allowed=self._max_parts,
            )
        return True

    def put(self, group: int, step: int, worker: str, part: StagedPart) -> bool:
        """Keep a part if it is new here, and tell whether it was. Raises as `wants`."""
        if not self.wants(group, step, worker):
            return False
        self._parts[group, step, worker] = part
        self._held[worker] += 1
        self.num_bytes += part.num_bytes
        return True

    def parts(self, group: int, step: int, workers: Iterable[str]) -> list[StagedPart]:
        """The parts of a decided step, in the order of `workers`. Raises `VersionError` naming one that is missing."""
        found = []
        for worker in workers:
            part = self._parts.get((group, step, worker))
            if part is None:
                raise VersionError(
                    f"step {step} of group {group} was decided, but what {worker} computed is not staged here",
                    group=group,
                    step=step,
                    worker=worker,
                )
            found.append(part)
        return found

    def decided(self, group: int, step: int) -> None:
        """Forget all parts of a group up to this step."""
        self._decided[group] = max(step, self._decided.get(group, -1))
        self._drop(key for key in self._parts if key[0] == group and key[1] <= step)

    def keep_only(self, live_groups: Iterable[int]) -> None:
        """Groups not in the list, as old as the youngest in it or older, are dead: forget and refuse their parts."""
        self._live = frozenset(live_groups)
        self._youngest = max(self._live, default=self._youngest)
        dead = {group for group, _, _ in self._parts} | set(self._decided)
        dead = {group for group in dead if group <= self._youngest and group not in self._live}
        self._drop(key for key in self._parts if key[0] in dead)
        for group in dead:
            self._decided.pop(group, None)

    def _drop(self, keys: Iterable[tuple[int, int, str]]) -> None:
        for key in list(keys):
            part = self._parts.pop(key)
            self.num_bytes -= part.num_bytes
            self._held[key[2]] -= 1
