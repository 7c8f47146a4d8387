"""warn_on_broadcast: the (n, 1) + (n,) trap is found where it is, and nothing else is."""

import inspect
import subprocess
import sys
import warnings

import numpy as np
import pytest

import wonderland as wl
from wonderland.numpy.broadcasting import BroadcastWarning, is_trap, warn_on_broadcast

N = 4
COLUMN, VECTOR, MATRIX = np.ones((N, 1)), np.arange(1.0, N + 1), np.ones((N, 3))


def found(f, *args, transform=wl.grad):
    """The warnings that a transformed function issues in the context."""
    with warnings.catch_warnings(record=True) as caught, warn_on_broadcast():
        warnings.simplefilter("always")
        transform(f)(*args)
    return [str(w.message) for w in caught if issubclass(w.category, BroadcastWarning)]


def loss(w, x=COLUMN, y=VECTOR):
    return np.sum((x * w - y) ** 2)


def test_the_trap_names_shapes_and_line():
    (message,) = found(loss, 2.0)
    line = inspect.getsourcelines(loss)[1] + 1
    assert f"of shapes ({N}, 1) and ({N},) (test_broadcasting.py:{line}) makes an array of shape ({N}, {N})" in message
    assert "x[:, None] and y[None, :]" in message


def test_the_notes_column_plus_vector():
    """E2.1, Box C.2.1: (4, 1) + (4,) has shape (4, 4), with the warning."""
    (message,) = found(lambda x, y: np.sum(x + y), np.ones((4, 1)), np.ones(4))
    assert "of shapes (4, 1) and (4,)" in message and "an array of shape (4, 4)" in message
    assert wl.jit(np.add)(np.ones((4, 1)), np.ones(4)).shape == (4, 4)


@pytest.mark.parametrize(
    "f",
    [
        lambda w: np.sum(np.maximum(w * COLUMN, VECTOR)),
        lambda w: np.sum(VECTOR - w * COLUMN),
        lambda w: np.sum(np.where(w * COLUMN > 0, VECTOR * w, 1.0)),
        lambda w: np.sum((w * COLUMN) * (w * VECTOR)),
    ],
)
def test_ufuncs_operators_and_where(f):
    assert len(found(f, 2.0)) >= 1


@pytest.mark.parametrize(
    "f",
    [
        lambda w: np.sum((w * COLUMN)[:, 0] - VECTOR),
        lambda w: np.sum(w * COLUMN - VECTOR[None, :]),  # said explicitly
        lambda w: np.sum(w * VECTOR[:, None] - VECTOR[None, :]),
        lambda w: np.sum(w * MATRIX + np.ones(3)),  # only one of them is repeated
        lambda w: np.sum(w * MATRIX / np.sum(w * MATRIX, axis=1, keepdims=True)),
        lambda w: np.sum(w * COLUMN * 2.0 + np.float64(1.0)),
        lambda w: np.sum(w * np.ones((1, 1)) + np.ones(1)),  # n = 1
        lambda w: np.sum((w * COLUMN).T @ VECTOR),
        lambda w: np.sum(np.cov(w * MATRIX) + np.trapezoid(w * MATRIX, VECTOR[:3])),  # our own broadcasting
    ],
)
def test_no_warning(f):
    assert found(f, 2.0) == []


def test_shapes():
    assert is_trap((3, 1), (3,)) and is_trap((3,), (3, 1)) and is_trap((2, 3, 1), (4,)) and is_trap((3, 1), (4,))
    assert not is_trap((3, 1), (1, 3)) and not is_trap((3, 1), ()) and not is_trap((2, 3), (3,))
    assert not is_trap((1, 1), (1,)) and not is_trap((3, 1), (1,)) and is_trap((3,), (), (3, 1))


def test_under_vmap_jit_and_nesting():
    assert found(loss, 2.0, transform=wl.jit)
    assert found(loss, np.ones(3), transform=wl.vmap)
    assert found(loss, 2.0, transform=lambda f: wl.grad(wl.grad(f)))
    assert not found(lambda w: np.sum(w - VECTOR), np.ones((3, N)), transform=wl.vmap)  # each w has shape (N,)


def test_only_inside_the_context_and_as_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = wl.grad(loss)(2.0)
        with pytest.raises(BroadcastWarning), warn_on_broadcast():
            wl.grad(loss)(2.0)
        assert wl.grad(loss)(2.0) == expected


def test_nothing_is_installed_before_the_first_use():
    code = (
        "import sys, numpy as np, wonderland as wl; assert 'wonderland.numpy.broadcasting' not in sys.modules;"
        "from wonderland.core.tracer import UFUNCS; before = UFUNCS[np.add];"
        "import wonderland.numpy.broadcasting as b; assert UFUNCS[np.add] is before;"
        "b.warn_on_broadcast().__enter__(); assert UFUNCS[np.add] is not before"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
