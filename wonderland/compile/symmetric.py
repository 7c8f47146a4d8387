"""Small symmetric matrices: nodes of stacks (..., n, n) come in, Cholesky factors or eigenvalues and vectors go out.

Eigenvectors are found by Jacobi's rotations: each makes one pair of numbers off the diagonal zero, and sweeps over all
pairs go on until none of the matrices that are done at once has a pair that matters.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from wonderland.compile import ir, lapack
from wonderland.compile.elimination import add_rows
from wonderland.compile.lanes import (
    SMALL,
    Index,
    Interleaved,
    Lanes,
    bytes_for,
    check,
    cost_of,
    load,
    width_for,
    written_out,
)
from wonderland.compile.nodes import Node, Number
from wonderland.compile.procedures import Code, Stacked
from wonderland.core.types import ArrayType

MOST_ROTATED, MOST_ROTATED_TOGETHER = 8, 16  # rows of one matrix, and of many, up to which rotations are quicker
MOST_SWEEPS = 40  # of which about seven are needed
SWEEPS = 6.0

# Cholesky -------------------------------------------------------------------------------------------------------------


def lower_cholesky(builder: Any, a: Node, failure: tuple[Any, str] | None) -> Node:
    """The lower factor; without a failure, NaN where there is none."""
    check(a.dtype)
    *lead, n, _ = a.shape
    if a.type.size == 0:
        return Number(ArrayType(a.shape, a.dtype), 0)
    if n > SMALL:
        return lapack.lower_cholesky(builder, a, failure)
    width = width_for(math.prod(lead), a.dtype)
    return builder.procedure(
        "cholesky", partial(_cholesky, n=n, fails=failure is not None), [a], ArrayType(a.shape, a.dtype), len(lead),
        cost=0.5 * cost_of(n, n, width), scratch=0 if written_out(n) else bytes_for(n, n, width, a.dtype),
        failure=failure, lanes=width,
    )  # fmt: skip


def _cholesky(code: Code, out: Stacked, a: Stacked, n: int, fails: bool, scratch: ir.Value | None = None) -> None:
    """The factor is kept as its transpose: u' u = a, row by row."""
    w = Lanes(code, a.dtype, written_out(n))
    u, definite = w.interleaved(n, n, scratch), w.variable(1.0)

    def step(k: Index) -> None:
        square = u[k, k]
        bad = square <= 0.0  # NaN isn't: it stays
        definite.set(w.where(bad, 0.0, definite.get()))
        root = w.sqrt(w.where(bad, 1.0, square))
        u[k, k] = root

        def divide(j: Index) -> None:
            u[k, j] = u[k, j] / root

        w.each(k + 1, n, divide)
        w.each(k + 1, n, lambda r: add_rows(w, u, r, [k], [-u[k, r]], r, n))

    def store(i: Index) -> None:
        def one(j: Index) -> None:
            w.write(u[j, i] if fails else w.where(bad, np.nan, u[j, i]), out, i, j)

        w.each(0, i + 1, one)
        rest = w.constant(0.0) if fails else w.where(bad, np.nan, 0.0)
        w.each(i + 1, n, lambda j: w.write(rest, out, i, j))

    load(w, u, a, flipped=True)
    w.each(0, n, step)
    bad = definite.get().equals(0.0)
    if fails:
        w.fail(bad)
    w.each(0, n, store)


# Eigenvectors ---------------------------------------------------------------------------------------------------------


def lower_symmetric(builder: Any, a: Node, lower: bool, failure: tuple[Any, str]) -> tuple[Node, Node]:
    """Eigenvalues in ascending order, and eigenvectors as columns; one triangle is read."""
    check(a.dtype)
    *lead, n, _ = a.shape
    types = [ArrayType((*lead, n), a.dtype), ArrayType(a.shape, a.dtype)]
    if a.type.size == 0:
        return Number(types[0], 0), Number(types[1], 0)
    width = width_for(math.prod(lead), a.dtype)
    if n > (MOST_ROTATED if width == 1 else MOST_ROTATED_TOGETHER):
        return lapack.lower_symmetric(builder, a, lower, failure)
    return builder.procedures(
        "rotations", partial(_symmetric, n=n, lower=lower), [a], types, len(lead),
        cost=SWEEPS * cost_of(n, 8 * n, width), scratch=2 * bytes_for(n, n, width, a.dtype), failure=failure,
        lanes=width,
    )  # fmt: skip


