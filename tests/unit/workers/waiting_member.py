"""A process that leaves a collective whose other member, which lives, never comes; then it ends."""

from __future__ import annotations

import threading

import numpy as np

from dense_workers.group import GroupLeftError, SyncGroup, connect_store, host_store, use_loopback
from dense_workers.links import Links
from dense_workers.waiting import HostClock

MEMBERS = ("w0", "w1")


def never_come(address: str, joined: threading.Event) -> None:
    group = SyncGroup(1, MEMBERS, "w1", lambda: connect_store(address), Links(None, HostClock()), lambda: False)
    joined.set()
    threading.Event().wait()
    group.close()


def leave() -> None:
    store, address = host_store("127.0.0.1")
    joined, over = threading.Event(), threading.Event()
    threading.Thread(target=never_come, args=(address, joined), daemon=True).start()
    group = SyncGroup(1, MEMBERS, "w0", lambda: store, Links(None, HostClock()), over.is_set)
    joined.wait()
    over.set()
    try:
        group.sum(np.zeros(5, dtype=np.float32))
    except GroupLeftError:
        print("left")


if __name__ == "__main__":
    use_loopback()
    leave()
