"""What a server refuses, in which words; repetitions; and a wait that ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq
from tier_cluster import DIM, JOB, NUM_DENSE, TOKEN, TierCluster, keys_of, pulled, sums_of

from embedding_tier.client import TierClient
from geartrain.errors import (
    AuthError,
    BusyError,
    ConflictError,
    DeadlineError,
    GeartrainError,
    KernelError,
    PortInUseError,
    StaleMessageError,
    WireError,
)
from geartrain.wire.framing import UNREADABLE, decode_reply_header, encode
from geartrain.wire.messages import (
    Applied,
    CloseJob,
    Contribution,
    Dense,
    Done,
    Echo,
    Failed,
    NodeFailed,
    Origin,
    PullDense,
    PullRows,
    Rows,
    Stage,
)
from geartrain.wire.zmq import RouterServer

StartTier = Callable[..., TierCluster]


def attempt(tier: TierCluster, client: TierClient) -> None:
    keys, counts = tier.layout([keys_of(1), keys_of()])
    pulled(client, keys, counts, version=0)


@pytest.mark.parametrize(
    ("changes", "error", "facts"),
    [
        ({"token": "another"}, AuthError, {"worker": "w0"}),
        ({"token": "täken"}, AuthError, {"worker": "w0"}),
        ({"term": 0}, StaleMessageError, {"what": "term", "got": 0, "current": 1}),
        ({"term": 2}, StaleMessageError, {"what": "term", "got": 2, "current": 1}),
        ({"token": "another", "term": 0}, AuthError, {"worker": "w0"}),
    ],
)
def test_token_and_term_are_checked_first(
    start_tier: StartTier, changes: dict[str, Any], error: type[GeartrainError], facts: dict[str, Any]
) -> None:
    tier = start_tier()
    with pytest.raises(error) as refused:
        attempt(tier, tier.client(**changes))
    assert refused.value.facts == facts
    attempt(tier, tier.client())


def test_another_route_epoch_is_stale(start_tier: StartTier) -> None:
    tier = start_tier()
    client = tier.client(route=msgspec.structs.replace(tier.route, route_epoch=9))
    with pytest.raises(StaleMessageError, match="route epoch 9"):
        attempt(tier, client)


def test_the_highest_incarnation_of_a_worker_is_the_living_one(start_tier: StartTier) -> None:
    tier = start_tier()
    old, new, newest = (tier.client(incarnation=incarnation) for incarnation in (7, 50, 60))
    attempt(tier, new)
    # Also when nothing was heard of the old one before: its first message may be the one that was held up.
    with pytest.raises(StaleMessageError, match="incarnation of w0 7, this server is at 50"):
        attempt(tier, old)
    attempt(tier, tier.client("w1", incarnation=7))
    attempt(tier, newest)
    with pytest.raises(StaleMessageError, match="incarnation of w0 50, this server is at 60"):
        attempt(tier, new)


def test_a_group_that_no_longer_lives_is_stale_and_its_parts_are_gone(start_tier: StartTier) -> None:
    tier = start_tier()
    client = tier.client()
    client.put_dense(np.zeros(NUM_DENSE, dtype=np.float32))
    keys, counts = tier.layout([keys_of(1), keys_of()])
    client.stage(0, 0, keys, counts, sums_of(1, 1))
    client.stage(1, 0, keys, counts, sums_of(2, 1))
    tier.apply(1, [Contribution(1, 0, ["w0"], 1, 1.0)], live_groups=[1])
    with pytest.raises(StaleMessageError, match="group 0 no longer lives"):
        client.stage(0, 1, keys, counts, sums_of(1, 1))
    stats = tier.tiers[0].stats(0)
    assert stats is not None and stats.staged_bytes == 0


def test_staging_twice_counts_once_and_too_much_is_busy(start_tier: StartTier) -> None:
    tier = start_tier(num_servers=2)
    client = tier.client()
    client.put_dense(np.zeros(NUM_DENSE, dtype=np.float32))
    keys, counts = tier.layout([keys_of(1, 2, 3), keys_of()])
    before = pulled(client, keys, counts, 0)
    push = sums_of(1, 3)
    for _ in range(3):
        client.stage(0, 0, keys, counts, push)
    tier.apply(1, [Contribution(0, 0, ["w0"], 1, 1.0)])
    client.stage(0, 0, keys, counts, push)
    np.testing.assert_allclose(pulled(client, keys, counts, 1), before - 0.1 * push.grads, rtol=1e-5, atol=1e-7)
    assert all(tier_server.stats(0).staged_bytes == 0 for tier_server in tier.tiers)  # type: ignore[union-attr]
    for step in (1, 2):
        client.stage(0, step, keys, counts, push)
    with pytest.raises(BusyError, match="w0 has 2 steps staged"):
        client.stage(0, 3, keys, counts, push)


def test_arrays_that_do_not_fit_are_refused_before_they_are_sent(start_tier: StartTier) -> None:
    tier = start_tier()
    client = tier.client()
    keys, counts = tier.layout([keys_of(1, 2), keys_of(3)])
    out = np.empty((3, DIM), dtype=np.float32)
    for wrong_keys, wrong_counts in ((keys[:2], counts), (keys.astype(np.int64), counts), (keys, counts[:, :1] * 2)):
        with pytest.raises(KernelError):
            client.pull(wrong_keys, wrong_counts, 0, out)  # type: ignore[arg-type]
    with pytest.raises(KernelError):
        client.pull(keys, counts, 0, out[:, :2])
    with pytest.raises(KernelError):
        client.put_dense(np.zeros(NUM_DENSE - 1, dtype=np.float32))
    unplaced = TierClient(tier.route, "w1", 1, 1, TOKEN, DIM)
    tier.clients.append(unplaced)
    with pytest.raises(ConflictError, match="place_dense"):
        unplaced.pull_dense(0, np.empty(NUM_DENSE, dtype=np.float32))
    with pytest.raises(WireError, match="1 servers"):
        unplaced.place_dense([0, 1, 2])


def test_without_a_job_everything_is_refused(start_tier: StartTier) -> None:
    tier = start_tier()
    client = tier.client()
    waiting = threading.Thread(target=lambda: errors.append(_error_of(lambda: _pull_at(tier, client, 1))))
    errors: list[str] = []
    waiting.start()
    _wait_until_parked(tier, 1)
    tier.broadcast(CloseJob(1, JOB, "cancelled"))
    waiting.join()
    assert errors == ["conflict"]
    with pytest.raises(ConflictError, match="no job"):
        attempt(tier, client)


def _pull_at(tier: TierCluster, client: TierClient, version: int) -> int:
    keys, counts = tier.layout([keys_of(1), keys_of()])
    return client.pull(keys, counts, version, np.empty((1, DIM), dtype=np.float32))


def _error_of(action: Callable[[], object]) -> str:
    try:
        action()
    except GeartrainError as error:
        return error.code
    return "no error"


def _wait_until_parked(tier: TierCluster, count: int) -> None:
    """Spin until all servers have parked this many pulls; a test that never gets there is ended by its runner."""
    pause = threading.Event()
    while any(one.stats(0).queue_length != count for one in tier.tiers):  # type: ignore[union-attr]
        pause.wait(0.001)


def test_a_parked_pull_is_answered_by_the_window_it_waits_for(start_tier: StartTier) -> None:
    tier = start_tier(num_servers=2)
    reader, writer = tier.client("w1"), tier.client("w0")
    writer.put_dense(np.zeros(NUM_DENSE, dtype=np.float32))
    keys, counts = tier.layout([keys_of(*range(20)), keys_of()])
    out = np.empty((20, DIM), dtype=np.float32)
    before = pulled(reader, keys, counts, 0)
    handle = reader.begin_pull(keys, counts, 2)
    _wait_until_parked(tier, 1)
    push = sums_of(1, 20)
    for step in (0, 1):
        writer.stage(0, step, keys, counts, push)
        _wait_until_parked(tier, 1)
        tier.apply(step + 1, [Contribution(0, step, ["w0"], 1, 1.0)])
    assert reader.finish_pull(handle, out) == 2
    np.testing.assert_allclose(out, before - 0.2 * push.grads, rtol=1e-5, atol=1e-6)


def test_a_version_that_never_comes_is_an_error_with_both_numbers(start_tier: StartTier) -> None:
    tier = start_tier()
    client = tier.client(deadline_s=0.6)
    with pytest.raises(DeadlineError, match="did not get version 5") as late:
        _pull_at(tier, client, 5)
    where = {"role": "s0", "address": tier.route.addresses[0], "deadline_s": 0.6}
    assert late.value.facts == {**where, "wanted": 5, "current": 0}
    assert _error_of(lambda: _pull_at(tier, tier.client(deadline_s=1e-3), 5)) == "deadline_exceeded"
    _wait_until_parked(tier, 0)


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_a_dead_server_is_a_deadline_error_that_names_it(start_tier: StartTier, transport: str) -> None:
    tier = start_tier(num_servers=2, transport=transport)
    client = tier.client(deadline_s=0.3)
    keys, counts = tier.layout([keys_of(*range(20)), keys_of()])
    pulled(client, keys, counts, 0)
    tier.routers[1].close()
    with pytest.raises(DeadlineError) as dead:
        pulled(client, keys, counts, 0)
    assert dead.value.facts == {"role": "s1", "address": tier.route.addresses[1], "deadline_s": 0.3}
    with pytest.raises(DeadlineError):
        client.stage(0, 0, keys, counts, sums_of(1, 20))


def test_a_dead_server_is_named_before_one_that_is_late(start_tier: StartTier) -> None:
    tier = start_tier(num_servers=2)
    client = tier.client(deadline_s=0.6)
    tier.routers[1].close()
    keys, counts = tier.layout([keys_of(*range(20)), keys_of()])
    with pytest.raises(DeadlineError, match=r"s1 .* did not answer"):
        pulled(client, keys, counts, 5)


def test_a_server_that_comes_back_is_found_on_a_new_socket(start_tier: StartTier) -> None:
    tier = start_tier()
    client = tier.client(deadline_s=30.0)
    attempt(tier, client)
    address = tier.routers[0].address
    tier.routers[0].close()
    handle_layout = tier.layout([keys_of(4), keys_of()])
    handle = client.begin_pull(*handle_layout, 0)
    tier.routers[0] = RouterServer(tier.context, address, tier.tiers[0])
    client._calls._renew(0)
    assert client.finish_pull(handle, np.empty((1, DIM), dtype=np.float32)) == 0


class RawPeer:
    """A DEALER that sends what it likes."""

    def __init__(self, tier: TierCluster) -> None:
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(tier.routers[0].address)

    def ask(self, *frames: bytes) -> Rows | Dense | Done | Failed:
        self.send(*frames)
        return decode_reply_header(self.socket.recv_multipart())

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)


def test_malformed_requests_are_answered_and_the_server_lives(start_tier: StartTier) -> None:
    tier = start_tier()
    peer = RawPeer(tier)
    origin = Origin(TOKEN, 1, 1, "w9", 1, 77, 5.0)
    for frames in ([b"\xc1"], [b""], [b"", b"x"], [encode(Done(1, 2))]):
        answer = peer.ask(*frames)
        assert isinstance(answer, Failed) and answer.sequence == UNREADABLE and answer.error["code"] == "wire_invalid"
    bad: list[list[bytes]] = [
        [encode(PullRows(origin, 0, [1, 0]))],
        [encode(PullRows(origin, 0, [2, 0])), b"\x00" * 8],
        [encode(PullRows(origin, 0, [1])), b"\x00" * 8],
        [encode(PullRows(origin, 0, [2, -1])), b"\x00" * 8],
        [encode(PullRows(origin, 0, [2**62, 2**62])), b"\x00" * 8],
        [encode(PullDense(origin, 0)), b"extra"],
        [encode(Stage(origin, 0, 0, [1, 0], 0, 0)), *[b"\x00" * 8] * 5],
        [encode(Stage(origin, 0, 0, [0, 0], 5, 2)), *[b""] * 5],
        [encode(Echo(origin, 8))],
        [encode(Echo(origin, 8)), b"\x00" * 7],
        [encode(Echo(origin, 8)), b"\x00" * 8, b""],
        [encode(Echo(origin, -1)), b""],
        [encode(Echo(origin, 2**62)), b"\x00" * 8],
    ]
    for frames in bad:
        answer = peer.ask(*frames)
        assert isinstance(answer, Failed) and answer.sequence == 77 and answer.error["code"] == "wire_invalid"
    assert isinstance(peer.ask(encode(PullRows(origin, 0, [1, 0])), b"\x00" * 8), Rows)
    peer.socket.close()


def test_a_repeated_sequence_takes_the_place_of_the_parked_one(start_tier: StartTier) -> None:
    tier = start_tier()
    first, again = RawPeer(tier), RawPeer(tier)
    request = encode(PullRows(Origin(TOKEN, 1, 1, "w9", 1, 77, 60.0), 1, [1, 0])), b"\x00" * 8
    first.send(*request)
    _wait_until_parked(tier, 1)
    again.send(*request)
    done = again.ask(encode(PullRows(Origin(TOKEN, 1, 1, "w8", 1, 1, 60.0), 0, [0, 0])), b"")
    assert isinstance(done, Rows) and done.sequence == 1
    _wait_until_parked(tier, 1)
    tier.apply(1, [], divisor=0.0)
    answer = decode_reply_header(again.socket.recv_multipart())
    assert isinstance(answer, Rows) and (answer.sequence, answer.version) == (77, 1)
    assert first.socket.poll(0) == 0
    first.socket.close()
    again.socket.close()


def test_control_messages_of_an_old_term_have_no_effect(start_tier: StartTier) -> None:
    tier = start_tier()
    tier.open(term=4)
    assert tier.apply(1, [], divisor=0.0, term=3) == [None]
    assert tier.tiers[0].job is not None and tier.tiers[0].job.version == 0
    assert tier.apply(1, [], divisor=0.0, term=4) == [Applied("s0", 100, 4, 1)]


def test_a_decision_that_names_what_is_not_here_fails_the_job_by_name(start_tier: StartTier) -> None:
    tier = start_tier()
    (answer,) = tier.apply(1, [Contribution(0, 0, ["w5"], 1, 1.0)])
    assert isinstance(answer, NodeFailed)
    assert answer.job == JOB
    assert answer.error["code"] == "version_unavailable" and answer.error["worker"] == "w5"


def test_an_address_in_use_is_named(start_tier: StartTier) -> None:
    tier = start_tier(transport="tcp")
    with pytest.raises(PortInUseError) as used:
        RouterServer(tier.context, tier.routers[0].address, tier.tiers[0])
    assert used.value.facts == {"address": tier.routers[0].address}
