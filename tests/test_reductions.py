"""Reductions and cumulative operations beyond their rows: zeros, ties, NaN, masks, dtypes, errors."""

import itertools

import numpy as np
import pytest

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.ops.cumulative import recurrence


def traced(f, *args):
    """The result of a function on traced arrays: recorded and compiled."""
    return wl.jit(f)(*args)


def product_tensor(x, order):
    """All derivatives of a product of the given order: the product of the factors that aren't differentiated."""
    out = np.zeros((len(x),) * order, x.dtype)
    for places in itertools.permutations(range(len(x)), order):
        out[places] = np.prod([x[i] for i in range(len(x)) if i not in places])
    return out


def nested_jacobian(f, order):
    for _ in range(order):
        f = wl.jacobian(f)
    return f


class TestProducts:
    @pytest.mark.parametrize("zeros", [(), (1,), (0, 2), (0, 1, 3), (0, 1, 2, 3)], ids=len)
    @pytest.mark.parametrize("order", [1, 2, 3])
    def test_prod_with_zeros(self, zeros, order):
        x = np.array([1.5, -2.0, 0.5, 3.0])
        x[list(zeros)] = 0.0
        np.testing.assert_allclose(nested_jacobian(np.prod, order)(x), product_tensor(x, order), atol=1e-12)

    @pytest.mark.parametrize("zeros", [(), (1,), (0, 2)], ids=len)
    def test_cumprod_with_zeros(self, zeros):
        x = np.array([1.5, -2.0, 0.5, 3.0])
        x[list(zeros)] = 0.0
        for order in (1, 2, 3):
            expected = np.zeros((4,) * (order + 1))
            for k in range(4):
                expected[(k, *(slice(k + 1),) * order)] = product_tensor(x[: k + 1], order)
            np.testing.assert_allclose(nested_jacobian(np.cumprod, order)(x), expected, atol=1e-12)

    def test_over_several_axes(self, rng):
        x = rng.normal(size=(2, 3, 4))
        x[0, 1, 2] = 0.0
        gradient = wl.grad(lambda x: np.sum(np.prod(x, axis=(0, 2))))(x)
        for place in np.ndindex(x.shape):
            others = x.copy()
            others[place] = 1.0
            np.testing.assert_allclose(gradient[place], np.prod(others[:, place[1]]), atol=1e-12)

    def test_complex(self):
        z = np.array([1 + 2j, 0j, 3 - 1j])
        gradient = wl.grad(lambda z: np.real(np.prod(z)))(z)
        np.testing.assert_allclose(gradient, np.conj([0, z[0] * z[2], 0]))

    def test_a_branch_not_taken_is_zero(self):
        x = np.array([1e200, 1e200, 1e200])
        f = lambda x: np.sum(np.where(np.array([True, False, False]), np.cumprod(x), 0.0))
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(wl.grad(f)(x), [1, 0, 0])
            y = np.array([np.inf, np.nan])
            np.testing.assert_array_equal(wl.grad(lambda y: np.where(False, np.prod(y), 0.0))(y), [0, 0])

    def test_infinite_factors_in_what_is_not_wanted(self):
        x = np.array([2.0, np.inf, 3.0])
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(wl.grad(lambda x: np.cumprod(x)[0])(x), [1, 0, 0])

    @pytest.mark.parametrize("shape", [(300,), (40, 2), (3, 30)])
    @pytest.mark.parametrize("reverse", [False, True])
    def test_recurrence(self, shape, reverse, rng):
        """Few columns are worked off number by number, many row by row."""
        a, b = rng.normal(size=(2, *shape))
        out = recurrence(a, b, axis=0, reverse=reverse)
        y = np.zeros(shape[1:])
        for k in range(shape[0])[:: -1 if reverse else 1]:
            y = a[k] * y + b[k]
            np.testing.assert_allclose(out[k], y, rtol=1e-12)

    def test_recurrence_needs_equal_shapes(self):
        with pytest.raises(ValueError, match=r"\(3,\) and \(4,\)"):
            wl.jit(lambda a, b: wnp.sum(wl.testing.op_table.registry["recurrence"](
                a._get(), b._get(), axis=0, reverse=False)))(np.ones(3), np.ones(4))  # fmt: skip


