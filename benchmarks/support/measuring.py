"""Times, and what is made of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

Call = Callable[[], Any]


def seconds_beside(calls: Sequence[Call]) -> float:
    """Seconds from the first start to the last end of the calls, each in a thread of its own if there are several.

    The threads are there already, and begin together. Raises what a call raised.
    """
    if len(calls) == 1:
        began_s = time.perf_counter()
        calls[0]()
        return time.perf_counter() - began_s
    barrier = threading.Barrier(len(calls))
    times: list[tuple[float, float]] = []
    errors: list[BaseException] = []

    def run(call: Call) -> None:
        barrier.wait()
        began_s = time.perf_counter()
        try:
            call()
        except BaseException as error:
            errors.append(error)
        times.append((began_s, time.perf_counter()))

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return max(end_s for _, end_s in times) - min(began_s for began_s, _ in times)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that at least `percent` of them do not exceed. Raises ValueError without values."""
    if not values:
        raise ValueError("no values")
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(int(rank), 1) - 1]
