"""Layers that draw random numbers: how often, how much, the same everywhere; and what they say of bad input."""

import copy

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn

JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])
KEY = wl.random.key(3)
IMAGES = np.random.default_rng(0).uniform(0.5, 1.5, (6, 4, 8, 8)).astype(np.float32)

LAYERS = {
    "Dropout": lambda key=KEY: nn.Dropout(0.3, key=key),
    "Dropout1d": lambda key=KEY: nn.Dropout1d(0.3, key=key),
    "Dropout2d": lambda key=KEY: nn.Dropout2d(0.3, key=key),
    "Dropout2d last": lambda key=KEY: nn.Dropout2d(0.3, channels_last=True, key=key),
    "Dropout3d": lambda key=KEY: nn.Dropout3d(0.3, key=key),
    "StochasticDepth row": lambda key=KEY: nn.StochasticDepth(0.5, key=key),
    "StochasticDepth batch": lambda key=KEY: nn.StochasticDepth(0.5, "batch", key=key),
    "GaussianNoise": lambda key=KEY: nn.GaussianNoise(0.1, key=key),
    "Cutout": lambda key=KEY: nn.Cutout(3, key=key),
    "DropConnect": lambda key=KEY: nn.DropConnect(nn.Linear(8, 8, key=KEY), 0.3, nn.tanh, key=key),
    "DropConnect conv": lambda key=KEY: nn.DropConnect(nn.Conv2d(4, 2, 3, key=KEY), 0.3, key=key),
}
EACH = pytest.mark.parametrize("name", LAYERS)


def call(model, x):
    return model(x)


# The same everywhere -------------------------------------------------------------------------------------------------


@EACH
def test_eager_compiled_and_reloaded_are_the_same(name, tmp_path):
    eager, compiled, saved = (LAYERS[name]() for _ in range(3))
    run = wl.jit(call)
    first, seen = [], []
    for step in range(4):
        if step == 2:
            path = tmp_path / "layer.safetensors"
            wl.save(saved, path)
            saved = LAYERS[name](wl.random.key(99))
            wl.load(saved, path)
        a, b, c = eager(IMAGES), run(compiled, IMAGES), saved(IMAGES)
        exact = not name.startswith(("DropConnect", "Gaussian"))
        for other in (b, c):
            assert a.dtype == other.dtype == np.float32
            assert np.array_equal(a, other) if exact else np.allclose(a, other, atol=1e-5)
        assert np.array_equal(eager.key, compiled.key) and np.array_equal(eager.key, saved.key)
        first.append(a)
        seen.append(tuple(eager.key))
    assert len({*seen}) == 4
    if name != "StochasticDepth batch":  # which has two results
        assert len({a.tobytes() for a in first}) == 4


@EACH
@JIT
def test_evaluation_draws_and_writes_nothing(name, jit):
    layer = LAYERS[name]().eval()
    key = layer.key.copy()
    a, b = jit(call)(layer, IMAGES), jit(call)(layer, IMAGES)
    assert np.array_equal(a, b) and np.array_equal(layer.key, key)
    if not name.startswith("DropConnect"):
        assert np.array_equal(a, IMAGES)


@EACH
@JIT
def test_monte_carlo(name, jit):
    model = nn.Sequential(nn.BatchNorm2d(4), LAYERS[name]()).eval()
    before, key = model[0].running_mean.copy(), model[1].key.copy()
    with nn.monte_carlo(model):
        samples = [jit(call)(model, IMAGES).tobytes() for _ in range(6)]
        assert model[1].training and not model[0].training
    assert len({*samples}) > 1 and not np.array_equal(model[1].key, key)
    assert np.array_equal(model[0].running_mean, before) and not model[1].training


def test_monte_carlo_mean_is_the_inverted_one():
    model = nn.Sequential(nn.Dropout(0.4, key=KEY), nn.Linear(8, 3, key=KEY)).eval()
    x = IMAGES[0, 0]
    with nn.monte_carlo(model):
        sample = wl.jit(call)
        samples = np.stack([sample(model, x) for _ in range(4000)])
    np.testing.assert_allclose(samples.mean(0), model(x), atol=6 * samples.std() / np.sqrt(4000))
    with pytest.raises(wl.ArgumentError, match="no layer"), nn.monte_carlo(nn.Linear(2, 2)):
        pass


