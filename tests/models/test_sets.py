"""Models of sets, views, long inputs, text with images: the order that they mustn't know, masks, what they learn."""

from itertools import pairwise

import numpy as np
import pytest
from fitting import count, fit

import wonderland as wl
from wonderland import models, nn

KEY = wl.random.key(0)
ORDER = [3, 0, 4, 1, 2]


def normal(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def network(*sizes):
    return nn.Sequential(*[f for n, m in pairwise(sizes) for f in (nn.Linear(n, m, dtype=np.float64), nn.tanh)])


# Sets ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["sum", "mean", "max"])
def test_deep_sets_are_functions_of_sets(pool):
    wl.random.seed(0)
    model = models.DeepSets(network(2, 4), network(4, 3), pool)
    x = normal(2, 5, 2)
    found = model(x)
    assert found.shape == (2, 3)
    np.testing.assert_allclose(model(x[:, ORDER]), found, atol=1e-14)
    for row, one in zip(x, found, strict=True):  # element by element
        vectors = [np.asarray(model.phi(element)) for element in row]
        pooled = {"sum": sum(vectors), "mean": sum(vectors) / 5, "max": np.maximum.reduce(vectors)}[pool]
        np.testing.assert_allclose(model.rho(pooled), one, atol=1e-14)
    mask = np.array([[True] * 5, [True, False, True, False, True]])
    masked = model(np.where(mask[..., None], x, np.nan), mask=mask)
    np.testing.assert_allclose(masked[1], model(x[1, ::2]), atol=1e-14)
    slope = wl.grad(lambda x: np.sum(model(x, mask=mask)))(x)
    assert not slope[1, 1::2].any() and slope[1, ::2].any()


@pytest.mark.parametrize("pool", ["sum", "mean", "max"])
def test_the_linear_layer_of_sets_is_equivariant(pool):
    layer = models.SetLinear(3, 4, pool, key=KEY, dtype=np.float64)
    x = normal(2, 5, 3)
    found = layer(x)
    np.testing.assert_allclose(layer(x[:, ORDER]), found[:, ORDER], atol=1e-14)
    pooled = getattr(np, pool)(x, axis=1)
    for i in range(5):
        wanted = x[:, i] @ layer.own.weight.T + pooled @ layer.all.weight.T + layer.own.bias
        np.testing.assert_allclose(found[:, i], wanted, atol=1e-14)
    mask = np.arange(5) < 3
    np.testing.assert_allclose(layer(x, mask=np.stack([mask, mask]))[:, :3], layer(x[:, :3]), atol=1e-14)


def test_the_jacobian_of_an_equivariant_layer_has_two_numbers_per_channel_pair():
    """lambda on the diagonal of the elements, gamma everywhere: what Zaheer et al. prove of all such layers."""
    layer = models.SetLinear(1, 1, "sum", key=KEY, dtype=np.float64)
    jacobian = wl.jacobian(lambda x: layer(x[:, None])[:, 0])(normal(4))
    own, every = layer.own.weight[0, 0], layer.all.weight[0, 0]
    np.testing.assert_allclose(jacobian, own * np.eye(4) + every, atol=1e-14)


# Views ---------------------------------------------------------------------------------------------------------------


def views_model(**options):
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(16, 8, dtype=np.float64), nn.tanh)
    return models.MultiView(backbone, 8, 3, 2, key=KEY, dtype=np.float64, **options)


@pytest.mark.parametrize("options", [{}, {"layers": 0}, {"pool": "class"}], ids=str)
def test_views_have_no_order(options):
    model = views_model(**options)
    x = normal(2, 5, 1, 4, 4)
    found = wl.jit(model)(x)
    assert found.shape == (2, 3)
    np.testing.assert_allclose(model(x[:, ORDER]), found, atol=1e-13)
    np.testing.assert_allclose(model(x[1]), found[1], atol=1e-13)
    assert model(x[:, :1]).shape == (2, 3)
    mask = np.array([[True] * 5, [True, False, True, False, True]])
    np.testing.assert_allclose(model(x, mask=mask)[1], model(x[1, ::2]), atol=1e-13)
    assert np.abs(model(x, mask=mask)[1] - found[1]).max() > 1e-4


def test_views_make_a_model_of_many():
    """Each view has one half of the image; which of four classes it is, only both halves know."""
    signs = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]], float)
    x = np.zeros((4, 2, 1, 4, 4))
    x[:, 0, :, :2], x[:, 1, :, 2:] = signs[:, :1, None, None], signs[:, 1:, None, None]
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(16, 8, dtype=np.float64), nn.tanh)
    model = models.MultiView(backbone, 8, 4, 2, key=KEY, dtype=np.float64)
    losses = fit(model, lambda m: nn.cross_entropy(m(x), np.arange(4)), 80)
    assert losses[-1] < 0.1
    np.testing.assert_allclose(model(x[:, ::-1]), model(x), atol=1e-13)


# Long inputs ---------------------------------------------------------------------------------------------------------


def perceiver(**options):
    return models.Perceiver(3, 4, 8, 2, 1, 2, key=KEY, dtype=np.float64, **options)


