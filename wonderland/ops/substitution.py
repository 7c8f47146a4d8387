"""Triangular systems in compiled code: nodes of matrices and right-hand sides come in, the solution's goes out.

A small triangle is solved by substitution, a procedure of its own; a larger one is halved: the off-diagonal block goes
through a matrix product.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wonderland.core.types import ArrayType

SMALL_SYSTEM = 48  # rows of a triangle that is solved by substitution; larger ones are halved
SINGULAR = (np.linalg.LinAlgError, "singular matrix: a zero on the diagonal")
FEW_COLUMNS = 4  # below this, sums run along a row of the matrix, otherwise along the columns of b


def lower_triangular_system(builder: Any, a: Any, b: Any, lower: bool, adjoint: bool, unit: bool) -> Any:
    """The nodes of x in a x = b (a^T x = b if `adjoint`), which reads one triangle of a."""
    if b.type.size == 0:
        return b
    a, rank = builder.convert(a, b.dtype), len(a.shape)
    if adjoint:
        a, lower = builder.transpose(a, (*range(rank - 2), rank - 1, rank - 2)), not lower
    n, k = b.shape[-2:]
    if n <= SMALL_SYSTEM:
        emit = partial(_substitute, n=n, lower=lower, unit=unit, columns=k)
        params = {"cost": 5.0 * n + 0.3 * n * n * k, "failure": None if unit else SINGULAR}
        return builder.procedure("substitution", emit, [a, b], ArrayType(b.shape, b.dtype), rank - 2, **params)
    # a11 x1 = b1 and a22 x2 = b2 - a21 x1, or the other way round.
    whole = [np.s_[0:extent:1] for extent in b.shape[:-2]]
    known, rest = np.s_[0 : n // 2 : 1], np.s_[n // 2 : n : 1]
    if not lower:
        known, rest = rest, known

    def part(i: slice, j: slice) -> Any:
        return builder.slice(a, (*whole, i, j))

    def right_side(i: slice) -> tuple:
        return (*whole, i, np.s_[0:k:1])

    params = {"lower": lower, "adjoint": False, "unit": unit}
    first = lower_triangular_system(builder, part(known, known), builder.slice(b, right_side(known)), **params)
    lead = tuple(range(rank - 2))
    done = builder.dot(part(rest, known), first, ((rank - 1,), (rank - 2,)), (lead, lead))
    left = builder.map(_difference, [builder.slice(b, right_side(rest)), done], b.dtype)
    second = lower_triangular_system(builder, part(rest, rest), left, **params)
    out = builder.copy(b)
    out = builder.scatter_slice(out, first, right_side(known), "set")
    return builder.scatter_slice(out, second, right_side(rest), "set")


def _difference(e: Any, x: Any, y: Any) -> Any:
    return e.sub(x, y)


def _substitute(code: Any, out: Any, a: Any, b: Any, n: int, lower: bool, unit: bool, columns: int) -> None:
    """The numbers of x one after the other, each from those before it; for all columns of b at once."""
    with code.loop(0, n) as step:
        i = step if lower else code.sub(code.number(n - 1), step)
        start, stop = (code.number(0), i) if lower else (code.add(i, code.number(1)), code.number(n))
        pivot = None if unit else a.load(i, i)
        if pivot is not None:
            with code.when(code.compare("eq", pivot, code.constant(0, pivot))):
                code.fail()
        update = _by_sums if columns < FEW_COLUMNS else _by_columns
        update(code, out, a, b, i, start, stop, pivot, columns)


def _by_sums(
    code: Any, out: Any, a: Any, b: Any, i: Any, start: Any, stop: Any, pivot: Any, columns: int
) -> None:  # fmt: skip
    for c in range(columns):
        total = code.variable(code.constant(0, b.dtype))
        with code.loop(start, stop) as j:
            total.add(code.mul(a.load(i, j), out.load(j, c)))
        value = code.sub(b.load(i, c), total.get())
        out.store(value if pivot is None else code.div(value, pivot), i, c)


def _by_columns(
    code: Any, out: Any, a: Any, b: Any, i: Any, start: Any, stop: Any, pivot: Any, columns: int
) -> None:  # fmt: skip
    with code.loop(0, columns) as c:
        out.store(b.load(i, c), i, c)
    with code.loop(start, stop) as j:
        factor = a.load(i, j)
        with code.loop(0, columns) as c:
            out.store(code.sub(out.load(i, c), code.mul(factor, out.load(j, c))), i, c)
    if pivot is not None:
        with code.loop(0, columns) as c:
            out.store(code.div(out.load(i, c), pivot), i, c)
