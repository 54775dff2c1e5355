"""Put on a command's path by tests: notes every process that it starts, however it does so, in $SPAWN_LOG."""

import os
import sys
from pathlib import Path

_STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system")


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS:
        with Path(os.environ["SPAWN_LOG"]).open("a") as log:
            log.write(f"{event} {arguments}\n")


sys.addaudithook(_note)
