"""Banded systems in compiled code: nodes of bands and right-hand sides come in, the solution's goes out.

Gaussian elimination with row exchanges within the bands. A row that moves up brings `lower` numbers more to the right:
row i of the work (n, 2 lower + upper + 1) has the columns from i - lower to i + lower + upper.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wonderland.core.types import ArrayType


def lower_banded_system(builder: Any, bands: Any, b: Any, lower: int, upper: int) -> Any:
    """The nodes of x in a x = b; NaN for a matrix with a pivot of zero."""
    kind = np.promote_types(bands.dtype, b.dtype)
    if b.type.size == 0:
        return builder.convert(b, kind)
    *head, n, k = b.shape
    width = 2 * lower + upper + 1
    types = [ArrayType(b.shape, kind), ArrayType((*head, n, width), kind)]
    code = partial(_eliminate, n=n, k=k, lower=lower, upper=upper)
    cost = n * (10.0 + 2.0 * (lower + 1) * (width + k))
    operands = [builder.convert(bands, kind), builder.convert(b, kind)]
    return builder.procedures("banded elimination", code, operands, types, len(head), cost=cost)[0]


def _eliminate(code: Any, x: Any, work: Any, bands: Any, b: Any, n: int, k: int, lower: int, upper: int) -> None:
    zero, one, last = code.constant(0, x.dtype), code.constant(1, x.dtype), code.number(n)
    inside = lambda i: code.minimum(i, last)
    with code.loop(0, n) as i:
        with code.loop(0, 2 * lower + upper + 1) as c:
            work.store(zero, i, c)
        for c in range(lower + upper + 1):
            j = i + (c - lower)
            with code.when(code.bit_and(code.compare("ge", j, code.number(0)), code.compare("lt", j, last))):
                work.store(bands.load(upper + lower - c, j), i, c)
        with code.loop(0, k) as c:
            x.store(b.load(i, c), i, c)
    at = lambda i, j: (i, j - i + lower)
    regular = code.variable(one)

    with code.loop(0, n) as p:
        below, right = inside(p + (lower + 1)), inside(p + (lower + upper + 1))
        if lower:
            best, place = code.variable(code.abs(work.load(p, lower))), code.variable(p)
            with code.loop(p + 1, below) as r:
                size = code.abs(work.load(*at(r, p)))
                with code.when(code.compare("gt", size, best.get())):
                    best.set(size)
                    place.set(r)
            with code.when(code.compare("ne", place.get(), p)):
                other = place.get()
                with code.loop(p, right) as j:
                    _swap(work, at(p, j), at(other, j))
                with code.loop(0, k) as c:
                    _swap(x, (p, c), (other, c))
        pivot = work.load(p, lower)
        singular = code.compare("eq", pivot, zero)
        regular.set(code.select(singular, zero, regular.get()))
        if lower:
            pivot = code.select(singular, one, pivot)
            with code.loop(p + 1, below) as r:
                factor = code.div(work.load(*at(r, p)), pivot)
                with code.loop(p + 1, right) as j:
                    work.store(code.sub(work.load(*at(r, j)), code.mul(factor, work.load(*at(p, j)))), *at(r, j))
                with code.loop(0, k) as c:
                    x.store(code.sub(x.load(r, c), code.mul(factor, x.load(p, c))), r, c)

    failed = code.compare("eq", regular.get(), zero)
    with code.loop(0, n) as step:
        i = last - 1 - step
        right = inside(i + (lower + upper + 1))
        pivot = code.select(failed, code.constant(np.nan, x.dtype), work.load(i, lower))
        with code.loop(0, k) as c:
            total = code.variable(x.load(i, c))
            with code.loop(i + 1, right) as j:
                total.set(code.sub(total.get(), code.mul(work.load(*at(i, j)), x.load(j, c))))
            x.store(code.div(total.get(), pivot), i, c)


def _swap(array: Any, here: tuple, there: tuple) -> None:
    first, second = array.load(*here), array.load(*there)
    array.store(second, *here)
    array.store(first, *there)
