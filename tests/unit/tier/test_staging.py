"""The staging area: idempotent, bounded, and without a trace of groups that no longer live."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedding_tier.staging import StagedPart, StagingArea, check_rows
from geartrain.errors import BusyError, StaleMessageError, VersionError, WireError
from geartrain.wire.framing import StagedArrays
from kernels.contribution import MAX_GRADIENT


def part(value: float = 1.0, num_rows: int = 2) -> StagedPart:
    rows = np.full(num_rows, value, dtype=np.float32)
    arrays = StagedArrays(np.arange(num_rows, dtype=np.uint64), rows.reshape(-1, 1), rows, rows, rows[:0])
    return StagedPart(np.array([num_rows]), arrays, 0)


def test_the_same_part_twice_changes_nothing() -> None:
    area = StagingArea(2)
    assert area.put(1, 0, "w0", part(1.0))
    num_bytes = area.num_bytes
    assert not area.put(1, 0, "w0", part(2.0, num_rows=9))
    assert (len(area), area.num_bytes) == (1, num_bytes)
    assert area.parts(1, 0, ["w0"])[0].arrays.shows[0] == 1.0


def test_parts_come_in_the_order_asked_for_and_a_missing_one_is_named() -> None:
    area = StagingArea(2)
    area.put(1, 0, "w1", part(1.0))
    area.put(1, 0, "w0", part(0.0))
    assert [one.arrays.shows[0] for one in area.parts(1, 0, ["w0", "w1"])] == [0.0, 1.0]
    with pytest.raises(VersionError, match="w2") as missing:
        area.parts(1, 0, ["w0", "w2"])
    assert missing.value.facts == {"group": 1, "step": 0, "worker": "w2"}


def test_a_decided_step_is_forgotten_and_not_taken_again() -> None:
    area = StagingArea(2)
    area.put(1, 0, "w0", part())
    area.put(1, 1, "w0", part())
    area.decided(1, 0)
    assert len(area) == 1
    assert not area.put(1, 0, "w0", part())
    assert area.put(1, 2, "w0", part())
    assert len(area) == 2


def test_a_full_area_is_busy_for_that_worker_only_until_a_decision() -> None:
    area = StagingArea(2)
    area.put(1, 0, "w0", part())
    area.put(1, 1, "w0", part())
    with pytest.raises(BusyError) as busy:
        area.put(1, 2, "w0", part())
    assert busy.value.facts == {"worker": "w0", "num_staged": 2, "allowed": 2}
    assert not area.put(1, 1, "w0", part()), "a repetition is answered also when full"
    area.put(1, 2, "w1", part())
    area.decided(1, 0)
    area.put(1, 2, "w0", part())


def test_dead_groups_are_discarded_and_refused_and_new_ones_welcome() -> None:
    area = StagingArea(4)
    for group in (1, 2, 3):
        area.put(group, 0, "w0", part())
    area.keep_only([3])
    assert len(area) == 1
    for group in (1, 2):
        with pytest.raises(StaleMessageError, match=f"group {group}"):
            area.put(group, 1, "w0", part())
    area.put(4, 0, "w0", part())
    area.keep_only([])
    with pytest.raises(StaleMessageError):
        area.put(3, 1, "w0", part())
    area.put(5, 0, "w0", part())


STEPS = st.tuples(st.integers(0, 3), st.integers(0, 4), st.sampled_from(["w0", "w1", "w2"]), st.integers(0, 5))


@given(st.lists(STEPS | st.sets(st.integers(0, 3)) | st.tuples(st.integers(0, 3), st.integers(0, 4))))
def test_bytes_and_bounds_always_add_up(events: list[object]) -> None:
    area = StagingArea(2)
    kept: dict[tuple[int, int, str], int] = {}
    youngest = -1
    for event in events:
        match event:
            case set():
                area.keep_only(event)  # type: ignore[arg-type]
                youngest = max(event, default=youngest)
                kept = {key: size for key, size in kept.items() if key[0] in event or key[0] > youngest}
            case (group, step):
                area.decided(group, step)
                kept = {key: size for key, size in kept.items() if key[0] != group or key[1] > step}
            case (group, step, worker, num_rows):
                try:
                    if area.put(group, step, worker, part(num_rows=num_rows)):
                        kept[group, step, worker] = part(num_rows=num_rows).num_bytes
                except (BusyError, StaleMessageError):
                    pass
        assert area.num_bytes == sum(kept.values())
        assert len(area) == len(kept)
        assert all(sum(key[2] == worker for key in kept) <= 2 for worker in ("w0", "w1", "w2"))


def rows(keys: list[int], counts: tuple[int, ...], **changes: list[float]) -> StagedPart:
    ones = np.ones(len(keys), dtype=np.float32)
    arrays = StagedArrays(np.array(keys, dtype=np.uint64), ones.reshape(-1, 1), ones, ones * 0, ones[:0])
    changed = {name: np.array(values, dtype=np.float32) for name, values in changes.items()}
    return StagedPart(np.array(counts, dtype=np.int64), arrays._replace(**changed), 0)


def test_a_key_twice_for_one_table_is_refused_and_named() -> None:
    check_rows(rows([], (0, 0)), ["a", "b"])
    check_rows(rows([5, 7, 7, 0], (2, 2)), ["a", "b"])
    with pytest.raises(WireError, match="key ffffffffffffffff of table b twice") as doubled:
        check_rows(rows([5, 2**64 - 1, 7, 2**64 - 1], (1, 3)), ["a", "b"])
    assert (doubled.value.facts["field"], doubled.value.facts["table"]) == ("keys", "b")


@given(st.lists(st.integers(0, 2**64 - 1), max_size=30), st.integers(0, 30))
def test_exactly_pushes_with_doubles_are_refused(keys: list[int], cut: int) -> None:
    first, second = keys[:cut], keys[cut:]
    part = rows(keys, (len(first), len(second)))
    if len(set(first)) == len(first) and len(set(second)) == len(second):
        check_rows(part, ["a", "b"])
    else:
        with pytest.raises(WireError):
            check_rows(part, ["a", "b"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1.001 * MAX_GRADIENT, -3e38])
def test_gradients_that_cannot_be_squared_and_summed_are_refused(value: float) -> None:
    check_rows(rows([5, 6], (2,), grads=[MAX_GRADIENT, -MAX_GRADIENT]), ["a"])
    with pytest.raises(WireError, match="too large") as refused:
        check_rows(rows([5, 6], (2,), grads=[1.0, value]), ["a"])
    assert (refused.value.facts["field"], refused.value.facts["expected"]) == (
        "grads",
        "absolute values of at most 1e+12",
    )


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["shows", "clicks"])
def test_shows_and_clicks_that_are_no_counts_are_refused(name: str, value: float) -> None:
    with pytest.raises(WireError) as refused:
        check_rows(rows([5, 6], (2,), **{name: [1.0, value]}), ["a"])
    assert refused.value.facts["field"] == name
