"""The order in which people read names: w2 before w10."""

from __future__ import annotations

import re
from functools import lru_cache


# A cluster has few names, and sorts them at every change of groups.
@lru_cache(maxsize=4096)
def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """What names are sorted by."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts)
