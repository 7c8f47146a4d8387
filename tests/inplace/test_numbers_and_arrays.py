"""Arrays without axes can be written, and are where they have two names; NumPy's scalars can't. NumPy is the oracle."""

import copy

import numpy as np
import pytest
from checking import check

import wonderland as wl

X = np.array([1.5, 2.5, -0.5])

# What each makes is an array without axes, or a number, as NumPy decides.
MADE = {
    "array": lambda x: np.array(x[0]), "asarray": lambda x: np.asarray(x[0]),
    "asanyarray": lambda x: np.asanyarray(x[0]),
    "asarray with a dtype": lambda x: np.asarray(2 * x[0], dtype=float), "array of a number": lambda x: np.array(2.0),
    "zeros": lambda x: np.zeros(()), "full": lambda x: np.full((), x[0]), "copy": lambda x: np.copy(x[0]),
    "zeros_like": lambda x: np.zeros_like(x[0]), "full_like": lambda x: np.full_like(x[0], x[2]),
    "where": lambda x: np.where(x[0] > 0, x[0], 0.0), "select": lambda x: np.select([x[0] > 0], [x[0]]),
    "part": lambda x: (1 * x)[0, ...], "copy of a part": lambda x: x[0, ...].copy(),
    "reshape": lambda x: (1 * x)[:1].reshape(()), "squeeze": lambda x: np.squeeze(1 * x[:1]),
    "copied module's way": lambda x: copy.copy(np.array(x[0])), "astype": lambda x: np.array(x[0]).astype(np.float64),
    "transposed": lambda x: np.array(x[0]).T, "into out": lambda x: np.sum(x, out=np.zeros(())),
    "piecewise": lambda x: np.piecewise(x[0], [x[0] > 0], [lambda v: v * v]),
    "element": lambda x: x[0], "sum": lambda x: np.sum(x), "arithmetic": lambda x: np.array(3.0) + x[0],
    "negative": lambda x: -np.array(x[0]), "item of an array": lambda x: np.array(x[0])[()],
    "float64": lambda x: np.float64(x[0]), "element of a list": lambda x: np.array([x[0], x[1]])[0],
    "product": lambda x: np.dot(x, x), "clip": lambda x: np.clip(np.array(x[0]), -9.0, 9.0),
}  # fmt: skip


def renamed(a, x):
    b = a
    b += x[1]
    b *= 2
    return a * b


@pytest.mark.parametrize("name", MADE)
def test_two_names(name):
    check(lambda x: renamed(MADE[name](x), x), X, jit=False, vmap=False)


def test_two_names_compiled_and_batched():
    def all_of_them(x):
        return np.array([renamed(make(x), x) for make in MADE.values()])

    check(all_of_them, X)


def filled(x):
    a = np.array(x[0])
    b = np.asarray(a)  # the array itself
    c = np.array(a)  # another one
    b[...] = x[1] * x[2]
    c.fill(x[2])
    return a * x[0], b, c


def views(x):
    a = np.array(x[0])
    a.reshape(1)[0] = x[1] ** 2
    a.ravel()[:] += x[2]
    a[...] *= 3
    d = np.expand_dims(a, 0)
    d += 1
    return a * d


def ufuncs_into_them(x):
    a, b = np.array(x[0]), np.array(x[1])
    c = a
    np.add(a, b, out=a)
    np.sin(b, out=b)
    return c * b


def in_a_function(x):
    total = np.array(0.0)

    def add(into, v):
        into += v * v

    for v in x:
        add(total, v)
    return total


def in_a_container(x):
    state = {"s": np.array(x[0]), "n": x[0]}
    s, n = state["s"], state["n"]
    s += x[1]
    n += x[1]
    return state["s"] * s + 10 * state["n"] * n


def used_before(x):
    a = np.array(x[0])
    y = x * a
    a += 1
    return y * a


@pytest.mark.parametrize("f", [filled, views, ufuncs_into_them, in_a_function, in_a_container, used_before])
def test_as_numpy(f):
    check(f, X)


def test_an_array_of_a_python_number_has_its_own_dtype():
    """np.array(2.0) isn't weak: beside float32 it makes float64."""
    f, w = wl.lift(lambda rate, w: np.array(rate) * w), np.ones(2, np.float32)
    assert f(2.0, w).dtype == wl.jit(f)(2.0, w).dtype == wl.jvp(f, (2.0, w), (1.0, w))[0].dtype == np.float64


def test_asfortranarray_has_an_axis_at_least():
    for of in (np.float64(2.0), X):
        assert wl.jit(wl.lift(lambda x: np.asfortranarray(x)))(of).shape == np.asfortranarray(of).shape
