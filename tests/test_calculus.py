"""Interpolation, convolution, polynomials, finite differences, covariance: closed forms, edges, errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

import wonderland as wl
import wonderland.numpy as wnp


def rand(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


# Interpolation -------------------------------------------------------------------------------------------------------

XP, FP = np.array([0.0, 1.0, 3.0, 4.0]), np.array([1.0, 3.0, -1.0, 0.5])


def test_interp_derivatives_in_closed_form():
    slope = wl.vmap(wl.grad(lambda x: np.interp(x, XP, FP)))
    np.testing.assert_allclose(slope(np.array([0.5, 2.0, 3.5])), [2.0, -2.0, 1.5])
    # At a knot the slope of the piece on its right, at the last that of the one on its left, 0 outside.
    np.testing.assert_allclose(slope(XP), [2.0, -2.0, 1.5, 1.5])
    np.testing.assert_allclose(slope(np.array([-1.0, 4.1])), [0.0, 0.0])
    # With respect to fp: the hat functions; to xp: minus the slope times the hat functions.
    x = 2.5
    np.testing.assert_allclose(wl.grad(lambda fp: np.interp(x, XP, fp))(FP), [0, 0.25, 0.75, 0])
    np.testing.assert_allclose(wl.grad(lambda xp: np.interp(x, xp, FP))(XP), [0, 2 * 0.25, 2 * 0.75, 0])
    np.testing.assert_allclose(wl.grad(lambda fp: np.interp(9.0, XP, fp))(FP), [0, 0, 0, 1])
    np.testing.assert_allclose(wl.grad(lambda fp: np.interp(-9.0, XP, fp, left=5.0))(FP), [0, 0, 0, 0])
    assert wl.grad(lambda r: wnp.interp(9.0, XP, FP, right=r))(2.0) == 1.0


def test_interp_values_at_and_around_the_points():
    x = np.concatenate([XP, XP - 1e-9, XP + 1e-9, [np.nan, np.inf, -np.inf]])
    f = wl.jit(np.interp)
    np.testing.assert_allclose(f(x, XP, FP), np.interp(x, XP, FP), rtol=1e-12)
    np.testing.assert_array_equal(f(XP[:-1], XP, FP), FP[:-1])  # exactly
    steps = np.array([0.0, 1.0, 1.0, 2.0, 2.0])  # a jump: the value after it
    values = np.array([0.0, 1.0, 5.0, 6.0, 9.0])
    for at in (1.0, 0.999, 1.5, 2.0, 0.0):
        np.testing.assert_allclose(f(at, steps, values), np.interp(at, steps, values), rtol=1e-12)
    assert np.isfinite(wl.grad(lambda s: np.interp(2.0, s, values))(steps)).all()


def test_interp_periodic():
    x = np.array([-180.0, -170, -185, 185, -10, -5, 0, 365])
    xp, fp = np.array([190.0, -190, 350, -350]), np.array([5.0, 10, 3, 4])
    f = wl.jit(lambda x, xp, fp: np.interp(x, xp, fp, period=360))
    np.testing.assert_allclose(f(x, xp, fp), np.interp(x, xp, fp, period=360), rtol=1e-12)
    wl.testing.check_grads(lambda x, fp: np.interp(x, xp, fp, period=360), (x[3:] + 0.5, fp), order=1)


def test_interp_errors():
    grad = wl.grad(lambda fp, xp, **options: np.sum(np.interp(0.5, xp, fp, **options)))
    with pytest.raises(ValueError, match="fp and xp are not of the same length: 2 and 3"):
        grad(np.ones(2), np.arange(3.0))
    with pytest.raises(ValueError, match="array of sample points is empty"):
        grad(np.ones(0), np.ones(0))
    with pytest.raises(ValueError, match=r"Data points must be 1-D sequences, got shapes \(2, 2\)"):
        grad(np.ones(2), np.ones((2, 2)))
    with pytest.raises(ValueError, match="period must be a non-zero value"):
        grad(np.ones(2), np.ones(2), period=0)


# Convolution and windows ---------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(["full", "same", "valid"]), st.booleans())
def test_convolve_and_correlate(n, m, mode, complex_numbers):
    a, v = rand(n), rand(m, seed=1)
    if complex_numbers:
        a, v = a + 1j * rand(n, seed=2), v + 1j * rand(m, seed=3)
    for f in (np.convolve, np.correlate):
        expected = f(a, v, mode)
        out, pull = wl.vjp(lambda a, v, f=f: f(a, v, mode), a, v)
        assert out.shape == expected.shape
        np.testing.assert_allclose(out, expected, rtol=1e-11, atol=1e-12)
        weights = rand(*out.shape, seed=4)
        for gradient, array in zip(pull(weights.astype(out.dtype)), (a, v)):  # (conjugate) linear in each operand
            total = np.sum(np.real(np.conj(gradient) * array))
            np.testing.assert_allclose(total, np.sum(weights * expected.real), rtol=1e-9, atol=1e-10)


def test_gradient_of_a_convolution_is_a_correlation():
    a, v, w = rand(8), rand(3, seed=1), rand(10, seed=2)
    gradient = wl.grad(lambda a, v: np.sum(w * np.convolve(a, v)), (0, 1))(a, v)
    np.testing.assert_allclose(gradient[0], np.correlate(w, v, "valid"), rtol=1e-12)
    np.testing.assert_allclose(gradient[1], np.correlate(w, a, "valid"), rtol=1e-12)


def test_a_convolution_is_one_dot():
    program = wl.trace(np.convolve)(rand(50), rand(5))
    names = [e.primitive.name for e in program.equations]
    assert names.count("dot") == 1 and "gather" not in names and len(names) < 12
    assert max(v.type.size for e in program.equations for v in e.outputs) <= 5 * 60


def test_convolution_errors():
    for f, a, v, message in [
        (np.convolve, (0,), (1,), "v cannot be empty|a cannot be empty"),
        (np.correlate, (0,), (1,), "first array argument cannot be empty"),
        (np.correlate, (1,), (0,), "second array argument cannot be empty"),
        (np.convolve, (2, 2), (1,), r"object too deep for desired array: a has shape \(2, 2\)"),
    ]:
        with pytest.raises(ValueError):
            f(np.ones(a), np.ones(v))
        with pytest.raises(ValueError, match=message):
            wl.jit(f)(np.ones(a), np.ones(v))
    with pytest.raises(ValueError, match=r"mode must be one of 'valid', 'same', or 'full' \(got 'cyclic'\)"):
        wl.jit(lambda a: np.convolve(a, a, "cyclic"))(np.ones(3))


def test_sliding_windows_are_read_only_views():
    def moving(x):
        x = x.copy()
        view = sliding_window_view(x, 3)
        x[0] = 10.0 * x[1]  # seen by the view
        return np.max(view, axis=-1)

    x = rand(6)
    np.testing.assert_allclose(wl.jit(moving)(x), moving(x))
    wl.testing.check_grads(moving, (x,), order=1)

    def write(x):
        sliding_window_view(x, 3)[0] = 1.0
        return np.sum(x)

    with pytest.raises(ValueError, match="read-only"):
        wl.grad(write)(x)
    with pytest.raises(TypeError, match="read-only: windows overlap"):
        wl.grad(lambda x: np.sum(sliding_window_view(x, 3, writeable=True)))(x)
    for shape, options, message in [
        (7, {}, "window shape cannot be larger"),
        ((2, 2), {}, "must be given for all dimensions"),
        (-1, {}, "cannot contain negative values"),
        ((2, 2), {"axis": 0}, "must have the same length"),
    ]:
        with pytest.raises(ValueError):
            sliding_window_view(x, shape, **options)
        with pytest.raises(ValueError, match=message):
            wl.jit(lambda x, s=shape, o=options: sliding_window_view(x, s, **o))(x)


# Polynomials ---------------------------------------------------------------------------------------------------------


def test_polynomials_in_closed_form():
    p, x = np.array([2.0, -1.0, 3.0]), 1.5
    np.testing.assert_allclose(wl.grad(lambda x: np.polyval(p, x))(x), np.polyval(np.polyder(p), x))
    np.testing.assert_allclose(wl.grad(lambda p: np.polyval(p, x))(p), np.vander([x], 3)[0])
    np.testing.assert_allclose(wl.grad(wl.grad(lambda x: np.polyval(p, x)))(x), 4.0)
    roots = np.array([1.0, -2.0, 3.0])
    jacobian = wl.jacobian(np.poly)(roots)  # d prod (x - r_j) / d r_i = - prod_{j != i} (x - r_j)
    for i in range(3):
        np.testing.assert_allclose(jacobian[1:, i], -np.poly(np.delete(roots, i)), rtol=1e-12)
    np.testing.assert_allclose(jacobian[0], 0)
    np.testing.assert_allclose(wl.jit(lambda p: np.polyder(np.polyint(p, 2), 2))(p), p)
    np.testing.assert_allclose(wl.jit(np.polymul)(p, roots), np.polymul(p, roots))
    assert wl.jit(np.polymul)(np.array([0.0, 1.0]), np.array([1.0, 2.0])).shape == (3,)  # leading zeros stay


def test_polyfit_is_linear_in_the_values():
    x, y = np.linspace(-1.0, 2.0, 7), rand(7)
    jacobian = wl.jacobian(lambda y: np.polyfit(x, y, 2))(y)
    np.testing.assert_allclose(jacobian, np.linalg.pinv(np.vander(x, 3)), rtol=1e-9, atol=1e-12)
    weights = np.linspace(1.0, 2.0, 7)
    wl.testing.check_grads(lambda x, y, w: np.polyfit(x, y, 2, w=w), (x, y, weights), order=1)
    with pytest.raises(TypeError, match="returns the coefficients only"):
        wl.grad(lambda y: np.polyfit(x, y, 2, full=True)[0][0])(y)
    with pytest.raises(TypeError, match=r"expected x and y to have same length.*\(7,\) and \(6,\)"):
        wl.grad(lambda y: np.polyfit(x, y, 2)[0])(y[:6])


def test_polynomial_errors():
    p = np.ones(3)
    with pytest.raises(ValueError, match="Order of derivative must be positive"):
        wl.jit(lambda p: np.polyder(p, -1))(p)
    with pytest.raises(ValueError, match="Order of integral must be positive"):
        wl.jit(lambda p: np.polyint(p, -1))(p)
    with pytest.raises(ValueError, match="k must be a scalar or a rank-1 array"):
        wl.jit(lambda p: np.polyint(p, 3, k=[1, 2]))(p)
    with pytest.raises(ValueError, match=r"one-dimensional array or sequence, got shape \(3, 1\)"):
        wl.jit(np.vander)(np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"input must be 1d or non-empty square 2d array, got shape \(2, 3\)"):
        wl.jit(np.poly)(np.ones((2, 3)))
    with pytest.raises(TypeError, match=r"np\.roots isn't supported"):
        wl.grad(lambda p: np.sum(np.abs(np.roots(p))))(p)


# Finite differences, quadrature --------------------------------------------------------------------------------------


def test_gradient_is_exact_for_parabolas():
    x = np.array([0.0, 0.5, 1.5, 2.0, 3.5])
    f = wl.jit(lambda x: np.gradient(x * x, x, edge_order=2))
    np.testing.assert_allclose(f(x), 2 * x, rtol=1e-12, atol=1e-12)
    field = rand(4, 5)
    for args, options in [((), {}), ((2.0,), {}), ((np.arange(4) ** 2.0, 0.5), {"edge_order": 2}), ((0.1, 0.2), {})]:
        out = wl.jit(lambda f, a=args, o=options: tuple(np.gradient(f, *a, **o)))(field)
        for o, e in zip(out, np.gradient(field, *args, **options), strict=True):
            np.testing.assert_allclose(o, e, rtol=1e-12, atol=1e-12)
    wl.testing.check_grads(lambda x: np.gradient(np.sin(x), x), (x,), order=2)


def test_gradient_errors():
    f = np.ones((3, 4))
    for args, options, message in [
        ((1.0, 2.0, 3.0), {}, "invalid number of arguments: 3 spacings for 2 axes"),
        ((np.ones(5), 1.0), {}, "distances must match the length.*5 points for axis 0"),
        ((np.ones((3, 1)), 1.0), {}, "distances must be either scalars or 1d"),
        ((), {"edge_order": 3}, "'edge_order' greater than 2 not supported"),
        ((), {"axis": 2}, "out of bounds"),
    ]:
        with pytest.raises((TypeError, ValueError)):
            np.gradient(f, *args, **options)
        with pytest.raises((TypeError, ValueError), match=message):
            wl.jit(lambda f, a=args, o=options: np.gradient(f, *a, **o))(f)
    with pytest.raises(ValueError, match=r"too small to calculate.*axis 0 of shape \(1,\) has 1"):
        wl.jit(np.gradient)(np.ones(1))


def test_quadrature_in_closed_form():
    x, y = np.array([0.0, 1.0, 3.0, 4.0]), np.array([1.0, 2.0, 0.0, 4.0])
    weights = np.array([0.5, 1.5, 1.5, 0.5])
    np.testing.assert_allclose(wl.grad(lambda y: np.trapezoid(y, x))(y), weights)
    # Moving an inner point changes the area by half the difference of its neighbours.
    expected = [-(y[0] + y[1]) / 2, (y[0] - y[2]) / 2, (y[1] - y[3]) / 2, (y[2] + y[3]) / 2]
    np.testing.assert_allclose(wl.grad(lambda x: np.trapezoid(y, x))(x), expected)
    assert wl.grad(lambda h: wnp.trapezoid(y, dx=h))(0.5) == np.trapezoid(y)


def test_unwrap():
    phase = np.linspace(0.0, 20.0, 30)
    wrapped = np.angle(np.exp(1j * phase))
    np.testing.assert_allclose(wl.jit(np.unwrap)(wrapped), phase, atol=1e-12)
    np.testing.assert_allclose(wl.jacobian(np.unwrap)(wrapped), np.eye(30), atol=1e-14)
    for p, period in [
        ([0, 1, 2, -1, 0], 4),
        ([1, 2, 3, 4, 5, 6, 1, 2, 3], 6),
        ([2, 3, 4, 5, 2, 3, 4, 5], 4),
        ([0, 3, 6], 5),
    ]:
        out = wl.jit(lambda p, period=period: np.unwrap(p, period=period))(np.array(p))
        np.testing.assert_array_equal(out, np.unwrap(p, period=period))
    # A traced period: the result has -1 of them where one was taken out.
    p = np.array([0.0, 0.5, 4.0])
    np.testing.assert_allclose(wl.jacobian(lambda t: wnp.unwrap(p, period=t))(4.0), [0, 0, -1], atol=1e-12)


# Covariance, functions along axes ------------------------------------------------------------------------------------


def test_covariance_gradient_in_closed_form():
    x, w = rand(3, 7), rand(3, 3, seed=1)
    centred = x - x.mean(axis=1, keepdims=True)
    gradient = wl.grad(lambda x: np.sum(w * np.cov(x)))(x)
    np.testing.assert_allclose(gradient, (w + w.T) @ centred / 6, rtol=1e-10, atol=1e-12)


def test_correlations_are_scale_free():
    x, w = rand(3, 7), rand(3, 3, seed=1)
    gradient = wl.grad(lambda x: np.sum(w * np.corrcoef(x)))(x)
    np.testing.assert_allclose(np.sum(gradient * x, axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(wl.jit(np.corrcoef)(x), np.corrcoef(x), rtol=1e-12)
    np.testing.assert_allclose(wl.jit(lambda x: np.corrcoef(x[0]))(x), 1.0)
    two = wl.jit(lambda x: np.corrcoef(x[0], x[1]))(x)
    np.testing.assert_allclose(two, np.corrcoef(x[0], x[1]), rtol=1e-12)


def test_covariance_errors():
    with pytest.raises(ValueError, match=r"m has more than 2 dimensions: shape \(2, 2, 2\)"):
        wl.jit(np.cov)(np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match=r"weights of shape \(3,\) for 4 observations"):
        wl.jit(lambda x: np.cov(x, fweights=[1, 1, 1]))(np.ones((2, 4)))


def test_apply_along_axis():
    x = rand(2, 3, 4)
    for f, axis in [(np.sum, 1), (lambda v: v[::-1] * v[0], 0), (lambda v: v[:, None] * v[None, :2], -1)]:
        out = wl.jit(lambda x, f=f, axis=axis: np.apply_along_axis(f, axis, x))(x)
        np.testing.assert_allclose(out, np.apply_along_axis(f, axis, x), rtol=1e-12)
    out = wl.jit(lambda x: np.apply_along_axis(lambda v, p, scale: scale * np.sum(v**p), 1, x, 3, scale=2.0))(x)
    np.testing.assert_allclose(out, 2.0 * np.sum(x**3, axis=1), rtol=1e-12)
    with pytest.raises(ValueError, match="any iteration dimensions are 0"):
        wl.jit(lambda x: np.apply_along_axis(np.sum, 1, x))(np.ones((0, 3)))


def test_apply_over_axes():
    x = rand(2, 3, 4)
    out = wl.jit(lambda x: np.apply_over_axes(np.sum, x, [0, -1]))(x)
    np.testing.assert_allclose(out, np.apply_over_axes(np.sum, x, [0, -1]), rtol=1e-12)
    with pytest.raises(ValueError, match="not returning an array of the correct shape"):
        wl.jit(lambda x: np.apply_over_axes(lambda v, a: np.sum(v), x, [0]))(x)


def test_vectorize():
    f = wnp.vectorize(lambda x, y: x * y if x > 0 else y)
    x, y = np.array([[1.0], [-2.0]]), np.array([3.0, 4.0, 5.0])
    np.testing.assert_allclose(f(x, y), np.vectorize(lambda x, y: x * y if x > 0 else y)(x, y))
    np.testing.assert_allclose(wl.grad(lambda x: np.sum(f(x, y)))(x), [[12.0], [0.0]])
    assert wl.grad(wnp.vectorize(np.sin))(0.0) == 1.0

    @wnp.vectorize
    def both(x):
        return x, x * x

    np.testing.assert_allclose(wl.grad(lambda y: np.sum(both(y)[1]))(y), 2 * y)
    with pytest.raises(TypeError, match=r"use wl\.vmap"):
        wl.grad(lambda y: np.sum(wnp.vectorize(np.sum, signature="(n)->()")(y)))(y)
    with pytest.raises(ValueError, match="size 0 inputs"):
        wl.jit(wnp.vectorize(np.sin))(np.ones(0))
    with pytest.raises(wl.LostDerivativeError):  # NumPy's own offers no hook
        wl.grad(lambda y: np.sum(np.vectorize(np.sin)(y)))(y)


def test_functions_that_only_call_the_users():
    """np.fromfunction calls the function on plain indices: a traced result passes through."""
    assert wl.grad(lambda w: np.sum(np.fromfunction(lambda i, j: w * (i + j), (2, 3))))(2.0) == 9.0


def test_results_are_no_views_of_the_arguments():
    def f(x):
        y = wnp.polyder(x, 0)
        y[0] = 0.0
        return x

    np.testing.assert_array_equal(wl.jit(f)(np.ones(3)), np.ones(3))


SINGLE = np.arange(5, dtype=np.float32)


@pytest.mark.parametrize("start", [0, 1.5, np.float32(3), SINGLE[1:3], np.int32(2), np.float64(1), np.complex64(1j)])
@pytest.mark.parametrize("stop", [np.float32(4), SINGLE[:2]])
def test_spaces_keep_numpys_dtype(start, stop):
    for space in (np.linspace, np.logspace):
        expected = space(start, stop, 4)
        for f in (lambda x, s=space: s(start, x, 4), lambda x, s=space: s(x, start, 4)):
            assert wl.trace(f)(stop).output_types[0].dtype == expected.dtype
        np.testing.assert_allclose(wl.jit(lambda x, s=space: s(start, x, 4))(stop), expected, rtol=1e-5)


@pytest.mark.parametrize("f", [SINGLE**2, SINGLE.astype(int), SINGLE.astype(np.complex64)])
@pytest.mark.parametrize("points", [SINGLE, SINGLE.astype(float) ** 2, SINGLE.astype(int), 2, np.float64(2)])
def test_gradient_keeps_the_dtype_of_the_values(f, points):
    expected = np.gradient(f, points)
    found = wl.jit(lambda f: np.gradient(f, points))(f)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    traced = wl.trace(lambda points: np.gradient(f, points))(points)
    assert traced.output_types[0].dtype == expected.dtype
