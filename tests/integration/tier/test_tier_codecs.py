"""Pulls and pushes in every codec over real sockets: rounded once, in a known way, and only on the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import zmq
from tier_cluster import DIM, NUM_DENSE, TOKEN, TierCluster, keys_of, pulled, specs, sums_of

from geartrain.errors import KernelError
from geartrain.types import Floats
from geartrain.wire.framing import decode_reply_header, encode
from geartrain.wire.messages import Contribution, Failed, Origin, PullRows, Rows, Stage
from kernels.wire_codec import CODECS, decode_rows, encode_rows

StartTier = Callable[..., TierCluster]
LAST = 2**64 - 1
LOSSY = [codec for codec in CODECS if codec != "fp32"]


def rounded(rows: Floats, codec: str) -> Floats:
    out = np.empty_like(rows)
    decode_rows(encode_rows(rows, codec), codec, out)
    return out


def trained(tier: TierCluster, codec: str, pushed: Callable[[Floats], Floats] = lambda grads: grads) -> Floats:
    """The rows after two workers pushed `pushed` of unlike gradients in `codec`, read as float32."""
    workers = [tier.client(name) for name in ("w0", "w1")]
    workers[0].put_dense(np.zeros(NUM_DENSE, dtype=np.float32))
    layouts = [tier.layout([keys_of(0, LAST, 1, 2), keys_of(1, 2)]), tier.layout([keys_of(2, 5, 0), keys_of(9)])]
    for number, (worker, layout) in enumerate(zip(workers, layouts, strict=True)):
        worker.use_codec(codec)
        sums = sums_of(number, len(layout[0]), ((0, 5), (5, NUM_DENSE))[number])
        # A function of the key, so that it is the same in every order of the rows.
        sizes = np.exp2((layout[0] % np.uint64(7)).astype(np.float32) * 9 - 30)[:, None]
        grads = (sizes * np.linspace(-1, 0.7, DIM)).astype(np.float32)
        worker.stage(0, 0, *layout, replace(sums, grads=pushed(grads), dense=np.zeros_like(sums.dense)))
    tier.apply(1, [Contribution(0, 0, ["w0", "w1"], 8, 1.0)], divisor=8.0)
    every = tier.layout([keys_of(0, LAST, 1, 2, 5, 6), keys_of(1, 2, 9, 10)])
    rows = pulled(tier.client("w0"), *every, version=1)
    order = np.lexsort((every[0], np.repeat(np.tile([0, 1], tier.num_servers), every[1].ravel())))
    return rows[order]


@pytest.mark.parametrize("codec", LOSSY)
def test_servers_sum_in_float32_what_the_wire_made_of_gradients(start_tier: StartTier, codec: str) -> None:
    through_wire = trained(start_tier(tables=specs("adagrad")), codec)
    before_wire = trained(start_tier(tables=specs("adagrad")), "fp32", lambda grads: rounded(grads, codec))
    assert through_wire.tobytes() == before_wire.tobytes()
    assert through_wire.tobytes() != trained(start_tier(tables=specs("adagrad")), "fp32").tobytes()


@pytest.mark.parametrize("codec", CODECS)
def test_no_bit_depends_on_the_number_of_servers(start_tier: StartTier, codec: str) -> None:
    one, three = (trained(start_tier(num_servers=count), codec) for count in (1, 3))
    assert one.tobytes() == three.tobytes()


@pytest.mark.parametrize("codec", CODECS)
def test_pulled_rows_are_the_servers_rows_rounded_once(start_tier: StartTier, codec: str) -> None:
    tier = start_tier(num_servers=2)
    client = tier.client()
    layout = tier.layout([keys_of(*range(50)), keys_of(7, LAST)])
    exact = pulled(client, *layout, version=0)
    client.use_codec(codec)
    np.testing.assert_array_equal(pulled(client, *layout, version=0), rounded(exact, codec))


def test_a_pull_is_read_in_the_codec_that_it_asked_for(start_tier: StartTier) -> None:
    tier = start_tier()
    client = tier.client()
    layout = tier.layout([keys_of(1, 2, 3), keys_of()])
    exact = pulled(client, *layout, version=0)
    client.use_codec("int8")
    asked = client.begin_pull(*layout, 0)
    client.use_codec("fp32")
    out = np.empty_like(exact)
    client.finish_pull(asked, out)
    np.testing.assert_array_equal(out, rounded(exact, "int8"))


def test_a_codec_that_is_not_known_is_refused_by_name(start_tier: StartTier) -> None:
    tier = start_tier()
    with pytest.raises(KernelError, match="codec: expected one of fp32, fp16, bf16, int8, got fp8"):
        tier.client().use_codec("fp8")
    peer = zmq.Context.instance().socket(zmq.DEALER)
    peer.setsockopt(zmq.LINGER, 0)
    peer.connect(tier.routers[0].address)
    origin = Origin(TOKEN, 1, 1, "w9", 1, 77, 5.0)
    requests = (
        [encode(PullRows(origin, 0, [1, 0], "fp8")), b"\x00" * 8],
        [encode(Stage(origin, 0, 0, [1, 0], 0, 0, "fp8")), b"\x00" * 8, b"\x00" * 12, b"\x00" * 4, b"\x00" * 4, b""],
    )
    for request in requests:
        peer.send_multipart(request)
        answer = decode_reply_header(peer.recv_multipart())
        assert isinstance(answer, Failed) and answer.sequence == 77
        assert (answer.error["code"], answer.error["field"], answer.error["got"]) == ("wire_invalid", "codec", "fp8")
    peer.send_multipart([encode(PullRows(origin, 0, [1, 0], "int8")), b"\x00" * 8])
    header, rows = peer.recv_multipart()
    assert isinstance(decode_reply_header([header]), Rows)
    assert len(rows) == DIM + 8
    peer.close()


@pytest.mark.parametrize("codec", LOSSY)
def test_gradients_that_are_not_finite_are_not_sent(start_tier: StartTier, codec: str) -> None:
    tier = start_tier()
    client = tier.client()
    client.use_codec(codec)
    layout = tier.layout([keys_of(1, 2, 3), keys_of()])
    sums = sums_of(1, 3)
    sums.grads[1, 0] = np.nan
    with pytest.raises(KernelError, match="NaN or Inf at position 1"):
        client.stage(0, 0, *layout, sums)
