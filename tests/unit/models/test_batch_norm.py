"""Batch norm: normalization by the batch or the running averages, and moments that add up over shares."""

from __future__ import annotations

import pytest
import torch

from dense_workers.models.batch_norm import MomentBatchNorm
from geartrain.errors import ConfigError


def batch(num_samples, seed=0, mean=3.0, std=2.0):
    return torch.randn(num_samples, 5, generator=torch.Generator().manual_seed(seed)) * std + mean


def moments(x):
    norm = MomentBatchNorm(x.shape[1])
    norm(x)
    return norm.sum, norm.square_sum


def test_training_equals_torch_batch_norm_with_its_gradient():
    ours, theirs = MomentBatchNorm(5), torch.nn.BatchNorm1d(5)
    with torch.no_grad():
        for parameter in ("weight", "bias"):
            value = batch(1, seed=4)[0]
            getattr(ours, parameter).copy_(value)
            getattr(theirs, parameter).copy_(value)
    x = batch(40).requires_grad_()
    y = batch(40).requires_grad_()
    weights = batch(40, seed=8)
    (ours(x) * weights).sum().backward()
    (theirs(y) * weights).sum().backward()
    torch.testing.assert_close(ours(x), theirs(y))
    torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad)


@pytest.mark.parametrize("std", [0.0, 1e-2, 2.0, 100.0])
def test_moments_are_the_sums_of_x_and_x_squared(std):
    x = batch(50, std=std)
    total, square = moments(x)
    torch.testing.assert_close(total, x.sum(0), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(square, x.square().sum(0), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("cut", [2, 20, 37])
def test_moments_of_two_shares_add_up_to_those_of_the_batch(cut):
    x = batch(40)
    whole, first, second = moments(x), moments(x[:cut]), moments(x[cut:])
    for all_samples, left, right in zip(whole, first, second, strict=True):
        torch.testing.assert_close(left + right, all_samples, rtol=1e-5, atol=1e-4)


def test_moments_accumulate_until_they_are_zeroed_and_averages_stay():
    norm = MomentBatchNorm(5)
    x = batch(10)
    norm(x)
    norm(x)
    torch.testing.assert_close(norm.sum, 2 * x.sum(0), rtol=1e-5, atol=1e-4)
    assert not norm.mean.any()
    assert torch.equal(norm.mean_square, torch.ones(5))


def test_evaluation_uses_the_running_averages_and_tells_no_moments():
    norm = MomentBatchNorm(5).eval()
    norm.mean.fill_(3.0)
    norm.mean_square.fill_(13.0)  # variance 4
    x = batch(6)
    torch.testing.assert_close(norm(x), (x - 3.0) / (4.0 + 1e-5) ** 0.5)
    assert torch.equal(norm(x[:1]), norm(x)[:1])
    assert not norm.sum.any()


def test_evaluation_survives_averages_whose_variance_rounds_below_zero():
    norm = MomentBatchNorm(5).eval()
    norm.mean.fill_(3.0)
    norm.mean_square.fill_(8.9999)
    assert torch.isfinite(norm(batch(6))).all()


def test_fresh_averages_leave_values_almost_as_they_are():
    x = batch(6)
    torch.testing.assert_close(MomentBatchNorm(5).eval()(x), x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["wide_deep", "deepfm", "dcn"])
def test_a_share_of_one_sample_is_refused_and_an_empty_one_adds_nothing(build, draw, kind):
    model = build(kind, batch_norm=True)
    with pytest.raises(ConfigError, match="one sample") as caught:
        model(*draw(model, 1)[:2])
    assert caught.value.facts["field"] == "model.batch_norm"
    assert model(*draw(model, 0)[:2]).shape == (0,)
    assert not model.tower.norm[0].sum.any()
    assert model.eval()(*draw(model, 1)[:2]).shape == (1,)
