"""`wl.at(x)[index].set(value)`: writing to a part of an array as an expression; and the `at` of NumPy's ufuncs.

An array or traced array comes in, a new one goes out. Where an index occurs several times, values accumulate, as
`np.add.at` does it; a value that is set stays if it is the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wonderland.core.errors import NoValueError
from wonderland.core.level import Traced, own
from wonderland.core.tracebacks import edges
from wonderland.core.tracer import UFUNCS, Tracer, concrete, unwrap
from wonderland.core.types import shape_of, type_of
from wonderland.numpy.arrange import part, target
from wonderland.numpy.index import Key, fitted
from wonderland.numpy.join import as_value, concatenate
from wonderland.numpy.missing import np
from wonderland.numpy.shape import broadcast_to, reshape_value
from wonderland.ops import elementwise as ops
from wonderland.ops.index import gather, scatter, scatter_max
from wonderland.ops.math import pow
from wonderland.ops.shape import broadcast


@edges
class at:
    """Parts of an array, to be written functionally: `wl.at(x)[1:3].add(v)` is x with v added to two elements.

    `set`, `add`, `subtract`, `multiply` (or `mul`), `divide`, `power`, `min`, `max` and `apply` return a new array;
    `get` reads. `x` may be an array (then an array comes back) or a traced array, and is not changed.
    """

    __slots__ = ("array",)

    def __init__(self, array: Any):
        self.array: Any = as_value(array)

    def __getitem__(self, index: Any) -> Place:
        return Place(self.array, index)


@edges
class Place:
    """A part of an array: `wl.at(x)[index]`."""

    __slots__ = ("array", "key")

    def __init__(self, array: Any, index: Any):
        self.array: Any = array
        self.key: Key = Key(shape_of(array), index)

    def get(self) -> Any:
        """`x[index]`, as a new array."""
        return _result(self.key.read(self.array))

    def set(self, value: Any) -> Any:
        """`x[index] = value`."""
        return _result(self.key.write([self.array], as_value(value)))

    def apply(self, function: Callable) -> Any:
        """`x[index] = function(x[index])`: once, however often an index occurs."""
        return self.set(function(_result(self.key.read(self.array))))

    def add(self, value: Any) -> Any:
        """`x[index] += value`, for each time that an index occurs."""
        return self._updated("add", value)

    def subtract(self, value: Any) -> Any:
        """`x[index] -= value`, for each time that an index occurs."""
        return self._updated("subtract", value)

    def multiply(self, value: Any) -> Any:
        """`x[index] *= value`, for each time that an index occurs."""
        return self._updated("multiply", value)

    mul = multiply

    def divide(self, value: Any) -> Any:
        """`x[index] /= value`, for each time that an index occurs."""
        return self._updated("divide", value)

    def power(self, value: Any) -> Any:
        """`x[index] **= value`, for each time that an index occurs."""
        return self._updated("power", value)

    def min(self, value: Any) -> Any:
        """The smaller of `x[index]` and the values for it; at a tie the derivative is shared equally."""
        return self._updated("minimum", value)

    def max(self, value: Any) -> Any:
        """The larger of `x[index]` and the values for it; at a tie the derivative is shared equally."""
        return self._updated("maximum", value)

    def _updated(self, name: str, value: Any) -> Any:
        return _result(_update([self.array], self.key, name, as_value(value)))


def _result(value: Any) -> Any:
    return Tracer(value) if isinstance(value, Traced) else own([value])[0]


def _update(box: list, key: Key, name: str, value: Any) -> Any:
    """`x[index] op= value` for each occurrence of an index; may overwrite what only `box` holds."""
    kind = type_of(box[0]).dtype
    result = getattr(np, name)(np.ones(1, kind), np.ones(1, type_of(value).dtype)).dtype
    if not np.can_cast(result, kind, "same_kind"):
        raise TypeError(f"Cannot cast ufunc '{name}' output from {result} to {kind} with casting rule 'same_kind'")
    if name == "subtract":
        name, value = "add", ops.neg(value)
    operation = _OPERATIONS[name]
    if key.mask is not None:
        return key.write_masked(box, value, operation)
    if name == "add":
        return key.write(box, value, "add")
    if not key.arrays:  # no element occurs twice
        new = operation(key.read(box[0]), fitted(value, key.result_shape(), kind, False))
        return key.write(box, new)
    value = key.to_gathered(fitted(value, key.result_shape(), kind, True))
    if name in ("minimum", "maximum"):
        return key.put_part(box[0], _extremum(key.part(box[0]), key, value, name == "minimum"))
    factors = key.put_part(broadcast(np.ones((), kind)[()], shape=shape_of(box[0])), _products(key, value))
    return operation(box[0], factors)


_OPERATIONS: dict[str, Callable] = {
    "add": ops.add, "multiply": ops.mul, "divide": ops.div, "power": pow, "minimum": ops.minimum,
    "maximum": ops.maximum,
}  # fmt: skip


def _extremum(x: Any, key: Key, value: Any, smallest: bool) -> Any:
    axes, indices = zip(*key.arrays, strict=True)
    if not smallest:
        return scatter_max(x, *indices, value, axes=axes)
    flip = ops.invert if type_of(x).dtype.kind in "bu" else ops.neg  # order-reversing, and its own inverse
    return flip(scatter_max(flip(x), *indices, flip(value), axes=axes))


def _products(key: Key, value: Any) -> Any:
    """Ones, with the product of the values that are for it in the place of each element.

    Values for the same element are brought together by sorting, and multiplied by doubling steps: products alone, so
    that zeros are nothing special for derivatives of any order.
    """
    axes, indices = zip(*key.arrays, strict=True)
    rank, count = len(key.selected), int(np.prod(key.selected))
    shape = shape_of(key_part := key.part(np.broadcast_to(np.ones((), type_of(value).dtype), key.shape)))
    extents = tuple(shape[a] for a in axes)
    indices = [reshape_value(broadcast_to(i, key.selected), (count,)) for i in indices]
    value = reshape_value(value, (count, *shape_of(value)[rank:]))
    places, longest = _places(indices, extents, count)
    if longest > 1:
        order = _order(places)
        places, value, *indices = (gather(v, order, axes=(0,)) for v in (places, value, *indices))
        step = 1
        while step < longest:
            same = ops.eq(part(places, step, count, 0), part(places, 0, count - step, 0))
            same = reshape_value(same, (count - step, *(1,) * (len(shape_of(value)) - 1)))
            before = ops.where(same, part(value, 0, count - step, 0), np.ones((), type_of(value).dtype)[()])
            value = concatenate([part(value, 0, step, 0), ops.mul(part(value, step, count, 0), before)])
            step *= 2
    return scatter(key_part, *indices, value, axes=axes, mode="set")


def _places(indices: list, extents: tuple, count: int) -> tuple[Any, int]:
    """A number for each place that is written, and how often one may occur."""
    try:
        known = [np.asarray(concrete(i, "")) for i in indices]
        places = np.ravel_multi_index([np.where(i < 0, i + n, i) for i, n in zip(known, extents, strict=True)], extents)
        return places, int(np.bincount(np.unique(places, return_inverse=True)[1]).max(initial=0))
    except NoValueError:
        total: Any = 0
        for i, n in zip(indices, extents, strict=True):
            total = ops.add(ops.mul(total, n), ops.where(ops.lt(i, 0), ops.add(i, n), i))
        return total, count


def _order(places: Any) -> Any:
    if isinstance(places, Traced):
        return unwrap(np.argsort(Tracer(places), kind="stable"))
    return np.argsort(places, kind="stable")


def _ufunc_at(name: str) -> Callable:
    def in_place(a: Any, indices: Any, b: Any) -> None:
        a = target(a, f"{name}.at")
        key, value = Key(a.shape, indices), as_value(b)
        a._update(lambda box: _update(box, key, name, value))

    return in_place


for _name in (*_OPERATIONS, "subtract"):
    UFUNCS[getattr(np, _name), "at"] = _ufunc_at(_name)
