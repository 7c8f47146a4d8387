"""Taylor mode: `jet` and `nth_derivative` against mpmath, closed forms, and forward mode nested in itself."""

import math
import sys

import mpmath
import numpy as np
import pytest
import scipy.special as special

import wonderland as wl
import wonderland.numpy as wnp
import wonderland.scipy.linalg as linalg
from wonderland.core import tree
from wonderland.core.primitive import registry
from wonderland.testing import op_table
from wonderland.testing.check_grads import random_like
from wonderland.testing.op_samples import assert_close, of_each_kind, samples
from wonderland.testing.op_table import NUMPY, TABLE

op_table.load()


def smooth(x):
    return np.tanh(np.sin(x)) * np.exp(x)


def nested(f, n):
    """The n-th derivative by forward mode in forward mode."""
    for _ in range(n):
        f = (lambda g: lambda x: wl.jvp(g, (x,), (np.ones_like(x),))[1])(f)
    return f


def coefficients(f, x, order, direction=1.0):
    out, series = wl.jet(f, (x,), ([direction] + [None] * (order - 1),), factorial_scaled=False)
    return np.array([out, *series])


# Numbers that aren't ours --------------------------------------------------------------------------------------------

mpf = mpmath.mpf


def second_bessel(x, sign):
    """K0(x), or -pi/2 Y0(x) with sign -1, by DLMF 10.31.2 and 10.8.2: mpmath's limits over orders take a minute."""
    term, factor, total, k = mpf(1), -mpmath.log(x / 2) - mpmath.euler, mpf(0), 0
    while abs(term) > mpmath.eps:
        total += term * factor
        k += 1
        term *= sign * (x / 2 / k) ** 2
        factor += mpf(1) / k
    return total


ANALYTIC = {
    "exp": (np.exp, mpmath.exp, -1.3, 0.4),
    "expm1": (np.expm1, mpmath.expm1, -1e-3, 0.4),
    "exp2": (np.exp2, lambda x: mpf(2) ** x, 0.7),
    "log": (np.log, mpmath.log, 0.3, 2.0),
    "log1p": (np.log1p, mpmath.log1p, -0.4, 1e-3, 0.7),
    "log2": (np.log2, lambda x: mpmath.log(x, 2), 0.7),
    "log10": (np.log10, mpmath.log10, 0.7),
    "sqrt": (np.sqrt, mpmath.sqrt, 0.4, 3.0),
    "cbrt": (np.cbrt, mpmath.cbrt, 0.4),
    "square": (np.square, lambda x: x * x, 0.4, 0.0),
    "reciprocal": (np.reciprocal, lambda x: 1 / x, 0.4, -2.0),
    "sin": (np.sin, mpmath.sin, 0.4, 5.0),
    "cos": (np.cos, mpmath.cos, 0.4, 5.0),
    "tan": (np.tan, mpmath.tan, 0.4),
    "arcsin": (np.arcsin, mpmath.asin, 0.4, -0.7),
    "arccos": (np.arccos, mpmath.acos, 0.4),
    "arctan": (np.arctan, mpmath.atan, 0.4, -3.0),
    "arctan2": (lambda x: np.arctan2(x, 2.0), lambda x: mpmath.atan2(x, 2), 0.4),
    "sinh": (np.sinh, mpmath.sinh, 0.4),
    "cosh": (np.cosh, mpmath.cosh, 0.4),
    "tanh": (np.tanh, mpmath.tanh, 0.4, 3.0),
    "arcsinh": (np.arcsinh, mpmath.asinh, 0.4, 5.0),
    "arccosh": (np.arccosh, mpmath.acosh, 1.7),
    "arctanh": (np.arctanh, mpmath.atanh, 0.4),
    "hypot": (lambda x: np.hypot(x, 2.0), lambda x: mpmath.hypot(x, 2), 0.4),
    "sinc": (np.sinc, mpmath.sincpi, 0.4, 0.0),
    "logaddexp": (lambda x: np.logaddexp(x, 0.25), lambda x: mpmath.log(mpmath.exp(x) + mpmath.exp(0.25)), 0.4),
    "x^7": (lambda x: x**7, lambda x: x**7, 0.4, 0.0),
    "x^-3": (lambda x: x**-3, lambda x: x**-3, 0.4),
    "x^2.5": (lambda x: x**2.5, lambda x: x ** mpf(2.5), 0.4),
    "2.5^x": (lambda x: 2.5**x, lambda x: mpf(2.5) ** x, 0.4),
    "x^x": (lambda x: x**x, lambda x: x**x, 0.4),
    "erf": (special.erf, mpmath.erf, 0.4, 2.0),
    "erfc": (special.erfc, mpmath.erfc, 0.4),
    "erfi": (special.erfi, mpmath.erfi, 0.4),
    "erfinv": (special.erfinv, mpmath.erfinv, 0.4),
    "erfcx": (special.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), 0.4),
    "ndtr": (special.ndtr, mpmath.ncdf, 0.4),
    "log_ndtr": (special.log_ndtr, lambda x: mpmath.log(mpmath.ncdf(x)), 0.4),
    "expit": (special.expit, lambda x: 1 / (1 + mpmath.exp(-x)), 0.4, -30.0, 30.0),
    "logit": (special.logit, lambda x: mpmath.log(x / (1 - x)), 0.3),
    "entr": (special.entr, lambda x: -x * mpmath.log(x), 0.4),
    "gamma": (special.gamma, mpmath.gamma, 1.7),
    "gammaln": (special.gammaln, mpmath.loggamma, 1.7, 4.0),
    "digamma": (special.digamma, mpmath.digamma, 1.7),
    "j0": (special.j0, lambda x: mpmath.besselj(0, x), 1.7, 0.0),
    "i0": (special.i0, lambda x: mpmath.besseli(0, x), 1.7),
    "y0": (special.y0, lambda x: second_bessel(x, -1) * -2 / mpmath.pi, 1.7),
    "k0": (special.k0, lambda x: second_bessel(x, 1), 1.7),
    "exp1": (special.exp1, mpmath.e1, 0.7),
    "expi": (special.expi, mpmath.ei, 0.7),
}


