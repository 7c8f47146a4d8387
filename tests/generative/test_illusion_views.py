"""Views and illusions: inverses, noise that stays noise, and what changes nothing."""

import numpy as np
import pytest
from scipy import ndimage

import wonderland as wl
from wonderland.core.errors import ArgumentError
from wonderland.generative import views

rng = np.random.default_rng(0)
SIZE = 8
VIEWS = {
    "identity": views.identity(),
    "negate": views.negate(),
    "flip": views.flip(),
    "mirror": views.flip(-1),
    "rotate 90": views.rotate(90),
    "rotate 180": views.rotate(180),
    "rotate 270": views.rotate(270),
    "permute": views.permute(np.random.default_rng(1).permutation(SIZE * SIZE)),
    "jigsaw": views.jigsaw(SIZE, 4, seed=1),
    "inner circle": views.inner_circle(SIZE, 90),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_has_its_inverse_and_keeps_noise(view):
    """The matrix of a view is orthogonal, so that N(0, I) stays N(0, I); eager and compiled are one."""
    x = rng.standard_normal((3, 2, SIZE, SIZE))
    np.testing.assert_array_equal(view.inverse(view(x)), x)
    np.testing.assert_array_equal(view(view.inverse(x)), x)
    np.testing.assert_array_equal(wl.jit(lambda x: view(x))(x), view(x))
    matrix = np.stack([np.ravel(view(e)) for e in np.eye(SIZE * SIZE).reshape(-1, SIZE, SIZE)])
    np.testing.assert_array_equal(matrix @ matrix.T, np.eye(SIZE * SIZE))


def test_what_views_show():
    x = rng.standard_normal((2, SIZE, SIZE))
    np.testing.assert_array_equal(VIEWS["flip"](x), x[:, ::-1])
    np.testing.assert_array_equal(VIEWS["rotate 90"](x), np.rot90(x, 1, (1, 2)))
    np.testing.assert_array_equal(VIEWS["rotate 180"](x), x[:, ::-1, ::-1])
    pieces = lambda x: {x[0, i : i + 2, j : j + 2].tobytes() for i in range(0, 8, 2) for j in range(0, 8, 2)}
    moved = VIEWS["jigsaw"](x)
    assert pieces(moved) == pieces(x) and not np.array_equal(moved, x)
    turned = VIEWS["inner circle"](x)
    np.testing.assert_array_equal(turned[:, 3:5, 3:5], np.rot90(x, 1, (1, 2))[:, 3:5, 3:5])
    np.testing.assert_array_equal(turned[:, 0], x[:, 0])


def test_low_and_high_pass_are_scipys_filter():
    x = rng.standard_normal((2, 9, 12))
    low = views.low_pass(1.3)(x)
    for image, found in zip(x, low):
        np.testing.assert_allclose(found, ndimage.gaussian_filter(image, 1.3, mode="reflect", truncate=6 / 1.3))
    np.testing.assert_allclose(low + views.high_pass(1.3)(x), x, atol=1e-14)


def noisy(x, sigma):
    return np.tanh(x) * sigma + np.roll(x, 1, -1) / 3


def test_identity_views_change_nothing_to_the_bit():
    x = rng.standard_normal((4, 1, SIZE, SIZE)).astype(np.float32)
    for count in (1, 2, 3, 7):
        made = views.illusion(noisy, [views.identity()] * count)
        np.testing.assert_array_equal(made(x, np.float32(0.7)), noisy(x, np.float32(0.7)))
    compiled = [wl.jit(lambda x, f=f: f(x, 0.7))(x) for f in (noisy, views.illusion(noisy, [views.identity()] * 3))]
    np.testing.assert_array_equal(*compiled)


def test_an_illusion_is_the_mean_of_its_views():
    x = rng.standard_normal((4, 1, SIZE, SIZE))
    double = lambda x, sigma: 2 * noisy(x, sigma)
    made = views.illusion([noisy, double], [views.identity(), views.rotate(180)])
    turned = x[..., ::-1, ::-1]
    np.testing.assert_allclose(made(x, 0.7), (noisy(x, 0.7) + double(turned, 0.7)[..., ::-1, ::-1]) / 2, rtol=1e-13)
    np.testing.assert_allclose(wl.jit(lambda x: made(x, 0.7))(x), made(x, 0.7), rtol=1e-12)
    mixed = views.hybrid(noisy, double, 1.0)(x, 0.7)
    np.testing.assert_allclose(mixed, 2 * noisy(x, 0.7) - views.low_pass(1.0)(noisy(x, 0.7)), atol=1e-12)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: views.rotate(45), "a multiple of 90"),
        (lambda: views.rotate(90)(np.zeros((2, 3))), "square images, not 2 x 3"),
        (lambda: views.permute([0, 0, 1]), "each number from 0 to 2 once"),
        (lambda: views.permute([0, 1])(np.zeros((2, 3))), "2 pixels are ordered"),
        (lambda: views.jigsaw(8, 3), "can't be cut"),
        (lambda: views.flip(0), "axis is -2"),
        (lambda: views.low_pass(0), "more than 0"),
        (lambda: views.illusion(noisy, [views.low_pass()]), "no inverse: mix low and high passes by views.hybrid"),
        (lambda: views.illusion([noisy], [views.identity(), views.flip()]), "1 came for 2 views"),
    ],
)
def test_what_views_refuse(make, said):
    with pytest.raises(ArgumentError, match=said):
        make()
