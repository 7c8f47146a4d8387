"""Networks whose weights are computed: equal to the functions they stand for, and their affine pieces counted."""

from math import comb

import numpy as np
import pytest

import wonderland as wl
from wonderland import nn


def at(model, x):
    """A network of one input, at points (n,)."""
    return model(np.asarray(x, np.float64)[:, None])[:, 0]


def test_a_piecewise_linear_function_is_a_network_exactly():
    """Dyadic numbers have no rounding: equality to the bit, on the points, between and beyond them."""
    xs, ys = [-2.0, -0.5, 0.25, 1.0, 4.0], [1.0, -2.5, 3.0, 3.0, -1.0]
    model = nn.piecewise_linear(xs, ys, left=-0.75, right=2.0)
    x = np.arange(-6, 8, 1 / 64)
    expected = np.interp(x, xs, ys)
    expected += np.where(x < xs[0], -0.75 * (x - xs[0]), 0) + np.where(x > xs[-1], 2.0 * (x - xs[-1]), 0)
    np.testing.assert_allclose(at(model, x), expected, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(at(model, xs[:1]), ys[:1])


def test_dyadic_slopes_are_exact_to_the_bit():
    xs = np.array([-2.0, -1.0, 0.0, 2.0, 4.0])
    ys = np.array([1.0, -2.5, 3.0, 3.5, -1.0])
    x = np.arange(-2, 4, 1 / 64)
    np.testing.assert_array_equal(at(nn.piecewise_linear(xs, ys), x), np.interp(x, xs, ys))


def test_slopes_are_the_derivative():
    xs, ys = np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, -2.0])
    model = nn.piecewise_linear(xs, ys, left=5.0, right=-7.0)
    slope = wl.vmap(wl.grad(lambda x: model(x[None])[0]))
    np.testing.assert_array_equal(slope(np.array([-1.0, 0.5, 2.0, 4.0])), [5.0, 2.0, -2.0, -7.0])


def test_one_point_is_a_kink():
    x = np.array([-1.0, 0.0, 2.0])
    np.testing.assert_array_equal(at(nn.piecewise_linear([0.0], [3.0], left=-1.0, right=2.0), x), [4.0, 3.0, 7.0])


@pytest.mark.parametrize(
    ("xs", "ys", "words"),
    [
        ([0.0, 0.0], [1.0, 2.0], "must increase"),
        ([1.0, 0.0], [1.0, 2.0], "sort the points"),
        ([0.0, 1.0], [1.0], "one shape"),
        ([], [], "one shape"),
        ([0.0, np.nan], [1.0, 2.0], "NaN"),
    ],
)
def test_points_that_are_no_function(xs, ys, words):
    with pytest.raises(wl.ArgumentError, match=words):
        nn.piecewise_linear(xs, ys)


def test_error_against_width():
    """max |g''| h^2 / 8: four times less for twice the width."""
    x = np.linspace(0, np.pi, 5001)
    errors = [np.max(np.abs(at(nn.interpolate(np.sin, 0, np.pi, pieces), x) - np.sin(x))) for pieces in (4, 8, 16, 32)]
    for pieces, error in zip((4, 8, 16, 32), errors, strict=True):
        assert error <= (np.pi / pieces) ** 2 / 8
    np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), 0.25, atol=0.03)


def test_bins_of_sigmoids():
    """sin(x) / x on [0, 10]: the book's mean squared errors with 5, 15 and 50 bins are 0.02, 0.002 and 0.00016."""
    x = np.linspace(0.0005, 9.9995, 20_000)
    g = lambda x: np.sinc(np.asarray(x) / np.pi)
    errors = [np.mean((at(nn.sigmoid_bins(g, 0, 10, bins), x) - g(x)) ** 2) for bins in (5, 15, 50)]
    np.testing.assert_allclose(errors, [0.02, 0.002, 0.00016], rtol=0.5)
    model = nn.sigmoid_bins(g, 0, 10, 5)
    assert model[0].weight.shape == (10, 1)


def test_several_inputs_by_ridge_functions():
    g = lambda x: np.sin(x[:, 0]) * np.cos(2 * x[:, 1])
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (500, 2))
    errors = []
    for count in (4, 16, 64):
        model = nn.ridge_network(g, [-1, -1], [1, 1], rng.normal(0, 1.5, (count, 2)), pieces=200)
        errors.append(np.max(np.abs(model(x)[:, 0] - g(x))))
    assert errors[0] > 2 * errors[1] > 20 * errors[2]
    assert errors[2] < 0.01


def test_polynomial_activations_stop_getting_better():
    """Their networks are polynomials of one degree, whatever the width; those of ReLUs get better."""
    rng = np.random.default_rng(1)
    x = np.linspace(-1, 1, 801)
    target = np.abs(x)
    best = np.max(np.abs(np.polynomial.Polynomial.fit(x, target, 2)(x) - target))

    def error(activation, width):
        features = activation(rng.normal(size=width) * x[:, None] + rng.normal(size=width) / 2)
        features = np.column_stack([features, np.ones(len(x))])
        fit = features @ np.linalg.lstsq(features, target, rcond=None)[0]
        return np.max(np.abs(fit - target))

    square = [error(np.square, width) for width in (8, 32, 128)]
    np.testing.assert_allclose(square, best, rtol=1e-6)
    assert error(nn.relu, 128) < best / 4


