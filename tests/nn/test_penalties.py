"""Penalties as functions of a Module; L1 by w = a * b finds what the lasso finds."""

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn, train


class Dense(nn.Module):
    def __init__(self, n, m, seed=0):
        rng = np.random.default_rng(seed)
        self.weight, self.bias = rng.normal(size=(m, n)), rng.normal(size=m)
        self.scale = nn.Buffer(np.full(3, 100.0))
        self.calls = nn.Buffer(np.array(0))

    def __call__(self, x):
        self.calls = self.calls + 1
        return x @ self.weight.T + self.bias


def test_values_and_gradients():
    model = Dense(3, 2)
    w, b = model.weight, model.bias
    np.testing.assert_allclose(nn.l2_penalty(model), (np.sum(w**2) + np.sum(b**2)) / 2)
    np.testing.assert_allclose(nn.l2_penalty(model, "weight"), np.sum(w**2) / 2)
    np.testing.assert_allclose(nn.l1_penalty(model, "*.weight"), np.sum(np.abs(w)))
    rows = np.sqrt(3) * np.sum(np.linalg.norm(w, axis=1))
    np.testing.assert_allclose(nn.group_penalty(model, "weight"), rows)
    np.testing.assert_allclose(nn.group_penalty(model), rows + np.sum(np.abs(b)))
    np.testing.assert_allclose(
        nn.group_penalty(model, "weight", axis=1), np.sqrt(2) * np.sum(np.linalg.norm(w, axis=0))
    )
    grads = wl.jit(wl.grad(lambda m: nn.l2_penalty(m) + nn.l1_penalty(m, ["weight"])))(model)
    np.testing.assert_allclose(grads.weight, w + np.sign(w))
    np.testing.assert_allclose(grads.bias, b)
    assert grads.scale is None
    np.testing.assert_allclose(nn.l2_penalty(model.freeze("bias")), np.sum(w**2) / 2)


def test_at_zero_their_derivatives_are_zero():
    model = Dense(3, 2)
    model.weight = np.zeros((2, 3))
    for penalty in (nn.l1_penalty, nn.group_penalty, nn.l2_penalty):
        np.testing.assert_array_equal(wl.grad(lambda m, f=penalty: f(m, "weight"))(model).weight, 0)


def test_bad_arguments():
    with pytest.raises(wl.ArgumentError, match=r"no trainable parameter matches 'gamma'; there are weight, bias"):
        nn.l2_penalty(Dense(2, 2), "gamma")
    with pytest.raises(wl.ArgumentError, match=r"expected an nn\.Module"):
        nn.l2_penalty([np.ones(3)])


def lasso(a, y, c, steps=20_000):
    """Proximal gradients, until nothing moves: the slow obvious version."""
    w, rate = np.zeros(a.shape[1]), 1 / np.linalg.norm(a, 2) ** 2
    for _ in range(steps):
        w = w - rate * a.T @ (a @ w - y)
        w = np.sign(w) * np.maximum(np.abs(w) - rate * c, 0)
    return w


class Linear(nn.Module):
    def __init__(self, n):
        self.weight = np.random.default_rng(5).normal(size=n)

    def __call__(self, x):
        return x @ self.weight


def test_two_factors_find_the_lasso():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 8))
    y = x @ np.array([2.0, 0, 0, -1.0, 0, 0, 0, 0.5]) + 0.1 * rng.normal(size=40)
    c = 8.0
    model = nn.Factored(Linear(8))
    np.testing.assert_allclose(model(x), Linear(8)(x))
    assert model.penalty() >= np.sum(np.abs(Linear(8).weight))
    optimizer = train.SGD(model, 2e-3)

    @wl.jit
    def step(model, optimizer):
        loss = lambda m: 0.5 * np.sum((m(x) - y) ** 2) + c * m.penalty()
        optimizer.update(model, wl.grad(loss)(model))

    for _ in range(6000):
        step(model, optimizer)
    expected = lasso(x, y, c)
    assert np.sum(expected == 0) >= 4
    merged = model.merged()
    assert type(merged) is Linear
    np.testing.assert_allclose(merged.weight, expected, atol=1e-5)
    np.testing.assert_allclose(merged(x), model(x), rtol=1e-12)
    np.testing.assert_allclose(model.penalty(), np.sum(np.abs(expected)), rtol=1e-4)


@pytest.mark.parametrize("jitted", [False, True])
def test_a_factored_model_writes_its_buffers(jitted):
    model = nn.Factored(Dense(3, 2), "weight")
    call = wl.jit(lambda m, x: m(x)) if jitted else lambda m, x: m(x)
    call(model, np.ones((4, 3)))
    call(model, np.ones((4, 3)))
    assert model.model.calls == 2
    grads = wl.grad(lambda m: np.sum(m(np.ones((4, 3))) ** 2))(model)
    assert grads.model.weight.shape == (2, 3) and grads.factors[0].shape == (2, 3)


def test_group_sparsity_removes_neurons():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(100, 4))
    y = np.stack([x[:, 0] - x[:, 1], 0.02 * rng.normal(size=100), x[:, 2]], axis=1)
    model = Dense(4, 3)
    optimizer = train.Adam(model, train.cosine(0.05, 1500))
    loss = lambda m: np.mean((m(x) - y) ** 2) + 0.05 * nn.group_penalty(m, "weight")
    step = wl.jit(lambda m, o: o.update(m, wl.grad(loss)(m)))
    for _ in range(1500):
        step(model, optimizer)
    norms = np.linalg.norm(model.weight, axis=1)
    assert norms[1] < 1e-2 and np.all(norms[[0, 2]] > 0.5)
