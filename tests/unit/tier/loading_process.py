"""A process that loads a checkpoint of one large table, and prints what that took of the machine's memory.

Arguments: the checkpoint's folder, and how many rows are read at once (0: as always).
"""

from __future__ import annotations

import sys
from pathlib import Path

from snapshot_servers import UNIFORM, Server

from embedding_tier import row_loading
from geartrain.wire.messages import TableSpec

LARGE = TableSpec("large", 16, {"type": "rowwise_adagrad"}, UNIFORM, 1)


def resident_bytes(field: str) -> int:
    """`VmRSS`: what is resident now, `VmHWM`: the most there ever was; memory of every kind, whoever mapped it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    directory, num_rows = Path(sys.argv[1]), int(sys.argv[2])
    if num_rows:
        row_loading.BATCH_ROWS = num_rows
    server = Server(0, 1, [LARGE])
    before = resident_bytes("VmRSS")
    server.load(directory)
    print(server.tables[0].store.num_rows, resident_bytes("VmHWM") - before)


if __name__ == "__main__":
    main()
