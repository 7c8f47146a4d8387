"""NumPy's functions that reshape, reorder and join traced arrays. What NumPy returns as a view is a view here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.core.level import bind_update
from wonderland.core.tracer import FUNCTIONS, METHODS, PROPERTIES, Tracer
from wonderland.core.types import ArrayType, promote, shape_of, type_of
from wonderland.numpy.dispatch import implements, make_view, namespace, view_function
from wonderland.ops import shape as ops
from wonderland.ops.index import scatter_slice


def normalize_axis(axis: Any, rank: int) -> int:
    """A non-negative axis, or NumPy's error."""
    if not -rank <= axis < rank:
        raise np.exceptions.AxisError(axis, rank)
    return int(axis) % rank


def normalize_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """A sorted tuple of non-negative axes; None means all of them."""
    if axis is None:
        return tuple(range(rank))
    axes = [normalize_axis(a, rank) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ValueError("duplicate value in 'axis'")
    return tuple(sorted(axes))


def resolve_shape(shape: Any, size: int) -> tuple[int, ...]:
    """The shape argument of reshape, with -1 filled in."""
    shape = tuple(int(n) for n in shape) if isinstance(shape, (tuple, list)) else (int(shape),)
    if shape.count(-1) == 1:
        rest = math.prod(n for n in shape if n != -1)
        if rest == 0 or size % rest:
            raise ValueError(f"cannot reshape array of size {size} into shape {shape}")
        shape = tuple(size // rest if n == -1 else n for n in shape)
    return shape


def reshape_value(x: Any, shape: tuple) -> Any:
    return x if shape_of(x) == shape else ops.reshape(x, shape=shape)


def transpose_value(x: Any, order: tuple[int, ...]) -> Any:
    return x if order == tuple(range(len(order))) else ops.transpose(x, permutation=order)


def _reshaped(x: Tracer, shape: tuple) -> Tracer:
    old = x.shape
    return make_view(x, lambda v: reshape_value(v, shape), lambda box, new: reshape_value(new, old))


def _transposed(x: Tracer, order: tuple[int, ...]) -> Tracer:
    back = ops.inverse_permutation(order)
    return make_view(x, lambda v: transpose_value(v, order), lambda box, new: transpose_value(new, back))


@view_function(np.reshape)
def reshape(a: Tracer, shape: Any, order: str = "C") -> Tracer:
    if order != "C":
        raise TypeError(f"reshape of traced arrays has order 'C' only, not {order!r}")
    return _reshaped(a, resolve_shape(shape, a.size))


def _reshape_method(self: Tracer, *shape: Any, order: str = "C") -> Tracer:
    return reshape(self, shape[0] if len(shape) == 1 else shape, order)


METHODS["reshape"] = _reshape_method


@view_function(np.ravel, "ravel")
def ravel(a: Tracer, order: str = "C") -> Tracer:
    return reshape(a, (-1,) if a.size else (0,), order)


METHODS["flatten"] = lambda self, order="C": Tracer(ravel(self, order)._get())


@view_function(np.transpose)
def transpose(a: Tracer, axes: Any = None) -> Tracer:
    rank = a.ndim
    order = tuple(reversed(range(rank))) if axes is None else tuple(normalize_axis(i, rank) for i in axes)
    if len(order) != rank or len(set(order)) != rank:
        raise ValueError(f"axes {axes} don't match array of shape {a.shape}")
    return _transposed(a, order)


def _transpose_method(self: Tracer, *axes: Any) -> Tracer:
    nested = len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list)))
    return transpose(self, (axes[0] if nested else axes) or None)


METHODS["transpose"] = _transpose_method
PROPERTIES["T"] = lambda self: transpose(self)
PROPERTIES["mT"] = lambda self: swapaxes(self, -1, -2)
PROPERTIES["itemsize"] = lambda self: self.dtype.itemsize
PROPERTIES["nbytes"] = lambda self: self.size * self.dtype.itemsize
PROPERTIES["flat"] = lambda self: iter(ravel(self))


@view_function(np.swapaxes, "swapaxes")
def swapaxes(a: Tracer, axis1: int, axis2: int) -> Tracer:
    order = list(range(a.ndim))
    i, j = normalize_axis(axis1, a.ndim), normalize_axis(axis2, a.ndim)
    order[i], order[j] = order[j], order[i]
    return _transposed(a, tuple(order))


@view_function(np.moveaxis)
def moveaxis(a: Tracer, source: Any, destination: Any) -> Tracer:
    rank = a.ndim
    sources = [normalize_axis(i, rank) for i in (source if isinstance(source, (tuple, list)) else (source,))]
    targets = [
        normalize_axis(i, rank) for i in (destination if isinstance(destination, (tuple, list)) else (destination,))
    ]
    order = [i for i in range(rank) if i not in sources]
    for target, source_axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, source_axis)
    return _transposed(a, tuple(order))


@view_function(np.expand_dims)
def expand_dims(a: Tracer, axis: Any) -> Tracer:
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = a.ndim + len(axes)
    new = {normalize_axis(i, rank) for i in axes}
    old = iter(a.shape)
    return _reshaped(a, tuple(1 if i in new else next(old) for i in range(rank)))


