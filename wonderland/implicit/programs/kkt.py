"""The system of equations of a quadratic program's optimality conditions, factorised once and solved often.

    [ Q  -A'  R' ] [dx]   [r1]
    [ A   0   0  ] [dy] = [r2]      W = diag(weights) >= 0, (k,)
    [ R   0  -W  ] [dz]   [r3]

dz is eliminated, which leaves n + m unknowns: H = Q + R' W^-1 R. Where there is no equation of the third kind (an
inactive constraint) dz is 0. A small multiple of the identity makes it regular whatever the data are; refinement with
the residuals of the system itself takes its effect away again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.implicit.loops import repeat
from wonderland.implicit.programs.data import Quadratic, largest
from wonderland.numpy.dispatch import as_function
from wonderland.ops import factors

lu = as_function(factors.lu)
lu_solve = as_function(factors.lu_solve)

REGULAR = 1e-12  # of a program whose rows and columns have about length one
ROUNDED = 1e-15  # of the largest entry of W^-1: what is smaller in H is lost, and H may be singular
SOFT = 1e-10  # added to W, so that no constraint is so hard that all else is lost in H; refinement takes it away again

Triple = tuple[Any, Any, Any]


def diagonal(values: Any) -> Any:
    """The matrix with these on its diagonal."""
    return np.eye(values.shape[0]) * values


Solve = Callable[[Any, Any], tuple[Any, Any]]
Factor = Callable[[Any], Solve]


def dense_factor(program: Quadratic) -> Factor:
    """A function of `inverse` (k,) that solves [[Q + R' diag(inverse) R + e, -A'], [A, e]] (dx, dy) = (r1, r2)."""
    Q, A, G = program.Q, program.A, program.G
    m, n = A.shape
    fixed = np.block([[Q + REGULAR * np.eye(n), -A.T], [A, REGULAR * np.eye(m)]])  # what no iteration changes
    wide = np.pad(G, [(0, 0), (0, m)])  # (p, n + m): so no iteration has to put blocks together

    def factorise(inverse: Any) -> Solve:
        own, low, up = program.split(inverse)
        more = np.pad(low + up + ROUNDED * largest(inverse), (0, m))
        kept = lu(fixed + (wide.T * own) @ wide + diagonal(more))

        def solve(r1: Any, r2: Any) -> tuple[Any, Any]:
            found = lu_solve(*kept, np.concatenate([r1, r2]), adjoint=False)
            return found[:n], found[n:]

        return solve

    return factorise


def system(
    program: Quadratic, weights: Any, there: Any, factor: Factor, refinements: int = 2, exact: float = 0.0
) -> Callable[[Any, Any, Any], Triple]:
    """A function `(r1, r2, r3) -> (dx, dy, dz)` of columns, (n, j), (m, j) and (k, j).

    `there` are the constraints that have an equation, (k,) bools. It is refined so often at most, or until residuals
    are below `exact` of the right-hand side.
    """
    inverse = np.where(there, 1 / np.where(there, weights + SOFT, 1.0), 0.0)
    reduced = factor(np.where(program.present, inverse, 0.0))
    inverse, weights, there = inverse[:, None], weights[:, None], there[:, None]

    def solve(r1: Any, r2: Any, r3: Any) -> Triple:
        scale = np.maximum(np.maximum(largest(r1), largest(r2)), largest(r3))

        def refine(state: Any) -> Any:
            (dx, dy, dz), (left1, left2, left3), count = state
            ex, ey = reduced(left1 + program.columns(inverse * left3), left2)
            dx, dy, dz = dx + ex, dy + ey, dz + inverse * (program.rows(ex) - left3)
            left1 = r1 - (program.Q @ dx - program.A.T @ dy + program.columns(dz))
            left3 = np.where(there, r3 - (program.rows(dx) - weights * dz), 0.0)
            return (dx, dy, dz), (left1, r2 - program.A @ dx, left3), count + 1

        def unfinished(state: Any) -> Any:
            _, (left1, left2, left3), count = state
            left = np.maximum(np.maximum(largest(left1), largest(left2)), largest(left3))
            return (count <= refinements) & ~(left <= exact * scale)

        start = tuple(np.zeros(r.shape) for r in (r1, r2, r3)), (r1, r2, r3), np.zeros((), np.int64)
        return repeat(unfinished, refine, start)[0]

    return solve
