"""Which cuts are full, which are kept, and in which order the others go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from coordinator.checkpoints import FORMAT, BestSoFar, DataStatistics, Manifest
from coordinator.cuts import CutKeeper, PendingCut
from geartrain.checkpoint_layout import BaseCheckpoint


def manifest(cut: PendingCut, number: int, **changes: Any) -> Manifest:
    whole = Manifest(
        format=FORMAT,
        job="job",
        config={},
        version=10 * number,
        term=2,
        passes_done=number + 1,
        samples=0,
        train_seconds=0.0,
        schedule={},
        metrics={},
        best=BestSoFar(0, None, {}, None, 0),
        index=DataStatistics({}, {}),
        segments=[],
        dense_optimizer={},
        servers=["s0"],
        files={},
        pass_versions=[10 * one for one in range(number + 1)],
        base=cut.base,
    )
    return msgspec.structs.replace(whole, **changes)


def test_every_nth_cut_is_full_and_the_others_build_on_it() -> None:
    keeper = CutKeeper(Path("/out"), keep=9, full_every=3)
    bases = []
    for number in range(7):
        cut = keeper.begin("job", number, 10 * number)
        keeper.publish(cut, manifest(cut, number), is_best=True)
        bases.append(cut.base)
    first = BaseCheckpoint("pass-0001-version-00000000", "job", 2, 0)
    second = BaseCheckpoint("pass-0004-version-00000030", "job", 2, 30)
    assert bases == [None, first, first, None, second, second, None]


def test_a_cut_without_a_delta_file_is_full_whatever_was_asked_for() -> None:
    keeper = CutKeeper(Path("/out"), keep=9, full_every=3)
    for number in range(3):
        cut = keeper.begin("job", number, 10 * number)
        keeper.publish(cut, manifest(cut, number, base=None), is_best=True)
    later = keeper.begin("job", 3, 30)
    assert later.base == BaseCheckpoint("pass-0003-version-00000020", "job", 2, 20)


@given(st.integers(1, 4), st.integers(1, 5), st.lists(st.booleans(), min_size=1, max_size=20), st.booleans())
def test_what_is_kept_can_always_be_loaded(keep: int, full_every: int, bests: list[bool], resumed: bool) -> None:
    keeper = CutKeeper(Path("/out"), keep, full_every)
    earlier = Path("/earlier/best")
    if resumed:
        keeper.best = earlier
    there: dict[Path, Path | None] = {}
    best = earlier if resumed else None
    for number, is_best in enumerate(bests):
        cut = keeper.begin("job", number, 10 * number)
        published = keeper.publish(cut, manifest(cut, number), is_best)
        there[cut.final] = cut.final.with_name(cut.base.checkpoint) if cut.base is not None else None
        best = cut.final if is_best or best is None else best
        for path in published.expired:
            assert path not in there.values() or all(base != path for base in there.values()), "a delta still needs it"
            del there[path]
        assert keeper.latest == cut.final and keeper.best == best
        assert set(list(there)[-keep:]) >= {cut.final}
        assert best == earlier or best in there
        assert all(base is None or base in there for base in there.values())
        newest = [f"/out/pass-{one + 1:04d}-version-{10 * one:08d}" for one in range(number + 1)][-keep:]
        assert {str(path) for path in there} >= set(newest)
        # Nothing is kept for nothing: the newest, the best, and what they build on.
        wanted = {Path(path) for path in newest} | {best}
        assert set(there) <= wanted | {there.get(path) for path in wanted if path in there}
