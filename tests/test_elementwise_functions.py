"""Elementwise functions beyond their rows of the op table: singular points, edges, integers, operators."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.core.errors import NoValueError

INF, NAN = np.inf, np.nan


def derivative(f, x):
    """Of an elementwise function, at each element."""
    return wl.grad(lambda x: np.sum(f(x)))(np.asarray(x, float))


def derivatives(f, x, order):
    """The first few derivatives at a number."""
    out = []
    for _ in range(order):
        f = wl.grad(f)
        out.append(float(f(x)))
    return out


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


class TestSingularPoints:
    """SEMANTICS 4: a branch not taken contributes exactly zero, whatever its derivative is."""

    @pytest.mark.parametrize(
        ("f", "x", "expected"),
        [
            (lambda x: np.where(x > 0, np.sqrt(x), 0.0), [-1.0, 0.0, 4.0], [0, 0, 0.25]),
            (lambda x: np.where(x != 0, np.sin(x) / x, 1.0), [0.0, np.pi], [0, -1 / np.pi]),
            (lambda x: np.where(np.abs(x) < 1, np.arcsin(x), 0.0), [-1.0, 0.0, 1.0, 2.0], [0, 1, 0, 0]),
            (lambda x: np.where(np.abs(x) < 1, np.arccos(x), 0.0), [-1.0, 0.0, 1.0], [0, -1, 0]),
            (lambda x: np.where(np.abs(x) < 1, np.arctanh(x), 0.0), [-1.0, 0.0, 1.0], [0, 1, 0]),
            (lambda x: np.where(x > -1, np.log1p(x), 0.0), [-2.0, -1.0, 1.0], [0, 0, 0.5]),
            (lambda x: np.where(x > 1, np.arccosh(x), 0.0), [0.0, 1.0, math.sqrt(2.0)], [0, 0, 1]),
            (lambda x: np.where(x > 0, np.log2(x), 0.0), [0.0, 1.0], [0, 1 / math.log(2)]),
            (lambda x: np.where(x > 0, np.cbrt(x), 0.0), [0.0, 8.0], [0, 1 / 12]),
            (lambda x: np.where(x != 0, np.arctan2(x, x), 0.0), [0.0, 1.0], [0, 0]),
            (lambda x: np.where(x != 0, np.reciprocal(x), 0.0), [0.0, 2.0], [0, -0.25]),
            (lambda x: np.where(x != 0, 1.0 % x, 0.0), [0.0, 0.3], [0, -3]),
        ],
    )
    def test_a_branch_not_taken(self, f, x, expected):
        np.testing.assert_allclose(derivative(f, x), expected, rtol=1e-12)
        _, pushed = wl.jvp(f, (np.array(x),), (np.ones(len(x)),))
        np.testing.assert_allclose(pushed, expected, rtol=1e-12)
        compiled = wl.jit(wl.grad(lambda x: np.sum(f(x))))(np.array(x))
        np.testing.assert_allclose(compiled, expected, rtol=1e-12)

    def test_conventions_at_kinks(self):
        assert wl.grad(np.abs)(0.0) == 0.0
        assert wl.grad(np.fabs)(0.0) == 0.0
        assert wl.grad(lambda x: np.copysign(x, -1.0))(0.0) == 0.0
        assert wl.grad(np.hypot, (0, 1))(0.0, 0.0) == (0.0, 0.0)
        assert wl.grad(wl.grad(lambda x: np.hypot(x, 0.0)))(0.0) == 0.0
        assert wl.grad(np.maximum, (0, 1))(1.0, 1.0) == (0.5, 0.5)
        assert wl.grad(np.fmin, (0, 1))(1.0, 1.0) == (0.5, 0.5)

    def test_clip_at_its_bounds_is_a_tie(self):
        x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
        np.testing.assert_array_equal(derivative(lambda x: np.clip(x, -1, 1), x), [0, 0.5, 1, 0.5, 0])

    def test_the_three_relus(self):
        """They are one function, and their derivatives at 0 differ (E6.4's footnote, after Bolte and Pauwels)."""
        relu = lambda s: np.where(s > 0, s, 0.0)
        relu_2 = lambda s: relu(-s) + s
        relu_3 = lambda s: 0.5 * (relu(s) + relu_2(s))
        s = np.linspace(-1, 1, 5)
        np.testing.assert_array_equal(relu(s), relu_2(s))
        np.testing.assert_array_equal(relu(s), relu_3(s))
        for transform in (lambda f: f, wl.jit):
            assert [float(transform(wl.grad(f))(0.0)) for f in (relu, relu_2, relu_3)] == [0.0, 1.0, 0.5]

    def test_maximum_shares_a_tie(self):
        relu = lambda s: np.maximum(s, 0.0)
        relu_2 = lambda s: relu(-s) + s
        assert wl.grad(relu)(0.0) == 0.5
        assert wl.grad(relu_2)(0.0) == 0.5
        np.testing.assert_array_equal(derivative(relu, [-1.0, 1.0]), [0, 1])


class TestPrecision:
    """Derivatives keep their digits at the edges, against closed forms in other variables."""

    def test_near_the_ends_of_the_domain(self):
        tiny = 2.0**-40
        assert wl.grad(np.log1p)(-1 + tiny) == 1 / tiny
        assert wl.grad(np.arctanh)(1 - tiny) == pytest.approx(1 / (tiny * (2 - tiny)), rel=1e-15)
        assert wl.grad(np.arcsin)(1 - tiny) == pytest.approx(1 / math.sqrt(tiny * (2 - tiny)), rel=1e-15)
        assert wl.grad(np.arccosh)(1 + tiny) == pytest.approx(1 / math.sqrt(tiny * (2 + tiny)), rel=1e-15)
        assert wl.grad(np.expm1)(-50.0) == pytest.approx(math.exp(-50.0), rel=1e-15)

    def test_large_arguments(self):
        assert wl.grad(np.arcsinh)(1e200) == pytest.approx(1e-200, rel=1e-14)
        assert wl.grad(np.arctan2)(1e200, 1e200) == pytest.approx(0.5e-200, rel=1e-14)
        assert wl.grad(np.hypot)(3e200, 4e200) == pytest.approx(0.6, rel=1e-15)
        assert wl.grad(np.arctan2)(1e-200, 1e-200) == pytest.approx(0.5e200, rel=1e-14)

    def test_logaddexp(self):
        weights = wl.grad(np.logaddexp, (0, 1))
        assert weights(1e6, 1e6 - 1) == pytest.approx((1 / (1 + math.exp(-1)), 1 / (1 + math.e)), rel=1e-14)
        assert weights(0.0, 800.0) == (0.0, 1.0)
        assert weights(0.0, 40.0)[0] == pytest.approx(math.exp(-40), rel=1e-14)
        assert weights(-INF, 1.0) == (0.0, 1.0)
        assert weights(1.0, -INF) == (1.0, 0.0)
        assert weights(-INF, -INF) == (0.0, 0.0)
        assert weights(INF, 1.0) == (1.0, 0.0)
        assert weights(INF, INF) == (0.5, 0.5)
        assert all(np.isnan(weights(NAN, 1.0)))
        # Where both are equal, max(x, y) + log1p(exp(-|x - y|)) would have no second derivative.
        assert wl.grad(wl.grad(np.logaddexp))(3.0, 3.0) == 0.25
        assert wl.grad(wl.grad(np.logaddexp2))(3.0, 3.0) == pytest.approx(0.25 * math.log(2), rel=1e-15)

    @pytest.mark.parametrize("jitted", [False, True])
    def test_values_of_logaddexp_and_hypot_at_infinities(self, jitted):
        special = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e300])
        x, y = (a.ravel() for a in np.meshgrid(special, special))
        for f in (np.logaddexp, np.logaddexp2, np.hypot, np.arctan2):
            out = wl.jit(f)(x, y) if jitted else wl.vmap(f)(x, y)
            np.testing.assert_allclose(out, f(x, y), rtol=1e-15)

    def test_float32_stays_float32(self):
        x = np.linspace(0.1, 0.9, 5, dtype=np.float32)
        for f in (np.log1p, np.arcsin, np.arcsinh, np.sinc, np.cbrt, np.log10, lambda x: np.logaddexp(x, 1.0),
                  lambda x: np.hypot(x, 2), lambda x: x % 0.3, lambda x: np.clip(x, 0.2, 0.5), np.deg2rad,
                  lambda x: np.heaviside(x, 0.5), lambda x: np.round(x, 1), np.i0, np.nan_to_num):  # fmt: skip
            assert f(x).dtype == derivative32(f, x).dtype == np.float32


