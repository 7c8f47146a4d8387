"""Rows of the op table: systems with banded and sparse matrices, and those of operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from wonderland.implicit.systems import bands, sparse_systems  # noqa: F401  (registers the primitives)
from wonderland.implicit.systems.linear import linear_solve
from wonderland.implicit.systems.operators_sparse import shared_rows
from wonderland.testing.op_table import add
from wonderland.testing.rows.linalg import matrices, vectors
from wonderland.testing.samples import Operand, case

_whole = {"pattern exact": "systems are taken to be full", "higher precision": "LAPACK and SuperLU compute in float64"}


def _each(solve: Any, a: Any, b: Any) -> Any:
    """One solve for each matrix of a stack."""
    out = [solve(a[place], b[place]) for place in np.ndindex(b.shape[:-2])]
    return np.array(out, b.dtype).reshape(b.shape)


def _dominant(rng: np.random.Generator, shape: tuple) -> np.ndarray:
    """Bands of 4 numbers or more with a large diagonal, which is the second one here."""
    numbers = rng.uniform(-1.0, 1.0, shape)
    numbers[..., 1, :] += 4.0
    return numbers


add(
    "banded_solve", Operand(_dominant), vectors, dtypes="fc", excluded=_whole,
    reference=lambda a, b, lower, upper: _each(lambda a, b: scipy.linalg.solve_banded((lower, upper), a, b), a, b),
    cases=[
        case((3, 4), (4, 2), lower=1, upper=1),
        case((2, 4, 5), (2, 5, 1), lower=2, upper=1),
        case((2, 3), (3, 1), lower=0, upper=1),
        case((3, 0), (0, 2), lower=1, upper=1),
    ],
)  # fmt: skip

_PATTERN = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
_ROWS = shared_rows(np.nonzero(_PATTERN)[1], np.array([0, 2, 4, 6]), (3, 3))
_numbers = Operand(lambda rng, shape: rng.uniform(-1.0, 1.0, shape) + np.tile([3.0, 0, 3, 0, 0, 3], shape[-1] // 6))


def _sparse_solved(data: Any, b: Any, structure: Any, transposed: bool, incomplete: Any) -> Any:
    def solve(data: Any, b: Any) -> Any:
        a = np.zeros(structure.shape, data.dtype)
        a[structure.places(False)] = data[0]
        return np.linalg.solve(np.conj(a.T) if transposed else a, b)

    return _each(solve, data, b)


add(
    "sparse_solve", _numbers, vectors, reference=_sparse_solved, dtypes="fc", excluded=_whole,
    cases=[
        case((1, 6), (3, 2), structure=_ROWS, transposed=False, incomplete=None),
        case((2, 1, 6), (2, 3, 1), structure=_ROWS, transposed=True, incomplete=None),
    ],
)  # fmt: skip

add(
    "linear_solve", matrices, vectors, function=linear_solve, reference=np.linalg.solve, dtypes="f", excluded=_whole,
    cases=[case((3, 3), (3,)), case((3, 3), (3, 2)), case((2, 2, 2), (2, 2, 1)), case((1, 1), (1,))],
)  # fmt: skip
