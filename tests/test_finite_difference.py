"""Difference quotients: shapes as `jacobian` has them, errors as the theory says, and refusals."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.special

import wonderland as wl

SCHEMES = ["forward", "central", "complex_step"]
# The error of the best step, with a constant of a few hundred for derivatives and values of order one.
ERRORS = {
    (np.float64, "forward"): 3e-7, (np.float64, "central"): 3e-9, (np.float64, "complex_step"): 1e-14,
    (np.float32, "forward"): 5e-3, (np.float32, "central"): 5e-4, (np.float32, "complex_step"): 3e-6,
}  # fmt: skip


def wave(x):
    return np.sin(x) * np.exp(-x) + x**3


def slope(x):
    return np.exp(-x) * (np.cos(x) - np.sin(x)) + 3 * x**2


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


class Counted:
    """A function that counts its calls."""

    def __init__(self, f):
        self.f = f
        self.calls = 0

    def __call__(self, *args):
        self.calls += 1
        return self.f(*args)


@wl.register_mutable
class Layer:
    def __init__(self):
        self.weight = np.array([[1.0, -2.0, 0.5], [0.25, 1.5, -1.0]])
        self.bias = np.array([0.1, -0.2])
        self.calls = np.array(0.0)
        self.name = "layer"

    def __call__(self, x):
        self.calls = self.calls + 1
        return np.tanh(self.weight @ x + self.bias)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("x", [0.7, [0.3, -1.1, 2.0], [[0.5, 1.0], [-0.2, 0.0]], np.zeros((2, 0))], ids=str)
def test_values_shapes_and_dtypes(scheme, dtype, x):
    x = np.array(x, dtype)
    found = wl.finite_difference(wave, scheme=scheme)(x)
    expected = np.zeros(x.shape + x.shape)
    for i in np.ndindex(x.shape):
        expected[i + i] = slope(float(x[i]))
    assert found.shape == expected.shape
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, atol=ERRORS[dtype, scheme] * 10, rtol=ERRORS[dtype, scheme])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_along_a_direction(scheme, dtype):
    rng = np.random.default_rng(1)
    x, t = rng.normal(size=(2, 4)).astype(dtype)
    found = wl.finite_difference_jvp(wave, (x,), (t,), scheme)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, slope(x.astype(float)) * t, rtol=0, atol=30 * ERRORS[dtype, scheme])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_the_length_of_the_direction_does_not_count(scheme, size):
    x, t = np.array([0.3, 1.2]), np.array([1.0, -2.0])
    found = wl.finite_difference_jvp(wave, (x,), (size * t,), scheme)
    np.testing.assert_allclose(found / size, slope(x) * t, rtol=1e-6)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("x", [1e-8, 1.0, 1e5, 1e12])
def test_the_step_follows_the_size_of_x(scheme, x):
    if x == 1e-8 and scheme != "complex_step":
        f, expected = lambda x: np.cos(x) + x, 1.0  # small numbers don't make the function small
    else:
        f, expected = lambda x: np.log(x), 1 / x
    np.testing.assert_allclose(wl.finite_difference(f, scheme=scheme)(x), expected, rtol=1e-6)


def test_a_large_complex_step_is_inaccurate_and_not_refused():
    found = wl.finite_difference(np.exp, scheme="complex_step", step=1.0)(0.5)
    np.testing.assert_allclose(found, math.exp(0.5) * math.sin(1.0), rtol=1e-14)


def test_complex_step_has_the_digits_of_the_derivative():
    f = lambda x: np.exp(x) / np.sqrt(np.sin(x) ** 3 + np.cos(x) ** 3)  # Squire and Trapp's example
    import mpmath

    with mpmath.workdps(40):
        g = lambda x: mpmath.exp(x) / mpmath.sqrt(mpmath.sin(x) ** 3 + mpmath.cos(x) ** 3)
        exact = float(mpmath.diff(g, mpmath.mpf(1.5)))
    assert abs(wl.finite_difference(f, scheme="complex_step")(1.5) / exact - 1) < 1e-15
    assert abs(wl.finite_difference(f, scheme="central")(1.5) / exact - 1) < 1e-9
    assert abs(wl.finite_difference(f, scheme="forward")(1.5) / exact - 1) < 1e-6


@pytest.mark.parametrize(("scheme", "order"), [("forward", 1), ("central", 2)])
def test_order_of_the_error(scheme, order):
    errors = [abs(wl.finite_difference(np.exp, scheme=scheme, step=h)(0.5) - math.exp(0.5)) for h in (0.02, 0.01)]
    assert abs(math.log2(errors[0] / errors[1]) - order) < 0.05


@pytest.mark.parametrize("scheme", ["forward", "central"])
def test_the_automatic_step_is_near_the_best(scheme):
    f = lambda x: np.exp(np.sin(3 * x))
    exact = 3 * math.cos(2.1) * math.exp(math.sin(2.1))
    steps = 10.0 ** -np.arange(1, 13)
    errors = [abs(wl.finite_difference(f, scheme=scheme, step=h)(0.7) - exact) for h in steps]
    automatic = abs(wl.finite_difference(f, scheme=scheme)(0.7) - exact)
    assert automatic < 30 * min(errors)


@pytest.mark.parametrize(("scheme", "count"), [("forward", 6), ("central", 11), ("complex_step", 6 + 5)])
def test_calls(scheme, count):
    f = Counted(rosenbrock)
    x = np.array([0.5, -0.3, 1.2, 0.8, -1.0])
    found = wl.finite_difference(f, scheme=scheme)(x)
    assert f.calls == count
    np.testing.assert_allclose(found, scipy.optimize.rosen_der(x), rtol=2e-5)
    f = Counted(rosenbrock)
    wl.finite_difference_jvp(f, (x,), (np.ones(5),), scheme)
    assert f.calls == {"forward": 2, "central": 3, "complex_step": 2 + 5}[scheme]


def test_a_given_step_needs_no_value_in_the_middle():
    f = Counted(rosenbrock)
    wl.finite_difference(f, step=1e-5)(np.ones(4))
    assert f.calls == 8


@pytest.mark.parametrize("scheme", SCHEMES)
def test_trees(scheme):
    def f(p, x):
        return {"y": p["w"] @ x + p["b"], "n": (np.sum(p["w"] ** 2),)}

    p = {"w": np.array([[1.0, 2.0, -1.0], [0.5, 0.25, 3.0]]), "b": np.array([0.5, -0.5])}
    x = np.array([1.0, -2.0, 0.5])
    for argnums in (0, 1, (0, 1), (1,), -1):
        found, expected = (
            d(f, argnums)(p, x) for d in (lambda *a: wl.finite_difference(*a, scheme=scheme), wl.jacobian)
        )
        wl.tree_map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), found, expected)
        wl.tree_map(lambda a, b: (a.shape == b.shape) or pytest.fail("shape"), found, expected)


def test_keywords_and_arguments_that_are_no_arrays():
    f = lambda x, kind, *, power: x**power if kind == "power" else x
    np.testing.assert_allclose(wl.finite_difference(f)(3.0, "power", power=2), 6.0, rtol=1e-8)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_modules(scheme):
    layer, x = Layer(), np.array([0.3, -0.1, 0.7])
    found = wl.finite_difference(lambda layer, x: layer(x), scheme=scheme)(layer, x)
    assert layer.calls == 0  # what the function writes is dropped
    hidden = 1 - np.tanh(layer.weight @ x + layer.bias) ** 2
    np.testing.assert_allclose(found.bias, np.diag(hidden), atol=1e-7)
    np.testing.assert_allclose(found.weight, np.einsum("ij,k->ijk", np.diag(hidden), x), atol=1e-7)
    np.testing.assert_array_equal(found.calls, np.zeros(2))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_integer_results_have_zeros(scheme):
    f = lambda x: (np.argmax(x), x > 0, 2.0 * x, 3.0)
    place, sign, double, constant = wl.finite_difference(f, scheme=scheme)(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(place, [0, 0])
    assert place.dtype.kind == "i"
    assert sign.dtype == bool
    assert not sign.any()
    np.testing.assert_allclose(double, 2 * np.eye(2), rtol=1e-7)
    np.testing.assert_array_equal(constant, [0.0, 0.0])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_integers_in_a_tree_have_zeros(scheme):
    p = {"x": np.array([1.0, 2.0]), "n": 3, "m": np.arange(2)}
    found = wl.finite_difference(lambda p: p["n"] * p["x"] + p["m"], scheme=scheme)(p)
    np.testing.assert_allclose(found["x"], 3 * np.eye(2), rtol=1e-7)
    np.testing.assert_array_equal(found["n"], [0.0, 0.0])
    np.testing.assert_array_equal(found["m"], np.zeros((2, 2)))


@pytest.mark.parametrize("scheme", ["forward", "central"])
def test_complex_arguments(scheme):
    z = np.array([1.0 + 2.0j, -0.5j])
    d = lambda f: wl.finite_difference(f, scheme=scheme)(z)
    np.testing.assert_allclose(d(lambda z: z**2), np.diag(2 * z), atol=1e-6)
    np.testing.assert_allclose(d(lambda z: np.sum(np.abs(z) ** 2)), 2 * z, atol=1e-6)  # the gradient, as grad has it
    np.testing.assert_allclose(
        wl.finite_difference(lambda x: np.exp(1j * x), scheme=scheme)(0.3), 1j * np.exp(0.3j), rtol=1e-6
    )
    t = np.array([0.5 - 1.0j, 2.0 + 0.0j])
    np.testing.assert_allclose(wl.finite_difference_jvp(lambda z: z**2, (z,), (t,), scheme), 2 * z * t, atol=1e-6)


def test_precision_of_the_results_counts():
    f = lambda x: np.sin(x).astype(np.float32)
    x = np.linspace(0.1, 1.0, 4)
    np.testing.assert_allclose(np.diag(wl.finite_difference(f)(x)), np.cos(x), atol=5e-4)
    g = lambda x: np.sin(x * np.ones(3, np.float32))  # a Python number doesn't make it double
    found = wl.finite_difference(g)(0.5)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.cos(0.5), atol=5e-4)


def test_code_that_cannot_be_traced():
    def f(x):
        return scipy.optimize.brentq(lambda y: y**3 + y - float(x), -10, 10, xtol=1e-14)

    y = f(2.0)
    np.testing.assert_allclose(wl.finite_difference(f)(2.0), 1 / (3 * y**2 + 1), rtol=1e-7)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_functions_that_write_to_their_argument(scheme):
    def f(x):
        x *= 2
        x[0] = x[1] ** 2
        return x

    x = np.array([1.0, 3.0])
    np.testing.assert_allclose(wl.finite_difference(f, scheme=scheme)(x), [[0.0, 24.0], [0.0, 2.0]], atol=1e-5)
    np.testing.assert_array_equal(x, [1.0, 3.0])


@pytest.mark.parametrize("scheme", ["forward", "central"])
def test_functions_that_return_the_same_array_each_time(scheme):
    out = np.empty(2)
    found = wl.finite_difference(lambda x: np.multiply(x, 3.0, out=out), scheme=scheme)(np.array([1.0, 2.0]))
    np.testing.assert_allclose(found, 3 * np.eye(2), rtol=1e-7)


@pytest.mark.parametrize("view", [lambda x: x[::2, ::-1], lambda x: x.T, lambda x: x[:, 1], np.asfortranarray])
def test_layouts(view):
    x = view(np.linspace(0.1, 2.0, 12).reshape(3, 4))
    f = lambda x: np.sin(x).sum(0)
    np.testing.assert_allclose(wl.finite_difference(f)(x), wl.jacobian(f)(x), atol=1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_inside_other_transformations(scheme):
    x = np.array([0.4, 1.1, -0.6])
    jacobian = wl.finite_difference(wave, scheme=scheme)
    np.testing.assert_allclose(wl.jit(jacobian)(x), np.diag(slope(x)), atol=2e-6)
    np.testing.assert_allclose(wl.vmap(jacobian)(x), slope(x), atol=2e-6)
    second = np.exp(-x) * (-2 * np.cos(x)) + 6 * x
    np.testing.assert_allclose(wl.vmap(wl.grad(jacobian))(x), second, atol=2e-6)
    np.testing.assert_allclose(wl.grad(jacobian)(0.4), second[0], atol=2e-6)
    np.testing.assert_allclose(wl.jvp(jacobian, (0.4,), (1.0,))[1], second[0], atol=2e-6)
    of_slope = wl.finite_difference(lambda x: wl.jvp(wave, (x,), (np.ones_like(x),))[1], scheme=scheme)
    np.testing.assert_allclose(of_slope(np.float64(0.4)), second[0], atol=2e-6)
    along = lambda x: wl.finite_difference_jvp(wave, (x,), (np.ones(3),), scheme)
    np.testing.assert_allclose(wl.jit(along)(x), slope(x), atol=2e-6)


def test_grad_of_a_function_with_decisions():
    f = lambda x: np.exp(x) if x > 0 else np.sin(x)
    for x, first in ((0.5, math.exp(0.5)), (-0.5, math.cos(0.5))):
        np.testing.assert_allclose(wl.finite_difference(f, scheme="complex_step")(x), first, rtol=1e-14)
    np.testing.assert_allclose(wl.grad(wl.finite_difference(f, scheme="complex_step"))(0.5), math.exp(0.5), rtol=1e-14)


@pytest.mark.parametrize(
    "f",
    [
        np.abs,
        np.sign,
        lambda x: x * np.abs(x),
        lambda x: (x * np.conj(x)) ** 2,
        lambda x: np.real(x) ** 2 + x,
        lambda x: np.sqrt(np.abs(x)) + 1e6,
        lambda x: np.linalg.cholesky(np.eye(2) * x[..., None, None])[..., 0, 0],
        lambda x: np.linalg.qr(np.eye(2) * x[..., None, None])[1][..., 0, 0],
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, wl.jit, wl.vmap], ids=["eager", "jit", "vmap"])
def test_functions_that_are_not_analytic_are_refused(f, wrap):
    with pytest.raises(wl.ArgumentError, match=r'analytic(.|\n)*scheme="central"'):
        wrap(wl.finite_difference(f, scheme="complex_step"))(np.array([0.7, 1.3]))


@pytest.mark.parametrize(
    "f", [lambda x: np.sin(1e7 * x), lambda x: 1e9 + x, lambda x: np.log(x), lambda x: x**20, lambda x: 0 * x]
)
def test_analytic_functions_are_not_refused_where_differences_fail(f):
    found = wl.finite_difference(f, scheme="complex_step")(1e-3)
    np.testing.assert_allclose(found, wl.grad(f)(1e-3), rtol=1e-9)


def test_functions_that_lose_the_imaginary_part_are_refused():
    def filled(x):
        out = np.zeros(2)
        out[:] = x
        return out

    for f in (lambda x: np.arctan2(x, 1.0), filled, lambda x: math.sin(x[0]), np.floor):
        with pytest.raises(wl.ArgumentError, match="can't compute with them"):
            wl.finite_difference(f, scheme="complex_step")(np.ones(2))
    with pytest.raises(wl.ArgumentError, match="can't compute with them"):
        wl.jit(wl.finite_difference(lambda x: np.arctan2(x, 1.0), scheme="complex_step"))(np.ones(2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wl.finite_difference(np.sin)(2), r"dtype int64: use 2\.0 instead"),
        (
            lambda: wl.finite_difference(np.sin, scheme="backward"),
            "scheme is one of 'forward', 'central', 'complex_step'",
        ),
        (lambda: wl.finite_difference(np.sin, step=0.0), 'step is "auto" or a positive number, not 0'),
        (lambda: wl.finite_difference(np.sin, step="small"), "step is"),
        (lambda: wl.finite_difference(np.sin, step=float("nan")), "step is"),
        (lambda: wl.finite_difference(np.sin, step=True), "step is"),
        (lambda: wl.finite_difference(np.sin, step=1e-30)(1.0), r"x \+ h is x for a step of 1e-30"),
        (lambda: wl.finite_difference(np.sin, 1)(1.0), "argnums=1"),
        (lambda: wl.finite_difference(np.sin, scheme="complex_step")(1j), "complex128 is complex already"),
        (
            lambda: wl.finite_difference(np.sin, scheme="complex_step")(np.float16(1)),
            "float16 has no complex counterpart",
        ),
        (lambda: wl.finite_difference(lambda x: 1j * x, scheme="complex_step")(1.0), "complex results"),
        (lambda: wl.finite_difference_jvp(np.sin, 1.0, 1.0), "tuples"),
        (lambda: wl.finite_difference_jvp(np.sin, (1.0,), ()), "1 primals and 0 tangents"),
        (lambda: wl.finite_difference_jvp(np.sin, (1.0,), (np.ones(2),)), "shape"),
        (lambda: wl.finite_difference_jvp(np.sin, (1,), (1.0,)), "no derivative"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(wl.ArgumentError, match=message):
        call()


def test_a_tangent_of_none_is_zero():
    f = lambda x, y: x * y
    np.testing.assert_allclose(wl.finite_difference_jvp(f, (2.0, 3.0), (1.0, None)), 3.0, rtol=1e-9)
    np.testing.assert_array_equal(wl.finite_difference_jvp(f, (2.0, 3.0), (None, None)), 0.0)
