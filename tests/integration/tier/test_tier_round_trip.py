"""Pull, stage, apply over real sockets against a model in NumPy; any number of servers, the same bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tier_cluster import DIM, NUM_DENSE, TierCluster, dense_of, keys_of, pulled, specs, sums_of

from geartrain.types import Floats, Keys
from geartrain.wire.messages import Applied, Contribution

StartTier = Callable[..., TierCluster]
LAST = 2**64 - 1


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
@pytest.mark.parametrize("num_servers", [1, 3])
def test_two_workers_against_a_model_in_numpy(start_tier: StartTier, transport: str, num_servers: int) -> None:
    tier = start_tier(num_servers=num_servers, transport=transport)
    w0, w1 = tier.client("w0"), tier.client("w1")
    w0.put_dense(np.arange(NUM_DENSE, dtype=np.float32))
    first = tier.layout([keys_of(0, LAST, 1, 2), keys_of(1, 2, 3)])
    second = tier.layout([keys_of(2, 5, 0), keys_of(9)])
    every = tier.layout([keys_of(0, LAST, 1, 2, 5, 6), keys_of(1, 2, 3, 9, 10)])
    before = dict(zip(_ids(tier, *every), pulled(w1, *every, version=0), strict=True))
    pushes = [sums_of(1, 7, (0, 5)), sums_of(2, 4, (5, NUM_DENSE))]
    acknowledged = w0.stage(0, 0, *first, pushes[0])
    assert acknowledged == {f"s{number}": 100 + number for number in range(num_servers)}
    w1.stage(0, 0, *second, pushes[1])
    answers = tier.apply(1, [Contribution(0, 0, ["w0", "w1"], 8, 1.0)], divisor=8.0)
    assert answers == [Applied(f"s{number}", 100 + number, 1, 1) for number in range(num_servers)]

    expected = {key: row.astype(np.float64) for key, row in before.items()}
    for layout, push in ((first, pushes[0]), (second, pushes[1])):
        for key, grad in zip(_ids(tier, *layout), push.grads, strict=True):
            expected[key] = expected[key] - 0.1 * grad.astype(np.float64) / 8.0
    after = dict(zip(_ids(tier, *every), pulled(w0, *every, version=1), strict=True))
    assert after.keys() == expected.keys()
    for key, row in expected.items():
        np.testing.assert_allclose(after[key], row, rtol=1e-6, atol=1e-7)
    untouched = [("a", 6), ("b", 10)]
    assert all(np.array_equal(after[key], before[key]) for key in untouched)
    gradient = np.concatenate([pushes[0].dense, pushes[1].dense]) / 8.0
    dense = dense_of(w1, version=1)
    np.testing.assert_allclose(dense[:10], np.arange(10) - 0.1 * np.sign(gradient[:10]), atol=1e-3)
    np.testing.assert_allclose(dense[10:], np.arange(10, 14) * 0.9 + 0.1 * gradient[10:], rtol=1e-6)


def _ids(tier: TierCluster, keys: Keys, counts: np.ndarray) -> list[tuple[str, int]]:
    """(table, key) of each position of a layout."""
    names = [spec.name for _ in range(tier.num_servers) for spec in tier.tables]
    return list(zip(np.repeat(names, counts.ravel()).tolist(), keys.tolist(), strict=True))


def train(tier: TierCluster, num_steps: int = 4, optimizer_seed: int = 0) -> tuple[bytes, bytes]:
    """Four windows of two groups with two workers; all rows and dense values at the end, independent of the route."""
    rng = np.random.default_rng(optimizer_seed)
    clients = {name: tier.client(name) for name in ("w0", "w1", "w2", "w3")}
    clients["w0"].put_dense(np.linspace(-1, 1, NUM_DENSE, dtype=np.float32))
    universe = [rng.integers(0, 2**64, 400, dtype=np.uint64), np.arange(3, dtype=np.uint64)]
    for step in range(num_steps):
        for number, (worker, client) in enumerate(clients.items()):
            tables = [rng.choice(universe[0], 150, replace=False), universe[1]]
            grads = {(t, int(k)): rng.normal(size=DIM) for t, keys in enumerate(tables) for k in keys}
            keys, counts = tier.layout(tables)
            cut = (0, 6) if number % 2 == 0 else (6, NUM_DENSE)
            push = sums_of(step * 10 + number, len(keys), cut)
            tables_of = np.repeat(list(range(len(tables))) * tier.num_servers, counts.ravel())
            push.grads = np.array(
                [grads[int(t), int(k)] for t, k in zip(tables_of, keys, strict=True)], dtype=np.float32
            )
            client.stage(number // 2, step, keys, counts, push)
            assert worker == f"w{number}"
        decision = [Contribution(0, step, ["w0", "w1"], 3, 1.0), Contribution(1, step, ["w2", "w3"], 5, 0.9)]
        tier.apply(step + 1, decision, divisor=7.5)
    keys, counts = tier.layout(universe)
    rows = pulled(clients["w3"], keys, counts, num_steps)
    tables_of = np.repeat(list(range(2)) * tier.num_servers, counts.ravel())
    return rows[np.lexsort((keys, tables_of))].tobytes(), dense_of(clients["w2"], num_steps).tobytes()


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
def test_results_are_bitwise_equal_for_any_number_of_servers(start_tier: StartTier, optimizer: str) -> None:
    results = {train(start_tier(num_servers=count, tables=specs(optimizer))) for count in (1, 2, 3)}
    assert len(results) == 1


def test_more_servers_than_rows_and_empty_batches(start_tier: StartTier) -> None:
    tier = start_tier(num_servers=8, tables=specs(names=("tiny",)), transport="tcp")
    client = tier.client()
    client.put_dense(np.zeros(NUM_DENSE, dtype=np.float32))
    keys, counts = tier.layout([keys_of(1, 2, 3)])
    empty, no_counts = tier.layout([keys_of()])
    assert pulled(client, empty, no_counts, version=0).shape == (0, DIM)
    assert client.pull(empty, no_counts, 5, np.empty((0, DIM), dtype=np.float32)) == 5, "nobody was asked"
    client.stage(0, 0, keys, counts, sums_of(1, 3))
    tier.apply(1, [Contribution(0, 0, ["w0"], 4, 1.0)])
    assert len(client.stage(0, 1, empty, no_counts, sums_of(2, 0))) == 8
    tier.apply(2, [Contribution(0, 1, ["w0"], 4, 1.0)])
    before = pulled(client, keys, counts, version=2)
    tier.apply(3, [], divisor=0.0)
    np.testing.assert_array_equal(pulled(client, keys, counts, version=3), before)
    assert sum(one.stats(0).tables["tiny"].num_rows for one in tier.tiers) == 3  # type: ignore[union-attr]


def test_pulls_for_evaluation_leave_no_trace(start_tier: StartTier) -> None:
    tier = start_tier(num_servers=2)
    client = tier.client()
    keys, counts = tier.layout([np.arange(1000, dtype=np.uint64), np.arange(5, dtype=np.uint64)])
    first, second = pulled(client, keys, counts, 0), pulled(client, keys, counts, 0)
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first)) > 1000
    for one in tier.tiers:
        stats = one.stats(0)
        assert stats is not None
        assert all(table.num_rows == 0 for table in stats.tables.values())
        assert stats.tables["a"].pull_requests == 2 and stats.tables["a"].pull_p99_ms > 0


def test_two_pulls_under_way_and_a_dense_one_between(start_tier: StartTier) -> None:
    tier = start_tier(num_servers=3)
    client = tier.client()
    client.put_dense(np.ones(NUM_DENSE, dtype=np.float32))
    layouts = [tier.layout([keys_of(*range(n)), keys_of(n)]) for n in (50, 3)]
    handles = [client.begin_pull(*layout, 0) for layout in layouts]
    assert dense_of(client, 0).tolist() == [1.0] * NUM_DENSE
    outs: list[Floats] = [np.empty((len(layout[0]), DIM), dtype=np.float32) for layout in layouts]
    for number in (1, 0):
        assert client.finish_pull(handles[number], outs[number]) == 0
    for layout, out in zip(layouts, outs, strict=True):
        np.testing.assert_array_equal(out, pulled(client, *layout, version=0))


def test_a_large_request_passes_whole(start_tier: StartTier) -> None:
    tier = start_tier(num_servers=2, transport="tcp")
    client = tier.client()
    client.put_dense(np.zeros(NUM_DENSE, dtype=np.float32))
    keys = np.random.default_rng(1).integers(0, 2**64, 200_000, dtype=np.uint64)
    layout = tier.layout([np.unique(keys), keys_of()])
    before = pulled(client, *layout, version=0)
    push = sums_of(1, len(layout[0]))
    client.stage(0, 0, *layout, push)
    tier.apply(1, [Contribution(0, 0, ["w0"], 1, 1.0)])
    np.testing.assert_allclose(pulled(client, *layout, version=1), before - 0.1 * push.grads, rtol=1e-5, atol=1e-6)
