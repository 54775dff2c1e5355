from __future__ import annotations

from data_jobs import job

from geartrain.data.schema import NO_LIMIT, DataSchema, LabelRule, TextRules

FEATURES = [
    {"name": "price", "kind": "numeric", "transform": "log1p"},
    {"name": "user", "kind": "categorical"},
    {"name": "history", "kind": "sequence", "table": "item", "separator": ";", "max_length": 5, "pooling": "mean"},
    {"name": "age", "kind": "numeric", "transform": "bucketize", "boundaries": [18, 30.5], "table": "ages"},
    {"name": "item", "kind": "categorical"},
    {"name": "tags", "kind": "sequence", "pooling": "sum"},
    {"name": "score", "kind": "numeric", "transform": "standard"},
]


def test_slots_and_inputs_in_feature_order(tmp_path):
    schema = DataSchema.from_config(job(tmp_path, FEATURES, "click", group_by="item"))
    assert schema.slot_names == ("user", "history", "age", "item", "tags")
    assert schema.table_names == ("user", "item", "ages", "tags")
    assert schema.slot_tables.tolist() == [0, 1, 2, 1, 3]
    assert schema.mean_slots.tolist() == [0, 1, 0, 0, 0]
    assert schema.slot_tables.dtype == "int64"
    assert schema.mean_slots.dtype == "uint8"
    assert schema.numeric_names == ("price", "score")
    assert schema.num_numeric_inputs == 4
    assert schema.group_slot == 3
    assert schema.columns == ("click", "user", "history", "age", "item", "tags", "price", "score")


def test_tables_are_those_that_the_config_names(tmp_path):
    config = job(tmp_path, FEATURES)
    assert DataSchema.from_config(config).table_names == config.table_names()


def test_every_setting_of_a_slot_arrives(tmp_path):
    _, history, age, _, tags = DataSchema.from_config(job(tmp_path, FEATURES)).slots
    assert (history.kind, history.separator, history.max_length, history.mean) == ("sequence", ";", 5, True)
    assert (age.kind, age.boundaries, age.table) == ("bucketized", (18.0, 30.5), "ages")
    assert (tags.separator, tags.max_length, tags.mean) == ("|", NO_LIMIT, False)


def test_every_setting_of_text_arrives(tmp_path):
    user = [{"name": "user", "kind": "categorical"}]
    config = job(
        tmp_path, user, {"column": "y", "positive": ["a"]},
        separator=";", columns=["user", "y"], strip_whitespace=True, missing=["-", ""],
    )  # fmt: skip
    schema = DataSchema.from_config(config)
    assert schema.text == TextRules(";", ("user", "y"), strip_whitespace=True, missing=("-", ""))
    assert schema.label == LabelRule("y", ("a",))
    assert DataSchema.from_config(job(tmp_path, user, format="tsv")).text.separator == "\t"
    assert DataSchema.from_config(job(tmp_path, user)).text == TextRules(",", None, missing=("",))


def test_without_labels(tmp_path):
    schema = DataSchema.from_config(job(tmp_path, FEATURES), {"score": (1.0, 2.0)}, labeled=False)
    assert schema.label is None
    assert "label" not in schema.columns
    assert schema.standard == {"score": (1.0, 2.0)}
