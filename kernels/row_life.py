"""The life of a table's rows: which keys get one, when rows leave, and how many there may be.

Whatever these rules decide is a function of (seed, key, version) and of what the key's own shard holds, so it does not
depend on the number of servers, the order of rows, or a restore.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernels.checks import mismatch
from kernels.explain import native

ADMISSION_KINDS = ("always", "probability", "count")
EXPIRY_KINDS = ("never", "unseen", "score")
EVICTION_KINDS = ("lru", "lfu")

SKETCH_ROWS = 4
"""Counters of the sketch that a key is counted in, each chosen by bits of its own."""
SKETCH_BYTES = 16 << 20
MAX_COUNT = 255
"""The sketch's counters are bytes."""


@dataclass(frozen=True, slots=True)
class RowLife:
    """How rows of one table are born and leave. Raises KernelError on numbers that cannot be used.

    `admission`: *always*; *probability* draws for every window in which a key without a row has a gradient, and admits
    with `probability`; *count* admits a key once it was shown `min_shows` times, counted by a sketch.

    The sketch (Cormode and Muthukrishnan 2005, without conservative update) has SKETCH_ROWS x width byte counters per
    shard, `sketch_bytes` over all shards (a power of two). It never counts a key too low, apart from age: when a shard
    has counted width / 4 shows, all its counters are halved. A key is therefore admitted by its shows among the last
    width / 4 to width / 2 shows of keys without a row in its shard. It may be admitted too early where others share
    all its counters: with `min_shows` 2 that befell less than 0.2% of ids at their first show while a window brought at
    most a fifth of width / 4 of them per shard (2% at width / 4), with 3 less than 1 in 10,000, with 5 none in 10
    million.

    `expiry`: *never*; *unseen* removes rows that no gradient reached since a version given with each sweep; *score*
    multiplies shows and clicks by `decay` at each sweep of their shard and removes rows with `show_weight` * shows +
    `click_weight` * clicks < `min_score`.

    `max_rows` bounds the rows of the table over all servers, or None; shard s of 1,024 may hold max_rows // 1024 rows,
    and one more if s < max_rows % 1024. A shard that is full makes room by `eviction` (*lru*: rows whose last version
    is oldest; *lfu*: those with the fewest shows, of the rows that the window does not update): as many leave as the
    new rows need, and at least 1/16 of its limit. One that was loaded over its limit evicts
    at the next window.

    `seed` in [0, 2**64) mixes the job's seed and the table.
    """

    seed: int
    admission: str = "always"
    probability: float = 1.0
    min_shows: int = 1
    sketch_bytes: int = SKETCH_BYTES
    expiry: str = "never"
    decay: float = 1.0
    show_weight: float = 1.0
    click_weight: float = 1.0
    min_score: float = 0.0
    max_rows: int | None = None
    eviction: str = "lru"

    def __post_init__(self) -> None:
        for name, kinds in (("admission", ADMISSION_KINDS), ("expiry", EXPIRY_KINDS), ("eviction", EVICTION_KINDS)):
            if getattr(self, name) not in kinds:
                raise mismatch(name, f"one of {', '.join(kinds)}", getattr(self, name))
        if not 0 <= self.seed < 2**64:
            raise mismatch("seed", "an integer in [0, 2**64)", self.seed)
        if not 0 < self.probability <= 1:
            raise mismatch("probability", "a number in (0, 1]", self.probability)
        if not 1 <= self.min_shows <= MAX_COUNT:
            raise mismatch("min_shows", f"an integer in [1, {MAX_COUNT}]", self.min_shows)
        if not 2**16 <= self.sketch_bytes <= 2**28 or self.sketch_bytes & (self.sketch_bytes - 1):
            raise mismatch("sketch_bytes", "a power of two in [2**16, 2**28]", self.sketch_bytes)
        if not 0 < self.decay <= 1:
            raise mismatch("decay", "a number in (0, 1]", self.decay)
        for name in ("show_weight", "click_weight", "min_score"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise mismatch(name, "a finite number >= 0", value)
        if self.max_rows is not None and not 1 <= self.max_rows < 2**32:
            raise mismatch("max_rows", "an integer in [1, 2**32), or None", self.max_rows)


def native_life(life: RowLife) -> native.RowLife:
    """The compiled kernels' form of `life`."""
    kinds = native.RowLife
    return native.RowLife(
        seed=life.seed,
        admission=getattr(kinds.Admission, life.admission),
        probability=life.probability,
        min_shows=life.min_shows,
        sketch_bytes=life.sketch_bytes,
        expiry=getattr(kinds.Expiry, life.expiry),
        decay=life.decay,
        show_weight=life.show_weight,
        click_weight=life.click_weight,
        min_score=life.min_score,
        max_rows=life.max_rows or 0,
        eviction=getattr(kinds.Eviction, life.eviction),
    )
