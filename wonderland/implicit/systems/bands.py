"""Banded matrices by their diagonals, and the systems that they make.

A matrix with `lower` diagonals below the main one and `upper` above it comes as bands (..., lower + upper + 1, n), in
the layout of `scipy.linalg.solve_banded`: a[i, j] is bands[upper + i - j, j]. What the corners of the bands hold isn't
read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wonderland.core.forks import loading
from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, shape_of
from wonderland.implicit.systems.band_elimination import lower_banded_system
from wonderland.ops.elementwise import conjugate, mul, neg
from wonderland.ops.linalg import solver_batch, solver_pattern
from wonderland.ops.matrices import block, embedded, total, with_shared_rules
from wonderland.ops.shape import transpose
from wonderland.ops.work import Work, work


def diagonals(n: int, lower: int, upper: int) -> Iterator[tuple[int, int, int, int]]:
    """(row of the bands, first row and column of the matrix, length) of each diagonal that isn't empty."""
    for band in range(lower + upper + 1):
        below = band - upper
        length = n - abs(below)
        if length > 0:
            yield band, max(below, 0), max(-below, 0), length


def band_product(bands: Any, x: Any, lower: int, upper: int) -> Any:
    """The matrices times x (..., n, k)."""
    *_, n, k = shape_of(x)
    out = None
    for band, row, column, length in diagonals(n, lower, upper):
        numbers = _swapped(block(bands, (1, length), band, column))  # (..., length, 1)
        out = total(out, embedded(mul(numbers, block(x, (length, k), column)), (n, k), row))
    return mul(x, 0.0) if out is None else out  # without rows


def adjoint_bands(bands: Any, lower: int, upper: int) -> Any:
    """The bands of the adjoint, which has `upper` diagonals below the main one and `lower` above it."""
    *_, count, n = shape_of(bands)
    out = None
    for band, row, column, length in diagonals(n, lower, upper):
        out = total(out, embedded(block(bands, (1, length), band, column), (count, n), count - 1 - band, row))
    return bands if out is None else conjugate(out)


def _swapped(x: Any) -> Any:
    rank = len(shape_of(x))
    return transpose(x, permutation=(*range(rank - 2), rank - 1, rank - 2))


def _infer(bands: ArrayType, b: ArrayType, lower: int, upper: int) -> ArrayType:
    if bands.shape[-2:] != (lower + upper + 1, b.shape[-2]) or bands.shape[:-2] != b.shape[:-2]:
        raise ValueError(
            f"banded_solve: bands of shape {bands.shape} and right-hand sides of shape {b.shape} don't fit; expected "
            f"bands (..., {lower + upper + 1}, n) for {lower} lower and {upper} upper diagonals"
        )
    return ArrayType(b.shape, np.result_type(bands.dtype, b.dtype))


def _evaluate(bands: Any, b: Any, lower: int, upper: int) -> Any:
    kind = np.result_type(bands, b)
    bands, b = bands.astype(kind, copy=False), b.astype(kind, copy=False)
    out = np.empty_like(b)
    if not b.size:
        return out
    with loading():
        from scipy.linalg.lapack import get_lapack_funcs

    gbsv, gtsv = get_lapack_funcs(("gbsv", "gtsv"), (bands, b))
    for place in np.ndindex(b.shape[:-2]):
        one = bands[place]
        if lower == upper == 1 and b.shape[-2] > 1:
            *_, out[place], info = gtsv(one[2, :-1], one[1], one[0, 1:], b[place])
        else:  # its factors fill `lower` rows more
            whole = np.concatenate([np.zeros((lower, one.shape[1]), one.dtype), one])
            _, _, out[place], info = gbsv(lower, upper, whole, b[place])
        if info > 0:
            out[place] = np.nan  # a zero pivot: singular
    return out


def _jvp(primals: tuple, tangents: tuple, lower: int, upper: int) -> tuple[Any, Any]:
    (bands, b), (dbands, db) = primals, tangents
    x = banded_solve(bands, b, lower=lower, upper=upper)
    change = None if dbands is None else neg(band_product(dbands, x, lower, upper))
    return x, banded_solve(bands, total(db, change), lower=lower, upper=upper)


def _cost(types: tuple, outs: tuple, params: dict) -> Work:
    rows, columns = max(types[0].size // max(types[0].shape[-2], 1), 1), outs[0].shape[-1]
    each = params["lower"] * (params["lower"] + params["upper"]) + types[0].shape[-2] * columns
    return work(outs[0], rows * each, rows * each)


# x in a x = b, by LU with partial pivoting; a singular matrix of the stack gives NaN, and nothing raises.
banded_solve: Primitive = with_shared_rules(
    Primitive(
        "banded_solve",
        _evaluate,
        _infer,
        jvp=_jvp,
        transpose=lambda ct, bands, b, lower, upper: (
            None,
            banded_solve(adjoint_bands(bands, lower, upper), ct, lower=upper, upper=lower),
        ),
        linear=(1,),
        lower=lower_banded_system,
        cost=_cost,
    ),
    solver_batch,
    solver_pattern,
)