@pytest.mark.parametrize("name", ANALYTIC)
def test_analytic_functions_to_order_10(name):
    f, exact, *points = ANALYTIC[name]
    with mpmath.workdps(25):  # of the result: mpmath takes its differences in eleven times as many
        for x in points:
            expected = [float(c) for c in mpmath.taylor(exact, mpf(x), 10)]
            np.testing.assert_allclose(coefficients(f, x, 10), expected, rtol=1e-13, atol=0)


CLOSED = {  # of t^k, around the point
    "exp": (np.exp, 0.3, lambda k: math.exp(0.3) / math.factorial(k)),
    "log": (np.log, 2.0, lambda k: -((-0.5) ** k) / k if k else math.log(2.0)),
    "log1p": (np.log1p, 0.0, lambda k: -((-1.0) ** k) / k if k else 0.0),
    "1/(1 - x)": (lambda x: 1 / (1 - x), 0.0, lambda k: 1.0),
    "sqrt": (np.sqrt, 1.0, lambda k: float(special.binom(0.5, k))),
    "x^2.5": (lambda x: x**2.5, 1.0, lambda k: float(special.binom(2.5, k))),
    "tan": (np.tan, 0.0, lambda k: float(mpmath.taylor(mpmath.tan, 0, k)[k])),
    "arctanh": (np.arctanh, 0.0, lambda k: 1.0 / k if k % 2 else 0.0),
    "erf": (
        special.erf, 0.0,
        lambda k: (-1) ** (k // 2) * 2 / math.sqrt(math.pi) / k / math.factorial(k // 2) if k % 2 else 0.0,
    ),
    "x exp(-x)": (lambda x: x * np.exp(-x), 0.0, lambda k: -((-1.0) ** k) / math.factorial(k - 1) if k else 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_to_order_20(name):
    f, x, coefficient = CLOSED[name]
    with mpmath.workdps(60):
        expected = [coefficient(k) for k in range(21)]
    np.testing.assert_allclose(coefficients(f, x, 20), expected, rtol=1e-12, atol=1e-17)


def test_derivatives_of_compositions_to_order_20():
    with mpmath.workdps(60):
        exact = mpmath.taylor(lambda x: mpmath.tanh(mpmath.sin(x)) * mpmath.exp(x), mpf(0.7), 20)
    expected = np.array([float(c) for c in exact])
    np.testing.assert_allclose(coefficients(smooth, 0.7, 20), expected, rtol=1e-11)
    derivative, last = wl.nth_derivative(smooth, 20), expected[20] * math.factorial(20)
    np.testing.assert_allclose([derivative(0.7), wl.jit(derivative)(0.7)], [last, last], rtol=1e-11)


# Every primitive -----------------------------------------------------------------------------------------------------

ORDER = 4


def of_chosen(function, args, chosen):
    """A function of the chosen operands, the others fixed."""

    def f(*values):
        moved = list(args)
        for i, v in zip(chosen, values, strict=True):
            moved[i] = v
        return function(*moved)

    return f


def along(f, primals, path):
    """f on a path, as a function of t."""

    def position(x, terms, t):
        change = 0.0
        for c in reversed(terms):
            change = (change + c) * t
        return x + change

    return lambda t: f(*[position(x, terms, t) for x, terms in zip(primals, path, strict=True)])


ROWS = [row for row in TABLE if row.name != "custom_linear"]  # which has no forward mode


def named(value):
    return str(value).replace(" ", "_")


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_every_primitive_agrees_with_nested_forward_mode(row):
    """For real and complex numbers in shapes of every kind."""
    agrees_with_nested_forward_mode([*of_each_kind(row, "float64"), *of_each_kind(row, "complex128")])


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS + NUMPY, ids=named)
def test_everything_agrees_with_nested_forward_mode(row):
    """In every shape in the table, and NumPy's functions."""
    agrees_with_nested_forward_mode(samples(row, ["float64", "complex128"], ("contiguous",)))


def agrees_with_nested_forward_mode(chosen_samples):
    """Along a curved path, in the first four orders; of complex numbers, in which the rules are the same, in three."""
    for s in chosen_samples:
        args, rng = s.args(), np.random.default_rng(0)
        chosen = s.differentiated(args)
        if not chosen:
            continue
        primals = [args[i] for i in chosen]
        order = ORDER if s.dtype == "float64" else ORDER - 1
        path = [[0.3 * random_like(x, rng) for _ in range(order)] for x in primals]

        f = of_chosen(s.function, args, chosen)
        with np.errstate(all="ignore"):
            out, series = wl.jet(f, primals, path, factorial_scaled=False)
            structure = tree.flatten(out)[1]
            expected = along(f, primals, path)
            assert_close(out, expected(0.0), f"{s}: value", 1e-13, dtypes=False)
            for k in range(1, order + 1):
                expected = nested(expected, 1)
                found = tree.leaves(series)[k - 1 :: order] if structure.kind else [series[k - 1]]
                scaled = [np.asarray(v) / math.factorial(k) for v in tree.leaves(expected(0.0))]
                assert_close(found, scaled, f"{s}: order {k}", 1e-10, dtypes=False)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=named)
def test_every_primitive_compiled(row):
    for s in samples(row, ["float64"], ("contiguous",)):
        args, rng = s.args(), np.random.default_rng(0)
        chosen = s.differentiated(args)
        primals = [args[i] for i in chosen]
        path = [[0.3 * random_like(x, rng) for _ in range(3)] for x in primals]
        f = of_chosen(s.function, args, chosen)
        if chosen:
            with np.errstate(all="ignore"):
                expected = wl.jet(f, primals, path)
                found = wl.jet(of_chosen(wl.jit(s.function), args, chosen), primals, path)
                assert_close(found, expected, f"{s}: jet of jit", 1e-11, dtypes=False)
                found = wl.jit(lambda path, f=f, primals=primals: wl.jet(f, primals, path))(path)
                assert_close(found, expected, f"{s}: jit of jet", 1e-11, dtypes=False)


def test_linear_and_piecewise_linear_operations_round_nothing():
    x, terms = np.array([3.0, -1.0, 2.0]), [np.array([0.1, 0.2, 0.3]) * k for k in range(1, 8)]
    for f, g in (
        (np.abs, lambda c: c * [1, -1, 1]), (np.sort, lambda c: c[[1, 2, 0]]),
        (lambda x: np.maximum(x, 0), lambda c: c * [1, 0, 1]),
        (np.cumsum, np.cumsum), (lambda x: x[::-1] - x, lambda c: c[::-1] - c), (np.max, lambda c: c[0]),
    ):  # fmt: skip
        _, series = wl.jet(f, (x,), (terms,), factorial_scaled=False)
        assert all(np.array_equal(found, g(c)) for found, c in zip(series, terms, strict=True))


# Cost ----------------------------------------------------------------------------------------------------------------


def equations(f, n, x=0.7):
    return len(wl.trace(wl.nth_derivative(f, n))(x).equations)


@pytest.mark.parametrize(
    "f", [smooth, np.sin, np.tan, np.sqrt, lambda x: x**2.5, lambda x: 1 / (1 + np.exp(-x)), special.erf, np.arcsin]
)
def test_cost_grows_as_the_square_of_the_order(f):
    counts = [equations(f, n) for n in (8, 16, 32)]
    assert counts[1] <= 4 * counts[0] and counts[2] <= 4 * counts[1]


def test_matrices_need_products_as_the_square_of_the_order():
    a, b = np.diag([4.0, 3.0, 2.0]) + 0.1, np.ones((3, 3)) * 0.2

    def factor(t):
        return np.linalg.cholesky(a + np.sin(t) * b)

    counts = [equations(factor, n, 0.3) for n in (4, 8, 16)]
    assert counts[1] <= 4 * counts[0] and counts[2] <= 4 * counts[1]


def test_structural_zeros_cost_nothing():
    """What doesn't depend on the variable isn't expanded, and a line has no second coefficient."""
    program = wl.trace(lambda x, y: wl.jet(lambda x: np.sin(y) * x + np.exp(y), (x,), ([1.0, 0.0, None],))[1])(0.3, 0.4)
    names = [e.primitive.name for e in program.equations]
    assert names.count("sin") == 1 and "exp" not in names and len(names) <= 3
    _, series = wl.jet(lambda x: 3.0 * x + 1.0, (2.0,), ([1.0, 0.0, 0.0],))
    assert series == [3.0, 0.0, 0.0]


# Everything else a function can be -----------------------------------------------------------------------------------


def python_loop(x):
    while x < 10:
        x = x * np.exp(x)
    return x


def in_place(x):
    y = wnp.zeros_like(x)
    y[0] = x[0] ** 3
    y[1:] += np.sin(x[1:])
    for i in range(len(x)):
        y[i] *= x[i]
    y *= x
    return y


@wl.custom_jvp
def with_rule(x):
    return np.exp(np.sin(x))


@with_rule.defjvp
def _(primals, tangents):
    y = with_rule(primals[0])
    return y, y * np.cos(primals[0]) * tangents[0]


square = wl.jit(lambda y: y * y)


@wl.custom_jvp
def with_jit_in_its_rule(x):
    return np.tan(x)


@with_jit_in_its_rule.defjvp
def _(primals, tangents):
    y = with_jit_in_its_rule(primals[0])
    loop = wl.fori_loop(0, 1, lambda i, c: c + square(y), 1.0)
    return y, loop * tangents[0] if y < 10 else y


FUNCTIONS = {
    "cond": (lambda x: wl.cond(x > 0, lambda y: np.sin(y) * y, lambda y: y**2, x), 0.7),
    "cond, constant in one branch": (lambda x: wl.cond(x > 0, lambda y: y**2, lambda y: 3.0, x), -0.7),
    "switch": (lambda x: wl.switch(1, [np.sin, np.cos, np.exp], x * x), 0.7),
    "scan": (lambda x: wl.scan(lambda c, s: (np.sin(c * x) + s, c * s), x, np.arange(3.0))[0], 0.7),
    "scan's outputs": (lambda x: wl.scan(lambda c, s: (np.sin(c * x) + s * x, c * s), 1.0, np.arange(3.0) * x)[1], 0.7),
    "scan, reversed": (lambda x: wl.scan(lambda c, s: (c * s + 1.0, c), 1.0, np.arange(3.0) * x, reverse=True), 0.7),
    "while_loop": (
        lambda x: wl.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, np.sin(c[1] * x)), (0, x))[1],
        0.7,
    ),
    "fori_loop": (lambda x: wl.fori_loop(0, 4, lambda i, c: np.cos(c) * x + i, x), 0.7),
    "jit": (wl.jit(smooth), 0.7),
    "jit of a loop": (wl.jit(lambda x: wl.fori_loop(0, 4, lambda i, c: np.cos(c) * x + i, x)), 0.7),
    "grad": (wl.grad(smooth), 0.7),
    "jvp": (lambda x: wl.jvp(smooth, (x,), (x * x,)), 0.7),
    "jacobian": (wl.jacobian(lambda x: np.outer(np.sin(x), x)), np.array([0.1, 0.5])),
    "vmap": (wl.vmap(smooth), np.array([0.1, 0.2, 0.7])),
    "jet": (lambda x: wl.nth_derivative(smooth, 2)(x * x), 0.4),
    "in place": (in_place, np.array([0.3, 0.4, 0.5])),
    "python loop": (python_loop, 0.4),
    "custom_jvp": (with_rule, 0.4),
    "jit in a rule": (with_jit_in_its_rule, 0.4),
    "einsum": (lambda x: np.einsum("ij,jk,k->i", np.sin(np.outer(x, x)), np.outer(x, x), x), np.array([0.3, 0.4])),
    "stop_gradient": (lambda x: wl.stop_gradient(np.sin(x)) * x, 0.3),
    "floor": (lambda x: np.floor(3 * x) * x * x, 0.5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_every_kind(name):
    f, x = FUNCTIONS[name]
    for n in range(5):
        assert_close(wl.nth_derivative(f, n)(x), nested(f, n)(x), f"{name}: order {n}", 1e-11)


OUTSIDE = {
    "grad": lambda f, n: lambda x: wl.grad(wl.nth_derivative(f, n - 1))(x),
    "jvp": lambda f, n: lambda x: wl.jvp(wl.nth_derivative(f, n - 1), (x,), (1.0,))[1],
    "jet": lambda f, n: wl.nth_derivative(wl.nth_derivative(f, n - 2), 2),
    "grad of grad": lambda f, n: wl.grad(wl.grad(wl.nth_derivative(f, n - 2))),
    "jit": lambda f, n: wl.jit(wl.nth_derivative(f, n)),
    "jit of grad": lambda f, n: wl.jit(wl.grad(wl.nth_derivative(f, n - 1))),
    "vmap": lambda f, n: lambda x: wl.vmap(wl.nth_derivative(f, n))(np.array([x, x + 1]))[0],
}


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("name", ["smooth", "fori_loop", "while_loop", "jit", "custom_jvp", "cond"])
def test_inside_other_transformations(name, outside):
    f, x = FUNCTIONS.get(name, (smooth, 0.7))
    np.testing.assert_allclose(OUTSIDE[outside](f, 4)(x), nested(f, 4)(x), rtol=1e-11)


def test_custom_vjp_needs_a_forward_rule():
    @wl.custom_vjp
    def f(x):
        return x * x * x

    f.defvjp(lambda x: (x * x * x, x), lambda x, ct: (3 * x * x * ct,))
    with pytest.raises(TypeError, match="custom vjp only"):
        wl.nth_derivative(f, 2)(2.0)
    assert wl.nth_derivative(wl.grad(f), 1)(2.0) == 12.0  # its own rule, expanded
    f.defjvp(lambda p, t: (f(*p), 3 * p[0] * p[0] * t[0]))
    assert wl.nth_derivative(f, 2)(2.0) == 12.0


def test_matrix_functions_to_order_8():
    """Of a + t b against the same with other eigenvalues: f(a) through the eigenvalues of commuting matrices."""
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    w, v = np.array([1.0, 1.5, 2.5, 4.0]), np.array([0.3, -0.2, 0.5, 0.1])
    a, b = (q * w) @ q.T, (q * v) @ q.T
    cases = {
        "inv": (np.linalg.inv, lambda x: 1 / x),
        "expm": (linalg.expm, np.exp),
        "pinv": (np.linalg.pinv, lambda x: 1 / x),
        "solve": (lambda m: np.linalg.solve(m, np.eye(4)), lambda x: 1 / x),
    }
    for name, (f, scalar) in cases.items():
        _, series = wl.jet(f, (a,), ([b] + [None] * 7,))
        _, each = wl.jet(scalar, (w,), ([v] + [None] * 7,))
        for found, values in zip(series, each, strict=True):
            np.testing.assert_allclose(found, (q * values) @ q.T, rtol=1e-10, atol=1e-9, err_msg=name)
    for f, scalar in (
        (np.linalg.eigvalsh, lambda w: w), (np.linalg.det, np.prod),
        (lambda m: np.linalg.slogdet(m)[1], lambda w: np.sum(np.log(w))),
        (lambda m: np.sum(np.log(np.diag(np.linalg.cholesky(m)))), lambda w: 0.5 * np.sum(np.log(w))),
        (lambda m: np.linalg.svd(m)[1][::-1], lambda w: w),
    ):  # fmt: skip
        _, series = wl.jet(f, (a,), ([b] + [None] * 7,))
        _, expected = wl.jet(scalar, (w,), ([v] + [None] * 7,))
        for found, value in zip(series, expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-9)


# Singular points -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (np.sqrt, [np.inf, -np.inf, np.inf, -np.inf]),
        (lambda x: x**0.5, [np.inf, -np.inf, np.inf, -np.inf]),
        (lambda x: x**2.5, [0.0, 0.0, np.inf, -np.inf]),
        (lambda x: x**3, [0.0, 0.0, 6.0, 0.0]),
        (lambda x: x**3.0, [0.0, 0.0, 6.0, 0.0]),
        (lambda x: x**0, [0.0, 0.0, 0.0, 0.0]),
        (lambda x: x ** np.array([0, 1, 2, 3]), [[0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 6], [0, 0, 0, 0]]),
        (lambda x: (x + x * x) ** np.array([2.0, 3.0]), [[0, 0], [2, 0], [12, 6], [24, 72]]),
        (lambda x: x**-1, [-np.inf, np.inf, -np.inf, np.inf]),
        (lambda x: 1 / x, [-np.inf, np.inf, -np.inf, np.inf]),
        (np.log, [np.inf, -np.inf, np.inf, -np.inf]),
        (np.abs, [0.0, 0.0, 0.0, 0.0]),
        (lambda x: np.maximum(x, -x * x), [0.5, -1.0, 0.0, 0.0]),
        (np.sinc, [0.0, -(np.pi**2) / 3, 0.0, np.pi**4 / 5]),
    ],
)
def test_at_zero(f, expected):
    for g in (f, wl.jit(f)):
        _, series = wl.jet(g, (0.0,), ([1.0, 0.0, 0.0, 0.0],))
        np.testing.assert_allclose(np.array(series), np.array(expected), rtol=1e-14)


