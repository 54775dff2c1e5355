"""The states of a job from which it goes no further; apart from `types`, so that clients need no NumPy."""

ENDED_STATES = frozenset({"succeeded", "failed", "cancelled"})
