"""Rows of a table from birth to end, by the decisions of a job: what is counted, what is read, what stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from life_support import DIM, SPREAD, Life, in_shard, spec

from embedding_tier import job_tables
from embedding_tier import table as table_module
from geartrain.errors import WireError
from geartrain.types import NUM_SHARDS
from kernels.hashing import shard_of
from kernels.row_store import RowStore
from kernels.row_stores import apply_tables


def test_without_settings_every_key_gets_a_row_that_stays() -> None:
    life = Life(spec())
    life.window(SPREAD)
    for _ in range(5):
        life.window([])
    assert life.counts == (400, 0, 0, 0)
    assert life.updates(SPREAD) == [1] * 400


def test_a_probability_draws_anew_in_every_window() -> None:
    life = Life(spec(admission={"type": "probability", "p": 0.25}))
    num_tries = 0
    for _ in range(4):
        num_tries += 400 - life.num_rows
        life.window(SPREAD)
        admitted, rejected, _, _ = life.counts
        assert (admitted, admitted + rejected) == (life.num_rows, num_tries)
    updates = life.updates(SPREAD)
    assert updates.count(0) == 400 - life.num_rows
    shares = [sum(count > windows for count in updates) / 400 for windows in range(4)]  # 1 - 0.75^4, 1 - 0.75^3, ...
    np.testing.assert_allclose(shares, [0.684, 0.578, 0.4375, 0.25], atol=0.08)


def test_a_count_admits_in_the_window_of_the_nth_show() -> None:
    life = Life(spec(admission={"type": "count", "n": 3, "sketch_mb": 1}))
    life.window([5, 6], shows=1.0)
    life.window([5, 7], shows=2.0)
    assert life.counts == (1, 3, 0, 0)
    for _ in range(9):
        life.rows([6, 7])  # what is only read is never counted
    life.window([6, 7], shows=1.0)
    assert (life.counts, life.updates([5, 6, 7])) == ((2, 4, 0, 0), [1, 0, 1])


def test_a_row_that_was_not_seen_leaves_and_is_as_new_when_its_key_comes_back() -> None:
    life = Life(spec(expiry={"type": "unseen", "versions": 1}))
    life.window([5, 6])
    life.window([5])
    assert (life.counts, life.num_rows, life.updates([5, 6])) == ((2, 0, 1, 0), 1, [2, 0])
    life.window([5, 6])
    assert (life.counts, life.updates([5, 6])) == ((3, 0, 1, 0), [3, 1])


def test_a_row_that_left_goes_through_admission_again() -> None:
    life = Life(spec(admission={"type": "count", "n": 2, "sketch_mb": 1}, expiry={"type": "unseen", "versions": 1}))
    life.window([5], shows=2.0)
    life.window([])
    assert (life.counts, life.updates([5])) == ((1, 0, 1, 0), [0])
    life.window([5], shows=1.0)  # its old shows are still in the sketch
    assert (life.counts, life.updates([5])) == ((2, 0, 1, 0), [1])


@pytest.mark.parametrize("divisor", [0.0, 1.0])
def test_windows_that_bring_nothing_make_rows_leave_too(divisor: float) -> None:
    life = Life(spec(expiry={"type": "unseen", "versions": 3}))
    life.window(SPREAD)
    for _ in range(5):
        life.window([], divisor=divisor)
    assert (life.counts, life.num_rows) == ((400, 0, 400, 0), 0)
    life.window([9], divisor=0.0)
    assert (life.counts[0], life.num_rows) == (400, 0), "what cannot be divided brings no row"


def test_by_passes_a_row_leaves_that_the_whole_pass_before_did_not_see() -> None:
    life = Life(spec(expiry={"type": "unseen", "passes": 1}))
    for passes in ([0], [0, 2], [2, 4]):
        seen = {0: [5, 6, 7], 2: [5, 6], 4: [5, 7]}[passes[-1]]
        for _ in range(2):
            life.window(seen, passes=passes)
    # 7 was not seen in the second pass, so it left at the beginning of the third, which may have brought it back since.
    # 6 was seen in the second pass, and stays through the third.
    assert life.counts[2] in (0, 1)
    assert life.updates([5, 6]) == [6, 4]
    for _ in range(2):
        life.window([5], passes=[4, 6])
    assert life.updates([5, 6]) == [8, 0]


def test_a_score_fades_until_its_row_leaves() -> None:
    fading = {"type": "score", "threshold": 1.0, "decay": 0.5, "every_versions": 1}
    life = Life(spec(expiry=fading))
    life.window([5], shows=4.0)
    assert life.job.stats()[0]["t"].hottest == [(5, 2.0)]
    life.window([])
    assert life.num_rows == 1, "a score of exactly the threshold is enough"
    life.window([])
    assert (life.counts, life.num_rows, life.job.stats()[0]["t"].hottest) == ((1, 0, 1, 0), 0, [])


def test_a_full_shard_makes_room_by_the_oldest_update() -> None:
    keys = in_shard(3, 5)
    life = Life(spec(max_rows=4 * NUM_SHARDS, eviction="lru"))
    life.window(keys[:4])
    life.window(keys[:2] + keys[3:4])
    life.window(keys[4:])
    assert (life.counts, life.updates(keys)) == ((5, 0, 0, 1), [2, 2, 0, 2, 1])


def test_a_full_shard_makes_room_by_the_fewest_shows() -> None:
    keys = in_shard(3, 5)
    life = Life(spec(max_rows=4 * NUM_SHARDS, eviction="lfu"))
    for key, shows in zip(keys[:4], (5.0, 1.0, 7.0, 3.0), strict=True):
        life.window([key], shows=shows)
    life.window(keys[4:])
    assert (life.counts, life.updates(keys)) == ((5, 0, 0, 1), [1, 0, 1, 1, 1])


def test_more_new_keys_than_a_shard_may_hold_are_rejected() -> None:
    keys = in_shard(3, 6)
    life = Life(spec(max_rows=4 * NUM_SHARDS))
    life.window(keys)
    assert (life.counts, life.num_rows) == ((4, 2, 0, 0), 4)


def test_the_hottest_keys_are_told_with_their_shows() -> None:
    life = Life(spec())
    life.window(SPREAD)
    life.window(SPREAD[:40], shows=2.0)
    life.window([SPREAD[7]], shows=5.0)
    hottest = life.job.stats()[0]["t"].hottest
    assert (len(hottest), hottest[0], {shows for _, shows in hottest[1:]}) == (32, (SPREAD[7], 8.0), {3.0})


LIVES: dict[str, dict[str, Any]] = {
    "probability": {"admission": {"type": "probability", "p": 0.3}},
    "count": {"admission": {"type": "count", "n": 3, "sketch_mb": 1}},
    "versions": {"expiry": {"type": "unseen", "versions": 3}},
    "passes": {"expiry": {"type": "unseen", "passes": 1}},
    "score": {"expiry": {"type": "score", "threshold": 1.5, "decay": 0.7, "every_versions": 2}},
    "lru": {"max_rows": 100 + NUM_SHARDS, "eviction": "lru"},
    "lfu": {"max_rows": 100 + NUM_SHARDS, "eviction": "lfu"},
    "all": {
        "admission": {"type": "count", "n": 2, "sketch_mb": 1},
        "expiry": {"type": "score", "threshold": 1.5, "decay": 0.7, "every_versions": 2},
        "max_rows": 100 + NUM_SHARDS,
        "row_dtype": "fp16",
        "optimizer": {"type": "rowwise_adam"},
    },
}
PASSES = [[0], [0, 3], [3, 6], [6, 9]]
windows = st.lists(st.lists(st.integers(0, 399), max_size=120, unique=True), min_size=1, max_size=10)


def live(life: Life, drawn: list[list[int]], first: int = 0) -> None:
    for number, places in enumerate(drawn):
        if number >= first:
            life.window([SPREAD[place] for place in places], shows=1 + number % 2, passes=PASSES[number // 3])


@pytest.mark.parametrize("name", LIVES)
@given(drawn=windows)
@settings(max_examples=12, deadline=None)
def test_nothing_depends_on_the_number_of_servers(name: str, drawn: list[list[int]]) -> None:
    whole = Life(spec(**LIVES[name]))
    live(whole, drawn)
    admitted, _, expired, evicted = whole.counts
    assert whole.num_rows == admitted - expired - evicted
    for count in (2, 3):
        servers = [Life(spec(**LIVES[name]), frozenset(range(rank, NUM_SHARDS, count))) for rank in range(count)]
        for one in servers:
            live(one, drawn)
        assert tuple(map(sum, zip(*(one.counts for one in servers), strict=True))) == whole.counts
        assert sum(one.num_rows for one in servers) == whole.num_rows
        owners = shard_of(np.array(SPREAD, dtype=np.uint64)) % count
        for rank, one in enumerate(servers):
            mine = [key for key, owner in zip(SPREAD, owners, strict=True) if owner == rank]
            assert one.rows(mine).tobytes() == whole.rows(mine).tobytes()


@pytest.mark.parametrize("name", LIVES)
@given(drawn=windows, data=st.data())
@settings(max_examples=12, deadline=None)
def test_nothing_depends_on_a_restore(name: str, drawn: list[list[int]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(drawn)))
    stopped = Life(spec(**LIVES[name]))
    live(stopped, drawn[:at])
    before = stopped.counts
    resumed = Life(spec(**LIVES[name]), version=at)
    copy(stopped.table.store, resumed.table.store, at)
    live(resumed, drawn, first=at)
    live(stopped, drawn, first=at)
    assert tuple(now - then for now, then in zip(stopped.counts, before, strict=True)) == resumed.counts
    assert resumed.rows(SPREAD).tobytes() == stopped.rows(SPREAD).tobytes()
    assert resumed.num_rows == stopped.num_rows


def copy(source: RowStore, into: RowStore, version: int) -> None:
    source.begin_cut(version, None)
    cut = source.cut_shards(0, NUM_SHARDS)
    source.end_cut()
    into.load(cut.rows)
    into.load_sketches(0, cut.sketches, cut.sketch_totals)


@pytest.mark.parametrize("row_dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "ftrl"])
def test_every_optimizer_keeps_rows_of_every_dtype_within_bounds(kind: str, row_dtype: str) -> None:
    life = Life(spec(optimizer={"type": kind, "weight_bounds": [-0.25, 0.5]}, row_dtype=row_dtype))
    for _ in range(3):
        life.window([5, 6])
    rows = life.rows([5, 6])
    assert rows.shape == (2, DIM)
    assert (rows == -0.25).all(), "a gradient that is always 1 drives values to the lower bound"


def test_memory_is_asked_for_after_many_births_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "GROWTH_ROWS", 40)
    life = Life(spec())
    asked: list[int] = []
    monkeypatch.setattr(life.table.store, "prepare_growth", asked.append)
    life.window(SPREAD[:30])
    life.job.prepare_growth()
    assert asked == []
    life.window(SPREAD[30:40])
    life.job.prepare_growth()
    life.window(SPREAD[:20])
    life.job.prepare_growth()
    assert asked == [80]


def test_only_large_windows_are_applied_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_tables, "LARGE_WINDOW_ROWS", 10)
    used: list[Sequence[int]] = []

    def spy(*arguments: Any) -> Any:
        used.append(arguments[-1])
        return apply_tables(*arguments)

    monkeypatch.setattr(job_tables, "apply_tables", spy)
    life = Life(spec(), num_threads=2)
    life.window(SPREAD[:10])
    life.window(SPREAD[:11])
    assert used == [[1], [2]]


def test_a_push_with_a_double_leaves_no_trace() -> None:
    life = Life(spec())
    with pytest.raises(WireError, match="key 0000000000000005 of table t twice"):
        life.window([5, 6, 5])
    assert life.job.stats()[1] == 0
    life.window([5, 6])
    assert life.updates([5, 6]) == [1, 1]


@pytest.mark.parametrize(("shows", "share"), [(2, 0.002), (3, 0.0)])
def test_the_sketch_admits_hardly_any_id_too_early(shows: int, share: float) -> None:
    life = Life(spec(admission={"type": "count", "n": shows, "sketch_mb": 1}))
    random = np.random.default_rng(1)
    most = 0
    for _ in range(60):
        before = life.counts[0]
        life.window(random.integers(0, 2**64, 2000, dtype=np.uint64))  # each shown once, so none has a right to a row
        most = max(most, life.counts[0] - before)
    assert life.counts[0] <= 60 * 2000 * share
    assert most <= 2000 * 0.005


@pytest.mark.parametrize("eviction", ["lru", "lfu"])
def test_a_stream_of_ever_new_ids_keeps_a_table_full_and_within_its_limit(eviction: str) -> None:
    limit = 32 * NUM_SHARDS
    life = Life(spec(max_rows=limit, eviction=eviction))
    random = np.random.default_rng(1)
    held = []
    for _ in range(60):
        life.window(random.integers(0, 2**64, 2000, dtype=np.uint64))
        held.append(life.num_rows)
    assert max(held) <= limit
    assert min(held[40:]) >= 0.93 * limit
    admitted, rejected, _, evicted = life.counts
    assert (admitted + rejected, admitted - evicted) == (60 * 2000, held[-1])
