"""A fuzz that follows the code's branches, where atheris is installed: `python scripts/fuzz.py [TEST [OPTION ...]]`.

TEST is the name of a test in tests/unit/wire/test_fuzz_framing.py or test_fuzz_server.py, OPTION one of libFuzzer's, as
`-runs=100000`, or a folder for what it learns. Without a TEST it lists them. The tests are plain hypothesis tests and
run without it; this feeds them bytes.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import atheris

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/unit/wire")]

import test_fuzz_framing  # noqa: E402
import test_fuzz_server  # noqa: E402

TESTS = {
    name: test.hypothesis.fuzz_one_input
    for module in (test_fuzz_framing, test_fuzz_server)
    for name, test in vars(module).items()
    if name.startswith("test_") and hasattr(test, "hypothesis")
}


def functions_under_test() -> Iterator[FunctionType]:
    """Those of the wire and the tier. Atheris cannot follow how an editable installation imports them."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("geartrain.wire", "embedding_tier")):
            for owner in [module, *(kind for _, kind in inspect.getmembers(module, inspect.isclass))]:
                yield from (one for one in vars(owner).values() if isinstance(one, FunctionType))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in TESTS:
        for function in set(functions_under_test()):
            atheris.instrument_func(function)
        atheris.Setup([sys.argv[0], "-len_control=0", "-max_len=8192", *sys.argv[2:]], TESTS[sys.argv[1]])
        atheris.Fuzz()
    else:
        sys.exit("one of:\n" + "\n".join(f"  {name}" for name in TESTS))
