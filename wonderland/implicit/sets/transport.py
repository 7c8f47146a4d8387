"""Entropic optimal transport: Sinkhorn's iteration, and derivatives of what it converges to.

In go costs C (n, m), weights a (n,) and b (m,) of equal sum M, and a temperature epsilon; out comes the plan P (n, m)
that minimises <C, P> + epsilon KL(P | a b' / M) among those with row sums a and column sums b, with its potentials:

    P_ij = a_i b_j / M exp((f_i + g_j - C_ij) / epsilon),    value = <a, f> + <b, g>.

The iteration makes row and column sums right in turn, in logarithms, so that no temperature is too small for it; it is
never differentiated. Derivatives are those of the equations that the potentials solve.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland.control.custom import custom_jvp
from wonderland.core.errors import ArgumentError, NoValueError
from wonderland.core.level import concrete
from wonderland.core.tracer import unwrap
from wonderland.implicit.loops import repeat
from wonderland.implicit.reports import Report, Status
from wonderland.implicit.sets.projections import floats
from wonderland.implicit.systems.linear import linear_solve
from wonderland.implicit.systems.operators import Dense
from wonderland.implicit.systems.solvers_direct import LU
from wonderland.scipy.special import logsumexp
from wonderland.transform.derivatives import jvp, quiet, stop_gradient

COOLING, WARM = 0.5, 0.1  # the temperature falls by that factor when the residual is below this
RIDGE = 0.03  # of the residual, added to the system's diagonal
SHORTEST = 1e-3  # of a step that is worth trying


class Transport(NamedTuple):
    """What `sinkhorn` returns: `plan` (n, m), potentials `f` (n,) and `g` (m,), `value`, `report`.

    The residual of the report is the sum of the errors of the column sums, relative to the whole.
    """

    plan: Any
    f: Any
    g: Any
    value: Any
    report: Report


def sinkhorn(
    cost: Any, a: Any, b: Any, epsilon: Any, tolerance: float | None = None, max_iterations: int = 1000
) -> Transport:
    """Entropic optimal transport between weights a (n,) and b (m,) for costs (n, m): a `Transport`.

    The plan minimises <cost, P> + epsilon KL(P | a b' / M) with row sums a and column sums b, where M = sum a = sum b;
    `value` is that minimum. Weights may be 0 (their potentials are defined all the same), costs may be inf (never
    used). Potentials are unique but for a constant that moves from f to g: the mean of g is 0. In the same way the
    derivatives of the value in a and b, which are f and g, mean something along changes that keep the sums equal.

    Iterations stop when the column sums are right to `tolerance` (1e-9 of the whole in float64, 1e-4 in float32; row
    sums are exact). It never raises for not converging: `report.status` is 0 if it did, otherwise see `Status`. Unequal
    sums are refused where their values are known, and never converge otherwise.

    The derivative of the value in the cost is the plan, for which nothing has to be solved. Derivatives of plan and
    potentials, and all second ones, solve one linear system of the size of the shorter side, of every order. Memory
    doesn't depend on the iterations. Use `wl.vmap` for batches: each element converges on its own.
    """
    cost, a, b = floats(cost, "sinkhorn", 2), floats(a, "sinkhorn", 1), floats(b, "sinkhorn", 1)
    dtype = np.result_type(cost.dtype, a.dtype, b.dtype)
    cost, a, b, epsilon = (x.astype(dtype) for x in (cost, a, b, floats(epsilon, "sinkhorn")))
    _check(cost, a, b, epsilon)
    tolerance = (1e-4 if cost.dtype == np.float32 else 1e-9) if tolerance is None else tolerance
    total = np.sum(a)
    first, second = a / total, b / total
    if np.shape(cost)[0] < np.shape(cost)[1]:  # the system to solve has the size of the second side
        (g, f), report = _potentials(np.swapaxes(cost, 0, 1), second, first, epsilon, tolerance, max_iterations)
    else:
        (f, g), report = _potentials(cost, first, second, epsilon, tolerance, max_iterations)
    shift = np.mean(g)
    f, g = f + shift, g - shift
    plan = a[:, None] * second * np.exp((f[:, None] + g - cost) / epsilon)
    return Transport(plan, f, g, _value(cost, a, b, epsilon, f, g, plan), report)


def _check(cost: Any, a: Any, b: Any, epsilon: Any) -> None:
    if np.ndim(cost) != 2 or np.shape(cost) != (*np.shape(a), *np.shape(b)):
        raise ArgumentError(
            f"sinkhorn: costs (n, m) with weights (n,) and (m,), got {np.shape(cost)}, {np.shape(a)} and {np.shape(b)}"
            "; use wl.vmap for a batch"
        )
    if 0 in np.shape(cost):
        raise ArgumentError(f"sinkhorn: nothing can be moved between {np.shape(a)[0]} and {np.shape(b)[0]} places")
    if np.shape(epsilon) != ():
        raise ArgumentError(f"sinkhorn: epsilon is one number, got shape {np.shape(epsilon)}; use wl.vmap for a batch")
    try:
        first, second, temperature = (concrete(unwrap(x), "weights") for x in (a, b, epsilon))
    except NoValueError:
        return
    if not temperature > 0:
        raise ArgumentError(f"sinkhorn: epsilon must be more than 0, got {temperature}")
    if np.min(first) < 0 or np.min(second) < 0:
        raise ArgumentError("sinkhorn: weights must not be negative")
    rounding = np.finfo(cost.dtype).eps * sum(np.shape(cost))
    if not abs(np.sum(first) - np.sum(second)) <= 4 * rounding * np.sum(first):
        raise ArgumentError(
            f"sinkhorn: both weights must have the same sum, a has {np.sum(first)} and b has {np.sum(second)}. Divide "
            "each by its sum, if shares are meant."
        )


# -- the potentials: a fixed point --


def _other(g: Any, cost: Any, b: Any, epsilon: Any) -> Any:
    """The f (n,) that makes row sums right: -epsilon log sum_j b_j exp((g_j - C_ij) / epsilon)."""
    return -epsilon * logsumexp((g - cost) / epsilon, axis=1, b=np.broadcast_to(b, np.shape(cost)))


def _turn(g: Any, cost: Any, a: Any, b: Any, epsilon: Any) -> Any:
    """One iteration, g to g: rows, then columns; without the constant that doesn't matter."""
    g = _other(_other(g, cost, b, epsilon), np.swapaxes(cost, 0, 1), a, epsilon)
    return g - np.mean(g)


def _potentials(cost: Any, a: Any, b: Any, epsilon: Any, tolerance: float, limit: int) -> tuple[tuple, Report]:
    """Potentials for weights of sum 1."""

    @custom_jvp
    def defined(cost: Any, a: Any, b: Any, epsilon: Any, found: Any) -> Any:
        return found

    @defined.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple:
        # g = turn(g, ...) gives (I - dturn/dg) dg = dturn
        *given, found = primals
        cost, a, b, epsilon = given
        g = defined(*given, found)
        change = jvp(lambda *given: _turn(g, *given), given, tangents[:-1])[1]
        f = _other(g, cost, b, epsilon)
        new = _other(f, np.swapaxes(cost, 0, 1), a, epsilon)
        rows = np.exp((f[:, None] + g - cost) / epsilon) * b
        columns = np.exp((f[:, None] + new - cost) / epsilon) * a[:, None]
        return g, linear_solve(_system(rows, columns), change)

    found, report = _iterate(_constant(cost), _constant(a), _constant(b), _constant(epsilon), tolerance, limit)
    g = defined(cost, a, b, epsilon, found)
    return (_other(g, cost, b, epsilon), g), report


def _constant(x: Any) -> Any:
    """A plain array where there is one, so that NumPy itself iterates."""
    try:
        return concrete(unwrap(x), "an argument of sinkhorn")
    except NoValueError:
        return stop_gradient(x)


def _iterate(cost: Any, a: Any, b: Any, epsilon: Any, tolerance: float, limit: int) -> tuple[Any, Report]:
    """The fixed point g (m,): Sinkhorn's turns and Newton's steps, at temperatures that fall to epsilon.

    At small epsilon a turn contracts by a factor near 1, and thousands are needed. A step of Newton's for g = turn(g)
    is the system of the derivative again, and takes their place wherever it goes further than a turn: it halves the
    residual or has a larger value of the dual problem, if need be after being shortened. The ridge keeps it short along
    directions that hardly matter (parts of the plan between which nearly nothing moves).
    """
    finite = np.isfinite(cost)
    spread = np.max(np.where(finite, cost, -np.inf)) - np.min(np.where(finite, cost, np.inf))
    with quiet():
        log_a, log_b = np.log(a)[:, None], np.log(b)  # -inf for those that don't take part

    def soft_minimum(z: Any, axis: int, temperature: Any) -> Any:
        top = np.max(z, axis=axis, keepdims=True)
        return -temperature * (np.log(np.sum(np.exp(z - top), axis=axis)) + np.squeeze(top, axis))

    def turned(g: Any, temperature: Any) -> tuple[Any, Any, Any]:
        f = soft_minimum((g - cost) / temperature + log_b, 1, temperature)
        new = soft_minimum((f[:, None] - cost) / temperature + log_a, 0, temperature)
        return f, new, np.sum(np.abs(b * np.expm1((g - new) / temperature)))  # column sums of (f, g) against b

    def improve(state: tuple) -> tuple:
        iteration, g, _, temperature = state
        f, new, residual = turned(g, temperature)
        rows = np.exp((f[:, None] + g - cost) / temperature + log_b)
        columns = np.exp((f[:, None] + new - cost) / temperature + log_a)
        system = Dense(_system(rows, columns) + RIDGE * np.minimum(residual, 1) * np.eye(len(b), dtype=cost.dtype))
        step = LU().solve(system, LU().prepare(system), new - g)
        dual = a @ f + b @ new  # the value that a turn reaches, to be as large as possible

        def better(length: Any) -> Any:
            there, after, error = turned(g + length * step, temperature)
            return (error <= residual / 2) | (a @ there + b @ after > dual + slack * np.abs(dual))

        length = repeat(lambda t: (t > SHORTEST) & ~better(t), lambda t: t / 4, cost.dtype.type(1))
        cools = (residual <= WARM) & (temperature > epsilon)
        return (
            iteration + 1,
            np.where(length > SHORTEST, g + length * step, new),
            np.where(cools, np.inf, residual),
            np.where(cools, np.maximum(epsilon, COOLING * temperature), temperature),
        )

    slack = 10 * np.finfo(cost.dtype).eps
    start = (np.int64(0), np.zeros_like(b), cost.dtype.type(np.inf), np.maximum(spread, epsilon))
    going = lambda state: ~(state[2] <= tolerance) & ~np.isnan(state[2]) & (state[0] < limit)
    iterations, g, residual, _ = repeat(going, improve, start)
    failed = np.where(np.isnan(residual), Status.NOT_FINITE.value, Status.OUT_OF_ITERATIONS.value)
    status = np.where(residual <= tolerance, Status.CONVERGED.value, failed)
    return g - np.mean(g), Report(status, iterations, residual)


def _system(rows: Any, columns: Any) -> Any:
    """I - dturn/dg, of the plan's shares of its row sums and column sums (n, m).

    The slope of a turn is a product of matrices whose rows sum to 1; without the projection off the constants, I minus
    it would be singular.
    """
    slope = np.swapaxes(columns, 0, 1) @ rows  # (m, m)
    return np.eye(np.shape(rows)[1], dtype=rows.dtype) - slope + np.mean(slope, axis=0)


# -- the value --


@custom_jvp
def _value(cost: Any, a: Any, b: Any, epsilon: Any, f: Any, g: Any, plan: Any) -> Any:
    """<a, f> + <b, g>. A change of f and g doesn't move it, so that its derivative needs no change of them."""
    return a @ f + b @ g


@_value.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    cost, _, _, epsilon, f, g, plan = primals
    dcost, da, db, depsilon = tangents[:4]
    used = plan > 0  # costs may be infinite elsewhere
    divergence = np.sum(plan * np.where(used, f[:, None] + g - np.where(used, cost, 0), 0)) / epsilon
    return _value(*primals), np.sum(plan * dcost) + f @ da + g @ db + divergence * depsilon
