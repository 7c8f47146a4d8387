"""Layers: shapes, keys, dtypes, sizes that are filled, and what they say of wrong inputs. Parity is in peers/."""

import copy
import warnings
from functools import partial

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn

JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


# Every layer with an input that it takes, as (layer, inputs): the layer acts on the axes of the input and none before.
LAYERS = {
    "Linear": lambda **k: (nn.Linear(4, 3, **k), [(4,)]),
    "Linear without bias": lambda **k: (nn.Linear(4, 3, bias=False, **k), [(4,)]),
    "Bilinear": lambda **k: (nn.Bilinear(4, 5, 3, **k), [(4,), (5,)]),
    "Conv1d": lambda **k: (nn.Conv1d(2, 3, 3, padding=1, **k), [(2, 7)]),
    "Conv1d causal": lambda **k: (nn.Conv1d(2, 3, 3, padding="causal", dilation=2, **k), [(2, 7)]),
    "Conv2d": lambda **k: (nn.Conv2d(2, 4, 3, stride=2, groups=2, **k), [(2, 7, 6)]),
    "Conv2d channels_last": lambda **k: (nn.Conv2d(2, 4, 3, channels_last=True, **k), [(7, 6, 2)]),
    "Conv3d": lambda **k: (nn.Conv3d(2, 3, 2, **k), [(2, 3, 4, 3)]),
    "ConvTranspose1d": lambda **k: (nn.ConvTranspose1d(2, 3, 3, stride=2, **k), [(2, 5)]),
    "ConvTranspose2d": lambda **k: (nn.ConvTranspose2d(2, 3, 3, **k), [(2, 4, 5)]),
    "ConvTranspose3d": lambda **k: (nn.ConvTranspose3d(2, 3, 2, **k), [(2, 2, 3, 2)]),
    "LocallyConnected1d": lambda **k: (nn.LocallyConnected1d(2, 3, 7, 3, stride=2, **k), [(2, 7)]),
    "LocallyConnected2d": lambda **k: (nn.LocallyConnected2d(2, 3, (4, 5), 3, padding=1, **k), [(2, 4, 5)]),
    "PReLU": lambda **k: (nn.PReLU(3, axis=-1, **drop(k)), [(3,)]),
    "Swish": lambda **k: (nn.Swish(3, **drop(k)), [(3,)]),
    "APL": lambda **k: (nn.APL(3, **k), [(3,)]),
    "KAF": lambda **k: (nn.KAF(3, **k), [(3,)]),
    "KAN": lambda **k: (nn.KAN(4, 3, **k), [(4,)]),
    "KAN without base": lambda **k: (nn.KAN(4, 3, base=None, **k), [(4,)]),
    "Maxout": lambda **k: (nn.Maxout(4, 3, 2, **k), [(4,)]),
    "SwiGLU": lambda **k: (nn.SwiGLU(4, 6, **k), [(4,)]),
    "SwiGLU other": lambda **k: (nn.SwiGLU(4, 6, 3, bias=True, **k), [(4,)]),
    "MultiHeadAttention": lambda **k: (nn.MultiHeadAttention(8, 2, **k), [(3, 8)]),
    "MultiHeadAttention grouped": lambda **k: (
        nn.MultiHeadAttention(8, 4, 2, causal=True, window=2, rotary=nn.Rotary(2), bias=False, fused=False, **k),
        [(4, 8)],
    ),
    # Without biases: that of the keys has the derivative 0, of which rounding is no small part.
    "MultiHeadAttention cross": lambda **k: (
        nn.MultiHeadAttention(4, 2, context_width=6, bias=False, **k),
        [(3, 4), (5, 6)],
    ),
    "MultiHeadAttention memory": lambda **k: (
        nn.MultiHeadAttention(4, 2, 1, value_width=3, memory=2, causal=True, bias=False, **k),
        [(3, 4)],
    ),
    "Attention": lambda **k: (nn.Attention(4, 3, 5, causal=True, **k), [(3, 4)]),
    "Attention cross": lambda **k: (
        nn.Attention(4, 2, 3, context_width=5, content_width=2, weighting="linear", **k),
        [(3, 4), (6, 5), (6, 2)],
    ),
    "NeuralMemory": lambda **k: (nn.NeuralMemory(4, 6, 3, key_width=2, **k), [(4,)]),
    "PrefixTokens": lambda **k: (nn.PrefixTokens(2, 4, **k), [(3, 4)]),
    "NonLocal": lambda **k: (nn.NonLocal(4, 3, bias=False, out_init=nn.init.normal, **k), [(4, 2, 3)]),
    "NonLocal dot": lambda **k: (
        nn.NonLocal(4, 3, "dot", 1, channels_last=True, bias=False, out_init=nn.init.normal, **k),
        [(5, 4)],
    ),
    "LongConv": lambda **k: (nn.LongConv(3, 8, causal=False, method="fft", **k), [(5, 3)]),
    "ContinuousConv": lambda **k: (nn.ContinuousConv(3, 2, 6, 4, **k), [(5, 3)]),
    "FeedForward": lambda **k: (nn.FeedForward(4, 6, **k), [(4,)]),
    "FeedForward gated": lambda **k: (nn.FeedForward(4, 6, "silu", gated=True, bias=False, **k), [(4,)]),
    "TransformerBlock": lambda **k: (nn.TransformerBlock(4, 2, attention={"causal": True}, **k), [(3, 4)]),
    "TransformerBlock post": lambda **k: (nn.TransformerBlock(4, 2, 6, order="post", **k), [(3, 4)]),
    "TransformerBlock parallel": lambda **k: (nn.TransformerBlock(4, 2, 6, order="parallel", **k), [(3, 4)]),
    "TransformerBlock cross": lambda **k: (nn.TransformerBlock(4, 2, 6, cross=True, bias=False, **k), [(3, 4), (2, 4)]),
    "Residual": lambda **k: (nn.Residual(nn.Linear(4, 4, **k), scale=0.5), [(4,)]),
    "Residual shortcut": lambda **k: (nn.Residual(nn.Linear(4, 3, **k), nn.Linear(4, 3, **k)), [(4,)]),
    "Parallel": lambda **k: (nn.Parallel(nn.Linear(4, 3, **k), nn.Linear(4, 3, **k)), [(4,)]),
    "Parallel concat": lambda **k: (nn.Parallel(nn.Linear(4, 3, **k), nn.relu, join="concat"), [(4,)]),
    "Sequential": lambda **k: (nn.Sequential(nn.Linear(4, 3, **k), nn.relu), [(4,)]),
    "MaxPool1d": lambda **k: (nn.MaxPool1d(2), [(7,)]),
    "MaxPool2d": lambda **k: (nn.MaxPool2d(2, padding=1), [(3, 4, 6)]),
    "MaxPool3d": lambda **k: (nn.MaxPool3d(2), [(4, 4, 6)]),
    "AvgPool1d": lambda **k: (nn.AvgPool1d(2), [(7,)]),
    "AvgPool2d": lambda **k: (nn.AvgPool2d(3, 1, 1, count_include_pad=False), [(4, 6)]),
    "AvgPool3d": lambda **k: (nn.AvgPool3d(2), [(4, 4, 6)]),
    "SumPool1d": lambda **k: (nn.SumPool1d(2), [(7,)]),
    "SumPool2d": lambda **k: (nn.SumPool2d(2, channels_last=True), [(4, 6, 3)]),
    "SumPool3d": lambda **k: (nn.SumPool3d(2), [(4, 4, 6)]),
    "AdaptiveAvgPool1d": lambda **k: (nn.AdaptiveAvgPool1d(3), [(7,)]),
    "AdaptiveAvgPool2d": lambda **k: (nn.AdaptiveAvgPool2d((None, 2), channels_last=True), [(4, 6, 3)]),
    "AdaptiveAvgPool3d": lambda **k: (nn.AdaptiveAvgPool3d(2), [(4, 5, 6)]),
    "AdaptiveMaxPool1d": lambda **k: (nn.AdaptiveMaxPool1d(3), [(7,)]),
    "AdaptiveMaxPool2d": lambda **k: (nn.AdaptiveMaxPool2d((3, 2)), [(4, 6)]),
    "AdaptiveMaxPool3d": lambda **k: (nn.AdaptiveMaxPool3d(2), [(4, 5, 6)]),
    "GlobalAvgPool": lambda **k: (nn.GlobalAvgPool(), [(3, 4, 5)]),
    "GlobalMaxPool": lambda **k: (nn.GlobalMaxPool(1, channels_last=True), [(4, 3)]),
    "GlobalSumPool": lambda **k: (nn.GlobalSumPool(3), [(2, 3, 4, 5)]),
    "Upsample": lambda **k: (nn.Upsample(scale_factor=(2, 2), mode="bilinear"), [(3, 4, 5)]),
    "Flatten": lambda **k: (nn.Flatten(-2), [(3, 4)]),
    "Unflatten": lambda **k: (nn.Unflatten(-1, (3, 4)), [(12,)]),
    "Identity": lambda **k: (nn.Identity(), [(3,)]),
    "Softmax": lambda **k: (nn.Softmax(), [(3,)]),
    "LogSoftmax": lambda **k: (nn.LogSoftmax(), [(3,)]),
    "GLU": lambda **k: (nn.GLU(), [(6,)]),
}
ELEMENTWISE = [
    nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(0.2), nn.ELU(), nn.SELU(), nn.CELU(2.0), nn.Softplus(2.0), nn.Softsign(),
    nn.Sigmoid(), nn.LogSigmoid(), nn.Tanh(), nn.Hardtanh(), nn.Hardsigmoid(), nn.Hardswish(), nn.GELU(),
    nn.GELU("tanh"), nn.SiLU(), nn.Mish(),
]  # fmt: skip


