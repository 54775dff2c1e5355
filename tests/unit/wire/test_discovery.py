"""The address that others are told for what listens on all interfaces."""

from __future__ import annotations

import pytest

from geartrain.wire.discovery import reachable


@pytest.mark.parametrize(
    ("bound", "told"),
    [
        ("tcp://0.0.0.0:41234", "tcp://trainer-1:41234"),
        ("tcp://[::]:41234", "tcp://trainer-1:41234"),
        ("tcp://10.0.0.5:41234", "tcp://10.0.0.5:41234"),
        ("ipc:///tmp/run/control", "ipc:///tmp/run/control"),
    ],
)
def test_a_wildcard_becomes_the_host_that_answered(bound: str, told: str) -> None:
    assert reachable(bound, "trainer-1") == told
