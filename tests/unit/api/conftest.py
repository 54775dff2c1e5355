from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from api.app import create_app
from api.events import StreamControl
from api.testing import FakeFacade, InProcessTransport


@pytest.fixture
def facade() -> FakeFacade:
    return FakeFacade()


@pytest.fixture
def http(facade: FakeFacade) -> Iterator[httpx.Client]:
    """Calls to an application without a token, whose event streams do not wait between two looks."""
    app = create_app(facade, api_token=None, streams=StreamControl(poll_s=0.0))
    with httpx.Client(transport=InProcessTransport(app), base_url="http://coordinator") as client:
        yield client
