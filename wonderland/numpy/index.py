"""Indexing of traced arrays, reading and writing, with NumPy's rules.

An index is put into a normal form: a reshape that inserts the new axes, one int, slice or integer array per axis. Ints
and slices alone are a static `slice` (a view); with integer arrays it is a `slice` followed by a `gather`. A mask whose
values aren't known can't be read through, but one number can be written through it: that is a `where`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cached_property
from typing import Any

from wonderland.core.errors import NoValueError
from wonderland.core.level import Traced, bind_update
from wonderland.core.tracer import METHODS, Tracer, concrete, unwrap
from wonderland.core.types import broadcast_shapes, shape_of, type_of
from wonderland.numpy.join import as_value
from wonderland.numpy.missing import np
from wonderland.numpy.shape import StridedView, reshape_value, transpose_value
from wonderland.ops import elementwise as ops
from wonderland.ops.index import gather, scatter, scatter_slice, sliced_shape
from wonderland.ops.index import slice as slice_primitive
from wonderland.ops.shape import broadcast, convert, inverse_permutation

Slice = slice
MASKED = "a boolean mask, x[mask], whose result's shape depends on values (write np.where(mask, new, x)),"
UPDATES: dict[str, Callable[..., Any]] = {"set": lambda old, new: new, "add": ops.add}


class Key:
    """A normal-form index of an array of a given shape."""

    mask_axis: int
    expanded: tuple[int, ...]
    static: tuple[Any, ...]
    inserted: list[bool]

    def __init__(self, shape: tuple[Any, ...], index: Any):
        entries = [_entry(e) for e in index] if isinstance(index, tuple) else [_entry(index)]
        self.shape: tuple[Any, ...] = tuple(shape)
        self.dots: bool = any(e is Ellipsis for e in entries)
        self.arrays: list[Any] = []  # (axis after slicing, index array)
        self.mask: Any = None  # a mask without values
        items = _expanded(entries, self.shape)
        advanced = any(_is_array(e) for e in items)
        expanded: list[int] = []  # the shape with new axes inserted
        static: list = []  # an int or slice for each axis of `expanded`; full slices where an array indexes
        inserted: list[bool] = []  # for each axis of `expanded`: is it new?
        axis = 0
        for entry in items:
            if entry is Ellipsis:
                continue
            if isinstance(entry, _Unknown):
                if advanced or self.mask is not None:
                    concrete(entry.mask, MASKED)
                self.mask, self.mask_axis = entry.mask, len(static) - sum(isinstance(s, int) for s in static)
                count = len(shape_of(entry.mask))
                static += [Slice(0, n, 1) for n in self.shape[axis : axis + count]]
                expanded += self.shape[axis : axis + count]
                inserted += [False] * count
                axis += count
                continue
            new = entry is None or isinstance(entry, _Fresh)
            extent = 1 if new else self.shape[axis]
            if isinstance(entry, Slice):
                static.append(_resolve(entry, extent))
            elif isinstance(entry, int) and not advanced:
                static.append(_checked(entry, extent, axis))
            else:
                if entry is not None:  # NumPy broadcasts ints with the arrays: let them be arrays too
                    found = entry.index if isinstance(entry, _Fresh) else entry
                    found = np.intp(_checked(found, extent, axis)) if isinstance(found, int) else found
                    _check_array(found, extent, axis)
                    self.arrays.append((len(static), found))
                static.append(Slice(0, extent, 1))
            expanded.append(extent)
            inserted.append(new)
            axis += not new
        self.expanded, self.static, self.inserted = tuple(expanded), tuple(static), inserted
        self.is_whole: bool = all(
            isinstance(s, Slice) and s.start == 0 and s.step == 1 and s.stop == n
            for s, n in zip(static, expanded, strict=True)
        )
        if self.arrays:
            self._place_arrays(items)

    def _place_arrays(self, items: list) -> None:
        """Where the broadcast index axes go: in place of the first if the indices are adjacent, else in front."""
        shapes = [shape_of(i) for _, i in self.arrays]
        try:
            self.selected: Any = broadcast_shapes(*shapes)
        except ValueError:
            raise IndexError(
                "shape mismatch: indexing arrays could not be broadcast together with shapes "
                + " ".join(map(str, shapes))
            ) from None
        places = [i for i, e in enumerate(items) if _is_array(e) or isinstance(e, int)]
        adjacent = places == list(range(places[0], places[0] + len(places)))
        self.front = self.arrays[0][0] if adjacent else 0

    @cached_property
    def is_view(self) -> bool:
        """Does NumPy give a view for it? Ints and slices do, unless they select one element."""
        if any(shape_of(i) for _, i in self.arrays):
            return False
        return self.dots or len(self.arrays) + sum(isinstance(s, int) for s in self.static) < len(self.static)

    @cached_property
    def is_static(self) -> bool:
        """Is it nothing but ints and slices?"""
        return self.mask is None and not self.arrays and self.expanded == self.shape

    @cached_property
    def view(self) -> KeyView:
        return KeyView(self)

    def then(self, other: Key) -> Key:
        """The index that reads at once what this one and then the other one read; both are static."""
        index, rest = [], iter(other.static)
        for s in self.static:
            if isinstance(s, int):
                index.append(s)
                continue
            places, e = range(s.start, -1 if s.stop is None else s.stop, s.step), next(rest)
            if isinstance(e, int):
                index.append(places[e])
            else:
                places = places[e]
                stop = None if places.stop < 0 else places.stop
                index.append(Slice(places.start, stop, places.step) if places else Slice(0, 0, 1))
        return Key(self.shape, (*index, *((Ellipsis,) if self.dots or other.dots else ())))

    def part(self, x: Any) -> Any:
        """The static part of reading."""
        x = reshape_value(x, self.expanded)
        return x if self.is_whole else slice_primitive(x, index=self.static)

    def read(self, x: Any) -> Any:
        """`x[index]`."""
        if self.mask is not None:
            concrete(self.mask, MASKED)
        x = self.part(x)
        if not self.arrays:
            return x
        axes, indices = zip(*self.arrays, strict=True)
        out = gather(x, *indices, axes=axes)
        return transpose_value(out, self._order(len(shape_of(out))))

    def _order(self, rank: int) -> tuple[int, ...]:
        count = len(self.selected)
        rest = list(range(count, rank))
        return (*rest[: self.front], *range(count), *rest[self.front :])

    def result_shape(self) -> tuple[Any, ...]:
        """The shape of `x[index]`."""
        shape = sliced_shape(self.static)
        if not self.arrays:
            return shape
        axes = {axis for axis, _ in self.arrays}
        whole = (*self.selected, *(n for i, n in enumerate(shape) if i not in axes))
        return tuple(whole[i] for i in self._order(len(whole)))

    def strides(self, strides: list[int]) -> list[int]:
        """Where the index makes a view: how that lies in memory, in which the array has these strides."""
        gone, source = {axis for axis, _ in self.arrays}, iter(strides)
        out = []
        for axis, (s, new) in enumerate(zip(self.static, self.inserted, strict=True)):
            step = 0 if new else next(source)
            if isinstance(s, Slice) and axis not in gone:
                out.append(step * s.step)
        return out

    def write(self, box: list[Any], value: Any, mode: str = "set") -> Any:
        """`x[index] = value` (or +=), functionally; may overwrite what only `box` holds."""
        if self.mask is not None:
            return self.write_masked(box, value, UPDATES[mode])
        x_type = type_of(box[0])
        value = fitted(value, self.result_shape(), x_type.dtype, bool(self.arrays))
        if not self.arrays:
            if self.is_whole and mode == "set":  # nothing is left of the old value
                return reshape_value(value, x_type.shape)
            if self.expanded == x_type.shape:
                return bind_update(scatter_slice, box, value, index=self.static, mode=mode)
            index = tuple(s for s, new in zip(self.static, self.inserted, strict=True) if not new)
            return bind_update(scatter_slice, box, reshape_value(value, sliced_shape(index)), index=index, mode=mode)
        axes, indices = zip(*self.arrays, strict=True)
        value = self.to_gathered(value)
        if self.is_whole and self.expanded == x_type.shape:
            return bind_update(scatter, box, *indices, value, axes=axes, mode=mode)
        return self.put_part(box[0], scatter(self.part(box[0]), *indices, value, axes=axes, mode=mode))

    def to_gathered(self, value: Any) -> Any:
        """A value of the result's shape, with the axes of the index arrays in front."""
        return transpose_value(value, inverse_permutation(self._order(len(shape_of(value)))))

    def put_part(self, x: Any, part: Any) -> Any:
        """The array with its static part replaced."""
        if not self.is_whole:
            part = scatter_slice(reshape_value(x, self.expanded), part, index=self.static, mode="set")
        return reshape_value(part, shape_of(x))

    def write_masked(self, box: list[Any], value: Any, update: Callable) -> Any:
        """Write through a mask without values: the value may not have an axis for the selected elements."""
        part, mask_rank = self.part(box[0]), len(shape_of(self.mask))
        shape = shape_of(part)
        behind = len(shape) - self.mask_axis - mask_rank
        value = as_value(value)
        given = shape_of(value)
        if len(given) > behind:
            if given[len(given) - behind - 1] != 1:
                concrete(self.mask, f"{MASKED} with values of shape {given},")
            cut = len(given) - behind
            value = reshape_value(value, (*given[: cut - 1], *(1,) * mask_rank, *given[cut:]))
        mask = reshape_value(self.mask, (*shape_of(self.mask), *(1,) * behind))
        value = update(part, fitted(value, shape, type_of(part).dtype, True))
        return self.put_part(box[0], ops.where(mask, value, part))


