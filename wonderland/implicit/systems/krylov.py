"""What the iterative solvers share: their options, inner products, and the loop that starts them again.

Each of them attempts A d = r from d = 0, until its own estimate of the residual is small enough. The true residual b -
A x decides: where rounding has parted the two, or a recurrence has broken down, the next attempt starts from the x that
there is. So a status of 0 means ||b - A x|| <= max(tol ||b||, atol).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.forks import loading
from wonderland.implicit.limits import check_whole
from wonderland.implicit.loops import repeat
from wonderland.implicit.reports import Report, Status
from wonderland.implicit.systems.operators import Operator
from wonderland.implicit.systems.solvers_direct import require_square


def inner(x: Any, y: Any) -> Any:
    """x^H y."""
    return np.sum(np.conj(x) * y)


def norm(x: Any) -> Any:
    """The Euclidean norm."""
    return np.sqrt(np.sum(x.real * x.real + x.imag * x.imag)) if x.dtype.kind == "c" else np.sqrt(np.sum(x * x))


def scale_of(x: Any) -> Any:
    """1, or the largest absolute value where squares of the numbers could overflow, or vanish."""
    real = np.finfo(x.dtype)
    if not x.shape[0]:
        return real.dtype.type(1)
    largest, far = np.max(abs(x)), real.dtype.type(float(real.max) ** 0.25)
    extreme = ((largest > far) & (largest < np.inf)) | ((largest < 1 / far) & (largest > 0))
    return np.where(extreme, largest, 1 + 0 * far)[()]


def scaled_norm(x: Any) -> Any:
    """The Euclidean norm, of numbers of any size."""
    scale = scale_of(x)
    return norm(x / scale) * scale


def ratio(x: Any, y: Any) -> Any:
    """x / y, and 0 where y is 0."""
    if isinstance(y, np.generic):  # most of the steps of eager loops are these
        return x / y if y != 0 else 0 * x
    zero = y == 0
    return np.where(zero, 0 * x, x / np.where(zero, 1 + 0 * y, y))


def going(residual: Any, goal: Any, limit: Any) -> Any:
    """Neither small enough, nor grown beyond all digits, nor NaN."""
    return ~(residual <= goal) & (residual < limit)


def preconditioned(kept: Any, transposed: bool) -> Callable:
    """v -> M v, or M' v, by what `Krylov.prepare` gives."""
    if not isinstance(kept, Operator):
        return lambda v: v
    return (kept.transposed() if transposed else kept).matvec


