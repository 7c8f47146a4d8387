"""Writes that would happen once instead of in every run, masked writes by ufuncs, and what a row of an array costs."""


import numpy as np
import pytest
from recomputation import with_peak

import wonderland as wl


def counted(x):
    out = np.zeros(3)

    def body(i, c):
        out[0] += 1.0
        return c + x

    return wl.fori_loop(0, 4, body, x) + out[0]


def overwritten(x):
    def body(i, c):
        x[0] = 7.0  # x is traced, and made outside
        return c + np.sum(x)

    return wl.fori_loop(0, 4, body, 0.0)


class TestWritesFromInside:
    @pytest.mark.parametrize("transform", [wl.grad, wl.jit], ids=["grad", "jit"])
    def test_a_loop_body_can_not_write_to_a_lifted_array_from_outside(self, transform):
        with pytest.raises(wl.MutationError, match=r"made outside.*test_outside.py:\d+.*carry"):
            transform(wl.lift(counted))(1.0)

    @pytest.mark.parametrize("transform", [wl.grad, wl.jit], ids=["grad", "jit"])
    def test_nor_to_a_traced_argument_of_the_enclosing_function(self, transform):
        with pytest.raises(wl.MutationError, match="made outside"):
            transform(overwritten)(np.ones(3))

    def test_nor_a_function_under_vmap(self):
        @wl.lift
        def f(xs):
            total = np.zeros(())[None]

            def each(x):
                total[0] += 1.0
                return x * total[0]

            return np.sum(wl.vmap(each)(xs))

        with pytest.raises(wl.MutationError, match="made outside"):
            wl.grad(f)(np.ones(3))

    def test_what_is_made_inside_can_be_written(self):
        @wl.lift
        def f(x):
            def body(i, c):
                work = np.zeros(2)
                work[0] = c
                work[1] += work[0] * x
                return np.sum(work)

            return wl.fori_loop(0, 3, body, x)

        assert np.isclose(wl.jit(f)(2.0), 2.0 * 3.0**3)
        assert np.isclose(wl.grad(f)(2.0), 3.0**3 + 2.0 * 3 * 3.0**2)


class TestWhere:
    def test_out_keeps_what_where_leaves_out(self):
        def f(a, b):
            return np.divide(a, b, out=np.zeros_like(a), where=b != 0)

        a, b = np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.0, 4.0])
        for g in (wl.jit(f), lambda *x: wl.vjp(f, *x)[0], lambda *x: wl.jvp(f, x, x)[0]):
            np.testing.assert_array_equal(g(a, b), [0.5, 0.0, 0.75])
        da, db = wl.grad(lambda a, b: np.sum(f(a, b)), (0, 1))(a, b)
        np.testing.assert_array_equal(da, [0.5, 0.0, 0.25])
        np.testing.assert_array_equal(db, [-0.25, 0.0, -3 / 16])

    def test_without_out_there_is_nothing_to_keep(self):
        with pytest.raises(TypeError, match="where"):
            wl.grad(lambda x: np.sum(np.sqrt(x, where=x > 0)))(np.ones(3))


class TestRows:
    @staticmethod
    def sweep(a):
        row = a[1]
        for i in range(1, len(row)):
            row[i] = row[i] + 0.5 * row[i - 1]
        return np.sum(a**2)

    def test_a_row_is_a_view_whose_elements_are_the_arrays_own(self):
        a = np.linspace(0.0, 1.0, 12).reshape(3, 4)
        expected = self.sweep(a.copy())
        value, gradient = wl.value_and_grad(self.sweep)(a)
        assert np.isclose(value, expected)
        eps = 1e-6
        for place in np.ndindex(a.shape):
            b = a.copy()
            b[place] += eps
            assert np.isclose((self.sweep(b) - expected) / eps, gradient[place], atol=1e-4)

    def test_one_element_of_a_row_costs_the_same_for_rows_of_any_length(self):
        def peak(n):
            return with_peak(wl.grad(self.sweep), np.ones((2, n)))[1] / n

        assert peak(800) < 1.5 * peak(100)
