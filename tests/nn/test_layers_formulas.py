"""Layers that PyTorch lacks, against their formulas in double precision, written as plainly as possible."""

import numpy as np
import pytest
from scipy.interpolate import BSpline

import wonderland as wl
from wonderland import nn

JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])
KEY = wl.random.key(5)


def normal(*shape):
    return np.random.default_rng(2).standard_normal(shape)


def near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@JIT
@pytest.mark.parametrize("n", [1, 4])
def test_swish(n, jit):
    layer, x = nn.Swish(n, dtype=np.float64), normal(3, 4)
    near(jit(layer)(x), x * sigmoid(x))
    layer.a, layer.b, layer.c, layer.d = normal(4, n)
    near(jit(layer)(x), sigmoid(layer.a * x + layer.b) * (layer.c * x + layer.d))
    grads = jit(wl.grad(lambda m: np.sum(m(x))))(layer)
    s = sigmoid(layer.a * x + layer.b)
    expected = {"b": s * (1 - s) * (layer.c * x + layer.d), "d": s}
    for name, value in expected.items():
        near(getattr(grads, name), value.sum(0) if n > 1 else [value.sum()])


@JIT
@pytest.mark.parametrize("n", [1, 4])
def test_apl(n, jit):
    layer, x = nn.APL(n, 3, key=KEY, dtype=np.float64), normal(5, 4)
    expected = np.maximum(x, 0)
    for s in range(3):
        expected = expected + layer.slopes[:, s] * np.maximum(layer.hinges[:, s] - x, 0)
    near(jit(layer)(x), expected)
    grads = jit(wl.grad(lambda m: np.sum(m(x))))(layer)
    ramps = np.maximum(layer.hinges - x[..., None], 0)
    near(grads.slopes, ramps.sum(0) if n > 1 else ramps.sum((0, 1))[None])


@JIT
@pytest.mark.parametrize("n", [1, 4])
def test_kaf(n, jit):
    layer, x = nn.KAF(n, 7, 2.0, key=KEY, dtype=np.float64), normal(5, 4)
    points = np.linspace(-2, 2, 7)
    near(layer.dictionary, points)
    assert [name for name, _ in layer.named_buffers()] == ["dictionary"]
    kernel = np.exp(-((x[..., None] - points) ** 2) / (6 * (2 / 3) ** 2))
    near(jit(layer)(x), (layer.coefficients * kernel).sum(-1))
    near(nn.KAF(n, 7, 2.0, gamma=0.5, key=KEY, dtype=np.float64).gamma, 0.5)


def test_kaf_begins_as_a_function():
    layer = nn.KAF(1, 20, 3.0, start=nn.elu, dtype=np.float64)
    x = np.linspace(-2, 2, 50)
    np.testing.assert_allclose(layer(x), nn.elu(x), atol=0.02)


def splines(layer, x, derivative=0):
    """The values of all splines at x, by SciPy, each of its own knots: (..., splines)."""
    knots = [layer.grid[g : g + layer.order + 2] for g in range(layer.intervals + layer.order)]
    each = [BSpline.basis_element(t, extrapolate=False)(x, derivative) for t in knots]
    return np.nan_to_num(np.stack(each, axis=-1))


@JIT
@pytest.mark.parametrize("intervals, order, bounds", [(5, 3, (-1.0, 1.0)), (4, 1, (-2.0, 3.0)), (3, 2, (0.0, 1.0))])
def test_kan(intervals, order, bounds, jit):
    layer = nn.KAN(4, 3, intervals, order, bounds, key=KEY, dtype=np.float64)
    low, high = bounds
    step = (high - low) / intervals
    near(layer.grid, low + step * np.arange(-order, intervals + order + 1))
    layer.spline_weight = normal(3, 4, intervals + order)
    x = np.random.default_rng(0).uniform(low - 3 * step, high + 3 * step, (6, 4))
    basis = splines(layer, x)
    silu = lambda x: x * sigmoid(x)
    expected = np.zeros((6, 3))
    for o in range(3):
        for i in range(4):
            expected[:, o] += layer.base_weight[o, i] * silu(x[:, i]) + basis[:, i] @ layer.spline_weight[o, i]
    near(jit(layer)(x), expected)

    c = normal(6, 3)
    weights, inner = jit(wl.grad(lambda m, x: np.sum(c * m(x)), (0, 1)))(layer, x)
    near(weights.spline_weight, np.einsum("no,nig->oig", c, basis))
    near(weights.base_weight, np.einsum("no,ni->oi", c, silu(x)))
    s, slopes = sigmoid(x), splines(layer, x, 1)
    slope = np.einsum("no,oi->ni", c, layer.base_weight) * (s + x * s * (1 - s))
    near(inner, slope + np.einsum("no,oig,nig->ni", c, layer.spline_weight, slopes))


def test_kan_splines_add_up_to_one_in_the_range():
    layer = nn.KAN(1, 1, base=None, dtype=np.float64)
    layer.spline_weight = np.ones_like(layer.spline_weight)
    near(layer(np.linspace(-1, 1, 21)[:, None]), np.ones((21, 1)))
    assert [*layer.state()] == ["grid", "spline_weight"]