def derivative32(f, x):
    return wl.grad(lambda x: np.sum(f(x)))(x)


class TestSinc:
    def test_all_derivatives_at_zero(self):
        """sinc(x) = sum (-1)^k (pi x)^2k / (2k + 1)!: the 2k-th derivative at 0 is (-1)^k pi^2k / (2k + 1)."""
        found = derivatives(np.sinc, 0.0, 6)
        expected = [0, -(np.pi**2) / 3, 0, np.pi**4 / 5, 0, -(np.pi**6) / 7]
        np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-12)

    def test_against_higher_precision(self):
        mpmath = pytest.importorskip("mpmath")
        mpmath.mp.dps = 40
        f = np.sinc
        for order in range(1, 5):
            f = wl.grad(f)
            for x in (1e-8, 1e-3, 0.1, 0.3183, 0.7, 1.0, 1.5, 3.3, 20.25):
                exact = mpmath.diff(lambda t: mpmath.sinc(mpmath.pi * t), mpmath.mpf(x), order)
                assert float(f(x)) == pytest.approx(float(exact), rel=2e-13, abs=1e-13), (order, x)

    def test_arrays_and_complex_numbers(self):
        x = np.array([[0.0, 0.5], [1.5, -2.5]])
        expected = np.array([[0.0, -4 / np.pi], [0.0, 0.0]])
        expected[1] = [np.cos(np.pi * t) / t - np.sin(np.pi * t) / (np.pi * t * t) for t in x[1]]
        np.testing.assert_allclose(derivative(np.sinc, x), expected, rtol=1e-13, atol=1e-15)
        z = 0.3 + 0.2j
        _, pushed = wl.jvp(np.sinc, (z,), (1.0 + 0j,))
        assert pushed == pytest.approx(np.cos(np.pi * z) / z - np.sin(np.pi * z) / (np.pi * z * z), rel=1e-13)


