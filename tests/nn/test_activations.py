"""Activations: against their formulas in high precision, at kinks and far away, in both dtypes and compiled."""

import mpmath
import numpy as np
import pytest
from scipy.interpolate import BSpline

import wonderland as wl
from wonderland import nn

mp = mpmath.mp.clone()
mp.dps = 40

# Away from kinks: ours, and the formula of one number.
FORMULAS = {
    "relu": (nn.relu, lambda x: max(x, 0)),
    "relu6": (nn.relu6, lambda x: min(max(x, 0), 6)),
    "leaky_relu": (nn.leaky_relu, lambda x: x if x > 0 else mp.mpf(0.01) * x),
    "elu": (nn.elu, lambda x: x if x > 0 else mp.expm1(x)),
    "selu": (
        nn.selu,
        lambda x: mp.mpf("1.0507009873554805") * (x if x > 0 else mp.mpf("1.6732632423543772") * mp.expm1(x)),
    ),
    "celu": (lambda x: nn.celu(x, 1.5), lambda x: x if x > 0 else 1.5 * mp.expm1(x / 1.5)),
    "softplus": (nn.softplus, lambda x: mp.log1p(mp.exp(x))),
    "softplus 2": (lambda x: nn.softplus(x, 2.0), lambda x: mp.log1p(mp.exp(2 * x)) / 2),
    "sigmoid": (nn.sigmoid, lambda x: 1 / (1 + mp.exp(-x))),
    "logsigmoid": (nn.logsigmoid, lambda x: -mp.log1p(mp.exp(-x))),
    "hardsigmoid": (nn.hardsigmoid, lambda x: min(max(x + 3, 0), 6) / 6),
    "hardtanh": (nn.hardtanh, lambda x: min(max(x, -1), 1)),
    "hardswish": (nn.hardswish, lambda x: x * min(max(x + 3, 0), 6) / 6),
    "tanh": (nn.tanh, mp.tanh),
    "softsign": (nn.softsign, lambda x: x / (1 + abs(x))),
    "gelu": (nn.gelu, lambda x: x * mp.ncdf(x)),
    "gelu tanh": (
        lambda x: nn.gelu(x, "tanh"),
        lambda x: x * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3))) / 2,
    ),
    "silu": (nn.silu, lambda x: x / (1 + mp.exp(-x))),
    "swish": (lambda x: nn.swish(x, 0.5, 1.0, 2.0, -1.0), lambda x: (2 * x - 1) / (1 + mp.exp(-x / 2 - 1))),
    "mish": (nn.mish, lambda x: x * mp.tanh(mp.log1p(mp.exp(x)))),
}
POINTS = [-30.0, -12.5, -4.0, -2.25, -0.75, -0.01, 0.01, 0.5, 1.75, 4.5, 9.0, 25.0]
JIT = pytest.mark.parametrize("jit", [lambda f: f, wl.jit], ids=["eager", "compiled"])


def derivative(f, order=1):
    """Of a function of each element, as a function of arrays."""
    return f if not order else derivative(wl.grad(lambda x: np.sum(f(x))), order - 1)


@JIT
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_to_second_order(name, jit):
    ours, formula = FORMULAS[name]
    x = np.array(POINTS)
    for order in (0, 1, 2):
        exact = np.array([float(mp.diff(formula, mp.mpf(p), order)) for p in POINTS])
        found = jit(derivative(ours, order))(x)
        np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-14, err_msg=f"order {order}")


@JIT
@pytest.mark.parametrize("name", FORMULAS)
def test_single_precision_stays_and_nothing_overflows(name, jit):
    ours, _ = FORMULAS[name]
    x = np.array([-1e37, -1e20, -1e4, -200.0, -90.0, 0.0, 90.0, 200.0, 1e4, 1e20, 1e37], np.float32)
    for order in (0, 1, 2):
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            found = jit(derivative(ours, order))(x)
        assert found.dtype == np.float32 and found.shape == x.shape
        assert np.all(np.isfinite(found)), order
    with np.errstate(invalid="ignore"):
        assert np.isnan(jit(ours)(np.array([np.nan], np.float32)))[0]


