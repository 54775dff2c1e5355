"""Which build of the native kernels runs here, and why.

The kernels are compiled twice from one source: for any CPU of this architecture, and for x86-64-v3 (AVX2). Both give
the same bits; the faster one is taken where the CPU allows it. All of them run in the one build that is named: rows and
their updates, dedup and pooling, and the codecs of the wire, too; none is taken from FBGEMM
(docs/decisions/0021-wire-codecs-are-our-own.md).
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kernels import _native as plain

__all__ = ["explain", "native"]

if TYPE_CHECKING:
    from kernels import _native as native


def _choose() -> tuple[str, str, str]:
    """Name of the build, its module, and the reason."""
    if find_spec("kernels._native_v3") is None:
        return "plain", "kernels._native", "no x86-64-v3 build: another architecture, or a compiler without it"
    if not plain.supports_v3():
        return "plain", "kernels._native", "this CPU lacks AVX2, FMA or BMI2"
    return "x86-64-v3", "kernels._native_v3", "this CPU has AVX2, FMA and BMI2"


_VARIANT, _MODULE, _REASON = _choose()

if not TYPE_CHECKING:
    native = importlib.import_module(_MODULE)


def explain() -> dict[str, str]:
    """What runs and why: `variant` (plain or x86-64-v3), `module`, `reason`.

    It holds for every kernel of this package, pooling and the wire's codecs among them.
    """
    return {"variant": _VARIANT, "module": _MODULE, "reason": _REASON}
