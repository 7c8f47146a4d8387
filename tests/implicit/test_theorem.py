"""The implicit function theorem: the notes' examples against their formulas, and what a user may do with it."""

import collections
import sys
import types

import numpy as np
import pytest
import scipy.optimize

import wonderland as wl
from wonderland.implicit.hoisting import fingerprint
from wonderland.ops import factors

implicit = wl.implicit
POINTS = np.array([0.3, 1.0, 2.0, 7.5])


def heron(a):
    return implicit.fixed_point(lambda x: (x + a / x) / 2, 1.0, solver="picard")


def newton(a):
    return implicit.root(lambda x, a: x * x - a, 1.0, a)


@pytest.mark.parametrize("square_root", [heron, newton])
@pytest.mark.parametrize("transform", [lambda f: np.vectorize(f), wl.vmap, lambda f: wl.jit(wl.vmap(f))])
def test_three_derivatives_of_the_square_root(square_root, transform):
    first = wl.grad(square_root)
    third = wl.grad(wl.grad(first))
    np.testing.assert_allclose(transform(square_root)(POINTS), np.sqrt(POINTS), rtol=1e-14)
    np.testing.assert_allclose(transform(first)(POINTS), 0.5 / np.sqrt(POINTS), rtol=1e-12)
    np.testing.assert_allclose(transform(wl.grad(first))(POINTS), -0.25 * POINTS**-1.5, rtol=1e-11)
    np.testing.assert_allclose(transform(third)(POINTS), 0.375 * POINTS**-2.5, rtol=1e-10)


def circle(guess, **options):
    return lambda x: implicit.root(lambda y: x * x + y * y - 1, guess, **options)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches_of_the_circle(sign):
    x = np.linspace(-0.9, 0.9, 7)
    y = sign * np.sqrt(1 - x * x)
    branch = circle(sign)
    np.testing.assert_allclose(wl.vmap(branch)(x), y, rtol=1e-13)
    np.testing.assert_allclose(wl.vmap(wl.grad(branch))(x), -x / y, rtol=1e-12)
    np.testing.assert_allclose(wl.vmap(wl.grad(wl.grad(branch)))(x), -1 / y**3, rtol=1e-11)


@pytest.mark.parametrize("guess", [1.0, -1.0, 0.0, 1e-3])
@pytest.mark.parametrize("transform", [lambda f: f, wl.jit])
def test_where_the_theorem_does_not_hold(guess, transform):
    """Two branches meet at y = 0: there is a solution, and no derivative."""
    assert abs(circle(guess)(1.0)) < 1e-6
    with pytest.raises(wl.CheckError, match="dF/dx is singular"):
        transform(wl.grad(circle(guess)))(1.0)
    with pytest.raises(wl.CheckError, match="dF/dx is singular"):
        transform(lambda x: wl.jvp(circle(guess), (x,), (1.0,)))(1.0)
    assert np.isnan(transform(wl.grad(lambda x: circle(guess, full=True)(x)[0]))(1.0))


def test_the_singular_element_of_a_batch_is_named():
    with pytest.raises(wl.CheckError, match="in element 1 of the batch"):
        wl.vmap(wl.grad(circle(1.0)))(np.array([0.5, 1.0, 0.1]))
    quiet = wl.grad(lambda x: circle(1.0, full=True)(x)[0])
    found = wl.jit(wl.vmap(quiet))(np.array([0.5, 1.0, 0.1]))
    x = np.array([0.5, 0.1])
    np.testing.assert_allclose(found[[0, 2]], -x / np.sqrt(1 - x * x), rtol=1e-12)
    assert np.isnan(found[1])


def test_a_fold_between_coupled_unknowns_is_seen():
    """Two curves that touch: dF/dx has no small row or column, only a small singular value."""
    F = lambda v, a: np.stack([v[1] - v[0] ** 2, v[0] + v[1] - a + (v[1] - v[0] ** 2)])
    solve = lambda a: np.sum(implicit.root(F, np.array([-0.2, 0.1]), a, full=True)[0])
    assert np.isfinite(wl.grad(solve)(0.0))
    with pytest.raises(wl.CheckError, match=r"singular|convergence"):
        wl.grad(lambda a: np.sum(implicit.root(F, np.array([-0.2, 0.1]), a)))(-0.25)


