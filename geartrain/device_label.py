"""How results and tables name a device."""

from __future__ import annotations

import re


def device_label(spec: str) -> str:
    """`spec` as `--device` took it, in short: of an emulated device its name alone, always marked as emulated."""
    kind, _, settings = spec.partition(":")
    if kind != "emulate":
        return spec
    name = re.search(r"(?:^|,)name=([^,]*)", settings)
    return f"emulate:{name[1] if name else 'card'}"
