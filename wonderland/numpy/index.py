"""Indexing of traced arrays, reading and writing, with NumPy's rules.

An index is put into a normal form: a reshape that inserts the new axes, one int, slice or integer array per axis. Ints
and slices alone are a static `slice` (a view); with integer arrays it is a `slice` followed by a `gather`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.errors import NoValueError
from wonderland.core.level import Traced, bind_update
from wonderland.core.tracer import METHODS, Tracer, concrete, unwrap
from wonderland.core.types import broadcast_shapes, shape_of, type_of
from wonderland.numpy.dispatch import implements, make_view
from wonderland.numpy.shape import normalize_axis, reshape_value, transpose_value
from wonderland.ops.index import gather, scatter, scatter_slice, sliced_shape
from wonderland.ops.index import slice as slice_primitive
from wonderland.ops.shape import broadcast, convert, inverse_permutation

Slice = slice


class Key:
    """A normal-form index of an array of a given shape."""

    def __init__(self, shape: tuple, index: Any):
        entries = list(index) if isinstance(index, tuple) else [index]
        entries = _expand_ellipsis([_entry(e) for e in entries], len(shape))
        self.shape = tuple(shape)
        self.expanded: tuple = ()  # the shape with new axes inserted
        self.static: tuple = ()  # an int or slice for each axis of `expanded`; full slices where an array indexes
        self.arrays: list = []  # (axis after slicing, index array)
        self.inserted: list[bool] = []  # for each axis of `expanded`: is it new?
        expanded, static, source = [], [], iter(shape)
        kept = 0
        for entry in entries:
            self.inserted.append(entry is None)
            if entry is None:
                expanded.append(1)
                static.append(Slice(0, 1, 1))
                kept += 1
                continue
            extent = next(source)
            expanded.append(extent)
            if isinstance(entry, Slice):
                static.append(_resolve(entry, extent))
                kept += 1
            elif isinstance(entry, int):
                static.append(_checked(entry, extent, len(expanded) - 1))
            else:
                _check_array(entry, extent, len(expanded) - 1)
                static.append(Slice(0, extent, 1))
                self.arrays.append((kept, entry))
                kept += 1
        if self.arrays:  # NumPy broadcasts ints with the arrays: let them be arrays too
            self._ints_to_arrays(entries, static)
        self.expanded, self.static = tuple(expanded), tuple(static)

    def _ints_to_arrays(self, entries: list, static: list) -> None:
        if not any(isinstance(s, int) for s in static):
            self._positions(entries)
            return
        arrays, kept, at = [], 0, 0
        for entry in entries:
            if entry is not None and not isinstance(entry, Slice):
                arrays.append((kept, np.intp(static[at]) if isinstance(static[at], int) else entry))
                if isinstance(static[at], int):
                    static[at] = Slice(0, self.shape[at - sum(e is None for e in entries[:at])], 1)
            kept += 1
            at += 1
        self.arrays = arrays
        self._positions(entries)

    def _positions(self, entries: list) -> None:
        """Where the broadcast index axes go: in place of the first if the indices are adjacent, else in front."""
        places = [i for i, e in enumerate(entries) if e is not None and not isinstance(e, Slice)]
        adjacent = places == list(range(places[0], places[0] + len(places)))
        self.front = self.arrays[0][0] if adjacent else 0

    @property
    def is_whole(self) -> bool:
        return all(
            isinstance(s, Slice) and (s.start, s.step) == (0, 1) and s.stop == n
            for s, n in zip(self.static, self.expanded, strict=True)
        )

    def part(self, x: Any) -> Any:
        """The static part of reading."""
        x = reshape_value(x, self.expanded)
        return x if self.is_whole else slice_primitive(x, index=self.static)

    def read(self, x: Any) -> Any:
        """`x[index]`."""
        x = self.part(x)
        if not self.arrays:
            return x
        axes, indices = zip(*self.arrays, strict=True)
        out = gather(x, *indices, axes=axes)
        return transpose_value(out, self._order(len(shape_of(out))))

    def _order(self, rank: int) -> tuple[int, ...]:
        count = len(broadcast_shapes(*(shape_of(i) for _, i in self.arrays)))
        rest = list(range(count, rank))
        return (*rest[: self.front], *range(count), *rest[self.front :])

    def write(self, box: list, value: Any, mode: str = "set") -> Any:
        """`x[index] = value` (or +=), functionally; may overwrite what only `box` holds."""
        x_type = type_of(box[0])
        if not self.arrays:
            target = sliced_shape(self.static)
            value = _fitted(value, target, x_type.dtype)
            if self.is_whole and mode == "set":  # nothing is left of the old value
                return reshape_value(value, x_type.shape)
            if self.expanded == x_type.shape:
                return bind_update(scatter_slice, box, value, index=self.static, mode=mode)
            index = tuple(s for s, new in zip(self.static, self.inserted, strict=True) if not new)
            return bind_update(scatter_slice, box, reshape_value(value, sliced_shape(index)), index=index, mode=mode)
        axes, indices = zip(*self.arrays, strict=True)
        part = self.part(box[0])
        selected = broadcast_shapes(*(shape_of(i) for i in indices))
        rest = tuple(n for i, n in enumerate(shape_of(part)) if i not in axes)
        order = self._order(len(selected) + len(rest))
        shape = (*selected, *rest)
        value = _fitted(value, tuple(shape[i] for i in order), x_type.dtype)
        value = transpose_value(value, inverse_permutation(order))
        if self.is_whole and self.expanded == x_type.shape:
            part = None
            return bind_update(scatter, box, *indices, value, axes=axes, mode=mode)
        part = scatter(part, *indices, value, axes=axes, mode=mode)
        whole = reshape_value(box[0], self.expanded)
        whole = part if self.is_whole else scatter_slice(whole, part, index=self.static, mode="set")
        return reshape_value(whole, x_type.shape)


def _fitted(value: Any, shape: tuple, dtype: np.dtype) -> Any:
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
                    f"could not broadcast input array from shape {kind.shape} into shape {shape}"
                ) from None
            value = broadcast(value, shape=shape)
    return value


def _entry(entry: Any) -> Any:
    """An int, slice, None, Ellipsis or integer array."""
    entry = unwrap(entry)
    if entry is None or entry is Ellipsis:
        return entry
    if isinstance(entry, Slice):
        return Slice(*(None if e is None else _integer(e) for e in (entry.start, entry.stop, entry.step)))
    if isinstance(entry, (list, tuple)):
        entry = np.asarray(entry) if len(entry) else np.zeros(0, int)
    if isinstance(entry, (bool, np.bool_)):
        raise IndexError("a single bool as an index of a traced array isn't supported; use np.where")
    if isinstance(entry, (int, np.integer)):
        return int(entry)
    if not hasattr(entry, "dtype"):
        raise IndexError(
            "only integers, slices, ellipsis, np.newaxis and integer or boolean arrays are valid indices, not "
            f"{entry!r}"
        )
    kind = type_of(entry)
    if kind.dtype == bool:
        return _Mask(np.asarray(concrete(entry, "a boolean mask (its result's shape depends on values)")))
    if kind.dtype.kind not in "iu":
        raise IndexError(
            f"only integers, slices, ellipsis, None and integer or boolean arrays are valid indices, not {kind}"
        )
    if kind.shape == ():
        try:
            return int(concrete(entry, "an index"))
        except NoValueError:
            return entry
    return entry


class _Mask:
    """A boolean index, which stands for as many axes as it has."""

    def __init__(self, mask: np.ndarray):
        self.mask = mask


def _integer(value: Any) -> int:
    return int(concrete(unwrap(value), "a slice bound (the result's shape depends on it)").__index__())


def _expand_ellipsis(entries: list, rank: int) -> list:
    used = sum(e.mask.ndim if isinstance(e, _Mask) else e is not None and e is not Ellipsis for e in entries)
    if used > rank:
        raise IndexError(f"too many indices for array: array is {rank}-dimensional, but {used} were indexed")
    dots = sum(e is Ellipsis for e in entries)
    if dots > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    out: list = []
    for e in entries if dots else [*entries, Ellipsis]:
        if e is Ellipsis:
            out += [Slice(None)] * (rank - used)
        elif isinstance(e, _Mask):
            out += list(np.nonzero(e.mask))
        else:
            out.append(e)
    return out


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


def getitem(self: Tracer, index: Any) -> Any:
    """Read; a view where NumPy gives a view."""
    key = Key(self.shape, index)
    if key.arrays or (key.static and all(isinstance(s, int) for s in key.static)) or not key.expanded:
        return Tracer(key.read(self._get()))
    return make_view(self, key.read, key.write)


def setitem(self: Tracer, index: Any, value: Any) -> None:
    """Write, functionally on the value, in place on the handle."""
    value = unwrap(value)
    if isinstance(value, (list, tuple)):
        from wonderland.numpy.construct import array

        value = unwrap(array(value))
    key = Key(self.shape, index)
    self._update(lambda box: key.write(box, value))


METHODS["__getitem__"] = getitem
METHODS["__setitem__"] = setitem


@implements(np.take, method="take")
def take(a: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    if mode != "raise":
        raise TypeError(f"np.take on traced arrays has mode 'raise' only, not {mode!r}")
    if axis is None:
        a, axis = reshape_value(a, (type_of(a).size,)), 0
    axis = normalize_axis(axis, len(shape_of(a)))
    indices = indices if isinstance(indices, (np.ndarray, np.generic, Traced)) else np.asarray(indices)
    return Key(shape_of(a), (*(Slice(None),) * axis, indices)).read(a)
