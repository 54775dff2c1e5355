"""Echoes: bytes that go to servers, are answered, and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tier_cluster import DIM, NUM_DENSE, TOKEN, TierCluster, keys_of, pulled, sums_of

from embedding_tier.client import TierClient
from geartrain.errors import AuthError, DeadlineError, StaleMessageError
from geartrain.wire.messages import Contribution
from kernels.wire_codec import CODECS, encode_rows

StartTier = Callable[..., TierCluster]


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_echoes_before_and_between_steps_leave_no_trace(start_tier: StartTier, transport: str) -> None:
    tier = start_tier(num_servers=2, transport=transport)
    early = TierClient(tier.route, "w0", 1, 1, TOKEN, DIM)
    tier.clients.append(early)
    early.echo({0: 0, 1: 3_000_000})  # the dense vector is not even placed
    client = tier.client()
    client.put_dense(np.zeros(NUM_DENSE, dtype=np.float32))
    keys, counts = tier.layout([keys_of(*range(20)), keys_of(5)])
    before = pulled(client, keys, counts, 0)
    push = sums_of(1, 21)
    client.stage(0, 0, keys, counts, push)
    staged = [one.stats(0).staged_bytes for one in tier.tiers]  # type: ignore[union-attr]
    client.echo({0: 1000, 1: 0})
    assert [one.stats(0).staged_bytes for one in tier.tiers] == staged  # type: ignore[union-attr]
    np.testing.assert_array_equal(pulled(client, keys, counts, 0), before)
    tier.apply(1, [Contribution(0, 0, ["w0"], 1, 1.0)])
    np.testing.assert_allclose(pulled(client, keys, counts, 1), before - 0.1 * push.grads, rtol=1e-5, atol=1e-7)


def test_only_servers_that_are_named_are_asked(start_tier: StartTier) -> None:
    tier = start_tier(num_servers=2)
    client = tier.client(deadline_s=0.3)
    tier.routers[1].close()
    client.echo({0: 10})
    client.echo({})
    with pytest.raises(DeadlineError, match="s1"):
        client.echo({0: 10, 1: 10})


def test_who_may_not_push_may_not_echo(start_tier: StartTier) -> None:
    tier = start_tier()
    with pytest.raises(AuthError):
        tier.client(token="another").echo({0: 1})
    with pytest.raises(StaleMessageError, match="term 0"):
        tier.client(term=0).echo({0: 1})


@pytest.mark.parametrize("codec", CODECS)
def test_a_push_has_the_bytes_that_were_foretold(
    start_tier: StartTier, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    tier = start_tier(num_servers=3)
    client = tier.client()
    client.use_codec(codec)
    client.put_dense(np.zeros(NUM_DENSE, dtype=np.float32))
    keys, counts = tier.layout([np.arange(100, dtype=np.uint64), keys_of(5)])
    foretold = client.stage_bytes(counts)
    sent: dict[int, int] = {}
    transport = client._calls._transport
    send = transport.send

    def watched(server: int, frames: Sequence[Any]) -> None:
        sent[server] = sum(memoryview(frame).nbytes for frame in frames[1:])
        send(server, frames)

    monkeypatch.setattr(transport, "send", watched)
    client.stage(0, 0, keys, counts, sums_of(1, 101))
    assert sent == foretold and set(sent) == {0, 1, 2}
    client.echo(foretold)
    assert sent == foretold
    monkeypatch.undo()
    assert client.rows_bytes(7) == encode_rows(np.zeros((7, DIM), dtype=np.float32), codec).nbytes