def test_ill_conditioned_is_not_singular():
    hilbert = 1 / (np.arange(8)[:, None] + np.arange(8) + 1.0)  # a condition of 1.5e10
    solve = lambda b: implicit.root(lambda x: hilbert @ x - b, np.zeros(8))
    np.testing.assert_allclose(wl.jacobian(solve)(np.ones(8)), np.linalg.inv(hilbert), rtol=1e-6)


def test_least_squares_on_request():
    """Of x1 + x2 = a, twice: the derivative of least norm."""
    F = lambda x, a: np.stack([x[0] + x[1] - a, 2 * (x[0] + x[1] - a)])
    solve = lambda a: implicit.root(F, np.zeros(2), a, solver="newton", linear_solver=implicit.LeastSquares())
    np.testing.assert_allclose(solve(3.0), [1.5, 1.5])
    np.testing.assert_allclose(wl.jacobian(solve)(3.0), [0.5, 0.5])


def anomaly(M, e):
    return implicit.root(lambda E: E - e * np.sin(E) - M, M)


@pytest.mark.parametrize("transform", [lambda f: f, wl.jit])
def test_kepler(transform):
    M, e = 1.2, 0.4
    E = scipy.optimize.brentq(lambda E: E - e * np.sin(E) - M, 0, 4, xtol=1e-15)
    sine, cosine = np.sin(E), np.cos(E)
    D = 1 - e * cosine
    np.testing.assert_allclose(transform(anomaly)(M, e), E, rtol=1e-14)
    np.testing.assert_allclose(transform(wl.grad(anomaly, (0, 1)))(M, e), (1 / D, sine / D), rtol=1e-13)
    mixed = (cosine - e * sine**2 / D) / D**2
    expected = [[-e * sine / D**3, mixed], [mixed, (2 * sine * cosine - e * sine**3 / D) / D**2]]
    found = transform(wl.hessian(lambda v: anomaly(v[0], v[1])))(np.array([M, e]))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# What is hoisted ------------------------------------------------------------------------------------------------------


def test_what_a_function_closes_over_has_derivatives():
    w = np.array([[0.2, 0.1], [-0.3, 0.2]])

    class Box:
        pass

    def solve(w, b, c):
        box = Box()
        box.shift = {"inside": [b]}
        step = lambda z, scale=c: np.tanh(scale * (w @ z) + box.shift["inside"][0])
        return np.sum(implicit.fixed_point(step, np.zeros(2)))

    wl.testing.check_grads(solve, (w, np.array([0.3, -0.5]), 0.7))


def test_values_in_attributes_of_functions_in_queues_and_in_slots():
    class Slotted:
        __slots__ = ("shift",)

    class Further(Slotted):
        __slots__ = "scale"

    def solve(a, b, c):
        def F(x):
            return F.scale * x**3 + queue[0] * x - further.shift * further.scale

        F.scale, queue, further = a, collections.deque([b]), Further()
        further.shift, further.scale = c, 2.0
        return implicit.root(F, 1.0)

    wl.testing.check_grads(solve, (1.5, 2.0, 0.7))


def test_a_module_in_the_function():
    layer = wl.nn.Linear(2, 2, key=wl.random.key(0), dtype=np.float64)
    loss = lambda layer: np.sum(implicit.fixed_point(lambda z: np.tanh(0.3 * layer(z) + 1), np.zeros(2)))
    wl.testing.check_grads(loss, (layer,), order=1)


def test_decisions_in_python():
    def F(x, a):
        return x * x - a if x > 1 else x - a

    square_root = lambda a: implicit.root(F, 2.0, a)
    assert np.isclose(wl.grad(wl.grad(square_root))(2.0), -0.25 * 2**-1.5, rtol=1e-12)
    assert np.isclose(wl.grad(lambda a: implicit.root(lambda x: F(x, a), 0.2))(0.5), 1.0)


def test_the_guess_has_no_derivative():
    assert wl.grad(lambda guess: implicit.root(lambda x: x * x - 2, guess))(1.0) == 0
    assert wl.grad(lambda a: implicit.root(lambda x: x * x - a, a))(4.0) == 0.25


