"""What holds for every model: shapes, gradients, seeds, and that every parameter learns."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from geartrain.errors import KernelError

TYPES = ("lr", "wide_deep", "deepfm", "dcn")
every_model = pytest.mark.parametrize("kind", TYPES)
tower_models = pytest.mark.parametrize("kind", TYPES[1:])


def loss_of(model, rows, numeric, labels):
    return binary_cross_entropy_with_logits(model(rows, numeric), labels, reduction="sum")


@every_model
@pytest.mark.parametrize("batch_norm", [False, True])
def test_every_parameter_and_every_row_moves_in_a_step(build, draw, kind, batch_norm):
    model = build(kind, batch_norm=batch_norm)
    rows, numeric, labels = draw(model, 64)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    loss_of(model, rows, numeric, labels).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad, alpha=0.1)
    for name, value in model.named_parameters():
        assert torch.isfinite(value).all(), name
        assert not torch.equal(value, before[name]), f"{name} did not move"
    assert torch.isfinite(rows.grad).all()
    assert (rows.grad != 0).any(dim=2).all(), "a slot of a sample had no gradient"


@every_model
def test_steps_of_gradient_descent_lower_the_loss(build, draw, kind):
    model = build(kind)
    rows, numeric, labels = draw(model, 64)
    optimizer = torch.optim.SGD([rows, *model.parameters()], lr=0.01)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = loss_of(model, rows, numeric, labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]


@every_model
def test_gradient_of_rows_is_contiguous_and_of_their_shape(build, draw, kind):
    model = build(kind)
    rows, numeric, labels = draw(model, 9)
    loss_of(model, rows, numeric, labels).backward()
    assert rows.grad.shape == rows.shape
    assert rows.grad.dtype == torch.float32
    assert rows.grad.is_contiguous()


@every_model
def test_inputs_are_not_changed(build, draw, kind):
    model = build(kind)
    rows, numeric, labels = draw(model, 9)
    rows_before, numeric_before = rows.detach().clone(), numeric.clone()
    loss_of(model, rows, numeric, labels).backward()
    assert torch.equal(rows, rows_before)
    assert torch.equal(numeric, numeric_before)


@every_model
def test_a_permuted_batch_gives_permuted_logits(build, draw, kind):
    model = build(kind)
    rows, numeric, _ = draw(model, 20)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    expected = model(rows, numeric)[order]
    torch.testing.assert_close(model(rows[order], numeric[order]), expected, rtol=1e-5, atol=1e-6)


@every_model
def test_each_sample_has_its_own_gradient(build, draw, kind):
    """Sums over samples: the gradient of a batch is the sum of those of its parts, so unequal shares weigh right."""
    model = build(kind)
    rows, numeric, labels = draw(model, 10)

    def gradients(start, stop):
        leaf = rows.detach()[start:stop].clone().requires_grad_()
        loss = loss_of(model, leaf, numeric[start:stop], labels[start:stop])
        return torch.autograd.grad(loss, [leaf, *model.parameters()])

    whole, first, second = gradients(0, 10), gradients(0, 7), gradients(7, 10)
    torch.testing.assert_close(whole[0], torch.cat([first[0], second[0]]), rtol=1e-4, atol=1e-6)
    for all_samples, left, right in zip(whole[1:], first[1:], second[1:], strict=True):
        torch.testing.assert_close(all_samples, left + right, rtol=1e-4, atol=1e-5)


@every_model
@pytest.mark.parametrize("num_samples", [0, 1])
def test_empty_batch_and_batch_of_one(build, draw, kind, num_samples):
    model = build(kind)
    rows, numeric, labels = draw(model, num_samples)
    logits = model(rows, numeric)
    assert logits.shape == (num_samples,)
    binary_cross_entropy_with_logits(logits, labels, reduction="sum").backward()
    assert rows.grad.shape == rows.shape
    assert torch.isfinite(rows.grad).all()
    if num_samples == 0:
        assert all(parameter.grad is None or not parameter.grad.any() for parameter in model.parameters())


@every_model
def test_zero_rows_of_empty_bags_are_scored_and_get_a_gradient(build, draw, kind):
    model = build(kind)
    rows, numeric, labels = draw(model, 8)
    with torch.no_grad():
        rows[:, 2] = 0.0
    loss = loss_of(model, rows, numeric, labels)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(rows.grad).all()
    assert rows.grad[:, 2].any()


@every_model
def test_no_numeric_inputs(build, draw, kind):
    model = build(kind, num_numeric=0)
    rows, numeric, labels = draw(model, 6)
    loss_of(model, rows, numeric, labels).backward()
    assert all(parameter.numel() > 0 for parameter in model.parameters())
    assert torch.isfinite(rows.grad).all()


@every_model
def test_no_slots(build, draw, kind):
    model = build(kind, num_slots=0)
    rows, numeric, labels = draw(model, 6)
    loss = loss_of(model, rows, numeric, labels)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(parameter.grad.any() for parameter in model.parameters())


@tower_models
def test_one_seed_one_set_of_initial_values(build, kind):
    torch.manual_seed(1)
    first = build(kind, seed=3).state_dict()
    torch.manual_seed(2)  # the global generator must have no part in it
    second = build(kind, seed=3).state_dict()
    other = build(kind, seed=4).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    weights = [name for name in first if name.endswith("weight") and first[name].any()]
    assert weights
    assert not any(torch.equal(first[name], other[name]) for name in weights)


@tower_models
def test_weights_start_with_the_spread_of_xavier(build, kind):
    model = build(kind, num_slots=30, embedding_dim=16, hidden=[200])
    weight = model.tower.affine[0].weight
    expected = (2.0 / sum(weight.shape)) ** 0.5
    assert abs(float(weight.detach().std()) / expected - 1.0) < 0.02
    assert not model.head.bias.any()


@every_model
def test_scoring_without_a_gradient_equals_training(build, draw, kind):
    model = build(kind)
    rows, numeric, _ = draw(model, 12)
    expected = model(rows, numeric).detach()
    model.eval()
    with torch.inference_mode():
        assert torch.equal(model(rows, numeric), expected)


@every_model
def test_wrong_shapes_are_refused(build, draw, kind):
    model = build(kind)
    rows, numeric, _ = draw(model, 4)
    with pytest.raises(KernelError, match=r"rows .* must have shape \[B, 5,") as caught:
        model(rows[:, :4], numeric)
    assert caught.value.facts["argument"] == "rows"
    with pytest.raises(KernelError, match="numeric"):
        model(rows, numeric[:3])
    with pytest.raises(KernelError, match="numeric"):
        model(rows, numeric[:, :5])
