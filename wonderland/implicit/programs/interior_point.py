"""Mehrotra's predictor-corrector method on the homogeneous embedding: it ends with a solution, or a proof of none.

In: a scaled program, of which a start isn't needed. Out: an optimal point, or a certificate. The unknowns are x, y, z,
the slack s, and two numbers tau, kappa >= 0 (Goulart and Chen, 2024, for a quadratic objective):

    Qx + c tau - A'y + R'z = 0        Ax = b tau        Rx + s = limit tau
    x'Qx / tau + c'x - b'y + limit'z + kappa = 0        s z = 0,  tau kappa = 0

With tau > 0 the point divided by tau is optimal. With tau = 0 either b'y - limit'z > 0 with -A'y + R'z = 0, and nothing
is feasible (Farkas), or c'x < 0 along a ray with Qx = 0, Ax = 0, Rx <= 0, and the objective has no lower bound.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland.implicit.loops import repeat
from wonderland.implicit.programs.data import Optimum, Quadratic, largest
from wonderland.implicit.programs.kkt import Factor, system
from wonderland.implicit.programs.qp_status import INFEASIBLE, SOLVED, STOPPED, UNBOUNDED

GOING = -1
CLOSE = 1e-10  # the relative residuals at which a scaled program counts as solved; the active set does the rest
PROOF = 1e-9  # by how much a certificate may miss its equations, for a margin of one
BACK = np.array([0.995, 0.97, 0.9, 0.8, 0.7, 0.55, 0.4, 0.2])  # shares of the way to the boundary
CENTRAL = 0.01  # of their average that the products s z have at least, where a step can be chosen so
EXACT = 1e-11  # of a right-hand side: refining further saves no iteration; stopping at 1e-9 costs some programs many
NEAR, LOST = 1e-6, 1e3  # an error from which, and the factor by which it may grow, before rounding has taken over
SPENT = 1e-25  # products s z of which nothing is left to take away: what misses now is rounding
SHORT = 1e-10  # the length of a step at which there is no way on


class Embedded(NamedTuple):
    """The unknowns."""

    x: Any  # (n,)
    y: Any  # (m,)
    z: Any  # (k,)
    s: Any  # (k,)
    tau: Any
    kappa: Any


class Reached(NamedTuple):
    """The iterate, by how much it misses the equations, and what that says."""

    at: Embedded
    missing: tuple[Any, Any, Any, Any]
    status: Any
    iterations: Any
    best: Embedded  # of all iterates: near the end rounding may take away what was reached
    error: Any  # of the best one, relative: it is solved at CLOSE


def interior_point(program: Quadratic, maxiter: int, factor: Factor) -> Reached:
    """Embedded until the status says what was found; `factor` is `dense_factor(program)`, or a sparse one."""
    limit, Q, A = program.limit, program.Q, program.A
    everywhere = np.ones(limit.shape, bool)

    def start() -> Reached:
        solve = system(program, np.ones(limit.shape), everywhere, factor)
        x, y, z = _first(solve(-program.c[:, None], program.b[:, None], limit[:, None]))
        at = Embedded(x, y, _inside(z), _inside(-z), np.ones(()), np.ones(()))
        return looked_at(at, np.zeros((), np.int64), at, np.full((), np.inf))

    def step(state: Reached) -> Reached:
        x, _, z, s, tau, kappa = state.at
        r1, r2, r3, r4 = state.missing
        solve = system(program, s / z, everywhere, factor, exact=EXACT)
        # What a unit of tau moves, and the step to the solution as the linear equations see it.
        pairs = (-program.c, -r1), (program.b, -r2), (limit, s - r3)
        both = solve(*(np.stack(pair, axis=1) for pair in pairs))
        (ex, ey, ez), toward = _first(both), tuple(v[:, 1] for v in both)
        Qx = Q @ x / tau
        slope = 2 * Qx + program.c
        curvature = slope @ ex - program.b @ ey + limit @ ez - x @ Qx / tau - kappa / tau

        def direction(found: tuple, share: Any, products: Any, product: Any) -> tuple:
            """The Newton step that takes a share of what is missing away, and lowers the products by these."""
            dx, dy, dz = found
            dtau = -share * r4 + product / tau - slope @ dx + program.b @ dy - limit @ dz
            dtau = dtau / curvature
            dx, dy, dz = dx + dtau * ex, dy + dtau * ey, dz + dtau * ez
            return dx, dy, dz, -(products + s * dz) / z, dtau, -(product + kappa * dtau) / tau

        mu = (s @ z + tau * kappa) / (limit.shape[0] + 1)
        move = direction(toward, 1.0, s * z, tau * kappa)
        # Of a step that can't be taken far, the products of changes count for as much as is taken, and the centre more.
        far = _length(state.at, move)
        sigma, second = (1 - far) ** 3, far**2
        products = s * z + second * move[3] * move[2] - sigma * mu
        product = tau * kappa + second * move[4] * move[5] - sigma * mu
        share = 1 - sigma
        right = -share * r1, -share * r2, products / z - share * r3
        corrected = _first(solve(*(r[:, None] for r in right)))
        move = direction(corrected, share, products, product)
        length = _central(state.at, move)
        moved = Embedded(*(value + length * change for value, change in zip(state.at, move, strict=True)))
        fine = np.isfinite(np.sum(moved.x) + np.sum(moved.y) + np.sum(moved.z)) & (length > SHORT)
        moved = Embedded(*(np.where(fine, after, before) for after, before in zip(moved, state.at, strict=True)))
        new = looked_at(moved, state.iterations + 1, state.best, state.error)
        return new._replace(status=np.where(fine, new.status, STOPPED))

    def looked_at(at: Embedded, iterations: Any, best: Embedded, least: Any) -> Reached:
        """With what is missing to the equations, the status, and the best iterate, which was `best` before."""
        x, y, z, s, tau, kappa = at
        Qx, Ax, Rx, Ay, Rz = Q @ x, A @ x, program.rows(x), A.T @ y, program.columns(z)
        linear, quadratic, margin = program.c @ x, x @ Qx / tau, program.b @ y - limit @ z
        missing = (
            Qx + program.c * tau - Ay + Rz, Ax - program.b * tau, Rx + s - limit * tau,
            kappa + quadratic + linear - margin,
        )  # fmt: skip
        primal = np.maximum(largest(missing[1]), largest(missing[2]))
        sizes = tau + np.maximum(np.maximum(largest(Ax), largest(Rx)), largest(s))
        forces = tau + np.maximum(np.maximum(largest(Qx), largest(Ay)), largest(Rz))
        gap = np.abs(quadratic + linear - margin)
        error = np.maximum(primal / sizes, largest(missing[0]) / forces)
        error = np.maximum(error, gap / (tau + np.abs(quadratic / 2 + linear)))
        lost = (least <= NEAR) & (error > LOST * least) | (s @ z + tau * kappa <= SPENT * (tau + kappa) ** 2)
        best = Embedded(*(np.where(error < least, now, before) for now, before in zip(at, best, strict=True)))
        infeasible = (margin > 0) & (largest(Rz - Ay) <= PROOF * margin) & (tau < kappa)
        along = np.maximum(np.maximum(largest(Qx), largest(Ax)), largest(np.maximum(Rx, 0.0)))
        unbounded = (linear < 0) & (along <= -PROOF * linear) & (tau < kappa)
        proof = np.where(infeasible, INFEASIBLE, np.where(unbounded, UNBOUNDED, GOING))
        status = np.where(error <= CLOSE, SOLVED, np.where(lost & (proof == GOING), STOPPED, proof))
        return Reached(at, missing, status, iterations, best, np.minimum(error, least))

    return repeat(lambda state: (state.status == GOING) & (state.iterations < maxiter), step, start())


def _first(columns: Any) -> tuple:
    return tuple(values[:, 0] for values in columns)


def _inside(values: Any) -> Any:
    """Shifted to be at least one where some aren't positive."""
    lowest = np.min(values, initial=np.inf)
    return np.where(lowest > 1e-3, values, values + (1 - np.minimum(lowest, 0.0)))


