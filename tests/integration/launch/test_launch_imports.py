"""What each role's process drags in, and whose packages they are."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

IMPORT_ALL = """
import importlib, json, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.rpartition(".")[2].startswith("_native"):
            importlib.import_module(module.name)
print(json.dumps([sorted({name.partition(".")[0] for name in sys.modules}), len(sys.modules)]))
"""


def imported_with(*packages: str) -> set[str]:
    """Top-level packages that are loaded once all modules of `packages` are, in a process of their own."""
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL, *packages], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout)[0])


@pytest.mark.parametrize("package", ["geartrain", "kernels", "embedding_tier", "coordinator", "api"])
def test_only_dense_workers_import_torch(package: str) -> None:
    loaded = imported_with(package)
    assert package in loaded
    assert not {"torch", "fbgemm_gpu"} & loaded


@pytest.mark.parametrize("package", ["geartrain", "kernels", "embedding_tier", "dense_workers"])
def test_only_the_api_imports_a_web_framework(package: str) -> None:
    loaded = imported_with(package)
    assert package in loaded
    assert not {"fastapi", "starlette", "uvicorn"} & loaded
