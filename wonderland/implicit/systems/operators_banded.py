"""Operators by their diagonals: `Tridiagonal` and `Banded`. O(n) numbers, products and solves."""

from __future__ import annotations

import operator
from typing import Any, ClassVar

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.functions import handles
from wonderland.core.tracer import unwrap
from wonderland.implicit.systems.bands import adjoint_bands, band_product, diagonals
from wonderland.implicit.systems.operators import Operator, as_floats
from wonderland.implicit.systems.solvers_structured import BandedLU


class Banded(Operator):
    """A matrix (n, n) that is zero but for `lower` diagonals below the main one and `upper` above it.

    `bands` (lower + upper + 1, n) is the layout of `scipy.linalg.solve_banded`: a[i, j] is bands[upper + i - j, j].
    """

    leaves: ClassVar[tuple[str, ...]] = ("bands",)
    static: ClassVar[tuple[str, ...]] = ("lower", "upper")

    def __init__(self, bands: Any, lower: int, upper: int):
        self.bands: Any = as_floats(bands, "Banded", 2)
        self.lower: int = operator.index(lower)
        self.upper: int = operator.index(upper)
        if min(lower, upper) < 0 or self.bands.shape[0] != lower + upper + 1:
            raise ArgumentError(
                f"Banded: {lower} lower and {upper} upper diagonals are bands of shape ({lower + upper + 1}, n), got "
                f"{self.bands.shape}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return (self.bands.shape[1],) * 2

    def banded(self) -> Banded:
        """Itself."""
        return self

    def matvec(self, v: Any) -> Any:
        return handles([band_product(unwrap(self.bands), unwrap(v[:, None]), self.lower, self.upper)])[0][:, 0]

    def transposed(self) -> Banded:
        bands = handles([adjoint_bands(unwrap(self.bands), self.lower, self.upper)])[0]
        return Banded(bands, self.upper, self.lower)

    def dense(self) -> Any:
        zero = self.dtype.type(0)
        out: Any = np.zeros(self.shape, self.dtype)
        for band, row, column, _ in diagonals(self.shape[0], self.lower, self.upper):
            there = np.eye(*self.shape, k=column - row, dtype=bool)
            out = out + np.where(there, self.bands[band], zero)
        return out

    def diagonal(self) -> Any:
        return self.bands[self.upper]

    def default_solver(self) -> Any:
        return BandedLU()


class Tridiagonal(Operator):
    """The matrix with `lower` (n - 1,) below its diagonal (n,) and `upper` (n - 1,) above it."""

    leaves: ClassVar[tuple[str, ...]] = ("lower", "main", "upper")

    def __init__(self, lower: Any, diagonal: Any, upper: Any):
        self.lower: Any = as_floats(lower, "Tridiagonal, lower", 1)
        self.main: Any = as_floats(diagonal, "Tridiagonal, diagonal", 1)
        self.upper: Any = as_floats(upper, "Tridiagonal, upper", 1)
        n = self.main.shape[0]
        if self.lower.shape != (max(n - 1, 0),) or self.upper.shape != (max(n - 1, 0),):
            raise ArgumentError(
                f"Tridiagonal: expected shapes (n - 1,), (n,) and (n - 1,), got {self.lower.shape}, "
                f"{self.main.shape} and {self.upper.shape}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return self.main.shape * 2

    def banded(self) -> Banded:
        """The same as `Banded`."""
        rows = [np.pad(self.upper, (1, 0)), self.main, np.pad(self.lower, (0, 1))] if self.main.shape[0] else []
        return Banded(np.stack(rows) if rows else np.zeros((3, 0), self.dtype), 1, 1)

    def matvec(self, v: Any) -> Any:
        if v.shape[0] < 2:
            return self.main * v
        return self.main * v + np.pad(self.upper * v[1:], (0, 1)) + np.pad(self.lower * v[:-1], (1, 0))

    def transposed(self) -> Tridiagonal:
        return Tridiagonal(np.conj(self.upper), np.conj(self.main), np.conj(self.lower))

    def dense(self) -> Any:
        return self.banded().dense()

    def diagonal(self) -> Any:
        return self.main

    def default_solver(self) -> Any:
        return BandedLU()