@pytest.mark.parametrize("options", [{}, {"repeats": 3}, {"repeats": 2, "shared": False}], ids=str)
def test_a_perceiver_knows_no_order_of_inputs_and_none_of_latents(options):
    model = perceiver(**options)
    x = normal(2, 5, 3)
    found = model(x)
    assert found.shape == (2, 2) and model.hidden(x).shape == (2, 4, 8)
    np.testing.assert_allclose(model(x[:, ORDER]), found, atol=1e-13)
    np.testing.assert_allclose(model(x[1]), found[1], atol=1e-13)
    mask = np.array([[True] * 5, [True, False, True, False, True]])
    np.testing.assert_allclose(model(x, mask=mask)[1], model(x[1, ::2]), atol=1e-13)
    before = model.hidden(x)
    model.latents[...] = model.latents[[2, 0, 3, 1]]
    np.testing.assert_allclose(model.hidden(x), before[:, [2, 0, 3, 1]], atol=1e-13)
    np.testing.assert_allclose(model(x), found, atol=1e-13)


def test_repeats_share_their_weights():
    size = lambda **options: count(perceiver(**options))
    one, outside = size(), 4 * 8 + 8 * 2 + 2  # the latents, and the head
    assert size(repeats=3) == one
    assert size(repeats=3, shared=False) == 3 * (one - outside) + outside


def test_a_perceiver_learns_where_something_is():
    """A 1 among zeros, in the first or the second half of 16 places: its place is in the features alone."""
    places = models.fourier_features((16,), 3)
    assert places.shape == (16, 7) and places.dtype == np.float32
    x = np.concatenate([np.eye(16, dtype=np.float32)[..., None], np.broadcast_to(places, (16, 16, 7))], axis=-1)
    model = models.Perceiver(8, 4, 16, 2, 1, 2, key=KEY)
    labels = np.arange(16) // 8
    losses = fit(model, lambda m: nn.cross_entropy(m(x), labels), 150, rate=5e-3)  # with more, it forgets again
    assert losses[-1] < 0.1 * losses[0]


def test_features_of_places():
    found = models.fourier_features((3, 5), 2, np.float64)
    assert found.shape == (15, 10)
    row = found[1 * 5 + 4]  # place (1, 4): 0 of [-1, 1] along the first axis, 1 along the second
    angles = np.pi * np.array([0, 0, 1, 2.5])
    np.testing.assert_allclose(row, [0, 1, *np.sin(angles), *np.cos(angles)], atol=1e-14)


# Text and images -----------------------------------------------------------------------------------------------------

TEXT = np.array([[1, 2, 3, 4], [5, 6, 0, 0]])


def bimodal(**options):
    model = models.Bimodal(7, 6, 4, 2, 2, 2, 16, channels=1, key=KEY, dtype=np.float64, **options)
    for p in (model.tokens.weight, model.text_places, model.image_places):
        p *= 10  # so that they matter at once
    return model


def test_text_sees_the_image_and_its_past():
    model, images = bimodal(), normal(2, 1, 4, 4)
    found = wl.jit(model)(TEXT, images)
    assert found.shape == (2, 4, 7)
    other = np.array([[1, 2, 6, 4], [5, 6, 3, 3]])
    np.testing.assert_allclose(model(other, images)[:, :2], found[:, :2], atol=1e-13)
    assert np.abs(model(other, images)[:, 2:] - found[:, 2:]).min(axis=-1).max() > 1e-4
    assert np.abs(model(TEXT, -images) - found).max(axis=-1).min() > 1e-4
    np.testing.assert_allclose(model.hidden(other, images)[:, :5], model.hidden(TEXT, images)[:, :5], atol=1e-13)
    np.testing.assert_allclose(model(TEXT[1, :2], images[1]), found[1, :2], atol=1e-13)


def test_text_and_image_have_one_answer():
    model, images = bimodal(classes=3), normal(2, 1, 4, 4)
    mask = np.array([[True] * 4, [True, True, False, False]])
    found = model(TEXT, images, mask=mask)
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found[1], model(TEXT[1, :2], images[1]), atol=1e-13)
    for changed in (model(TEXT, -images), model(TEXT[:, ::-1], images)):
        assert np.abs(changed - found).max() > 1e-4


def test_a_question_about_an_image():
    """Token 1 asks whether the left half is bright, token 2 the right one: neither input alone knows the answer."""
    bright = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], float)
    images = np.repeat(bright[:, None, None, :], 4, axis=2).repeat(2, axis=3)  # (4, 1, 4, 4)
    text = np.array([[1], [2]]).repeat(4, axis=0)
    images, answers = np.concatenate([images, images]), np.concatenate([bright[:, 0], bright[:, 1]]).astype(int)
    losses = fit(bimodal(classes=2), lambda m: nn.cross_entropy(m(text, images), answers), 120, 3e-3)
    assert losses[-1] < 0.05


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.DeepSets(nn.Identity(), nn.Identity(), "min"), r"DeepSets: pool is one of .*got 'min'"),
        (lambda: models.SetLinear(2, 3, "median"), r"SetLinear: pool is one of .*got 'median'"),
        (lambda: views_model(pool="max"), 'pool is "mean" or "class"'),
        (lambda: views_model()(np.zeros((1, 4, 4))), r"and 3 axes of a view\), got \(1, 4, 4\)"),
        (lambda: models.MultiView(nn.Flatten(), 8, 3)(np.zeros((2, 1, 4, 4))), r"made \(2, 16\) of views"),
        (lambda: perceiver()(np.zeros((5, 4))), r"\(..., S, 3\), got \(5, 4\)"),
        (lambda: bimodal()(np.arange(7), np.zeros((1, 4, 4))), r"T at most context=6, got \(7,\)"),
        (lambda: bimodal()(TEXT, np.zeros((1, 4, 4))), r"as many texts as images, got \(2,\) and \(\)"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
