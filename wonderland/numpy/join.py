"""NumPy's functions that join arrays, some of them traced, and that split one into views."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from wonderland.core.level import Traced, bind_update
from wonderland.core.tracer import Tracer, concrete, unwrap
from wonderland.core.types import promote, shape_of, type_of
from wonderland.numpy.dispatch import implements
from wonderland.numpy.missing import np
from wonderland.numpy.shape import broadcast_to, integers, normalize_axis, on_handles, reshape_value
from wonderland.ops.index import scatter_slice
from wonderland.ops.index import slice as slice_primitive
from wonderland.ops.shape import convert


def as_value(item: Any) -> Any:
    """What `np.asarray` means, of numbers, arrays, traced values and nested lists of them."""
    item = unwrap(item)
    if isinstance(item, (list, tuple)) and any(isinstance(unwrap(i), (list, tuple, Traced)) for i in item):
        return stack([as_value(i) for i in item])
    return item if isinstance(item, (np.ndarray, np.generic, Traced)) else np.asarray(item)


def unstacked(arrays: Any) -> list[Any]:
    """A sequence of arrays; one array is the sequence of its rows."""
    if isinstance(arrays, (np.ndarray, Traced)):
        rest = tuple(slice(0, n, 1) for n in shape_of(arrays)[1:])
        return [slice_primitive(arrays, index=(i, *rest)) for i in range(shape_of(arrays)[0])]
    return [as_value(a) for a in arrays]


@implements(np.concatenate)
def concatenate(arrays: Any, axis: int | None = 0, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    arrays = unstacked(arrays)
    if not arrays:
        raise ValueError("need at least one array to concatenate")
    if axis is None:
        arrays, axis = [reshape_value(a, (type_of(a).size,)) for a in arrays], 0
    first = shape_of(arrays[0])
    if any(shape_of(a) == () for a in arrays):
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    axis = normalize_axis(axis, len(first))
    _check_fit([shape_of(a) for a in arrays], axis)
    kind = np.dtype(dtype) if dtype is not None else promote(*(type_of(a) for a in arrays))[0]
    shape = (*first[:axis], sum(shape_of(a)[axis] for a in arrays), *first[axis + 1 :])
    traced = any(isinstance(a, Traced) for a in arrays)  # then a Program may hold what is written to: one number
    box: list = [np.broadcast_to(np.zeros((), kind), shape) if traced else np.zeros(shape, kind)]
    start = 0
    for a in arrays:
        stop = start + shape_of(a)[axis]
        index = tuple(slice(start, stop, 1) if i == axis else slice(0, n, 1) for i, n in enumerate(first))
        if type_of(a).dtype != kind:
            if not np.can_cast(type_of(a).dtype, kind, casting):
                raise TypeError(f"Cannot cast array data from {type_of(a).dtype} to {kind} according to {casting!r}")
            a = convert(a, dtype=kind)
        box = [bind_update(scatter_slice, box, a, index=index, mode="set")]
        start = stop
    return box[0]


def _check_fit(shapes: list[tuple], axis: int) -> None:
    for number, shape in enumerate(shapes):
        if len(shape) != len(shapes[0]):
            raise ValueError(
                "all the input arrays must have same number of dimensions, but the array at index 0 has "
                f"{len(shapes[0])} dimension(s) and the array at index {number} has {len(shape)} dimension(s)"
            )
        for i, (m, n) in enumerate(zip(shapes[0], shape, strict=True)):
            if i != axis and m != n:
                raise ValueError(
                    "all the input array dimensions except for the concatenation axis must match exactly, but along "
                    f"dimension {i}, the array at index 0 has size {m} and the array at index {number} has size {n}"
                )


@implements(np.stack)
def stack(arrays: Any, axis: int = 0, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    arrays = unstacked(arrays)
    if not arrays:
        raise ValueError("need at least one array to stack")
    shape = shape_of(arrays[0])
    if any(shape_of(a) != shape for a in arrays):
        raise ValueError(
            f"all input arrays must have the same shape, got {', '.join(str(shape_of(a)) for a in arrays)}"
        )
    axis = normalize_axis(axis, len(shape) + 1)
    parts = [reshape_value(a, (*shape[:axis], 1, *shape[axis:])) for a in arrays]
    return concatenate(parts, axis, dtype=dtype, casting=casting)


def _at_least(x: Any, shapes: dict[int, Any]) -> Any:
    """A value with axes added, as a table says for its rank."""
    shape = shape_of(x)
    return reshape_value(x, shapes[len(shape)](*shape)) if len(shape) in shapes else x


_TWO = {0: lambda: (1, 1), 1: lambda n: (1, n)}
_COLUMNS = {0: lambda: (1, 1), 1: lambda n: (n, 1)}
_THREE = {0: lambda: (1, 1, 1), 1: lambda n: (1, n, 1), 2: lambda m, n: (m, n, 1)}


@implements(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    return concatenate([_at_least(a, _TWO) for a in unstacked(tup)], 0, dtype=dtype, casting=casting)


@implements(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    parts = [_at_least(a, {0: lambda: (1,)}) for a in unstacked(tup)]
    axis = 0 if parts and len(shape_of(parts[0])) == 1 else 1
    return concatenate(parts, axis, dtype=dtype, casting=casting)


@implements(np.dstack)
def dstack(tup: Any) -> Any:
    return concatenate([_at_least(a, _THREE) for a in unstacked(tup)], 2)


@implements(np.column_stack)
def column_stack(tup: Any) -> Any:
    return concatenate([_at_least(a, _COLUMNS) for a in unstacked(tup)], 1)


@implements(np.append)
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    return concatenate([as_value(arr), as_value(values)], axis)


@implements(np.block)
def block(arrays: Any) -> Any:
    depth = _depth(arrays, "arrays")
    rank = max([depth, *(len(shape_of(leaf)) for leaf in _leaves(arrays))])

    def joined(item: Any, level: int) -> Any:
        if isinstance(item, list):
            return concatenate([joined(i, level + 1) for i in item], rank - depth + level)
        value = as_value(item)
        return reshape_value(value, (1,) * (rank - len(shape_of(value))) + shape_of(value))

    return joined(arrays, 0)


def _leaves(item: Any) -> list:
    return [leaf for i in item for leaf in _leaves(i)] if isinstance(item, list) else [as_value(item)]


def _depth(item: Any, name: str) -> int:
    if isinstance(item, tuple):
        raise TypeError(f"{name} is a tuple. Only lists can be used to arrange blocks, and np.block does not allow it")
    if not isinstance(item, list):
        return 0
    if not item:
        raise ValueError(f"List at {name} cannot be empty")
    depths = [_depth(i, f"{name}[{number}]") for number, i in enumerate(item)]
    if len(set(depths)) > 1:
        raise ValueError(f"List depths are mismatched: in {name} they are {depths}")
    return 1 + depths[0]


# Splitting -----------------------------------------------------------------------------------------------------------


def _bounds(indices_or_sections: Any, extent: int) -> list[int]:
    item: Any = concrete(unwrap(indices_or_sections), "where to split (the results' shapes depend on it)")
    if np.ndim(item):
        return [0, *integers(item, "where to split"), extent]
    count = int(item)
    if count <= 0:
        raise ValueError("number sections must be larger than 0.")
    each, extra = divmod(extent, count)
    return np.cumsum([0] + extra * [each + 1] + (count - extra) * [each]).tolist()


@on_handles(np.array_split)
def array_split(ary: Tracer, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    axis = normalize_axis(axis, ary.ndim)
    bounds = _bounds(indices_or_sections, ary.shape[axis])
    whole = (slice(None),) * axis
    return [ary[(*whole, slice(start, stop))] for start, stop in pairwise(bounds)]


@on_handles(np.split)
def split(ary: Tracer, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    sections = concrete(unwrap(indices_or_sections), "where to split (the results' shapes depend on it)")
    if np.ndim(sections) == 0 and ary.shape[axis] % int(sections):
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, sections, axis)


@on_handles(np.hsplit)
def hsplit(ary: Tracer, indices_or_sections: Any) -> list[Any]:
    if ary.ndim == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(ary, indices_or_sections, 1 if ary.ndim > 1 else 0)


@on_handles(np.vsplit)
def vsplit(ary: Tracer, indices_or_sections: Any) -> list[Any]:
    if ary.ndim < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(ary, indices_or_sections, 0)


@on_handles(np.dsplit)
def dsplit(ary: Tracer, indices_or_sections: Any) -> list[Any]:
    if ary.ndim < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return split(ary, indices_or_sections, 2)


@on_handles(np.unstack)
def unstack(x: Tracer, /, *, axis: int = 0) -> tuple[Any, ...]:
    if x.ndim == 0:
        raise ValueError("Input array must be at least 1-d.")
    axis = normalize_axis(axis, x.ndim)
    return tuple(x[(*(slice(None),) * axis, i, ...)] for i in range(x.shape[axis]))


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Any, ...]:
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    arrays = [as_value(x) for x in xi]
    sizes = [type_of(a).size for a in arrays]
    places = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        places[:2] = 1, 0
        sizes[:2] = sizes[1], sizes[0]
    shapes = [tuple(-1 if i == place else 1 for i in range(len(arrays))) for place in places]
    filled = [tuple(type_of(a).size if n == -1 else 1 for n in s) for a, s in zip(arrays, shapes, strict=True)]
    grids = [reshape_value(a, s) for a, s in zip(arrays, filled, strict=True)]
    return tuple(grids if sparse else [broadcast_to(g, tuple(sizes)) for g in grids])
