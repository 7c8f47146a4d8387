"""Linear operators: a matrix by what is known of it, for `linear_solve` and the solvers.

An `Operator` is a tree: its leaves are arrays, traced or not, so that it goes through transformations as they do, and
has derivatives in them. It acts on flat vectors: `matvec` takes (n,) to (m,). A batch of systems is `wl.vmap` of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.kinds import register_node
from wonderland.core.tracer import Tracer
from wonderland.implicit.systems.solvers_direct import LU, Cholesky, LeastSquares
from wonderland.implicit.systems.solvers_structured import Division, Substitution, Woodbury
from wonderland.transform.vmap import vmap


class Operator:
    """A linear map from (n,) to (m,), by the attributes that `leaves` names (arrays, operators) and `static` ones."""

    leaves: ClassVar[tuple[str, ...]] = ()
    static: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        def flatten(node: Any) -> tuple[list, tuple]:
            return [getattr(node, name) for name in cls.leaves], tuple(getattr(node, name) for name in cls.static)

        def unflatten(static: tuple, children: Sequence) -> Any:
            node = object.__new__(cls)  # leaves need not be arrays: nothing is checked
            for name, value in zip((*cls.leaves, *cls.static), (*children, *static), strict=True):
                setattr(node, name, value)
            return node

        register_node(cls, flatten, unflatten)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype:
        """That of the leaves."""
        dtypes = [getattr(self, name).dtype for name in self.leaves]
        return np.result_type(*dtypes)

    def matvec(self, v: Any) -> Any:
        """The product with a vector: (n,) to (m,)."""
        raise NotImplementedError

    def transposed(self) -> Operator:
        """The adjoint (the transpose, conjugated where it is complex): (m,) to (n,)."""
        raise NotImplementedError

    def dense(self) -> Any:
        """The matrix (m, n)."""
        raise NotImplementedError

    def diagonal(self) -> Any:
        """The elements on the diagonal, (min(m, n),)."""
        return np.diagonal(self.dense())

    @property
    def T(self) -> Operator:
        """`transposed()`."""
        return self.transposed()

    def __matmul__(self, x: Any) -> Any:
        """The product with a vector (n,), or with the columns of (n, k)."""
        if np.ndim(x) == 2:
            return vmap(self.matvec, in_axes=1, out_axes=1)(x)
        return self.matvec(x)

    def expanded(self) -> Operator:
        """The same, with what every product would compute again computed: for many products."""
        return self

    def default_solver(self) -> Any:
        """The solver that "auto" means."""
        raise NotImplementedError

    def __repr__(self) -> str:
        m, n = self.shape
        return f"{type(self).__name__}({m} x {n}, {self.dtype})"


def as_floats(x: Any, name: str, ndim: int) -> Any:
    """An array of that many axes, traced or not, of floats: integers become float64."""
    x = x if isinstance(x, Tracer) else np.asarray(x)
    if x.ndim != ndim:
        remedy = " Map over leading axes with wl.vmap." if x.ndim > ndim else ""
        raise ArgumentError(f"{name}: expected an array with {ndim} axes, got shape {x.shape}.{remedy}")
    return x if x.dtype.kind in "fc" else x.astype(np.float64)


def _as_square(a: Any, name: str) -> Any:
    a = as_floats(a, name, 2)
    if a.shape[0] != a.shape[1]:
        raise ArgumentError(f"{name}: expected a square matrix, got shape {a.shape}")
    return a


def adjoint(a: Any) -> Any:
    """The conjugate transpose of a matrix."""
    return np.conj(a.T) if a.dtype.kind == "c" else a.T


def _diagonal_matrix(d: Any) -> Any:
    return np.where(np.eye(d.shape[0], dtype=bool), d, d.dtype.type(0))


class Dense(Operator):
    """A matrix a (m, n) of which nothing else is known."""

    leaves: ClassVar[tuple[str, ...]] = ("a",)

    def __init__(self, a: Any):
        self.a: Any = as_floats(a, "Dense", 2)

    @property
    def shape(self) -> tuple[int, int]:
        return self.a.shape

    def matvec(self, v: Any) -> Any:
        return self.a @ v

    def transposed(self) -> Dense:
        return Dense(adjoint(self.a))

    def dense(self) -> Any:
        return self.a

    def default_solver(self) -> Any:
        """LU; `LeastSquares` where it isn't square."""
        return LU() if self.a.shape[0] == self.a.shape[1] else LeastSquares()


