"""A quadratic program as data, in the form in which the interior point and the active set compute with it.

    minimise 1/2 x'Qx + c'x  subject to  Ax = b,  Rx <= limit

The rows R are G's, then -I for lower bounds and I for upper ones, where there are bounds; nobody writes those out. A
limit that is infinite is no constraint: its row counts as zero. All arrays are float64, values or traced.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wonderland.implicit.loops import times
from wonderland.numpy.sparse import is_sparse


class Quadratic:
    """The data of a quadratic program; `lower`, `upper` are None where there are no such bounds."""

    def __init__(self, Q: Any, c: Any, A: Any, b: Any, G: Any, h: Any, lower: Any, upper: Any):
        self.Q: Any = Q  # (n, n)
        self.c: Any = c  # (n,)
        self.A: Any = A  # (m, n)
        self.b: Any = b  # (m,)
        self.G: Any = G  # (p, n)
        self.h: Any = h  # (p,)
        self.lower: Any = lower  # (n,)
        self.upper: Any = upper  # (n,)
        limit = self.stacked(h, None if lower is None else -lower, upper)
        self.present: Any = np.isfinite(limit)  # (k,): which rows of R are constraints
        self.limit: Any = np.where(self.present, limit, 1.0)  # (k,): 0 x <= 1 is always so

    def stacked(self, own: Any, low: Any, up: Any) -> Any:
        """One vector (k,) of what belongs to G, to lower and to upper bounds, as far as there are any."""
        low = [] if self.lower is None else [low]
        return np.concatenate([own, *low, *([] if self.upper is None else [up])])

    def split(self, z: Any) -> tuple[Any, Any, Any]:
        """What belongs to G, to lower and to upper bounds; zeros where there are none."""
        p, n = self.G.shape
        none = np.zeros((n, *z.shape[1:]), z.dtype)
        low = none if self.lower is None else z[p : p + n]
        return z[:p], low, none if self.upper is None else z[z.shape[0] - n :]

    def rows(self, x: Any) -> Any:
        """R x, (k,); of several x, (n, j), as columns (k, j)."""
        return self.where_present(self.stacked(self.G @ x, -x, x))

    def columns(self, z: Any) -> Any:
        """R'z, (n,); of several z, (k, j), as columns (n, j)."""
        own, low, up = self.split(self.where_present(z))
        own = own @ self.G if own.ndim == 1 else self.G.T @ own  # of one vector: G is read as it lies
        return own - low + up

    def where_present(self, values: Any) -> Any:
        """Values of the constraints, 0 for those that are none."""
        return np.where(self.present if values.ndim == 1 else self.present[:, None], values, 0.0)


class Optimum(NamedTuple):
    """A primal and dual point of a program, and the slack of its inequalities."""

    x: Any  # (n,)
    y: Any  # (m,)
    z: Any  # (k,)
    s: Any  # (k,)


class Scale(NamedTuple):
    """What the values of a scaled program are multiplied with to be the values of the program itself."""

    x: Any  # (n,)
    y: Any  # (m,)
    z: Any  # (k,)
    s: Any  # (k,)

    def unscaled(self, point: Optimum) -> Optimum:
        return Optimum(*(value * unit for value, unit in zip(point, self, strict=True)))


def largest(values: Any) -> Any:
    """The largest absolute value, 0 of none."""
    return np.max(np.abs(values), initial=0.0)


def _largest(matrix: Any, axis: int) -> Any:
    """The largest entries along an axis, 0 where there are none; of arrays, and of matrices of scipy.sparse."""
    if is_sparse(matrix):
        count = matrix.shape[1 - axis]
        return matrix.max(axis=axis).toarray().reshape(count) if 0 not in matrix.shape else np.zeros(count)
    return np.max(matrix, axis=axis, initial=0.0)


def _root(size: Any) -> Any:
    """1/sqrt(size), and 1 where there is nothing to scale."""
    return 1 / np.sqrt(np.where(size > 0, size, 1.0))


def scaled(program: Quadratic, rounds: int = 4) -> tuple[Quadratic, Scale]:
    """The program in units in which its rows and columns have about length one, and these units.

    Ruiz's equilibration: rows and columns of [[Q, A', G'], [A], [G]] are divided by the roots of their largest entries,
    a few times; the rows of bounds stay those of the identity.
    """
    sizes = tuple(np.ones(count) for count in (program.c.shape[0], program.b.shape[0], program.h.shape[0]))
    Q, A, G = abs(program.Q), abs(program.A), abs(program.G)

    def divide(state: Any) -> Any:
        column, row, own = state
        # The largest entries of the rows and columns, of those of the scaled matrices: max_j |a_ij| d_j, times e_i.
        heights = [_largest(M * unit[:, None], 0) for M, unit in ((Q, column), (A, row), (G, own))]
        d = _root(column * np.maximum(heights[0], np.maximum(heights[1], heights[2])))
        e, f = (_root(unit * _largest(M * column, 1)) for M, unit in ((A, row), (G, own)))
        return column * d, row * e, own * f

    column, row, own = times(rounds, divide, sizes, (Q, A, G))
    Q, A, G = (program.Q * column[:, None]) * column, (program.A * row[:, None]) * column, program.G * own[:, None]
    G, c = G * column, column * program.c
    Q, A, G = (
        M.tocsr() if is_sparse(M) else M for M in (Q, A, G)
    )  # a coo_array of one row times a vector is no vector
    unit = program.stacked(own, 1 / column, 1 / column)  # (k,): what a row was multiplied with
    # Where all of c, b and the limits are small, x is: it gets a unit in which they aren't.
    limit = program.where_present(program.limit * unit)
    size = np.maximum(np.maximum(largest(c), largest(program.b * row)), largest(limit))
    size = np.where(size > 0, np.minimum(size, 1.0), 1.0)
    c = c / size
    cost = np.maximum(np.max(_largest(abs(Q), 0), initial=0.0), largest(c))
    cost = 1 / np.where(cost > 0, cost, 1.0)
    bounds = [None if v is None else v / (column * size) for v in (program.lower, program.upper)]
    return (
        Quadratic(Q * cost, c * cost, A, program.b * row / size, G, program.h * own / size, *bounds),
        Scale(column * size, row * size / cost, unit * size / cost, size / unit),
    )


def residual(program: Quadratic, point: Optimum) -> Any:
    """How far a point is from being optimal: the largest of the relative residuals of the optimality conditions.

    Feasibility, stationarity, signs of the multipliers, and complementarity z (limit - Rx).
    """
    x, y, z, _ = point
    limit, reached = program.limit, program.rows(x)
    products = program.Q @ x, program.A.T @ y, program.columns(z)
    over = largest(np.maximum(reached - limit, 0.0))
    primal = np.maximum(largest(program.A @ x - program.b), over)
    sizes = np.maximum(largest(abs(program.A) @ np.abs(x)), largest(program.b))  # of sums, and what they may cancel to
    sizes = 1 + np.maximum(np.maximum(sizes, largest(np.where(z != 0, limit, 0.0))), largest(reached))
    dual = largest(products[0] + program.c - products[1] + products[2])
    forces = 1 + np.maximum(largest(program.c), np.maximum(largest(products[0]), largest(products[2])))
    dual = np.maximum(dual, largest(np.minimum(z, 0.0)))
    value = 1 + np.abs(x @ products[0] / 2 + program.c @ x)
    gap = largest(z * (limit - reached)) / value
    return np.maximum(np.maximum(primal / sizes, dual / forces), gap)