@dataclass(frozen=True)
class Krylov:
    """The options of iterative solvers.

    They stop at ||b - A x|| <= max(tol ||b||, atol); `tol=None` is eps^(2/3), 4e-11 in float64 and 2e-5 in float32.
    They take up to `maxiter` iterations, max(10 n, 100) if None. `preconditioner`, close to the inverse of A, is an
    operator, a function v -> M v, `Jacobi()` or `IncompleteLU()`.
    """

    tol: float | None = None
    atol: float = 0.0
    maxiter: int | None = None
    preconditioner: Any = None

    def __post_init__(self) -> None:
        for name in ("tol", "atol"):  # which are static: an array is taken for its number, and a traced one refused
            value = getattr(self, name)
            if value is not None and not isinstance(value, (int, float)):
                if isinstance(value, str):
                    raise ArgumentError(f"{type(self).__name__}: {name} must be a number, got {value!r}")
                object.__setattr__(self, name, float(value))
        if self.maxiter is not None:
            check_whole(self.maxiter, f"{type(self).__name__}: maxiter")

    def prepare(self, A: Any) -> Any:
        """The preconditioner as an operator."""
        made = self.preconditioner
        if made is None:
            return ()
        if callable(made) and not isinstance(made, Operator):
            with loading():
                from wonderland.implicit.systems.functions import LinearFunction  # which knows GMRES

            made = LinearFunction(made, np.zeros(min(A.shape), A.dtype))
        elif not isinstance(made, Operator):
            made = made.prepare(A)
        side = min(A.shape)
        if made.shape != (side, side):
            raise ArgumentError(f"a preconditioner of {A} has shape ({side}, {side}), got {made}")
        return made

    def solve(self, A: Any, kept: Any, b: Any, transposed: bool = False) -> Any:
        """x, as far as it came."""
        return self.run(A, kept, b, transposed)[0]

    def run(self, A: Any, kept: Any, b: Any, transposed: bool = False) -> tuple[Any, Report]:
        """x and how it went."""
        dtype = np.result_type(A.dtype, b.dtype)
        b = b if b.dtype == dtype else b.astype(dtype)
        scale = scale_of(b)  # a cotangent of 1e-200 is no right-hand side of zeros, as its norm would have it
        x, report = self.iterate(A, kept, b / scale, scale.dtype.type(self.atol) / scale, transposed)
        return x * scale, report._replace(residual=report.residual * scale)

    def iterate(self, A: Any, kept: Any, b: Any, atol: Any, transposed: bool) -> tuple[Any, Report]:
        """x and how it went, for a b whose numbers have squares."""
        raise NotImplementedError

    def limits(self, A: Any, b: Any, atol: Any) -> tuple[Any, Any, int]:
        """The relative tolerance, that of the residual, and the most iterations."""
        size = norm(b)
        tol = size.dtype.type(np.finfo(b.dtype).eps ** (2 / 3) if self.tol is None else self.tol)
        maxiter = max(10 * min(A.shape), 100) if self.maxiter is None else self.maxiter
        return tol, np.maximum(tol * size, atol), maxiter


@dataclass(frozen=True)
class Square(Krylov):
    """Iterative solvers of square systems."""

    symmetric: ClassVar[bool] = False
    progress: ClassVar[float] = 0.5  # how small an attempt must make the residual, if there is to be another one

    def attempt(self, A: Callable, M: Callable, r: Any, goal: Any, budget: Any) -> tuple[Any, Any]:
        """d with A d about r, and how many iterations it took."""
        raise NotImplementedError

    def iterate(self, A: Any, kept: Any, b: Any, atol: Any, transposed: bool) -> tuple[Any, Report]:
        """x and how it went."""
        require_square(A, type(self).__name__, "LSMR()")
        transposed = transposed and not self.symmetric
        product = (A.transposed() if transposed else A).expanded().matvec
        M = preconditioned(kept, transposed)
        _, goal, maxiter = self.limits(A, b, atol)

        def unfinished(state: Any) -> Any:
            _, _, residual, count, stuck = state
            return ~(residual <= goal) & np.isfinite(residual) & (count < maxiter) & ~stuck

        def again(state: Any) -> Any:
            x, r, residual, count, _ = state
            d, steps = self.attempt(product, M, r, goal, maxiter - count)
            new_x = x + d
            new_r = b - product(new_x)
            new = norm(new_r)
            taken = ~(new >= residual)  # a NaN, too: it is told
            stuck = ~(new < residual * residual.dtype.type(self.progress))
            kept = [np.where(taken, *pair) for pair in ((new_x, x), (new_r, r), (new, residual))]
            return (*kept, count + steps, stuck)

        start = (np.zeros(b.shape, b.dtype), b, norm(b), 0, np.False_)
        with np.errstate(all="ignore"):  # what diverges is told by the report
            x, _, residual, count, _ = repeat(unfinished, again, start)
        return told(x, residual, residual <= goal, count, maxiter)


def told(x: Any, residual: Any, converged: Any, count: Any, maxiter: int) -> tuple[Any, Report]:
    """x, NaN if there is no finite one, and the report."""
    finite = np.isfinite(residual)
    status = np.where(count >= maxiter, int(Status.OUT_OF_ITERATIONS), int(Status.STAGNATED))
    status = np.where(converged & finite, int(Status.CONVERGED), np.where(finite, status, int(Status.NOT_FINITE)))
    return np.where(finite, x, x.dtype.type(np.nan)), Report(status, count, residual)
