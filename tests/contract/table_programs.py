"""What can happen to a table, as programs that a native store and its reference play side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from contract_samples import EXTREME_KEYS, assert_same, assert_same_fields, floats, keys_from, shard_keys
from hypothesis import strategies as st

from geartrain.types import NUM_SHARDS, Keys
from kernels.contribution import Contribution
from kernels.initializer import Initializer
from kernels.reference.hashing import shard_of
from kernels.reference.row_life import shard_limit
from kernels.reference.row_store import RowStore as ReferenceStore
from kernels.row_life import RowLife
from kernels.row_records import RowRecords, ShardRows
from kernels.row_store import RowStore
from kernels.update_rule import UpdateRule

UNIFORM = Initializer("uniform", 0.1, 5)
RULES = (
    UpdateRule(lr=0.1, step=1),
    UpdateRule(lr=0.01, l2=0.2, step_scale=0.5, divisor=64.0, eps=1e-10, step=3, l1=0.01),
    UpdateRule(lr=1.0, divisor=0.25, beta1=0.5, beta2=0.9, eps=1e-12, step=1000, beta=0.5),
    UpdateRule(lr=0.02, l2=0.1, step_scale=0.2, divisor=8.0, step=9, l1=0.01, most_windows=4.5),
    UpdateRule(lr=0.5, step=7, l1=0.5, beta=2.0, min_weight=-0.125, max_weight=0.3),
    UpdateRule(lr=0.0, l2=0.1, step=2, min_weight=-0.05, max_weight=0.05),
)

ADMISSIONS: dict[str, dict[str, Any]] = {
    "always": {},
    "probability": {"admission": "probability", "probability": 0.4},
    "count": {"admission": "count", "min_shows": 3, "sketch_bytes": 2**16},
}
EXPIRIES: dict[str, dict[str, Any]] = {
    "never": {},
    "unseen": {"expiry": "unseen"},
    "score": {"expiry": "score", "decay": 0.7, "show_weight": 0.5, "click_weight": 1.5, "min_score": 1.25},
}
CAPACITIES: dict[str, dict[str, Any]] = {
    "unbounded": {},
    "lru": {"max_rows": 5 * NUM_SHARDS, "eviction": "lru"},
    "lfu": {"max_rows": 5 * NUM_SHARDS, "eviction": "lfu"},
}
POLICIES = tuple(itertools.product(ADMISSIONS, EXPIRIES, CAPACITIES))
"""Every pair of policies, and every three of them."""

SHARDS = (0, 1, 699, 700, 1023)
KEY_POOL = tuple(
    dict.fromkeys(
        [*EXTREME_KEYS, *(key for s in SHARDS for key in shard_keys(s, [*range(6), *range(2**40, 2**44, 2**41)]))]
    )
)
"""Few shards with many keys, some of which share their place in the shard, others not."""

SHOWS = (0.0, 0.5, 1.0, 1.0, 1.0, 2.0, 3.0, 300.0)


def life_of(policies: tuple[str, str, str], seed: int = 77, **changes: Any) -> RowLife:
    admission, expiry, capacity = policies
    return RowLife(seed=seed, **{**ADMISSIONS[admission], **EXPIRIES[expiry], **CAPACITIES[capacity], **changes})


@dataclass(frozen=True)
class Window:
    """One call of `apply`: the keys and the weight of each contribution."""

    parts: tuple[tuple[tuple[int, ...], float], ...]
    seed: int
    rule: UpdateRule = RULES[0]
    num_threads: int = 1

    def contributions(self, dim: int) -> list[Contribution]:
        made = []
        for number, (keys, weight) in enumerate(self.parts):
            random = np.random.default_rng([self.seed, number])
            shows = random.choice(SHOWS, len(keys)).astype(np.float32)
            clicks = np.floor(shows * random.random(len(keys), dtype=np.float32))
            made.append(
                Contribution(keys_from(keys), floats(self.seed + number, len(keys), dim), shows, clicks, weight)
            )
        return made


@dataclass(frozen=True)
class Sweep:
    """One call of `expire`; rows not seen for `age` versions leave."""

    first_shard: int
    last_shard: int
    age: int


@dataclass(frozen=True)
class BeginCut:
    """A cut of everything, or of what changed if that is known; an older one ends."""

    delta: bool


@dataclass(frozen=True)
class ReadCut:
    """Read some more shards of the cut."""

    num_shards: int


@dataclass(frozen=True)
class Restore:
    """Cut the table, load the cut into a fresh one, and go on with that."""


Step = Window | Sweep | BeginCut | ReadCut | Restore

part = st.tuples(
    st.lists(st.sampled_from(KEY_POOL), max_size=25, unique=True).map(tuple), st.sampled_from([1.0, 0.9, 0.1, 0.0])
)
windows = st.builds(
    Window,
    st.lists(part, max_size=4).map(tuple),
    st.integers(0, 999),
    st.sampled_from(RULES),
    st.integers(1, 3),
)
sweeps = st.builds(
    Sweep, st.sampled_from([0, 1, 600]), st.sampled_from([1, 700, NUM_SHARDS]), st.integers(0, 3)
).filter(lambda sweep: sweep.first_shard < sweep.last_shard)
programs = st.lists(
    windows
    | windows
    | sweeps
    | st.builds(BeginCut, st.booleans())
    | st.builds(ReadCut, st.sampled_from([1, 300, 699]))
    | st.just(Restore()),
    max_size=12,
)


def busy_program(seed: int) -> list[Step]:
    """Something of everything, in which keys come, go and come back."""
    random = np.random.default_rng(seed)

    def window() -> Window:
        parts = []
        for _ in range(random.integers(1, 5)):
            keys = random.choice(len(KEY_POOL), random.integers(0, 25), replace=False)
            parts.append((tuple(KEY_POOL[key] for key in keys), float(random.choice([1.0, 0.9, 0.1]))))
        rule = RULES[random.choice([0, 0, 1, 2, 3, 4])]
        return Window(tuple(parts), int(random.integers(1000)), rule, int(random.integers(1, 4)))

    steps: list[Step] = [window(), window(), BeginCut(delta=False), window(), ReadCut(500), Sweep(0, 1024, 2)]
    steps += [window(), ReadCut(524), BeginCut(delta=True), window(), Sweep(0, 701, 1), ReadCut(1024), window()]
    steps += [BeginCut(delta=True), ReadCut(1024), Restore(), window(), Sweep(0, 1024, 0), window()]
    return steps


@dataclass
class Pair:
    """A native store and its reference. After every step they are compared, and what must always hold is checked.

    With `hottest`, also which rows have the most shows.
    """

    make: Callable[[type], Any]
    hottest: bool = False
    version: int = 0
    next_shard: int = NUM_SHARDS
    may_cool: bool = False
    stores: tuple[RowStore, ReferenceStore] = field(init=False)

    def __post_init__(self) -> None:
        self.stores = self.make(RowStore), self.make(ReferenceStore)

    def play(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.step(step)
        self._restore()
        self.check()

    def step(self, step: Step) -> None:
        match step:
            case Window():
                self._window(step)
            case Sweep():
                self._both(lambda s: s.expire(step.first_shard, step.last_shard, max(0, self.version - step.age)))
                self.may_cool = True
            case BeginCut():
                self._begin_cut(step.delta)
            case ReadCut():
                self._read_cut(min(step.num_shards, NUM_SHARDS - self.next_shard))
            case Restore():
                self._restore()
        self.check()

    def _both(self, call: Callable[[Any], Any]) -> Any:
        """The result of a call, which must be the same of both."""
        got, expected = (call(store) for store in self.stores)
        assert got == expected
        return expected

    def _window(self, window: Window) -> None:
        self.version += 1
        native, reference = self.stores
        contributions = window.contributions(native.dim)
        before = set(reference.export().keys.tolist())
        counts = self._both(
            lambda store: tuple(store.apply(contributions, window.rule, self.version, window.num_threads))
        )
        num_admitted, num_rejected, num_evicted = counts
        unknown = {key for part in contributions for key in part.keys.tolist()} - before
        assert num_admitted + num_rejected == len(unknown)
        assert native.num_rows == len(before) + num_admitted - num_evicted
        self.may_cool |= num_evicted > 0

    def _begin_cut(self, delta: bool) -> None:
        self._end_cut()
        base = self._both(lambda store: store.delta_base) if delta else None
        for store in self.stores:
            store.begin_cut(self.version, base)
        self.next_shard = 0

    def _read_cut(self, num_shards: int) -> ShardRows | None:
        if num_shards == 0:
            return None
        first, self.next_shard = self.next_shard, self.next_shard + num_shards
        got, expected = (store.cut_shards(first, first + num_shards) for store in self.stores)
        assert_same_fields(got, expected)
        return expected

    def _end_cut(self) -> None:
        for store in self.stores:
            store.end_cut()
        self.next_shard = NUM_SHARDS

    def _restore(self) -> None:
        self._begin_cut(delta=False)
        cut = self._read_cut(NUM_SHARDS)
        assert cut is not None
        self._end_cut()
        self.stores = self.make(RowStore), self.make(ReferenceStore)
        for store in self.stores:
            store.load(cut.rows)
            store.load_sketches(0, cut.sketches, cut.sketch_totals)
        self.may_cool = False

    def check(self) -> None:
        native, reference = self.stores
        records = reference.export()
        assert native.num_rows == reference.num_rows == len(records.keys)
        assert_same(native.rows_by_shard(), reference.rows_by_shard())
        assert_same(pulled(native, keys_from(KEY_POOL)), pulled(reference, keys_from(KEY_POOL)))
        assert (np.diff(shard_of(records.keys).astype(np.int64)) >= 0).all()
        max_rows = reference.life.max_rows
        if max_rows is not None:
            limits = [shard_limit(max_rows, shard) for shard in range(NUM_SHARDS)]
            assert (native.rows_by_shard() <= limits).all()
            assert native.num_rows <= max_rows
        if self.hottest:
            self._check_hottest()

    def _check_hottest(self) -> None:
        """Exact in how many shows the hottest rows have, until rows leave or cool; of real rows always."""
        keys, shows = self.stores[0].hottest()
        expected_keys, expected_shows = self.stores[1].hottest()
        records = self.stores[1].export()
        shows_of = dict(zip(records.keys.tolist(), records.statistics[:, 0].tolist(), strict=True))
        assert [shows_of[key] for key in keys.tolist()] == shows.tolist()
        assert (np.diff(shows) <= 0).all()
        if not self.may_cool:
            assert_same(shows, expected_shows)
            least = shows.min(initial=np.inf)
            assert set(keys[shows > least].tolist()) == set(expected_keys[expected_shows > least].tolist())


def records_of(store: Any) -> RowRecords:
    """All rows, by a cut of its own; not for tables of which deltas are wanted later."""
    store.begin_cut(2**32 - 1, None)
    rows: RowRecords = store.cut_shards(0, NUM_SHARDS).rows
    store.end_cut()
    return rows


def pulled(store: Any, keys: Keys) -> np.ndarray:
    out = np.full((len(keys), store.dim), np.nan, dtype=np.float32)
    store.pull(keys, out)
    return out