def test_a_branch_that_is_not_taken_contributes_nothing():
    def f(x):
        return np.where(x > 0, np.sqrt(np.abs(x)) * np.log(np.abs(x)), x * x)

    x = np.array([0.0, 2.0])
    third = wl.nth_derivative(f, 2)(x)
    assert third[0] == 2.0 and np.isfinite(third[1])
    gradient = wl.grad(lambda x: np.sum(wl.nth_derivative(f, 2)(x)))(x)
    assert gradient[0] == 0.0 and np.isfinite(gradient[1])


def test_a_point_that_does_not_move():
    """Series of zeros give zeros, at singular points too."""
    _, series = wl.jet(lambda x, y: np.sqrt(x) + x**0.5 + y, (np.zeros(2), 1.0), ([np.zeros(2)] * 3, [1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(series, [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    g = wl.jit(lambda t: wl.jet(lambda x: np.sqrt(x) + x**0.5, (np.zeros(2),), ([t, t, t],))[1])
    np.testing.assert_array_equal(g(np.zeros(2)), np.zeros((3, 2)))


# What comes in and goes out -------------------------------------------------------------------------------------------


def test_convention():
    """As `jax.experimental.jet`: terms are derivatives; unscaled, Taylor coefficients."""
    h = [0.5**3, 3 * 0.5**2, 6 * 0.5, 6.0]  # z^3 and its derivatives at 0.5
    out, (f1, f2, f3) = wl.jet(np.sin, (h[0],), (h[1:],))
    s, c = np.sin(h[0]), np.cos(h[0])
    assert out == s
    np.testing.assert_allclose(f1, c * h[1])
    np.testing.assert_allclose(f2, -s * h[1] ** 2 + c * h[2])
    np.testing.assert_allclose(f3, -c * h[1] ** 3 - 3 * s * h[1] * h[2] + c * h[3])
    _, plain = wl.jet(np.sin, (h[0],), ([h[1], h[2] / 2, h[3] / 6],), factorial_scaled=False)
    np.testing.assert_allclose(plain, [f1, f2 / 2, f3 / 6])


def test_trees():
    def f(p, x):
        return {"a": p["w"] * x + p["b"][0], "b": (x**2, 3)}

    primals = ({"w": np.array([1.0, 2.0]), "b": [0.5]}, 2.0)
    series = ({"w": [np.array([1.0, 0.0]), None], "b": [[1.0, 1.0]]}, None)
    out, terms = wl.jet(f, primals, series)
    np.testing.assert_array_equal(out["a"], [2.5, 4.5])
    np.testing.assert_array_equal(terms["a"], [[3.0, 1.0], [1.0, 1.0]])
    assert terms["b"] == ([0.0, 0.0], [0, 0])
    again, _ = wl.jet(f, primals, ({"w": None, "b": [[1.0]]}, [2.0]))
    assert tree.flatten(again)[1] == tree.flatten(out)[1]


def test_results_fit_as_arguments():
    f, g = (lambda x: {"y": np.sin(x), "z": x * x}), (lambda d: d["y"] * np.exp(d["z"]))
    out, terms = wl.jet(f, (0.3,), ([1.0, 0.0, 0.0],))
    _, composed = wl.jet(g, (out,), (terms,))
    np.testing.assert_allclose(composed, wl.jet(lambda x: g(f(x)), (0.3,), ([1.0, 0.0, 0.0],))[1], rtol=1e-14)


@wl.register_mutable
class Model:
    def __init__(self):
        self.w = np.array([1.0, 2.0])
        self.calls = np.array(0)


def test_mutable_arguments():
    def f(model, x):
        model.calls = model.calls + 1
        return np.sum(np.sin(model.w * x))

    model = Model()
    value = wl.nth_derivative(f, 3, argnum=1)(model, 0.5)
    np.testing.assert_allclose(value, -np.sum(model.w**3 * np.cos(model.w * 0.5)))
    assert model.calls == 1
    terms = Model()
    terms.w, terms.calls = [np.ones(2), np.zeros(2)], None
    _, series = wl.jet(f, (model, 0.5), (terms, None))
    np.testing.assert_allclose(series[1], -np.sum(0.25 * np.sin(model.w * 0.5)))


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 0, 3)])
def test_dtypes_and_shapes(dtype, shape):
    x = np.full(shape, 0.4, dtype)
    for n in range(4):
        for f in (wl.nth_derivative(smooth, n), wl.jit(wl.nth_derivative(smooth, n))):
            found = f(x)
            assert found.dtype == dtype and found.shape == shape
            np.testing.assert_allclose(found, np.full(shape, nested(smooth, n)(0.4)), rtol=1e-5)


def test_complex_functions():
    z = 0.4 + 0.3j
    np.testing.assert_allclose(wl.nth_derivative(lambda z: np.exp(2 * z) / z, 1)(z), np.exp(2 * z) * (2 / z - 1 / z**2))
    # Along a real path: |z(t)|^2 isn't holomorphic, and has derivatives all the same.
    _, series = wl.jet(lambda z: np.abs(z) ** 2, (z,), ([1j, 0j, 0j],))
    np.testing.assert_allclose(series, [2 * 0.3, 2.0, 0.0], atol=1e-15)
    _, series = wl.jet(lambda t: np.real(np.exp(1j * t)), (0.3,), ([1.0, 0.0, 0.0],))
    np.testing.assert_allclose(series, [-np.sin(0.3), -np.cos(0.3), np.sin(0.3)])


def test_views_and_broadcasting():
    x = np.arange(1.0, 13.0).reshape(3, 4)[::2, ::-1].T
    np.testing.assert_allclose(wl.nth_derivative(np.log, 3)(x), 2 / x**3)
    _, series = wl.jet(lambda x, y: x * y + x / y, (x, 2.0), ([np.ones_like(x), None], [1.0, None]))
    np.testing.assert_allclose(series[1], 2 * (1 - 1 / 4) + 2 * x / 8)


def test_order_zero():
    out, series = wl.jet(smooth, (0.3,), ([],))
    assert out == smooth(0.3) and series == []
    assert wl.nth_derivative(smooth, 0)(0.3) == smooth(0.3)


def test_nth_derivative_of_any_result():
    f = wl.nth_derivative(lambda x, n, *, scale=1.0: {"a": scale * x**n, "b": np.ones(2)}, 2)
    found = f(3.0, 4, scale=0.5)
    assert found["a"] == 54.0 and np.array_equal(found["b"], np.zeros(2))
    assert f.__name__ == "nth_derivative(2)(<lambda>)"
    np.testing.assert_allclose(wl.nth_derivative(np.arctan2, 1, argnum=1)(1.0, 2.0), -0.2)
    assert wl.nth_derivative(lambda p: p["x"] ** p["n"], 2)({"x": 2.0, "n": 3}) == 12.0  # integers stay what they are


def test_arguments_are_not_changed():
    x, terms = np.array([1.0, 2.0]), [np.ones(2), np.ones(2)]

    def f(x):
        x *= 2
        return x

    out, series = wl.jet(f, (x,), (terms,))
    assert np.array_equal(x, [1.0, 2.0]) and np.array_equal(out, 2 * x) and np.array_equal(series, np.full((2, 2), 2.0))
    series[0][0] = 5.0  # results are the caller's own
    assert np.array_equal(terms, np.ones((2, 2)))
    same, kept = wl.jet(lambda x: x, (x,), (terms,))
    same[0] = kept[0][0] = 7.0
    assert x[0] == 1.0 and terms[0][0] == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: wl.jet(np.sin, 1.0, [1.0]), "tuple of arguments"),
        (lambda: wl.jet(np.sin, (1.0,), ()), "1 primals and 0 series"),
        (lambda: wl.jet(np.sin, (1.0,), (1.0,)), "list of terms"),
        (lambda: wl.jet(np.sin, (1.0,), (None,)), "no series at all"),
        (lambda: wl.jet(np.multiply, (1.0, 2.0), ([1.0], [1.0, 2.0])), r"different lengths: \[1, 2\]"),
        (lambda: wl.jet(np.sin, (np.ones(3),), ([np.ones(2)],)), r"term 1 of the series of leaf 0 has shape \(2,\)"),
        (lambda: wl.jet(np.sin, (1,), ([1.0],)), "2.0 instead of 2"),
        (lambda: wl.jet(np.sin, (1.0,), ([1j],)), "complex"),
        (lambda: wl.jet(lambda d: d["a"], ({"a": 1.0},), ([1.0],)), "must be like the argument"),
        (lambda: wl.jet(lambda d: d["a"], ({"a": 1.0},), ({"b": [1.0]},)), "like the argument, {'a': array}.* not"),
        (lambda: wl.nth_derivative(np.sin, -1), "from 0 on, not -1"),
        (lambda: wl.nth_derivative(np.sin, 1.5), "from 0 on, not 1.5"),
        (lambda: wl.nth_derivative(np.sin, 2)(1), "2.0 instead of 2"),
        (lambda: wl.nth_derivative(np.sin, 2, argnum=3)(1.0), "argnums=3"),
        (lambda: wl.nth_derivative(np.sin, 2, argnum=(0, 1)), r"argnum is the position of one argument, not \(0, 1\)"),
        (lambda: wl.nth_derivative(np.sin, 200), "factorial_scaled=False"),
    ],
)  # fmt: skip
def test_errors(call, message):
    with pytest.raises(wl.ArgumentError, match=message):
        call()


