"""NumPy's functions that reshape and reorder traced arrays. What NumPy returns as a view is a view here."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from wonderland.core.level import Traced
from wonderland.core.tracer import FUNCTIONS, METHODS, PROPERTIES, Tracer, ViewPath, concrete, unwrap
from wonderland.core.types import broadcast_shapes, shape_of
from wonderland.numpy.dispatch import namespace, on_handles
from wonderland.numpy.missing import np
from wonderland.ops import shape as ops

# Axes and shapes -----------------------------------------------------------------------------------------------------


def integers(item: Any, what: str = "a shape") -> tuple[int, ...]:
    """An int, or a sequence or array of ints, as a tuple; traced ones will do where they have a value."""
    if isinstance(item, (Tracer, Traced, np.ndarray)):
        item = np.asarray(concrete(unwrap(item), what))
        item = item.ravel() if item.ndim else item[()]
    if isinstance(item, (tuple, list, np.ndarray)):
        return tuple(operator.index(concrete(unwrap(n), what)) for n in item)
    return (operator.index(item),)


def normalize_axis(axis: Any, rank: int) -> int:
    """A non-negative axis, or NumPy's error."""
    axis = operator.index(axis)
    if not -rank <= axis < rank:
        raise np.exceptions.AxisError(axis, rank)
    return axis % rank


