"""Keeping freed memory: told in words, and felt as fewer page faults."""

from __future__ import annotations

import subprocess
import sys

import pytest

_FAULTS_OF_ONE_MORE_ROUND = """
import resource, sys, threading
import numpy as np
from geartrain.memory import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory() == "up to 1024 MiB are kept", keep_freed_memory()

def rounds():
    for number in range(5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.ones(1 << 20, dtype=np.float32)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

faults = []
thread = threading.Thread(target=rounds)
thread.start()
thread.join()
print(faults[-1])
"""


def _faults(mode: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS_OF_ONE_MORE_ROUND, mode], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an option of glibc")
def test_memory_that_is_freed_is_not_faulted_in_again() -> None:
    assert _faults("keep") < 20
