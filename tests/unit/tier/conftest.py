"""What tests of the tier's files share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def no_fsync() -> Iterator[None]:
    """Files are written, but nobody waits for the disk: these tests read them from memory anyway."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