def distinct_axes(axis: Any, rank: int) -> list[int]:
    """Non-negative axes in the order in which they are given."""
    axes = [normalize_axis(a, rank) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ValueError("repeated axis")
    return axes


def normalize_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """A sorted tuple of non-negative axes; None means all of them."""
    if axis is None:
        return tuple(range(rank))
    if type(axis) is int and -rank <= axis < rank:
        return (axis % rank,)
    axes = [normalize_axis(a, rank) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ValueError("duplicate value in 'axis'")
    return tuple(sorted(axes))


def reduced_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """The axes of a reduction: of a number, 0 and -1 stand for none."""
    if rank == 0 and axis is not None and not isinstance(axis, (tuple, list)) and operator.index(axis) in (0, -1):
        return ()
    return normalize_axes(axis, rank)


def one_axis(a: Any, axis: Any) -> tuple[Any, int]:
    """A value and the axis to go along. Without one it is flattened; along 0 or -1, a number is an array of one."""
    if axis is None or (shape_of(a) == () and operator.index(axis) in (0, -1)):
        return reshape_value(a, (math.prod(shape_of(a)),)), 0
    return a, normalize_axis(axis, len(shape_of(a)))


def resolve_shape(shape: Any, size: int) -> tuple[int, ...]:
    """The shape argument of reshape, with -1 filled in."""
    shape = integers(shape)
    if shape.count(-1) > 1:
        raise ValueError("can only specify one unknown dimension")
    if -1 in shape:
        rest = math.prod(n for n in shape if n != -1)
        if rest == 0 or size % rest:
            raise ValueError(f"cannot reshape array of size {size} into shape {shape}")
        shape = tuple(size // rest if n == -1 else n for n in shape)
    if min(shape, default=0) < 0:
        raise ValueError(f"negative dimensions are not allowed, in shape {shape}")
    return shape


# Of values -----------------------------------------------------------------------------------------------------------


def reshape_value(x: Any, shape: tuple[Any, ...]) -> Any:
    return x if shape_of(x) == shape else ops.reshape(x, shape=shape)


def transpose_value(x: Any, order: tuple[int, ...]) -> Any:
    return x if order == tuple(range(len(order))) else ops.transpose(x, permutation=order)


def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """A value repeated to a shape."""
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    old = shape_of(array)
    if old == shape:
        return array
    lead = len(shape) - len(old)
    if lead < 0 or any(m not in (1, n) for m, n in zip(old, shape[lead:], strict=True)):
        raise ValueError(
            f"operands could not be broadcast together with remapped shapes [original->remapped]: {old} and requested "
            f"shape {shape}"
        )
    return ops.broadcast(array, shape=shape)


def moved_value(x: Any, source: int, target: int) -> Any:
    """A value with one axis moved."""
    order = [i for i in range(len(shape_of(x))) if i != source]
    order.insert(target, source)
    return transpose_value(x, tuple(order))


# Views ---------------------------------------------------------------------------------------------------------------


class StridedView(ViewPath):
    """A view that knows how it lies in the memory of its base, for NumPy copies where strides can't tell a shape."""

    __slots__ = ("layout",)

    def __init__(self, get: Callable, put: Callable, layout: Callable[[list[int]], list[int]]):
        super().__init__(get, put)
        self.layout: Callable[..., Any] = layout  # strides of the base -> strides of the view, in elements


def view_of(base: Tracer, get: Callable, put: Callable, layout: Callable[[list[int]], list[int]]) -> Tracer:
    """A tracer that is a view of another."""
    value = get(base._get())
    return Tracer(value) if base._is_number() else Tracer(value, base, StridedView(get, put, layout))


def _contiguous(shape: tuple) -> list[int]:
    """Strides, in elements, of a C-contiguous array."""
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def strides_of(x: Tracer) -> list[int]:
    """Strides in elements. What was computed counts as contiguous, whatever memory NumPy would have given it."""
    if x._base is None or not isinstance(x._view, StridedView):
        return _contiguous(x.shape)
    return x._view.layout(strides_of(x._base))


def _reshaped_strides(shape: tuple, strides: list[int], new: tuple) -> list[int] | None:
    """Strides of the same elements in another shape, or None if there are none (NumPy's rule)."""
    if 0 in shape:
        return _contiguous(new)
    # Axes that follow each other without a gap are one run of memory; new axes must not cross the ends of runs.
    runs: list[list[int]] = []  # length, stride of the last axis
    for n, s in zip(shape, strides, strict=True):
        if n == 1:
            continue
        if runs and runs[-1][1] == n * s:
            runs[-1] = [runs[-1][0] * n, s]
        else:
            runs.append([n, s])
    out: list[int] = []
    length, step = runs.pop() if runs else [1, 1]
    for n in reversed(new):
        if n > 1 and length == 1 and runs:
            length, step = runs.pop()
        if length % n:
            return None
        out.append(step)
        length, step = length // n, step * n
    return out[::-1]


def _reshaped(x: Tracer, shape: tuple) -> Tracer:
    """A view of another shape, whose layout must allow it where NumPy looks (see `reshape`)."""
    old = x.shape
    return view_of(
        x,
        lambda v: reshape_value(v, shape),
        lambda box, new: reshape_value(new, old),
        lambda strides: _reshaped_strides(old, strides, shape) or _contiguous(shape),
    )


def flat_view(x: Tracer) -> Tracer:
    """All elements in a row, to be written through, wherever they are."""
    return _reshaped(x, (x.size,))


def _transposed(x: Tracer, order: tuple[int, ...]) -> Tracer:
    back = ops.inverse_permutation(order)
    return view_of(
        x,
        lambda v: transpose_value(v, order),
        lambda box, new: transpose_value(new, back),
        lambda strides: [strides[i] for i in order],
    )


def read_only_view(x: Tracer, get: Callable, layout: Callable[[list[int]], list[int]]) -> Tracer:
    """A view that can't be written, as NumPy's `broadcast_to` and `diagonal` give them."""

    def refuse(box: list, new: Any) -> Any:
        raise ValueError("assignment destination is read-only")

    return view_of(x, get, refuse, layout)


def check_order(order: Any, rank: int = 0) -> bool:
    """Is it Fortran's order? An order of elements that depends on memory ("A", "K") isn't known of a traced array."""
    if order is not None and str(order).upper() not in ("C", "F", "A", "K"):
        raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")
    if rank > 1 and str(order).upper() in ("A", "K"):
        raise TypeError(f"how a traced array lies in memory isn't known: write order='C' or 'F' instead of {order!r}")
    return str(order).upper() == "F"


@on_handles(np.reshape)
def reshape(a: Tracer, /, shape: Any = None, order: Any = "C", *, newshape: Any = None, copy: Any = None) -> Tracer:
    if shape is None and newshape is None:
        raise TypeError("reshape() missing 1 required positional argument: 'shape'")
    shape = resolve_shape(newshape if shape is None else shape, a.size)
    if order is not None and str(order).upper() == "K":
        raise ValueError("order 'K' is not permitted for reshaping")
    if check_order(order, a.ndim):  # the other way round, and back
        return transpose(reshape(transpose(a), shape[::-1], copy=copy))
    if copy or _reshaped_strides(a.shape, strides_of(a), shape) is None:
        if copy is False:
            raise ValueError("Unable to avoid creating a copy while reshaping.")
        return Tracer(reshape_value(a._get(), shape))
    return _reshaped(a, shape)


def _reshape_method(self: Tracer, *shape: Any, order: Any = "C", copy: Any = None) -> Tracer:
    return reshape(self, shape[0] if len(shape) == 1 else shape, order, copy=copy)


METHODS["reshape"] = _reshape_method


@on_handles(np.ravel, "ravel")
def ravel(a: Tracer, order: Any = "C") -> Tracer:
    a = transpose(a) if check_order(order, a.ndim) else a
    is_contiguous = all(n == 1 or s == t for n, s, t in zip(a.shape, strides_of(a), _contiguous(a.shape), strict=True))
    return flat_view(a) if is_contiguous else Tracer(reshape_value(a._get(), (a.size,)))


METHODS["flatten"] = lambda self, order="C": Tracer(ravel(self, order)._get())


@on_handles(np.transpose)
def transpose(a: Tracer, axes: Any = None) -> Tracer:
    rank = a.ndim
    if axes is None:
        return _transposed(a, tuple(reversed(range(rank))))
    axes = integers(axes, "an axis")
    if len(axes) != rank:
        raise ValueError(f"axes {axes} don't match array of shape {a.shape}")
    order = tuple(normalize_axis(i, rank) for i in axes)
    if len(set(order)) != rank:
        raise ValueError("repeated axis in transpose")
    return _transposed(a, order)


def _transpose_method(self: Tracer, *axes: Any) -> Tracer:
    nested = len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list)))
    return transpose(self, axes[0] if nested else axes or None)