@pytest.mark.parametrize("times", [1, 2, 5, 10])
def test_the_tent_map_has_exponentially_many_pieces(times):
    model = nn.tent_map(times)
    x = np.arange(0, 1 + 2**-13, 2**-12)
    y = x
    for _ in range(times):
        y = 1 - np.abs(2 * y - 1)
    np.testing.assert_array_equal(at(model, x), y)
    assert len(nn.affine_regions(model, 0.0, 1.0)) == 2**times


def test_depth_against_width():
    """2 units a layer against 2**times in one layer, for the same function."""
    deep = nn.tent_map(5)
    xs = np.arange(33) / 32
    wide = nn.piecewise_linear(xs, at(deep, xs))
    x = np.arange(0, 1, 1 / 1024)
    np.testing.assert_array_equal(at(wide, x), at(deep, x))
    units = [sum(len(layer.bias) for layer in model if hasattr(layer, "bias")) - 1 for model in (deep, wide)]
    assert units == [10, 34]


def test_one_hidden_layer_in_general_position():
    rng = np.random.default_rng(2)
    for d, n in [(1, 7), (2, 5), (2, 6), (3, 5)]:
        model = nn.Sequential(nn.Linear(d, n, dtype=np.float64), nn.relu, nn.Linear(n, 1, dtype=np.float64))
        model[0].weight[...], model[0].bias[...] = rng.normal(size=(n, d)), rng.normal(size=n)
        regions = nn.affine_regions(model, np.full(d, -1e4), np.full(d, 1e4))
        assert len(regions) == sum(comb(n, i) for i in range(d + 1))


def test_regions_hold_what_the_network_computes():
    rng = np.random.default_rng(3)
    model = nn.Sequential(
        nn.Linear(2, 5, dtype=np.float64), nn.relu, nn.Linear(5, 4, dtype=np.float64), nn.ReLU(),
        nn.Linear(4, 2, dtype=np.float64),
    )  # fmt: skip
    for layer in model[::2]:
        layer.weight[...], layer.bias[...] = rng.normal(size=layer.weight.shape), rng.normal(size=layer.bias.shape)
    regions = nn.affine_regions(model, [-3, -3], [3, 3])
    points = rng.uniform(-3, 3, (500, 2))
    found = np.array([[np.all(r.normals @ x <= r.offsets + 1e-9) for r in regions] for x in points])
    np.testing.assert_array_equal(found.sum(1), 1)
    for x, region in zip(points, np.argmax(found, 1), strict=True):
        np.testing.assert_allclose(regions[region].weight @ x + regions[region].bias, model(x), atol=1e-12)
    assert len(regions) > found.any(0).sum() / 2


def test_regions_of_another_network():
    with pytest.raises(wl.ArgumentError, match="Linear and relu"):
        nn.affine_regions(nn.Sequential(nn.Linear(1, 2), nn.gelu), -1, 1)


def test_width_d_plus_one():
    """max(min(x, y), 0), x + y - 1, ... in turn, by networks of width 3."""
    steps = [("max", [1.0, 0.0], 0.0), ("min", [0.0, 1.0], 0.0), ("max", [0.0, 0.0], 0.0), ("min", [-0.5, 0.25], 1.0)]
    model = nn.narrow_network(steps, lower=[-2.0, -3.0])
    assert [layer.weight.shape[0] for layer in model if hasattr(layer, "weight")] == [3, 3, 3, 1]
    x = np.stack(np.meshgrid(np.arange(-2, 2, 1 / 16), np.arange(-3, 2, 1 / 16)), -1)
    expected = np.minimum(np.maximum(np.minimum(x[..., 0], x[..., 1]), 0), 1 - x[..., 0] / 2 + x[..., 1] / 4)
    np.testing.assert_array_equal(model(x)[..., 0], expected)


def test_what_one_hidden_layer_cannot_represent():
    """The slope of one hidden layer jumps by the same along a whole line. That of max(min(x, y), 0) jumps across the
    line x = 0 where y > 0, and not where y < 0: a second hidden layer has to see it."""
    deeper = nn.narrow_network(
        [("max", [1.0, 0.0], 0.0), ("min", [0.0, 1.0], 0.0), ("max", [0.0, 0.0], 0.0)], lower=-9.0
    )
    slope = wl.grad(lambda x: deeper(x)[0])

    def jump(y):
        return slope(np.array([1e-3, y]))[0] - slope(np.array([-1e-3, y]))[0]

    assert jump(1.0) == 1.0
    assert jump(-1.0) == 0.0
    shallow = nn.Sequential(nn.Linear(2, 40, dtype=np.float64), nn.relu, nn.Linear(40, 1, dtype=np.float64))
    weight, bias = shallow[0].weight, shallow[0].bias
    slope = wl.grad(lambda x: shallow(x)[0])
    point, along = -bias[0] * weight[0] / (weight[0] @ weight[0]), np.array([-weight[0, 1], weight[0, 0]])
    across = 1e-7 * weight[0] / np.linalg.norm(weight[0])
    jumps = [
        slope(p + across) - slope(p - across) for p in (point - 2.3 * along, point + 0.4 * along, point + 1.7 * along)
    ]
    np.testing.assert_allclose(jumps, [shallow[2].weight[0, 0] * weight[0]] * 3, atol=1e-12)
