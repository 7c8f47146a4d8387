"""`cond` and `switch`: a branch owns what it computes, and what raises in one raises for those who take it."""

import numpy as np
import pytest

import wonderland as wl
import wonderland.numpy as wnp

X = np.array([0.7, -1.3, 2.1])
TABLE = np.arange(1.0, 6.0)
EAGER_AND_JIT = pytest.mark.parametrize("compiled", [lambda f: f, wl.jit], ids=["eager", "jit"])


def positive(x):
    return np.sum(x) > 0


# -- captured values ---------------------------------------------------------------------------------------------------


def counting():
    """A function, and the list of the arguments that it was called with when code ran."""
    calls = []

    def h(x):
        wl.host_call(lambda a: calls.append(float(a)), (), wl.stop_gradient(x))
        return np.sin(x) * x

    return h, calls


@EAGER_AND_JIT
@pytest.mark.parametrize("transform", [lambda f: f, lambda f: wl.grad(f, 1), lambda f: wl.vmap(f, (None, 0))])
def test_a_branch_that_is_not_taken_does_not_run(transform, compiled):
    h, calls = counting()
    f = compiled(transform(lambda p, x: wl.cond(p, lambda: h(x), lambda: 0.0)))
    x = np.array([2.0]) if f.__name__.startswith("vmap") else 2.0
    f(False, x)
    assert not calls
    f(True, x)
    assert calls == [2.0]


@pytest.mark.parametrize("transform", [lambda f: f, wl.grad], ids=["value", "grad"])
def test_what_a_branch_computes_from_captured_values_is_in_the_branch(transform):
    def f(x):
        y = x * 2  # outside
        return wl.cond(
            x > 0, lambda: wl.while_loop(lambda s: s < 9, lambda s: s + np.exp(y), np.tanh(y)), lambda: np.cosh(y)
        )

    program = wl.trace(transform(f))(np.float64(1.0))
    outside = {e.primitive.name for e in program.equations}
    assert "mul" in outside and not outside & {"exp", "tanh", "cosh", "scan", "sinh"}


def _view(x):
    y, z = x[1:], x.reshape(3, 1).T
    out = wl.cond(positive(x), lambda: np.sum(y * y) + np.sum(z), lambda: np.sum(y**3))
    return out + np.sum(y) * np.sum(z * 2)


def _written(x):
    y = x * 1.0
    v = y[1:]
    y[1] = y[0] * 2  # v reads again: first inside, then outside
    out = wl.cond(positive(x), lambda: np.sum(v * v * y[0]), lambda: np.sum(v**3))
    return out + np.sum(v) * y[1]


def _made_inside(x):
    def branch():
        y = wnp.zeros(3)
        y[0] = x[0]
        y[1:] = np.sin(x[1:])
        y *= x[2]
        return np.sum(y)

    return wl.cond(positive(x), branch, lambda: x[1] ** 2)


def _with_while(x):
    def step(s):
        grown = wl.cond(s[0] > 0, lambda: s[1] * np.sin(x[1]), lambda: s[1] * np.sum(x**2))
        return s[0] + 1, grown

    return wl.cond(positive(x), lambda: wl.while_loop(lambda s: s[0] < 2, step, (0, x[0]))[1], lambda: x[1] ** 2)


