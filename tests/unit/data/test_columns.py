from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from data_jobs import integer_key, job, no_key, read_all, text_key
from hypothesis import given
from hypothesis import strategies as st

from geartrain.data.columns import Origin, bags, buckets, categories, cleaned, labels, numbers, transformed
from geartrain.data.schema import LabelRule, Slot, TextRules
from geartrain.errors import BadRowError

ORIGIN = Origin("some.csv", first_row=100)
PLAIN = TextRules()
TOKENS = TextRules(strip_whitespace=True, missing=("", "?"))
VALUES = st.sampled_from(["a", "b", "", "?", " a", "a ", "long value", "é"])


@given(st.lists(st.none() | VALUES), st.integers(0, 3), st.sampled_from([pa.string(), pa.large_string()]))
def test_cleaning_strips_and_marks_missing_in_any_slice(values, start, width):
    array = pa.array(["x"] * start + values, width).slice(start)
    expected = [value.strip() if value is not None else None for value in values]
    assert cleaned(array, TOKENS).to_pylist() == [None if value in ("", "?") else value for value in expected]
    assert cleaned(array, PLAIN).to_pylist() == values


@given(st.lists(st.none() | VALUES, min_size=1))
def test_dictionary_and_plain_columns_have_the_same_keys(values):
    slot = Slot("color", "categorical", "colors", 0)
    array = pa.array(values, pa.string())
    for rules in (PLAIN, TOKENS):
        keys = categories(array, slot, rules).tolist()
        assert categories(array.dictionary_encode(), slot, rules).tolist() == keys
        clean = cleaned(array, rules).to_pylist()
        assert keys == [no_key("colors") if value is None else text_key(value, "colors") for value in clean]


@given(st.lists(st.none() | st.lists(st.none() | VALUES, max_size=6)), st.integers(1, 4), st.booleans())
def test_bags_against_a_loop(rows, max_length, as_text):
    slot = Slot("tags", "sequence", "tags", 0, separator="|", max_length=max_length)
    array = pa.array(rows, pa.list_(pa.string()))
    if as_text:
        array = pa.array([None if row is None else "|".join(value or "" for value in row) for row in rows], pa.string())
    offsets, keys = bags(array, slot, TOKENS)
    expected = []
    for row in rows:
        kept = [value.strip() for value in row or [] if value is not None and value.strip() not in ("", "?")]
        expected.append([text_key(value, "tags") for value in kept[-max_length:]])
    assert [keys[start:stop].tolist() for start, stop in pairwise(offsets)] == expected
    assert offsets.dtype == np.int64
    assert keys.dtype == np.uint64


def test_a_fixed_size_list_is_a_bag():
    slot = Slot("tags", "sequence", "tags", 0, separator="|")
    offsets, keys = bags(pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)), slot, PLAIN)
    assert offsets.tolist() == [0, 2, 2, 4]
    assert keys.tolist() == [integer_key(value, "tags") for value in (1, 2, 3, 4)]


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_in_text_and_in_columns_are_the_same(values):
    text = pa.array(["" if value is None else repr(value) for value in values], pa.string())
    column = pa.array(values, pa.float64())
    for array in (text, column):
        found, missing = numbers(array, "price", TOKENS, ORIGIN)
        assert found.tolist() == [0.0 if value is None else value for value in values]
        assert missing.tolist() == [value is None for value in values]


def test_numbers_as_people_write_them():
    texts = ["+5", "-3", "1e3", ".5", "5.", "1E-2", "-0"]
    found, _ = numbers(pa.array(texts), "price", PLAIN, ORIGIN)
    assert found.tolist() == [5.0, -3.0, 1000.0, 0.5, 5.0, 0.01, -0.0]


