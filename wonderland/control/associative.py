"""`associative_scan`: all prefixes of an associative operation, in a number of steps that grows like log n.

Neighbours are combined in pairs, the half as long sequence is scanned in the same way, and the prefixes in between are
filled in: about 2 n operations in about 2 log2(n) calls of the function, each on many elements at once. It is composed
of slices and strided updates, so every transformation applies to it as to any other code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.control.bodies import flat_operands
from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import handles
from wonderland.core.level import Traced, bind_update
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import shape_of, type_of
from wonderland.ops.index import scatter_slice
from wonderland.ops.index import slice as slice_primitive
from wonderland.ops.shape import convert


def associative_scan(fn: Callable, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """The prefixes x1, x1 * x2, x1 * x2 * x3, ... of an associative operation `fn(a, b)`, written a * b.

    `elems` is an array, or a tree of arrays, whose `axis` counts the elements; `fn` gets two such trees with the same
    number of elements, any number, and combines them element by element, keeping shapes and dtypes. The result is like
    `elems`. With `reverse` the scan begins at the last element: `fn`'s first operand is then made of later ones.

    A linear recurrence h_t = a_t h_{t-1} + b_t, in log n steps:

        def combine(left, right):
            (a, b), (c, d) = left, right
            return a * c, c * b + d

        _, h = wl.associative_scan(combine, (a, b))
    """
    check_function(fn, "associative_scan")
    values, structure = flat_operands(elems, "associative_scan")
    if not values:
        raise ArgumentError("associative_scan: there is no array in elems to scan over")
    places = []
    for i, v in enumerate(values):
        rank = len(shape_of(v))
        if not -rank <= axis < rank:
            raise ArgumentError(f"associative_scan: axis {axis} is out of bounds for leaf {i} of shape {shape_of(v)}")
        places.append(axis % rank)
    counts = [shape_of(v)[a] for v, a in zip(values, places, strict=True)]
    if len(set(counts)) > 1:
        raise ArgumentError(
            f"associative_scan: the leaves of elems have different numbers of elements along axis {axis}: {counts}"
        )
    scan = _Scan(fn, structure, places, values)
    if reverse:
        values = [_part(v, a, -1, None) for v, a in zip(values, places, strict=True)]
    out = scan.prefixes(values)
    if reverse:
        out = [_part(v, a, -1, None) for v, a in zip(out, places, strict=True)]
    return structure.unflatten(handles(out))


def _part(x: Any, axis: int, step: int, start: int | None = 0, stop: int | None = None) -> Any:
    """`x[start:stop:step]` along an axis."""
    n = shape_of(x)[axis]
    start, stop, step = slice(start, stop, step).indices(n)
    if step > 0:
        where = slice(start, max(start, stop), step)
    else:
        where = slice(start, None, step) if n else slice(0, 0, 1)
    return slice_primitive(x, index=tuple(where if i == axis else slice(0, m, 1) for i, m in enumerate(shape_of(x))))


class _Scan:
    """The function to scan with, and how its operands look."""

    def __init__(self, fn: Callable, structure: tree.Structure, places: list[int], values: list):
        self.fn, self.structure, self.places = fn, structure, places
        self.dtypes = [type_of(v).dtype for v in values]

    def parts(self, values: list, step: int, start: int | None = 0, stop: int | None = None) -> list:
        return [_part(v, a, step, start, stop) for v, a in zip(values, self.places, strict=True)]

    def count(self, values: list) -> int:
        return shape_of(values[0])[self.places[0]]

    def combine(self, left: list, right: list) -> list:
        """One call of the user's function, checked."""
        operands = (self.structure.unflatten([_handle(v) for v in side]) for side in (left, right))
        leaves, structure = tree.flatten(self.fn(*operands))
        if structure != self.structure:
            raise ArgumentError(
                f"associative_scan: the function must return a tree like its operands, {self.structure}, "
                f"got {structure}"
            )
        out = [unwrap(leaf) for leaf in leaves]
        for i, (o, model, dtype) in enumerate(zip(out, left, self.dtypes, strict=True)):
            found = type_of(o)
            if found.weak and found.shape == shape_of(model) and np.can_cast(found.dtype, dtype, "same_kind"):
                out[i] = convert(o, dtype=dtype)
            elif (found.shape, found.dtype) != (shape_of(model), dtype):
                raise ArgumentError(
                    f"associative_scan: the function must keep shapes and dtypes, but leaf {i} comes in as "
                    f"{type_of(model)} and leaves it as {found}. Convert with .astype, or keep the axis that counts "
                    "the elements: the function gets many at once."
                )
        return out

    def prefixes(self, values: list) -> list:
        """The scan, by halves: prefixes of even length from pairs, then those in between."""
        n = self.count(values)
        if n < 2:
            return values
        pairs = self.combine(self.parts(values, 2, 0, n - 1), self.parts(values, 2, 1))
        odd = self.prefixes(pairs)  # at places 1, 3, 5, ...
        first = self.parts(values, 1, 0, 1)
        if n == 2:
            return self.interleaved(first, None, odd, n)
        before = odd if n % 2 else self.parts(odd, 1, 0, -1)
        return self.interleaved(first, self.combine(before, self.parts(values, 2, 2)), odd, n)

    def interleaved(self, first: list, even: list | None, odd: list, n: int) -> list:
        """Elements 0, 2, 4, ... (the first one apart) and 1, 3, 5, ... put together."""
        out = []
        for i, (a, dtype) in enumerate(zip(self.places, self.dtypes, strict=True)):
            shape = shape_of(first[i])
            box: list = [np.zeros((*shape[:a], n, *shape[a + 1 :]), dtype)]
            for part, start in ((first[i], 0), (odd[i], 1), (None if even is None else even[i], 2)):
                if part is not None:
                    where = slice(start, start + 1 if start == 0 else n, 1 if start == 0 else 2)
                    index = tuple(where if j == a else slice(0, m, 1) for j, m in enumerate(shape))
                    box = [bind_update(scatter_slice, box, part, index=index, mode="set")]
            out.append(box[0])
        return out


def _handle(value: Any) -> Any:
    """What the user's function gets: a tracer for a traced value, otherwise the array itself."""
    return Tracer(value) if isinstance(value, Traced) else value
