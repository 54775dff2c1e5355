"""The readers on real files. Each test is skipped, naming what is missing, where the sample data are absent."""

from __future__ import annotations

import csv
import gzip

import numpy as np
import pytest
from data_jobs import REPOSITORY, bag_keys, job, no_key, read_all, sample_folder, text_key

from geartrain.config import load_config
from geartrain.data.index import build_index
from geartrain.errors import BadRowError, DataFileError


@pytest.mark.parametrize(
    ("name", "rows", "positives"),
    [
        ("frappe", (202_063, 57_722, 28_860), 9_536),
        ("ml1m", (800_141, 23_636, 80_298), None),
        ("adult", (32_561, 0, 16_281), 3_846),
        ("criteo_8k", (7_200, 409, 391), None),
    ],
)
def test_examples_count_the_published_rows(monkeypatch, name, rows, positives):
    monkeypatch.setenv("GEARTRAIN_DATA", str(sample_folder(name).parent))
    (example,) = (REPOSITORY / "examples").glob(f"{name}_*.yaml")
    config = load_config(example)
    index = build_index(config)
    assert tuple(index.num_rows(split) for split in ("train", "valid", "test")) == rows
    batch = read_all(config, "test")
    assert batch.num_samples == rows[2]
    assert np.isin(batch.labels, (0.0, 1.0)).all()
    if positives is not None:
        assert batch.labels.sum() == positives


def test_movies_with_genres(monkeypatch):
    monkeypatch.setenv("GEARTRAIN_DATA", str(sample_folder("ml1m").parent))
    config = load_config(REPOSITORY / "examples" / "ml1m_deepfm.yaml")
    names = [feature.name for feature in config.features]
    batch = read_all(config, "valid")
    with gzip.open(sample_folder("ml1m") / "valid.csv.gz", "rt") as file:
        for sample, row in zip(range(300), csv.DictReader(file)):
            assert batch.labels[sample] == float(row["label"])
            assert bag_keys(batch, names.index("genres"), sample) == [
                text_key(genre, "genres") for genre in row["genres"].split("|")
            ]
            assert bag_keys(batch, names.index("user_id"), sample) == [text_key(row["user_id"], "user_id")]


def test_missing_fields_of_criteo():
    folder = sample_folder("tiny")
    features = [{"name": "C19", "kind": "categorical"}]
    features += [{"name": f"I{place}", "kind": "numeric", "transform": "log1p"} for place in (1, 2, 3)]
    batch = read_all(job(folder, features, train=["criteo_sample.txt"]))
    with (folder / "criteo_sample.txt").open() as file:
        rows = list(csv.DictReader(file))
    assert batch.num_samples == len(rows) == 200
    assert batch.numeric[:, 3:].tolist() == [[float(row[name] == "") for name in ("I1", "I2", "I3")] for row in rows]
    assert batch.keys.tolist() == [text_key(row["C19"], "C19") if row["C19"] else no_key("C19") for row in rows]


def test_avazu_and_news():
    folder = sample_folder("tiny")
    sites = [{"name": name, "kind": "categorical"} for name in ("site_id", "device_ip", "C20")]
    assert read_all(job(folder, sites, "click", train=["avazu_sample.txt"])).num_samples == 100
    news = [{"name": "city", "kind": "categorical"}, {"name": "age0", "kind": "numeric", "transform": "standard"}]
    batch = read_all(job(folder, news, "click", train=["yidian_news_sampled.csv"]))
    assert batch.num_samples == 1000
    assert text_key("南昌", "city") in batch.keys.tolist()


def test_clicks_without_a_label_are_refused_before_training():
    folder = sample_folder("tiny")
    article = [{"name": "article_id", "kind": "categorical"}]
    with pytest.raises(DataFileError, match="the label column click"):
        build_index(job(folder, article, "click", train=["tianchi_news_click_log.csv"]))
    config = job(folder, article, "click", train=["tianchi_news_click_log.csv"])
    assert build_index(config, labeled=False).num_rows("train") == 64_901


def test_alimama_without_header():
    folder = sample_folder("tiny")
    columns = [f"h{place}" for place in range(265)] + ["label", "more"]
    features = [{"name": "h0", "kind": "categorical"}]
    config = job(folder, features, train=["alimama_sampled_train.txt"], columns=columns)
    assert build_index(config).num_rows("train") == 500
    with pytest.raises(DataFileError, match="its first row has 267"):
        build_index(config.model_copy(update={"data": config.data.model_copy(update={"columns": tuple(columns[:-1])})}))


def test_items_in_time_order_have_no_usable_label():
    folder = sample_folder("beauty_seq")
    features = [{"name": "user", "kind": "categorical"}]
    config = job(folder, features, "item", train=["beauty.txt"], separator=" ", columns=["user", "item"])
    assert build_index(config).num_rows("train") == 353_962
    with pytest.raises(BadRowError) as caught:
        read_all(config)
    assert (caught.value.facts["row"], caught.value.facts["value"]) == (2, "2")