INTEGERS = ("int8", "uint8", "int32", "int64", "uint64")


class TestIntegers:
    """Arithmetic of integers wraps, and divides by zero, as NumPy's."""

    @pytest.mark.parametrize("dtype", INTEGERS)
    @pytest.mark.parametrize(
        "f",
        [
            np.add, np.subtract, np.multiply, np.floor_divide, np.remainder, np.fmod, np.left_shift, np.right_shift,
            np.gcd, np.lcm, np.bitwise_and, np.maximum, np.divmod, np.true_divide,
        ],
    )  # fmt: skip
    def test_as_numpy(self, f, dtype):
        info = np.iinfo(dtype)
        numbers = np.array([0, 1, 2, 3, 7, info.max - 1, info.max, info.min, info.min + 1], dtype)
        x, y = (a.ravel() for a in np.meshgrid(numbers, numbers))
        expected = f(x, y)
        for run in (wl.vmap(f), wl.jit(f), lambda x, y: wl.jit(lambda x, y: f(x, y))(x, y)):
            out = run(x, y)
            for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (out, expected)), strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)

    @pytest.mark.parametrize("dtype", INTEGERS)
    @pytest.mark.parametrize(
        "f",
        [np.floor, np.rint, np.trunc, np.sign, np.square, np.invert, np.bitwise_count, np.reciprocal, np.signbit,
         np.isfinite, np.isinf, np.sinc, np.cbrt, lambda x: np.round(x // 2, -1), lambda x: np.clip(x, 1, 5)],
    )  # fmt: skip
    def test_of_one_operand(self, f, dtype):
        info = np.iinfo(dtype)
        x = np.array([0, 1, 2, 25, info.max, info.min], dtype)
        for run in (wl.vmap(f), wl.jit(f)):
            assert run(x).dtype == f(x).dtype
            np.testing.assert_allclose(run(x), f(x), rtol=1e-15, atol=1e-15)

    @given(st.integers(-128, 127), st.integers(-128, 127))
    def test_quotient_and_remainder_belong_together(self, a, b):
        x, y = np.array([a], np.int8), np.array([b], np.int8)
        quotient, rest = wl.vmap(lambda x, y: divmod(x, y))(x, y)
        np.testing.assert_array_equal(np.stack([quotient, rest]), np.stack(np.divmod(x, y)))
        if b and (a, b) != (-128, -1):
            assert quotient * y + rest == x

    def test_no_derivative_flows_through_integers(self):
        assert wl.grad(lambda x: np.floor(x) * x)(2.5) == 2.0
        assert wl.grad(lambda x: (x // 1.0) * x)(2.5) == 2.0
        assert wl.grad(lambda x: np.ldexp(x, 3))(2.5) == 8.0
        assert wl.grad(lambda x: np.frexp(x)[0])(5.0) == 0.125
        assert wl.grad(lambda x: np.modf(x)[0])(-2.75) == 1.0


class TestOperators:
    def test_each_is_numpys(self):
        x, n = np.array([3.7, -3.7, 0.5]), np.array([3, -5, 12])
        cases = [
            (lambda a: a % 2, x), (lambda a: 7.5 % a, x), (lambda a: a // 2, x), (lambda a: 7.5 // a, x),
            (lambda a: divmod(a, 2)[0], x), (lambda a: divmod(7.5, a)[1], x), (lambda a: a << 2, n),
            (lambda a: 2 << abs(a), n), (lambda a: a >> 1, n), (lambda a: -100 >> abs(a), n), (lambda a: abs(a), x),
            (lambda a: +a, x), (lambda a: a % [2, 3, 4], x), (lambda a: np.array([2, 3, 4]) % a, n),
        ]  # fmt: skip
        for f, a in cases:
            for run in (lambda a, f=f: wl.vmap(lambda a, _: f(a), (None, 0))(a, np.ones(1))[0], wl.jit(f)):
                out = run(a)
                np.testing.assert_array_equal(out, f(a))
                assert out.dtype == f(a).dtype

    def test_in_place(self):
        def f(x):
            y = x * 1.0
            y %= 2.0
            y //= 0.5
            return np.sum(x * y)

        x = np.array([3.7, 0.7])
        np.testing.assert_array_equal(wl.grad(f)(x), x % 2.0 // 0.5)

    def test_derivative_of_a_remainder(self):
        assert wl.grad(lambda x, y: x % y, (0, 1))(7.5, 2.0) == (1.0, -3.0)
        assert wl.grad(lambda x, y: x % y, (0, 1))(-7.5, 2.0) == (1.0, 4.0)
        assert wl.grad(np.fmod, (0, 1))(-7.5, 2.0) == (1.0, 3.0)
        # 1 / 0.1 rounds up to 10, and 1 mod 0.1 is nearly 0.1: the quotient is 9.
        assert wl.grad(np.fmod, (0, 1))(1.0, 0.1) == (1.0, -9.0)
        assert wl.grad(np.remainder, (0, 1))(1.0, 0.1) == (1.0, -9.0)

    def test_round(self):
        assert wl.grad(lambda x: x * round(x))(2.6) == 3.0
        assert wl.grad(lambda x: x * round(x, 1))(2.66) == 2.7
        assert wl.grad(lambda x: np.sum(x * x.round(1)))(np.array([2.66]))[0] == 2.7
        with pytest.raises(TypeError, match=r"round\(\) takes a number, not an array of shape \(2,\)"):
            wl.grad(lambda x: np.sum(round(x)))(np.ones(2))
        with pytest.raises(NoValueError):
            wl.jit(lambda x: round(x))(2.6)

    def test_methods(self):
        x = np.array([-2.0, 0.25, 3.0])
        for f in (lambda x: x.clip(0.0, 1.0), lambda x: x.clip(max=1.0), lambda x: x.round(), lambda x: x.conj(),
                  lambda x: x.astype(np.float32), lambda x: x.real, lambda x: x.imag):  # fmt: skip
            np.testing.assert_array_equal(wl.jit(f)(x), f(x))
            assert wl.jit(f)(x).dtype == f(x).dtype


class TestChoosing:
    def test_clip_takes_numpys_arguments(self):
        x = np.linspace(-2, 2, 7)
        for kwargs in (
            {"a_min": None, "a_max": 1}, {"a_min": -1, "a_max": None}, {"min": 0.5}, {"max": 0.5},
            {"min": -1, "max": np.ones(7)}, {"a_min": np.zeros((2, 1)), "a_max": 1.0}, {"a_min": 1, "a_max": -1},
            {"min": NAN}, {"min": [0.0] * 7},
        ):  # fmt: skip
            expected = np.clip(x, **kwargs)
            np.testing.assert_array_equal(wl.jit(lambda x, k=kwargs: np.clip(x, **k))(x), expected)
        both = lambda x: np.clip(x, None, None)
        np.testing.assert_array_equal(wl.vmap(both)(x), x)
        with pytest.raises(ValueError, match="forbidden"):
            wl.grad(lambda x: np.clip(x, 0, 1, min=0))(0.5)
        with pytest.raises(TypeError, match="takes no where="):
            wl.grad(lambda x: np.sum(np.clip(x, 0, 1, where=np.array([True, False]))))(np.ones(2))

    def test_clip_takes_python_integers_out_of_bounds(self):
        for dtype in (np.uint8, np.int16, np.int64, np.uint64):
            x = np.arange(0, 120, 7).astype(dtype)
            for low, high in ((-5, 300), (0, 2**70), (-(2**70), 50), (3, 50), (np.int64(-5), 50), (-(2**70), 2**70)):
                clip = lambda x, low=low, high=high: np.clip(x, low, high)
                for found in (wl.jit(clip)(x), wl.vmap(clip)(x)):
                    assert found.dtype == clip(x).dtype
                    np.testing.assert_array_equal(found, clip(x))
        with pytest.raises(OverflowError):
            wl.jit(lambda x: np.clip(x, 300, None))(np.zeros(3, np.uint8))

    def test_clip_into_an_array(self):
        def f(x):
            out = wnp.zeros(3)
            np.clip(x, 0.0, 1.0, out=out)
            return np.sum(out * np.array([1.0, 2.0, 3.0]))

        np.testing.assert_array_equal(wl.grad(f)(np.array([-1.0, 0.5, 0.7])), [0, 2, 3])

    def test_fmax_ignores_nan_and_its_derivative_does_too(self):
        x, y = np.array([NAN, 1.0, 2.0, NAN]), np.array([1.0, NAN, 1.0, NAN])
        for f in (np.fmax, np.fmin):
            np.testing.assert_array_equal(wl.jit(f)(x, y), f(x, y))
        wrt_x, wrt_y = wl.grad(lambda x, y: np.sum(np.fmax(x, y)), (0, 1))(x[:3], y[:3])
        np.testing.assert_array_equal(wrt_x, [0, 1, 1])
        np.testing.assert_array_equal(wrt_y, [1, 0, 0])

    def test_nan_to_num(self):
        x = np.array([NAN, INF, -INF, 2.0])
        for kwargs in ({}, {"nan": 1.0}, {"posinf": 5, "neginf": -5.0}, {"nan": np.arange(4.0)}):
            f = lambda x, k=kwargs: np.nan_to_num(x, **k)
            np.testing.assert_array_equal(wl.jit(f)(x), f(x))
        np.testing.assert_array_equal(derivative(np.nan_to_num, x), [0, 0, 0, 1])
        z = np.array([complex(NAN, INF), 1 + 2j])
        np.testing.assert_array_equal(wl.jit(np.nan_to_num)(z), np.nan_to_num(z))

    def test_nan_to_num_in_place(self):
        def f(x):
            y = x * 2.0
            z = np.nan_to_num(y, copy=False)
            assert z is y
            return np.sum(y)

        np.testing.assert_array_equal(wl.grad(f)(np.array([NAN, 1.0])), [0, 2])

    def test_where_of_a_condition_alone(self):
        x = np.array([1.0, -2.0, 3.0])
        np.testing.assert_array_equal(wl.grad(lambda x: np.sum(x[np.where(x > 0)] ** 2))(x), [2, 0, 6])
        with pytest.raises(NoValueError):
            wl.jit(lambda x: np.where(x > 0))(x)
        with pytest.raises(ValueError, match="either both or neither"):
            wl.grad(lambda x: np.where(x > 0, x))(1.0)

    def test_heaviside(self):
        x, h = np.array([-1.0, 0.0, 2.0, NAN]), np.array([0.5, 0.25, 0.5, 0.5])
        np.testing.assert_array_equal(wl.jit(np.heaviside)(x, h), np.heaviside(x, h))
        np.testing.assert_array_equal(wl.grad(lambda h: np.sum(np.heaviside(x[:3], h)))(h[:3]), [0, 1, 0])


class TestPredicates:
    @pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
    def test_of_special_values(self, dtype):
        x = np.array([0.0, -0.0, 1.0, INF, -INF, NAN], dtype)
        if dtype == "complex128":
            x = np.concatenate([x, [complex(0, INF), complex(1, NAN), complex(INF, NAN), 1e308 + 1e308j, 2j]])
        for f in (np.isnan, np.isinf, np.isfinite, np.iscomplex, np.isreal, np.logical_not):
            np.testing.assert_array_equal(wl.jit(f)(x), f(x))
            np.testing.assert_array_equal(wl.vmap(f)(x), f(x))
        if dtype != "complex128":
            for f in (np.isposinf, np.isneginf, np.signbit, np.modf, lambda x: np.copysign(2.0, x)):
                np.testing.assert_array_equal(wl.jit(f)(x), f(x))

    def test_no_warnings_while_recording(self):
        with np.errstate(all="raise"):
            for f in (np.reciprocal, np.log1p, np.arccosh, np.isfinite, np.deg2rad):
                wl.trace(f)(np.float64(1.5))

    def test_no_warnings_for_infinities(self):
        with np.errstate(all="raise"):
            out = wl.vmap(lambda x: np.isfinite(x) | np.isinf(x))(np.array([INF, NAN, 1.0]))
        np.testing.assert_array_equal(out, [True, False, True])

    def test_isposinf_refuses_complex_numbers(self):
        with pytest.raises(TypeError, match="ambiguous"):
            wl.grad(lambda z: np.real(np.isposinf(z)))(1 + 2j)

    def test_close_and_equal(self):
        x, y = np.array([1.0, NAN, INF, 0.0]), np.array([1.0 + 1e-9, NAN, INF, 1e-9])
        for kwargs in ({}, {"equal_nan": True}, {"atol": 0.0}, {"rtol": np.full(4, 1e-3)}):
            for f in (np.isclose, np.allclose):
                g = lambda x, y, f=f, k=kwargs: f(x, y, **k)
                np.testing.assert_array_equal(wl.jit(g)(x, y), g(x, y))
        for f in (np.array_equal, np.array_equiv):
            for b in (x, y, x[:3], np.stack([x, x]), [1.0, 2.0, 3.0, 4.0]):
                np.testing.assert_array_equal(wl.jit(lambda x, f=f, b=b: f(x, b))(x), f(x, b))
        assert wl.jit(lambda x: np.array_equal(x, x, equal_nan=True))(x)
        smallest = np.array([np.iinfo(np.int64).min])
        assert wl.jit(np.allclose)(smallest, smallest)

    def test_they_decide_in_eager_derivatives(self):
        def newton(a):
            x = a
            while not np.allclose(x * x, a, rtol=1e-12, atol=0.0):
                x = 0.5 * (x + a / x)
            return x

        assert wl.grad(newton)(2.0) == pytest.approx(0.5 / math.sqrt(2.0), rel=1e-9)


class TestComplex:
    Z = np.array([1 + 2j, -0.5 + 0.1j, 0.3 - 2j])

    def test_writing_to_parts(self):
        def f(x):
            z = wnp.zeros(3, complex)
            z.real[...] = x
            z.imag[1:] = 2 * x[1:]
            return np.sum(np.abs(z) ** 2)

        def g(x):
            z = wnp.zeros(3, complex)
            z.real = x
            z.imag = [0.0, 0.0, 1.0] * x
            z.real *= 2.0
            return np.sum(np.abs(z) ** 2)

        x = np.array([1.0, 2.0, 3.0])
        np.testing.assert_allclose(wl.grad(f)(x), [2.0, 20.0, 30.0])
        np.testing.assert_allclose(wl.grad(g)(x), [8.0, 16.0, 30.0])
        with pytest.raises(TypeError, match="imaginary part"):
            wl.grad(lambda x: setattr(x, "imag", 1.0))(x)

    def test_parts_of_infinite_numbers(self):
        z = np.array([complex(1, INF), complex(INF, 1)])
        np.testing.assert_array_equal(wl.jit(np.round)(z), np.round(z))
        np.testing.assert_array_equal(wl.jit(lambda z: np.nan_to_num(z, posinf=7.0))(z), [1 + 7j, 7 + 1j])

    def test_angle(self):
        np.testing.assert_allclose(wl.jit(np.angle)(self.Z), np.angle(self.Z))
        # d arg(z) along i z, the direction of a turn, is 1; along z it is 0.
        for z in self.Z:
            assert wl.jvp(np.angle, (z,), (1j * z,))[1] == pytest.approx(1.0)
            assert wl.jvp(np.angle, (z,), (z,))[1] == pytest.approx(0.0, abs=1e-15)
        np.testing.assert_array_equal(wl.jit(lambda x: np.angle(x, deg=True))(np.array([1.0, -1.0])), [0, 180])

    def test_real_if_close(self):
        f = lambda x: np.sum(np.real_if_close((x + 0j) ** 2))
        np.testing.assert_allclose(wl.grad(f)(np.array([1.0, 2.0])), [2, 4])
        assert wl.jvp(np.real_if_close, (1 + 2j,), (1j,))[1] == 1j
        with pytest.raises(NoValueError, match="dtype that depends on values"):
            wl.jit(np.real_if_close)(self.Z)

    def test_astype(self):
        x = np.array([1.5, 2.5])
        assert wl.jit(lambda x: x.astype(int))(x).dtype == np.dtype(int)
        with pytest.raises(TypeError, match=r"Cannot cast array data from .* according to the rule 'safe'"):
            wl.jit(lambda x: x.astype(int, casting="safe"))(x)


def test_shapes_of_operands():
    x = np.arange(12.0).reshape(3, 4) / 10 + 0.1
    for a in (x, x[::-1, ::2], x.T, x[:0], x[1, 2], x.astype(np.float32)):
        for f in (np.arctan2, np.hypot, np.logaddexp, np.remainder, np.copysign):
            np.testing.assert_allclose(wl.jit(f)(a, 0.7), f(a, 0.7), rtol=1e-6 if a.dtype == np.float32 else 1e-14)
    with pytest.raises(ValueError, match="broadcast"):
        wl.jit(np.hypot)(np.ones(3), np.ones(4))


def test_lists_are_arrays():
    np.testing.assert_array_equal(wl.grad(lambda x: np.sum(np.multiply(x, [1.0, 2.0])))(np.ones(2)), [1, 2])
    np.testing.assert_array_equal(wl.jit(lambda x: np.hypot([3.0, 6.0], x))(np.array([4.0, 8.0])), [5, 10])
