"""What is minimised: sum_i s_i l(y_i, eta_i) + l2/2 |coef|^2, eta = X coef + intercept + offset, and its derivatives.

With l1 |coef| as well, which `proximal.py` adds: values and derivatives here are those of the smooth part.

Parameters are one array w: (features + 1,), the intercept last, or (features + 1, outputs); without an intercept, a row
less. All that reads X goes through it once, in blocks that stay in the cache while they are read again. Products are
NumPy's: mixed with SciPy's, the threads of their two BLAS libraries would wait for each other.

All is computed in double precision. X of single precision that is large stays as it is, since a copy would take twice
the memory that it has: blocks are converted as they are read, or, for a `rough` problem, products with them are of
single precision, which takes half of the time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from wonderland.estimators.smooth.losses import Derivatives, Rows

ROWS = 1000  # samples that tell the sizes of columns
COPIED = 2**22  # numbers of single precision that are copied at once


class LossPoint(NamedTuple):
    """Parameters w, their predictor eta (padded), the value of the objective and its gradient, like w."""

    w: np.ndarray
    eta: np.ndarray
    value: float
    gradient: np.ndarray


class SmoothProblem:
    """The objective of data X (n, p), y (n,) or one-hot (n, outputs), weights s above zero (n,)."""

    n: Any
    p: Any
    rows: Any
    y: np.ndarray
    s: np.ndarray
    offset: Any
    total: float
    loss: Any
    l2: float
    l1: float
    intercept: bool
    numbers: Any

    def __init__(
        self, X: np.ndarray, y: np.ndarray, s: np.ndarray, loss: Derivatives, *, l2: float = 0.0, l1: float = 0.0,
        intercept: bool = True, offset: np.ndarray | None = None, numbers: tuple[float, ...] = (),
    ):  # fmt: skip
        if not (X.flags.c_contiguous or X.flags.f_contiguous):
            X = np.ascontiguousarray(X)
        self.X = X = X.astype(np.float64, copy=False) if X.size <= COPIED else X
        self.n, self.p = X.shape
        self.rows = Rows(self.n, self.p)
        self.precision: Any = np.float64
        self.pieces = [slice(0, self.n)] if X.dtype == np.float64 else self.rows.within
        self.y = self.rows.pad(y)
        self.s = self.rows.pad(s)
        self.s[self.n :] = 0.0
        self.offset = None if offset is None else self.rows.pad(offset)
        self.total = float(np.sum(s))
        self.loss, self.l2, self.l1, self.intercept, self.numbers = loss, l2, l1, intercept, numbers

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the parameters."""
        rows = self.p + self.intercept
        return (rows,) if self.loss.outputs == 1 else (rows, self.loss.outputs)

    @property
    def free(self) -> slice:
        """The rows of parameters without a penalty: all, or the intercept's."""
        return slice(0 if self.l2 == self.l1 == 0 else self.p, self.shape[0])

    def balanced(self, w: np.ndarray) -> np.ndarray:
        """Parameters or a step without the number that all outputs share, which changes no probability.

        The minimum is balanced. Away from it only the penalty would tell, whose slope may be less than a tolerance.
        """
        return w if w.ndim == 1 else w - np.mean(w, axis=1, keepdims=True)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Root mean squares of columns, at most 1, by some rows; 1 of the intercept. It broadcasts with w.

        A derivative in a coefficient is as small as its column: in these units it tells how far the optimum is.
        """
        some = self.read(sample(self.n, ROWS))
        size = np.sqrt(np.einsum("ij,ij->j", some, some) / len(some))
        size = np.append(np.where(size > 0, np.minimum(size, 1.0), 1.0), np.ones(int(self.intercept)))
        return size.reshape(-1, *(1 for _ in self.shape[1:]))

    def part(self, chosen: np.ndarray) -> SmoothProblem:
        """The problem of some rows, with as much penalty for each."""
        offset = None if self.offset is None else self.offset[chosen]
        s = self.s[chosen]
        return SmoothProblem(
            self.X[chosen], self.y[chosen], s, self.loss, l2=self.l2 * float(np.sum(s)) / self.total,
            intercept=self.intercept, offset=offset, numbers=self.numbers,
        )  # fmt: skip

    def features(self, chosen: np.ndarray) -> SmoothProblem:
        """The problem of some features."""
        n = self.n
        return SmoothProblem(
            self.X[:, chosen], self.y[:n], self.s[:n], self.loss, l2=self.l2, l1=self.l1,
            intercept=self.intercept, offset=None if self.offset is None else self.offset[:n], numbers=self.numbers,
        )  # fmt: skip

    def read(self, rows: Any) -> np.ndarray:
        """Some rows of X in double precision."""
        return np.asarray(self.X[rows], np.float64)

    def rough(self) -> SmoothProblem:
        """The same, with products of the precision that X has."""
        out = copy.copy(self)
        out.precision = self.X.dtype
        return out

    @cached_property
    def buffer(self) -> np.ndarray:
        return np.empty((self.rows.block, self.p))

    def piece(self, rows: slice) -> np.ndarray:
        """One of the blocks or `pieces` of X in the problem's precision, until the next is asked for."""
        X = self.X[rows]
        if X.dtype == self.precision:
            return X
        converted = self.buffer[: len(X)]
        converted[:] = X
        return converted

    def times(self, v: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """X v, (n, ...), in the first rows of `out` if it is given."""
        out = np.empty((self.n, *v.shape[1:])) if out is None else out
        v = v.astype(self.precision, copy=False)
        for rows in self.pieces:
            np.matmul(self.piece(rows), v, out=out[rows])
        return out

    def transposed(self, u: np.ndarray) -> np.ndarray:
        """X' u."""
        out = np.zeros((self.p, *u.shape[1:]))
        u = u.astype(self.precision, copy=False)
        for rows in self.pieces:
            out += self.piece(rows).T @ u[rows]
        return out

    def penalty(self, w: np.ndarray) -> float:
        coef = w[: self.p].ravel()
        return 0.5 * self.l2 * float(coef @ coef) if self.l2 else 0.0

    def at(self, w: np.ndarray) -> LossPoint:
        """The value and gradient at w: X is read once. Where predictors are out of bounds, the value isn't finite."""
        with np.errstate(invalid="ignore", over="ignore"):
            return self._at(w)

    def _at(self, w: np.ndarray) -> LossPoint:
        value = self.penalty(w)
        gradient = np.zeros(self.shape)
        eta = np.empty((self.rows.padded, *self.shape[1:]))
        coef = w[: self.p].astype(self.precision, copy=False)
        at_zero = not coef.any()
        for rows in self.rows.blocks:
            X, part = self.piece(rows), eta[rows]
            known = part[: len(X)]
            if at_zero:
                known[:] = 0.0
            else:
                np.matmul(X, coef, out=known)
            if self.intercept:
                known += w[-1]
            if self.offset is not None:
                known += self.offset[rows][: len(X)]
            part[len(X) :] = eta[0]
            loss, slope = self.loss.value_and_slope(part, self.y[rows], self.s[rows], *self.numbers)
            value += float(loss)
            gradient[: self.p] += X.T @ slope[: len(X)].astype(self.precision, copy=False)
            if self.intercept:
                gradient[-1] += slope.sum(axis=0)
        gradient = self.balanced(gradient)  # but for rounding, it is
        if self.l2:
            gradient[: self.p] += self.l2 * w[: self.p]
        return LossPoint(w, eta, value, gradient)

    def along(self, start: LossPoint, end: LossPoint) -> Callable[[float], tuple[float, float, np.ndarray]]:
        """Value, slope and slopes of rows at w + t (end - w), found without X: predictors are linear in t."""
        change, move = end.eta - start.eta, end.w - start.w

        def at(t: float) -> tuple[float, float, np.ndarray]:
            value, slopes = self.slopes(start.eta + t * change)
            w = start.w + t * move
            slope = float(np.vdot(slopes, change)) + self.l2 * float(np.vdot(w[: self.p], move[: self.p]))
            return value + self.penalty(w), slope, slopes

        return at

    def slopes(self, eta: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss of predictors and its derivative in each of them."""
        parts = [
            self.loss.value_and_slope(eta[rows], self.y[rows], self.s[rows], *self.numbers) for rows in self.rows.blocks
        ]
        return float(sum(value for value, _ in parts)), np.concatenate([slope for _, slope in parts])

    def between(self, start: LossPoint, end: LossPoint, t: float, value: float, slopes: np.ndarray) -> LossPoint:
        """The point w + t (end - w), of what `along` found."""
        w = start.w + t * (end.w - start.w)
        return LossPoint(w, start.eta + t * (end.eta - start.eta), value, self.pull(slopes, w))

    def pull(self, slopes: np.ndarray, w: np.ndarray) -> np.ndarray:
        """X' slopes + l2 coef: the gradient, of slopes in eta; or a product with the Hessian, of their tangents."""
        out = np.empty(self.shape)
        out[: self.p] = self.transposed(slopes)
        if self.intercept:
            out[-1] = slopes.sum(axis=0)
        out[: self.p] += self.l2 * w[: self.p]
        return out

    def tangent(self, v: np.ndarray, eta: np.ndarray) -> np.ndarray:
        """The derivative of the rows' slopes along v, both like eta."""
        parts = [
            self.loss.tangent(v[rows], eta[rows], self.y[rows], self.s[rows], *self.numbers)
            for rows in self.rows.blocks
        ]
        return np.concatenate(parts)

    def curvature(self, eta: np.ndarray) -> np.ndarray:
        """Second derivatives of the loss in each predictor, (n,)."""
        return self.tangent(np.ones_like(eta), eta)[: self.n]

    def diagonal(self, eta: np.ndarray) -> np.ndarray:
        """Second derivatives of each row's loss in each of its predictors, like eta, (n,) or (n, outputs)."""
        if eta.ndim == 1:
            return self.curvature(eta)
        unit = np.eye(eta.shape[1])
        columns = [self.tangent(np.broadcast_to(row, eta.shape), eta)[: self.n, k] for k, row in enumerate(unit)]
        return np.stack(columns, axis=1)

    def product(self, eta: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """v -> H v, the Hessian's product with parameters v at predictors eta."""
        second = self.tangent(np.ones_like(eta), eta) if self.loss.outputs == 1 else None
        moved = np.zeros_like(eta)

        def apply(v: np.ndarray) -> np.ndarray:
            self.times(v[: self.p], moved)
            if self.intercept:
                moved[: self.n] += v[-1]
            return self.pull(self.tangent(moved, eta) if second is None else second * moved, v)

        return apply


def sample(n: int, rows: int) -> np.ndarray:
    """Places of about `rows` of n samples in order, one from each of as many equal stretches; the same each time."""
    if rows >= n:
        return np.arange(n)
    edges = np.arange(rows + 1) * n // rows
    return edges[:-1] + np.random.default_rng(0).integers(0, edges[1:] - edges[:-1])
