"""Metrics against brute force: every pair counted, every group apart, one-class and empty inputs with reasons."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import KernelError, NonFiniteError
from geartrain.evaluation import auc, calibration, evaluate, gauc, logloss, normalized_entropy

# Few distinct scores, so that ties inside and across classes are common; -0.0 ties with 0.0.
scores_with_ties = st.sampled_from([0.0, -0.0, 0.25, 0.5, 0.5000001, 1.0])
row = st.tuples(st.integers(0, 1), scores_with_ties, st.integers(0, 3))
rows = st.lists(row, max_size=40)


def columns(table):
    labels = np.array([r[0] for r in table], dtype=np.uint8)
    scores = np.array([r[1] for r in table], dtype=np.float32)
    # Group ids of all bits: they are hashes, not small numbers.
    groups = np.array([(1 << 64) - 1 - r[2] for r in table], dtype=np.uint64)
    return labels, scores, groups


def brute_auc(labels, scores):
    positives = [s for y, s in zip(labels, scores, strict=True) if y]
    negatives = [s for y, s in zip(labels, scores, strict=True) if not y]
    if not positives or not negatives:
        return None
    wins = sum(1.0 if p > n else 0.5 if p == n else 0.0 for p in positives for n in negatives)
    return wins / (len(positives) * len(negatives))


def brute_gauc(labels, scores, groups):
    weighted, total = 0.0, 0
    for group in set(groups.tolist()):
        members = groups == group
        value = brute_auc(labels[members], scores[members])
        if value is not None:
            weighted += value * int(members.sum())
            total += int(members.sum())
    return weighted / total if total else None


@given(rows)
def test_auc_counts_every_pair(table):
    labels, scores, _ = columns(table)
    assert auc(labels, scores) == brute_auc(labels, scores)


@given(rows)
def test_gauc_equals_the_groups_one_by_one(table):
    labels, scores, groups = columns(table)
    expected = brute_gauc(labels, scores, groups)
    got = gauc(labels, scores, groups)
    assert got == (None if expected is None else pytest.approx(expected, rel=1e-12))


@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(table, random):
    shuffled = list(table)
    random.shuffle(shuffled)
    first, second = evaluate(*columns(table)).to_dict(), evaluate(*columns(shuffled)).to_dict()
    assert first.keys() == second.keys()
    for name, figure in first.items():
        assert second[name] == (pytest.approx(figure, rel=1e-12) if isinstance(figure, float) else figure), name


@given(rows.filter(lambda table: 0 < sum(r[0] for r in table) < len(table)))
def test_auc_of_turned_labels_is_the_complement(table):
    labels, scores, _ = columns(table)
    assert auc(labels, scores) + auc(1 - labels, scores) == pytest.approx(1.0)


def test_auc_of_many_rows_equals_the_rank_formula():
    generator = np.random.default_rng(3)
    scores = generator.integers(0, 1000, 20_000).astype(np.float32) / 1000
    labels = (generator.random(20_000) < scores).astype(np.uint8)
    order = np.unique(scores, return_inverse=True)[1]
    counts = np.bincount(order)
    mean_rank = (np.cumsum(counts) - (counts - 1) / 2)[order]
    num_positive, num_negative = int(labels.sum()), int((1 - labels).sum())
    expected = (mean_rank[labels == 1].sum() - num_positive * (num_positive + 1) / 2) / (num_positive * num_negative)
    assert auc(labels, scores) == pytest.approx(expected, rel=1e-12)


def test_known_values():
    labels, scores = np.array([0, 1, 0, 1]), np.array([0.1, 0.4, 0.4, 0.8])
    assert auc(labels, scores) == 0.875
    expected = -(math.log(0.9) + math.log(0.4) + math.log(0.6) + math.log(0.8)) / 4
    assert logloss(labels, scores) == pytest.approx(expected, rel=1e-12)
    assert normalized_entropy(labels, scores) == pytest.approx(expected / math.log(2), rel=1e-12)
    assert calibration(labels, scores) == pytest.approx(1.7 / 2)


def test_predicting_the_mean_has_normalized_entropy_and_calibration_one():
    labels = np.array([1, 0, 0, 0, 1], dtype=np.float32)
    scores = np.full(5, 0.4)
    assert normalized_entropy(labels, scores) == pytest.approx(1.0)
    assert calibration(labels, scores) == pytest.approx(1.0)


def test_certain_and_wrong_costs_the_clip_and_not_infinity():
    assert logloss(np.array([1]), np.array([0.0])) == pytest.approx(-math.log(1e-7))
    assert logloss(np.array([0]), np.array([1.0], dtype=np.float32)) == pytest.approx(-math.log(1e-7), rel=1e-6)


def test_one_class_has_no_auc_and_says_why():
    metrics = evaluate(np.zeros(3, np.uint8), np.array([0.1, 0.2, 0.3], np.float32)).to_dict()
    assert metrics["auc"] is None
    assert metrics["auc_reason"] == "all 3 labels are 0"
    assert metrics["normalized_entropy"] is None
    assert metrics["calibration"] is None
    assert metrics["logloss"] > 0
    assert metrics["num_samples"] == 3
    assert "gauc" not in metrics
    metrics = evaluate(np.ones(2, np.uint8), np.array([0.1, 0.2], np.float32)).to_dict()
    assert metrics["auc_reason"] == "all 2 labels are 1"
    assert metrics["calibration"] == pytest.approx(0.15)


def test_no_rows_have_no_figures_and_say_why():
    empty = np.zeros(0, np.float32)
    metrics = evaluate(empty.astype(np.uint8), empty, empty.astype(np.uint64)).to_dict()
    assert metrics["num_samples"] == 0
    for name in ("auc", "logloss", "gauc", "normalized_entropy", "calibration"):
        assert metrics[name] is None
        assert metrics[f"{name}_reason"] == "no rows"


def test_groups_of_one_class_each_have_no_gauc_and_say_why():
    labels, groups = np.array([0, 0, 1, 1], np.uint8), np.array([5, 5, 6, 6], np.uint64)
    metrics = evaluate(labels, np.array([0.1, 0.2, 0.3, 0.4]), groups).to_dict()
    assert metrics["auc"] == 1.0
    assert metrics["gauc"] is None
    assert metrics["gauc_reason"] == "no group has labels of both classes"


def test_gauc_weighs_by_rows_and_leaves_one_class_groups_out():
    labels = np.array([0, 1, 1, 0, 1, 1, 1, 1], np.uint8)
    scores = np.array([0.1, 0.9, 0.2, 0.5, 0.6, 0.1, 0.1, 0.1], np.float32)
    groups = np.array([1, 1, 2, 2, 2, 3, 3, 3], np.uint64)
    assert evaluate(labels, scores, groups).gauc == pytest.approx((2 * 1.0 + 3 * 0.5) / 5)


@given(rows)
def test_figures_are_plain_json_and_the_same_when_computed_again(table):
    labels, scores, groups = columns(table)
    before = labels.copy(), scores.copy(), groups.copy()
    first = evaluate(labels, scores, groups).to_dict()
    assert evaluate(labels, scores, groups).to_dict() == first
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    for array, copy in zip((labels, scores, groups), before, strict=True):
        assert np.array_equal(array, copy)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_named(bad):
    scores = np.array([0.1, 0.2, bad, bad], np.float32)
    with pytest.raises(NonFiniteError, match="2 of 4 scores") as caught:
        evaluate(np.array([0, 1, 0, 1]), scores)
    assert caught.value.facts == {"num_non_finite": 2, "num_scores": 4, "row": 2}


@pytest.mark.parametrize(
    ("labels", "scores", "groups", "message"),
    [
        ([0, 1], [0.5, 1.5], None, r"scores .* probability in \[0, 1\], not 1.5 at row 1"),
        ([0, 1], [-0.5, 0.5], None, "not -0.5 at row 0"),
        ([0, 2], [0.5, 0.5], None, "labels .* 0 or 1, not 2 at row 1"),
        ([0, 1], [0.5], None, "scores .* one value for each"),
        ([0, 1], [0.5, 0.5], [1], "group_ids .* one value for each"),
    ],
)
def test_wrong_arguments_are_refused(labels, scores, groups, message):
    with pytest.raises(KernelError, match=message):
        evaluate(np.array(labels), np.array(scores), None if groups is None else np.array(groups))
