"""Sorting: the code of a procedure that puts the numbers of a row in order.

Numbers are turned into unsigned integers of their size that are ordered alike (NaN last, as in NumPy), and back in the
end. Short rows are sorted by counting smaller numbers, longer ones by merging such runs, and long ones digit by digit
from the least significant byte on; all keep the order of equal numbers. A digit that is the same everywhere costs
nothing: small integers are sorted in one or two rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.compile import ir
from wonderland.compile.nodes import Number
from wonderland.compile.scalars import TYPES, Scalar, Unsupported
from wonderland.compile.vecmath.formula import where
from wonderland.core.types import ArrayType

RUN = 32  # numbers that are sorted by counting
MERGED = {8: 512, 4: 96, 2: 64, 1: 64}  # the longest rows that are merged from runs, for keys of so many bytes
BITS = {16: np.dtype(np.uint16), 32: np.dtype(np.uint32)}
I32, I64 = np.dtype(np.int32), np.dtype(np.int64)
LINE = 64  # bytes


def sorter(n: int, dtype: np.dtype, places: bool) -> tuple[Callable[..., Any], int, float]:
    """The code for rows of n numbers, the bytes of scratch memory that it needs, and nanoseconds for a row.

    With `places`, the result is where the numbers come from; otherwise the numbers themselves.
    """
    if dtype.kind == "c":
        raise Unsupported("the order of complex numbers, which no key has")
    key = np.dtype(f"u{dtype.itemsize}")
    place = I32 if n < 1 << 31 else I64
    long = n > MERGED[key.itemsize]
    arrays, start = {}, 0  # what is after the last key is read, but decides nothing
    for name, size in (
        ("keys", n * key.itemsize), ("places", n * place.itemsize * places),
        ("other keys", max(n, RUN) * key.itemsize), ("other places", n * place.itemsize * (n > RUN and places)),
        ("counts", 256 * key.itemsize * place.itemsize * long),
    ):  # fmt: skip
        arrays[name] = start
        start += (size // LINE + 1) * LINE
    if n <= RUN:
        size, cost = 16 if n <= 16 else RUN, 4 * n
        way = lambda code, x, row: _rank(code, x, row, code.number(0), x.extent(), size)
    elif not long:
        way, cost = _by_merging, n * (4 + 3 * (n // RUN).bit_length())
    else:
        way, cost = _by_digits, (2 + key.itemsize) * (n + 256) * (1.5 if places else 1.0)

    def sort(code: Any, out: Any, x: Any, scratch: ir.Value) -> None:
        length = x.extent()
        row = KeyRow(code, {name: code.shifted(scratch, offset) for name, offset in arrays.items()}, key, place, places)
        way(code, x, row)
        keys, numbers = row.read("keys"), row.read("places")
        with code.loop(0, length) as i:
            out.store(numbers.load(i).convert(I64) if places else _number_of(keys.load(i), dtype), i)

    return sort, start, cost


def lower(builder: Any, x: Any, axis: int, places: bool) -> Any:
    """The numbers of each row along an axis in order, or the places where they come from; equal ones stay."""
    out = ArrayType(x.shape, I64 if places else x.dtype)
    if x.type.size == 0 or x.shape[axis] == 1:
        return Number(out, 0) if places else x
    last = (*(i for i in range(len(x.shape)) if i != axis), axis)
    x = builder.transpose(x, last)
    code, scratch, cost = sorter(x.shape[-1], x.dtype, places)
    rows = len(x.shape) - 1
    made = builder.procedure("sort", code, [x], ArrayType(x.shape, out.dtype), rows, cost=cost, scratch=scratch)
    return builder.transpose(made, tuple(int(i) for i in np.argsort(last)))


class KeyRow:
    """The keys (and places) of a row, and room for as many; both change their roles while sorting goes on."""

    def __init__(self, code: Any, at: dict[str, ir.Value], key: np.dtype, place: np.dtype, places: bool):
        self.code, self.key, self.place, self.places = code, key, place, places
        self.variables: dict[str, Any] = {name: code.f.variable(at[name]) for name in at if name != "counts"}
        self.counts: Any = code.buffer(at["counts"], place)

    def read(self, name: str) -> Any:
        """One of the arrays."""
        return self.code.buffer(self.variables[name].get(), self.place if "places" in name else self.key)

    def swap(self) -> None:
        for name in ("keys", "places"):
            now, other = self.variables[name], self.variables[f"other {name}"]
            pointers = now.get(), other.get()
            now.set(pointers[1])
            other.set(pointers[0])


def _rank(code: Any, x: Any, row: KeyRow, start: Scalar, stop: Scalar, size: int) -> None:
    """Sort a run of at most `size` numbers: each goes where as many are as there are smaller ones, without a branch."""
    keys, numbers, run = row.read("keys"), row.read("places"), row.read("other keys")
    with code.loop(0, size) as i:
        run.store(code.constant(-1, row.key), i)
    with code.loop(start, stop) as i:
        run.store(_key_of(x.load(i), row.places), i - start)
    every = code.f.load(ir.vector(TYPES[row.key], size), run.pointer, align=8)
    with code.loop(start, stop) as i:
        place = i - start
        new = run.load(place)
        all_of_it = code.f.splat(new, size)
        smaller, same = (
            Scalar(code.f.compare(how, every, all_of_it, signed=False).bitcast(f"i{size}").text, BITS[size], code)
            for how in ("lt", "eq")
        )
        before = (code.constant(1, BITS[size]) << place.convert(BITS[size])) - 1  # of equal numbers, those
        to = start + code.intrinsic("ctpop", smaller | same & before).convert(I64)
        keys.store(new, to)
        if row.places:
            numbers.store(i.convert(row.place), to)


def _by_merging(code: Any, x: Any, row: KeyRow) -> None:
    n = x.extent()

    def part(start: Scalar, size: Scalar) -> Scalar:
        return code.intrinsic("smin", start + size, n)

    start = code.variable(code.number(0))
    with code.repeat(lambda: start.get() < n):
        stop = part(start.get(), code.number(RUN))
        _rank(code, x, row, start.get(), stop, RUN)
        start.set(stop)
    width = code.variable(code.number(RUN))
    with code.repeat(lambda: width.get() < n):
        start.set(code.number(0))
        with code.repeat(lambda: start.get() < n):
            middle = part(start.get(), width.get())
            stop = part(middle, width.get())
            _merge(code, row, start.get(), middle, stop)
            start.set(stop)
        row.swap()
        width.set(width.get() + width.get())


def _merge(code: Any, row: KeyRow, start: Scalar, middle: Scalar, stop: Scalar) -> None:
    """Two neighbouring runs become one in the other arrays; of equal keys, those of the left run come first."""
    keys, numbers = row.read("keys"), row.read("places")
    new_keys, new_numbers = row.read("other keys"), row.read("other places")
    left, right = code.variable(start), code.variable(middle)
    with code.loop(start, stop) as k:
        i, j = left.get(), right.get()
        a, b = keys.load(i), keys.load(j)
        left_empty = i >= middle
        from_right = (j < stop) & (left_empty | (b < a))
        new_keys.store(where(from_right, b, a), k)
        if row.places:
            new_numbers.store(numbers.load(where(from_right, j, i)), k)
        taken = from_right.convert(I64)
        right.set(j + taken)
        left.set(i + 1 - taken)


def _digit(key: Scalar, shift: Scalar) -> Scalar:
    return ((key >> shift.convert(key.dtype)) & 255).convert(I64)


def _count(counts: Any, index: Scalar) -> Scalar:
    """One more of a digit; returns how many there were."""
    old = counts.load(index)
    counts.store(old + 1, index)
    return old


def _read(code: Any, x: Any, row: KeyRow) -> None:
    """The keys of a row, and how often each has each digit."""
    keys, numbers = row.read("keys"), row.read("places")
    with code.loop(0, 256 * row.key.itemsize) as i:
        row.counts.store(code.constant(0, row.place), i)
    with code.loop(0, x.extent()) as i:
        key = _key_of(x.load(i), row.places)
        keys.store(key, i)
        if row.places:
            numbers.store(i.convert(numbers.dtype), i)
        for byte in range(key.dtype.itemsize):
            _count(row.counts, _digit(key, code.constant(8 * byte, I64)) + 256 * byte)


def _by_digits(code: Any, x: Any, row: KeyRow) -> None:
    _read(code, x, row)
    n, counts = x.extent(), row.counts
    with code.loop(0, row.key.itemsize) as byte:
        keys, numbers = row.read("keys"), row.read("places")
        shift, table = byte * 8, byte * code.number(256)
        same = counts.load(table + _digit(keys.load(0), shift))
        with code.when(same.differs(n.convert(row.place))):
            total = code.variable(code.constant(0, row.place))
            with code.loop(0, 256) as digit:  # counts become the places where the numbers with each digit start
                index = table + digit
                count = counts.load(index)
                counts.store(total.get(), index)
                total.add(count)
            new_keys, new_numbers = row.read("other keys"), row.read("other places")
            with code.loop(0, n) as i:
                moved = keys.load(i)
                to = _count(counts, table + _digit(moved, shift)).convert(I64)
                new_keys.store(moved, to)
                if row.places:
                    new_numbers.store(numbers.load(i), to)
            row.swap()


def _key_of(x: Scalar, places: bool) -> Scalar:
    """An unsigned integer that is ordered like x. Where only places are wanted, both zeros have the same."""
    key, sign = np.dtype(f"u{x.dtype.itemsize}"), 1 << (8 * x.dtype.itemsize - 1)
    if x.dtype.kind != "f":
        return x.convert(key) ^ sign if x.dtype.kind == "i" else x.convert(key)
    if places:
        x = x + 0.0
    pattern = x.bitcast(key)
    ordered = pattern ^ (_spread_sign(pattern) | sign)
    return where(x.differs(x), -1, ordered)


def _spread_sign(pattern: Scalar) -> Any:
    """All ones if the highest bit is set, otherwise zero."""
    signed = pattern.convert(np.dtype(f"i{pattern.dtype.itemsize}"))
    return (signed >> (8 * pattern.dtype.itemsize - 1)).convert(pattern.dtype)


def _number_of(key: Scalar, dtype: np.dtype) -> Scalar:
    """The number with a key."""
    sign = 1 << (8 * key.dtype.itemsize - 1)
    if dtype.kind != "f":
        return (key ^ sign if dtype.kind == "i" else key).convert(dtype)
    return (key ^ (~_spread_sign(key) | sign)).bitcast(dtype)
