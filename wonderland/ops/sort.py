"""Order along one axis: `sort`, the permutation that sorts, and places in sorted arrays. `axis` is non-negative.

The order is NumPy's: NaN comes last, complex numbers are compared by their real parts first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, shape_of
from wonderland.ops.cumulative import take_along
from wonderland.ops.shape import broadcast


def _along_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    """Each element may come from any place of its row."""
    (x,), axis = types, params["axis"]
    extent = x.shape[axis]
    numbers = np.moveaxis(np.arange(x.size).reshape(x.shape), axis, 0)
    outs, ins = np.indices((extent, extent)).reshape(2, -1)
    return [(numbers[outs].ravel(), numbers[ins].ravel())]


argsort = Primitive(
    "argsort",
    lambda x, axis: np.argsort(x, axis, kind="stable"),
    lambda x, axis: ArrayType(x.shape, np.intp),
    jvp=lambda primals, tangents, axis: (argsort(*primals, axis=axis), None),
    batch=lambda size, args, batched, axis: argsort(args[0], axis=axis + 1),
    pattern=lambda types, params: [None],
)


def _sort_jvp(primals: tuple, tangents: tuple, axis: int) -> tuple[Any, Any]:
    # Tangents go where their numbers go; equal numbers keep their order.
    (x,), (t,) = primals, tangents
    order = argsort(x, axis=axis)
    return take_along(x, order, axis), take_along(t, order, axis)


sort = Primitive(
    "sort",
    lambda x, axis: np.sort(x, axis),
    lambda x, axis: ArrayType(x.shape, x.dtype),
    jvp=_sort_jvp,
    batch=lambda size, args, batched, axis: sort(args[0], axis=axis + 1),
    pattern=_along_pattern,
    zero_preserving=True,
    monotone=True,
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


# Where the values v belong in the sorted array a. The first `rows` axes of both number arrays that are searched each.
searchsorted = Primitive(
    "searchsorted",
    _searchsorted,
    lambda a, v, side, rows: ArrayType(v.shape, np.intp),
    jvp=lambda primals, tangents, side, rows: (searchsorted(*primals, side=side, rows=rows), None),
    batch=_searchsorted_batch,
    pattern=lambda types, params: [None, None],
)