def test_values_are_not_given_away():
    with pytest.raises(wl.LostDerivativeError):
        wl.nth_derivative(lambda x: float(x), 2)(1.0)
    with pytest.raises(TypeError, match="has no derivative with respect to a"):
        wl.nth_derivative(lambda a: special.gammainc(a, 1.0), 2)(1.0)


@pytest.mark.parametrize("wrap", [lambda f: f, wl.jit])
def test_the_largest_order_in_single_precision(wrap):
    """1/33! is a normal float32, 1/34! isn't."""
    x = np.float32(0.3)
    np.testing.assert_allclose(wrap(wl.nth_derivative(np.sin, 33))(x), np.cos(x), rtol=1e-6)
    for make in (wl.nth_derivative(np.sin, 34), lambda x: wl.jet(np.sin, (x,), ([x] * 34,))):
        with pytest.raises(wl.ArgumentError, match=r"in float32 go up to order 33.*Use float64"):
            wrap(make)(x)
    assert wrap(wl.nth_derivative(lambda x: np.ones(2), 60))(x).tolist() == [0.0, 0.0]


def test_order_200_unscaled():
    _, series = wl.jet(lambda x: 1 / (1 - x), (0.5,), ([1.0] + [None] * 199,), factorial_scaled=False)
    np.testing.assert_allclose(series, 2.0 ** np.arange(2, 202), rtol=1e-12)