@EACH
def test_gradients_use_the_mask_of_the_call(name):
    layer = LAYERS[name]()
    twin = copy.deepcopy(layer)
    loss = lambda layer, x: np.sum(layer(x) ** 2)
    value, (_, of_x) = wl.value_and_grad(loss, (0, 1))(layer, IMAGES)
    expected = twin(IMAGES)
    np.testing.assert_allclose(value, np.sum(expected**2), rtol=1e-5)
    if not name.startswith(("DropConnect", "Gaussian")):
        assert np.array_equal(of_x == 0, expected == 0)
    assert np.array_equal(layer.key, twin.key)


@EACH
def test_an_ensemble_has_different_masks(name):
    models = nn.stack([LAYERS[name]() for _ in range(4)])  # with the same key
    out = wl.vmap(call, in_axes=(0, None))(models, IMAGES)
    keys = {tuple(key) for key in models.key}
    assert len(keys) == 4
    if name != "StochasticDepth batch":
        assert len({part.tobytes() for part in out}) == 4
    again = wl.jit(wl.vmap(call, in_axes=(0, None)))(nn.stack([LAYERS[name]() for _ in range(4)]), IMAGES)
    np.testing.assert_allclose(again, out, atol=1e-5)
    with pytest.raises(wl.MutationError):
        wl.vmap(call, in_axes=(None, 0))(LAYERS[name](), IMAGES[:, None])


def test_layers_of_a_model_draw_different_numbers_and_a_seed_repeats_them():
    def made():
        wl.random.seed(5)
        return nn.Sequential(nn.Dropout(), nn.Dropout())

    x = np.ones((50, 50), np.float32)
    a, b = made(), made()
    assert np.array_equal(a(x), b(x))
    assert not np.array_equal(a[0](x), a[1](x))
    assert np.array_equal(a.load_state({}).missing, [])  # a key is never missing


def test_loops_and_checkpoints_draw_anew():
    layer, x = nn.Dropout(0.5, key=KEY), np.ones(64)

    def body(carry, _):
        model, total = carry
        y = model(x)
        return (model, total + y), y

    def run(layer):
        (_, total), masks = wl.scan(body, (layer, np.zeros(64)), np.arange(5))
        return total, masks

    total, masks = wl.jit(run)(copy.deepcopy(layer))
    expected = [layer(x) for _ in range(5)]
    np.testing.assert_allclose(masks, expected)
    np.testing.assert_allclose(total, np.sum(expected, 0))

    plain, again = nn.Dropout(0.5, key=KEY), nn.Dropout(0.5, key=KEY)
    loss = lambda layer, x: np.sum(np.sin(layer(x)))
    a = wl.grad(loss, 1)(plain, x)
    b = wl.grad(wl.checkpoint(loss), 1)(again, x)
    np.testing.assert_allclose(a, b)
    assert np.array_equal(plain.key, again.key)


# How much is dropped -------------------------------------------------------------------------------------------------


@JIT
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_mean_and_variance_of_dropout(p, jit):
    n = 200_000
    y = jit(call)(nn.Dropout(p, key=KEY), np.full(n, 2.0, np.float32))
    kept = y != 0
    assert abs(np.mean(~kept) - p) <= 5 * np.sqrt(p * (1 - p) / n)
    if p < 1:
        np.testing.assert_allclose(y[kept], 2 / (1 - p), rtol=1e-6)
        assert abs(y.mean(dtype=np.float64) - 2) <= 5 * 2 * np.sqrt(p / (1 - p) / n)
        np.testing.assert_allclose(y.var(dtype=np.float64), 4 * p / (1 - p), rtol=0.02, atol=1e-9)


def test_masks_are_independent():
    layer, x = nn.Dropout(0.5, key=KEY), np.ones((400, 500), np.float32)
    a, b = (layer(x) - 1 for _ in range(2))  # +-1
    for u, v in ((a, b), (a[:, 1:], a[:, :-1]), (a[1:], a[:-1])):
        assert abs(np.mean(u * v)) < 5 / np.sqrt(u.size)


