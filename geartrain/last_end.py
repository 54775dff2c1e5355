"""How a standing cluster ended: its supervisor's note, for calls that find nobody and for the next coordinator."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from geartrain.files import write_text

_NAME = "last-end.json"


@dataclass(frozen=True, slots=True)
class LastEnd:
    """`url`: where the cluster's API was; `reason`: which role ended, and how; `role`: its name."""

    url: str
    reason: str
    role: str

    def write(self, state_dir: Path) -> None:
        """Leave the note in the cluster's state folder."""
        state_dir.mkdir(parents=True, exist_ok=True)
        write_text(state_dir / _NAME, json.dumps(asdict(self)))


def read_last_end(state_dir: Path) -> LastEnd | None:
    """The note in a state folder; None without one: the cluster was told to stop, or is up."""
    try:
        return LastEnd(**json.loads((state_dir / _NAME).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def forget_last_end(state_dir: Path) -> None:
    """Remove the note, if there is one."""
    (state_dir / _NAME).unlink(missing_ok=True)
