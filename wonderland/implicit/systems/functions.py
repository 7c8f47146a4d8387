"""Operators without a matrix: a function `v -> A v`, the derivative of equations, and the transpose of either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from wonderland.control.linear import linear_transpose
from wonderland.core.errors import ArgumentError
from wonderland.core.functions import handles
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType
from wonderland.implicit.hoisting import Hoisted
from wonderland.implicit.systems.operators import Operator
from wonderland.implicit.systems.solvers_direct import LU
from wonderland.implicit.systems.solvers_gmres import GMRES
from wonderland.transform.trees import tree_ravel
from wonderland.transform.vmap import vmap

MOST_DENSE = 1000  # unknowns of a system that is written out as a matrix unless another solver is asked for


class MatrixFree(Operator):
    """An operator by its `matvec` alone: its transpose is that of `matvec`, its matrix what that makes of unit vectors.

    `size` is its shape, `number` its dtype.
    """

    size: tuple[int, int]
    number: np.dtype

    @property
    def shape(self) -> tuple[int, int]:
        return self.size

    @property
    def dtype(self) -> np.dtype:
        return self.number

    def transposed(self) -> Operator:
        return TransposedOperator(self)

    def dense(self) -> Any:
        return vmap(self.matvec, out_axes=1)(np.eye(self.size[1], dtype=self.number))

    def default_solver(self) -> Any:
        """LU of the matrix up to 1,000 unknowns, GMRES above."""
        return LU() if max(self.size) <= MOST_DENSE else GMRES()


class TransposedOperator(MatrixFree):
    """The transpose of an operator that has only a `matvec`."""

    leaves: ClassVar[tuple[str, ...]] = ("of",)

    def __init__(self, of: MatrixFree):
        self.of = of

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.of.shape
        return n, m

    @property
    def dtype(self) -> np.dtype:
        return self.of.dtype

    def matvec(self, v: Any) -> Any:
        return linear_transpose(self.of.matvec, ArrayType((self.of.shape[1],), self.dtype))(v)[0]

    def transposed(self) -> Operator:
        return self.of


class LinearFunction(MatrixFree):
    """The linear function f of trees as an operator on vectors: `LinearFunction(f, x)` for an x like its argument.

    What f closes over, if it is traced, are the leaves: the solution has derivatives in it.
    """

    leaves: ClassVar[tuple[str, ...]] = ("captured",)
    static: ClassVar[tuple[str, ...]] = ("hoisted", "unravel", "size", "number")

    def __init__(self, f: Callable, like: Any):
        vector, self.unravel = tree_ravel(like)
        self.hoisted: Hoisted = Hoisted(f)
        self.captured: list[Any] = handles(list(self.hoisted.values))
        if vector.dtype.kind not in "fc":
            raise ArgumentError(
                f"LinearFunction: the example of {self.hoisted.name}'s argument must be floats, got {vector.dtype}"
            )
        self.number = vector.dtype
        nothing = self.matvec(np.zeros(vector.shape, vector.dtype))
        self.size = (nothing.shape[0], vector.shape[0])
        if not isinstance(nothing, Tracer) and np.any(np.isfinite(nothing) & (nothing != 0)):  # NaN 0 is none of it
            raise ArgumentError(
                f"{self.hoisted.name} isn't linear: it makes {nothing[nothing != 0][0]} of zeros. Leave out what it "
                "adds, and take it from b; for equations that aren't linear there is wl.implicit.root."
            )

    def matvec(self, v: Any) -> Any:
        return tree_ravel(self.hoisted([unwrap(c) for c in self.captured], self.unravel(v)))[0]


class Jacobian(MatrixFree):
    """dF/dx of equations at a point, by products with vectors."""

    leaves: ClassVar[tuple[str, ...]] = ("theta", "x")
    static: ClassVar[tuple[str, ...]] = ("equations", "size", "number")

    def __init__(self, equations: Any, theta: list[Any], x: Any, rows: int):
        self.equations, self.theta, self.x = equations, theta, x
        self.size, self.number = (rows, x.shape[0]), x.dtype

    def matvec(self, v: Any) -> Any:
        theta, nothing = [unwrap(t) for t in self.theta], [None] * len(self.theta)
        change = self.equations.pushed(theta, unwrap(self.x), nothing, unwrap(v))[1]
        return np.zeros(self.size[0], self.number) if change is None else handles([change])[0]
