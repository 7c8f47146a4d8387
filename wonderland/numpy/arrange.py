"""NumPy's functions that lay elements out anew: roll, repeat, tile, pad, insert, delete, diagonals and triangles.

Most are a `gather` by an index that NumPy's own function tells when it is given the elements' numbers.
"""

from __future__ import annotations

from typing import Any

from wonderland.core.errors import LostDerivativeError, user_line
from wonderland.core.tracer import Tracer, concrete, unwrap
from wonderland.core.types import shape_of, type_of
from wonderland.numpy.dispatch import implements
from wonderland.numpy.join import as_value, concatenate
from wonderland.numpy.missing import np
from wonderland.numpy.shape import (
    broadcast_to,
    integers,
    moved_value,
    normalize_axis,
    on_handles,
    one_axis,
    read_only_view,
    reshape_value,
    transpose_value,
)
from wonderland.ops import elementwise as ops
from wonderland.ops.index import gather, scatter_slice
from wonderland.ops.index import slice as slice_primitive
from wonderland.ops.shape import convert


def flat_value(x: Any) -> Any:
    """All elements in a row."""
    return reshape_value(x, (type_of(x).size,))


def along(x: Any, index: np.ndarray, axis: int) -> Any:
    """The elements of an axis that an index names, in its order."""
    if np.array_equal(index, np.arange(shape_of(x)[axis])):
        return x
    return moved_value(gather(x, index, axes=(axis,)), 0, axis)