def test_whole_channels_are_dropped():
    for name, axes in (("Dropout1d", (-1,)), ("Dropout2d", (-2, -1)), ("Dropout3d", (-3, -2, -1))):
        layer = getattr(nn, name)(0.5, key=KEY)
        x = np.ones((200, 8, 3, 3, 3)[: 2 + len(axes)], np.float32)
        y = layer(x)
        assert np.array_equal(y.max(axes), y.min(axes)) and set(np.unique(y)) == {0.0, 2.0}
        assert abs(np.mean(y) - 1) < 5 / np.sqrt(1600)
    last = nn.Dropout2d(0.5, channels_last=True, key=KEY)(np.ones((20, 3, 3, 8), np.float32))
    assert np.array_equal(last.max((1, 2)), last.min((1, 2))) and last.min() == 0
    assert nn.Dropout2d(0.5, key=KEY)(np.ones((8, 3, 3), np.float32)).shape == (8, 3, 3)


def test_stochastic_depth_drops_samples_or_all():
    x = np.ones((1000, 3, 2), np.float32)
    rows = nn.StochasticDepth(0.25, key=KEY)(x)
    assert np.array_equal(rows.max((1, 2)), rows.min((1, 2)))
    assert abs(np.mean(rows == 0) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 1000)
    layer = nn.StochasticDepth(0.25, "batch", key=KEY)
    every = np.array([layer(x) for _ in range(400)])
    assert np.array_equal(every.max((1, 2, 3)), every.min((1, 2, 3)))
    assert abs(np.mean(every == 0) - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 400)


def test_gaussian_noise():
    y = nn.GaussianNoise(0.3, key=KEY)(np.full(100_000, 2.0))
    assert abs(y.mean() - 2) < 5 * 0.3 / np.sqrt(1e5) and abs(y.std() - 0.3) < 0.005


@JIT
def test_cutout_is_one_square_of_each_image(jit):
    x = np.ones((300, 2, 9, 7), np.float32)
    y = jit(call)(nn.Cutout((3, 2), key=KEY), x)
    assert np.array_equal(y[:, 0], y[:, 1])
    sizes = set()
    for image in y[:, 0]:
        rows, columns = np.flatnonzero((image == 0).any(1)), np.flatnonzero((image == 0).any(0))
        assert np.array_equal(image == 0, np.isin(np.arange(9), rows)[:, None] & np.isin(np.arange(7), columns))
        sizes.add((len(rows), len(columns)))
    assert (3, 2) in sizes and sizes <= {(a, b) for a in (2, 3) for b in (1, 2)}
    hit = np.mean(y[:, 0] == 0, axis=0)
    assert np.all(hit > 0) and abs(hit[4, 3] - 6 / 63) < 5 * np.sqrt(6 / 63 / 300)
    last = nn.Cutout((3, 2), channels_last=True, key=KEY)(np.moveaxis(x, 1, -1))
    assert np.array_equal(np.moveaxis(last, -1, 1), nn.Cutout((3, 2), key=KEY)(x))


# DropConnect ---------------------------------------------------------------------------------------------------------


def test_dropconnect_drops_weights():
    layer = nn.DropConnect(nn.Linear(50, 40, key=KEY), 0.4, key=KEY)
    weight = layer(np.eye(50, dtype=np.float32)).T - layer.layer.bias[:, None]  # what it was in this call
    dropped = np.abs(weight) < 1e-6
    assert abs(dropped.mean() - 0.4) < 5 * np.sqrt(0.24 / 2000)
    np.testing.assert_allclose(weight[~dropped], layer.layer.weight[~dropped] / 0.6, rtol=1e-3, atol=1e-6)
    grads = wl.grad(lambda m, x: np.sum(m(x)))(layer, np.ones((1, 50), np.float32))
    assert abs(np.mean(grads.layer.weight == 0) - 0.4) < 0.06 and grads.key is None


@JIT
def test_dropconnect_matches_two_moments(jit):
    wide = nn.DropConnect(nn.Linear(200, 4, dtype=np.float64, key=KEY), 0.5, nn.relu, samples=4000, key=KEY)
    x = np.random.default_rng(1).standard_normal((3, 200))
    sample = wl.jit(call)
    calls = np.stack([sample(wide, x) for _ in range(4000)])
    wide.eval()
    found, plain = jit(call)(wide, x), nn.relu(wide.layer(x))
    bound = 6 * np.sqrt(2) * calls.std(0) / np.sqrt(4000)
    assert np.all(np.abs(found - calls.mean(0)) < bound + 0.01)
    assert np.max(np.abs(plain - calls.mean(0))) > 0.05  # the mean of u alone is far off
    weight, bias = wide.layer.weight, wide.layer.bias
    u = x @ weight.T + bias
    deviation = np.sqrt((x * x) @ (weight * weight).T)  # p / (1 - p) = 1
    z = u / deviation
    normal = lambda z: np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    from scipy.special import ndtr

    exact = u * ndtr(z) + deviation * normal(z)  # the mean of a rectified normal
    assert np.all(np.abs(found - exact) < 6 * deviation / np.sqrt(4000))


