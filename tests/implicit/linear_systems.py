"""Operators of every kind, small and well-conditioned, for the tests of solvers and of derivatives."""

import numpy as np
import scipy.sparse as sp

from wonderland.implicit import (
    Banded,
    Dense,
    Diagonal,
    LowRankUpdate,
    PositiveDefinite,
    Sparse,
    Symmetric,
    Triangular,
    Tridiagonal,
)

N = 5


def numbers(shape, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    out = rng.uniform(-1, 1, shape)
    return (out + 1j * rng.uniform(-1, 1, shape) if np.dtype(dtype).kind == "c" else out).astype(dtype)


def plus(a, more):
    """a + more, in the dtype of a."""
    return a + np.asarray(more, a.dtype)


PATTERN = sp.csr_array(
    np.array([[1, 0, 1, 0, 0], [0, 1, 0, 0, 1], [1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [0, 1, 0, 0, 1.0]])
)

DIAGONAL = PATTERN.tocoo().row == PATTERN.tocoo().col

# name -> (function of the operator's numbers, their shape); `numbers` plus this, and there is a dominant diagonal
KINDS = {
    "Dense": (lambda a: Dense(plus(a, 4 * np.eye(N))), (N, N)),
    "Diagonal": (lambda a: Diagonal(a + 2), (N,)),
    "Tridiagonal": (lambda a: Tridiagonal(a[0, 1:], a[1] + 4, a[2, :-1]), (3, N)),
    "Banded": (lambda a: Banded(plus(a, [[0], [0], [5], [0]]), 1, 2), (4, N)),
    "lower": (lambda a: Triangular(plus(a, 3 * np.eye(N))), (N, N)),
    "unit upper": (lambda a: Triangular(a, lower=False, unit_diagonal=True), (N, N)),
    "Symmetric": (lambda a: Symmetric(plus(a, np.diag([4, -4, 5, -5, 6]))), (N, N)),
    "PositiveDefinite": (lambda a: PositiveDefinite(plus(a, 5 * np.eye(N))), (N, N)),
    "LowRankUpdate": (lambda a: LowRankUpdate(Diagonal(a[0] + 3), a[1:3].T, a[3:].T), (5, N)),
    "nested update": (
        lambda a: LowRankUpdate(LowRankUpdate(Tridiagonal(a[0, 1:], a[1] + 5, a[2, 1:]), a[3:4].T), a[4:].T),
        (5, N),
    ),
    "Sparse": (lambda a: Sparse(PATTERN, data=plus(a, 4 * DIAGONAL)), (PATTERN.nnz,)),
    "Sparse, transposed": (lambda a: KINDS["Sparse"][0](a).transposed(), (PATTERN.nnz,)),
}  # fmt: skip
SYMMETRIC = ("Symmetric", "PositiveDefinite")


def operator(kind, dtype=np.float64, seed=0):
    make, shape = KINDS[kind]
    return make(numbers(shape, dtype, seed))
