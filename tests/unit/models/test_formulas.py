"""Each model against its formula, written out sample by sample and pair by pair."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dense_workers.models.dcn import CrossNetwork
from dense_workers.models.split_rows import split_rows


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pairs(embeddings):
    """The factorization machine as its definition says, for one sample's [S, E]."""
    return sum((float(a @ b) for a, b in itertools.combinations(embeddings, 2)), 0.0)


@given(
    num_samples=st.integers(0, 4),
    num_slots=st.integers(0, 6),
    embedding_dim=st.integers(1, 5),
    num_numeric=st.integers(0, 3),
    pairwise=st.booleans(),
)
def test_split_rows_equals_its_definition(num_samples, num_slots, embedding_dim, num_numeric, pairwise):
    rows = drawn(num_samples, num_slots, embedding_dim + 1)
    numeric = drawn(num_samples, num_numeric, seed=1)
    x, logit = split_rows(rows, numeric, pairwise=pairwise)
    assert x.shape == (num_samples, num_slots * embedding_dim + num_numeric)
    for b in range(num_samples):
        assert torch.equal(x[b], torch.cat([rows[b, :, 1:].flatten(), numeric[b]]))
        expected = float(rows[b, :, 0].sum()) + (pairs(rows[b, :, 1:]) if pairwise else 0.0)
        assert float(logit[b]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("pairwise", [False, True])
@pytest.mark.parametrize(("num_slots", "dim"), [(4, 3), (1, 2), (3, 6)])
def test_split_rows_has_the_gradient_of_finite_differences(num_slots, dim, pairwise):
    rows = drawn(2, num_slots, dim).requires_grad_()
    numeric = drawn(2, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda r, n: split_rows(r, n, pairwise=pairwise), (rows, numeric))


def test_split_rows_takes_rows_that_are_not_contiguous():
    rows = drawn(4, 3, 5).transpose(0, 1).requires_grad_()
    numeric = drawn(3, 2, seed=1)
    x, logit = split_rows(rows, numeric, pairwise=True)
    expected_x, expected_logit = split_rows(rows.detach().contiguous(), numeric, pairwise=True)
    assert torch.equal(x, expected_x)
    assert torch.equal(logit, expected_logit)


def tower_by_hand(model, x):
    for affine in model.tower.affine:
        x = torch.clamp(x @ affine.weight.T + affine.bias, min=0.0)
    return x


def with_random_numeric_weights(model):
    with torch.no_grad():
        model.numeric.weight.copy_(drawn(model.inputs.num_numeric, seed=5))
    return model


def test_lr_is_the_sum_of_all_weights(build, draw):
    model = with_random_numeric_weights(build("lr"))
    assert model.inputs.row_dim == 1
    rows, numeric, _ = draw(model, 7)
    with torch.no_grad():
        model.bias.fill_(0.25)
    expected = rows.sum((1, 2)) + (numeric * model.numeric.weight).sum(1) + 0.25
    torch.testing.assert_close(model(rows, numeric), expected)


@pytest.mark.parametrize("kind", ["wide_deep", "deepfm"])
def test_wide_deep_and_deepfm_are_the_sums_of_their_parts(build, draw, kind):
    model = with_random_numeric_weights(build(kind))
    assert model.inputs.row_dim == 5
    rows, numeric, _ = draw(model, 7)
    deep = tower_by_hand(model, torch.cat([rows[:, :, 1:].flatten(1), numeric], 1))
    expected = (deep @ model.head.weight.T + model.head.bias).squeeze(1)
    expected = expected + rows[:, :, 0].sum(1) + numeric @ model.numeric.weight
    if kind == "deepfm":
        expected = expected + torch.tensor([pairs(sample[:, 1:]) for sample in rows.detach()])
    torch.testing.assert_close(model(rows, numeric), expected, rtol=1e-4, atol=1e-5)


def test_cross_layer_equals_its_equation():
    cross = CrossNetwork(4, 2, torch.Generator().manual_seed(2))
    with torch.no_grad():
        for number, layer in enumerate(cross.layers):
            layer.bias.copy_(drawn(4, seed=number))
    x0 = drawn(3, 4).float()
    out = cross(x0).detach()
    for b in range(3):
        x = x0[b].clone()
        for layer in cross.layers:
            weight, bias = layer.weight.detach(), layer.bias.detach()
            inner = [float(weight[i] @ x + bias[i]) for i in range(4)]
            x = torch.tensor([float(x0[b, i]) * inner[i] + float(x[i]) for i in range(4)])
        torch.testing.assert_close(out[b], x, rtol=1e-4, atol=1e-5)


def test_dcn_joins_cross_network_and_tower(build, draw):
    model = build("dcn", num_cross_layers=2)
    assert model.inputs.row_dim == 4
    assert len(model.cross.layers) == 2
    rows, numeric, _ = draw(model, 7)
    x0 = torch.cat([rows.flatten(1), numeric], 1)
    x = x0
    for layer in model.cross.layers:
        x = x0 * (x @ layer.weight.T + layer.bias) + x
    joined = torch.cat([x, tower_by_hand(model, x0)], 1)
    expected = (joined @ model.head.weight.T + model.head.bias).squeeze(1)
    torch.testing.assert_close(model(rows, numeric), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["lr", "deepfm"])
def test_the_shallow_part_does_not_depend_on_the_order_of_slots(build, draw, kind):
    model = build(kind, num_numeric=0)
    rows, numeric, _ = draw(model, 5)
    if kind == "lr":
        before, after = model(rows, numeric), model(rows.flip(1), numeric)
    else:
        before, after = (split_rows(r, numeric, pairwise=True)[1] for r in (rows, rows.flip(1)))
    torch.testing.assert_close(before, after)
