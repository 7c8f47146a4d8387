"""Order along one axis: `sort`, the permutation that sorts, and places in sorted arrays. `axis` is non-negative.

The order is NumPy's: NaN comes last, complex numbers are compared by their real parts first.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, shape_of
from wonderland.ops.cumulative import take_along
from wonderland.ops.pattern import blocks
from wonderland.ops.shape import broadcast
from wonderland.ops.work import Work, count, sorting


def _along_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    """Each element may come from any place of its row."""
    (x,), axis = types, params["axis"]
    numbers = np.moveaxis(np.arange(x.size).reshape(x.shape), axis, -1)
    rows = numbers.reshape(x.size // max(x.shape[axis], 1), x.shape[axis])
    return [blocks(rows, rows)]


argsort: Primitive = Primitive(
    "argsort",
    lambda x, axis: np.argsort(x, axis, kind="stable"),
    lambda x, axis: ArrayType(x.shape, np.intp),
    jvp=lambda primals, tangents, axis: (argsort(*primals, axis=axis), None),
    batch=lambda size, args, batched, axis: argsort(args[0], axis=axis + 1),
    pattern=lambda types, params: [None],
    lower=lambda builder, x, axis: builder.ordered(x, axis, places=True),
    cost=sorting,
)


def _sort_jvp(primals: tuple, tangents: tuple, axis: int) -> tuple[Any, Any]:
    # Tangents go where their numbers go; equal numbers keep their order.
    (x,), (t,) = primals, tangents
    order = argsort(x, axis=axis)
    return take_along(x, order, axis), take_along(t, order, axis)


sort: Primitive = Primitive(
    "sort",
    lambda x, axis: np.sort(x, axis),
    lambda x, axis: ArrayType(x.shape, x.dtype),
    jvp=_sort_jvp,
    batch=lambda size, args, batched, axis: sort(args[0], axis=axis + 1),
    pattern=_along_pattern,
    lower=lambda builder, x, axis: builder.ordered(x, axis, places=False),
    cost=sorting,
    piecewise_linear=True,
)


def _searchsorted(a: Any, v: Any, side: Any, rows: int) -> Any:
    if not rows:
        return np.searchsorted(a, v, side)
    out = np.empty(v.shape, np.intp)
    for row in np.ndindex(a.shape[:rows]):
        out[row] = np.searchsorted(a[row], v[row], side)
    return out


def _searchsorted_batch(size: int, args: tuple, batched: tuple, side: str, rows: int) -> Any:
    a, v = args
    if not rows and not batched[0]:
        return searchsorted(a, v, side=side, rows=0)
    a, v = (x if flag else broadcast(x, shape=(size, *shape_of(x))) for x, flag in zip(args, batched, strict=True))
    return searchsorted(a, v, side=side, rows=rows + 1)


def _is_less(code: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind == "c":
        return _is_less_complex(code, x, y)
    less = code.compare("lt", x, y)
    if x.dtype.kind != "f":
        return less
    number_before_nan = code.bit_and(code.compare("eq", x, x), code.compare("ne", y, y))
    return code.bit_or(less, number_before_nan)


def _is_less_complex(code: Any, x: Any, y: Any) -> Any:
    """NumPy's order of complex numbers: those without NaN, those with one in the imaginary part, those in the real."""
    known, missing = code.compare("eq", code.imag(x), code.imag(x)), code.compare("ne", code.imag(y), code.imag(y))
    left, right = code.real(x), code.real(y)
    level = code.bit_or(
        code.compare("eq", left, right), code.bit_and(code.compare("ne", left, left), code.compare("ne", right, right))
    )
    other = code.select(level, _is_less(code, code.imag(x), code.imag(y)), code.compare("ne", right, right))
    other = code.select(code.compare("gt", left, right), code.bit_and(missing, known), other)
    return code.select(code.compare("lt", left, right), code.bit_or(known, missing), other)


def _search(code: Any, out: Any, a: Any, v: Any, right: bool) -> None:
    # Between `low` and `low + count` is the place; each step halves the count.
    value = v.load()
    low, count = code.variable(code.number(0)), code.variable(a.extent())
    with code.repeat(lambda: code.compare("gt", count.get(), code.number(0))):
        half = code.shift_right(count.get(), code.number(1))
        middle = code.add(low.get(), half)
        element = a.load(middle)
        before = code.invert(_is_less(code, value, element)) if right else _is_less(code, element, value)
        rest = code.sub(code.sub(count.get(), half), code.number(1))
        low.set(code.select(before, code.add(middle, code.number(1)), low.get()))
        count.set(code.select(before, rest, half))
    out.store(low.get())


def _searchsorted_lower(builder: Any, a: Any, v: Any, side: Any, rows: int) -> Any:
    if a.shape[-1] == 0:
        return builder.broadcast(builder.constant(np.zeros((), np.intp)), v.shape)
    dtype = np.promote_types(a.dtype, v.dtype)
    a, v = builder.convert(a, dtype), builder.convert(v, dtype)
    lead = (1,) * (len(v.shape) - rows)  # each value is a row; those of one array share it
    a = builder.reshape(a, (*a.shape[:rows], *lead, a.shape[-1]))
    search = partial(_search, right=str(side) == "right")
    cost = 3.0 * a.shape[-1].bit_length()
    return builder.procedure("search", search, [a, v], ArrayType(v.shape, np.intp), len(v.shape), cost=cost)


def _searchsorted_cost(types: tuple, outs: tuple, params: dict) -> Work:
    return Work(calls=count(outs[0]) * types[0].shape[-1].bit_length())


# Where the values v belong in the sorted array a. The first `rows` axes of both number arrays that are searched each.
searchsorted: Primitive = Primitive(
    "searchsorted",
    _searchsorted,
    lambda a, v, side, rows: ArrayType(v.shape, np.intp),
    jvp=lambda primals, tangents, side, rows: (searchsorted(*primals, side=side, rows=rows), None),
    batch=_searchsorted_batch,
    pattern=lambda types, params: [None, None],
    lower=_searchsorted_lower,
    cost=_searchsorted_cost,
)
