"""Solvers of nonlinear equations where it is hard: scales, singular points, failures, other dtypes, wrong arguments."""

import numpy as np
import pytest

import wonderland as wl

implicit = wl.implicit
Status = implicit.Status
ROOTS = ["newton", "trust_region", "broyden", "lm"]
MINIMA = ["newton", "bfgs", "lbfgs", "newton_cg"]
BOX = implicit.ProjectedGradient(lambda x: implicit.project_box(x, -9.0, 9.0))
SQUARE = lambda x, a: x * x - a
WELL = lambda x, a: np.sum((x - a) ** 2 * (1 + x * x))


def rosenbrock(x, a):
    return np.sum(a * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


@pytest.mark.parametrize("solver", ROOTS)
@pytest.mark.parametrize("start", [1e-8, 1.0, 3, 1e10])
def test_roots_from_far(solver, start):
    """From where dF/dx is nearly zero, from 1e10, from an integer."""
    np.testing.assert_allclose(implicit.root(SQUARE, start, 2.0, solver=solver), 2**0.5, rtol=1e-15)


def test_newton_leaves_a_singular_point():
    x, report = implicit.root(SQUARE, 0.0, 2.0, full=True)
    np.testing.assert_allclose(abs(x), 2**0.5, rtol=1e-15)
    assert report.status == Status.CONVERGED
    assert wl.grad(lambda a: implicit.root(SQUARE, 0.0, a))(2.0) == pytest.approx(0.5 / 2**0.5, rel=1e-12)


@pytest.mark.parametrize("solver", ROOTS)
def test_roots_at_zero_and_exact_starts(solver):
    F = lambda x, a: np.stack([np.sin(x[0]) + x[1] * x[0], a * x[1] + x[0] ** 2])
    assert np.all(np.abs(implicit.root(F, np.array([1.0, 0.5]), 2.0, solver=solver)) < 1e-12)
    x, report = implicit.root(SQUARE, 2.0, 4.0, solver=solver, full=True)
    assert x == 2 and report.iterations == 1 and report.residual == 0


@pytest.mark.parametrize("solver", ["anderson", "picard"])
def test_fixed_points_at_zero_and_from_far(solver):
    assert abs(implicit.fixed_point(lambda x: 0.5 * np.sin(x), 1.0, solver=solver)) < 1e-12
    x = implicit.fixed_point(lambda x: np.cos(0.9 * x), 1e10, solver=solver)
    np.testing.assert_allclose(x, np.cos(0.9 * x), rtol=1e-12)  # what is asked


def test_anderson_where_picard_diverges():
    assert implicit.fixed_point(lambda x: -3 * x + 1, 1.0) == pytest.approx(0.25, rel=1e-14)
    with pytest.raises(wl.CheckError, match="Does it contract"):
        implicit.fixed_point(lambda x: -3 * x + 1, 1.0, solver="picard", maxiter=50)


def test_anderson_is_faster():
    rates = np.linspace(0.0, 0.95, 5)
    solve = lambda solver: implicit.fixed_point(lambda x: rates * x + 1, np.zeros(5), solver=solver, full=True)
    assert solve("anderson")[1].iterations < 15 and solve("picard")[1].iterations > 300


def test_broyden_needs_fewer_jacobians():
    """One at the start; with a number instead, none unless it leads nowhere (x does not depend on it)."""
    F = lambda x: np.stack([x[0] + 0.1 * x[1] ** 2 - 1, x[1] - 0.1 * np.sin(x[0])])
    exact = implicit.root(F, np.zeros(2))
    for solver in (implicit.Broyden(), implicit.Broyden(initial=1.0), implicit.Broyden(initial=1e6)):
        np.testing.assert_allclose(implicit.root(F, np.zeros(2), solver=solver), exact, rtol=1e-14)


@pytest.mark.parametrize("solver", MINIMA)
def test_minima_in_other_units(solver):
    f = lambda x, a: 1e8 * (x[0] - 1e-6 * a) ** 2 + 1e-8 * (x[1] - 1e6) ** 2 + (x[0] * 1e6 - x[1] * 1e-6) ** 2 * a
    x = implicit.minimize(f, np.ones(2), 1.0, solver=solver)
    np.testing.assert_allclose(x, [1e-6, 1e6], rtol=1e-9)
    far = implicit.minimize(lambda x: np.exp(x) - 1.5 * x, 50.0, solver=solver)
    np.testing.assert_allclose(far, np.log(1.5), rtol=1e-14)


@pytest.mark.parametrize("solver", MINIMA)
def test_minima_of_eight_unknowns(solver):
    np.testing.assert_allclose(implicit.minimize(rosenbrock, np.full(8, -1.0), 100.0, solver=solver), 1, rtol=1e-12)


@pytest.mark.parametrize("solver", MINIMA)
def test_a_saddle_or_a_maximum_is_no_minimum(solver):
    saddle = lambda x: x[0] ** 2 - x[1] ** 2 + x[1] ** 4
    for f, start in ((saddle, np.array([1.0, 0.0])), (lambda x: x**4 - x * x, 0.0)):
        with pytest.raises(wl.CheckError, match="a saddle, or a maximum"):
            implicit.minimize(f, start, solver=solver)
        assert implicit.minimize(f, start, solver=solver, full=True)[1].status == Status.NO_MINIMUM
    x = implicit.minimize(lambda x: x**4 - x * x, 0.01, solver=solver)  # where the Hessian is negative, down
    np.testing.assert_allclose(abs(x), 0.5**0.5, rtol=1e-12)


@pytest.mark.parametrize("solver", MINIMA)
def test_without_a_minimum(solver):
    _, report = implicit.minimize(lambda x: -x * x, 0.01, solver=solver, full=True)
    assert report.status in (Status.STAGNATED, Status.NOT_FINITE, Status.OUT_OF_ITERATIONS)


@pytest.mark.parametrize("solver", ROOTS)
def test_a_minimum_of_the_residual_is_no_root(solver):
    _, report = implicit.root(lambda x: x * x + 1, 2.0, solver=solver, full=True)
    assert report.status == Status.STAGNATED
    with pytest.raises(wl.CheckError, match=r"root: <lambda>: no convergence after \d+ iterations: the residual is 1"):
        implicit.root(lambda x: x * x + 1, 2.0, solver=solver)


def from_a_nan(call, solver):
    """(x, report) of a problem for a solver: with a NaN at the start."""
    return call(lambda x: np.log(x) + x, -2.0, solver=solver, full=True)


@pytest.mark.parametrize("solver", ROOTS)
def test_a_nan_has_not_converged(solver):
    with np.errstate(invalid="ignore"):
        for call, solvers in ((implicit.root, [solver]), (implicit.fixed_point, ["anderson", "picard"])):
            for one in solvers:
                assert from_a_nan(call, one)[1].status == Status.NOT_FINITE


@pytest.mark.parametrize("solver", [*MINIMA, BOX], ids=[*MINIMA, "projected"])
def test_a_nan_is_no_minimum(solver):
    with np.errstate(invalid="ignore"):
        assert from_a_nan(implicit.minimize, solver)[1].status != Status.CONVERGED


@pytest.mark.parametrize("solver", ["lm", "gauss_newton"])
def test_a_nan_is_no_fit(solver):
    with np.errstate(invalid="ignore"):
        assert from_a_nan(implicit.least_squares, solver)[1].status == Status.NOT_FINITE


BATCHED = [
    *((implicit.root, SQUARE, solver) for solver in ROOTS),
    (implicit.fixed_point, lambda x, a: np.sqrt(a) * np.cos(x) / 2, "anderson"),
    (implicit.fixed_point, lambda x, a: np.sqrt(a) * np.cos(x) / 2, "picard"),
    *((implicit.minimize, lambda x, a: np.sqrt(a) * np.exp(x) - x, solver) for solver in (*MINIMA, BOX)),
    (implicit.least_squares, lambda x, a: np.stack([np.sqrt(a) * x - 1, x * x - 2]), "lm"),
    (implicit.least_squares, lambda x, a: np.stack([np.sqrt(a) * x - 1, x * x - 2]), "gauss_newton"),
]


@pytest.mark.parametrize(("call", "f", "solver"), BATCHED)
def test_a_failing_element_leaves_the_others_alone(call, f, solver):
    """sqrt(a) of a negative number: its own element is NaN (or its status says so), the others are as by themselves."""
    a = np.array([1.0, -1.0, 2.0, 0.7])
    rest = [0, 2, 3]

    def solve(a):
        x, report = call(f, 1.0, a, solver=solver, full=True)
        return x, report.status

    with np.errstate(invalid="ignore"):
        (gradients, status) = wl.vmap(wl.grad(solve, has_aux=True))(a)
        values = wl.vmap(solve)(a)[0]
        alone = [wl.value_and_grad(lambda a: solve(a)[0])(v) for v in a[rest]]
    assert status[1] != Status.CONVERGED and np.all(status[rest] == Status.CONVERGED)
    assert np.isnan(gradients[1])
    np.testing.assert_array_equal(values[rest], [v for v, _ in alone])
    np.testing.assert_allclose(gradients[rest], [g for _, g in alone], rtol=1e-14)


@pytest.mark.parametrize("solver", ROOTS)
def test_what_has_converged_is_left_alone(solver):
    """The first element starts at its root, where dF/dx is zero; the others take many steps after that."""
    F = lambda x, a: np.where(a == 1, (x - 1) ** 2, x**3 - a)
    x, report = wl.vmap(lambda a: implicit.root(F, 1.0, a, solver=solver, full=True))(np.array([1.0, 27.0, 1e9]))
    np.testing.assert_allclose(x, [1.0, 3.0, 1e3], rtol=1e-14)
    assert x[0] == 1 and report.iterations[0] == 1 and np.all(report.status == 0)
    assert report.iterations[2] > report.iterations[1] > 4


@pytest.mark.parametrize("call", [lambda f: f, wl.jit], ids=["eager", "jit"])
def test_the_batch_element_is_named(call):
    with pytest.raises(wl.CheckError, match=r"root: <lambda>: no convergence.*trust_region.*in element 1 of the batch"):
        call(wl.vmap(lambda a: implicit.root(lambda x: x * x + a, 1.0)))(np.array([-1.0, 1.0]))


FLOATS = [
    *((implicit.root, SQUARE, solver) for solver in ROOTS),
    *((implicit.fixed_point, lambda x, a: np.cos(x) / a, solver) for solver in ("anderson", "picard")),
    *((implicit.minimize, WELL, solver) for solver in (*MINIMA, BOX)),
    *((implicit.least_squares, lambda x, a: np.stack([x - a, x * x - 1]), solver) for solver in ("lm", "gauss_newton")),
]


@pytest.mark.parametrize(("call", "f", "solver"), FLOATS)
def test_single_precision(call, f, solver):
    solve = lambda a: call(f, np.ones((), a.dtype), a, solver=solver)
    value, slope = wl.value_and_grad(solve)(np.float32(2))
    exact, exact_slope = wl.value_and_grad(solve)(np.float64(2))
    assert value.dtype == slope.dtype == np.float32
    np.testing.assert_allclose([value, slope], [exact, exact_slope], rtol=2e-6)


@pytest.mark.parametrize(("call", "f", "solver"), FLOATS)
def test_no_unknowns(call, f, solver):
    f = {implicit.minimize: lambda x, a: np.sum(x) * a}.get(call, lambda x, a: x * a)
    x, report = call(f, np.zeros(0), 2.0, solver=solver, full=True)
    assert x.shape == (0,) and report.status == 0
    assert wl.grad(lambda a: np.sum(call(f, np.zeros(0), a, solver=solver)))(2.0) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: implicit.root(SQUARE, 1.0, 2.0, solver="bfgs"), "no solver 'bfgs'. Expected one of 'newton', 'trust"),
        (lambda: implicit.root(SQUARE, 1.0, 2.0, solver=implicit.BFGS()), r"BFGS\(\) doesn't solve this. Expected one"),
        (lambda: implicit.root(SQUARE, 1.0, 2.0, solver=implicit.Newton), r"a solver such as wl.implicit.Newton\(\)"),
        (lambda: implicit.root(SQUARE, 1.0, 2.0, solver=BOX), "ProjectedGradient is a solver of minimize"),
        (lambda: implicit.minimize(SQUARE, 1.0, 2.0, solver=implicit.Picard()), "doesn't solve this"),
        (lambda: implicit.minimize(lambda x: x, np.ones(2)), r"must return one number, got shape \(2,\)"),
        (
            lambda: implicit.fixed_point(lambda x: np.ones(3), np.ones(2)),
            "as many numbers as there are unknowns, 2, got 3",
        ),
        (lambda: implicit.ProjectedGradient("box"), "ProjectedGradient takes a function"),
        (
            lambda: implicit.minimize(WELL, np.ones(2), 1.0, solver=implicit.ProjectedGradient(lambda x: x[:1])),
            "returns as many numbers as x has, 2, got 1",
        ),
        (lambda: implicit.LBFGS(memory=0), "memory is the number of steps kept, at least 1, got 0"),
        (lambda: implicit.Anderson(memory=0), "memory is the number of changes kept, at least 1, got 0"),
        (lambda: implicit.root(SQUARE, 1.0, 2.0, tol=0.0), "tol must be a positive number, got 0.0"),
        (lambda: implicit.LBFGS(memory=2.5), "memory is the number of steps kept, at least 1, got 2.5"),
        (lambda: implicit.Anderson(memory="five"), "memory is the number of changes kept, at least 1, got five"),
        (lambda: implicit.root(SQUARE, None, 2.0), "root: where it starts is None: expected a number"),
        (lambda: implicit.minimize(WELL, None, 1.0), "minimize: where it starts is None"),
        (lambda: implicit.root(SQUARE, 1.0, 2.0, maxiter=1.5), "maxiter must be a whole number, at least 0, got 1.5"),
        (lambda: implicit.root(SQUARE, 1.0, 2.0, maxiter=None), "maxiter must be a whole number, at least 0, got None"),
        (lambda: implicit.fixed_point(np.cos, 1.0, maxiter=-1), "maxiter must be a whole number, at least 0, got -1"),
        (lambda: implicit.minimize(WELL, np.ones(2), 1.0, maxiter="many"), "maxiter must be a whole .* got 'many'"),
        (lambda: implicit.minimize(lambda x: None, 1.0), "returned None: is there a return missing"),
        (lambda: implicit.least_squares(lambda x: None, 1.0), "returned None: is there a return missing"),
        (lambda: implicit.minimize(lambda x: "one", 1.0), "must return one number, got <U3"),
        (lambda: implicit.bisect(np.cos, None, 2.0), "bisect: where it starts is None"),
        (lambda: implicit.bisect(np.cos, "a", 2.0), "bisect: where it starts has a leaf that is no number"),
        (lambda: implicit.bisect(np.cos, np.zeros(2), np.ones(3)), "the ends of the interval don't fit together"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(wl.ArgumentError, match=message):
        call()


def test_automatic_solvers():
    assert implicit.root(SQUARE, 1.0, 2.0, solver="auto") == implicit.root(SQUARE, 1.0, 2.0)
    for n in (2, 101):
        np.testing.assert_allclose(implicit.minimize(WELL, np.zeros(n), 1.0), 1, rtol=1e-12)


def test_a_function_that_writes_to_a_module_is_refused():
    class Counting(wl.nn.Module):
        def __init__(self):
            self.calls = wl.nn.Buffer(np.zeros(()))

        def __call__(self, x):
            self.calls = self.calls + 1.0
            return np.cos(x)

    model = Counting()
    with pytest.raises(wl.MutationError, match=r"Counting.calls is assigned .* inside fixed_point"):
        implicit.fixed_point(model, 1.0)
    assert model.calls == 0


def test_residuals_that_determine_nothing():
    """Fewer residuals than unknowns: some minimum, whose derivative is that of least squares, on request."""
    some = implicit.LeastSquares()
    solve = lambda a: implicit.least_squares(lambda x: x[:1] + x[1:] - a, np.zeros(2), linear_solver=some)
    np.testing.assert_allclose(solve(2.0), [1, 1], rtol=1e-9)
    np.testing.assert_allclose(wl.jacobian(solve)(2.0), [0.5, 0.5], rtol=1e-9)


def test_gradient_steps_count_what_they_close_over():
    """Of min |x - c|^2 over a ball whose radius is r, within a jitted function: r c / |c|."""
    c = np.array([3.0, 4.0])

    def solve(r):
        ball = implicit.ProjectedGradient(lambda x: implicit.project_ball(x, r))
        return implicit.minimize(lambda x: np.sum((x - c) ** 2), np.zeros(2), solver=ball)

    for call in (solve, wl.jit(solve)):
        np.testing.assert_allclose(call(2.0), [1.2, 1.6], rtol=1e-12)
        np.testing.assert_allclose(wl.jvp(call, (2.0,), (1.0,))[1], [0.6, 0.8], rtol=1e-10)


def test_gradient_steps_on_trees():
    nonnegative = implicit.ProjectedGradient(lambda x: {k: np.maximum(v, 0) for k, v in x.items()})
    f = lambda x, a: np.sum((x["a"] - a) ** 2) + (x["b"] + a) ** 2
    found = implicit.minimize(f, {"a": np.zeros(2), "b": 1.0}, 3.0, solver=nonnegative)
    np.testing.assert_allclose(found["a"], [3, 3], rtol=1e-12)
    assert found["b"] == 0