@pytest.mark.parametrize(
    ("f", "at", "slope"),
    [
        (nn.relu, 0.0, 0.0), (nn.relu6, 0.0, 0.0), (nn.relu6, 6.0, 0.0), (nn.leaky_relu, 0.0, 0.01),
        (nn.elu, 0.0, 1.0), (lambda x: nn.elu(x, 0.3), 0.0, 0.3), (nn.hardtanh, -1.0, 0.0), (nn.hardtanh, 1.0, 0.0),
        (nn.hardsigmoid, -3.0, 0.0), (nn.hardsigmoid, 3.0, 0.0), (nn.hardswish, -3.0, 0.0),
        (nn.hardswish, 3.0, 1.0), (nn.softsign, 0.0, 1.0), (lambda x: nn.prelu(x, 0.2), 0.0, 0.2),
    ],
)  # fmt: skip
def test_kinks(f, at, slope):
    assert wl.grad(f)(at) == pytest.approx(slope)
    assert wl.jvp(f, (at,), (1.0,))[1] == pytest.approx(slope)
    assert wl.jit(wl.grad(f))(at) == pytest.approx(slope)


def test_numbers_lists_and_integers_are_arrays_of_floats():
    assert nn.relu(-2.0) == 0 and nn.sigmoid(0) == 0.5
    np.testing.assert_array_equal(nn.relu([1, -2]), [1.0, 0.0])
    assert nn.elu(np.array([1, -2])).dtype == np.float64
    assert nn.relu(np.zeros((0, 3))).shape == (0, 3)
    with pytest.raises(TypeError, match="real numbers, got dtype complex128"):
        nn.relu(np.ones(2) * 1j)
    with pytest.raises(ValueError, match=r'"none" or "tanh", got \'erf\''):
        nn.gelu(1.0, "erf")


def test_the_lower_tail_of_gelu_has_its_digits():
    x = np.array([-5.0, -10.0, -20.0, -30.0])
    exact = np.array([float(mp.mpf(v) * mp.ncdf(v)) for v in x])
    np.testing.assert_allclose(nn.gelu(x), exact, rtol=1e-13)
    np.testing.assert_allclose(wl.jit(nn.gelu)(x), exact, rtol=1e-13)


def test_prelu_has_a_slope_for_each_channel(rng):
    x, slope = rng.standard_normal((2, 3, 4)), np.array([0.1, 0.2, 0.3])
    np.testing.assert_array_equal(nn.prelu(x, slope, 1), np.where(x > 0, x, slope[:, None] * x))
    np.testing.assert_allclose(
        wl.grad(lambda s: np.sum(nn.prelu(x, s, axis=1)))(slope), np.where(x > 0, 0, x).sum((0, 2))
    )
    with pytest.raises(ValueError, match=r"slope has shape \(3,\), x \(2, 3, 4\): one slope for each of axis 2"):
        nn.prelu(x, slope)


@JIT
def test_softmax(rng, jit):
    x = rng.standard_normal((4, 5))
    x[1, 2] = -np.inf
    x[2] *= 1e4
    for axis in (-1, 0):
        p, log_p = jit(lambda x, a=axis: (nn.softmax(x, a), nn.log_softmax(x, a)))(x)
        np.testing.assert_allclose(p.sum(axis), 1, rtol=1e-14)
        np.testing.assert_allclose(p, np.exp(log_p), rtol=1e-13, atol=1e-300)
    assert nn.softmax(x)[1, 2] == 0 and nn.log_softmax(x)[1, 2] == -np.inf
    weights = rng.standard_normal((4, 5))
    gradient = jit(wl.grad(lambda x: np.sum(weights * nn.softmax(x))))(x)
    assert np.all(np.isfinite(gradient)) and gradient[1, 2] == 0
    np.testing.assert_allclose(gradient.sum(-1), 0, atol=1e-14)


# Gates and sums of functions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        nn.glu, nn.swiglu, nn.geglu, lambda x: nn.maxout(x, 3), lambda x: nn.softmax(x, 0), nn.log_softmax,
        lambda x: nn.apl(x, x[0, :2], x[1, 2:4]), lambda x: nn.kaf(x, x[0], np.linspace(-2, 2, 6)),
        lambda x: nn.bspline_basis(x, np.linspace(-3, 3, 9)), lambda x: nn.swish(x, *x[:4]), nn.mish, nn.gelu,
    ],
)  # fmt: skip
def test_derivatives_to_second_order(f, rng):
    wl.testing.check_grads(f, (rng.standard_normal((4, 6)),), order=2)


def test_gates_are_of_halves(rng):
    x = rng.standard_normal((3, 8))
    a, b = x[:, :4], x[:, 4:]
    sigma = 1 / (1 + np.exp(-b))
    np.testing.assert_allclose(nn.glu(x), a * sigma)
    np.testing.assert_allclose(nn.swiglu(x), a * b * sigma)
    np.testing.assert_allclose(nn.geglu(x), a * nn.gelu(b))
    np.testing.assert_allclose(nn.glu(x.T, 0), (a * sigma).T)
    with pytest.raises(ValueError, match=r"axis 0 of x, which has shape \(3, 8\), has an odd length"):
        nn.glu(x, 0)
    with pytest.raises(ValueError, match=r"shape \(3, 8\): there is no axis 2"):
        nn.glu(x, 2)


