"""Reading and writing parts of arrays: `slice` and `gather`, and their functional updates.

`slice` has a static index, one int or slice per axis, resolved (no negative or missing bounds). `gather` takes integer
arrays for some axes; they broadcast together and come first in the result, before the axes that are kept. The updates
`scatter_slice` and `scatter` set or add; their `update` rule does it in place, so one element costs O(1). `scatter_max`
takes the larger of the old element and all new ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.core.level import Traced, bind_update
from wonderland.core.primitive import Accumulation, Linear, Primitive
from wonderland.core.types import ArrayType, broadcast_shapes, shape_of, type_of
from wonderland.ops.elementwise import align, div, eq, maximum, where
from wonderland.ops.pattern import blocks
from wonderland.ops.shape import broadcast, convert, moved_pattern, reshape, zeros_like_type
from wonderland.ops.shape import transpose as _transpose
from wonderland.ops.work import picked, placed, view

Index = tuple  # of ints and slices


def sliced_shape(index: Index) -> tuple[Any, ...]:
    """The shape that a static index selects."""
    return tuple(len(range(i.start, -1 if i.stop is None else i.stop, i.step)) for i in index if not isinstance(i, int))


def _slice(x: Any, index: Index) -> Any:
    out = x[index]
    # A small part is copied: it must not keep a large array alive, nor stop it from being updated in place.
    if type(out) is np.ndarray and out.base is not None and 4 * out.size <= x.size:
        out = out.copy()
    return out


def _batched_index(size: int, index: Index) -> Index:
    return (np_slice(0, size, 1), *index)


np_slice = slice  # the name `slice` is the primitive's from here on

slice: Primitive = Primitive(
    "slice",
    _slice,
    lambda x, index: ArrayType(sliced_shape(index), x.dtype),
    linear=(0,),
    balanced=True,
    transpose=lambda ct, x, index: (Accumulation(scatter_slice, ct, index=index, mode="add"),),
    batch=lambda size, args, batched, index: slice(args[0], index=_batched_index(shape_of(args[0])[0], index)),
    lower=lambda builder, x, index: builder.slice(x, index),
    cost=view,
)
slice.pattern = moved_pattern(slice)


def _scatter_slice_update(x: Any, u: Any, index: Index, mode: str) -> None:
    if mode == "set":
        x[index] = u
        return
    part = x[index]
    if type(part) is np.ndarray:
        np.add(part, u, part, casting="unsafe")
    else:
        x[index] = part + u


def _scatter_slice(x: Any, u: Any, index: Index, mode: str) -> Any:
    out = np.array(x)
    _scatter_slice_update(out, u, index, mode)
    return out


def _scatter_slice_transpose(cts: Any, x: Any, u: Any, index: Index, mode: str) -> tuple:
    u_ct = slice(cts[0], index=index) if isinstance(u, Linear) else None
    if not isinstance(x, Linear):
        return None, u_ct
    if mode == "add":
        return cts[0], u_ct
    nothing = zeros_like_type(u if isinstance(u, Linear) else type_of(u))
    return bind_update(scatter_slice, cts, nothing, index=index, mode="set"), u_ct


def _scatter_slice_batch(size: int, args: tuple, batched: tuple, index: Index, mode: str) -> Any:
    x, u = (a if b else broadcast(a, shape=(size, *shape_of(a))) for a, b in zip(args, batched, strict=True))
    return scatter_slice(x, u, index=_batched_index(size, index), mode=mode)


def _scatter_slice_infer(x: ArrayType, u: ArrayType, index: Index, mode: str) -> ArrayType:
    if u.shape != sliced_shape(index):
        raise ValueError(f"can't write values of shape {u.shape} into a part of shape {sliced_shape(index)}")
    return ArrayType(x.shape, x.dtype)


def _scatter_slice_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    x, u = types
    numbers = np.arange(x.size).reshape(x.shape)
    target = np.asarray(numbers[params["index"]]).ravel()
    kept = numbers.ravel()
    if params["mode"] == "set":
        outside = np.ones(x.shape, bool)
        outside[params["index"]] = False
        kept = np.flatnonzero(outside)
    return [(kept, kept), (target, np.arange(u.size))]


scatter_slice: Primitive = Primitive(
    "scatter_slice",
    _scatter_slice,
    _scatter_slice_infer,
    linear=(0, 1),
    balanced=True,
    transpose=_scatter_slice_transpose,
    batch=_scatter_slice_batch,
    pattern=_scatter_slice_pattern,
    update=_scatter_slice_update,
    lower=lambda builder, x, u, index, mode: builder.scatter_slice(x, u, index, mode),
    cost=placed,
)


def indexed_first(x: Any, axes: tuple[int, ...]) -> Any:
    """The array with the indexed axes first."""
    return x.transpose(axes + tuple(i for i in range(x.ndim) if i not in axes))


def _gather(x: Any, *indices: Any, axes: tuple) -> Any:
    return indexed_first(x, axes)[indices]


def _gather_infer(x: ArrayType, *indices: ArrayType, axes: tuple) -> ArrayType:
    shape = broadcast_shapes(*(i.shape for i in indices))
    return ArrayType((*shape, *(n for i, n in enumerate(x.shape) if i not in axes)), x.dtype)


def _batched_indices(size: int, indices: list, batched: list) -> list:
    """Index arrays of one batch entry become index arrays of the whole batch, numbered along axis 0."""
    rank = max(len(shape_of(i)) - b for i, b in zip(indices, batched, strict=True))
    return [np.arange(size).reshape((size,) + (1,) * rank), *align(tuple(indices), tuple(batched))]


def _gather_batch(size: int, args: tuple, batched: tuple, axes: tuple) -> Any:
    x, *indices = args
    shifted = tuple(a + 1 for a in axes)
    if batched[0] and any(batched[1:]):
        return gather(x, *_batched_indices(size, indices, list(batched[1:])), axes=(0, *shifted))
    if not batched[0]:  # the indices' batch is the first axis of the result already
        return gather(x, *align(tuple(indices), batched[1:]), axes=axes)
    rank = len(broadcast_shapes(*(shape_of(i) for i in indices)))
    out = gather(x, *indices, axes=shifted)
    order = (rank, *range(rank), *range(rank + 1, len(shape_of(out))))
    return _transpose(out, permutation=order)


def _gather_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    x, *indices = types
    picked = _picked(x, indices, params["axes"])
    none = [None] * len(indices)
    if picked is not None:
        return [(np.arange(picked.size), picked), *none]
    return [blocks(*_lines(x, indices, params["axes"])), *none]


def _picked(x: ArrayType, indices: list, axes: tuple) -> np.ndarray | None:
    """The numbers of the elements that known indices pick."""
    if not all(isinstance(i, np.ndarray) for i in indices):
        return None
    try:
        return np.ravel(_gather(np.arange(x.size).reshape(x.shape), *indices, axes=axes))
    except IndexError:  # of a branch that isn't taken
        return None


def _lines(x: ArrayType, indices: list, axes: tuple) -> tuple[np.ndarray, np.ndarray]:
    """What is picked and what it is picked from, by places along the axes that aren't indexed."""
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    out = _gather_infer(x, *indices, axes=axes)
    lines = math.prod(x.shape[i] for i in rest)
    numbers = np.arange(x.size).reshape(x.shape).transpose(rest + axes)
    numbers = numbers.reshape(lines, math.prod(x.shape[a] for a in axes))
    return np.arange(out.size).reshape(out.size // max(lines, 1), lines).T, numbers


gather: Primitive = Primitive(
    "gather",
    _gather,
    _gather_infer,
    linear=(0,),
    balanced=True,
    transpose=lambda ct, x, *indices, axes: (
        Accumulation(scatter, *indices, ct, axes=axes, mode="add"),
        *(None for _ in indices),
    ),
    batch=_gather_batch,
    pattern=_gather_pattern,
    lower=lambda builder, x, *indices, axes: builder.gather(x, indices, axes),
    raises=True,  # an index out of range
    cost=picked,
)


def _scatter_update(x: Any, *args: Any, axes: tuple, mode: str) -> None:
    *indices, u = args
    moved, key = indexed_first(x, axes), tuple(indices)
    if mode == "add":
        np.add.at(moved, key, u)
    else:
        moved[key] = u


def _scatter(x: Any, *args: Any, axes: tuple, mode: str) -> Any:
    out = np.array(x)
    _scatter_update(out, *args, axes=axes, mode=mode)
    return out


def _scatter_transpose(cts: Any, x: Any, *args: Any, axes: tuple, mode: str) -> tuple:
    *indices, u = args
    u_ct = None
    if isinstance(u, Linear):
        u_ct = gather(cts[0], *indices, axes=axes)
        if mode == "set":
            u_ct = _only_winners(u_ct, indices, axes, shape_of(cts[0]))
    none = [None] * len(indices)
    if not isinstance(x, Linear):
        return None, *none, u_ct
    if mode == "add":
        return cts[0], *none, u_ct
    nothing = zeros_like_type(u if isinstance(u, Linear) else type_of(u))
    return bind_update(scatter, cts, *indices, nothing, axes=axes, mode="set"), *none, u_ct


def _only_winners(ct: Any, indices: list, axes: tuple, shape: tuple) -> Any:
    """Where several values are written to one element, only the one that stayed there gets its cotangent."""
    count = broadcast_shapes(*(shape_of(i) for i in indices))
    size = int(np.prod(count))
    if size <= 1:
        return ct
    places = tuple(shape[a] for a in axes)
    if any(isinstance(i, Traced) for i in indices):
        numbers, order = np.arange(size).reshape(count), tuple(range(len(axes)))
        board = scatter(np.full(places, -1), *indices, numbers, axes=order, mode="set")
        won = eq(gather(board, *indices, axes=order), numbers)
    else:  # known indices: O(their number), not O(the array)
        wrapped = [np.where(np.less(i, 0), np.add(i, n), i) for i, n in zip(indices, places, strict=True)]
        flat = np.ravel_multi_index(tuple(np.broadcast_to(i, count) for i in wrapped), places).ravel()
        last = size - 1 - np.unique(flat[::-1], return_index=True)[1]
        if last.size == size:
            return ct
        won = np.zeros(size, bool)
        won[last] = True
        won = won.reshape(count)
    won = reshape(won, shape=count + (1,) * (len(shape) - len(axes)))
    return where(won, ct, np.zeros((), type_of(ct).dtype)[()])


def _scatter_batch(size: int, args: tuple, batched: tuple, axes: tuple, **mode: str) -> Any:
    x, *indices, u = args
    x = x if batched[0] else broadcast(x, shape=(size, *shape_of(x)))
    index_batched = list(batched[1:-1])
    count = broadcast_shapes(
        *(shape_of(i)[1:] if b else shape_of(i) for i, b in zip(indices, index_batched, strict=True))
    )
    kept = tuple(n for i, n in enumerate(shape_of(x)[1:]) if i not in axes)
    u = u if batched[-1] else broadcast(u, shape=(size, *count, *kept))
    numbered = _batched_indices(size, indices, index_batched)
    primitive = scatter if mode else scatter_max
    return primitive(x, *numbered, u, axes=(0, *(a + 1 for a in axes)), **mode)


def _scatter_infer(x: ArrayType, *args: ArrayType, axes: tuple, mode: str = "max") -> ArrayType:
    *indices, u = args
    expected = _gather_infer(x, *indices, axes=axes).shape
    if u.shape != expected:
        raise ValueError(f"can't write values of shape {u.shape} where the index selects {expected}")
    return ArrayType(x.shape, x.dtype)


def _scatter_pattern(types: tuple[ArrayType, ...], params: dict) -> list:
    x, *indices, u = types
    picked = _picked(x, indices, params["axes"])
    numbers, none = np.arange(x.size), [None] * len(indices)
    if picked is None:
        written, lines = _lines(x, indices, params["axes"])
        return [(numbers, numbers), *none, blocks(lines, written)]
    if params.get("mode") != "set":
        return [(numbers, numbers), *none, (picked, np.arange(u.size))]
    writer = np.full(x.size, -1)
    np.maximum.at(writer, picked, np.arange(u.size))  # the last one stays
    kept, target = np.flatnonzero(writer < 0), np.flatnonzero(writer >= 0)
    return [(kept, kept), *none, (target, writer[target])]


scatter: Primitive = Primitive(
    "scatter",
    _scatter,
    _scatter_infer,
    transpose=_scatter_transpose,
    batch=_scatter_batch,
    pattern=_scatter_pattern,
    update=_scatter_update,
    lower=lambda builder, x, *args, axes, mode: builder.scatter(x, args[:-1], args[-1], axes, mode),
    linear=(0, -1),
    raises=True,  # an index out of range
    cost=placed,
)


def _scatter_max(x: Any, *args: Any, axes: tuple) -> Any:
    *indices, u = args
    out = np.array(x)
    np.maximum.at(indexed_first(out, axes), tuple(indices), u)
    return out


def _scatter_max_jvp(primals: tuple, tangents: tuple, axes: tuple) -> tuple[Any, Any]:
    # The derivative goes to the largest, shared equally at ties.
    (x, *indices, u), (s, *_, t) = primals, tangents
    out = scatter_max(*primals, axes=axes)
    kind = type_of(x).dtype
    zero = np.zeros((), kind)[()]
    old, new = eq(x, out), eq(u, gather(out, *indices, axes=axes))
    count = scatter(convert(old, dtype=kind), *indices, convert(new, dtype=kind), axes=axes, mode="add")
    total = zeros_like_type(type_of(x), real=True) if s is None else where(old, s, zero)
    if t is not None:
        total = scatter(total, *indices, where(new, t, zero), axes=axes, mode="add")
    return out, div(total, maximum(count, 1.0))


scatter_max: Primitive = Primitive(
    "scatter_max",
    _scatter_max,
    _scatter_infer,
    jvp=_scatter_max_jvp,
    batch=_scatter_batch,
    pattern=_scatter_pattern,
    lower=lambda builder, x, *args, axes: builder.scatter(x, args[:-1], args[-1], axes, "max"),
    piecewise_linear=True,
    impossible={"transpose": "it isn't linear"},
    raises=True,  # an index out of range
    cost=placed,
)