# Path deletion -------------------------------------------------------------------------------------------------------


def test_deleted_paths():
    blocks = [nn.Residual(nn.Linear(4, 4, key=wl.random.key(i))) for i in range(4)]
    model = nn.Sequential(nn.Linear(3, 4, key=KEY), *blocks)
    x = np.ones((2, 3), np.float32)
    short = nn.delete_paths(model, "2", "4")
    np.testing.assert_allclose(short(x), blocks[2](blocks[0](model[0](x))), rtol=1e-6)
    assert isinstance(model[2], nn.Residual) and short[1].inner.weight is not blocks[0].inner.weight
    with pytest.raises(wl.ArgumentError, match="no layer matches"):
        nn.delete_paths(model, "9")


# What is wrong -------------------------------------------------------------------------------------------------------


def test_bad_arguments():
    for p in (-0.1, 1.5, "0.5", None, float("nan")):
        for kind in (nn.Dropout, nn.Dropout2d, nn.StochasticDepth):
            with pytest.raises(ValueError, match="from 0 to 1"):
                kind(p)
    with pytest.raises(ValueError, match="row"):
        nn.StochasticDepth(0.5, "column")
    with pytest.raises(ValueError, match="standard deviation"):
        nn.GaussianNoise(-1)
    with pytest.raises(ValueError, match="positive integer"):
        nn.Cutout(0)
    with pytest.raises(wl.ArgumentError, match="weight and a bias"):
        nn.DropConnect(nn.relu, 0.5)
    with pytest.raises(TypeError, match=r"wl\.random\.key"):
        nn.Dropout(0.5, key=3)
    with pytest.raises(ValueError, match="spatial"):
        nn.Dropout2d(0.5)(np.ones((3, 3)))


def test_a_captured_layer_says_what_to_write():
    layer = nn.Dropout(0.5)
    with pytest.raises(wl.MutationError, match=r"wl\.jit\(model\)"):
        wl.jit(lambda x: layer(x))(np.ones(3))
    assert wl.jit(layer)(np.ones(3)).shape == (3,)


LAYERS_BY_SAMPLE = {
    "Dropout": lambda key: nn.Dropout(0.4, key=key),
    "Dropout2d": lambda key: nn.Dropout2d(0.4, key=key),
    "StochasticDepth": lambda key: nn.StochasticDepth(0.4, key=key),
    "StochasticDepth of batches": lambda key: nn.StochasticDepth(0.4, "batch", key=key),
    "GaussianNoise": lambda key: nn.GaussianNoise(0.3, key=key),
    "Cutout": lambda key: nn.Cutout(2, key=key),
}


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", LAYERS_BY_SAMPLE)
def test_parts_of_a_batch_have_the_numbers_of_the_whole(name, jit):
    key = wl.random.key(3)
    x = np.random.default_rng(0).normal(size=(7, 3, 4, 4)) + 3
    call = wl.jit(lambda layer, x: layer(x)) if jit else lambda layer, x: layer(x)
    whole = LAYERS_BY_SAMPLE[name](key)
    expected = [call(whole, x) for _ in range(2)]
    for first, last in ((0, 3), (3, 5), (5, 7)):
        layer = LAYERS_BY_SAMPLE[name](key)
        with nn.part_of_batch(layer, first, last - first):
            for want in expected:
                np.testing.assert_array_equal(call(layer, x[first:last]), want[first:last])
        assert "_rows" not in vars(layer)


def test_parts_of_a_batch_that_is_joined_with_another_axis():
    key, x = wl.random.key(3), np.ones((6, 5, 4))
    want = nn.Dropout(0.5, key=key)(x.reshape(30, 4))
    layer = nn.Dropout(0.5, key=key)
    with nn.part_of_batch(layer, 2, 4):
        np.testing.assert_array_equal(layer(x[2:].reshape(20, 4)), want[10:])
    with pytest.raises(wl.ArgumentError, match="at least one row"), nn.part_of_batch(layer, 1, 0):
        pass
