"""Elimination with row exchanges for small matrices: nodes of stacks (..., n, n) come in, factors and solutions go out.

The code is that of one matrix, written with `Lanes`, so that several are done at once. A pivot is the largest number of
its column; where it is in each lane differs, so two rows change their places in some lanes only.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from wonderland.compile import ir, lapack
from wonderland.compile.lanes import (
    SMALL,
    Index,
    Interleaved,
    Lanes,
    bytes_for,
    check,
    cost_of,
    load,
    store,
    width_for,
    written_out,
)
from wonderland.compile.nodes import Node, Number
from wonderland.compile.procedures import Code, Stacked
from wonderland.core.types import ArrayType

I64 = np.dtype(np.int64)


def eliminate(w: Lanes, a: Interleaved, n: int, order: Interleaved | None = None) -> tuple[ir.Variable, ir.Variable]:
    """Make the first n columns of a into L and U, and the others into L^-1 times what they are; rows change places.

    Returns the sign of the permutation, and a number that is zero if a pivot is. `order` is permuted as the rows are.
    """
    f = w.f
    sign, regular = w.variable(1.0), w.variable(1.0)

    def exchange(k: Index, place: ir.Value) -> None:
        def rows(here: ir.Value | None, r: Index) -> None:
            a.swap(here, r, k, k if order is None else 0)  # what is left of the diagonal is L
            if order is not None:
                order.swap(here, r, k)

        def row(r: Index) -> None:
            here = place.equals(w.index(r))
            w.where_any(here, lambda: rows(here, r))

        if w.width == 1 and not w.written_out:
            rows(None, w.indices(place)[0])
        else:
            w.each(k + 1, n, row)
        sign.set(f.select(place.equals(w.index(k)), sign.get(), -sign.get()))

    def step(k: Index) -> None:
        best, place = w.variable(w.abs(a[k, k])), w.variable(w.index(k))

        def look(r: Index) -> None:
            size = w.abs(a[r, k])
            larger = size > best.get()
            place.set(f.select(larger, w.index(r), place.get()))
            best.set(f.select(larger, size, best.get()))

        w.each(k + 1, n, look)
        exchange(k, place.get())
        pivot = a[k, k]
        zero = pivot.equals(0.0)
        regular.set(w.where(zero, 0.0, regular.get()))
        divisor = w.where(zero, 1.0, pivot)  # then the column is zero from here on

        def below(r: Index) -> None:
            factor = a[r, k] / divisor
            a[r, k] = factor
            add_row(w, a, r, k, -factor, k + 1, a.columns)

        w.each(k + 1, n, below)

    w.each(0, n, step)
    return sign, regular


def add_row(w: Lanes, a: Interleaved, r: Index, k: Index, factor: ir.Value, start: Index, stop: Index) -> None:
    """Add a multiple of row k to row r, from one column to another."""

    def column(j: Index) -> None:
        a[r, j] = w.sum_of(factor, a[k, j], a[r, j])

    w.each(start, stop, column)


# Systems --------------------------------------------------------------------------------------------------------------


def lower_system(builder: Any, a: Node, b: Node) -> Node:
    """The nodes of x in a x = b."""
    check(b.dtype)
    if b.type.size == 0:
        return b
    *lead, n, k = b.shape
    if n > SMALL or k > SMALL:
        return lapack.lower_system(builder, a, b)
    width = width_for(math.prod(lead), b.dtype)
    scratch = 0 if written_out(n, k) else bytes_for(n, n + k, width, b.dtype)
    return builder.procedure(
        "solving", partial(_solve, n=n, k=k), [a, b], ArrayType(b.shape, b.dtype), len(lead),
        cost=cost_of(n, n + k, width), scratch=scratch, failure=lapack.SINGULAR, lanes=width,
    )  # fmt: skip


def _solve(code: Code, out: Stacked, a: Stacked, b: Stacked, n: int, k: int, scratch: ir.Value | None = None) -> None:
    w = Lanes(code, a.dtype, written_out(n, k))
    whole = w.interleaved(n, n + k, scratch)
    load(w, whole, a)
    load(w, whole, b, n)
    _, regular = eliminate(w, whole, n)
    w.fail(regular.get().equals(0.0))

    def step(i: Index) -> None:
        pivot = whole[i, i]

        def divide(c: Index) -> None:
            whole[i, c] = whole[i, c] / pivot

        w.each(n, n + k, divide)
        w.each(0, i, lambda r: add_row(w, whole, r, i, -whole[r, i], n, n + k))

    w.each(0, n, step, backwards=True)
    store(w, whole, out, n)


# Factors --------------------------------------------------------------------------------------------------------------


def lower_factors(builder: Any, a: Node) -> tuple[Node, Node]:
    """L and U in one array, and the order of the rows."""
    check(a.dtype)
    *lead, n, _ = a.shape
    types = [ArrayType(a.shape, a.dtype), ArrayType((*lead, n), I64)]
    if a.type.size == 0:
        return Number(types[0], 0), Number(types[1], 0)
    if n > SMALL:
        return lapack.lower_factors(builder, a)
    width = width_for(math.prod(lead), a.dtype)
    scratch = 0 if written_out(n) else bytes_for(n, n, width, a.dtype) + bytes_for(n, 1, width, np.dtype(np.int32))
    return builder.procedures(
        "elimination", partial(_factors, n=n), [a], types, len(lead),
        cost=cost_of(n, n, width), scratch=scratch, lanes=width,
    )  # fmt: skip


def _factors(code: Code, out: Stacked, places: Stacked, a: Stacked, n: int, scratch: ir.Value | None = None) -> None:
    w = Lanes(code, a.dtype, written_out(n))
    whole = w.interleaved(n, n, scratch)
    if scratch is None:
        at = w.f.stack(ir.array(w.index_type, n), align=64)
    else:
        at = code.shifted(scratch, bytes_for(n, n, w.width, a.dtype))
    order = Interleaved(w, at, 1, w.index_type)
    load(w, whole, a)

    def number(i: Index) -> None:
        order[i, 0] = w.index(i)

    w.each(0, n, number)
    eliminate(w, whole, n, order)
    store(w, whole, out)

    def place(i: Index) -> None:
        indices = w.indices(order[i, 0])
        for row, index in zip(places.rows, indices, strict=True):
            row.store(index, i)

    w.each(0, n, place)


def lower_from_factors(builder: Any, lu: Node, places: Node, b: Node, adjoint: bool) -> Node:
    """The nodes of x in a x = b, or a' x = b, from the factors of a."""
    check(b.dtype)
    if b.type.size == 0:
        return b
    *lead, n, k = b.shape
    if n > SMALL or k > SMALL:
        return lapack.lower_from_factors(builder, lu, places, b, adjoint)
    width = width_for(math.prod(lead), b.dtype)
    scratch = 0 if written_out(n, k) else bytes_for(n, k, width, b.dtype)
    return builder.procedure(
        "substitution", partial(_from_factors, n=n, k=k, adjoint=adjoint), [lu, places, b],
        ArrayType(b.shape, b.dtype), len(lead), cost=cost_of(n, k, width), scratch=scratch, lanes=width,
    )  # fmt: skip


