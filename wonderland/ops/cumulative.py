"""Cumulative operations along one axis: sums, products, maxima, and the recurrences that products differentiate to.

`axis` is non-negative; `reverse` runs from the last element to the first. The result has the operand's shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.primitive import Linear, Primitive
from wonderland.core.types import ArrayType, is_differentiable, shape_of, type_of
from wonderland.ops.elementwise import add, conjugate, invert, lt, masked, scale, where
from wonderland.ops.index import gather, scatter_slice
from wonderland.ops.index import slice as part
from wonderland.ops.series import convolve, plus
from wonderland.ops.shape import broadcast
from wonderland.ops.work import each

_SHORT = 8  # rows of fewer numbers than this are worked off number by number, in Python


def shifted(x: Any, axis: int, fill: Any, reverse: bool = False) -> Any:
    """Element k becomes element k - 1 (k + 1 in reverse), and the first (last) one `fill`."""
    shape = shape_of(x)
    extent = shape[axis]
    if extent == 0:
        return x
    source, target = slice(0, extent - 1, 1), slice(1, extent, 1)
    if reverse:
        source, target = target, source
    whole = tuple(slice(0, n, 1) for n in shape)
    filled = np.full(shape, fill, type_of(x).dtype)
    moved = part(x, index=(*whole[:axis], source, *whole[axis + 1 :]))
    return scatter_slice(filled, moved, index=(*whole[:axis], target, *whole[axis + 1 :]), mode="set")


def take_along(x: Any, index: Any, axis: int) -> Any:
    """`np.take_along_axis`: element k along the axis becomes element `index[k]`, row by row."""
    rank = len(shape_of(x))
    grids = [np.arange(n).reshape([n if i == j else 1 for j in range(rank)]) for i, n in enumerate(shape_of(x))]
    grids[axis] = index
    return gather(x, *grids, axes=tuple(range(rank)))


def _accumulate(ufunc: np.ufunc, x: Any, axis: int, reverse: bool) -> Any:
    if not reverse:
        return ufunc.accumulate(x, axis, dtype=x.dtype)
    return np.flip(ufunc.accumulate(np.flip(x, axis), axis, dtype=x.dtype), axis)


def _before(shape: tuple, axis: int, reverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """The pairs (element, element at or before it along the axis)."""
    extent = shape[axis]
    later, earlier = np.nonzero(np.triu(np.ones((extent, extent), bool)) if reverse else np.tri(extent, dtype=bool))
    numbers = np.moveaxis(np.arange(int(np.prod(shape))).reshape(shape), axis, 0)
    return numbers[later].ravel(), numbers[earlier].ravel()


def _pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    pair = _before(types[0].shape, params["axis"], params["reverse"])
    return [pair if is_differentiable(t.dtype) else None for t in types]


def _lower(step: Any, start: Any) -> Any:
    def lower(builder: Any, *nodes: Any, axis: int, reverse: bool) -> Any:
        dtype = np.result_type(*(n.dtype for n in nodes))
        first = start(dtype) if callable(start) else start
        return builder.cumulate(step, [builder.convert(n, dtype) for n in nodes], first, axis, reverse)

    return lower


def _lowest(dtype: np.dtype) -> Any:
    if dtype.kind in "fc":
        return -np.inf if dtype.kind == "f" else complex(-np.inf, -np.inf)
    return False if dtype.kind == "b" else np.iinfo(dtype).min


def _nothing(dtype: np.dtype) -> Any:
    return {"f": -0.0, "c": complex(-0.0, -0.0)}.get(dtype.kind, 0)  # -0.0 + x is x


cumsum: Primitive = Primitive(
    "cumsum",
    lambda x, axis, reverse: _accumulate(np.add, x, axis, reverse),
    lambda x, axis, reverse: ArrayType(x.shape, x.dtype),
    linear=(0,),
    transpose=lambda ct, x, axis, reverse: (cumsum(ct, axis=axis, reverse=not reverse),),
    batch=lambda size, args, batched, axis, reverse: cumsum(args[0], axis=axis + 1, reverse=reverse),
    pattern=_pattern,
    lower=_lower(lambda e, y, x: e.add(y, x), _nothing),
    cost=each(additions=1),
)


def _cumprod_jvp(primals: tuple, tangents: tuple, axis: int, reverse: bool) -> tuple[Any, Any]:
    # p_k = x_k p_{k-1} gives p'_k = x_k p'_{k-1} + x'_k p_{k-1}: no division, so zeros among the x are nothing special.
    (x,), (t,) = primals, tangents
    out = cumprod(x, axis=axis, reverse=reverse)
    force = scale(t, shifted(out, axis, 1, reverse), out)
    return out, recurrence(x, force, axis=axis, reverse=reverse)


cumprod: Primitive = Primitive(
    "cumprod",
    lambda x, axis, reverse: _accumulate(np.multiply, x, axis, reverse),
    lambda x, axis, reverse: ArrayType(x.shape, x.dtype),
    jvp=_cumprod_jvp,
    batch=lambda size, args, batched, axis, reverse: cumprod(args[0], axis=axis + 1, reverse=reverse),
    pattern=_pattern,
    lower=_lower(lambda e, y, x: e.mul(y, x), 1),
    cost=each(multiplications=1),
)


def _recurrence(a: Any, b: Any, axis: int, reverse: bool) -> Any:
    a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    out = np.empty(b.shape, np.result_type(a, b))
    order = range(len(b) - 1, -1, -1) if reverse else range(len(b))
    if len(b) and b[:1].size < _SHORT:
        for place in np.ndindex(b.shape[1:]):
            column = (slice(None), *place)
            factors, forces, numbers, y = a[column].tolist(), b[column].tolist(), [0.0] * len(b), 0.0
            for k in order:
                y = factors[k] * y + forces[k] if y else forces[k]
                numbers[k] = y
            out[column] = numbers
    else:
        y = np.zeros(b.shape[1:], out.dtype)
        with np.errstate(invalid="ignore"):
            for k in order:
                step = np.multiply(a[k], y)
                np.copyto(step, 0, where=y == 0)  # whatever the factor is: as `masked_mul`
                y = np.add(step, b[k], out=out[k])
    return np.ascontiguousarray(np.moveaxis(out, 0, axis))


def _recurrence_infer(a: ArrayType, b: ArrayType, axis: int, reverse: bool) -> ArrayType:
    if a.shape != b.shape:
        raise ValueError(f"a recurrence needs as many factors as forces, got shapes {a.shape} and {b.shape}")
    return ArrayType(b.shape, np.result_type(a.dtype, b.dtype))


def _recurrence_jvp(primals: tuple, tangents: tuple, axis: int, reverse: bool) -> tuple[Any, Any]:
    (a, b), (a_dot, force) = primals, tangents
    out = recurrence(a, b, axis=axis, reverse=reverse)
    if a_dot is not None:
        term = scale(a_dot, shifted(out, axis, 0, reverse), out)
        force = term if force is None else add(term, force)
    return out, recurrence(a, force, axis=axis, reverse=reverse)


def _recurrence_taylor(out: Any, a: Any, b: Any, axis: int, reverse: bool) -> Any:
    def coefficient(k: int) -> Any:
        force = plus(b[k], convolve(a, out, k, lambda x, y: masked(x, shifted(y, axis, 0, reverse)), first=1))
        return None if force is None else recurrence(a[0], force, axis=axis, reverse=reverse)

    return coefficient


def _recurrence_transpose(ct: Any, a: Any, b: Linear, axis: int, reverse: bool) -> tuple:
    # b_k adds to y_k, which goes on to y_{k+1} by the factor a_{k+1}.
    factors = shifted(conjugate(a), axis, 0, not reverse)
    return None, recurrence(factors, ct, axis=axis, reverse=not reverse)


def _recurrence_batch(size: int, args: tuple, batched: tuple, axis: int, reverse: bool) -> Any:
    a, b = (x if flag else broadcast(x, shape=(size, *shape_of(x))) for x, flag in zip(args, batched, strict=True))
    return recurrence(a, b, axis=axis + 1, reverse=reverse)


def _recurrence_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    of_a, of_b = _pattern(types, params)
    if of_a is None:
        return [of_a, of_b]
    extent = types[0].shape[params["axis"]]  # the first factor has nothing to multiply
    places = np.arange(extent).reshape([-1 if i == params["axis"] else 1 for i in range(types[0].ndim)])
    first = np.broadcast_to(places == (extent - 1 if params["reverse"] else 0), types[0].shape).ravel()
    kept = ~first[of_a[1]]
    return [(of_a[0][kept], of_a[1][kept]), of_b]


def _recurrence_step(e: Any, y: Any, a: Any, b: Any) -> Any:
    return e.select(e.compare("eq", y, e.constant(0, y)), b, e.add(e.mul(a, y), b))


# y_k = a_k y_{k-1} + b_k, from y_{-1} = 0. All derivatives of products of many factors are of this form.
recurrence: Primitive = Primitive(
    "recurrence",
    _recurrence,
    _recurrence_infer,
    jvp=_recurrence_jvp,
    linear=(1,),
    transpose=_recurrence_transpose,
    taylor=_recurrence_taylor,
    batch=_recurrence_batch,
    pattern=_recurrence_pattern,
    lower=_lower(_recurrence_step, 0),
    cost=each(multiplications=1, additions=1),
)


def _cummax_jvp(primals: tuple, tangents: tuple, axis: int, reverse: bool) -> tuple[Any, Any]:
    # The tangent of the element that is the maximum so far; of equal ones, the latest.
    (x,), (t,) = primals, tangents
    out = cummax(x, axis=axis, reverse=reverse)
    extent = shape_of(x)[axis]
    places = np.arange(extent).reshape([extent if i == axis else 1 for i in range(len(shape_of(x)))])
    if reverse:
        places = extent - 1 - places
    # Not below the maximum: equal to it, or one of them isn't a number.
    latest = cummax(where(invert(lt(x, out)), places, 0), axis=axis, reverse=reverse)
    return out, take_along(t, _flipped(latest, extent) if reverse else latest, axis)


def _flipped(places: Any, extent: int) -> Any:
    return add(invert(places), extent)  # extent - 1 - places


cummax: Primitive = Primitive(
    "cummax",
    lambda x, axis, reverse: _accumulate(np.maximum, x, axis, reverse),
    lambda x, axis, reverse: ArrayType(x.shape, x.dtype),
    jvp=_cummax_jvp,
    batch=lambda size, args, batched, axis, reverse: cummax(args[0], axis=axis + 1, reverse=reverse),
    pattern=_pattern,
    lower=_lower(lambda e, y, x: e.maximum(y, x), _lowest),
    cost=each(calls=1),
    piecewise_linear=True,
)
