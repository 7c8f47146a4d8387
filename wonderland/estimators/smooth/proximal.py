"""Smooth losses + l1 |coef|: proximal Newton. A `SmoothProblem` and a start come in, a `Result` goes out.

Each step minimises the quadratic model of the loss plus the penalty, by coordinate descent that is finished exactly
once the signs have settled; a line search keeps it going down. Only features that may count are part of it: it begins
with those whose derivatives are largest and takes in whatever breaks the conditions of the optimum, until nothing does.

J. Lee, Y. Sun, M. Saunders, Proximal Newton-type methods for minimizing composite functions (2014).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.estimators.smooth.hessian import SymmetricFactors, hessian
from wonderland.estimators.smooth.newton import Result
from wonderland.estimators.smooth.problem import LossPoint, SmoothProblem
from wonderland.estimators.smooth.search import ENOUGH, ROUNDING, TRIALS

FIRST = 100  # features at the beginning
SWEEPS = 1000
EVERY = 5  # sweeps, one goes through all coordinates, the others through those that aren't zero


def proximal_newton(problem: SmoothProblem, w: np.ndarray, tol: float, max_iter: int) -> Result:
    """The minimum of the problem with its l1 |coef|."""
    point = problem.at(w)
    values = [point.value + problem.l1 * float(np.sum(np.abs(w[: problem.p])))]
    while True:
        excess = steepness(problem, point)
        if np.max(excess, initial=0.0) <= tol * problem.total or len(values) > max_iter:
            return Result(point.w, point, values, len(values) <= max_iter)
        by_feature = excess[: problem.p].reshape(problem.p, -1).max(axis=1, initial=0.0)
        used = np.any(point.w[: problem.p].reshape(problem.p, -1) != 0, axis=1)
        room = max(FIRST, 2 * int(np.sum(used)))
        by_feature[used] = np.inf
        chosen = np.sort(np.argsort(-by_feature, kind="stable")[:room])
        part = problem.features(chosen)
        rows = np.append(chosen, problem.p) if problem.intercept else chosen
        result = _newton(part, part.at(point.w[rows]), tol, max_iter - len(values) + 1)
        w = point.w.copy()
        w[rows] = result.w
        values += result.values[1:]
        point = problem.at(w)
        others = np.delete(steepness(problem, point), rows, axis=0)
        if np.max(others, initial=0.0) <= tol * problem.total:
            return Result(w, point, values, result.converged)


def steepness(problem: SmoothProblem, point: LossPoint) -> np.ndarray:
    """How far each derivative is from what an optimum has, like w: at zero, any between -l1 and l1.

    In the columns' units where these are small.
    """
    slope = np.abs(point.gradient)
    coef, features = point.w[: problem.p], slice(0, problem.p)
    inside = np.maximum(slope[features] - problem.l1, 0.0)
    slope[features] = np.where(coef == 0, inside, np.abs(point.gradient[features] + problem.l1 * np.sign(coef)))
    return slope / problem.sizes


def _newton(problem: SmoothProblem, point: LossPoint, tol: float, max_iter: int) -> Result:
    """Proximal Newton on all features of a problem."""
    penalty = np.zeros(problem.shape)
    penalty[: problem.p] = problem.l1
    flat = penalty.ravel()
    size = lambda w: float(flat @ np.abs(w.ravel()))
    values = [point.value + size(point.w)]
    for _ in range(max_iter):
        if np.max(steepness(problem, point), initial=0.0) <= tol * problem.total:
            return Result(point.w, point, values, True)
        H = hessian(problem, point.eta)
        start = point.w.ravel()
        exactness = 0.01 * tol * problem.total * np.broadcast_to(problem.sizes, problem.shape).ravel()
        aim = penalised_minimum(H, point.gradient.ravel() - H @ start, flat, start, exactness)
        direction = (aim - start).reshape(point.w.shape)
        promised = float(np.vdot(point.gradient, direction)) + size(point.w + direction) - size(point.w)
        slack = ROUNDING * abs(values[-1])
        if promised >= -slack:
            return Result(point.w, point, values, True)
        t = 1.0
        for _ in range(TRIALS):
            after = problem.at(point.w + t * direction)
            value = after.value + size(after.w)
            if value <= values[-1] + ENOUGH * t * promised + slack:
                break
            t /= 2
        else:
            return Result(point.w, point, values, False)
        point = after
        values.append(value)
    return Result(point.w, point, values, bool(np.max(steepness(problem, point)) <= tol * problem.total))


def penalised_minimum(H: np.ndarray, b: np.ndarray, l1: np.ndarray, z: np.ndarray, exactness: Any) -> np.ndarray:
    """As `quadratic_lasso`, without those that have no penalty: they follow from the others.

    With the intercepts left in, sweeps would take steps as small as the columns' means are far from zero.
    """
    free, kept = np.flatnonzero(l1 == 0), np.flatnonzero(l1)
    inverse = SymmetricFactors(H[np.ix_(free, free)]).inverse()
    link = inverse @ H[np.ix_(free, kept)]
    reduced = H[np.ix_(kept, kept)] - H[np.ix_(kept, free)] @ link
    out = np.empty_like(z)
    out[kept] = quadratic_lasso(reduced, b[kept] - b[free] @ link, l1[kept], z[kept], exactness[kept])
    out[free] = -inverse @ b[free] - link @ out[kept]
    return out


def quadratic_lasso(H: np.ndarray, b: np.ndarray, l1: np.ndarray, z: np.ndarray, exactness: Any) -> np.ndarray:
    """The minimum of z' H z / 2 + b' z + l1' |z|, from z, with derivatives exact to `exactness`, like z or a number."""
    z = z.copy()
    r = H @ z + b  # derivatives of the quadratic
    value = lambda z, r: 0.5 * float(z @ (r + b)) + float(l1 @ np.abs(z))
    diagonal = H.diagonal()
    places = np.flatnonzero(diagonal > 0)
    signs = np.sign(z)
    for sweep in range(SWEEPS):
        for j in places if sweep % EVERY == 0 else np.flatnonzero((z != 0) & (diagonal > 0)):
            old = z[j]
            rest = diagonal[j] * old - r[j]
            new = (rest - l1[j] if rest > l1[j] else rest + l1[j] if rest < -l1[j] else 0.0) / diagonal[j]
            if new != old:
                z[j] = new
                r += (new - old) * H[j]
        if np.all(_excess(z, r, l1) <= exactness):
            break
        if np.array_equal(signs, np.sign(z)):
            exact = _with_signs(H, b, l1, z)
            residual = H @ exact + b
            if value(exact, residual) < value(z, r):
                z, r = exact, residual
        signs = np.sign(z)
    return z


def _excess(z: np.ndarray, r: np.ndarray, l1: np.ndarray) -> np.ndarray:
    """How far the derivatives r of the quadratic are from what an optimum with the penalty has."""
    return np.where(z == 0, np.abs(r) - l1, np.abs(r + l1 * np.sign(z)))


def _with_signs(H: np.ndarray, b: np.ndarray, l1: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The minimum where the penalty is that of the signs of z."""
    active = np.flatnonzero((z != 0) | (l1 == 0))
    solved = np.zeros_like(z)
    right = -(b[active] + l1[active] * np.sign(z[active]))
    solved[active] = SymmetricFactors(H[np.ix_(active, active)]).solve(right)
    return solved