def _from_factors(
    code: Code, out: Stacked, lu: Stacked, places: Stacked, b: Stacked, n: int, k: int, adjoint: bool,
    scratch: ir.Value | None = None,
) -> None:  # fmt: skip
    w = Lanes(code, lu.dtype, written_out(n, k))
    x = w.interleaved(n, k, scratch)
    regular = w.variable(1.0)

    def rows(to: Any) -> None:
        def row(i: Index) -> None:
            place = [lapack.inside(code, array.load(i), n) for array in places.rows]
            w.each(0, k, lambda c: to(i, place, c))

        w.each(0, n, row)

    def take(i: Index, place: Any, c: Index) -> None:
        x[i, c] = w.read(b, i if adjoint else place, c)

    def give(i: Index, place: Any, c: Index) -> None:
        w.write(w.where(regular.get().equals(0.0), np.nan, x[i, c]), out, place if adjoint else i, c)

    def substitute(upper: bool, unit: bool) -> None:
        """The triangle (transposed, if adjoint) is upper: the last number first."""

        def step(i: Index) -> None:
            if not unit:
                pivot = w.read(lu, i, i)
                regular.set(w.where(pivot.equals(0.0), 0.0, regular.get()))

                def divide(c: Index) -> None:
                    x[i, c] = x[i, c] / pivot

                w.each(0, k, divide)

            def other(r: Index) -> None:
                factor = w.read(lu, i, r) if adjoint else w.read(lu, r, i)
                add_row(w, x, r, i, -factor, 0, k)

            w.each(0, i, other) if upper else w.each(i + 1, n, other)

        w.each(0, n, step, backwards=upper)

    rows(take)
    # L U x = b[places], or U' L' x[places] = b
    substitute(upper=False, unit=not adjoint)
    substitute(upper=True, unit=adjoint)
    rows(give)


# Determinants ---------------------------------------------------------------------------------------------------------


def lower_pivots(builder: Any, a: Node) -> tuple[Node, Node]:
    """The diagonal of U, and the sign of the permutation: the determinant is their product."""
    check(a.dtype)
    *lead, n, _ = a.shape
    types = [ArrayType((*lead, n), a.dtype), ArrayType(tuple(lead), a.dtype)]
    if a.type.size == 0:
        return Number(types[0], 0), Number(types[1], 1)
    if n > SMALL:
        return lapack.lower_pivots(builder, a)
    width = width_for(math.prod(lead), a.dtype)
    scratch = 0 if written_out(n) else bytes_for(n, n, width, a.dtype)
    return builder.procedures(
        "elimination", partial(_pivots, n=n), [a], types, len(lead),
        cost=cost_of(n, n, width), scratch=scratch, lanes=width,
    )  # fmt: skip


def _pivots(code: Code, out: Stacked, sign: Stacked, a: Stacked, n: int, scratch: ir.Value | None = None) -> None:
    w = Lanes(code, a.dtype, written_out(n))
    whole = w.interleaved(n, n, scratch)
    load(w, whole, a)
    found, _ = eliminate(w, whole, n)
    w.each(0, n, lambda i: w.write(whole[i, i], out, i))
    w.write(found.get(), sign)