class KeyView(StridedView):
    """The view that an index makes."""

    __slots__ = ("key",)

    def __init__(self, key: Key):
        direct = key.is_static and not key.is_whole  # by far the most: no detours
        read = (lambda x: slice_primitive(x, index=key.static)) if direct else key.read
        super().__init__(read, key.write, key.strides)
        self.key: Key = key


def fitted(value: Any, shape: tuple[Any, ...], dtype: np.dtype, by_arrays: bool) -> Any:
    """A value to be written: converted to the array's dtype and broadcast to the part's shape."""
    value = value if isinstance(value, (np.ndarray, np.generic, Traced)) else np.asarray(value)[()]
    kind = type_of(value)
    if kind.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(f"can't write complex values ({kind.dtype}) into an array of dtype {dtype}")
    if kind.dtype != dtype:
        value = convert(value, dtype=dtype)
    if kind.shape != shape:
        lead = len(kind.shape) - len(shape)
        if lead > 0 and all(n == 1 for n in kind.shape[:lead]):
            value = reshape_value(value, kind.shape[lead:])
        if shape_of(value) != shape:
            try:
                np.broadcast_to(np.empty(shape_of(value), bool), shape)
            except ValueError:
                raise ValueError(
                    f"shape mismatch: value array of shape {kind.shape} could not be broadcast to indexing result of "
                    f"shape {shape}"
                    if by_arrays
                    else f"could not broadcast input array from shape {kind.shape} into shape {shape}"
                ) from None
            value = broadcast(value, shape=shape)
    return value


