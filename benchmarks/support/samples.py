"""Keys and batches of ids that the benchmarks draw, and tables that hold them."""

from __future__ import annotations

import numpy as np

from geartrain.types import Floats, Indices, Keys
from kernels.contribution import Contribution
from kernels.hashing import mix64
from kernels.initializer import Initializer
from kernels.row_life import RowLife
from kernels.row_store import RowStore, UpdateRule

SLOTS = 26
DIM = 16
ZIPF_EXPONENT = 1.05
BIRTHS_PER_WINDOW = 40_000
RULE = UpdateRule(lr=0.01)


def uniform_keys(start: int, stop: int) -> Keys:
    """The keys with these numbers: distinct, and spread over all 64-bit values."""
    return mix64(np.arange(start, stop, dtype=np.uint64))


def uniform_ids(num_rows: int, batch_ids: int, seed: int) -> list[Indices]:
    """All numbers in [0, num_rows) in random order, cut into batches of `batch_ids`; what is left over is not used.

    So ids are distinct in a batch, and none comes again before nearly all others were there.
    """
    order = np.random.default_rng(seed).permutation(num_rows)
    return list(order[: num_rows // batch_ids * batch_ids].reshape(-1, batch_ids))


def zipf_ids(num_rows: int, batch_ids: int, num_batches: int, seed: int) -> list[Indices]:
    """Batches of numbers in [0, num_rows): the r-th most frequent one comes in proportion to r**-1.05."""
    random = np.random.default_rng(seed)
    frequencies = np.arange(1, num_rows + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    cumulated = np.cumsum(frequencies)
    ranks = np.searchsorted(cumulated, random.random(num_batches * batch_ids) * cumulated[-1])
    ids = random.permutation(num_rows)[ranks.clip(max=num_rows - 1)]
    return list(ids.reshape(num_batches, batch_ids))


def contribution(keys: Keys, grads: Floats) -> Contribution:
    """One worker's gradients for distinct keys, each shown once and clicked never."""
    return Contribution(keys, grads, np.ones(len(keys), np.float32), np.zeros(len(keys), np.float32), 1.0)


def filled_store(num_rows: int, optimizer: str, dim: int = DIM, life: RowLife | None = None) -> RowStore:
    """A store whose rows have the keys `uniform_keys(0, num_rows)`, born window by window as training would."""
    store = RowStore(dim, optimizer, Initializer("uniform", 0.01, 1), life)
    add_rows(store, 0, num_rows)
    return store


def add_rows(store: RowStore, start: int, stop: int) -> None:
    """Have the rows of `uniform_keys(start, stop)` born, one window after the other; each is version 1."""
    grads = np.random.default_rng(0).standard_normal((BIRTHS_PER_WINDOW, store.dim)).astype(np.float32)
    for begin in range(start, stop, BIRTHS_PER_WINDOW):
        keys = uniform_keys(begin, min(begin + BIRTHS_PER_WINDOW, stop))
        store.prepare_growth(len(keys))
        store.apply([contribution(keys, grads[: len(keys)])], RULE, 1)