@pytest.mark.parametrize("text", ["", "x", "1,5", "0x10", "1 2", "--1", "1e", "٣", "$1"])
def test_text_that_is_no_number_is_refused_with_its_row(text):
    with pytest.raises(BadRowError) as caught:
        numbers(pa.array(["1", text, "y"]), "price", PLAIN, ORIGIN)
    assert caught.value.facts == {
        "file": "some.csv", "row": 102, "column": "price", "value": text, "expected": "a number"
    }  # fmt: skip


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-Infinity", "1e999"])
def test_text_that_is_not_finite_is_refused_unless_it_is_missing(text):
    with pytest.raises(BadRowError) as caught:
        numbers(pa.array(["1", text]), "price", PLAIN, ORIGIN)
    assert caught.value.facts["expected"] == "a finite number"
    assert caught.value.facts["value"] == text
    found, missing = numbers(pa.array(["1", text]), "price", TextRules(missing=(text,)), ORIGIN)
    assert (found.tolist(), missing.tolist()) == ([1.0, 0.0], [False, True])


def test_a_long_value_is_shortened_in_the_error():
    with pytest.raises(BadRowError) as caught:
        numbers(pa.array(["x" * 1000]), "price", PLAIN, ORIGIN)
    assert len(caught.value.message) < 200


@given(st.floats(-1e30, 1e30))
def test_log1p_is_odd_and_standard_is_linear(value):
    array = np.array([value])
    expected = math.log1p(value) if value >= 0 else -math.log1p(-value)
    assert transformed(array, "log1p", (0.0, 1.0))[0] == pytest.approx(expected, rel=1e-12, abs=0)
    assert transformed(array, "standard", (3.0, 2.0))[0] == (value - 3.0) / 2.0
    assert transformed(array, "none", (3.0, 2.0))[0] == value


@given(st.lists(st.none() | st.integers(-5, 12), min_size=1))
def test_buckets_count_the_boundaries_below(values):
    slot = Slot("age", "bucketized", "ages", 0, boundaries=(0.0, 2.5, 10.0))
    found, missing = numbers(pa.array(values, pa.int64()), "age", PLAIN, ORIGIN)
    expected = [
        no_key("ages") if value is None else integer_key(sum(edge <= value for edge in (0, 2.5, 10)), "ages")
        for value in values
    ]
    assert buckets(found, missing, slot).tolist() == expected


def test_labels_name_what_they_cannot_use():
    assert labels(pa.array(["0", "1", "1.0", "0.0"]), LabelRule("y", None), PLAIN, ORIGIN).tolist() == [0, 1, 1, 0]
    with pytest.raises(BadRowError) as caught:
        labels(pa.array(["0", " ?"]), LabelRule("y", None), TOKENS, ORIGIN)
    assert caught.value.facts["value"] == " ?"
    assert caught.value.facts["row"] == 102


def test_positive_labels_are_stripped_and_never_missing():
    rule = LabelRule("y", (">50K", ">50K."))
    found = labels(pa.array([" >50K", ">50K.", "<=50K", "x"]), rule, TOKENS, ORIGIN)
    assert found.tolist() == [1, 1, 0, 0]
    assert labels(pa.array([" >50K", ">50K"]), rule, PLAIN, ORIGIN).tolist() == [0, 1]
    with pytest.raises(BadRowError) as caught:
        labels(pa.array(["<=50K", ""]), rule, TOKENS, ORIGIN)
    assert caught.value.facts["expected"] == "a value"


def test_inputs_of_a_batch_are_values_then_indicators(tmp_path):
    (tmp_path / "train.csv").write_text("label,id,a,b,c,d\n1,x,1,,3,4\n0,y,,-2,5,\n")
    features = [
        {"name": "a", "kind": "numeric"},
        {"name": "id", "kind": "categorical"},
        {"name": "b", "kind": "numeric", "transform": "log1p"},
        {"name": "c", "kind": "numeric", "transform": "standard"},
        {"name": "d", "kind": "numeric", "transform": "bucketize", "boundaries": [3.0, 4.0]},
    ]
    batch = read_all(job(tmp_path, features))
    expected = [[1, 0, -1, 0, 1, 0], [0, -math.log(3), 1, 1, 0, 0]]
    np.testing.assert_allclose(batch.numeric, expected, rtol=1e-6)
    assert batch.keys.tolist() == [text_key("x", "id"), text_key("y", "id"), integer_key(2, "d"), no_key("d")]
    assert batch.bag_offsets.tolist() == [0, 1, 2, 3, 4]