def test_trees_of_unknowns():
    def F(x, a):
        return {"first": x["a"] ** 2 - a, "second": (x["b"] - x["a"] * np.ones(2)) * 3}

    solve = lambda a: implicit.root(F, {"a": 1.0, "b": np.zeros(2)}, a)
    found = wl.jacobian(solve)(4.0)
    np.testing.assert_allclose(found["a"], 0.25)
    np.testing.assert_allclose(found["b"], [0.25, 0.25])
    with pytest.raises(wl.ArgumentError, match="as many numbers as there are unknowns, 3, got 2"):
        implicit.root(lambda x: x["b"], {"a": 1.0, "b": np.zeros(2)})


@pytest.mark.parametrize("wrap", [lambda f: f, wl.jit, wl.checkpoint])
def test_inside_of_other_things(wrap):
    def inner(x, a):
        return implicit.root(lambda y: y**3 + y - a * x - 1, 0.3)

    def nested(a):
        return implicit.root(lambda x: x - inner(x, a), 0.5)

    def looped(a):
        return wl.scan(lambda c, x: (c + inner(c, x * a), None), 1.0, np.arange(1.0, 3.0))[0]

    wl.testing.check_grads(wrap(nested), (0.4,), order=1 if wrap in (wl.jit, wl.checkpoint) else 2)
    wl.testing.check_grads(wrap(looped), (0.4,), order=1 if wrap is wl.jit else 2)


# Other solvers --------------------------------------------------------------------------------------------------------

scipys = implicit.custom_root(lambda F, x, *params: scipy.optimize.root(F, x, params).x)


def cube_roots(a):
    return scipys(lambda x, a: x**3 - a, np.ones(2), a)


def test_a_solver_of_scipy():
    a = np.array([2.0, 3.0])
    slope = np.diag(a ** (-2 / 3) / 3)
    np.testing.assert_allclose(wl.jacobian(cube_roots)(a), slope, rtol=1e-9)
    np.testing.assert_allclose(wl.jit(wl.jacobian(cube_roots))(a), slope, rtol=1e-9)
    np.testing.assert_allclose(wl.vmap(wl.jacobian(cube_roots))(np.stack([a, a]))[1], slope, rtol=1e-9)
    traced = lambda a: np.sum(scipys(lambda x: x**3 - a, np.ones(2)))  # closed over
    np.testing.assert_allclose(np.diag(wl.hessian(traced)(a)), -2 / 9 * a ** (-5 / 3), rtol=1e-8)


def test_a_solver_of_scipy_prints_no_tracebacks(capfd):
    solve = implicit.custom_root(lambda F, x, *params: scipy.optimize.root(F, x, params).x)
    slopes = wl.vmap(wl.grad(lambda a: solve(lambda x, a: x * x - a, np.ones(1), a)[0]))(np.array([1.0, 4.0]))
    np.testing.assert_allclose(slopes, [0.5, 0.25], rtol=1e-6)
    assert "Traceback" not in capfd.readouterr().err


def test_a_solver_that_returns_too_much():
    with pytest.raises(wl.ArgumentError, match="the solver must return x like init, 2 numbers, got 3"):
        implicit.custom_root(lambda F, x: np.ones(3))(lambda x: x - 1, np.ones(2))


def test_a_solver_that_is_recorded_is_compiled():
    def bisected(F, x, a):
        def halve(_, ends):
            low, high = ends
            middle = (low + high) / 2
            above = F(middle, a) > 0
            return np.where(above, low, middle), np.where(above, middle, high)

        return wl.fori_loop(0, 60, halve, (x, x + 4.0))[0]

    solve = implicit.custom_root(bisected)
    slope = wl.jit(wl.grad(lambda a: solve(lambda x, a: x * x - a, 0.0, a)))
    assert np.isclose(slope(2.0), 0.5 / np.sqrt(2))
    assert not slope.inspect(2.0).fallbacks


def test_inverse():
    f = lambda x: x + np.exp(x)
    x = implicit.inverse(f)(3.0)
    np.testing.assert_allclose(wl.grad(implicit.inverse(f))(3.0), 1 / (1 + np.exp(x)), rtol=1e-12)
    turn = np.array([[2.0, 1.0], [0.5, 3.0]])
    np.testing.assert_allclose(wl.jacobian(implicit.inverse(lambda x: turn @ x))(np.ones(2)), np.linalg.inv(turn))