def test_deep_chains_of_functions():
    """gammaln leads to digamma and on to zeta(2), zeta(3), ...: a coefficient each."""
    with pytest.raises(RecursionError, match="setrecursionlimit"):
        wl.nth_derivative(special.gammaln, 150)(1.7)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10000)
    try:
        found = wl.nth_derivative(special.gammaln, 100)(1.7)
    finally:
        sys.setrecursionlimit(limit)
    np.testing.assert_allclose(found, math.factorial(99) * special.zeta(100, 1.7), rtol=1e-12)


def test_writing_one_element_costs_one_element():
    """A loop that fills an array doesn't copy it once per element."""
    count = [0]
    primitive = registry["scatter_slice"]
    original = primitive.evaluate

    def counted(*args, **params):
        count[0] += 1
        return original(*args, **params)

    def f(t):
        y = wnp.zeros(50)
        y[:] = t
        for i in range(50):
            y[i] = np.sin(t * i)
        return y

    primitive.evaluate = counted
    try:
        found = wl.nth_derivative(f, 3)(0.2)
    finally:
        primitive.evaluate = original
    i = np.arange(50)
    np.testing.assert_allclose(found, -(i**3) * np.cos(0.2 * i))
    assert count[0] <= 8


def test_taylor_series_solve_an_equation():
    """y' = y^2 - t y: each coefficient of the solution from one more order of the right side."""

    def field(y, t):
        return y * y - t * y

    y = [0.5]
    for k in range(12):
        _, series = wl.jet(field, (y[0], 0.0), (y[1:] + [None], [1.0] + [None] * k), factorial_scaled=False)
        y.append((series[k - 1] if k else field(y[0], 0.0)) / (k + 1))
    with mpmath.workdps(30):
        exact = mpmath.odefun(lambda t, y: y * y - t * y, 0, mpf(0.5))(mpf(0.25))
    np.testing.assert_allclose(np.polynomial.polynomial.polyval(0.25, y), float(exact), rtol=1e-9)


def test_checkpointed_functions_are_those_functions():
    plain = lambda x: np.sin(x) * np.exp(x * x)
    checkpointed = wl.checkpoint(lambda x: np.sin(x) * np.exp(wl.checkpoint_name(x * x, "square")))
    np.testing.assert_allclose(wl.nth_derivative(checkpointed, 6)(0.3), wl.nth_derivative(plain, 6)(0.3), rtol=1e-13)
    np.testing.assert_allclose(wl.jit(wl.nth_derivative(checkpointed, 6))(0.3), wl.nth_derivative(plain, 6)(0.3))