class TestExtrema:
    def test_ties_share(self):
        x = np.array([3.0, 1.0, 3.0, 3.0])
        np.testing.assert_allclose(wl.grad(np.max)(x), [1 / 3, 0, 1 / 3, 1 / 3])
        np.testing.assert_allclose(wl.grad(np.min)(-x), [1 / 3, 0, 1 / 3, 1 / 3])
        np.testing.assert_allclose(wl.grad(np.ptp)(np.array([0.0, 0.0, 2.0])), [-0.5, -0.5, 1])
        np.testing.assert_allclose(wl.grad(lambda x: np.nanmax(x))(np.array([2.0, np.nan, 2.0])), [0.5, 0, 0.5])

    def test_accumulated_ties_go_to_the_latest(self):
        jacobian = wl.jacobian(np.maximum.accumulate)(np.array([1.0, 3.0, 3.0, 2.0]))
        np.testing.assert_array_equal(jacobian, np.eye(4)[[0, 1, 2, 2]])
        jacobian = wl.jacobian(np.minimum.accumulate)(np.array([2.0, 3.0, 1.0, 2.0]))
        np.testing.assert_array_equal(jacobian, np.eye(4)[[0, 0, 2, 2]])

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool"])
    def test_integers_at_their_ends(self, dtype):
        low, high = (False, True) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        x = np.array([high, low, high, low], dtype)
        for f in (np.min, np.max, np.argmin, np.argmax, np.minimum.accumulate, lambda x: np.min(x, initial=high)):
            out, expected = traced(f, x), f(x)
            np.testing.assert_array_equal(out, expected)
            assert out.dtype == expected.dtype

    @pytest.mark.parametrize("f", [np.max, np.min, np.argmax, np.argmin, np.ptp, np.maximum.accumulate])
    def test_nan_is_passed_on(self, f):
        for x in (np.array([1.0, np.nan, 3.0]), np.array([[1, 2j], [complex(np.nan, 1), 4]]).ravel()):
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(traced(f, x), f(x))

    def test_nan_in_a_branch_not_taken(self):
        x = np.array([1.0, np.nan])
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(wl.grad(lambda x: np.where(False, np.max(x), 2.0))(x), [0, 0])

    def test_initial_has_a_derivative(self):
        f = lambda x, start: np.max(x, initial=start)
        for start, expected in ((3.0, ([0, 0], 1)), (0.0, ([0, 1], 0)), (2.0, ([0, 0.5], 0.5))):
            x_bar, start_bar = wl.grad(f, (0, 1))(np.array([1.0, 2.0]), start)
            np.testing.assert_array_equal(x_bar, expected[0])
            assert start_bar == expected[1]

    @pytest.mark.parametrize(
        ("f", "message"),
        [
            (lambda x: np.max(x[:0]), "zero-size array to reduction operation maximum which has no identity"),
            (lambda x: np.max(x, where=np.ones(3, bool)), "reduction operation 'maximum' does not have an identity"),
            (lambda x: np.min(x, where=np.ones(3, bool)), "reduction operation 'minimum' does not have an identity"),
            (lambda x: np.argmax(x[:0]), "attempt to get argmax of an empty sequence"),
            (lambda x: np.argmin(x[:0]), "attempt to get argmin of an empty sequence"),
            (lambda x: np.sum(x, axis=1), "axis 1 is out of bounds"),
            (lambda x: np.cumsum(x, axis=-2), "axis -2 is out of bounds"),
            (lambda x: np.sum(x, where=np.ones((2, 3), bool)), "broadcast"),
            (lambda x: np.nanargmax(x * np.nan), "All-NaN slice encountered"),
            (lambda x: np.var(x, ddof=1, correction=1), "can't be provided simultaneously"),
            (lambda x: np.diff(x, n=-1), "order must be non-negative"),
            (lambda x: np.diff(x[0]), "at least one dimensional"),
        ],
    )  # fmt: skip
    def test_errors_are_numpys(self, f, message):
        for g in (f, lambda x: wl.jvp(f, (x,), (x,))):
            with pytest.raises(ValueError, match=message if g is not f else "."):
                g(np.ones(3))


