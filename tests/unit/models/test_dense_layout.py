"""The flat dense vector: a faithful, shared view of every parameter, running average and gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from dense_workers.dense_layout import DenseLayout
from geartrain.errors import KernelError

TYPES = ("lr", "wide_deep", "deepfm", "dcn")
every_model = pytest.mark.parametrize("kind", TYPES)


def backward(model, rows, numeric, labels):
    binary_cross_entropy_with_logits(model(rows, numeric), labels, reduction="sum").backward()


@every_model
@pytest.mark.parametrize("batch_norm", [False, True])
def test_segments_tile_the_vector_parameters_first(build, kind, batch_norm):
    model = build(kind, batch_norm=batch_norm)
    layout = DenseLayout(model)
    at = 0
    for segment in layout.segments:
        assert segment.start == at
        assert segment.stop - segment.start == int(np.prod(segment.shape))
        at = segment.stop
    assert at == layout.num_values
    names = [segment.name for segment in layout.segments if segment.kind == "parameter"]
    assert names == [name for name, _ in model.named_parameters()]
    kinds = [segment.kind for segment in layout.segments]
    assert kinds == sorted(kinds, reverse=True)
    num_averages = 4 if batch_norm and kind != "lr" else 0
    assert kinds.count("average") == num_averages


def test_average_segments_are_named_after_their_batch_norm(build):
    layout = DenseLayout(build("deepfm", batch_norm=True))
    names = [segment.name for segment in layout.segments if segment.kind == "average"]
    assert names == [f"tower.norm.{layer}.{field}" for layer in (0, 1) for field in ("mean", "mean_square")]


@every_model
def test_binding_keeps_the_initial_values_and_the_logits(build, draw, kind):
    bound, free = build(kind, batch_norm=True), build(kind, batch_norm=True)
    layout = DenseLayout(bound)
    flat = np.concatenate([value.detach().numpy().ravel() for value in free.parameters()])
    assert np.array_equal(layout.read()[: len(flat)], flat)
    rows, numeric, _ = draw(free, 8)
    assert torch.equal(bound(rows, numeric), free(rows, numeric))


@every_model
def test_round_trip_reaches_every_parameter_and_average(build, draw, kind):
    model = build(kind, batch_norm=True)
    layout = DenseLayout(model)
    values = np.arange(layout.num_values, dtype=np.float32)
    values.flags.writeable = False  # as what came from the wire often is
    layout.write(values)
    assert np.array_equal(layout.read(), values)
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    for segment in layout.segments:
        got = tensors[segment.name].detach().numpy()
        assert got.shape == segment.shape
        assert np.array_equal(got.ravel(), values[segment.start : segment.stop]), segment.name


def test_read_is_a_copy(build):
    layout = DenseLayout(build("deepfm"))
    before = layout.read()
    layout.write(np.zeros(layout.num_values, dtype=np.float32))
    assert before.any()


@every_model
def test_gradient_equals_that_of_an_unbound_model(build, draw, kind):
    bound, free = build(kind, batch_norm=True), build(kind, batch_norm=True)
    layout = DenseLayout(bound)
    out = np.empty(layout.num_values, dtype=np.float32)
    for _ in range(2):  # the second step must not see the first
        layout.zero_gradient()
        free.zero_grad()
        backward(bound, *draw(bound, 16))
        backward(free, *draw(free, 16))
        layout.read_gradient(out)
        expected = np.concatenate([value.grad.numpy().ravel() for value in free.parameters()])
        assert np.array_equal(out[: len(expected)], expected)


def test_gradient_of_averages_is_the_moments_of_the_batch(build, draw):
    model = build("deepfm", batch_norm=True)
    layout = DenseLayout(model)
    rows, numeric, labels = draw(model, 16)
    with torch.no_grad():
        x = torch.cat([rows[:, :, 1:].flatten(1), numeric], 1)
        first = x @ model.tower.affine[0].weight.T
    layout.zero_gradient()
    backward(model, rows, numeric, labels)
    out = np.empty(layout.num_values, dtype=np.float32)
    layout.read_gradient(out)
    found = {segment.name: out[segment.start : segment.stop] for segment in layout.segments}
    np.testing.assert_allclose(found["tower.norm.0.mean"], first.sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["tower.norm.0.mean_square"], first.square().sum(0), rtol=1e-4)


def test_gradients_accumulate_until_zeroed(build, draw):
    model = build("deepfm")
    layout = DenseLayout(model)
    out, twice = (np.empty(layout.num_values, dtype=np.float32) for _ in range(2))
    backward(model, *draw(model, 8))
    layout.read_gradient(out)
    backward(model, *draw(model, 8))
    layout.read_gradient(twice)
    assert out.any()
    assert np.array_equal(twice, 2 * out)
    layout.zero_gradient()
    layout.read_gradient(out)
    assert not out.any()


def test_a_gradient_outside_the_vector_is_an_error(build, draw):
    model = build("deepfm")
    layout = DenseLayout(model)
    out = np.empty(layout.num_values, dtype=np.float32)
    model.zero_grad()  # sets gradients to None
    with pytest.raises(RuntimeError, match="zero_gradient"):
        layout.read_gradient(out)
    backward(model, *draw(model, 8))
    with pytest.raises(RuntimeError, match="zero_gradient"):
        layout.read_gradient(out)


@pytest.mark.parametrize("wrong", [np.zeros(3, np.float32), np.zeros((1, 1), np.float32)])
def test_wrong_lengths_are_refused(build, wrong):
    layout = DenseLayout(build("lr"))
    with pytest.raises(KernelError, match="values"):
        layout.write(wrong)
    with pytest.raises(KernelError, match="out"):
        layout.read_gradient(wrong)


def test_a_wrong_dtype_is_refused(build):
    layout = DenseLayout(build("lr"))
    with pytest.raises(KernelError, match="float64"):
        layout.write(np.zeros(layout.num_values))
