"""The parts of a training step against PyTorch's: embeddings, cross-entropy with integer labels, Adam over a tree."""

import numpy as np
import pytest

import wonderland as wl

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers

CASES = [(65, 128, (12, 16)), (5, 3, (7,)), (300, 40, (2, 3, 4)), (9, 1, (1,))]


def cross_entropy(z, y):
    top = np.max(z, axis=-1, keepdims=True)
    total = np.log(np.sum(np.exp(z - top), axis=-1)) + top[..., 0]
    return np.mean(total - np.take_along_axis(z, y[..., None], axis=-1)[..., 0])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("classes", "width", "shape"), CASES)
def test_embedding_and_cross_entropy(classes, width, shape, dtype, compiled):
    """A model of tokens: a table, used for the lookup and for the scores."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((classes, width)).astype(dtype)
    ids, labels = rng.integers(0, classes, (2, *shape))

    def loss(table, ids, labels):
        return cross_entropy(np.sin(table[ids]) @ table.T, labels)

    f = wl.value_and_grad(loss)
    value, gradient = (wl.jit(f) if compiled else f)(table, ids, labels)
    theirs = torch.from_numpy(table).double().requires_grad_()
    scores = torch.sin(torch.nn.functional.embedding(torch.from_numpy(ids), theirs)) @ theirs.T
    want = torch.nn.functional.cross_entropy(scores.reshape(-1, classes), torch.from_numpy(labels).reshape(-1))
    want.backward()
    rtol = 1e-4 if dtype == "f4" else 1e-11
    np.testing.assert_allclose(value, want.item(), rtol)
    np.testing.assert_allclose(gradient, theirs.grad.numpy(), rtol, rtol * np.abs(theirs.grad.numpy()).max())


def test_adam():
    rng = np.random.default_rng(0)
    shapes = [(120, 130), (130,), (7,), (3, 4, 5), (900,), ()]
    weights, gradients = ([rng.standard_normal(s) for s in shapes] for _ in range(2))

    @wl.jit
    def step(weights, m, v, gradients, t):
        m = [0.9 * old + 0.1 * g for old, g in zip(m, gradients)]
        v = [0.999 * old + 0.001 * g * g for old, g in zip(v, gradients)]
        scaled = [a / (1 - 0.9**t) / (np.sqrt(b / (1 - 0.999**t)) + 1e-8) for a, b in zip(m, v)]
        return [w - 0.01 * s for w, s in zip(weights, scaled)], m, v

    theirs = [torch.tensor(w, requires_grad=True) for w in weights]
    optimizer = torch.optim.Adam(theirs, lr=0.01)
    m, v = ([np.zeros(s) for s in shapes] for _ in range(2))
    for t in range(1, 4):
        weights, m, v = step(weights, m, v, gradients, float(t))
        for w, g in zip(theirs, gradients):
            w.grad = torch.tensor(g)
        optimizer.step()
    for w, want in zip(weights, theirs):
        np.testing.assert_allclose(w, want.detach().numpy(), 1e-10)