class TestStatistics:
    def test_moments(self, rng):
        x = rng.normal(size=(3, 5))
        n = 5
        centred = x - x.mean(1, keepdims=True)
        np.testing.assert_allclose(
            wl.grad(lambda x: np.sum(np.var(x, axis=1, ddof=1)))(x), 2 * centred / (n - 1), atol=1e-14
        )
        np.testing.assert_allclose(
            wl.grad(lambda x: np.sum(np.std(x, axis=1)))(x), centred / n / x.std(1, keepdims=True), atol=1e-14
        )
        hessian = wl.jacobian(wl.grad(np.var))(x[0])
        np.testing.assert_allclose(hessian, 2 / n * (np.eye(n) - 1 / n), atol=1e-14)

    @pytest.mark.parametrize("f", [np.std, np.nanstd, lambda x: np.std(x, ddof=1), lambda x: x.std()])
    def test_the_deviation_of_equal_numbers(self, f):
        """Its derivative there is zero, forward and reverse, and so is the next."""
        x = np.full(3, 2.5)
        np.testing.assert_array_equal(wl.grad(f)(x), np.zeros(3))
        assert wl.jvp(f, (x,), (np.arange(3.0),))[1] == 0
        np.testing.assert_array_equal(wl.jacobian(wl.grad(f))(x), np.zeros((3, 3)))

    def test_mean_given(self, rng):
        x = rng.normal(size=(4, 3))
        centre = x.mean(0, keepdims=True)
        out = traced(lambda x, m: np.var(x, axis=0, mean=m), x, centre)
        np.testing.assert_allclose(out, np.var(x, axis=0), rtol=1e-14)

    def test_average(self, rng):
        x, w = rng.normal(size=(2, 4)) + 3
        f = lambda x, w: np.average(x, weights=w)
        np.testing.assert_allclose(wl.grad(f)(x, w), w / w.sum())
        np.testing.assert_allclose(wl.grad(f, 1)(x, w), (x - f(x, w)) / w.sum(), atol=1e-14)
        with pytest.raises(ZeroDivisionError, match="Weights sum to zero"):
            wl.grad(f)(x, w * 0)
        with pytest.raises(TypeError, match="Axis must be specified"):
            wl.grad(f)(x, w[:2])
        with pytest.raises(ValueError, match="consistent"):
            wl.grad(lambda x: np.average(x, axis=0, weights=[1.0, 2.0]))(x)

    def test_of_nothing(self):
        with np.errstate(all="ignore"), pytest.warns(RuntimeWarning):
            for f in (np.mean, np.var, np.median, np.nanmedian):
                assert np.isnan(f(np.zeros(0)))
        with np.errstate(all="ignore"):
            for f in (np.mean, np.var, np.median, np.nanmedian, lambda x: np.var(x, ddof=2)):
                assert np.isnan(traced(f, np.zeros(0)))
            assert traced(np.sum, np.zeros(0)) == 0 and traced(np.prod, np.zeros((2, 0))) == 1
            assert np.isinf(traced(lambda x: np.var(x, ddof=2), np.array([1.0, 2.0])))
            assert np.isnan(traced(lambda x: np.nanvar(x, ddof=2), np.array([1.0, 2.0])))


