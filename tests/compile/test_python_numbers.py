"""Python's numbers in compiled code: as arguments, constants and options they mean what they mean to NumPy."""

import math

import numpy as np
import pytest

import wonderland as wl

PIXELS = np.array([10, 200], np.uint8)


@pytest.mark.parametrize("number", [-1, 10, 100, 255, 256, 266, 2**40])
@pytest.mark.parametrize("compare", [np.less, np.greater_equal, np.equal, np.not_equal])
def test_integer_arguments_compare_by_value(compare, number):
    want = {np.less: PIXELS < number, np.greater_equal: PIXELS >= number}
    want |= {np.equal: PIXELS == number, np.not_equal: PIXELS != number}
    np.testing.assert_array_equal(wl.jit(compare)(PIXELS, number), want[compare])


def test_integer_arguments_must_fit():
    add = wl.jit(np.add)
    np.testing.assert_array_equal(add(PIXELS, 3), PIXELS + 3)
    for number in (300, -1):
        with pytest.raises(OverflowError, match="out of bounds for uint8"):
            add(PIXELS, number)
    with pytest.raises(OverflowError, match="out of bounds for uint64"):
        add(np.arange(3, dtype=np.uint64), -1)
    with pytest.raises(OverflowError):
        wl.jit(lambda x: x * -1)(PIXELS)


def test_large_constants():
    assert wl.jit(lambda x: x / math.factorial(21))(1.0) == 1.0 / math.factorial(21)
    np.testing.assert_array_equal(wl.jit(lambda x: x * 2**70)(np.ones(2)), np.ones(2) * 2.0**70)
    np.testing.assert_array_equal(wl.jit(lambda x: x < 2**64)(np.arange(2)), [True, True])
    odd = np.arange(2, dtype=np.uint64)
    np.testing.assert_array_equal(wl.jit(lambda x: x * 0x9E3779B97F4A7C15)(odd), odd * np.uint64(0x9E3779B97F4A7C15))


@pytest.mark.parametrize("options", [{"keepdims": False}, {"axis": 0}, {"keepdims": True}])
def test_a_traced_option_is_refused(options):
    with pytest.raises(wl.NoValueError, match="static"):
        wl.jit(np.sum)(np.ones((3, 2)), **options)
    names = tuple(options)
    static = wl.jit(np.sum, static_argnames=names)(np.ones((3, 2)), **options)
    np.testing.assert_array_equal(static, np.sum(np.ones((3, 2)), **options))


def test_an_option_with_a_value_has_that_value():
    assert wl.grad(lambda a: np.linspace(a, 3.0, 3, endpoint=a > 99)[1])(1.0) == pytest.approx(2 / 3)
    with pytest.raises(wl.NoValueError):
        wl.vmap(lambda x, keep: np.sum(x, keepdims=keep))(np.ones((3, 2)), np.array([True, False, True]))