def matrix_transpose(x: Tracer, /) -> Tracer:
    if x.ndim < 2:
        raise ValueError(f"matrix transpose with ndim < 2 is undefined, got shape {x.shape}")
    return swapaxes(x, -1, -2)


on_handles(np.matrix_transpose)(matrix_transpose)

METHODS["transpose"] = _transpose_method
PROPERTIES["T"] = lambda self: transpose(self)
PROPERTIES["mT"] = matrix_transpose
PROPERTIES["itemsize"] = lambda self: self.dtype.itemsize
PROPERTIES["nbytes"] = lambda self: self.size * self.dtype.itemsize


@on_handles(np.swapaxes, "swapaxes")
def swapaxes(a: Tracer, axis1: int, axis2: int) -> Tracer:
    order = list(range(a.ndim))
    i, j = normalize_axis(axis1, a.ndim), normalize_axis(axis2, a.ndim)
    order[i], order[j] = order[j], order[i]
    return _transposed(a, tuple(order))


@on_handles(np.moveaxis)
def moveaxis(a: Tracer, source: Any, destination: Any) -> Tracer:
    sources, targets = distinct_axes(source, a.ndim), distinct_axes(destination, a.ndim)
    if len(sources) != len(targets):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [i for i in range(a.ndim) if i not in sources]
    for target, source_axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, source_axis)
    return _transposed(a, tuple(order))


@on_handles(np.rollaxis)
def rollaxis(a: Tracer, axis: int, start: int = 0) -> Tracer:
    rank = a.ndim
    axis = normalize_axis(axis, rank)
    if not -rank <= start <= rank:
        raise np.exceptions.AxisError(f"'start' arg requires {-rank} <= start < {rank + 1}, but {start} was passed in")
    start = start + rank if start < 0 else start
    order = [i for i in range(rank) if i != axis]
    order.insert(start - 1 if axis < start else start, axis)
    return _transposed(a, tuple(order))


@on_handles(np.expand_dims)
def expand_dims(a: Tracer, axis: Any) -> Tracer:
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = a.ndim + len(axes)
    new = distinct_axes(axes, rank)
    old = iter(a.shape)
    return _reshaped(a, tuple(1 if i in new else next(old) for i in range(rank)))