# The entries of an index ---------------------------------------------------------------------------------------------


class _Mask:
    """A boolean index, which stands for as many axes as it has."""

    def __init__(self, mask: Any):
        self.mask = mask


class _Unknown(_Mask):
    """A boolean index whose values aren't known."""


class _Fresh:
    """A new axis of one element and an index for it: what a single bool means."""

    def __init__(self, index: np.ndarray):
        self.index = index


def _is_array(entry: Any) -> bool:
    return isinstance(entry, (np.ndarray, Traced, _Fresh))


def _entry(entry: Any) -> Any:
    """An int, slice, None, Ellipsis, integer array or mask."""
    entry = unwrap(entry)
    if entry is None or entry is Ellipsis or type(entry) is int:
        return entry
    if isinstance(entry, Slice):
        return Slice(*(None if e is None else _integer(e) for e in (entry.start, entry.stop, entry.step)))
    if isinstance(entry, (list, tuple)):
        entry = as_value(entry) if len(entry) else np.zeros(0, int)
    if isinstance(entry, (bool, np.bool_)):
        return _Mask(np.asarray(entry))
    if isinstance(entry, np.integer):
        return int(entry)
    if not hasattr(entry, "dtype"):
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are "
            f"valid indices, not {entry!r}"
        )
    kind = type_of(entry)
    if kind.dtype == bool:
        try:
            return _Mask(np.asarray(concrete(entry, MASKED)))
        except NoValueError:
            if kind.shape == ():
                raise
            return _Unknown(entry)
    if kind.dtype.kind not in "iu":
        raise IndexError(f"arrays used as indices must be of integer (or boolean) type, not {kind}")
    if kind.shape == ():
        try:
            return int(concrete(entry, "an index"))
        except NoValueError:
            return entry
    return entry


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    return operator.index(concrete(unwrap(value), "a slice bound (the result's shape depends on it)"))


