"""Emulated cards in real processes. Only what they must not be faster than is checked: a busy host is slower."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from edge_data import config_of, random_columns, write
from training_cluster import TrainingCluster

NUM_ROWS, BATCH = 300, 60
SPEED = 1500.0
MB_PER_S = 0.5
DEVICE = f"emulate:name=V100,samples_per_s={SPEED:g},bandwidth_mb_s={MB_PER_S:g}"


@pytest.fixture(scope="module")
def cards(one_thread_each: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainingCluster]:
    with TrainingCluster(tmp_path_factory.mktemp("cards"), 1, 2, DEVICE) as cluster:
        yield cluster


def test_no_step_is_faster_than_its_card_and_its_links(cards: TrainingCluster) -> None:
    train = write(cards, "paced.parquet", random_columns(NUM_ROWS))
    model = {"hidden": [128]}
    config = config_of(train, model=model, training={"batch_size": BATCH}, heterogeneous=False)
    result = cards.run(config).result
    assert result["samples"] == NUM_ROWS
    computing_s = BATCH / 2 / SPEED
    parameters = 2 * 4 * 128 + 128 + 128 + 1
    # Up: half of the sum, and that much again in the ring; down: the ring.
    ring_s = 4 * parameters / 1e6 / MB_PER_S
    for worker in result["workers"]:
        assert worker["device"] == "emulate:V100"
        assert worker["samples"] == NUM_ROWS / 2
        assert worker["step_ms"]["p50"] >= (computing_s + 1.5 * ring_s) * 1000
        assert worker["busy_ms"]["p50"] >= (computing_s + 1.5 * ring_s) * 1000
    assert result["train_seconds"] >= (NUM_ROWS / BATCH - 1) * (computing_s + 1.5 * ring_s)