def test_kan_learns_a_function():
    x = np.random.default_rng(0).uniform(-1, 1, (256, 2))
    y = np.sin(3 * x[:, :1]) * x[:, 1:] ** 2
    model = nn.Sequential(nn.KAN(2, 4, key=KEY, dtype=np.float64), nn.KAN(4, 1, key=KEY, dtype=np.float64))
    optimizer = wl.train.Adam(model, rate=0.02)

    @wl.jit
    def step(model, optimizer):
        loss, grads = wl.value_and_grad(lambda m: nn.mse_loss(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    losses = [step(model, optimizer) for _ in range(300)]
    assert losses[-1] < 0.01 * losses[0]


@JIT
@pytest.mark.parametrize("pieces", [1, 3])
def test_maxout(pieces, jit):
    layer, x = nn.Maxout(4, 3, pieces, key=KEY, dtype=np.float64), normal(5, 4)
    weight, bias = layer.inner.weight.reshape(3, pieces, 4), layer.inner.bias.reshape(3, pieces)
    near(jit(layer)(x), np.max(np.einsum("jki,ni->njk", weight, x) + bias, axis=-1))


@JIT
def test_swiglu(jit):
    layer, x = nn.SwiGLU(4, 6, 3, key=KEY, dtype=np.float64), normal(5, 4)
    gate = x @ layer.gate.weight.T
    near(jit(layer)(x), (gate * sigmoid(gate) * (x @ layer.inner.weight.T)) @ layer.outer.weight.T)


@JIT
def test_locally_connected_1d(jit):
    layer, x = nn.LocallyConnected1d(2, 3, 8, 3, 2, 1, key=KEY, dtype=np.float64), normal(5, 2, 8)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1)))
    expected = np.zeros((5, 3, 4))
    for p in range(4):
        window = padded[:, :, 2 * p : 2 * p + 3]
        expected[:, :, p] = np.einsum("nck,ock->no", window, layer.weight[p]) + layer.bias[p]
    near(jit(layer)(x), expected)


@JIT
def test_locally_connected_2d(jit):
    options = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "bias": False}
    layer, x = nn.LocallyConnected2d(2, 3, (5, 7), (3, 2), **options, key=KEY, dtype=np.float64), normal(4, 2, 5, 7)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    expected = np.zeros((4, 3, 3, 5))
    for p in range(3):
        for q in range(5):
            window = padded[:, :, 2 * p : 2 * p + 3, q : q + 3 : 2]
            expected[:, :, p, q] = np.einsum("nckl,ockl->no", window, layer.weight[p, q])
    near(jit(layer)(x), expected)
    c = normal(4, 3, 3, 5)
    grads = jit(wl.grad(lambda m: np.sum(c * m(x))))(layer)
    near(grads.weight[1, 2], np.einsum("no,nckl->ockl", c[:, :, 1, 2], padded[:, :, 2:5, 2:5:2]))


@JIT
def test_shared_weights_of_a_locally_connected_layer_are_a_convolution(jit):
    shared = nn.Conv2d(2, 3, 3, padding=1, key=KEY, dtype=np.float64)
    layer, x = nn.LocallyConnected2d(2, 3, (4, 5), 3, padding=1, dtype=np.float64), normal(2, 2, 4, 5)
    layer.weight[...] = shared.weight
    layer.bias[...] = shared.bias
    near(jit(layer)(x), shared(x))


@JIT
def test_sums_and_global_pools(jit):
    x = normal(2, 3, 6, 8)
    windows = x.reshape(2, 3, 3, 2, 2, 4)
    near(jit(nn.SumPool2d((2, 4)))(x), windows.sum((3, 5)))
    near(jit(nn.GlobalAvgPool())(x), x.mean((2, 3)))
    near(jit(nn.GlobalSumPool())(x), x.sum((2, 3)))
    near(jit(nn.GlobalMaxPool())(x), x.max((2, 3)))
    near(jit(nn.GlobalMaxPool(1, channels_last=True))(x), x.max(2))


@JIT
def test_causal_convolution_sees_no_future(jit):
    layer, x = nn.Conv1d(2, 3, 3, padding="causal", dilation=2, dtype=np.float64), normal(1, 2, 9)
    jacobian = wl.jacobian(lambda x: np.sum(layer(x), axis=(0, 1)))(x).sum(axis=(1, 2))
    assert (np.triu(np.abs(jacobian), 1) == 0).all() and (np.diagonal(jacobian) != 0).all()
    near(jit(layer)(x)[..., :5], layer(x[..., :5]))


@JIT
def test_residual_and_parallel(jit):
    a, b = nn.Linear(4, 4, key=KEY, dtype=np.float64), nn.Linear(4, 4, dtype=np.float64)
    x = normal(3, 4)
    near(jit(nn.Residual(a))(x), x + a(x))
    near(jit(nn.Residual(a, b, 0.1))(x), b(x) + 0.1 * a(x))
    near(jit(nn.Residual(nn.relu))(x), x + np.maximum(x, 0))
    near(jit(nn.Parallel(a, b, nn.relu))(x), a(x) + b(x) + np.maximum(x, 0))
    near(jit(nn.Parallel(a, b, join="concat"))(x), np.concatenate([a(x), b(x)], -1))
    near(jit(nn.Parallel(a, b, join="concat", axis=0))(x), np.concatenate([a(x), b(x)], 0))
    near(jit(nn.Parallel(a, b, join=product))(x), a(x) * b(x))
    scaled = nn.Residual(a, scale=np.full(4, 0.1))
    near(jit(scaled)(x), x + 0.1 * a(x))
    near(jit(wl.grad(lambda m: np.sum(m(x))))(scaled).scale, a(x).sum(0))
    assert [name for name, _ in scaled.named_parameters()] == ["inner.weight", "inner.bias", "scale"]


def product(results):
    return results[0] * results[1]
