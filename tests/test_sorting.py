"""Sorting, searching, counting and order statistics beyond their rows: ties, views, NaN, methods, errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wonderland as wl
from wonderland.testing import check_grads

METHODS = (
    "linear", "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased", "normal_unbiased", "inverted_cdf",
    "closest_observation", "lower", "higher", "nearest", "averaged_inverted_cdf", "midpoint",
)  # fmt: skip


class TestSort:
    X = np.array([[3.0, 1.0, 2.0], [0.5, 4.0, -1.0]])

    def test_derivatives_are_permutations(self):
        jacobian = wl.jacobian(np.sort)(self.X[0])
        np.testing.assert_array_equal(jacobian, np.eye(3)[[1, 2, 0]])
        f = lambda x: np.sum(np.sort(x) ** 3 * np.arange(3))
        ranks = np.argsort(np.argsort(self.X[0]))
        np.testing.assert_allclose(wl.jacobian(wl.grad(f))(self.X[0]), np.diag(6 * self.X[0] * ranks))

    def test_equal_numbers_keep_their_order(self):
        x = np.array([2.0, 1.0, 2.0, 1.0])
        np.testing.assert_array_equal(wl.jacobian(np.sort)(x), np.eye(4)[[1, 3, 0, 2]])
        np.testing.assert_array_equal(wl.jit(np.argsort)(x), [1, 3, 0, 2])

    def test_nan_and_complex_as_numpy(self):
        x = np.array([2.0, np.nan, -np.inf, 1.0, np.inf])
        z = np.array([1 + 2j, 1 - 1j, complex(np.nan, 0), 0.5 + 3j])
        for a in (x, z):
            for f in (np.sort, np.argsort, np.sort_complex):
                np.testing.assert_array_equal(wl.jit(f)(a), f(a))
                np.testing.assert_array_equal(wl.jvp(f, (a,), (np.ones_like(a),))[0], f(a))

    def test_in_place(self):
        def f(x, weights):
            y = x.copy()
            assert y.sort() is None
            return np.sum(y * weights)

        weights = np.array([1.0, 10.0, 100.0])
        np.testing.assert_array_equal(wl.grad(f)(self.X, weights), [[100, 1, 10], [10, 100, 1]])
        np.testing.assert_array_equal(wl.jit(f)(self.X, weights), f(self.X, weights))

    def test_in_place_on_a_view(self):
        def f(x):
            y = x * 2
            y[:, 1].sort()
            y[0].partition(1)
            return y

        np.testing.assert_array_equal(wl.jit(f)(self.X), f(self.X))
        x = np.array([[1.0, 5.0], [2.0, 3.0]])
        g = lambda x: (lambda y: (y[:, 1].sort(), y)[1])(x * 1.0)
        np.testing.assert_array_equal(wl.jit(g)(x), [[1, 3], [2, 5]])
        np.testing.assert_array_equal(wl.grad(lambda x: g(x)[0, 1])(x), [[0, 0], [0, 1]])

    def test_descending_by_composition(self):
        f = lambda x: np.sort(x)[::-1]
        np.testing.assert_array_equal(wl.jacobian(f)(self.X[0]), np.eye(3)[[0, 2, 1]])

    def test_partitions_are_sorted(self):
        x = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
        np.testing.assert_array_equal(wl.jit(lambda x: np.partition(x, (1, 3)))(x), np.sort(x))
        np.testing.assert_array_equal(wl.jit(lambda x: x.argpartition(2))(x), np.argsort(x))

    def test_lexsort(self, rng):
        first, second = rng.integers(0, 3, (2, 20))
        for f in (lambda a, b: np.lexsort((a, b)), lambda a, b: np.lexsort(np.stack([a, b]))):
            np.testing.assert_array_equal(wl.jit(f)(first, second), f(first, second))

    @pytest.mark.parametrize(
        ("f", "error", "message"),
        [
            (lambda x: np.sort(x, axis=1), ValueError, "axis 1 is out of bounds"),
            (lambda x: np.sort(x, order="a"), ValueError, "no fields"),
            (lambda x: np.sort(x, kind="bogo"), ValueError, "bogo"),
            (lambda x: np.partition(x, 7), ValueError, r"kth\(=7\) out of bounds \(3\)"),
            (lambda x: np.partition(x, 0.5), TypeError, "must be integer"),
            (lambda x: np.searchsorted(x, x, side="middle"), ValueError, "'left' or 'right'"),
            (lambda x: np.searchsorted(x[None], x), ValueError, "too deep"),
            (lambda x: np.searchsorted(x, x, sorter=[0]), ValueError, "sorter.size"),
            (lambda x: np.digitize(x, [0.0, 2.0, 1.0]), ValueError, "monotonically"),
            (lambda x: np.quantile(x, 1.5), ValueError, r"range \[0, 1\]"),
            (lambda x: np.percentile(x, [50, 101]), ValueError, r"range \[0, 100\]"),
            (lambda x: np.quantile(x, 0.5, method="best"), ValueError, "'best' is not a valid method"),
            (lambda x: np.quantile(x, 0.5, weights=x), ValueError, "Only method 'inverted_cdf' supports weights"),
            (lambda x: np.quantile(x, 0.5, weights=-x, method="inverted_cdf"), ValueError, "non-negative"),
            (lambda x: np.quantile(x[:0], 0.5), IndexError, r"empty array \(shape \(0,\)\)"),
            (lambda x: np.quantile(x * 1j, 0.5), TypeError, "real numbers"),
            (lambda x: np.histogram(x, [0.0, 2.0, 1.0]), ValueError, "increase monotonically"),
            (lambda x: np.histogram(x, 0), ValueError, "positive"),
            (lambda x: np.histogram(x, weights=[1.0]), ValueError, "same shape"),
            (lambda x: np.bincount([0, -1, 0], weights=x), ValueError, "no negative"),
            (lambda x: np.bincount([0, 1], weights=x), ValueError, "same length"),
            (lambda x: np.bincount(x), TypeError, "Cannot cast"),
        ],
    )  # fmt: skip
    def test_errors(self, f, error, message):
        x = np.array([1.0, 2.0, 3.0])
        with pytest.raises(error):
            f(x)
        with pytest.raises(error, match=message):
            wl.jvp(f, (x,), (x,))


class TestSearching:
    def test_batches(self, rng):
        a, v = np.sort(rng.normal(size=(4, 6))), rng.normal(size=(4, 3))
        for axes in ((0, 0), (None, 0), (0, None)):
            args = [x if axis == 0 else x[0] for x, axis in zip((a, v), axes)]
            out = wl.vmap(np.searchsorted, axes)(*args)
            each = [np.searchsorted(*(x[i] if axis == 0 else x for x, axis in zip(args, axes))) for i in range(4)]
            np.testing.assert_array_equal(out, each)
        twice = wl.vmap(wl.vmap(np.searchsorted))(a.reshape(2, 2, 6), v.reshape(2, 2, 3))
        np.testing.assert_array_equal(twice.reshape(4, 3), [np.searchsorted(a[i], v[i]) for i in range(4)])

    def test_piecewise_linear_interpolation(self):
        """What people write with searchsorted has the derivative of the piece."""
        knots, heights = np.array([0.0, 1.0, 3.0, 4.0]), np.array([1.0, 2.0, 0.0, 5.0])

        def f(x, knots, heights):
            i = np.clip(np.searchsorted(knots, x) - 1, 0, 2)
            way = (x - knots[i]) / (knots[i + 1] - knots[i])
            return np.sum((1 - way) * heights[i] + way * heights[i + 1])

        x = np.array([0.5, 2.0, 3.5])
        np.testing.assert_allclose(wl.grad(f)(x, knots, heights), [1, -1, 5])
        check_grads(f, (x, knots, heights))

    def test_bins_that_are_traced(self):
        x = np.array([0.2, 6.4, 3.0, 1.6])
        for bins in (np.array([0.0, 1.0, 2.5, 4.0, 10.0]), np.array([10.0, 4.0, 2.5, 1.0, 0.0]), np.array([1.0])):
            for right in (False, True):
                out = wl.jit(lambda x, b: np.digitize(x, b, right=right))(x, bins)  # noqa: B023
                np.testing.assert_array_equal(out, np.digitize(x, bins, right))


class TestCounting:
    def test_histogram(self, rng):
        x, w = rng.normal(size=(2, 50))
        for options in (
            {}, {"bins": 7}, {"bins": 4, "range": (-1, 1.5)}, {"bins": [-1.0, 0.0, 0.1, 2.0]}, {"density": True},
            {"weights": w}, {"weights": w, "density": True, "bins": 3},
        ):  # fmt: skip
            counts, edges = wl.jit(lambda x: np.histogram(x, **options))(x)  # noqa: B023
            expected = np.histogram(x, **options)
            np.testing.assert_allclose(counts, expected[0], rtol=1e-13)
            np.testing.assert_allclose(edges, expected[1], rtol=1e-13)
            assert counts.dtype == expected[0].dtype

    def test_histogram_of_equal_and_border_numbers(self):
        for x in (np.ones(3), np.array([0.0, 1.0, 2.0, 2.0]), np.zeros(0)):
            counts, edges = wl.jit(lambda x: np.histogram(x, bins=2))(x)
            np.testing.assert_array_equal(counts, np.histogram(x, bins=2)[0])
            np.testing.assert_array_equal(edges, np.histogram(x, bins=2)[1])

    def test_number_of_bins_by_rule_needs_values(self, rng):
        x = rng.normal(size=30)
        f = lambda x: np.histogram(x, bins="sturges")[1]
        np.testing.assert_allclose(wl.jvp(f, (x,), (x,))[0], f(x))
        with pytest.raises(wl.NoValueError, match="sturges"):
            wl.jit(f)(x)

    def test_bincount(self):
        labels, w = np.array([0, 2, 2, 5]), np.array([1.0, 2.0, 3.0, 4.0])
        np.testing.assert_array_equal(wl.grad(lambda w: np.bincount(labels, w)[2] ** 2)(w), [0, 10, 10, 0])
        out = wl.jvp(lambda x: (np.bincount(np.argsort(x)), x), (w,), (w,))[0]
        np.testing.assert_array_equal(out[0], [1, 1, 1, 1])
        with pytest.raises(wl.NoValueError, match="bincount"):
            wl.jit(np.bincount)(labels)
        assert wl.jit(lambda w: np.bincount(labels, w, minlength=9))(w).shape == (9,)


class TestQuantiles:
    @given(
        st.lists(st.integers(-5, 5), min_size=1, max_size=9), st.floats(0, 1), st.sampled_from(METHODS),
        st.sampled_from(["quantile", "nanquantile"]),
    )  # fmt: skip
    def test_all_methods_as_numpy(self, numbers, q, method, name):
        x = np.array(numbers, float) / 3
        f = lambda x: getattr(np, name)(x, q, method=method)
        np.testing.assert_allclose(wl.jvp(f, (x,), (x,))[0], f(x), rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("method", METHODS)
    def test_shifting_and_scaling(self, method, rng):
        """quantile(a + b x) = a + b quantile(x): the derivatives are a partition of one and reproduce the quantile."""
        x = rng.normal(size=9)
        for q in (0.0, 0.13, 0.5, 0.9, 1.0):
            f = lambda x: np.quantile(x, q, method=method)  # noqa: B023
            gradient = wl.grad(f)(x)
            assert np.all(gradient >= 0)
            np.testing.assert_allclose([gradient.sum(), gradient @ x], [1, f(x)], rtol=1e-12)

    def test_derivative_in_q(self):
        x = np.array([4.0, 1.0, 2.0])
        f = lambda q, x: np.sum(np.quantile(x, q))
        np.testing.assert_allclose(wl.grad(f)(np.array([0.25, 0.75]), x), [2 * 1, 2 * 2])
        mixed = wl.jacobian(wl.grad(f))(np.array([0.25]), x)
        np.testing.assert_allclose(mixed, [[0]])
        np.testing.assert_allclose(wl.jacobian(wl.grad(f), 1)(np.array([0.25]), x), [[0, -2, 2]])

    def test_median(self):
        for x, expected in (([3.0, 1.0, 2.0], [0, 0, 1]), ([4.0, 1.0, 2.0, 9.0], [0.5, 0, 0.5, 0])):
            np.testing.assert_array_equal(wl.grad(np.median)(np.array(x)), expected)
        assert wl.jit(np.median)(np.array([1, 2, 4, 5])) == 3.0
        z = np.array([1 + 1j, 2 - 1j, 0.5 + 0j, 3 + 0j])
        assert wl.jit(np.median)(z) == np.median(z)

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_nan_and_infinity_as_numpy(self):
        rows = [[1, np.nan, 3, 2], [1, 2, 3, np.inf], [np.nan] * 4, [-np.inf, 0, 1, 2]]
        for row in rows:
            x = np.array(row, float)
            for f in (np.median, np.nanmedian, lambda x: np.quantile(x, [0.2, 0.5]), lambda x: np.nanquantile(x, 0.4)):
                np.testing.assert_allclose(wl.jit(f)(x), f(x), rtol=1e-14)

    @pytest.mark.parametrize(
        "q", [0, 1, 0.5, np.float32(0.3), np.float64(0.3), np.array([0.2, 0.4], "float32"), [0.1, 1]]
    )
    @pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
    def test_dtypes(self, q, dtype):
        x = np.array([[5, 1, 2], [7, 3, 9]]).astype(dtype)
        for options in ({}, {"method": "higher"}, {"axis": 0, "keepdims": True}):
            expected = np.quantile(x, q, **options)
            out = wl.jit(lambda x: np.quantile(x, q, **options))(x)  # noqa: B023
            assert out.dtype == expected.dtype and out.shape == expected.shape
            np.testing.assert_allclose(out, expected, rtol=1e-6)

    def test_weights(self, rng):
        x, w = rng.normal(size=(2, 6, 4))
        w = np.abs(w)
        w[0] = 0
        for q in (0.0, 0.31, np.array([0.5, 1.0])):
            for f in (np.quantile, np.nanquantile):
                for axis in (None, 0, 1):
                    g = lambda x: f(x, q, axis=axis, method="inverted_cdf", weights=w)  # noqa: B023
                    if axis == 1:
                        w[0] = 1
                    np.testing.assert_array_equal(wl.jit(g)(x), g(x))

    def test_second_order_and_batches(self, rng):
        x = rng.normal(size=(3, 7))
        f = lambda x: np.quantile(x, 0.37) ** 3 + np.median(x[:6]) ** 2 + np.sum(np.cumsum(np.sort(x)) ** 2)
        check_grads(f, (x[0],), order=2)
        np.testing.assert_allclose(wl.vmap(wl.grad(f))(x), [wl.grad(f)(row) for row in x], rtol=1e-12)