def _length(at: Embedded, move: tuple) -> Any:
    """How much of a step can be taken until something is zero, at most 1."""
    values = np.concatenate([at.z, at.s, np.stack([at.tau, at.kappa])])
    changes = np.concatenate([move[2], move[3], np.stack(move[4:])])
    return np.min(np.where(changes < 0, -values / np.where(changes < 0, changes, 1.0), 1.0), initial=1.0)


def _central(at: Embedded, move: tuple) -> Any:
    """The longest of a few steps that leaves no product s z far below the average: from there the way is long."""
    z, s, tau, kappa = at[2], at[3], at[4], at[5]
    lengths = _length(at, move) * BACK  # (j,)
    ahead = [value[:, None] + change[:, None] * lengths for value, change in ((z, move[2]), (s, move[3]))]
    last = (tau + lengths * move[4]) * (kappa + lengths * move[5])
    products = np.concatenate([ahead[0] * ahead[1], last[None]])  # (k + 1, j)
    now = np.concatenate([z * s, (tau * kappa)[None]])
    # Where a product is already that far below, as at the start may be, a step has only to leave it about there.
    needed = np.minimum(CENTRAL, 0.9 * np.min(now) / np.mean(now))
    central = np.min(products, axis=0) >= needed * np.mean(products, axis=0)
    return np.max(np.where(central, lengths, lengths[-1]))


def optimal_point(state: Reached) -> Optimum:
    """The solution that the best iterate stands for."""
    return Optimum(*(value / state.best.tau for value in state.best[:4]))
