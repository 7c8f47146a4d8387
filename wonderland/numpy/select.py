"""NumPy's functions that select elements by indices, conditions or values, and those that write the selected ones.

What depends on values for its shape (`nonzero`, `unique`, `compress`) works where a value is known, in eager
derivatives, and raises elsewhere.
"""

from __future__ import annotations

from typing import Any

from wonderland.core.errors import NoValueError
from wonderland.core.level import Traced
from wonderland.core.tracer import METHODS, Tracer, concrete, unwrap
from wonderland.core.types import broadcast_shapes, promote, shape_of, type_of
from wonderland.numpy.arrange import along, flat_value, target
from wonderland.numpy.dispatch import implements, writing_method
from wonderland.numpy.flat import repeated
from wonderland.numpy.index import Key, setitem
from wonderland.numpy.join import as_value, stack, unstacked
from wonderland.numpy.missing import np
from wonderland.numpy.shape import (
    broadcast_to,
    flat_view,
    integers,
    normalize_axis,
    on_handles,
    one_axis,
    reshape_value,
)
from wonderland.ops import elementwise as ops
from wonderland.ops.shape import convert

# Taking along an axis ------------------------------------------------------------------------------------------------


def bounded(indices: Any, extent: int, mode: str) -> Any:
    """Indices brought into range as the modes of `take`, `put` and `choose` say."""
    if mode == "raise":
        return indices
    if mode not in ("wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    if extent == 0 and type_of(indices).size:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    if not isinstance(indices, Traced):
        return np.mod(indices, extent) if mode == "wrap" else np.clip(indices, 0, extent - 1)
    if mode == "wrap":
        return unwrap(np.remainder(Tracer(indices), extent))
    return ops.minimum(ops.maximum(indices, 0), extent - 1)


@implements(np.take, method="take")
def take(a: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    a, indices = as_value(a), as_value(indices)
    if type_of(indices).dtype == bool:
        indices = convert(indices, dtype=np.dtype(np.intp))
    if type_of(indices).dtype.kind not in "iu":
        raise TypeError(f"Cannot cast array data from {type_of(indices).dtype} to int64 according to the rule 'safe'")
    a, axis = one_axis(a, axis)
    indices = bounded(indices, shape_of(a)[axis], mode)
    return Key(shape_of(a), (*(slice(None),) * axis, indices)).read(a)


def _known(value: Any, name: str) -> Any:
    return np.asarray(concrete(unwrap(value), f"np.{name} (its result's shape depends on values)"))


def _is_known(*values: Any) -> bool:
    try:
        return all(concrete(v, "") is not None for v in values)
    except NoValueError:
        return False


# By place ------------------------------------------------------------------------------------------------------------


def _along_axis(shape: tuple, indices: Any, axis: int) -> tuple:
    """The index of all axes of which one is given by an array of the same rank."""
    if type_of(indices).dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    rank = len(shape)
    if len(shape_of(indices)) != rank:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    return tuple(
        indices if i == axis else np.arange(n).reshape([-1 if j == i else 1 for j in range(rank)])
        for i, n in enumerate(shape)
    )


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    indices = as_value(indices)
    if axis is None:
        if len(shape_of(indices)) != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        arr, axis = flat_value(arr), 0
    arr = as_value(arr)
    axis = normalize_axis(axis, len(shape_of(arr)))
    return Key(shape_of(arr), _along_axis(shape_of(arr), indices, axis)).read(arr)


@on_handles(np.put_along_axis)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    arr = target(arr, "put_along_axis")
    indices = as_value(indices)
    if axis is None:
        arr, axis = flat_view(arr), 0
    setitem(arr, _along_axis(arr.shape, indices, normalize_axis(axis, arr.ndim)), values)


@on_handles(np.put)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    a = target(a, "put")
    indices = flat_value(as_value(ind))
    if shape_of(indices)[0]:
        setitem(flat_view(a), bounded(indices, a.size, mode), repeated(v, shape_of(indices)[0]))


writing_method("put", put)


@implements(np.choose, method="choose")
def choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    a = as_value(a)
    parts = unstacked(choices)
    count = len(parts)
    if type_of(a).dtype == bool:
        a = convert(a, dtype=np.dtype(np.intp))
    if mode == "raise":
        if _is_known(a):
            found = np.asarray(concrete(a, ""))
            if found.size and (found.min() < 0 or found.max() >= count):
                raise ValueError("invalid entry in choice array")
        a = ops.where(ops.lt(a, 0), count, a)  # no counting from the end: out of range where it is used
    a = bounded(a, count, mode)
    shape = broadcast_shapes(shape_of(a), *(shape_of(p) for p in parts))
    whole = stack([broadcast_to(p, shape) for p in parts])
    index = reshape_value(broadcast_to(a, shape), (1, *shape))
    return reshape_value(take_along_axis(whole, index, 0), shape)


@implements(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: Any = "C") -> tuple[Any, ...]:
    indices, shape = as_value(indices), integers(shape)
    if _is_known(indices):
        return np.unravel_index(concrete(indices, ""), shape, order)
    out = []
    for n in shape if order == "F" else reversed(shape):
        quotient, rest = np.divmod(Tracer(indices), n)
        indices = unwrap(quotient)
        out.append(unwrap(rest))
    return tuple(out if order == "F" else reversed(out))


@implements(np.ravel_multi_index)
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: Any = "C") -> Any:
    dims = integers(dims)
    parts = unstacked(multi_index)
    if _is_known(*parts):
        return np.ravel_multi_index(tuple(concrete(i, "") for i in parts), dims, mode, order)
    modes = (mode,) * len(dims) if isinstance(mode, str) else mode
    pairs = [(bounded(i, n, m), n) for i, n, m in zip(parts, dims, modes, strict=True)]
    total: Any = 0
    for i, n in reversed(pairs) if order == "F" else pairs:
        total = ops.add(ops.mul(total, n), i)
    return total


# By condition --------------------------------------------------------------------------------------------------------


@implements(np.select)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if len(condlist) == 0:
        raise ValueError("select with an empty condition list is not possible")
    conditions = [as_value(c) for c in condlist]
    for i, c in enumerate(conditions):
        if type_of(c).dtype != bool:
            raise TypeError(f"invalid entry {i} in condlist: should be boolean ndarray")
    choices = [*choicelist, default]
    choices = [c if type(c) in (int, float, complex) else as_value(c) for c in choices]
    dtype = promote(*(type_of(c) for c in choices))[0]
    choices = [convert(c, dtype=dtype) for c in choices]
    out = choices.pop()
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        out = ops.where(condition, choice, out)
    return broadcast_to(out, broadcast_shapes(*(shape_of(v) for v in (*conditions, *choices, out))))


@implements(np.compress)
def compress(condition: Any, a: Any, axis: int | None = None) -> Any:
    a, condition = as_value(a), _known(as_value(condition), "compress")
    if condition.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    places = np.flatnonzero(condition)
    a, axis = one_axis(a, axis)
    return Key(shape_of(a), (*(slice(None),) * axis, places)).read(a)


METHODS["compress"] = lambda self, condition, axis=None: Tracer(compress(unwrap(condition), self._get(), axis))


@implements(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    arr = flat_value(as_value(arr))
    return along(arr, np.flatnonzero(_known(as_value(condition), "extract")), 0)


@implements(np.nonzero, method="nonzero")
def nonzero(a: Any) -> tuple[Any, ...]:
    return np.nonzero(_known(a, "nonzero"))


@implements(np.flatnonzero)
def flatnonzero(a: Any) -> np.ndarray:
    return np.flatnonzero(_known(a, "flatnonzero"))


@implements(np.argwhere)
def argwhere(a: Any) -> np.ndarray:
    return np.argwhere(_known(a, "argwhere"))


@on_handles(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    x = x if isinstance(x, Tracer) else Tracer(as_value(x))
    single = not isinstance(condlist, (list, tuple)) and np.ndim(condlist) == x.ndim
    single = single or (isinstance(condlist, (list, tuple)) and x.ndim > 0 and np.ndim(condlist[0]) == 0)
    conditions = [as_value(c) for c in ([condlist] if single else condlist)]
    if len(funclist) == len(conditions) + 1:
        default = ops.invert(conditions[0])
        for c in conditions[1:]:
            default = ops.bitwise_and(default, ops.invert(c))
        conditions.append(default)
    if len(funclist) != len(conditions):
        count = len(conditions)
        raise ValueError(f"with {count} condition(s), either {count} or {count + 1} functions are expected")
    out = Tracer(np.zeros(x.shape, x.dtype))
    for condition, f in zip(conditions, funclist, strict=True):
        if _is_known(condition):  # as NumPy: the function sees only the elements that it is for
            mask = np.asarray(concrete(condition, ""))
            out[mask] = f(x[mask], *args, **kw) if callable(f) else f
        else:
            piece = unwrap(f(x, *args, **kw)) if callable(f) else as_value(f)
            out = Tracer(ops.where(condition, convert(piece, dtype=x.dtype), out._get()))
    return out


# Writing -------------------------------------------------------------------------------------------------------------


@on_handles(np.copyto)
def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    dst, src = target(dst, "copyto"), as_value(src)
    if not (np.can_cast(type_of(src).dtype, dst.dtype, casting) or type_of(src).weak):
        raise TypeError(f"Cannot cast array data from {type_of(src).dtype} to {dst.dtype} according to {casting!r}")
    if where is True:
        setitem(dst, ..., src)
    else:
        _merge(dst, as_value(where), broadcast_to(src, dst.shape))


def _merge(a: Tracer, mask: Any, values: Any) -> None:
    """The values where the mask is true, in place."""
    dtype = a.dtype
    setitem(a, ..., ops.where(mask, convert(values, dtype=dtype), a._get()))


@on_handles(np.putmask)
def putmask(a: Any, mask: Any, values: Any) -> None:
    a = target(a, "putmask")
    mask = as_value(mask)
    if type_of(mask).size != a.size:
        raise ValueError("putmask: mask and data must be the same size")
    _merge(a, reshape_value(_truth(mask), a.shape), reshape_value(repeated(values, a.size), a.shape))


@on_handles(np.place)
def place(arr: Any, mask: Any, vals: Any) -> None:
    arr = target(arr, "place")
    mask, vals = as_value(mask), flat_value(as_value(vals))
    if type_of(mask).size != arr.size:
        raise ValueError("place: mask and data must be the same size")
    mask, count = flat_value(_truth(mask)), shape_of(vals)[0]
    if count == 0:
        if not _is_known(mask) or np.any(concrete(mask, "")):
            raise ValueError("Cannot insert from an empty array!")
        return
    number = unwrap(np.cumsum(Tracer(convert(mask, dtype=np.dtype(np.intp)))))  # of the selected elements, from 1
    index = bounded(ops.sub(number, 1), count, "wrap")
    _merge(arr, reshape_value(mask, arr.shape), reshape_value(Key((count,), index).read(vals), arr.shape))


def _truth(mask: Any) -> Any:
    return mask if type_of(mask).dtype == bool else ops.ne(mask, 0)


# By value ------------------------------------------------------------------------------------------------------------


@implements(np.isin)
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    element, tests = as_value(element), as_value(test_elements)
    if _is_known(element, tests):
        return np.isin(concrete(element, ""), concrete(tests, ""), assume_unique, invert, kind=kind)
    each = reshape_value(element, (*shape_of(element), 1))
    found = unwrap(np.any(Tracer(ops.eq(each, flat_value(tests))), axis=-1))
    return ops.invert(found) if invert else found


@on_handles(np.unique)
def unique(
    ar: Tracer, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None, **options: Any,
) -> Any:  # fmt: skip
    value = ar._get()
    known = _known(value, "unique")
    _, index, inverse, counts = np.unique(known, True, True, True, axis=axis, **options)
    value = flat_value(value) if axis is None else value
    found = along(value, index, 0 if axis is None else normalize_axis(axis, ar.ndim))
    extra = [v for v, wanted in ((index, return_index), (inverse, return_inverse), (counts, return_counts)) if wanted]
    return (Tracer(found), *extra) if extra else Tracer(found)


def _unique_record(original: Any, **wanted: bool) -> None:
    """The array API's forms, whose results have names and count every NaN as a value of its own."""

    @on_handles(original)
    def record(x: Tracer, /) -> Any:
        found = unique(x, **wanted, equal_nan=False)
        return type(original(np.zeros(1)))(*found) if wanted else found


_unique_record(np.unique_values)
_unique_record(np.unique_counts, return_counts=True)
_unique_record(np.unique_inverse, return_inverse=True)
_unique_record(np.unique_all, return_index=True, return_inverse=True, return_counts=True)
