"""The loops of a kernel: what is to be computed where comes in, instructions go out.

A `Scope` is the inside of one loop. A loop isn't put into the one around it until it is closed, so that a value can
still go into a loop further out. Extents and strides up to 16 are written into the code; others, and the 1/n of a mean,
are read from a table at run time, so that another batch size gives the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from wonderland.compile import ir
from wonderland.compile.emitter import Emitter, Scalar, memory_type
from wonderland.compile.kernel import Kernel
from wonderland.compile.nodes import Number
from wonderland.compile.scalars import literal

BAKED = 16  # numbers up to this are part of the code
I64, FLOAT32, FLOAT64 = np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.float64)
ZERO = literal(0, I64)


@dataclass(eq=False, slots=True)
class Access:
    """A strided way through memory: strides along the loops, in elements."""

    param: int  # which of the kernel's parameters; -1: an index, which has no memory
    dtype: np.dtype
    strides: tuple[int, ...]

    def varies(self) -> frozenset[int]:
        """The loops along which it moves."""
        return frozenset(i for i, s in enumerate(self.strides) if s)


@dataclass(eq=False)
class Scope:
    """The inside of one loop, and what is known there."""

    parent: Scope | None
    dims: frozenset[int]
    block: ir.Block
    dim: int = -1
    index: Scalar = ZERO
    bounds: tuple[Scalar, Scalar] = (ZERO, ZERO)
    shift: Scalar | None = None  # a block of columns starts here
    around: bool = False  # is there a loop inside whose length isn't in the text?
    memo: dict[Any, Scalar] = field(default_factory=dict)
    pointers: dict[Access, ir.Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chain: list[Scope] = [*(self.parent.chain if self.parent else []), self]

    @property
    def place(self) -> Scalar:
        """How far along its dimension the loop is."""
        return self.index if self.shift is None else self.shift

    def stride(self, access: Access) -> int:
        """How far an access moves with each turn; a loop over blocks of columns goes along the last dimension."""
        return access.strides[self.dim] if self.dim >= 0 or self.shift is not None else 0


class Loops:
    """Opens and closes the loops of a kernel's function, and finds addresses in them."""

    def __init__(self, kernel: Kernel, attributes: str, deep: bool = False, nested: bool = False):
        self.kernel: Kernel = kernel
        self.f: ir.Function = kernel.function(attributes)
        self.e: Emitter = Emitter(self.f)
        self.parameters: dict[str, ir.Value] = {value.text[1:]: value for value in self.f.parameters}
        self.outermost: Scope = Scope(None, frozenset(), self.f.body)
        self.current: Scope = self.outermost  # that code goes into
        self._tabled: dict[tuple[Any, ...], Scalar] = {}
        self._deep = deep  # do the elements have long chains of operations?
        self._nested = nested  # are there loops?

    def parameter(self, name: str) -> Scalar:
        """A parameter that is a number."""
        return Scalar(self.parameters[name].text, I64, self.e)

    def tabled(self, key: tuple[Any, ...], value: int) -> Scalar:
        """A number that the code reads: a literal if small, otherwise from the table."""
        if -BAKED <= value <= BAKED:
            return literal(value, I64, self.e)
        if key not in self._tabled:
            now, self.f.current = self.f.current, self.f.head
            self._tabled[key] = Scalar(self._from_table(value, invariant=True).text, I64, self.e)
            self.f.current = now
        return self._tabled[key]

    def _from_table(self, value: int, invariant: bool = False) -> ir.Value:
        place = self.f.element(ir.LONG, self.parameters["t"], len(self.kernel.table))
        self.kernel.table.append(value)
        return self.f.load(ir.LONG, place, invariant=invariant)

    def number(self, number: Number, rare: bool) -> Scalar:
        """A constant. The 1/n of a mean, or the n where its use is rare, may follow from a shape: from the table."""
        n, inverse = _count(number)
        if n is None or not (inverse or rare):
            return literal(number.value, number.dtype, self.e)
        memo = self.outermost.memo
        if number not in memo:
            e = self.at(self.outermost)
            count = e.convert(self.tabled(("count", number), n), FLOAT64)
            value = e.div(e.constant(1.0, FLOAT64), count) if inverse else count
            memo[number] = e.convert(value, number.dtype)
        return memo[number]

    def open(self, parent: Scope, dim: int, start: Scalar, stop: Scalar) -> Scope:
        """A loop inside another; `dim` is -1 if it goes over blocks of a dimension."""
        block, index = self.f.inside("L")
        dims = parent.dims | {dim} if dim >= 0 else parent.dims
        return Scope(parent, dims, block, dim, Scalar(index.text, I64, self.e), (start, stop))

    def close(self, scope: Scope, carried: Sequence[tuple[Scalar, Scalar, Scalar]] = ()) -> None:
        """Put a loop into its parent; `carried` are (now, at first, next) of the numbers that go around it."""
        assert scope.parent is not None
        innermost = f"%{scope.block.label}.i" == scope.index.text
        if scope.around or scope.bounds[1].text.startswith("%"):
            scope.parent.around = True
        # LLVM would write out a few turns of an outer loop, with all the code of the inner one in each.
        hint = ir.AS_IT_IS if scope.around else ir.INTERLEAVED if self._deep and innermost else ""
        self.f.nest(scope.parent.block, scope.block, scope.index, *scope.bounds, carried, hint)

    def at(self, scope: Scope) -> Emitter:
        self.f.current = scope.block
        self.current = scope
        self.e.runs_once = self._nested and scope is self.outermost
        return self.e

    def pointer(self, access: Access, scope: Scope) -> ir.Value:
        """The address of an access's current element, computed loop by loop."""
        if access not in scope.pointers:
            parent, stride = scope.parent, scope.stride(access)
            place = self.parameters[f"p{access.param}"] if parent is None else self.pointer(access, parent)
            scope.pointers[access] = self.advance(place, access, scope.place, stride, scope) if stride else place
        return scope.pointers[access]

    def advance(self, pointer: ir.Value, access: Access, index: Scalar, stride: int, scope: Scope) -> ir.Value:
        self.at(scope)
        key = ("stride", access.param, access.strides, stride)
        moved = index if stride == 1 else self.f.mul(index, self.tabled(key, stride), "nsw")
        return self.f.element(memory_type(access.dtype), pointer, moved)

    def element(self, pointer: ir.Value, dtype: np.dtype, index: Scalar, scope: Scope) -> ir.Value:
        """The address of an element of an array."""
        self.at(scope)
        return self.f.element(memory_type(dtype), pointer, index)

    def place(self, access: Access, scope: Scope) -> Scalar:
        """Like `pointer`, for an index that is a value: the sum of indices times strides."""
        if access not in scope.memo:
            total = ZERO
            if scope.parent is not None:
                total, e, stride = self.place(access, scope.parent), self.at(scope), scope.stride(access)
                if stride:
                    moved = e.mul(scope.place, self.tabled(("index", access.strides, stride), stride))
                    total = moved if total is ZERO else e.add(total, moved)
            scope.memo[access] = total
        return scope.memo[access]

    def fail_unless(self, fine: Scalar, site: int, index: Scalar, scope: Scope) -> None:
        """Set the error word if a condition doesn't hold, and go on."""
        self.at(scope)
        bad, on = self.f.fresh("bad"), self.f.fresh("on")
        self.f.branch(fine, on, bad)
        self.f.start(bad)
        self.fail(site, index)
        self.f.start(on)

    def fail(self, site: int, index: Scalar = ZERO) -> None:
        """Set the error word: something went wrong at a site."""
        self.f.call(note_failure(), self.parameters["err"], self._from_table(site), index)


@cache
def note_failure() -> ir.Function:
    """Sets the error word, unless it is set: the first fault counts."""
    f = ir.Function("wl_fail", [("err", ir.POINTER), ("site", ir.LONG), ("index", ir.LONG)], attributes="cold noinline")
    err, site, index = f.parameters
    with f.when(f.load(ir.LONG, err).equals(0)):
        f.store(index << 16 | site, err)
    return f


def _count(number: Number) -> tuple[int | None, bool]:
    """The n of a number n or 1/n, and which it is; None if it isn't of that kind, or small and part of the code."""
    if number.dtype in (FLOAT64, FLOAT32):
        value = float(number.dtype.type(number.value))
        if BAKED < abs(value) < 2**53 and value.is_integer():
            return int(value), False
        if 2**-53 < abs(value) < 1 / BAKED and number.dtype.type(1 / round(1 / value)) == value:
            return round(1 / value), True
    return None, False
