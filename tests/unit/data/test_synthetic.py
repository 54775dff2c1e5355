from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from data_jobs import job, read_all

from geartrain.data import synthetic
from geartrain.data.index import build_index
from geartrain.data.synthetic import (
    CATEGORICAL_NAMES,
    NUMERIC_NAMES,
    column_cardinalities,
    write_criteo_like,
    zipf_ranks,
)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return write_criteo_like(tmp_path_factory.mktemp("synthetic"), 70_000, seed=5, num_test_rows=3_000)


def test_columns_rows_and_groups(paths):
    file = pq.ParquetFile(paths["train"])
    assert file.schema_arrow.names == ["label", *CATEGORICAL_NAMES, *NUMERIC_NAMES]
    assert {str(file.schema_arrow.field(name).type) for name in CATEGORICAL_NAMES} == {"int64"}
    assert {str(file.schema_arrow.field(name).type) for name in NUMERIC_NAMES} == {"float"}
    assert [file.metadata.row_group(group).num_rows for group in range(2)] == [65_536, 70_000 - 65_536]
    assert pq.read_metadata(paths["test"]).num_rows == 3_000


def test_ids_are_skewed_and_within_their_column(paths):
    table = pq.read_table(paths["train"])
    for name, size in zip(CATEGORICAL_NAMES, column_cardinalities(5_000_000)):
        ids = table[name].to_numpy()
        assert ids.min() >= 1
        assert ids.max() <= size
    last = table[CATEGORICAL_NAMES[-1]].to_numpy()
    assert np.bincount(last).argmax() == 1
    assert len(np.unique(last)) > 10_000


def test_clicks_are_a_quarter_and_some_numbers_are_missing(paths):
    table = pq.read_table(paths["train"])
    assert 0.2 < table["label"].to_numpy().mean() < 0.32
    missing = [table[name].null_count for name in NUMERIC_NAMES]
    assert missing[0] == 0
    assert 0.3 < missing[-1] / 70_000 < 0.42


def test_clicks_follow_the_ids_in_both_files(paths):
    train, test = (pq.read_table(paths[split]) for split in ("train", "test"))
    ids, labels = train["c1"].to_numpy(), train["label"].to_numpy()
    rates = np.bincount(ids, labels) / np.maximum(np.bincount(ids), 1)
    scores, clicked = rates[test["c1"].to_numpy()], test["label"].to_numpy() == 1
    assert scores[clicked].mean() > scores[~clicked].mean() + 0.005


def test_the_same_seed_gives_the_same_file(tmp_path, paths):
    small = [
        write_criteo_like(tmp_path / name, 500, seed)["train"].read_bytes()
        for name, seed in [("a", 1), ("b", 1), ("c", 2)]
    ]
    assert small[0] == small[1] != small[2]


def test_cardinalities_add_up_and_are_unequal():
    for num_ids in (260, 261, 10_000, 5_000_000):
        sizes = column_cardinalities(num_ids)
        assert sizes.sum() == num_ids
        assert len(sizes) == 26
        assert sizes.min() >= 9
    assert sizes.max() / sizes.min() > 1000
    with pytest.raises(ValueError, match="num_ids >= 260"):
        column_cardinalities(100)


def test_ranks_follow_a_power_law():
    uniform = (np.arange(1_000_000) + 0.5) / 1_000_000
    found = np.bincount(zipf_ranks(uniform, 1000), minlength=1001)[1:] / 1_000_000
    exact = np.arange(1, 1001) ** -1.05
    np.testing.assert_allclose(found, exact / exact.sum(), rtol=0.12, atol=1e-5)
    assert zipf_ranks(np.array([0.0, np.nextafter(1.0, 0.0)]), 1000).tolist() == [1, 1000]


def test_the_readers_take_it(paths):
    features = [{"name": name, "kind": "categorical"} for name in CATEGORICAL_NAMES]
    features += [{"name": name, "kind": "numeric", "transform": "log1p"} for name in NUMERIC_NAMES]
    config = job(paths["test"].parent, features, format="parquet", train=["test.parquet"])
    assert build_index(config).num_rows("train") == 3_000
    batch = read_all(config)
    assert len(batch.bag_offsets) == 26 * 3_000 + 1
    assert batch.numeric.shape == (3_000, 26)
    assert batch.numeric[:, 13:].any(axis=0).tolist()[1:] == [True] * 12


def test_nothing_half_written_is_left_when_writing_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "_row_group", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_criteo_like(tmp_path, 10, seed=1)
    assert list(tmp_path.iterdir()) == []
