"""Sequential and its relatives: functions as layers, indexing, names, sharing, and everything transformations do."""

import copy

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn


def normal(*shape):
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


def model():
    return nn.Sequential(nn.Linear(4, 6), nn.relu, nn.Linear(6, 3), nn.Softmax())


def test_functions_are_layers():
    m, x = model(), normal(5, 4)
    expected = nn.softmax(nn.relu(x @ m[0].weight.T + m[0].bias) @ m[2].weight.T + m[2].bias)
    np.testing.assert_allclose(m(x), expected, rtol=1e-6)
    np.testing.assert_allclose(wl.jit(m)(x), expected, rtol=1e-5)
    assert nn.Sequential()(x) is x
    np.testing.assert_allclose(wl.jit(nn.Sequential(np.tanh, nn.relu))(x), np.maximum(np.tanh(x), 0), rtol=1e-5)


def test_indexing():
    m = model()
    assert len(m) == 4 and m and [*m] == m.layers
    assert m[0] is m.layers[0] and m[-1] is m.layers[3]
    assert isinstance(m[:2], nn.Sequential) and m[:2][0] is m[0] and len(m[1:]) == 3
    assert bool(nn.Sequential()) and len(nn.Sequential()) == 0
    with pytest.raises(IndexError):
        m[4]
    head = nn.Linear(6, 2)
    m[2] = head
    assert m[2] is head and m(normal(5, 4)).shape == (5, 2)
    assert m.append(nn.Linear(2, 1), nn.tanh) is m and len(m) == 6
    assert m(normal(5, 4)).shape == (5, 1)
    with pytest.raises(TypeError, match="number 6 is 3, which can't be called"):
        m.append(3)
    with pytest.raises(TypeError, match="the class Linear"):
        m[0] = nn.Linear


def test_appending_is_seen_by_compiled_functions():
    m, x = nn.Sequential(nn.Linear(4, 4)), normal(5, 4)
    f = wl.jit(lambda m, x: m(x))
    f(m, x)
    m.append(nn.tanh)
    np.testing.assert_allclose(f(m, x), m(x), rtol=1e-5)
    m.append(nn.Linear(4, 2))
    np.testing.assert_allclose(f(m, x), m(x), rtol=1e-5, atol=1e-6)
    m.layers.append(nn.tanh)
    np.testing.assert_allclose(f(m, x), m(x), rtol=1e-5, atol=1e-6)
    m[0] = nn.relu
    np.testing.assert_allclose(f(m, x), m(x), rtol=1e-5, atol=1e-6)


def test_names():
    m = nn.Sequential(
        nn.Sequential(nn.Linear(2, 3), nn.relu), nn.Parallel(nn.Linear(3, 3), nn.Residual(nn.Linear(3, 3)))
    )
    assert [*m.state()] == [
        "0.0.weight", "0.0.bias", "1.0.weight", "1.0.bias", "1.1.inner.weight", "1.1.inner.bias",
    ]  # fmt: skip
    assert [name for name, _ in m.named_modules()] == ["", "0", "0.0", "1", "1.0", "1.1", "1.1.inner"]

    class Net(nn.Module):
        def __init__(self):
            self.features = nn.Sequential(nn.Conv2d(1, 2, 3), nn.relu)

    assert [*Net().state()] == ["features.0.weight", "features.0.bias"]
    other = copy.deepcopy(m)
    other[0][0].weight[...] = 7
    m.load_state(other.state())
    assert (m[0][0].weight == 7).all()
    m.freeze("0.*")
    assert [name for name, _ in m.named_parameters(trainable=True)] == [*m.state()][2:]
    grads = wl.grad(lambda m: np.sum(m(normal(2, 2))))(m)
    assert grads[0][0].weight is None and grads[1].branches[0].weight.shape == (3, 3)


def test_a_layer_in_two_places_is_one():
    layer, x = nn.Linear(4, 4), normal(5, 4)
    m = nn.Sequential(layer, nn.tanh, layer)
    assert [*m.state()] == ["0.weight", "0.bias"]
    grads = wl.jit(wl.grad(lambda m: np.sum(m(x))))(m)
    twice = nn.Sequential(layer, nn.tanh, copy.deepcopy(layer))
    separate = wl.grad(lambda m: np.sum(m(x)))(twice)
    np.testing.assert_allclose(grads[0].weight, separate[0].weight + separate[2].weight, rtol=1e-4, atol=1e-5)
    assert grads[0].weight is grads[2].weight


def test_tied_embedding():
    embedding, head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
    head.weight = embedding.weight
    m = nn.Sequential(embedding, nn.tanh, head)
    assert [*m.state()] == ["0.weight"]
    x = np.array([1, 2, 6])
    grads = wl.jit(wl.grad(lambda m: np.sum(m(x) ** 2)))(m)
    hidden = np.tanh(embedding.weight[x])
    out = 2 * hidden @ embedding.weight.T
    expected = out.T @ hidden
    np.add.at(expected, x, (out @ embedding.weight) * (1 - hidden**2))
    np.testing.assert_allclose(grads[0].weight, expected, rtol=1e-4, atol=1e-4)


def test_an_ensemble():
    models, x = [model() for _ in range(3)], normal(5, 4)
    together = wl.vmap(lambda m, x: m(x), in_axes=(0, None))(nn.stack(models), x)
    for found, m in zip(together, models, strict=True):
        np.testing.assert_allclose(found, m(x), rtol=1e-5, atol=1e-6)


def test_embedding_indices():
    layer = nn.Embedding(5, 3, padding_index=0)
    assert layer(2).shape == (3,) and layer([1, 2]).shape == (2, 3) and layer(np.zeros((2, 0), int)).shape == (2, 0, 3)
    m = nn.Sequential(nn.Identity(), layer)
    for wrong in (-1, 5):
        x = np.array([1, wrong])
        with pytest.raises(
            ValueError, match=rf"1 \(Embedding\): its table has rows 0 to 4, the input has the index {wrong}"
        ):
            m(x)
        with pytest.raises(wl.CheckError, match=r"1 \(Embedding\): its table has rows 0 to 4"):
            wl.jit(m)(x)
    x = np.array([[0, 1, 1], [0, 0, 4]])
    grads = wl.jit(wl.grad(lambda m: np.sum(m(x))))(layer)
    np.testing.assert_array_equal(grads.weight, np.array([0, 2, 0, 0, 1], np.float32)[:, None] * np.ones(3))


def test_an_ensemble_is_called_by_vmap():
    models = nn.stack([nn.Sequential(nn.Linear(3, 3)) for _ in range(3)])
    x = np.ones((3, 3), np.float32)
    for call in (models, wl.jit(models)):
        with pytest.raises(ValueError, match=r"0 \(Linear\): its weight has shape \(3, 3, 3\)(.|\n)*wl\.vmap"):
            call(x)
    assert wl.vmap(lambda model, x: model(x), in_axes=(0, None))(models, x).shape == (3, 3, 3)
