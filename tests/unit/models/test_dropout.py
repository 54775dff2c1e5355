"""Dropout is a function of the step's seed, keeps the expectation, and is absent where it should be."""

from __future__ import annotations

import pytest
import torch

from dense_workers.models.dropout import SeededDropout

tower_models = pytest.mark.parametrize("kind", ["wide_deep", "deepfm", "dcn"])


@pytest.mark.parametrize("probability", [0.2, 0.5, 0.9])
def test_share_of_zeros_and_scale(probability):
    dropout = SeededDropout(probability, layer=0)
    dropout.seed(11)
    x = torch.full((501, 401), 3.0)  # an odd number of values: not a multiple of the four pieces of a word
    out = dropout(x)
    zeros = float((out == 0).float().mean())
    assert abs(zeros - probability) < 0.005
    kept = out[out != 0]
    assert torch.allclose(kept, kept[:1])
    assert float(kept[0]) == pytest.approx(3.0 / (1.0 - probability), rel=1e-3)
    assert abs(float(out.mean()) / 3.0 - 1.0) < 0.03


def test_a_tiny_probability_is_not_ignored():
    dropout = SeededDropout(1e-9, layer=0)
    dropout.seed(0)
    assert 0 < int((dropout(torch.ones(1000, 1000)) == 0).sum()) < 100


def test_mask_of_the_gradient_is_that_of_the_output():
    dropout = SeededDropout(0.5, layer=0)
    dropout.seed(5)
    x = torch.ones(10, 10, requires_grad=True)
    out = dropout(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_zeros_fall_on_every_column_and_row_alike():
    dropout = SeededDropout(0.5, layer=0)
    dropout.seed(5)
    zeros = (dropout(torch.ones(400, 400)) == 0).float()
    for axis in (0, 1):
        share = zeros.mean(axis)
        assert float(share.min()) > 0.35
        assert float(share.max()) < 0.65


def test_layers_and_seeds_have_masks_of_their_own():
    masks = []
    for layer, seed in ((0, 1), (1, 1), (0, 2), (0, 1 << 40)):
        dropout = SeededDropout(0.5, layer)
        dropout.seed(seed)
        masks.append(dropout(torch.ones(64, 64)))
    for i, first in enumerate(masks):
        for second in masks[i + 1 :]:
            agreement = float((first == second).float().mean())
            assert 0.45 < agreement < 0.55


@tower_models
def test_a_step_is_a_function_of_its_seed(build, draw, kind):
    model = build(kind, dropout=0.3)
    rows, numeric, _ = draw(model, 32)

    def logits(seed):
        model.seed_step(seed)
        return model(rows, numeric).detach()

    torch.manual_seed(1)
    first = logits(9)
    torch.manual_seed(2)
    assert torch.equal(logits(9), first)
    assert not torch.equal(logits(10), first)


@tower_models
def test_a_training_step_without_a_seed_is_refused(build, draw, kind):
    model = build(kind, dropout=0.3)
    rows, numeric, _ = draw(model, 4)
    with pytest.raises(RuntimeError, match="seed_step"):
        model(rows, numeric)
    model.seed_step(1)
    model(rows, numeric)
    with pytest.raises(RuntimeError, match="seed_step"):
        model(rows, numeric)


@tower_models
def test_evaluation_drops_nothing(build, draw, kind):
    with_dropout, without = build(kind, dropout=0.3), build(kind)
    rows, numeric, _ = draw(without, 8)
    assert torch.equal(with_dropout.eval()(rows, numeric), without.eval()(rows, numeric))


@tower_models
def test_without_dropout_seeds_change_nothing(build, draw, kind):
    model = build(kind)
    rows, numeric, _ = draw(model, 8)
    first = model(rows, numeric)
    model.seed_step(5)
    assert torch.equal(model(rows, numeric), first)