def _symmetric(code: Code, values: Stacked, out: Stacked, a: Stacked, n: int, lower: bool, scratch: ir.Value) -> None:
    w = Lanes(code, a.dtype, False)
    s = Interleaved(w, scratch, n, w.type)
    v = Interleaved(w, code.shifted(scratch, bytes_for(n, n, w.width, a.dtype)), n, w.type)  # vectors as rows
    largest, finite = w.variable(0.0), w.variable(0.0)

    def load(i: Index) -> None:
        def one(j: Index) -> None:
            x = w.read(a, i, j) if lower else w.read(a, j, i)
            size = w.abs(x)
            largest.set(w.where(size > largest.get(), size, largest.get()))
            finite.set(finite.get() + x * 0.0)
            s[i, j] = x
            s[j, i] = x
            v[i, j] = w.constant(0.0)
            v[j, i] = w.constant(0.0)

        w.each(0, i + 1, one)
        v[i, i] = w.constant(1.0)

    w.each(0, n, load)
    limits = np.finfo(a.dtype)
    far = float(limits.max) ** 0.25
    extreme = (largest.get() > far) | (largest.get() < 1.0 / far) & (largest.get() > 0.0)
    scale = w.where(extreme, largest.get(), 1.0)

    def divide(i: Index) -> None:
        def one(j: Index) -> None:
            s[i, j] = s[i, j] / scale

        w.each(0, n, one)

    w.where_any(extreme, lambda: w.each(0, n, divide))
    tolerance = largest.get() / scale * float(limits.eps) * 0.125
    left, moved = code.variable(MOST_SWEEPS), code.variable(1)
    with code.repeat(lambda: (moved.get() > 0) & (left.get() > 0)):
        moved.set(code.number(0))
        left.add(code.number(-1))

        def rotate(p: Index, q: Index) -> None:
            across = s[p, q]
            matters = w.abs(across) > tolerance

            def pair() -> None:
                moved.set(code.number(1))
                _rotate(w, s, v, p, q, matters, n)

            w.where_any(matters, pair)

        w.each(0, n - 1, lambda p: w.each(p + 1, n, lambda q: rotate(p, q)))
    with code.when(moved.get() > 0):
        code.fail()
    _sorted(w, s, v, values, out, scale, finite.get(), n)


def _rotate(w: Lanes, s: Interleaved, v: Interleaved, p: Index, q: Index, matters: ir.Value, n: int) -> None:
    """Turn rows and columns p and q so that s[p, q] is zero, in the lanes where it matters."""
    f = w.f
    first, second, across = s[p, p], s[q, q], s[p, q]
    cotangent = (second - first) / (w.where(matters, across, 1.0) * 2.0)
    size = w.abs(cotangent)
    slope = w.constant(1.0) / (size + w.sqrt(w.sum_of(size, size, w.constant(1.0))))
    slope = w.where(matters, f.intrinsic("copysign", slope, cotangent), 0.0)
    cosine = w.constant(1.0) / w.sqrt(w.sum_of(slope, slope, w.constant(1.0)))
    sine = slope * cosine

    def turned(x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
        return w.sum_of(cosine, x, -(sine * y)), w.sum_of(sine, x, cosine * y)

    def one(r: Index) -> None:
        x, y = turned(s[p, r], s[q, r])
        s[p, r], s[q, r] = x, y
        s[r, p], s[r, q] = x, y
        v[p, r], v[q, r] = turned(v[p, r], v[q, r])

    w.each(0, n, one)
    s[p, p], s[q, q] = first - slope * across, second + slope * across
    s[p, q] = s[q, p] = w.where(matters, 0.0, across)


def _sorted(
    w: Lanes, s: Interleaved, v: Interleaved, values: Stacked, out: Stacked, scale: ir.Value, finite: ir.Value, n: int
) -> None:
    """Write each value to the place that its rank is; NaN if the matrix isn't finite."""
    fine = finite.equals(0.0)

    def value(i: Index) -> None:
        own, rank = s[i, i], w.f.variable(w.index(0))

        def compare(j: Index) -> None:
            other = s[j, j]
            earlier = w.index(j) < w.index(i)
            before = (other < own) | (other.equals(own) & earlier)
            before = w.f.select(fine, before, earlier)
            rank.set(rank.get() + w.f.convert(before, w.index_type, signed=False))

        w.each(0, n, compare)
        place = w.indices(rank.get())
        w.write(w.where(fine, own * scale, np.nan), values, place)
        w.each(0, n, lambda r: w.write(w.where(fine, v[i, r], np.nan), out, r, place))

    w.each(0, n, value)