@on_handles(np.squeeze, "squeeze")
def squeeze(a: Tracer, axis: Any = None) -> Tracer:
    axes = reduced_axes(axis, a.ndim) if axis is not None else [i for i, n in enumerate(a.shape) if n == 1]
    for i in axes:
        if a.shape[i] != 1:
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return _reshaped(a, tuple(n for i, n in enumerate(a.shape) if i not in axes))


def _at_least(original: Any, shape: Callable[[tuple], tuple]) -> None:
    """`atleast_1d` and its like, of one or several arrays."""

    def one(a: Any) -> Any:
        return _reshaped(a, shape(a.shape)) if isinstance(a, Tracer) else original(a)

    @on_handles(original)
    def at_least(*arrays: Any) -> Any:
        return one(arrays[0]) if len(arrays) == 1 else tuple(map(one, arrays))


_at_least(np.atleast_1d, lambda shape: shape or (1,))
_at_least(np.atleast_2d, lambda shape: (1,) * (2 - len(shape)) + shape)
_at_least(
    np.atleast_3d,
    lambda shape: (1, *shape, 1) if len(shape) == 1 else shape + (1,) * (3 - len(shape)) if shape else (1, 1, 1),
)


@on_handles(np.broadcast_to)
def _broadcast_view(array: Any, shape: Any, subok: bool = False) -> Any:
    shape = integers(shape)
    if not isinstance(array, Tracer):
        return np.broadcast_to(array, shape)
    old = array.shape
    lead = len(shape) - len(old)
    return read_only_view(
        array,
        lambda v: broadcast_to(v, shape),
        lambda strides: [0 if i < lead or old[i - lead] != n else strides[i - lead] for i, n in enumerate(shape)],
    )


@on_handles(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    shape = broadcast_shapes(*(np.shape(a) for a in args))
    return tuple(a if np.shape(a) == shape and isinstance(a, Tracer) else _broadcast_view(a, shape) for a in args)


@on_handles(np.flip)
def flip(m: Tracer, axis: Any = None) -> Tracer:
    axes = normalize_axes(axis, m.ndim)
    return m[tuple(slice(None, None, -1 if i in axes else 1) for i in range(m.ndim)) or ...]


@on_handles(np.flipud)
def flipud(m: Tracer) -> Tracer:
    if m.ndim < 1:
        raise ValueError("Input must be >= 1-d.")
    return flip(m, 0)


@on_handles(np.fliplr)
def fliplr(m: Tracer) -> Tracer:
    if m.ndim < 2:
        raise ValueError("Input must be >= 2-d.")
    return flip(m, 1)


@on_handles(np.rot90)
def rot90(m: Tracer, k: int = 1, axes: Any = (0, 1)) -> Tracer:
    if len(axes) != 2:
        raise ValueError("len(axes) must be 2.")
    first, second = (normalize_axis(a, m.ndim) for a in axes)
    if first == second:
        raise ValueError("Axes must be different.")
    k %= 4
    if k in (0, 2):
        return flip(m, (first, second)) if k else m[...]
    return swapaxes(flip(m, second), first, second) if k == 1 else flip(swapaxes(m, first, second), second)


# What isn't an array -------------------------------------------------------------------------------------------------

FUNCTIONS[np.shape] = namespace["shape"] = lambda a: a.shape if isinstance(a, Tracer) else np.shape(a)
FUNCTIONS[np.ndim] = namespace["ndim"] = lambda a: a.ndim if isinstance(a, Tracer) else np.ndim(a)


@on_handles(np.size)
def size(a: Tracer, axis: Any = None) -> int:
    return a.size if axis is None else math.prod(a.shape[i] for i in normalize_axes(axis, a.ndim))


FUNCTIONS[np.iscomplexobj] = namespace["iscomplexobj"] = lambda x: (
    x.dtype.kind == "c" if isinstance(x, Tracer) else np.iscomplexobj(x)
)
FUNCTIONS[np.isrealobj] = namespace["isrealobj"] = lambda x: not namespace["iscomplexobj"](x)