def _expanded(entries: list, shape: tuple) -> list:
    """One entry per axis, new ones included. An ellipsis stays, before what it means: it parts index arrays."""
    rank = len(shape)
    used = sum(len(shape_of(e.mask)) if isinstance(e, _Mask) else e is not None and e is not Ellipsis for e in entries)
    if used > rank:
        raise IndexError(f"too many indices for array: array is {rank}-dimensional, but {used} were indexed")
    dots = sum(e is Ellipsis for e in entries)
    if dots > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    out: list = []
    axis = 0
    for e in entries if dots else [*entries, Ellipsis]:
        if e is Ellipsis:
            out += [Ellipsis, *[Slice(None)] * (rank - used)]
            axis += rank - used
        elif isinstance(e, _Mask):
            extents = shape_of(e.mask)
            _check_mask(extents, shape, axis)
            axis += len(extents)
            if isinstance(e, _Unknown):
                out.append(e)
            elif extents:
                out += np.nonzero(e.mask)
            else:
                out.append(_Fresh(np.zeros(int(e.mask), int)))
        else:
            out.append(e)
            axis += e is not None
    return out


def _check_mask(extents: tuple, shape: tuple, axis: int) -> None:
    for i, n in enumerate(extents):
        if n != shape[axis + i]:
            raise IndexError(
                f"boolean index did not match indexed array along axis {axis + i}; size of axis is {shape[axis + i]} "
                f"but size of corresponding boolean axis is {n}"
            )


def _checked(index: int, extent: int, axis: int) -> int:
    if not -extent <= index < extent:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {extent}")
    return index % extent


def _check_array(index: Any, extent: int, axis: int) -> None:
    """Indices that are known are checked at once; the others where they are used."""
    if isinstance(index, np.ndarray) and index.size:
        for bound in (int(index.min()), int(index.max())):
            _checked(bound, extent, axis)


def _resolve(s: slice, extent: int) -> slice:
    start, stop, step = s.indices(extent)
    if step > 0:
        return Slice(start, max(start, stop), step)
    if stop >= start:  # empty: normalise, so that bounds are never negative
        return Slice(0, 0, 1)
    return Slice(start, None if stop < 0 else stop, step)


# Reading and writing -------------------------------------------------------------------------------------------------


_keys: dict[tuple, Key] = {}  # of single ints and slices, which loops use again and again


def key_of(shape: tuple[Any, ...], index: Any) -> Key:
    """The normal form of an index."""
    if type(index) is int:
        name: tuple = (shape, index)
    elif type(index) is Slice:
        start, stop, step = index.start, index.stop, index.step
        name = (shape, start, stop, step, type(start), type(stop), type(step))  # 1.0 is refused, after 1 too
    else:
        return Key(shape, index)
    try:
        key = _keys.get(name)
    except TypeError:  # traced bounds
        return Key(shape, index)
    if key is None:
        if len(_keys) > 10_000:
            _keys.clear()
        key = _keys[name] = Key(shape, index)
    return key


def located(handle: Tracer, index: Any) -> tuple[Tracer, Key]:
    """Where an index of a handle reads and writes. A part of a part is a part of the whole: a row isn't touched for one
    of its elements."""
    if handle._base is None or type(handle._view) is not KeyView or not handle._view.key.is_static:
        return handle, key_of(handle.shape, index)
    outer = handle._view.key
    key = key_of(outer.result_shape(), index)
    return (handle._base, outer.then(key)) if key.is_static else (handle, key)


def getitem(self: Tracer, index: Any) -> Any:
    """Read; a view where NumPy gives a view."""
    base, key = located(self, index)
    if key.is_view and (key.shape or not base._is_number()):
        return Tracer(None, base, key.view)
    return Tracer(key.read(base._get()))


def setitem(self: Tracer, index: Any, value: Any) -> None:
    """Write, functionally on the value, in place on the handle."""
    value = as_value(value) if isinstance(value, (list, tuple)) else unwrap(value)
    base, key = located(self, index)
    base._update(lambda box: key.write(box, value))


METHODS["__getitem__"] = getitem
METHODS["__setitem__"] = setitem