def part(x: Any, start: int, stop: int, axis: int) -> Any:
    """A range of an axis."""
    shape = shape_of(x)
    if (start, stop) == (0, shape[axis]):
        return x
    return slice_primitive(
        x, index=tuple(slice(start, stop, 1) if i == axis else slice(0, n, 1) for i, n in enumerate(shape))
    )


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    shape = shape_of(a)
    if axis is None:
        return reshape_value(roll(flat_value(a), shift, 0), shape)
    shifts = integers(shift, "a shift (np.take with computed indices rolls by an unknown number)")
    axes = [normalize_axis(i, len(shape)) for i in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if len(shifts) > 1 and len(axes) > 1 and len(shifts) != len(axes):
        raise ValueError("shape mismatch: 'shift' and 'axis' must have as many entries, or one")
    count = max(len(shifts), len(axes))
    for step, i in zip(shifts * count if len(shifts) == 1 else shifts, axes * count if len(axes) == 1 else axes):
        cut = -step % shape[i] if shape[i] else 0
        if cut:
            a = concatenate([part(a, cut, shape[i], i), part(a, 0, cut, i)], i)
    return a


@implements(np.repeat, method="repeat")
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    a = as_value(a)
    a, axis = one_axis(a, axis)
    shape = shape_of(a)
    counts = integers(repeats, "the number of repetitions (the result's shape depends on it)")
    if min(counts, default=0) < 0:
        raise ValueError("repeats may not contain negative values.")
    if len(counts) == 1:
        spread = reshape_value(a, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        spread = broadcast_to(spread, (*shape[: axis + 1], counts[0], *shape[axis + 1 :]))
        return reshape_value(spread, (*shape[:axis], shape[axis] * counts[0], *shape[axis + 1 :]))
    if len(counts) != shape[axis]:
        raise ValueError(f"operands could not be broadcast together with shape ({shape[axis]},) ({len(counts)},)")
    return along(a, np.repeat(np.arange(shape[axis]), counts), axis)


@implements(np.tile)
def tile(A: Any, reps: Any) -> Any:
    counts = integers(reps, "the number of repetitions (the result's shape depends on it)")
    shape = shape_of(A)
    rank = max(len(shape), len(counts))
    shape, counts = (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(counts)) + counts
    pairs = tuple(n for extent in shape for n in (1, extent))
    spread = tuple(n for count, extent in zip(counts, shape, strict=True) for n in (count, extent))
    whole = broadcast_to(reshape_value(A, pairs), spread)
    return reshape_value(whole, tuple(count * extent for count, extent in zip(counts, shape, strict=True)))


@implements(np.resize)
def resize(a: Any, new_shape: Any) -> Any:
    shape = integers(new_shape)
    if min(shape, default=0) < 0:
        raise ValueError("all elements of `new_shape` must be non-negative")
    flat, size = flat_value(a), int(np.prod(shape))
    if not shape_of(flat)[0]:
        return np.zeros(shape, type_of(a).dtype)
    return reshape_value(along(flat, np.arange(size) % shape_of(flat)[0], 0), shape)


def _numbers(item: Any, what: str) -> Any:
    """An argument of ints, slices or bools that decides the result's shape."""
    if isinstance(item, slice):
        return slice(*(None if e is None else integers(e, what)[0] for e in (item.start, item.stop, item.step)))
    found = concrete(unwrap(as_value(item)), what)
    return found if np.size(found) else np.zeros(0, int)


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    if axis is None:
        arr, axis = flat_value(arr), 0
    axis = normalize_axis(axis, len(shape_of(arr)))
    return along(arr, np.delete(np.arange(shape_of(arr)[axis]), _numbers(obj, "what to delete")), axis)


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    arr, values = as_value(arr), as_value(values)
    if axis is None:
        arr, axis = flat_value(arr), 0
    shape = shape_of(arr)
    axis = normalize_axis(axis, len(shape))
    where = _numbers(obj, "where to insert")
    values = reshape_value(values, (1,) * (len(shape) - len(shape_of(values))) + shape_of(values))
    count = len(np.insert(np.arange(shape[axis]), where, 0)) - shape[axis]
    if count == 1 and not isinstance(where, slice):  # at one place: as many as there are values
        if np.ndim(where) == 0:  # which NumPy reads as a[:, 1] = values, not as a[:, [1]] = values
            values = moved_value(values, 0, axis)
        count = shape_of(values)[axis]
        where = int(np.ravel(where)[0]) if np.asarray(where).dtype != bool else where
    values = broadcast_to(values, (*shape[:axis], count, *shape[axis + 1 :]))
    kind = type_of(arr).dtype
    if type_of(values).dtype != kind:
        values = convert(values, dtype=kind)
    numbers = np.insert(np.arange(shape[axis]), where, shape[axis] + np.arange(count))
    return along(concatenate([arr, values], axis), numbers, axis)


@on_handles(np.trim_zeros)
def trim_zeros(filt: Tracer, trim: str = "fb", axis: Any = None) -> Tracer:
    trim = trim.lower()
    if trim not in ("fb", "bf", "f", "b"):
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    axes = range(filt.ndim) if axis is None else [normalize_axis(a, filt.ndim) for a in np.atleast_1d(axis)]
    if not axes:
        return filt[...]
    places = np.nonzero(concrete(filt._get(), "np.trim_zeros (its result's shape depends on values)"))
    index = [slice(None)] * filt.ndim
    for i in axes:
        if not places[i].size:
            index[i] = slice(0, 0)
            continue
        start, stop = int(places[i].min()), int(places[i].max()) + 1
        index[i] = slice(start if "f" in trim else None, stop if "b" in trim else None)
    return filt[tuple(index)]


# Diagonals and triangles ---------------------------------------------------------------------------------------------


def diagonal_value(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonal of the last two axes that remain, as NumPy's `diagonal`: a slice of them as one."""
    rank = len(shape_of(a))
    if rank < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    first, second = normalize_axis(axis1, rank), normalize_axis(axis2, rank)
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    rest = [i for i in range(rank) if i not in (first, second)]
    a = transpose_value(a, (*rest, first, second))
    *outer, m, n = shape_of(a)
    start, count = _diagonal(m, n, offset)
    index = slice(start, start + count * (n + 1) - n, n + 1) if count else slice(0, 0, 1)
    flat = reshape_value(a, (*outer, m * n))
    return slice_primitive(flat, index=(*(slice(0, k, 1) for k in outer), index))


def _diagonal(m: int, n: int, offset: int) -> tuple[int, int]:
    """Where a diagonal starts in a flat matrix, and its length."""
    start = offset if offset >= 0 else -offset * n
    return start, max(0, min(m, n - offset) if offset >= 0 else min(m + offset, n))


@on_handles(np.diagonal, "diagonal")
def diagonal(a: Tracer, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracer:

    def layout(strides: list[int]) -> list[int]:
        both = (axis1 % len(strides), axis2 % len(strides))
        return [*(s for i, s in enumerate(strides) if i not in both), strides[both[0]] + strides[both[1]]]

    return read_only_view(a, lambda v: diagonal_value(v, offset, axis1, axis2), layout)


@on_handles(np.diag)
def diag(v: Tracer, k: int = 0) -> Tracer:
    if v.ndim == 2:
        return diagonal(v, k)
    if v.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    return Tracer(_on_diagonal(v._get(), k))


def _on_diagonal(v: Any, k: int) -> Any:
    size = shape_of(v)[0] + abs(k)
    start, count = _diagonal(size, size, k)
    if not count:
        return np.zeros((size, size), type_of(v).dtype)
    index = (slice(start, start + count * (size + 1) - size, size + 1),)
    flat = scatter_slice(np.zeros(size * size, type_of(v).dtype), v, index=index, mode="set")
    return reshape_value(flat, (size, size))


@implements(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Any:
    return _on_diagonal(flat_value(v), k)


@implements(np.trace, method="trace")
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    found = diagonal_value(a, offset, axis1, axis2)
    return unwrap(np.sum(Tracer(found), axis=-1, dtype=dtype))


def target(a: Any, name: str) -> Tracer:
    """The traced array that a function of NumPy's writes to."""
    if not isinstance(a, Tracer):
        raise LostDerivativeError(
            f"np.{name}{user_line()} would write a traced value into a plain array of shape {np.shape(a)}, which can't "
            "hold it. Make the array with wonderland.numpy, or wrap the function in wl.lift."
        )
    return a


@on_handles(np.fill_diagonal)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    a = target(a, "fill_diagonal")
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim == 2:
        step, end = a.shape[1] + 1, a.size if wrap else a.shape[1] * a.shape[1]
    else:
        if len(set(a.shape)) != 1:
            raise ValueError("All dimensions of input must be of equal length")
        step, end = 1 + sum(a.shape[0] ** i for i in range(1, a.ndim)), a.size
    a.flat[:end:step] = val


def _triangle(original: Any, keep: Any) -> None:
    @implements(original)
    def triangle(m: Any, k: int = 0) -> Any:
        shape = shape_of(m)
        if not shape:
            raise ValueError("Input array must be at least 1-d")
        rows, columns = (shape * 2)[-2:]
        mask = keep(np.tri(rows, columns, k if keep is np.asarray else k - 1, dtype=bool))
        return ops.where(mask, m, np.zeros((), type_of(m).dtype)[()])


_triangle(np.tril, np.asarray)
_triangle(np.triu, np.logical_not)

# Indices of an array's own, from its shape alone.
for _from in (np.tril_indices_from, np.triu_indices_from, np.diag_indices_from):
    on_handles(_from)(
        lambda arr, *args, _from=_from, **kwargs: _from(np.broadcast_to(np.False_, arr.shape), *args, **kwargs)
    )


@on_handles(np.ix_)
def ix_(*args: Any) -> tuple[Any, ...]:
    out = []
    for i, item in enumerate(args):
        value = as_value(item)
        if len(shape_of(value)) != 1:
            raise ValueError("Cross index must be 1 dimensional")
        if type_of(value).dtype == bool:
            value = np.nonzero(concrete(value, "a mask in np.ix_ (its result's shape depends on values)"))[0]
        new = reshape_value(value, tuple(shape_of(value)[0] if j == i else 1 for j in range(len(args))))
        out.append(Tracer(new) if isinstance(item, Tracer) else new)
    return tuple(out)


# Padding -------------------------------------------------------------------------------------------------------------


def _pairs(item: Any, rank: int, name: str) -> Any:
    """NumPy's forms of an argument for each side of each axis: a number, (before, after), or one pair per axis."""
    value = as_value(item)
    if len(shape_of(value)) > 2:
        raise ValueError(f"np.pad: {name} {item!r} doesn't fit an array of {rank} dimensions")
    return broadcast_to(value, (rank, 2))


def _width(pad_width: Any, rank: int) -> list:
    if isinstance(pad_width, dict):
        pairs: list = [(0, 0)] * rank
        for axis, item in pad_width.items():
            pair = integers(item, "the width of a pad")
            pairs[normalize_axis(axis, rank)] = pair * 2 if len(pair) == 1 else pair
        return pairs
    width = concrete(_pairs(pad_width, rank, "pad_width"), "the width of a pad (the result's shape depends on it)")
    if width.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    if width.size and width.min() < 0:
        raise ValueError("index can't contain negative values")
    return width.tolist()


_PAD_OPTIONS = {
    "constant": ("constant_values", 0), "linear_ramp": ("end_values", 0), "reflect": ("reflect_type", "even"),
    "symmetric": ("reflect_type", "even"), "edge": None, "wrap": None, "empty": None,
    "maximum": ("stat_length", None), "minimum": ("stat_length", None), "mean": ("stat_length", None),
    "median": ("stat_length", None),
}  # fmt: skip


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    if callable(mode):
        raise TypeError("np.pad on traced arrays takes no function as mode; write the padded part with np.concatenate")
    if mode not in _PAD_OPTIONS:
        raise ValueError(f"mode {mode!r} is not supported")
    name, option = _PAD_OPTIONS[mode] or (None, None)
    if set(kwargs) - {name}:
        raise ValueError(f"unsupported keyword arguments for mode {mode!r}: {set(kwargs) - {name}}")
    option = kwargs.get(name, option) if name else None
    rank = len(shape_of(array))
    for axis, (before, after) in enumerate(_width(pad_width, rank)):
        if before or after:
            if shape_of(array)[axis] == 0 and mode not in ("constant", "empty"):
                raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
            array = _PADDERS[mode](array, axis, before, after, option)
    return array


def _between(x: Any, axis: int, before: Any, after: Any) -> Any:
    """The array between two paddings, in its dtype."""
    kind = type_of(x).dtype
    sides = [s if type_of(s).dtype == kind else convert(s, dtype=kind) for s in (before, after)]
    return concatenate([sides[0], x, sides[1]], axis)


def _side(shape: tuple, axis: int, width: int) -> tuple:
    return (*shape[:axis], width, *shape[axis + 1 :])


def _one(pairs: Any, axis: int, side: int) -> Any:
    return slice_primitive(pairs, index=(axis, side))


def _pad_constant(x: Any, axis: int, before: int, after: int, values: Any) -> Any:
    shape, kind = shape_of(x), type_of(x).dtype
    pairs = _pairs(values, len(shape), "constant_values")
    sides = [
        broadcast_to(convert(_one(pairs, axis, side), dtype=kind), _side(shape, axis, width))
        for side, width in enumerate((before, after))
    ]
    return _between(x, axis, *sides)


def _pad_ramp(x: Any, axis: int, before: int, after: int, values: Any) -> Any:
    shape, kind = shape_of(x), type_of(x).dtype
    pairs = _pairs(values, len(shape), "end_values")
    sides = []
    for side, width in enumerate((before, after)):
        edge, end = part(x, *((0, 1) if side == 0 else (shape[axis] - 1, shape[axis])), axis), _one(pairs, axis, side)
        end = convert(end, dtype=kind)
        places = np.arange(width).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        places = (places if side == 0 else np.flip(places)).astype(kind if kind.kind in "fc" else float)
        ramp = ops.add(ops.mul(places, ops.div(ops.sub(edge, end), float(width or 1))), end)
        sides.append(unwrap(np.floor(Tracer(ramp))) if kind.kind in "iu" else ramp)
    return _between(x, axis, *sides)


def _pad_by_index(mode: Any) -> Any:
    """Modes that repeat elements of the axis: the padding of their numbers tells which."""

    def pad_axis(x: Any, axis: int, before: int, after: int, reflect_type: Any) -> Any:
        n = shape_of(x)[axis]
        if reflect_type not in (None, "even", "odd"):
            raise ValueError(f"np.pad: reflect_type is 'even' or 'odd', not {reflect_type!r}")
        if reflect_type != "odd" or (mode == "reflect" and n == 1):
            return along(x, np.pad(np.arange(n), (before, after), mode), axis)
        # Each period is the one before turned around its end: x[r] + m S where m is even, 2 x[n-1] + (m-1) S - x[n-1-r]
        # where it is odd, with S the difference between the ends, m the number of the period and r the place in it.
        period = n if mode == "symmetric" else n - 1
        m, r = np.divmod(np.arange(-before, n + after), period)
        inside = (np.arange(-before, n + after) >= 0) & (np.arange(-before, n + after) < n)
        m, r = np.where(inside, 0, m), np.where(inside, np.arange(-before, n + after), r)
        odd = m % 2 == 1
        shaped = lambda v: v.reshape([-1 if i == axis else 1 for i in range(len(shape_of(x)))])
        first, last = part(x, 0, 1, axis), part(x, n - 1, n, axis)
        kind = type_of(x).dtype
        steps = ops.mul(shaped((m - odd).astype(kind)), ops.sub(last, first))
        moved = along(x, np.where(odd, n - 1 - r, r), axis)
        turned = ops.sub(ops.mul(np.array(2, kind)[()], last), moved)
        return ops.where(shaped(m == 0), moved, ops.add(steps, ops.where(shaped(odd), turned, moved)))

    return pad_axis


def _pad_statistic(statistic: Any) -> Any:
    """Modes that repeat a statistic of the elements near each end."""

    def pad_axis(x: Any, axis: int, before: int, after: int, stat_length: Any) -> Any:
        shape, n = shape_of(x), shape_of(x)[axis]
        lengths = [n, n]
        if stat_length is not None:
            lengths = [min(int(k), n) for k in np.broadcast_to(np.asarray(stat_length), (len(shape), 2))[axis]]
        if min(lengths) < 1:
            raise ValueError("np.pad: stat_length must be at least 1")
        sides = []
        for width, bounds in ((before, (0, lengths[0])), (after, (n - lengths[1], n))):
            found = unwrap(statistic(Tracer(part(x, *bounds, axis)), axis=axis, keepdims=True))
            if type_of(x).dtype.kind in "iu" and type_of(found).dtype.kind == "f":
                found = unwrap(np.rint(Tracer(found)))
            sides.append(broadcast_to(found, _side(shape, axis, width)))
        return _between(x, axis, *sides)

    return pad_axis


_PADDERS = {
    "constant": _pad_constant, "empty": lambda x, axis, before, after, _: _pad_constant(x, axis, before, after, 0),
    "linear_ramp": _pad_ramp, "maximum": _pad_statistic(np.max), "minimum": _pad_statistic(np.min),
    "mean": _pad_statistic(np.mean), "median": _pad_statistic(np.median),
    **{mode: _pad_by_index(mode) for mode in ("edge", "wrap", "reflect", "symmetric")},
}  # fmt: skip
