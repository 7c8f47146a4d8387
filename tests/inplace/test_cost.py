"""One element costs one element: loops over n elements do O(n) work, forward and reverse, not O(n^2).

Work is counted: the equations of recorded Programs, and the bytes that reads and updates move when they run.
"""

import numpy as np
import pytest

import wonderland as wl
from wonderland.core.program import subprograms
from wonderland.ops import index


def recurrence(x):
    y = np.zeros(len(x))
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = 0.5 * y[i - 1] + x[i]
    return np.sum(y)


def in_the_arguments_array(x):
    for i in range(1, len(x)):
        x[i] *= x[i - 1]
    return x[-1]


def through_a_view(x):
    y = np.zeros((2, len(x)))
    row = y[1]
    for i in range(len(x)):
        row[i] = 2 * x[i]
    return np.sum(y)


def through_rows(x):
    table = np.zeros((len(x), 2))
    table[0, 0] = x[0]
    for i in range(1, len(x)):
        table[i] = table[i - 1] * 0.5
        table[i, 1] += x[i]
    return table[-1, 1]


def two_work_arrays(x):
    c, d = np.zeros(len(x)), np.zeros(len(x))
    for i in range(1, len(x)):
        c[i] = 1.0 / (3.0 + c[i - 1])
        d[i] = (x[i] + d[i - 1]) * c[i]
    for i in range(len(x) - 2, -1, -1):
        d[i] -= c[i] * d[i + 1]
    return d[0]


LOOPS = [recurrence, in_the_arguments_array, two_work_arrays, through_rows]


@pytest.fixture
def touched(monkeypatch):
    """Bytes that slices and updates move, whole copies included."""
    count = {"bytes": 0}

    def counting(primitive, slot, size):
        rule = getattr(primitive, slot)

        def counted(x, *args, **params):
            out = rule(x, *args, **params)
            count["bytes"] += size(x, args, out)
            return out

        monkeypatch.setattr(primitive, slot, counted)

    for primitive in (index.scatter_slice, index.scatter):
        counting(primitive, "evaluate", lambda x, args, out: out.nbytes)
        counting(primitive, "update", lambda x, args, out: args[-1].nbytes)
    # A large part of an array is a view of it, which costs nothing.
    counting(index.slice, "evaluate", lambda x, args, out: 8 if getattr(out, "base", None) is not None else out.nbytes)
    return count


def run(f, n, mode):
    x = np.linspace(0.9, 1.0, n)
    lifted = wl.lift(f)
    return wl.grad(lifted)(x) if mode == "reverse" else wl.jvp(lifted, (x,), (np.ones(n),))[1]


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_bytes_grow_linearly(f, mode, touched):
    counts = []
    for n in (100, 800):
        touched["bytes"] = 0
        run(f, n, mode)
        counts.append(touched["bytes"])
    assert counts[1] < 10 * counts[0], counts


def test_four_thousand_elements(touched):
    n = 4000
    gradient = run(recurrence, n, "reverse")
    np.testing.assert_allclose(gradient, 2 - 0.5 ** np.arange(n - 1, -1, -1.0))
    assert touched["bytes"] < 200 * n


def equations(program):
    return sum(1 + sum(map(equations, subprograms(e))) for e in program.equations)


@pytest.mark.parametrize("f", [*LOOPS, through_a_view], ids=lambda f: f.__name__)
def test_recorded_programs_grow_linearly(f):
    def count(transformed, n):
        return equations(wl.trace(transformed)(np.ones(n)))

    lifted = wl.lift(f)
    for transformed in (lifted, wl.grad(lambda x: np.sin(lifted(np.sin(x))))):
        few, many = count(transformed, 50), count(transformed, 100)
        assert many < 2.2 * few, (few, many)