class TestNan:
    HOLED = np.array([[1.0, np.nan, 3.0], [np.nan, 2.0, 0.5], [1.5, 1.2, np.nan]])

    @pytest.mark.parametrize(
        "f",
        [
            np.nansum, np.nanprod, np.nanmean, np.nanvar, np.nanstd, np.nanmax, np.nanmin, np.nanmedian,
            lambda x, **p: np.nanquantile(x, 0.3, **p), lambda x, **p: np.nanpercentile(x, 70, **p),
            lambda x, axis=None: np.sum(np.nancumsum(x, axis)), lambda x, axis=None: np.sum(np.nancumprod(x, axis)),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("axis", [None, 0, 1])
    def test_derivative_at_nan_is_zero(self, f, axis):
        gradient = wl.grad(lambda x: np.sum(f(x, axis=axis)))(self.HOLED)
        holes = np.isnan(self.HOLED)
        np.testing.assert_array_equal(gradient[holes], 0)
        h = 1e-6
        for place in zip(*np.nonzero(~holes)):
            step = np.zeros((3, 3))
            step[place] = h
            numeric = (np.sum(f(self.HOLED + step, axis=axis)) - np.sum(f(self.HOLED - step, axis=axis))) / (2 * h)
            np.testing.assert_allclose(gradient[place], numeric, atol=1e-7)

    def test_nothing_but_nan(self):
        x = np.array([[np.nan, np.nan], [1.0, np.nan]])
        with np.errstate(all="ignore"):
            for f in (np.nanmean, np.nanmax, np.nanmin, np.nanvar, np.nanmedian):
                out = traced(lambda x: f(x, axis=1), x)  # noqa: B023
                assert np.isnan(out[0]) and not np.isnan(out[1])
            assert traced(lambda x: np.nanmax(x, initial=-5.0), x[0]) == -5
            gradient = wl.grad(lambda x: np.sum(np.nanmax(x, axis=1)))(x)
        np.testing.assert_array_equal(gradient, [[0, 0], [1, 0]])

    def test_places(self):
        for f in (np.nanargmax, np.nanargmin):
            for axis in (None, 0, 1):
                np.testing.assert_array_equal(traced(lambda x: f(x, axis=axis), self.HOLED), f(self.HOLED, axis))  # noqa: B023


REDUCTIONS = [
    np.sum,
    np.prod,
    np.mean,
    np.var,
    np.std,
    np.max,
    np.min,
    np.any,
    np.all,
    np.argmax,
    np.cumsum,
    np.cumprod,
]


@pytest.mark.parametrize("f", REDUCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint64", "float16", "float32", "complex64"])
def test_dtypes(f, dtype):
    """Results have NumPy's dtype, and are scalars where NumPy's are, recorded, compiled and as methods."""
    x = np.array([[1, 0, 2], [3, 1, 1]]).astype(dtype)
    for axis in (None, 1):
        expected = f(x, axis=axis)
        for g in (lambda x: f(x, axis=axis), lambda x: getattr(x, f.__name__)(axis=axis)):  # noqa: B023
            out = traced(g, x)
            assert out.dtype == expected.dtype and type(out) is type(expected)
            np.testing.assert_allclose(out, expected, rtol=1e-3 if dtype == "float16" else 1e-6)


class TestOptions:
    def test_where_may_be_traced(self, rng):
        x = rng.normal(size=(3, 4))
        f = lambda x: np.sum(x, where=x > 0) + np.mean(x, where=x < 1.0)
        np.testing.assert_allclose(wl.grad(f)(x), (x > 0) + (x < 1) / np.sum(x < 1))
        np.testing.assert_allclose(wl.jit(f)(x), f(x))

    def test_vmap_of_a_mask(self, rng):
        x, mask = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)) > 0
        out = wl.vmap(lambda x, m: np.sum(x, where=m))(x, mask)
        np.testing.assert_allclose(out, np.sum(x, axis=1, where=mask))

    def test_out_of_a_method_is_refused(self):
        with pytest.raises(TypeError, match=r"out\[...\] = x.sum"):
            wl.grad(lambda x: x.sum(out=np.zeros(())))(np.ones(3))
        assert wl.grad(lambda x: x.sum(None, None, None))(np.ones(1)) == 1

    def test_out_of_a_function(self):
        def f(x):
            total = x[0] * np.ones(2)
            np.sum(x, axis=0, out=total)
            return np.sum(total * total)

        x = np.array([[1.0, 2.0], [3.0, 4.0]])
        np.testing.assert_allclose(wl.grad(f)(x), 2 * np.tile(x.sum(0), (2, 1)))

    def test_lists(self):
        f = lambda x: wnp.sum([x, 2 * x]) + wnp.prod([x, x]) + wnp.max([[x, 3.0], [x, x]])
        assert wl.grad(f)(5.0) == 3 + 10 + 1

    def test_python_scalars_become_numpys(self):
        out = wl.jit(lambda x: np.sum(x))(2.0)
        assert type(out) is np.float64
        assert wl.trace(lambda x, y: np.sum(y) * x)(np.float32(1), 2.0).output_types[0].dtype == np.float64

    def test_empty_axis(self):
        x = np.array([1.0, 2.0])
        np.testing.assert_array_equal(traced(lambda x: np.max(x, axis=()), x), x)
        np.testing.assert_array_equal(traced(lambda x: np.sum(x, axis=(), initial=1), x), x + 1)


class TestPython:
    """Python's own functions iterate over a traced array."""

    X = np.array([2.0, 5.0, 3.0])

    def test_sum_max_min_sorted(self):
        np.testing.assert_array_equal(wl.grad(lambda x: sum(x) + sum(x, 1.0))(self.X), [2, 2, 2])
        np.testing.assert_array_equal(wl.grad(max)(self.X), [0, 1, 0])
        np.testing.assert_array_equal(wl.grad(min)(self.X), [1, 0, 0])
        np.testing.assert_array_equal(wl.grad(lambda x: sorted(x)[1] ** 2)(self.X), [0, 0, 6])
        assert wl.grad(lambda x: max(x, key=abs))(np.array([1.0, -4.0])).tolist() == [0, 1]

    def test_any_all(self):
        f = lambda x: x[0] if any(x > 4) and not all(x > 4) else x[1]
        np.testing.assert_array_equal(wl.grad(f)(self.X), [1, 0, 0])

    def test_sum_is_recorded(self):
        assert wl.jit(lambda x: sum(x))(self.X) == 10


class TestUfuncMethods:
    def test_drop_in(self, rng):
        x = rng.normal(size=(3, 4))
        f = lambda np: lambda x: np.sum(np.add.reduce(x) * np.multiply.reduce(x)) + np.sum(np.multiply.outer(x, x))
        np.testing.assert_allclose(wl.grad(f(np))(x), wl.grad(f(wnp))(x))
        np.testing.assert_allclose(wnp.add.reduce(x, axis=1), x.sum(1))

    def test_outer_of_any_binary_ufunc(self, rng):
        x, y = rng.normal(size=3), rng.normal(size=(2, 2))
        for ufunc in (np.divide, np.power, np.less, np.minimum, np.subtract):
            a = np.abs(x) + 1
            np.testing.assert_allclose(traced(ufunc.outer, a, y), ufunc.outer(a, y))
            np.testing.assert_allclose(traced(lambda y: ufunc.outer([1.0, 2.0], y), y), ufunc.outer([1.0, 2.0], y))  # noqa: B023

    def test_log_sum_exp(self):
        x = np.array([1000.0, 1001.0, -np.inf])
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(traced(np.logaddexp.reduce, x), 1000 + np.log1p(np.e), rtol=1e-15)
            assert traced(np.logaddexp.reduce, np.full(2, -np.inf)) == -np.inf
            assert traced(np.logaddexp.reduce, np.array([np.inf, 1.0])) == np.inf
        weights = np.exp(x - 1001) / np.sum(np.exp(x - 1001))
        np.testing.assert_allclose(wl.grad(np.logaddexp.reduce)(x), weights)
        spread = np.array([-1000.0, 0.0, 1000.0])
        np.testing.assert_allclose(traced(np.logaddexp.accumulate, spread), np.logaddexp.accumulate(spread))

    def test_logical(self):
        x = np.array([[1.0, 0.0], [2.0, 3.0]])
        for ufunc in (np.logical_and, np.logical_or, np.logical_xor):
            for options in ({}, {"axis": None}, {"initial": True}, {"initial": False, "where": x > 1}):
                f = lambda x: ufunc.reduce(x, **options)  # noqa: B023
                np.testing.assert_array_equal(traced(f, x), f(x))

    def test_reduceat_checks_its_indices(self):
        with pytest.raises(IndexError, match=r"index 3 out-of-bounds in add.reduceat \[0, 3\)"):
            wl.grad(lambda x: np.sum(np.add.reduceat(x, [0, 3])))(np.ones(3))
        np.testing.assert_array_equal(traced(lambda x: np.add.reduceat(x, indices=[1, 0]), np.arange(3.0)), [1, 3])

    def test_scalars(self):
        assert traced(np.add.reduce, np.float64(3.0)) == 3
        with pytest.raises(TypeError, match="cannot accumulate on a scalar"):
            traced(np.add.accumulate, np.float64(3.0))


class TestCumulative:
    def test_cumsum_and_diff_are_inverse(self, rng):
        x = rng.normal(size=(3, 5))
        f = lambda x: np.diff(np.cumsum(x, axis=1), axis=1, prepend=0.0)
        np.testing.assert_allclose(wl.jacobian(f)(x).reshape(15, 15), np.eye(15), atol=1e-14)

    def test_standard_functions_want_an_axis(self):
        if not hasattr(np, "cumulative_sum"):
            return
        for f in (np.cumulative_sum, np.cumulative_prod):
            with pytest.raises(ValueError, match="``axis`` argument is required"):
                traced(f, np.ones((2, 3)))
            np.testing.assert_array_equal(traced(f, np.float64(1.0)), f(np.float64(1.0)))

    def test_ediff1d_refuses_what_it_cannot_hold(self):
        with pytest.raises(TypeError, match="same_kind"):
            traced(lambda x: np.ediff1d(x, to_end=np.array([0.5])), np.arange(3))


def test_a_number_is_cumulated_along_an_axis_it_does_not_have():
    for f in (np.cumsum, np.cumprod):
        out = wl.jit(lambda x, f=f: f(x, axis=0))(2.0)
        np.testing.assert_array_equal(out, f(np.float64(2.0), axis=0))
        assert out.shape == (1,)


@pytest.mark.parametrize("f", [np.std, np.var, np.nanstd, np.nanvar])
def test_degrees_of_freedom_may_be_traced(f):
    x = np.arange(6, dtype=np.float32).reshape(2, 3) ** 2
    for ddof in (0, 1, 1.5, np.int64(1)):
        found = wl.jit(lambda x, d: f(x, axis=1, ddof=d))(x, ddof)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, f(x, axis=1, ddof=ddof), rtol=1e-6)
    _, slope = wl.grad(lambda x, d: np.var(x, ddof=d), argnums=(0, 1))(np.arange(3.0), 1.0)  # of 2 / (3 - d)
    np.testing.assert_allclose(slope, 2 / (3 - 1) ** 2)
