"""What a solution leaves to decide: which constraints hold it. The last digits, and the equations of its derivative.

In: a scaled program and the interior point's answer. Out: the solution of the equations that the active constraints
are, and of those equations a set whose derivative exists (`Basis`).

A constraint is strictly active if its multiplier is positive. One with multiplier 0 and no slack is weakly active: the
solution has different derivatives on both sides; it counts as inactive, so that the derivative is the one in the
directions that leave the constraint. Among dependent active constraints some are chosen, those that aren't keep their
multipliers. If x isn't unique some of its coordinates are pinned: they don't move. Each of this is `degenerate`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland.implicit.loops import times
from wonderland.implicit.programs.data import Optimum, Quadratic, largest, residual
from wonderland.implicit.programs.independent import independent, surely
from wonderland.implicit.programs.kkt import Factor, diagonal, system

ACTIVE = 1e-9  # a multiplier up to this, relative to the largest one, is zero
WEAK = 1e-6  # multiplier and relative slack up to this, in scaled units: perhaps weakly active
UNSURE = 1e-3  # both up to this, of similar size: where polishing didn't tell which of them is zero
PENALTY = 1e-5  # how far the equations of active constraints are softened in a step; steps are repeated


class Basis(NamedTuple):
    """The equations that hold a solution, all bools."""

    equations: Any  # (m,): rows of A
    active: Any  # (p,): rows of G
    low: Any  # (n,): x is at its lower bound
    up: Any  # (n,)
    pinned: Any  # (n,): coordinates without an equation
    degenerate: Any  # (): is the derivative a choice?


def polished(program: Quadratic, point: Optimum, factor: Factor) -> Optimum:
    """The solution of the equations of the active set, where that is better than the point itself.

    Proximal steps: the linear system has a small penalty in place of its zero blocks, which stays solvable if active
    constraints are dependent, and repeated steps end where the residuals do.
    """
    active = program.present & (point.z > _slack(program, point))
    solve = system(program, np.full(program.limit.shape, PENALTY), active, factor, refinements=0)

    def step(state: Any) -> Any:
        x, y, z = state
        r1 = -(program.Q @ x + program.c - program.A.T @ y + program.columns(z))
        r3 = np.where(active, program.limit - program.rows(x), 0.0)
        moves = solve(r1[:, None], (program.b - program.A @ x)[:, None], r3[:, None])
        return tuple(value + move[:, 0] for value, move in zip(state, moves, strict=True))

    x, y, z = times(4, step, (point.x, point.y, np.where(active, point.z, 0.0)))
    z = np.maximum(z, 0.0)
    new = Optimum(x, y, z, np.maximum(program.limit - program.rows(x), 0.0))
    better = residual(program, new) <= residual(program, point)  # false for NaN
    return Optimum(*(np.where(better, after, before) for after, before in zip(new, point, strict=True)))


def strictly_active(program: Quadratic, point: Optimum) -> tuple[Any, Any]:
    """Which constraints have a positive multiplier, and which may be weakly active: (k,) bools each."""
    unit, slack = 1 + largest(point.z), _slack(program, point)
    strict = program.present & (point.z > slack) & (point.z > ACTIVE * unit)
    small, large = np.minimum(point.z / unit, slack), np.maximum(point.z / unit, slack)
    undecided = (large <= UNSURE) & (small > UNSURE * large)
    return strict, program.present & ((large <= WEAK) | undecided)


def _slack(program: Quadratic, point: Optimum) -> Any:
    """Relative to the limits, (k,): of one that is large, what is left is large, too."""
    return point.s / np.maximum(np.abs(program.limit), 1.0)


def basis(program: Quadratic, point: Optimum) -> Basis:
    """A maximal set of independent equations among those that hold the point."""
    z, n, m = point.z, program.c.shape[0], program.b.shape[0]
    strict, weak = strictly_active(program, point)
    own, low, up = program.split(strict)
    _, z_low, z_up = program.split(z)
    both = low & up
    low, up = low & ~(both & (z_up > z_low)), up & ~(both & (z_up <= z_low))
    free = ~(low | up)
    rows = np.where(free, np.concatenate([program.A, program.G]), 0.0)  # (m + p, n)
    wanted = np.concatenate([np.any(program.A != 0, axis=1), own])
    rows = np.where(wanted[:, None], rows, 0.0)
    chosen, _ = independent(rows, wanted, surely(rows @ rows.T + diagonal(np.where(wanted, 0.0, 1.0))))
    rows = np.where(chosen[:, None], rows, 0.0)
    curved = np.where(free & free[:, None], program.Q, 0.0) + rows.T @ rows + diagonal(np.where(free, 0.0, 1.0))
    held, _ = independent(curved, np.ones(n, bool), surely(curved))
    choice = np.any(weak) | np.any(both) | np.any(wanted & ~chosen) | np.any(~held)
    return Basis(chosen[:m], chosen[m:], low, up, ~held, choice)