def test_bisection():
    a = np.array([[1.0, 8.0, 20.0]])
    solve = lambda a: implicit.bisect(lambda x, a: x**3 - a, 0.0, np.full((1, 3), 3.0), a)
    np.testing.assert_allclose(solve(a), np.cbrt(a), rtol=1e-14)
    np.testing.assert_allclose(wl.grad(lambda a: np.sum(solve(a)))(a), a ** (-2 / 3) / 3, rtol=1e-12)
    np.testing.assert_allclose(wl.jit(wl.vmap(wl.jacobian(solve)))(a[None])[0, 0, :, 0], np.diag(a[0] ** (-2 / 3) / 3))
    assert implicit.bisect(lambda x: x, 0.0, 1.0) == 0 and implicit.bisect(lambda x: x - 1, 0.0, 1.0) == 1
    with pytest.raises(wl.CheckError, match="different signs"):
        implicit.bisect(lambda x: x + 10, 0.0, 1.0)


# What it costs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2000])  # the second isn't polished
def test_bisection_where_the_middle_or_zero_is_the_root(n):
    ends = lambda low: np.full(n, low)
    x, report = implicit.bisect(lambda x: x - 1, ends(0.0), 2.0, full=True)
    assert report.status == 0 and report.iterations == 1 and np.all(x == 1)
    for high in (2.0, 1e30):
        x, report = implicit.bisect(lambda x: np.arctan(x), ends(-1.0), high, full=True)
        assert report.status == 0 and np.all(np.abs(x) < 1e-25)
    np.testing.assert_allclose(implicit.bisect(lambda x: x - 1, ends(-1.5e308), 1.6e308, maxiter=1200), 1)
    np.testing.assert_allclose(implicit.bisect(lambda x: x**3 - 2, ends(0.0), 2.0, tol=1e-30), 2 ** (1 / 3))


def test_bisection_at_a_pole():
    with pytest.raises(wl.CheckError, match="continuous"):
        implicit.bisect(lambda x: 1 / (x - 0.3), -1.0, 2.0)


def test_bisection_between_traced_ends_and_in_trees():
    f = lambda a: implicit.bisect(lambda x: x * x - a, 1.0, a)
    a = np.array([4.0, 9.0])
    np.testing.assert_allclose(wl.vmap(f)(a), np.sqrt(a))
    np.testing.assert_allclose(wl.jit(wl.vmap(wl.grad(wl.grad(f))))(a), -0.25 * a**-1.5)
    assert wl.grad(lambda low: implicit.bisect(lambda x: x * x - 4, low, 3.0))(1.0) == 0
    found = implicit.bisect(lambda t: {"a": t["a"] ** 2 - 4, "b": t["b"] - 1}, {"a": 0.0, "b": 0.0}, {"a": 3.0, "b": a})
    np.testing.assert_allclose(found["a"], 2)
    np.testing.assert_allclose(found["b"], [1, 1])


def test_an_inverse_of_another_shape():
    with pytest.raises(wl.ArgumentError, match=r"returns shape \(\), y has \(2,\)"):
        implicit.inverse(np.sum)(np.ones(2))


@pytest.mark.parametrize("call", [implicit.root, implicit.minimize, implicit.least_squares, implicit.fixed_point])
def test_complex_equations_are_refused(call):
    with pytest.raises(wl.ArgumentError, match="must return real numbers, got complex128"):
        call(lambda x: x * 1j, 1.0)


def test_a_hessian_costs_one_factorisation(monkeypatch):
    count = 0
    evaluate = factors.lu.evaluate

    def counted(a):
        nonlocal count
        count += 1
        return evaluate(a)

    monkeypatch.setattr(factors.lu, "evaluate", counted)
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(5, 5)) + 4 * np.eye(5), rng.normal(size=5)
    f = lambda A, b: np.sum(np.sin(implicit.linear_solve(A, b)))
    g = lambda A, b: np.sum(np.sin(np.linalg.solve(A, b)))
    found = wl.hessian(f, (0, 1))(A, b)
    assert count == 1
    for row, expected in zip(found, wl.hessian(g, (0, 1))(A, b), strict=True):
        for block, other in zip(row, expected, strict=True):
            np.testing.assert_allclose(block, other, rtol=1e-9, atol=1e-12)


