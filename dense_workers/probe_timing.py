"""How large probe steps are and which of them are timed. Steps are run by the caller, who tells what they took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

LARGEST_STEP_S = 0.1
"""About this long is the largest probe step: with these, 20 steps at each of three sizes take 3.5 seconds."""
FIRST_SIZE = 16
MAX_GROWTH = 8
"""Factor between two sizes that are tried at most: what a far larger step takes is not known well."""
NEAR_ENOUGH = 1.5
"""A size that could only grow by less than this is large enough."""
MIN_WARM_UP = 3
MAX_WARM_UP = 10
SETTLED = 0.2
"""Warm-up ends when two steps in a row differ by less than this share of the longer one."""


def largest_size(step_s: Callable[[int], float], smallest: int, limit: int) -> int:
    """The size from `smallest` to `limit` of which a step takes about `LARGEST_STEP_S`, or less at `limit`.

    `step_s` runs a step of so many samples and tells its seconds. The first one is not believed: it does what is done
    once, such as loading libraries.
    """
    size = min(limit, max(smallest, FIRST_SIZE))
    step_s(size)
    while True:
        seconds = min(step_s(size), step_s(size))
        # A part of the time is there at any size, so a step of this many takes no longer than wanted.
        wanted = int(size * LARGEST_STEP_S / seconds) if seconds > 0 else limit
        if wanted < NEAR_ENOUGH * size or size == limit:
            return max(smallest, min(size, wanted))
        size = min(limit, wanted, size * MAX_GROWTH)


def probe_sizes(largest: int, smallest: int) -> list[int]:
    """The sizes at which steps are timed, rising: about a quarter, a half and all of `largest`, each once."""
    return sorted({max(smallest, largest // parts) for parts in (4, 2, 1)})


def warm_up(step_s: Callable[[int], float], size: int) -> None:
    """Run steps of one size until their time has settled."""
    last_s = step_s(size)
    for done in range(2, MAX_WARM_UP + 1):
        seconds = step_s(size)
        settled = abs(seconds - last_s) < SETTLED * max(seconds, last_s)
        if settled and done >= MIN_WARM_UP:
            return
        last_s = seconds


def timed_sizes(step_s: Callable[[int], float], sizes: Sequence[int], num_probes: int) -> Iterator[int]:
    """The size of each step that is to be timed: `num_probes` of each, after a warm-up at that size."""
    for size in sizes:
        warm_up(step_s, size)
        for _ in range(num_probes):
            yield size


def largest_that_fits(fits: Callable[[int], bool], limit: int) -> int | None:
    """The largest number of samples below `limit` for which `fits` holds, 0 if for none; None if `limit` fits."""
    if fits(limit):
        return None
    fitting, too_many = 0, limit
    while too_many - fitting > 1:
        between = (fitting + too_many) // 2
        if fits(between):
            fitting = between
        else:
            too_many = between
    return fitting