@view_function(np.squeeze, "squeeze")
def squeeze(a: Tracer, axis: Any = None) -> Tracer:
    axes = normalize_axes(axis, a.ndim) if axis is not None else [i for i, n in enumerate(a.shape) if n == 1]
    for i in axes:
        if a.shape[i] != 1:
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return _reshaped(a, tuple(n for i, n in enumerate(a.shape) if i not in axes))


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return array if shape_of(array) == shape else ops.broadcast(array, shape=shape)


@view_function(np.atleast_1d)
def atleast_1d(a: Tracer) -> Tracer:
    return _reshaped(a, a.shape or (1,))


@implements(np.concatenate)
def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Any:
    arrays = [a if hasattr(a, "shape") else np.asarray(a) for a in arrays]
    if not arrays:
        raise ValueError("need at least one array to concatenate")
    if axis is None:
        arrays, axis = [reshape_value(a, (type_of(a).size,)) for a in arrays], 0
    first = shape_of(arrays[0])
    if not first:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    axis = normalize_axis(axis, len(first))
    for a in arrays:
        if len(shape_of(a)) != len(first) or any(
            m != n for i, (m, n) in enumerate(zip(shape_of(a), first, strict=True)) if i != axis
        ):
            raise ValueError(
                f"all the input array dimensions except for the concatenation axis {axis} must match exactly, got "
                f"shapes {', '.join(str(shape_of(a)) for a in arrays)}"
            )
    kind = np.dtype(dtype) if dtype is not None else promote(*(type_of(a) for a in arrays))[0]
    box: list = [np.zeros((*first[:axis], sum(shape_of(a)[axis] for a in arrays), *first[axis + 1 :]), kind)]
    start = 0
    for a in arrays:
        stop = start + shape_of(a)[axis]
        index = tuple(slice(start, stop, 1) if i == axis else slice(0, n, 1) for i, n in enumerate(first))
        if type_of(a).dtype != kind:
            a = ops.convert(a, dtype=kind)
        box = [bind_update(scatter_slice, box, a, index=index, mode="set")]
        start = stop
    return box[0]


def _expanded(x: Any, axis: int) -> Any:
    kind = type_of(x) if hasattr(x, "shape") else None
    shape = kind.shape if kind else np.shape(x)
    axis = normalize_axis(axis, len(shape) + 1)
    return reshape_value(x if kind else np.asarray(x), (*shape[:axis], 1, *shape[axis:]))


@implements(np.stack)
def stack(arrays: Any, axis: int = 0, dtype: Any = None) -> Any:
    shapes = {np.shape(a) if not hasattr(a, "shape") else shape_of(a) for a in arrays}
    if len(shapes) != 1:
        raise ValueError(f"all input arrays must have the same shape, got {sorted(shapes)}")
    axis = normalize_axis(axis, len(next(iter(shapes))) + 1)
    return concatenate([_expanded(a, axis) for a in arrays], axis, dtype)


@implements(np.vstack)
def vstack(tup: Any, **kwargs: Any) -> Any:
    return concatenate([_expanded(a, 0) if len(np.shape(a)) == 1 else a for a in tup], 0, **kwargs)


@implements(np.hstack)
def hstack(tup: Any, **kwargs: Any) -> Any:
    parts = [reshape_value(a if hasattr(a, "shape") else np.asarray(a), np.shape(a) or (1,)) for a in tup]
    return concatenate(parts, 0 if len(shape_of(parts[0])) == 1 else 1, **kwargs)


def _full_like(a: Any, value: Any, dtype: Any, shape: Any, options: dict) -> Any:
    if options:
        raise TypeError(f"np.*_like on traced arrays takes dtype and shape, not {', '.join(options)}")
    kind: ArrayType = type_of(a)
    goal = kind.shape if shape is None else resolve_shape(shape, kind.size)
    return ops.broadcast(ops.convert(value, dtype=np.dtype(dtype) if dtype is not None else kind.dtype), shape=goal)


@implements(np.zeros_like)
def zeros_like(a: Any, dtype: Any = None, shape: Any = None, **options: Any) -> Any:
    return _full_like(a, 0, dtype, shape, options)


@implements(np.ones_like)
def ones_like(a: Any, dtype: Any = None, shape: Any = None, **options: Any) -> Any:
    return _full_like(a, 1, dtype, shape, options)


@implements(np.empty_like)
def empty_like(prototype: Any, dtype: Any = None, shape: Any = None, **options: Any) -> Any:
    return _full_like(prototype, 0, dtype, shape, options)


@implements(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, **options: Any) -> Any:
    return _full_like(a, fill_value, dtype, shape, options)


FUNCTIONS[np.shape] = namespace["shape"] = lambda a: a.shape if isinstance(a, Tracer) else np.shape(a)
FUNCTIONS[np.ndim] = namespace["ndim"] = lambda a: a.ndim if isinstance(a, Tracer) else np.ndim(a)
FUNCTIONS[np.size] = namespace["size"] = lambda a, axis=None: (
    np.size(a, axis) if not isinstance(a, Tracer) else a.size if axis is None else a.shape[axis]
)
FUNCTIONS[np.iscomplexobj] = lambda a: a.dtype.kind == "c"