def test_memory_does_not_grow_with_the_iterations():
    """Nothing is kept whose length only the run knows; through the steps of the same loop, something is."""
    step = lambda z, a: np.tanh(0.9 * z + a)
    solved = lambda a: np.sum(implicit.fixed_point(step, np.zeros(50), a, solver="picard"))
    unfinished = lambda state: np.max(np.abs(state[0] - state[1])) > 1e-12
    start = np.zeros(50), np.ones(50)
    unrolled = lambda a: np.sum(wl.while_loop(unfinished, lambda s: (step(s[0], a), s[0]), start)[0])

    def grows(f):
        program = wl.jit(wl.grad(f)).inspect(np.ones(50)).program
        return any(None in v.type.shape for equation in program.equations for v in equation.outputs)

    assert grows(unrolled) and not grows(solved)


def test_functions_that_are_the_same():
    make = lambda n: lambda x: np.sin(n * x)
    assert fingerprint(make(1)) == fingerprint(make(1)) != fingerprint(make(2))
    assert fingerprint(make(1)) != fingerprint(make(1.0))
    assert fingerprint(make(np.ones(2))) is None  # could be written to
    shift = np.array([1.0])
    solve = lambda: implicit.root(lambda x: x - shift, np.zeros(1))
    assert solve() == 1
    shift[0] = 2.0
    assert solve() == 2
    powers = [implicit.root(lambda x, k=k: x**k - 2, 1.0) for k in (1, 2, 3)]
    np.testing.assert_allclose(powers, [2, 2**0.5, 2 ** (1 / 3)])


settings = types.ModuleType("settings")


class Settings:
    square = 4.0


def with_attribute(x):
    return x * x - with_attribute.square


Pair, Swapped = collections.namedtuple("Pair", "a b"), collections.namedtuple("Swapped", "b a")


def of_a_module():
    settings.square = yield
    yield lambda x: x * x - settings.square


def of_a_class():
    Settings.square = yield
    yield lambda x: x * x - Settings.square


def of_a_function():
    with_attribute.square = yield
    yield with_attribute


def of_a_method():
    value = yield
    get = shared.get
    shared["square"] = value
    yield lambda x: x * x - get("square")


def of_a_function_of_python():
    shared["square"] = yield
    yield lambda x: x * x - float(looked_up(1.0))


def of_an_import():
    sys.modules["settings_of_a_test"], settings.square = settings, (yield)

    def F(x):
        import settings_of_a_test  # type: ignore[import-not-found]

        return x * x - settings_of_a_test.square

    yield F


def of_a_scope():
    shared["square"] = yield
    yield lambda x: x * x - globals()["shared"]["square"]


def of_named_fields():
    pair = Pair(4.0, 9.0) if (yield) == 4 else Swapped(4.0, 9.0)
    yield lambda x: x * x - pair.a


def of_functions_in_other_places():
    first, second = (lambda c: lambda: c)(4.0), (lambda c: lambda: c)(9.0)
    third = first if (yield) == 4 else second
    yield lambda x: x * x + 0 * first() + 0 * second() - third()


shared: dict = {}
looked_up = np.frompyfunc(lambda _: shared["square"], 1, 1)


@pytest.mark.parametrize(
    "make",
    [
        of_a_module, of_a_class, of_a_function, of_a_method, of_a_function_of_python, of_an_import, of_a_scope,
        of_named_fields, of_functions_in_other_places,
    ],
)  # fmt: skip
def test_what_was_recorded_is_not_used_when_something_else_has_changed(make):
    for square in (4.0, 9.0):
        steps = make()
        next(steps)
        np.testing.assert_allclose(implicit.root(steps.send(square), 1.0) ** 2, square)


def test_a_name_that_has_no_value_yet():
    def F(x):
        return x - 2 if x.ndim == 0 else later

    assert implicit.root(F, 1.0) == 2
    later = 1.0


@pytest.mark.parametrize("tol", ["a", 0.0, -1e-9, np.nan])
def test_a_tolerance_is_a_positive_number(tol):
    with pytest.raises(wl.ArgumentError, match="tol must be a positive number"):
        implicit.root(lambda x: x - 1, 0.0, tol=tol)


@pytest.mark.parametrize("transformed", [lambda f: f, wl.jit], ids=["eager", "jit"])
def test_a_root_far_smaller_than_the_guess_is_no_double_root(transformed):
    slope = transformed(wl.grad(lambda a: implicit.root(lambda x, a: x * x - a, 1.0, a)))
    np.testing.assert_allclose(slope(1e-20), 0.5e10, rtol=1e-9)
