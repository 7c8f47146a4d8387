"""Orthogonal factors of small matrices: nodes of stacks (..., m, n) come in, those of q and r go out.

Householder's reflections, column by column, with LAPACK's choice of signs: H = 1 - tau v v', where v is 1 on the
diagonal and stays below it, makes a column (alpha, x) into (beta, 0), and beta has the sign that alpha doesn't have.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from wonderland.compile import ir, lapack
from wonderland.compile.lanes import (
    SMALL,
    TINY,
    Index,
    Interleaved,
    Lanes,
    bytes_for,
    check,
    cost_of,
    load,
    store,
    width_for,
)
from wonderland.compile.nodes import Node, Number
from wonderland.compile.procedures import Code, Stacked
from wonderland.core.types import ArrayType


def lower_orthogonal(builder: Any, a: Node, full: bool) -> tuple[Node, Node]:
    """q with orthonormal columns, as many as rows if `full`, and the upper triangular r."""
    check(a.dtype)
    *lead, m, n = a.shape
    columns = m if full else min(m, n)
    types = [ArrayType((*lead, m, columns), a.dtype), ArrayType((*lead, columns, n), a.dtype)]
    if min(m, n) == 0:
        eye = builder.constant(np.eye(m, columns, dtype=a.dtype))
        return builder.broadcast(eye, types[0].shape), Number(types[1], 0)
    if max(m, n) > SMALL:
        return lapack.lower_orthogonal(builder, a, columns)
    width = width_for(math.prod(lead), a.dtype)
    scratch = bytes_for(m, n, width, a.dtype) + bytes_for(m + 2, max(columns, n), width, a.dtype)
    return builder.procedures(
        "reflections", partial(_orthogonal, m=m, n=n, columns=columns), [a], types, len(lead),
        cost=2.0 * cost_of(m, n + columns, width), scratch=0 if _written_out(m, n, columns) else scratch, lanes=width,
    )  # fmt: skip


def _written_out(m: int, n: int, columns: int) -> bool:
    return 4 * m * n * columns <= TINY


def _orthogonal(
    code: Code, q_out: Stacked, r_out: Stacked, a: Stacked, m: int, n: int, columns: int,
    scratch: ir.Value | None = None,
) -> None:  # fmt: skip
    w, k = Lanes(code, a.dtype, _written_out(m, n, columns)), min(m, n)
    places: list[Any] = [None] * 4
    if scratch is not None:
        sizes = [bytes_for(*size, w.width, a.dtype) for size in ((m, n), (m, columns), (1, max(columns, n)))]
        places = [code.shifted(scratch, sum(sizes[:i])) for i in range(4)]
    r, q = w.interleaved(m, n, places[0]), w.interleaved(m, columns, places[1])
    row, scales = w.interleaved(1, max(columns, n), places[2]), w.interleaved(1, k, places[3])
    load(w, r, a)

    def reflect(x: Interleaved, j: Index, start: Index) -> None:
        """H of column j times the columns of x from `start` on."""
        scale = scales[0, j]

        def first(c: Index) -> None:
            row[0, c] = x[j, c]

        def more(i: Index) -> None:
            v = r[i, j]

            def one(c: Index) -> None:
                row[0, c] = w.sum_of(v, x[i, c], row[0, c])

            w.each(start, x.columns, one)

        def take(i: Index, v: ir.Value | None) -> None:
            def one(c: Index) -> None:
                part = -row[0, c] if v is None else -(v * row[0, c])
                x[i, c] = w.sum_of(scale, part, x[i, c])

            w.each(start, x.columns, one)

        w.each(start, x.columns, first)
        w.each(j + 1, m, more)
        take(j, None)
        w.each(j + 1, m, lambda i: take(i, r[i, j]))

    def step(j: Index) -> None:
        _make_reflection(w, r, scales, j, m)
        reflect(r, j, j + 1)

    def identity(i: Index) -> None:
        def one(c: Index) -> None:
            q[i, c] = w.constant(0.0)

        w.each(0, columns, one)

    def one(i: Index) -> None:
        q[i, i] = w.constant(1.0)

    w.each(0, k, step)
    w.each(0, m, identity)
    w.each(0, columns, one)
    w.each(0, k, lambda j: reflect(q, j, j), backwards=True)
    store(w, q, q_out)

    def triangle(i: Index) -> None:
        w.each(0, n, lambda j: w.write(_upper(w, r, i, j), r_out, i, j))

    w.each(0, columns, triangle)


def _upper(w: Lanes, r: Interleaved, i: Index, j: Index) -> ir.Value:
    return w.where(w.index(i) > w.index(j), 0.0, r[i, j])


def _make_reflection(w: Lanes, r: Interleaved, scales: Interleaved, j: Index, m: int) -> None:
    """Column j from the diagonal on becomes beta and v, and tau goes into `scales`."""
    largest, squares = w.variable(w.abs(r[j, j])), w.variable(0.0)

    def look(i: Index) -> None:
        size = w.abs(r[i, j])
        largest.set(w.where(size > largest.get(), size, largest.get()))

    w.each(j + 1, m, look)
    far = float(np.finfo(w.dtype).max) ** 0.25  # beyond which squares are in danger
    extreme = (largest.get() > far) & (largest.get() < np.inf)
    extreme = extreme | (largest.get() < 1.0 / far) & (largest.get() > 0.0)
    unit = w.where(extreme, largest.get(), 1.0)

    def square(i: Index) -> None:
        x = r[i, j] / unit
        squares.set(w.sum_of(x, x, squares.get()))

    w.each(j + 1, m, square)
    alpha, nothing = r[j, j], squares.get().equals(0.0)
    share = alpha / unit
    length = w.sqrt(w.sum_of(share, share, squares.get())) * unit
    beta = w.where(nothing, alpha, -w.f.intrinsic("copysign", length, alpha))
    divisor = w.where(nothing, 1.0, alpha - beta)
    scales[0, j] = w.where(nothing, 0.0, (beta - alpha) / w.where(nothing, 1.0, beta))
    r[j, j] = beta

    def divide(i: Index) -> None:
        r[i, j] = r[i, j] / divisor

    w.each(j + 1, m, divide)