class Diagonal(Operator):
    """The matrix with d (n,) on its diagonal and zeros elsewhere."""

    leaves: ClassVar[tuple[str, ...]] = ("d",)

    def __init__(self, d: Any):
        self.d: Any = as_floats(d, "Diagonal", 1)

    @property
    def shape(self) -> tuple[int, int]:
        return self.d.shape * 2

    def matvec(self, v: Any) -> Any:
        return self.d * v

    def transposed(self) -> Diagonal:
        return Diagonal(np.conj(self.d))

    def dense(self) -> Any:
        return _diagonal_matrix(self.d)

    def diagonal(self) -> Any:
        return self.d

    def default_solver(self) -> Any:
        return Division()


class Triangular(Operator):
    """One triangle of a (n, n), the lower or the upper one; with `unit_diagonal` ones are on its diagonal.

    The rest of a isn't read and has no derivative.
    """

    leaves: ClassVar[tuple[str, ...]] = ("a",)
    static: ClassVar[tuple[str, ...]] = ("lower", "unit_diagonal")

    def __init__(self, a: Any, lower: bool = True, unit_diagonal: bool = False):
        self.a: Any = _as_square(a, "Triangular")
        self.lower: bool = bool(lower)
        self.unit_diagonal: bool = bool(unit_diagonal)

    @property
    def shape(self) -> tuple[int, int]:
        return self.a.shape

    def matvec(self, v: Any) -> Any:
        return self.dense() @ v

    def transposed(self) -> Triangular:
        return Triangular(adjoint(self.a), not self.lower, self.unit_diagonal)

    def dense(self) -> Any:
        inside = int(self.unit_diagonal)
        part = np.tril(self.a, -inside) if self.lower else np.triu(self.a, inside)
        return part + np.eye(self.a.shape[0], dtype=self.a.dtype) if self.unit_diagonal else part

    def expanded(self) -> Dense:
        return Dense(self.dense())

    def default_solver(self) -> Any:
        return Substitution()


class Symmetric(Operator):
    """The symmetric (complex: Hermitian) matrix whose lower triangle is that of a (n, n).

    The upper triangle isn't read; the derivative goes to the lower one, an element off the diagonal counting for both
    places, as `np.linalg.eigh` and `np.linalg.cholesky` have it.
    """

    leaves: ClassVar[tuple[str, ...]] = ("a",)

    def __init__(self, a: Any):
        self.a: Any = _as_square(a, type(self).__name__)

    @property
    def shape(self) -> tuple[int, int]:
        return self.a.shape

    def matvec(self, v: Any) -> Any:
        return self.dense() @ v

    def transposed(self) -> Symmetric:
        return self

    def dense(self) -> Any:
        below = np.tril(self.a, -1)
        middle: Any = np.diagonal(self.a)
        middle = middle.real.astype(self.a.dtype) if self.a.dtype.kind == "c" else middle
        return below + adjoint(below) + _diagonal_matrix(middle)

    def expanded(self) -> Dense:
        return Dense(self.dense())

    def default_solver(self) -> Any:
        return LU()


class PositiveDefinite(Symmetric):
    """A symmetric (Hermitian) positive definite matrix, by the lower triangle of a (n, n), as `Symmetric`.

    If it isn't positive definite, the solution is NaN.
    """

    def default_solver(self) -> Any:
        return Cholesky()


class LowRankUpdate(Operator):
    """base + u v', for a square operator, u (n, k) and v (n, k), u if it isn't given; v' is conjugated if complex.

    Solved by Woodbury's formula with the base's own solver, so the base must not be singular.
    """

    leaves: ClassVar[tuple[str, ...]] = ("base", "u", "v")

    def __init__(self, base: Operator, u: Any, v: Any = None):
        if not isinstance(base, Operator):
            raise ArgumentError(
                f"LowRankUpdate: the base must be an operator such as Diagonal or Dense, got {type(base).__name__}"
            )
        self.base: Operator = base
        self.u: Any = as_floats(u, "LowRankUpdate, u", 2)
        self.v: Any = self.u if v is None else as_floats(v, "LowRankUpdate, v", 2)
        n = base.shape[0]
        if base.shape != (n, n) or self.u.shape != self.v.shape or self.u.shape[0] != n:
            raise ArgumentError(
                f"LowRankUpdate: expected a square base (n, n), u (n, k) and v (n, k), got {base.shape}, "
                f"{self.u.shape} and {self.v.shape}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.base.shape

    def matvec(self, v: Any) -> Any:
        return self.base.matvec(v) + self.u @ (adjoint(self.v) @ v)

    def transposed(self) -> LowRankUpdate:
        return LowRankUpdate(self.base.transposed(), self.v, self.u)

    def dense(self) -> Any:
        return self.base.dense() + self.u @ adjoint(self.v)

    def diagonal(self) -> Any:
        return self.base.diagonal() + np.sum(self.u * np.conj(self.v), axis=1)

    def expanded(self) -> LowRankUpdate:
        return LowRankUpdate(self.base.expanded(), self.u, self.v)

    def default_solver(self) -> Any:
        return Woodbury(self.base.default_solver())
