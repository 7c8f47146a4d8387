"""Special functions beyond their rows of the op table: tails, singular points, higher orders, sums of exponentials."""

import math

import numpy as np
import pytest
import scipy.special as sp

import wonderland as wl
import wonderland.scipy.special as ws
from wonderland.core.errors import LostDerivativeError

INF = np.inf


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def nth(f, order):
    for _ in range(order):
        f = wl.grad(f)
    return f


def hessian(f):
    return wl.jacobian(wl.grad(f))


def exact(f, x, order=1):
    """The derivative in high precision, rounded."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(80):
        return float(mpmath.diff(f(mpmath), mpmath.mpf(float(x)), order))


FUNCTIONS = [
    (sp.erf, lambda m: m.erf, (-5.0, -1e-8, 0.0, 0.5, 3.0, 9.0)),
    (sp.erfc, lambda m: m.erfc, (-3.0, 0.0, 2.0, 20.0)),
    (sp.erfcx, lambda m: lambda x: m.exp(x * x) * m.erfc(x), (-4.0, 0.0, 3.0, 30.0, 51.0, 1e4, 1e9)),
    (sp.erfi, lambda m: m.erfi, (-2.0, 0.0, 3.0)),
    (sp.erfinv, lambda m: m.erfinv, (-0.999, -0.3, 0.0, 0.9)),
    (sp.ndtr, lambda m: m.ncdf, (-30.0, -2.0, 0.0, 3.0, 8.0)),
    (sp.log_ndtr, lambda m: lambda x: m.log(m.ncdf(x)), (-200.0, -40.0, -3.0, -1e-3, 1e-3, 2.0, 8.0)),
    (sp.expit, lambda m: lambda x: 1 / (1 + m.exp(-x)), (-30.0, 0.0, 2.0, 30.0)),
    (sp.log_expit, lambda m: lambda x: -m.log(1 + m.exp(-x)), (-30.0, -2.0, 0.0, 30.0)),
    (sp.logit, lambda m: lambda x: m.log(x / (1 - x)), (1e-3, 0.3, 0.5, 1 - 2.0**-20)),
    (sp.gammaln, lambda m: lambda x: m.log(abs(m.gamma(x))), (1e-3, 0.5, 1.0, 2.0, 30.5, 1e5, -1.5)),
    (sp.gamma, lambda m: m.gamma, (-1.5, 0.5, 3.0, 20.0)),
    (sp.digamma, lambda m: m.digamma, (1e-2, 0.7, 5.0, 1e4, -1.3)),
    (sp.entr, lambda m: lambda x: -x * m.log(x), (1e-3, 0.3, 2.0)),
    (sp.i0, lambda m: lambda x: m.besseli(0, x), (-3.0, 0.0, 1e-4, 20.0)),
    (sp.i1, lambda m: lambda x: m.besseli(1, x), (-3.0, 0.0, 1e-4, 20.0)),
    (sp.i0e, lambda m: lambda x: m.besseli(0, x) * m.exp(-abs(x)), (-3.0, 1e-4, 20.0, 500.0)),
    (sp.i1e, lambda m: lambda x: m.besseli(1, x) * m.exp(-abs(x)), (-3.0, 1e-4, 20.0, 500.0)),
    (sp.j0, lambda m: lambda x: m.besselj(0, x), (-3.0, 0.0, 1e-4, 20.0)),
    (sp.j1, lambda m: lambda x: m.besselj(1, x), (-3.0, 0.0, 1e-4, 20.0)),
    (sp.expi, lambda m: m.ei, (-1.0, 0.5, 5.0)),
    (sp.exp1, lambda m: m.e1, (0.1, 5.0)),
    (sp.cosm1, lambda m: lambda x: m.cos(x) - 1, (1e-9, 0.5)),
]


@pytest.mark.parametrize(("f", "high", "points"), FUNCTIONS, ids=[f.__name__ for f, _, _ in FUNCTIONS])
def test_derivatives_against_higher_precision(f, high, points):
    for x in points:
        for order in (1, 2, 3):
            expected = exact(high, x, order)
            # Differences of large terms cost digits at the second and third order, but not the result.
            tolerance = (1e-12, 1e-7, 1e-3)[order - 1]
            assert float(nth(f, order)(x)) == pytest.approx(expected, rel=tolerance, abs=1e-30), (x, order)


@pytest.mark.parametrize("f", [sp.expit, sp.ndtr, sp.log_expit, sp.log_ndtr, sp.erf, sp.erfc])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tails_are_finite(f, dtype):
    """No NaN to third order, however far out."""
    x = np.array([-800.0, -100.0, -20.0, 0.0, 20.0, 100.0, 800.0], dtype)
    g = lambda x: np.sum(f(x))
    for order in (1, 2, 3):
        g = (lambda h: lambda x: np.sum(wl.grad(h)(x)))(g)
        out = wl.grad(g)(x) if order < 3 else wl.jit(wl.grad(g))(x)
        assert out.dtype == dtype
        assert np.all(np.isfinite(out)), (order, out)


def test_derivatives_far_out():
    normal = lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    assert wl.grad(sp.ndtr)(-30.0) == pytest.approx(normal(-30.0), rel=1e-12)
    assert wl.grad(sp.ndtr)(30.0) == pytest.approx(normal(30.0), rel=1e-12)
    assert wl.grad(sp.log_ndtr)(30.0) == pytest.approx(normal(30.0), rel=1e-12)
    assert wl.grad(sp.log_ndtr)(-1e8) == pytest.approx(1e8, rel=1e-15)
    assert wl.grad(wl.grad(sp.log_ndtr))(-1e8) == pytest.approx(-1.0, rel=1e-12)
    assert wl.grad(sp.logit)(1e-200) == pytest.approx(1e200, rel=1e-15)
    assert wl.grad(sp.entr)(1e-300) == pytest.approx(300 * math.log(10) - 1, rel=1e-15)
    assert wl.grad(sp.expit)(-700.0) == pytest.approx(math.exp(-700.0), rel=1e-12)
    assert wl.grad(sp.expit)(700.0) == pytest.approx(math.exp(-700.0), rel=1e-12)
    assert wl.grad(sp.expit)(800.0) == wl.grad(sp.expit)(-800.0) == 0.0
    assert wl.grad(sp.log_expit)(-800.0) == 1.0


class TestLimitsAtZero:
    def test_xlogy(self):
        assert wl.value_and_grad(sp.xlogy, (0, 1))(0.0, 2.0) == (0.0, (math.log(2.0), 0.0))
        value, (wrt_x, wrt_y) = wl.value_and_grad(sp.xlogy, (0, 1))(0.0, 0.0)
        assert (value, wrt_x, wrt_y) == (0.0, -INF, 0.0)
        assert wl.grad(lambda y: sp.xlogy(0.0, y))(0.0) == 0.0
        # d^2 / dx dy = 1 / y, from both sides, at x = 0 as elsewhere.
        assert wl.grad(wl.grad(sp.xlogy, 0), 1)(0.0, 2.0) == 0.5
        assert wl.grad(wl.grad(sp.xlogy, 1), 0)(0.0, 2.0) == 0.5
        assert wl.grad(lambda x: np.where(x > 0, sp.xlogy(x, x), 0.0))(0.0) == 0.0

    def test_xlog1py(self):
        assert wl.grad(sp.xlog1py, (0, 1))(0.0, 0.5) == (math.log(1.5), 0.0)
        assert wl.grad(lambda y: sp.xlog1py(0.0, y))(-1.0) == 0.0

    def test_entropies(self):
        assert wl.value_and_grad(sp.entr)(0.0) == (0.0, INF)
        assert wl.grad(sp.rel_entr, (0, 1))(0.3, 0.6) == pytest.approx((math.log(0.5) + 1, -0.5))
        assert wl.grad(lambda y: sp.rel_entr(0.0, y))(0.0) == 0.0
        p, q = np.array([0.2, 0.5, 0.3]), np.array([0.3, 0.3, 0.4])
        np.testing.assert_allclose(wl.grad(lambda q: np.sum(sp.kl_div(p, q)))(q), 1 - p / q)
        assert sp.rel_entr(1.0, -1.0) == wl.jit(sp.rel_entr)(1.0, -1.0) == INF

    def test_logit_and_quantiles_at_the_ends(self):
        assert wl.value_and_grad(sp.logit)(0.0) == (-INF, INF)
        assert wl.value_and_grad(sp.ndtri)(0.0) == (-INF, INF)
        assert wl.jit(sp.ndtri)(1.0) == INF
        x = np.array([1e-300, 1e-10, 0.3, 0.5, 0.9])
        np.testing.assert_allclose(wl.jit(sp.ndtri)(x), sp.ndtri(x), rtol=1e-13, atol=1e-15)
        density = np.exp(-(sp.ndtri(x) ** 2) / 2) / math.sqrt(2 * math.pi)
        np.testing.assert_allclose(wl.grad(lambda x: np.sum(sp.ndtri(x)))(x), 1 / density, rtol=1e-11)

    def test_bessel_functions_at_zero(self):
        """x^n coefficients of the power series: I1 = x/2 + x^3/16, J1 = x/2 - x^3/16."""
        assert [float(nth(sp.i1, n)(0.0)) for n in (1, 2, 3)] == [0.5, 0.0, 0.375]
        assert [float(nth(sp.j1, n)(0.0)) for n in (1, 2, 3)] == [0.5, 0.0, -0.375]
        assert [float(nth(np.i0, n)(0.0)) for n in (1, 2, 3, 4)] == [0.0, 0.5, 0.0, 0.375]

    def test_huber(self):
        r = np.array([-3.0, -1.0, 0.0, 0.5, 1.0, 3.0])
        np.testing.assert_array_equal(wl.grad(lambda r: np.sum(sp.huber(1.0, r)))(r), np.clip(r, -1, 1))
        assert wl.jit(sp.huber)(-1.0, 2.0) == wl.jit(sp.pseudo_huber)(-1.0, 2.0) == INF
        assert wl.grad(sp.pseudo_huber, 1)(2.0, 1e-9) == pytest.approx(1e-9, rel=1e-15)
        assert wl.jit(sp.pseudo_huber)(0.0, 2.0) == sp.pseudo_huber(0.0, 2.0) == 0.0


class TestOfSeveralOperands:
    def test_gamma_family(self):
        a, x = 2.5, np.array([0.5, 2.0, 30.0])
        density = x ** (a - 1) * np.exp(-x) / sp.gamma(a)
        for f, sign in ((sp.gammainc, 1), (sp.gammaincc, -1)):
            np.testing.assert_allclose(wl.grad(lambda x, f=f: np.sum(f(a, x)))(x), sign * density, rtol=1e-12)
        y = np.array([0.1, 0.5, 0.99])
        np.testing.assert_allclose(
            wl.grad(lambda y: np.sum(sp.gammainc(a, sp.gammaincinv(a, y))))(y), np.ones(3), rtol=1e-9
        )
        assert wl.grad(lambda x: sp.gammainc(1.0, x))(0.0) == 1.0

    def test_beta_family(self):
        a, b, x = 2.5, 0.7, np.array([0.1, 0.5, 0.9])
        density = x ** (a - 1) * (1 - x) ** (b - 1) / sp.beta(a, b)
        np.testing.assert_allclose(wl.grad(lambda x: np.sum(sp.betainc(a, b, x)))(x), density, rtol=1e-12)
        assert wl.grad(sp.betaln)(1e6, 2.0) == pytest.approx(-(1 / 1e6 + 1 / (1e6 + 1)), rel=1e-9)
        assert wl.grad(sp.binom)(5.0, 2.0) == pytest.approx(4.5, rel=1e-12)  # n (n - 1) / 2

    @pytest.mark.parametrize(
        ("f", "message"),
        [
            (lambda a: sp.gammainc(a, 2.0), r"scipy\.special\.gammainc has no derivative with respect to a"),
            (lambda b: sp.betainc(2.0, b, 0.5), r"scipy\.special\.betainc has no derivative with respect to b"),
            (lambda v: sp.iv(v, 2.0), r"scipy\.special\.iv has no derivative with respect to v.*stop_gradient\(v\)"),
            (lambda s: ws.zeta(s, 2.0), r"scipy\.special\.zeta has no derivative with respect to x"),
            (lambda s: sp.zeta(s, 2.0), r"scipy\.special\.zeta has no derivative with respect to x"),
            (lambda s: ws.zeta(s), r"zeta\(x, 1\.0\)"),
            (lambda s: sp.zeta(s), r"zeta\(x, 1\.0\)"),
            (lambda x: sp.airye(x)[0], "airye isn't supported"),
        ],
    )
    def test_what_has_no_derivative_says_so(self, f, message):
        with pytest.raises(TypeError, match=message):
            wl.grad(f)(1.5)

    def test_orders_of_bessel_functions(self):
        v, x = np.array([0.0, 0.5, 3.0]), 1.7
        for f, derivative in ((sp.jv, sp.jvp), (sp.yv, sp.yvp), (sp.iv, sp.ivp), (sp.kv, sp.kvp)):
            _, pushed = wl.jvp(lambda x, f=f: f(v, x), (x,), (1.0,))
            np.testing.assert_allclose(pushed, derivative(v, x), rtol=1e-12)
        z = 0.5 + 0.7j
        assert wl.jvp(lambda z: sp.jv(1, z), (z,), (1.0 + 0j,))[1] == pytest.approx(sp.jvp(1, z), rel=1e-12)
        assert wl.jvp(lambda z: sp.ive(1, z), (z,), (1j,))[1] == pytest.approx(
            1j * sp.ivp(1, z) * np.exp(-0.5), rel=1e-12
        )


def test_complex_functions():
    z = np.array([0.5 + 0.3j, -0.2 + 1.1j])
    ones = np.ones(2, complex)
    for f, expected in (
        (sp.erf, 2 / math.sqrt(math.pi) * np.exp(-z * z)), (sp.loggamma, sp.digamma(z)),
        (sp.gamma, sp.gamma(z) * sp.digamma(z)), (sp.erfcx, 2 * z * sp.erfcx(z) - 2 / math.sqrt(math.pi)),
        (sp.log_ndtr, np.exp(-z * z / 2 - sp.log_ndtr(z)) / math.sqrt(2 * math.pi)),
    ):  # fmt: skip
        np.testing.assert_allclose(wl.jvp(f, (z,), (ones,))[1], expected, rtol=1e-13)
    with pytest.raises(TypeError, match="complex numbers"):
        wl.jvp(sp.digamma, (z,), (ones,))


class TestPythonFunctions:
    def test_polygamma(self):
        x = np.array([0.3, 2.0, 7.5])
        for n in range(4):
            slope = wl.grad(lambda x, n=n: np.sum(ws.polygamma(n, x)))(x)
            np.testing.assert_allclose(slope, sp.polygamma(n + 1, x), rtol=1e-13)
        _, pushed = wl.jvp(lambda x: ws.polygamma(np.array([0, 1, 2]), x), (x,), (np.ones(3),))
        np.testing.assert_allclose(pushed, sp.polygamma(np.array([1, 2, 3]), x), rtol=1e-13)
        np.testing.assert_allclose(nth(sp.digamma, 3)(2.5), sp.polygamma(3, 2.5), rtol=1e-13)
        with pytest.raises(ValueError, match="whole numbers"):
            wl.grad(lambda x: ws.polygamma(0.5, x))(1.0)

    def test_combinatorics(self):
        assert wl.value_and_grad(ws.factorial)(4.0)[0] == 24.0
        assert wl.grad(ws.factorial)(4.0) == pytest.approx(24 * sp.digamma(5.0))
        assert wl.value_and_grad(lambda n: ws.comb(n, 2))(6.0) == pytest.approx((15.0, 5.5))
        assert wl.jit(lambda n: ws.comb(n, 8))(6.0) == 0.0
        with pytest.raises(TypeError, match="exact=False"):
            wl.grad(lambda n: ws.comb(n, 2, exact=True))(6.0)
        assert wl.grad(lambda a: ws.multigammaln(a, 2))(3.0) == pytest.approx(sp.digamma(3.0) + sp.digamma(2.5))

    def test_scipys_own_refuse_rather_than_drop_a_derivative(self):
        with pytest.raises(LostDerivativeError, match=r"wl\.lift"):
            wl.grad(lambda x: sp.logsumexp(x))(np.ones(3))

    def test_lift(self):
        def f(x):
            return sp.logsumexp(x) + np.sum(sp.softmax(x) ** 2) + sp.polygamma(1, x[0])

        def g(x):
            return ws.logsumexp(x) + np.sum(ws.softmax(x) ** 2) + ws.polygamma(1, x[0])

        x = np.array([1.0, 2.0, 3.0])
        np.testing.assert_allclose(wl.grad(wl.lift(f))(x), wl.grad(g)(x), rtol=1e-14)

    def test_the_namespace(self):
        assert ws.erf(0.5) == sp.erf(0.5)
        assert ws.airy is sp.airy
        assert {"erf", "logsumexp", "softmax", "expit"} <= set(dir(ws))
        np.testing.assert_array_equal(ws.softmax(np.ones(2)), [0.5, 0.5])


class TestSumsOfExponentials:
    X = np.array([[0.5, -1.0, 2.0], [3.0, 3.0, 3.0], [-800.0, 0.0, 800.0]])

    @pytest.mark.parametrize("axis", [0, 1, -1, None, (0, 1)])
    def test_gradient_is_softmax(self, axis):
        gradient = wl.grad(lambda x: np.sum(ws.logsumexp(x, axis=axis)))(self.X)
        np.testing.assert_allclose(gradient, sp.softmax(self.X, axis=axis), rtol=1e-14)

    def test_second_derivative(self):
        x = self.X[0]
        p = sp.softmax(x)
        np.testing.assert_allclose(hessian(ws.logsumexp)(x), np.diag(p) - np.outer(p, p), atol=1e-15)
        np.testing.assert_allclose(wl.jacobian(ws.softmax)(x), np.diag(p) - np.outer(p, p), atol=1e-15)
        np.testing.assert_allclose(wl.jacobian(ws.log_softmax)(x), np.eye(3) - p, atol=1e-15)
        ties = hessian(ws.logsumexp)(np.zeros(3))
        np.testing.assert_allclose(ties, np.eye(3) / 3 - 1 / 9, atol=1e-15)

    def test_it_keeps_its_digits(self):
        """log(1 + e^-50) = e^-50, where log(sum) of the rounded sum would be 0."""
        x = np.array([0.0, -50.0])
        for run in (lambda f: wl.vmap(f)(x[None])[0], lambda f: wl.jit(f)(x)):
            assert run(ws.logsumexp) == pytest.approx(math.exp(-50), rel=1e-13)
            assert run(ws.log_softmax)[0] == pytest.approx(-math.exp(-50), rel=1e-13)

    def test_rows_that_are_masked_out(self):
        x = np.array([[-INF, -INF], [-INF, 1.0], [0.0, 0.0]])
        for run in (lambda f: f, wl.jit):
            out = run(lambda x: ws.logsumexp(x, axis=1))(x)
            np.testing.assert_allclose(out, [-INF, 1.0, math.log(2)], rtol=1e-15)
            weights = run(wl.grad(lambda x: ws.logsumexp(x, axis=1)[1] + np.sum(ws.logsumexp(x, axis=1)[::2])))(x)
            np.testing.assert_array_equal(weights, [[0, 0], [0, 1], [0.5, 0.5]])
            second = run(wl.grad(lambda x: np.sum(wl.grad(lambda x: np.sum(ws.logsumexp(x, axis=1)))(x) ** 2)))(x)
            assert np.all(np.isfinite(second))
        assert wl.jvp(ws.logsumexp, (x[0],), (np.ones(2),))[1] == 0.0

    def test_infinities_are_scipys(self):
        for x in ([INF, 1.0], [INF, INF], [INF, -INF], [np.nan, 1.0], [0.0, INF], [-INF, -INF], [-INF, 0.0]):
            x = np.array(x)
            np.testing.assert_array_equal(wl.jit(ws.logsumexp)(x), sp.logsumexp(x))
            np.testing.assert_array_equal(wl.jit(ws.log_softmax)(x), sp.log_softmax(x))
            np.testing.assert_array_equal(wl.jit(ws.softmax)(x), sp.softmax(x))

    def test_weights(self):
        a, b = np.array([0.5, 1.0, 800.0]), np.array([2.0, -0.5, 0.0])
        f = lambda a, b: ws.logsumexp(a, b=b)
        total = np.sum(b[:2] * np.exp(a[:2]))
        value, (wrt_a, wrt_b) = wl.value_and_grad(f, (0, 1))(a, b)
        assert value == pytest.approx(np.log(total), rel=1e-15)
        np.testing.assert_allclose(wrt_a, [*(b[:2] * np.exp(a[:2]) / total), 0.0], rtol=1e-14)
        np.testing.assert_allclose(wrt_b[:2], np.exp(a[:2]) / total, rtol=1e-14)
        # A weight of 0 takes part: the derivative with respect to it is exp(a) / sum.
        assert wl.grad(f, 1)(np.array([0.5, 1.0]), np.array([1.0, 0.0]))[1] == pytest.approx(math.exp(0.5))

    def test_signs(self):
        a, b = np.array([[0.5, 1.0], [1.0, 0.5], [1.0, 1.0]]), np.array([2.0, -2.0])
        f = lambda a: ws.logsumexp(a, axis=1, b=b, return_sign=True)
        for out, expected in zip(wl.jit(f)(a), sp.logsumexp(a, axis=1, b=b, return_sign=True), strict=True):
            np.testing.assert_allclose(out, expected, rtol=1e-14)
        gradient = wl.grad(lambda a: np.sum(f(a)[0][:2]))(a)
        terms = b * np.exp(a[:2])
        np.testing.assert_allclose(gradient[:2], terms / np.sum(terms, axis=1, keepdims=True), rtol=1e-13)
        np.testing.assert_array_equal(gradient[2], [0, 0])

    def test_types_and_shapes(self):
        x = self.X.astype(np.float32)
        for f in (ws.logsumexp, ws.softmax, ws.log_softmax):
            assert wl.jit(f)(x).dtype == np.float32
            assert wl.jit(f)(np.arange(3)).dtype == np.float64
            assert wl.grad(lambda x, f=f: np.sum(f(x)))(x).dtype == np.float32
        assert wl.jit(lambda x: ws.logsumexp(x, axis=0, keepdims=True))(x).shape == (1, 3)
        empty = wl.jit(lambda x: ws.logsumexp(x, axis=1))(np.zeros((2, 0)))
        np.testing.assert_array_equal(empty, [-INF, -INF])
        assert wl.grad(ws.logsumexp)(2.0) == 1.0
        with pytest.raises(np.exceptions.AxisError):
            wl.jit(lambda x: ws.softmax(x, axis=2))(x)


def test_nothing_of_scipy_is_loaded_before_it_is_used():
    """`import wonderland` and the derivatives of NumPy's functions do without."""
    import subprocess
    import sys

    code = (
        "import sys, numpy as np, wonderland as wl\n"
        "wl.grad(lambda x: np.logaddexp(x, 1.0) + np.sinc(x) + np.hypot(x, 1.0))(0.5)\n"
        "assert 'scipy' not in sys.modules\n"
        "import scipy.special\n"
        "wl.grad(scipy.special.erf)(0.5)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("count", [2, 100_000])
def test_compiled_code_raises_nothing_that_errstate_asks_for(count):
    x = np.linspace(0.5, 1.5, count)  # beyond 1 SciPy notes an error
    expected = sp.betaincinv(2.0, 3.0, x)
    with sp.errstate(all="raise"):
        with pytest.raises(sp.SpecialFunctionError):
            sp.betaincinv(2.0, 3.0, x)
        np.testing.assert_allclose(wl.jit(lambda x: sp.betaincinv(2.0, 3.0, x))(x), expected, rtol=1e-12)


def test_zeta_by_scipys_own_name():
    x, q = np.array([1.5, 2.0, 4.5]), np.array([1.0, 2.0, 0.5])
    np.testing.assert_allclose(wl.jit(lambda x, q: sp.zeta(x, q))(x, q), sp.zeta(x, q), rtol=1e-13)
    np.testing.assert_allclose(wl.jit(lambda x: sp.zeta(x, 1.0))(x), sp.zeta(x), rtol=1e-13)
    np.testing.assert_allclose(wl.grad(lambda q: np.sum(sp.zeta(x, q)))(q), -x * sp.zeta(x + 1, q), rtol=1e-13)
    with pytest.raises(TypeError, match=r"scipy\.special\.zeta\(x\) isn't supported"):
        wl.jit(lambda x: sp.zeta(x))(x)
