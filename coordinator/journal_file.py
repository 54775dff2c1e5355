"""The journal on the disk of a coordinator that keeps its state in a file: readable while it runs and after its end."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from coordinator.journal import Entry, decode
from geartrain.errors import NotFoundError
from geartrain.store import SqliteStore

STATE_FILE = "coordinator.sqlite"
"""In the state folder of a coordinator; `geartrain train` puts that folder, `state`, into its output folder."""


def read_journal(state_dir: Path, job: str) -> list[Entry]:
    """The journal of a job, from its beginning, out of a coordinator's state folder.

    Made for `coordinator.conservation.prove_conservation`. Raises NotFoundError if there is no such state or no such
    job in it.
    """
    path = state_dir / STATE_FILE
    if not path.is_file():
        raise NotFoundError(
            f"{state_dir} is no state folder of a coordinator: it has no {STATE_FILE}", field="state_dir"
        )
    with closing(SqliteStore(path)) as store:
        entries = [decode(entry) for entry in store.entries(job)]
    if not entries:
        raise NotFoundError(f"{path} has no journal of job {job!r}", field="job", value=job)
    return entries