def drop(options):
    return {name: value for name, value in options.items() if name != "key"}


def made(name, dtype=np.float32, lead=()):
    layer, shapes = LAYERS[name](key=wl.random.key(3), dtype=dtype)
    return layer, [normal(*lead, *shape, dtype=dtype) for shape in shapes]


@pytest.mark.parametrize("name", LAYERS)
def test_any_leading_axes(name):
    layer, xs = made(name, np.float64, (2, 3))
    whole = layer(*xs)
    for i in range(2):
        for j in range(3):
            np.testing.assert_allclose(whole[i, j], layer(*(x[i, j] for x in xs)), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(wl.vmap(lambda *a: layer(*a))(*xs), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_single_stays_single(name):
    layer, xs = made(name, lead=(2,))
    assert all(p.dtype == np.float32 for p in layer.parameters())
    value = layer(*xs)
    assert value.dtype == np.float32
    if layer.parameters():
        loss = lambda m, *a: (np.sum((y := m(*a)) ** 2), y)
        (_, compiled), grads = wl.jit(wl.value_and_grad(loss, has_aux=True))(layer, *xs)
        assert all(g.dtype == np.float32 for g in grads.parameters())
    else:
        compiled = wl.jit(layer)(*xs)
    assert compiled.dtype == np.float32
    np.testing.assert_allclose(compiled, value, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_no_batch_is_no_error(name):
    layer, xs = made(name, lead=(0,))
    assert layer(*xs).shape[0] == 0


@pytest.mark.parametrize("layer", ELEMENTWISE, ids=repr)
def test_elementwise_layers(layer):
    for shape in ((), (3,), (2, 0), (2, 3, 4)):
        x = np.asarray(normal(*shape))
        y = layer(x)
        assert y.shape == shape and y.dtype == np.float32
        np.testing.assert_allclose(wl.jit(layer)(x), y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in LAYERS if made(name)[0].parameters()])
def test_derivatives(name):
    layer, xs = made(name, np.float64, (2,))
    smooth = lambda m, *a: np.sum(np.sin(m(*a)))
    wl.testing.check_grads(lambda *a: smooth(layer, *a), tuple(xs), order=2)
    parameters, structure = wl.tree_flatten(layer)
    trained = [i for i, p in enumerate(parameters) if any(p is q for q in layer.parameters())]

    def of(*values):
        found = list(parameters)
        for i, value in zip(trained, values, strict=True):
            found[i] = value
        return smooth(wl.tree_unflatten(structure, found), *xs)

    wl.testing.check_grads(of, tuple(parameters[i] for i in trained), order=2)


# Keys and initialisers -----------------------------------------------------------------------------------------------

DRAWN = [name for name in LAYERS if made(name)[0].parameters() and name not in ("PReLU", "Swish")]


def drawn(layer):
    """Parameters but those of normalisations, which start with ones and zeros."""
    return [p for name, p in layer.named_parameters() if "norm" not in name]


@pytest.mark.parametrize("name", DRAWN)
def test_a_key_decides_the_parameters(name):
    first, second = made(name)[0], made(name)[0]
    other, _ = LAYERS[name](key=wl.random.key(4), dtype=np.float32)
    for a, b, c in zip(drawn(first), drawn(second), drawn(other), strict=True):
        assert np.array_equal(a, b) and not np.array_equal(a, c)


@pytest.mark.parametrize("name", DRAWN)
def test_the_stream_is_reproducible(name):
    runs = []
    for seed in (7, 7, 8):
        wl.random.seed(seed)
        runs.append([p.copy() for _ in range(2) for p in drawn(LAYERS[name]()[0])])
    for a, b, c in zip(*runs, strict=True):
        assert np.array_equal(a, b) and not np.array_equal(a, c)
    half = len(runs[0]) // 2
    assert not np.array_equal(runs[0][0], runs[0][half])


def test_laws_of_parameters():
    wl.random.seed(0)
    layer = nn.Linear(100, 400)
    for p in (layer.weight, layer.bias):
        assert np.abs(p).max() == pytest.approx(0.1, rel=0.02) and p.std() == pytest.approx(0.1 / np.sqrt(3), rel=0.1)
    layer = nn.Conv2d(8, 64, 5, groups=2)
    assert layer.weight.shape == (64, 4, 5, 5) and np.abs(layer.weight).max() == pytest.approx(0.1, rel=0.01)
    layer = nn.ConvTranspose2d(64, 8, 5, groups=2)
    assert layer.weight.shape == (64, 4, 5, 5) and np.abs(layer.weight).max() == pytest.approx(0.1, rel=0.01)
    layer = nn.Embedding(200, 100, padding_index=-1)
    assert layer.weight.std() == pytest.approx(1, rel=0.02) and not layer.weight[199].any()


def test_a_table_outside_of_what_is_mapped():
    """NumPy's own indexing of a plain array would ask for the values of the indices."""
    layer, x = nn.Embedding(5, 3, key=wl.random.key(0)), np.array([[1, 2], [3, 4]])
    np.testing.assert_array_equal(wl.vmap(lambda row: layer(row))(x), layer.weight[x])


def test_initialisers():
    layer = nn.Linear(50, 200, init=nn.init.he_normal, bias=nn.init.zeros)
    assert layer.weight.std() == pytest.approx(np.sqrt(2 / 50), rel=0.05) and not layer.bias.any()
    layer = nn.Conv1d(3, 4, 3, init=partial(nn.init.constant, value=2.0), dtype=np.float64)
    assert (layer.weight == 2).all() and layer.weight.dtype == np.float64
    layer = nn.LocallyConnected1d(2, 8, 6, 3, init=nn.init.orthogonal)
    for place in layer.weight:
        np.testing.assert_allclose(place.reshape(8, 6).T @ place.reshape(8, 6), np.eye(6), atol=1e-5)
    with pytest.raises(ValueError, match=r"initialiser, returned \(3,\) for shape \(4, 3\)"):
        nn.Linear(3, 4, init=lambda key, shape, dtype: np.zeros(3))
    with pytest.raises(TypeError, match="Linear: init='he' is a function"):
        nn.Linear(3, 4, init="he")
    with pytest.raises(TypeError, match="Linear: dtype=int64"):
        nn.Linear(3, 4, dtype=int)
    with pytest.raises(TypeError, match="key"):
        nn.Linear(3, 4, key=5)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_layers(dtype):
    linear, conv = nn.Linear(40, 400, dtype=dtype), nn.Conv1d(2, 3, 3, dtype=dtype)
    assert np.mean(np.abs(linear.weight) ** 2) == pytest.approx(1 / 120, rel=0.05)  # as of real numbers
    for layer, x in ((linear, normal(3, 40) * (1 + 2j)), (conv, normal(3, 2, 7) * (1 + 2j))):
        y = layer(x.astype(dtype))
        assert y.dtype == dtype and all(p.dtype == dtype for p in layer.parameters())
        np.testing.assert_allclose(wl.jit(layer)(x.astype(dtype)), y, rtol=1e-5, atol=1e-5)


def test_a_layer_is_made_inside_a_transformation_with_a_key():
    made = lambda key, x: nn.Linear(4, 3, key=key)(x)
    key, x = wl.random.key(1), normal(2, 4)
    np.testing.assert_allclose(wl.jit(made)(key, x), made(key, x), rtol=1e-5, atol=1e-6)
    with pytest.raises(wl.random.GlobalStreamError):
        wl.jit(lambda x: nn.Linear(4, 3)(x))(x)


# Sizes that are filled -----------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self, **keys):
        self.calls = nn.Buffer(np.zeros((), np.int64))
        self.features = nn.Sequential(nn.Conv2d(None, 4, 3, **keys), nn.relu, nn.MaxPool2d(2), nn.Flatten())
        self.head = {"out": nn.Linear(None, 3, **keys)}

    def __call__(self, x):
        self.calls = self.calls + 1
        return self.head["out"](self.features(x))


def test_build_fills_sizes():
    model, x = Net(key=wl.random.key(2)), normal(2, 3, 8, 8)
    assert model.parameters() == []
    with pytest.raises(ValueError, match=r"features\.0 \(Conv2d\): its size in_channels isn't known yet.*nn.build"):
        model(x)
    with pytest.raises(ValueError, match=r"features\.0 \(Conv2d\)"):
        wl.jit(model)(x)
    before = model.calls.item()
    assert nn.build(model, x) is model
    assert model.calls.item() == before and model.training
    assert model.features[0].weight.shape == (4, 3, 3, 3) and model.head["out"].weight.shape == (3, 36)
    sized = nn.Conv2d(3, 4, 3, key=wl.random.key(2))
    np.testing.assert_array_equal(model.features[0].weight, sized.weight)
    np.testing.assert_array_equal(model.features[0].bias, sized.bias)
    assert [*model.state()] == ["calls", "features.0.weight", "features.0.bias", "head.out.weight", "head.out.bias"]
    weight = model.head["out"].weight
    nn.build(model, x)
    assert model.head["out"].weight is weight
    np.testing.assert_allclose(wl.jit(model)(x), model(x), rtol=1e-5, atol=1e-5)
    grads = wl.grad(lambda m: np.sum(m(x)))(model)
    assert grads.head["out"].weight.shape == (3, 36)


@pytest.mark.parametrize(
    "make, shapes",
    [
        (lambda n: nn.Linear(n(4), 3, key=wl.random.key(1)), [(4,)]),
        (lambda n: nn.Bilinear(n(4), n(5), 3, key=wl.random.key(1)), [(4,), (5,)]),
        (lambda n: nn.Conv1d(n(4), 3, 2, key=wl.random.key(1)), [(4, 5)]),
        (lambda n: nn.Conv2d(n(4), 4, 2, groups=2, channels_last=True, key=wl.random.key(1)), [(5, 6, 4)]),
        (lambda n: nn.ConvTranspose3d(n(4), 3, 2, key=wl.random.key(1)), [(4, 2, 2, 2)]),
        (lambda n: nn.LocallyConnected1d(n(4), 3, n(5), 2, key=wl.random.key(1)), [(4, 5)]),
        (lambda n: nn.LocallyConnected2d(4, 3, n((5, 6)), 2, key=wl.random.key(1)), [(4, 5, 6)]),
        (lambda n: nn.KAN(n(4), 3, key=wl.random.key(1)), [(4,)]),
        (lambda n: nn.Maxout(n(4), 3, key=wl.random.key(1)), [(4,)]),
        (lambda n: nn.SwiGLU(n(4), 6, key=wl.random.key(1)), [(4,)]),
    ],
)
def test_filled_layers_are_those_with_sizes(make, shapes):
    xs = [normal(2, *shape) for shape in shapes]
    sized, filled = make(lambda n: n), make(lambda n: None)
    copied = copy.deepcopy(filled)
    for layer in (filled, copied):
        assert not layer.parameters()
        with pytest.raises(ValueError, match="isn't known yet"):
            layer(*xs)
        nn.build(layer, *xs)
        for (a, p), (b, q) in zip(layer.named_parameters(), sized.named_parameters(), strict=True):
            assert a == b and np.array_equal(p, q)
        assert repr(layer) == repr(sized)


def test_build_is_outside_of_transformations():
    x = normal(2, 4)
    with pytest.raises(TypeError, match=r"nn\.build is called inside"):
        wl.jit(lambda x: nn.build(nn.Linear(None, 3), x)(x))(x)
    with pytest.raises(TypeError, match=r"nn\.build takes a Module"):
        nn.build(nn.relu, x)

    class Inner(nn.Module):
        def __init__(self):
            self.inner = nn.Linear(None, 3)

        def __call__(self, x):
            return wl.jit(lambda m, x: m(x))(self.inner, x)

    with pytest.raises(ValueError, match=r"inside .*Give the size"):
        nn.build(Inner(), x)


# Errors --------------------------------------------------------------------------------------------------------------


class Wrong(nn.Module):
    def __init__(self, layer):
        self.layers = [nn.relu, {"inner": nn.Sequential(nn.Identity(), layer)}]

    def __call__(self, *xs):
        return self.layers[1]["inner"][1](*xs)


@JIT
@pytest.mark.parametrize(
    "layer, shapes, message",
    [
        (lambda: nn.Linear(256, 10), [(32, 128)], "(Linear): expected an input of shape (..., 256), got (32, 128)"),
        (lambda: nn.Linear(256, 10), [()], "(Linear): expected an input of shape (..., 256), got ()"),
        (
            lambda: nn.Bilinear(3, 4, 2),
            [(5, 3), (5, 3)],
            "(Bilinear): expected inputs of shape (..., 3) and (..., 4), got (5, 3) and (5, 3)",
        ),
        (
            lambda: nn.Conv2d(3, 4, 3),
            [(2, 4, 8, 8)],
            "(Conv2d): expected an input of shape (..., 3, height, width), got (2, 4, 8, 8)",
        ),
        (
            lambda: nn.Conv2d(3, 4, 3),
            [(8, 8)],
            "(Conv2d): expected an input of shape (..., 3, height, width), got (8, 8)",
        ),
        (
            lambda: nn.Conv1d(3, 4, 3, channels_last=True),
            [(8, 4)],
            "(Conv1d): expected an input of shape (..., length, 3), got (8, 4)",
        ),
        (lambda: nn.Conv1d(3, 4, 5), [(3, 4)], "(Conv1d): windows of 5 elements"),
        (lambda: nn.ConvTranspose1d(3, 4, 1, padding=2), [(3, 3)], "(ConvTranspose1d): padding (2, 2) leaves nothing"),
        (lambda: nn.MaxPool2d(2), [(3,)], "(MaxPool2d): expected an input of shape (..., height, width), got (3,)"),
        (lambda: nn.MaxPool2d(2), [(3, 1)], "(MaxPool2d): windows of 2 elements"),
        (lambda: nn.AdaptiveAvgPool3d(2), [(3, 1)], "(AdaptiveAvgPool3d): expected"),
        (
            lambda: nn.LocallyConnected1d(2, 3, 7, 3),
            [(2, 8)],
            "(LocallyConnected1d): expected an input of shape (..., 2, 7), got (2, 8)",
        ),
        (lambda: nn.KAN(3, 4), [(4,)], "(KAN): expected an input of shape (..., 3), got (4,)"),
        (lambda: nn.Swish(3), [(4,)], "(Swish): expected an input of shape (..., 3), got (4,)"),
        (lambda: nn.PReLU(3), [(2, 4)], "(PReLU): prelu: slope has shape (3,)"),
        (lambda: nn.GLU(), [(2, 3)], "(GLU): glu takes halves"),
        (lambda: nn.Flatten(2), [(2, 3)], "(Flatten): x has shape (2, 3): there is no axis 2"),
        (lambda: nn.Unflatten(-1, (2, 2)), [(2, 3)], "(Unflatten): axis 1"),
        (lambda: nn.Upsample(scale_factor=1.5), [(1, 1, 5)], "(Upsample): scale_factor=1.5"),
        (lambda: nn.Residual(nn.Linear(4, 3)), [(2, 4)], "(Residual): inner made (2, 3) of an input of shape (2, 4)"),
        (
            lambda: nn.Parallel(nn.Linear(4, 3), nn.relu),
            [(2, 4)],
            "(Parallel): the branches are summed, but have shapes (2, 3), (2, 4)",
        ),
        (lambda: nn.Embedding(3, 4), [(2,)], "(Embedding): expected an input of integers, got dtype float32"),
    ],
)
def test_wrong_inputs_name_the_layer(layer, shapes, message, jit):
    model, xs = Wrong(layer()), [normal(*shape) for shape in shapes]
    as_argument, as_function, captured = jit(lambda m, *a: m(*a)), jit(model), jit(lambda *a: model(*a))
    for f in (lambda: as_argument(model, *xs), lambda: as_function(*xs), lambda: captured(*xs)):
        with pytest.raises((ValueError, TypeError)) as caught:
            f()
        assert str(caught.value).startswith(f"layers.1.inner.1 {message}"), str(caught.value)


def test_a_layer_alone_is_named_by_its_class():
    with pytest.raises(ValueError, match=r"^Linear: expected an input of shape \(..., 3\), got \(2, 4\)"):
        nn.Linear(3, 2)(normal(2, 4))


def test_layers_called_by_functions_are_named():
    def loss(model, x):
        return np.sum(model.layers[1]["inner"][1](x))

    model = Wrong(nn.Linear(3, 2))
    for f in (loss, wl.grad(loss), wl.jit(wl.grad(loss)), lambda m, x: wl.vmap(partial(loss, m))(x)):
        with pytest.raises(ValueError, match=r"^layers\.1\.inner\.1 \(Linear\): expected"):
            f(model, normal(2, 4))


def test_wide_inputs_warn_when_recorded():
    model, x = nn.Sequential(nn.relu, nn.Linear(3, 2)), normal(4, 3)
    with pytest.warns(nn.PromotionWarning, match=r"1 \(Linear\): the input is float64 and the parameters are float32"):
        assert wl.jit(model)(x.astype(np.float64)).dtype == np.float64
    with pytest.warns(nn.PromotionWarning, match="the input is int64"):
        assert wl.jit(nn.Linear(3, 2))(np.ones((4, 3), int)).dtype == np.float64
    with pytest.warns(nn.PromotionWarning, match=r"Conv1d.*float64"):
        wl.jit(nn.Conv1d(4, 2, 1))(x.astype(np.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(x.astype(np.float64))
        wl.jit(model)(x)
        wl.jit(nn.Linear(3, 2, dtype=np.float64))(x)
        wl.jit(nn.Linear(3, 2))(x.astype(np.float16))
    with pytest.raises(TypeError, match="Linear: expected an input of numbers, got dtype object"):
        nn.Linear(3, 2)(np.array([None] * 3))


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: nn.Linear(3, 0), ValueError, "Linear: out_features=0 is an integer of at least 1"),
        (lambda: nn.Linear("3", 2), TypeError, "Linear: in_features='3' is an integer"),
        (lambda: nn.Linear(3, 2, bias="no"), TypeError, "Linear: bias='no' is True, False"),
        (lambda: nn.Linear(3, 2, biases=True), TypeError, "biases"),
        (lambda: nn.Linear(3), TypeError, "out_features"),
        (lambda: nn.Conv2d(3, 4, (3, 3, 3)), ValueError, "Conv2d: kernel_size"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueError, "Conv2d: groups=2 must divide in_channels=3"),
        (lambda: nn.Conv2d(4, 3, 3, groups=2), ValueError, "Conv2d: groups=2 must divide out_channels=3"),
        (lambda: nn.Conv2d(3, 4, 3, padding="full"), ValueError, "Conv2d: padding is 'same'"),
        (lambda: nn.Conv2d(3, 4, 3, 2, "same"), ValueError, "Conv2d: padding='same' needs stride=1"),
        (lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"), ValueError, "Conv2d: padding_mode"),
        (lambda: nn.Conv2d(3, 4, 3, stride=0), ValueError, "Conv2d: stride=0"),
        (lambda: nn.Conv2d(3, 4, 3, padding=(1,)), ValueError, r"Conv2d: padding=\(1,\)"),
        (lambda: nn.MaxPool2d(0), ValueError, "MaxPool2d: kernel_size=0"),
        (lambda: nn.AdaptiveAvgPool2d((1, 2, 3)), ValueError, "AdaptiveAvgPool2d: output_size"),
        (lambda: nn.LocallyConnected1d(2, 3, 2, 3), ValueError, "LocallyConnected1d: a kernel"),
        (lambda: nn.Embedding(3, 4, 3), ValueError, "no row padding_index=3"),
        (lambda: nn.Embedding(None, 4), TypeError, "Embedding: the sizes of its table"),
        (lambda: nn.Upsample(), ValueError, "Upsample: give either"),
        (lambda: nn.Upsample(2, mode="cubic"), ValueError, "Upsample: mode"),
        (lambda: nn.Unflatten(1, (-1, -1)), ValueError, "Unflatten"),
        (lambda: nn.GELU("exact"), ValueError, "GELU: approximate"),
        (lambda: nn.Hardtanh(1, 0), ValueError, "Hardtanh"),
        (lambda: nn.KAN(3, 4, grid_range=(1, 0)), ValueError, "KAN: grid_range"),
        (lambda: nn.KAN(3, 4, order=-1), ValueError, "KAN: order"),
        (lambda: nn.KAF(3, 1), ValueError, "KAF: at least 2 points"),
        (lambda: nn.Sequential(nn.relu, "tanh"), TypeError, "Sequential: number 1 is 'tanh', which can't be called"),
        (lambda: nn.Sequential(nn.ReLU), TypeError, r"the class ReLU; make a layer of it: ReLU\(\)"),
        (lambda: nn.Sequential([nn.relu]), TypeError, r"number 0 is a list; write Sequential\(\*layers\)"),
        (lambda: nn.Parallel(), ValueError, "Parallel has no branches"),
        (lambda: nn.Parallel(nn.relu, join="max"), ValueError, "Parallel: join"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
