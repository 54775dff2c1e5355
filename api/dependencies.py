"""What the routes are given by the application that they are part of."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from api.events import StreamControl
from coordinator.facade import ClusterFacade


# Both are `async` only so that no thread is taken from the pool for them.
async def _facade(request: Request) -> ClusterFacade:
    return cast(ClusterFacade, request.app.state.facade)


async def _streams(request: Request) -> StreamControl:
    return cast(StreamControl, request.app.state.streams)


Cluster = Annotated[ClusterFacade, Depends(_facade)]
Streams = Annotated[StreamControl, Depends(_streams)]