_jitted = wl.jit(lambda a, b: np.sum(np.sin(a) * b))
CASES = {
    "plain": lambda x: wl.cond(positive(x), lambda: np.sum(np.sin(x) ** 2), lambda: np.sum(x**3)),
    "views": _view,
    "written views": _written,
    "made inside": _made_inside,
    "nested": lambda x: wl.cond(
        positive(x),
        lambda: wl.cond(x[0] > x[1], lambda: np.sum(np.exp(x) * x[0]), lambda: x[2] ** 2),
        lambda: wl.cond(x[2] > 0, lambda: x[0] ** 3, lambda: np.prod(x)),
    ),
    "while": _with_while,
    "in a loop": lambda x: wl.scan(
        lambda c, t: (wl.cond(c * t > 0, lambda: np.sum(np.cos(x)) * c * t, lambda: c + x[1] ** 2), c), x[0], x
    )[0],
    "grad": lambda x: wl.cond(
        positive(x), lambda: np.sum(wl.grad(lambda y: np.sum(np.sin(y) * y * x[0]))(x)), lambda: x[1] ** 2
    ),
    "jit and vmap": lambda x: wl.cond(
        positive(x), lambda: _jitted(x, x[0]) + np.sum(wl.vmap(lambda a: a * np.sin(x[0]))(x)), lambda: x[1] ** 2
    ),
    "checkpoint": lambda x: wl.cond(
        positive(x), lambda: wl.checkpoint(lambda a: np.sum(np.sin(a) * x[0]))(x), lambda: x[1] ** 2
    ),
    "operands too": lambda x: wl.cond(positive(x), lambda a: a * np.sum(x), lambda a: a + x[1] ** 2, x[0] * x[2]),
    "returned as it is": lambda x: np.sum(wl.cond(positive(x), lambda: x, lambda: x * 2) ** 2),
    "switch": lambda x: wl.switch(
        np.sum(x > 0), [lambda: x[0] ** 2, lambda: np.sum(np.sin(x)), lambda: np.prod(x), lambda: np.sum(np.exp(x))]
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_branches_that_capture(name):
    f = CASES[name]
    by_differences = [(f(X + e) - f(X - e)) / 2e-6 for e in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(wl.grad(f)(X), by_differences, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(wl.jvp(f, (X,), (np.ones(3),))[1], np.sum(by_differences), rtol=1e-6)
    rows = np.stack([X, 0.5 * X, -X])
    gradients = np.stack([wl.grad(f)(x) for x in rows])
    np.testing.assert_allclose(wl.vmap(f)(rows), [f(x) for x in rows])
    np.testing.assert_allclose(wl.grad(lambda rows: np.sum(wl.vmap(f)(rows)))(rows), gradients)
    value, batched = wl.jit(lambda rows: (f(rows[0]), wl.vmap(wl.grad(f))(rows)))(rows)
    np.testing.assert_allclose(value, f(X))
    np.testing.assert_allclose(batched, gradients)
    curvature = [(wl.grad(f)(X + e) - wl.grad(f)(X - e)) / 2e-6 for e in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(wl.hessian(f)(X), curvature, rtol=1e-5, atol=1e-6)


def test_decisions_on_captured_values():
    """Where there is a value (an eager derivative), Python may look at what follows from captured ones."""

    def f(x):
        def by_value():
            k = int(np.sum(x > 0))
            return np.sum(x[x > 0][:k]) * k if x[0] > 0 and float(wl.stop_gradient(x[1])) < 0 else x[0]

        return wl.cond(positive(x), by_value, lambda: x[1])

    np.testing.assert_allclose(wl.grad(f)(X), [2, 0, 2])
    with pytest.raises(wl.LostDerivativeError, match="would drop its derivative"):
        wl.grad(lambda x: wl.cond(True, lambda: x[0] * float(x[1]), lambda: x[0]))(X)
    for g in (
        wl.grad(lambda x: wl.cond(True, lambda a: x[0] * (1 if a > 0 else 2), lambda a: x[0], x[1])),
        wl.jit(lambda x: wl.cond(True, lambda: x[0] * (1 if x[1] > 0 else 2), lambda: x[0])),
    ):
        with pytest.raises(wl.NoValueError):
            g(X)


# -- raising under vmap ------------------------------------------------------------------------------------------------

PLACES = np.array([1, 7, 3, 9])
ARGUMENTS = np.array([1.0, 2.0, 3.0, 4.0])
INSIDE = PLACES < 5
FACTORS = TABLE[np.minimum(PLACES, 4)]


def looked_up(i, x):
    return wl.cond(i < 5, lambda i, x: wnp.take(TABLE, i) * x**2, lambda i, x: 3 * x, i, x)


@EAGER_AND_JIT
def test_an_index_out_of_range_in_a_branch_that_is_not_taken(compiled):
    value = np.where(INSIDE, FACTORS * ARGUMENTS**2, 3 * ARGUMENTS)
    slope = np.where(INSIDE, 2 * FACTORS * ARGUMENTS, 3)
    total = lambda i, x: np.sum(wl.vmap(looked_up)(i, x))
    np.testing.assert_allclose(compiled(wl.vmap(looked_up))(PLACES, ARGUMENTS), value)
    np.testing.assert_allclose(compiled(wl.vmap(looked_up))(PLACES + 9, ARGUMENTS), 3 * ARGUMENTS)  # none takes it
    np.testing.assert_allclose(compiled(wl.vmap(wl.grad(looked_up, 1)))(PLACES, ARGUMENTS), slope)
    np.testing.assert_allclose(compiled(wl.grad(total, 1))(PLACES, ARGUMENTS), slope)
    along = lambda i, x: wl.jvp(lambda x: wl.vmap(looked_up)(i, x), (x,), (np.ones(4),))[1]
    np.testing.assert_allclose(compiled(along)(PLACES, ARGUMENTS), slope)
    second = lambda i, x: wl.hessian(total, 1)(i, x)
    np.testing.assert_allclose(compiled(second)(PLACES, ARGUMENTS), np.diag(np.where(INSIDE, 2 * FACTORS, 0)))
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        compiled(wl.vmap(lambda i: wl.cond(i > 4, lambda i: wnp.take(TABLE, i), lambda i: 0.0, i)))(PLACES)


@EAGER_AND_JIT
def test_nested_batches(compiled):
    places = np.stack([PLACES, PLACES + 9, PLACES[::-1]])
    x = np.stack([ARGUMENTS] * 3)
    factors = TABLE[np.minimum(places, 4)]
    np.testing.assert_allclose(
        compiled(wl.vmap(wl.vmap(looked_up)))(places, x), np.where(places < 5, factors * x**2, 3 * x)
    )
    np.testing.assert_allclose(
        compiled(wl.vmap(wl.vmap(wl.grad(looked_up, 1))))(places, x), np.where(places < 5, 2 * factors * x, 3)
    )


@EAGER_AND_JIT
def test_matrices_in_branches(compiled):
    matrices = np.stack([np.eye(2), -np.eye(2), 4 * np.eye(2), np.zeros((2, 2))])
    branches = [lambda m: np.sum(np.linalg.cholesky(m)), lambda m: np.sum(np.linalg.inv(m)), lambda m: np.sum(m)]
    choose = lambda i, m: wl.switch(i, branches, m)
    out = compiled(wl.vmap(choose))(np.array([-1, 1, 0, 7]), matrices)  # indices are clamped
    np.testing.assert_allclose(out, [2, -2, 4, 0])
    gradient = compiled(wl.vmap(wl.grad(choose, 1)))(np.array([-1, 1, 0, 7]), matrices)
    np.testing.assert_allclose(gradient[1], -1)  # of the sum of the inverse: - a^-T 1 1^T a^-T
    np.testing.assert_allclose(gradient[3], 1)
    with pytest.raises(np.linalg.LinAlgError):
        compiled(wl.vmap(choose))(np.array([0, 0, 0, 2]), matrices)


@EAGER_AND_JIT
@pytest.mark.parametrize("loop", ["while", "fori"])
def test_finished_elements_of_a_loop_do_not_raise(loop, compiled):
    """Each reads a part of the table from its own place to the end; where it stops, there is no next one."""

    def f(n, x):
        grown = lambda k, y: y + wnp.take(TABLE, 5 - n + k) * x * y
        if loop == "fori":
            return wl.fori_loop(0, n, grown, x)
        return wl.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, grown(*s)), (0, x))[1]

    counts = np.array([5, 2, 0, 4])

    def expected(n, x):
        return x * np.prod(1 + TABLE[5 - n :] * x)

    value = [expected(n, x) for n, x in zip(counts, ARGUMENTS)]
    slope = [(expected(n, x + 1e-6) - expected(n, x - 1e-6)) / 2e-6 for n, x in zip(counts, ARGUMENTS)]
    np.testing.assert_allclose(compiled(wl.vmap(f))(counts, ARGUMENTS), value)
    np.testing.assert_allclose(compiled(wl.vmap(wl.grad(f, 1)))(counts, ARGUMENTS), slope, rtol=1e-6)
    total = lambda n, x: np.sum(wl.vmap(f)(n, x))
    np.testing.assert_allclose(compiled(wl.grad(total, 1))(counts, ARGUMENTS), slope, rtol=1e-6)
    with pytest.raises(IndexError, match="index -6 is out of bounds"):
        compiled(wl.vmap(f))(np.array([1, 11]), ARGUMENTS[:2])


def test_a_batch_of_nothing():
    assert wl.vmap(looked_up)(PLACES[:0], ARGUMENTS[:0]).shape == (0,)


def test_branches_that_cannot_raise_stay_a_choice():
    f = wl.vmap(lambda p, x: wl.cond(p, lambda x: np.sin(x), lambda x: x * x, x))
    names = [e.primitive.name for e in wl.trace(f)(INSIDE, ARGUMENTS).equations]
    assert sorted(names) == ["invert", "mul", "reshape", "sin", "where"]