def test_maxout(rng):
    x = rng.standard_normal((2, 6, 3))
    np.testing.assert_array_equal(nn.maxout(x, 3), x.max(-1, keepdims=True))
    np.testing.assert_array_equal(nn.maxout(x, 2, axis=1), x.reshape(2, 3, 2, 3).max(2))
    with pytest.raises(ValueError, match="isn't a multiple of pieces=4"):
        nn.maxout(x, 4, axis=1)


def test_apl_is_its_sum(rng):
    x, slopes, hinges = rng.standard_normal((5, 3)), rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    expected = np.maximum(x, 0)
    for s in range(4):
        expected = expected + slopes[:, s] * np.maximum(0, hinges[:, s] - x)
    np.testing.assert_allclose(nn.apl(x, slopes, hinges), expected)
    np.testing.assert_allclose(wl.jit(nn.apl)(x, slopes, hinges), expected)
    np.testing.assert_allclose(nn.apl(x, slopes[0], hinges[0])[:, 0], expected[:, 0])
    with pytest.raises(ValueError, match=r"as many terms in each of slopes \(2,\), hinges \(3,\)"):
        nn.apl(x, np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match=r"got slopes \(5, 2\), x \(5, 3\)"):
        nn.apl(x, np.ones((5, 2)), np.ones((5, 2)))


def test_kaf_is_its_sum(rng):
    x, points, a = rng.standard_normal((5, 3)), np.linspace(-2, 2, 9), rng.standard_normal((3, 9))
    expected = sum(a[:, i] * np.exp(-((x - d) ** 2) / (6 * 0.5**2)) for i, d in enumerate(points))
    np.testing.assert_allclose(nn.kaf(x, a, points), expected)
    assert nn.kaf(x.astype(np.float32), a, points).dtype == np.float32
    np.testing.assert_allclose(
        nn.kaf(x, a[0], points, gamma=2.0)[0, 0], np.sum(a[0] * np.exp(-2 * (x[0, 0] - points) ** 2))
    )
    with pytest.raises(ValueError, match="give gamma="):
        nn.kaf(x, np.ones(1), np.zeros(1))


@JIT
@pytest.mark.parametrize("order", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("knots", ["uniform", "random", "clamped", "repeated"])
def test_splines_like_scipy(knots, order, jit, rng):
    grid = {
        "uniform": np.linspace(-2, 3, 12), "random": np.sort(rng.uniform(-2, 3, 12)),
        "clamped": np.concatenate([[-1.0] * order, np.linspace(-1, 1, 7), [1.0] * order]),
        "repeated": np.array([-2.0, -1, -1, 0, 0.5, 0.5, 1, 2, 3, 4]),
    }[knots]  # fmt: skip
    x = np.concatenate([rng.uniform(grid[0], grid[-1], 50), grid, [grid[0] - 1, grid[-1] + 1]])
    found = jit(lambda x: nn.bspline_basis(x, grid, order))(x)
    assert found.shape == (len(x), len(grid) - order - 1)
    slope = jit(lambda x: wl.jvp(lambda x: nn.bspline_basis(x, grid, order), (x,), (np.ones(len(x)),))[1])(x)
    inner = ~np.isin(x, grid)  # at knots, limits come from one side or the other
    for i in range(found.shape[1]):
        element = BSpline.basis_element(grid[i : i + order + 2], extrapolate=False)
        outside = (x < grid[i]) | (x > grid[i + order + 1])
        expected, tangent = (np.where(outside, 0, np.nan_to_num(element(x, nu))) for nu in (0, 1))
        np.testing.assert_allclose(found[inner, i], expected[inner], atol=1e-13)
        np.testing.assert_allclose(slope[inner, i], tangent[inner], atol=1e-11)
    within = (x >= grid[order]) & (x <= grid[-order - 1])
    np.testing.assert_allclose(found.sum(-1)[within], 1, rtol=1e-13)


def test_splines_with_grids_of_their_own(rng):
    x, grid = rng.uniform(-1, 1, (5, 2)).astype(np.float32), np.stack([np.linspace(-1, 1, 8), np.linspace(-2, 2, 8)])
    both = nn.bspline_basis(x, grid)
    assert both.shape == (5, 2, 4) and both.dtype == np.float32
    for i in range(2):
        np.testing.assert_allclose(both[:, i], nn.bspline_basis(x[:, i], grid[i]), rtol=1e-6)
    with pytest.raises(ValueError, match="degree 3 takes at least 5 knots"):
        nn.bspline_basis(x, np.arange(4.0))
