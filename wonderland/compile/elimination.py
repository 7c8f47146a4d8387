"""Elimination with row exchanges for small matrices: nodes of stacks (..., n, n) come in, factors and solutions go out.

The code is that of one matrix, written with `Lanes`, so that several are done at once. A pivot is the largest number of
its column; where it is in each lane differs, so two rows change their places in some lanes only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
FEW = 4  # right-hand sides whose sums are kept in registers
PANEL = 4  # columns that are eliminated before the others are touched


def eliminate(w: Lanes, a: Interleaved, n: int, order: Interleaved | None = None) -> tuple[ir.Variable, ir.Variable]:
    """Make the first n columns of a into L and U, and the others into L^-1 times what they are; rows change places.

    Returns the sign of the permutation, and a number that is zero if a pivot is. `order` is permuted as the rows are.
    """
    f = w.f
    sign, regular = w.variable(1.0), w.variable(1.0)

    def exchange(k: Index, place: ir.Value, first: Index) -> None:
        def rows(here: ir.Value | None, r: Index) -> None:
            a.swap(here, r, k, first if order is None else 0)  # what is left of the first column is L, and not needed
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

    def step(k: Index, first: Index, stop: Index) -> None:
        """Eliminate below the diagonal of column k, in the columns from `first` to below `stop`."""
        best, place = w.variable(w.abs(a[k, k])), w.variable(w.index(k))

        def look(r: Index) -> None:
            size = w.abs(a[r, k])
            larger = size > best.get()
            place.set(f.select(larger, w.index(r), place.get()))
            best.set(f.select(larger, size, best.get()))

        w.each(k + 1, n, look)
        exchange(k, place.get(), first)
        pivot = a[k, k]
        zero = pivot.equals(0.0)
        regular.set(w.where(zero, 0.0, regular.get()))
        divisor = w.where(zero, 1.0, pivot)  # then the column is zero from here on

        def below(r: Index) -> None:
            factor = a[r, k] / divisor
            a[r, k] = factor
            add_rows(w, a, r, [k], [-factor], k + 1, stop)

        w.each(k + 1, n, below)

    def panel(p: Index) -> None:
        """A few columns at once: the rest of the matrix, which a fast cache doesn't hold, is gone through once."""
        first, rest = p * PANEL, p * PANEL + PANEL
        pivots = [first + i for i in range(PANEL)]

        def update(r: Index, count: int) -> None:
            add_rows(w, a, r, pivots[:count], [-a[r, k] for k in pivots[:count]], rest, a.columns)

        for k in pivots:
            step(k, first, rest)
        for i in range(1, PANEL):
            update(pivots[i], i)
        w.each(rest, n, lambda r: update(r, PANEL))

    panels = 0 if w.written_out else n // PANEL
    w.each(0, panels, panel)
    w.each(panels * PANEL, n, lambda k: step(k, k, a.columns))
    return sign, regular


def add_rows(
    w: Lanes, a: Interleaved, r: Index, rows: Sequence[Index], factors: Sequence[ir.Value], start: Index, stop: Index
) -> None:  # fmt: skip
    """Add multiples of rows to row r, from one column to another."""

    def column(j: Index) -> None:
        total = a[r, j]
        for k, factor in zip(rows, factors, strict=True):
            total = w.sum_of(factor, a[k, j], total)
        a[r, j] = total

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
        w.each(0, i, lambda r: add_rows(w, whole, r, [i], [-whole[r, i]], n, n + k))

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
    by_rows = not adjoint and k <= FEW and w.has_blocks(lu)

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

        def divide_by(i: Index) -> None:
            pivot = w.read(lu, i, i)
            regular.set(w.where(pivot.equals(0.0), 0.0, regular.get()))

            def divide(c: Index) -> None:
                x[i, c] = x[i, c] / pivot

            w.each(0, k, divide)

        def step(i: Index) -> None:
            if not unit:
                divide_by(i)

            def other(r: Index) -> None:
                factor = w.read(lu, i, r) if adjoint else w.read(lu, r, i)
                add_rows(w, x, r, [i], [-factor], 0, k)

            w.each(0, i, other) if upper else w.each(i + 1, n, other)

        def step_by_rows(i: Index) -> None:
            add_products(w, x, i, lu, k, (i + 1, n) if upper else (0, i))
            if not unit:
                divide_by(i)

        w.each(0, n, step_by_rows if by_rows else step, backwards=upper)

    rows(take)
    # L U x = b[places], or U' L' x[places] = b
    substitute(upper=False, unit=not adjoint)
    substitute(upper=True, unit=adjoint)
    rows(give)


def add_products(w: Lanes, x: Interleaved, i: Index, lu: Stacked, k: int, columns: tuple[Index, Index]) -> None:
    """Subtract row i of lu, from one column to another, times x from row i of x, which has k columns: few.

    A block of each row is read at once. Two sums for each column, as one would have to wait for itself.
    """
    code, (start, stop) = w.code, (w.code.number(c) for c in columns)
    sums = [(w.variable(x[i, c]), w.variable(0.0)) for c in range(k)]

    def add(r: Index, factor: ir.Value, which: int) -> None:
        for c, both in enumerate(sums):
            both[which].set(w.sum_of(-factor, x[r, c], both[which].get()))

    def block(b: Index) -> None:
        for t, factor in enumerate(w.read_block(lu, i, b * w.width)):
            add(b * w.width + t, factor, t % 2)

    def one(r: Index) -> None:
        add(r, w.read(lu, i, r), 0)

    first = code.quotient(start + (w.width - 1), code.number(w.width))
    last = code.quotient(stop, code.number(w.width))
    w.each(start, code.minimum(first * w.width, stop), one)
    w.each(first, last, block)
    w.each(code.maximum(last * w.width, first * w.width), stop, one)
    for c, (one_sum, other) in enumerate(sums):
        x[i, c] = one_sum.get() + other.get()


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
