"""Where the coordinator keeps its state: the `StateStore` protocol and its SQLite form."""

from geartrain.store.protocol import StateStore
from geartrain.store.sqlite import SqliteStore

__all__ = ["SqliteStore", "StateStore"]
