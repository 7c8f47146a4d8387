"""Scalar code with NumPy's meaning: numbers with a dtype come in, instructions go out.

The `emit` functions of `ops/` call the methods of an `Emitter` (`e.add(x, y)`, `e.call("exp", x)`). A bool is an `i1`
here and a byte in memory. A product that feeds a sum contracts to FMA, by our decision and not LLVM's: a value that is
computed in two places is the same number in both (`x == max(x)` must hold somewhere). Nothing else is relaxed, and
nothing has undefined behaviour: conversions from float to integer give what NumPy gives on x86.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import numpy as np

from wonderland.compile import complex_code, foreign, ir, routines, vecmath
from wonderland.compile.scalars import TYPES, Complex, Scalar, Unsupported, literal, memory_type, named, real_dtype

BOOL, INT32, INT64 = np.dtype(bool), np.dtype(np.int32), np.dtype(np.int64)
FLOAT64 = np.dtype(np.float64)
DIVIDE_COST = 4  # of a division or root, in additions
FOREIGN_COST = 1000  # of a function of SciPy
NUMBERS = (bool, int, float, complex)  # Python's
NEGATIVE_POWER = "Integers to negative integer powers are not allowed."


def _bitwise(name: str) -> Any:
    """An operation on the bits of integers; of a signed number the sign comes in, when shifted to the right."""

    def operation(self: Emitter, x: Scalar, y: Scalar) -> Scalar:
        if x.dtype.kind == "f":
            raise Unsupported("bits of floats")
        return self._new(getattr(self.f, name)(x, y, signed=x.dtype.kind == "i"), x.dtype)

    return operation


class Emitter:
    """Writes scalar code into a function. `cost` counts what it writes, in additions.

    On complex operands an operation is what `complex_code.OPERATIONS` says.
    """

    def __init__(self, f: ir.Function) -> None:
        self.f: ir.Function = f
        self.report: Callable[[Scalar, type, str], None] | None = None  # how a kernel reports what went wrong
        self.checks: bool = False  # does something `require` a condition?
        self.cost: int = 0
        self.runs_once: bool = False  # is it outside of loops? Then functions are called, which takes LLVM less time

    def _new(self, value: ir.Value, dtype: np.dtype) -> Scalar:
        self.cost += 1
        return Scalar(value.text, dtype, self)

    def intrinsic(self, name: str, *args: Scalar, flags: str = "") -> Scalar:
        """An LLVM intrinsic whose operands and result have one type."""
        return self._new(self.f.intrinsic(name, *args, flags=flags), args[0].dtype)

    def constant(self, value: Any, like: Scalar | np.dtype) -> Scalar:
        """A number of the dtype of a scalar."""
        return literal(value, like.dtype if isinstance(like, Scalar) else like, self)

    def add(self, x: Scalar, y: Scalar) -> Scalar:
        if x.factors:
            return self.intrinsic("fmuladd", *x.factors, y)
        if y.factors:
            return self.intrinsic("fmuladd", *y.factors, x)
        return self.bit_or(x, y) if x.dtype.kind == "b" else self._new(self.f.add(x, y), x.dtype)

    def sub(self, x: Scalar, y: Scalar) -> Scalar:
        if x.factors:
            return self.intrinsic("fmuladd", *x.factors, self.neg(y))
        if y.factors:
            return self.intrinsic("fmuladd", self.neg(y.factors[0]), y.factors[1], x)
        if x.dtype.kind == "b":
            raise Unsupported("a difference of bools")
        return self._new(self.f.sub(x, y), x.dtype)

    def mul(self, x: Scalar, y: Scalar) -> Scalar:
        if x.dtype.kind == "f":  # `contract` lets the sum of a reduction, whose order is free, take it over
            product = self._new(self.f.mul(x, y, "contract"), x.dtype)
            product.factors = (x, y)
            return product
        return self.bit_and(x, y) if x.dtype.kind == "b" else self._new(self.f.mul(x, y), x.dtype)

    def product(self, x: Scalar, y: Scalar) -> Scalar:
        """A product that no sum takes over."""
        return self._new(self.f.mul(x, y), x.dtype)

    def reduced_sum(self, x: Scalar, y: Scalar) -> Scalar:
        """A sum of which LLVM may change the order."""
        return self._new(self.f.add(x, y, "reassoc contract"), x.dtype) if x.dtype.kind == "f" else self.add(x, y)

    def reduced_product(self, x: Scalar, y: Scalar) -> Scalar:
        return self._new(self.f.mul(x, y, "reassoc"), x.dtype) if x.dtype.kind == "f" else self.mul(x, y)

    def div(self, x: Scalar, y: Scalar) -> Scalar:
        if x.dtype.kind != "f":
            raise Unsupported("division of integers")
        self.cost += DIVIDE_COST
        return self._new(self.f.div(x, y), x.dtype)

    def quotient(self, x: Scalar, y: Scalar, signed: bool = True) -> Scalar:
        """Of integers, towards zero; of signed ones also as if they weren't."""
        return self._new(self.f.div(x, y, signed=signed and x.dtype.kind == "i"), x.dtype)

    def remainder(self, x: Scalar, y: Scalar) -> Scalar:
        """C's, with the sign of x."""
        return self._new(self.f.remainder(x, y, signed=x.dtype.kind == "i"), x.dtype)

    def neg(self, x: Scalar) -> Scalar:
        if x.dtype.kind == "b":
            raise Unsupported("the negative of a bool")
        return self._new(self.f.neg(x), x.dtype)

    def abs(self, x: Scalar) -> Scalar:
        if x.dtype.kind == "f":
            return self.intrinsic("fabs", x)
        if x.dtype.kind != "i":
            return x
        return self._new(self.f.intrinsic("abs", x, ir.constant(False, ir.BOOL)), x.dtype)

    def conj(self, x: Scalar) -> Scalar:
        return x

    real: Any = conj

    def imag(self, x: Scalar) -> Scalar:
        return self.constant(0, x)

    def complex(self, re: Scalar, im: Scalar) -> Scalar:
        return Complex(re, im)

    def sqrt(self, x: Scalar) -> Scalar:
        self.cost += DIVIDE_COST
        return self.intrinsic("sqrt", x)

    def sign(self, x: Scalar) -> Scalar:
        if x.dtype.kind in "bu":
            return self.select(x.differs(0), x.like(1), 0)
        negative = self.select(x < 0, x.like(-1), 0)
        known = self.select(x > 0, 1, negative)
        return self.select(x.differs(x), x, known) if x.dtype.kind == "f" else known

    def _extreme(self, x: Scalar, y: Scalar, compare: str, name: str) -> Scalar:
        if x.dtype.kind == "b":
            return (self.bit_or if name == "max" else self.bit_and)(x, y)
        if x.dtype.kind != "f":
            return self.intrinsic(("s" if x.dtype.kind == "i" else "u") + name, x, y)
        # The first operand where it wins or is NaN; a NaN in the second loses no comparison and so is taken.
        return self.select(self.compare(compare, x, y) | x.differs(x), x, y)

    def maximum(self, x: Scalar, y: Scalar) -> Scalar:
        return self._extreme(x, y, "gt", "max")

    def minimum(self, x: Scalar, y: Scalar) -> Scalar:
        return self._extreme(x, y, "lt", "min")

    def compare(self, op: str, x: Scalar, y: Scalar, signed: bool = True) -> Scalar:
        return self._new(self.f.compare(op, x, y, signed=signed and x.dtype.kind == "i"), BOOL)

    def below(self, x: Scalar, y: Scalar) -> Scalar:
        """Less, as unsigned numbers."""
        return self.compare("lt", x, y, signed=False)

    def unordered(self, x: Scalar, y: Scalar) -> Scalar:
        """Is one of them NaN?"""
        return self._new(self.f.unordered(x, y), BOOL)

    def select(self, condition: Scalar, x: Any, y: Any) -> Any:
        return self._new(self.f.select(condition, x, y), x.dtype)

    bit_and: Any = _bitwise("bit_and")
    bit_or: Any = _bitwise("bit_or")
    bit_xor: Any = _bitwise("bit_xor")
    shift_left: Any = _bitwise("shift_left")
    shift_right: Any = _bitwise("shift_right")

    def invert(self, x: Scalar) -> Scalar:
        return ~x

    def power(self, x: Scalar, y: Scalar) -> Scalar:
        if x.dtype.kind == "f":
            return self.call("pow", x, y)
        if x.dtype.kind == "b":
            raise Unsupported("powers of bools")
        if x.dtype.kind == "i":
            self.require(y >= 0, ValueError, NEGATIVE_POWER)
        result = self.constant(1, x)
        for bit in range(8 * x.dtype.itemsize - (x.dtype.kind == "i")):  # a known exponent leaves only its own steps
            result = result * self.select((y & 1 << bit).differs(0), x, 1)
            x = x * x
        return result

    def call(self, name: str, *args: Scalar) -> Scalar:
        """A function of the vector library."""
        if args[0].type not in ir.SUFFIX:
            raise Unsupported(f"{name} of {args[0].dtype}")
        if name not in vecmath.VECTOR_FUNCTIONS:
            raise AttributeError(f"compiled code has no function {name!r}")
        return self._call(vecmath.function(name, ir.SUFFIX[args[0].type]), args[0].dtype, *args)

    def foreign(self, name: str, *args: Scalar) -> Scalar:
        """A function of SciPy: that of float where there is one, otherwise that of double."""
        out, count = args[0].dtype, len(args)
        single = out.itemsize == 4 and foreign.address(name, ir.FLOAT, count)
        dtype = out if single else FLOAT64
        if out.kind == "c" or not foreign.address(name, TYPES[dtype], count):
            raise Unsupported(f"SciPy has no {name!r} of {out} for compiled code")
        self.cost += FOREIGN_COST
        function = foreign.function(name, TYPES[dtype], count)
        given = [self.convert(a, dtype) for a in args]
        return self.convert(self._new(self.f.call(function, *given, ir.constant(0, ir.INT)), dtype), out)

    def routine(self, name: str, of: tuple[Any, ...], dtype: np.dtype, *args: Scalar) -> Scalar:
        """A function with control flow, made of the values `of`."""
        return self._call(routines.function(name, tuple(a.type for a in args), of), dtype, *args)

    def _call(self, function: ir.Function, dtype: np.dtype, *args: Scalar) -> Scalar:
        self.cost += function.cost
        return self._new(self.f.call(function, *args, attributes="noinline" if self.runs_once else ""), dtype)

    def require(self, fine: Scalar, kind: type[Exception], message: str) -> None:
        """Without this condition the run raises an exception in the end; the code goes on with what it has."""
        self.checks: bool = True
        self.cost += 1
        if self.report is not None:
            self.report(fine, kind, message)

    def bitcast(self, x: Scalar, dtype: np.dtype) -> Scalar:
        """The same bits as another type of the same size."""
        return self._new(self.f.bitcast(x, TYPES[dtype]), dtype)

    def convert(self, x: Scalar, dtype: np.dtype) -> Scalar:
        """NumPy's `astype`."""
        if x.dtype == dtype:
            return x
        if dtype.kind == "c":
            part = real_dtype(dtype)
            return Complex(self.convert(x, part), self.constant(0, part))
        if dtype not in TYPES:
            raise Unsupported(f"a conversion to {dtype}")
        if dtype.kind == "b":
            return x.differs(0)
        if x.dtype.kind == "f" and dtype.kind != "f":
            return self._to_integer(x, dtype)
        if TYPES[dtype] == x.type:
            return Scalar(x.text, dtype, self)
        return self._new(self.f.convert(x, TYPES[dtype], signed=x.dtype.kind == "i"), dtype)

    def _to_integer(self, x: Scalar, dtype: np.dtype) -> Scalar:
        # Through int32 or int64 as x86 does it: what doesn't fit (or is NaN) becomes the smallest number.
        wide = INT32 if dtype.itemsize < 4 or dtype == INT32 else INT64
        limit = 2.0 ** (8 * wide.itemsize - 1)
        inside = (x >= -limit) & (x < limit)
        value = self.select(inside, self._new(self.f.convert(x, TYPES[wide]), wide), -int(limit))
        if dtype.name == "uint64":
            above = (x >= limit) & (x < 2 * limit)
            value = self.select(above, self._new(self.f.convert(x, ir.LONG, signed=False), INT64), value)
        return self.convert(value, dtype)

    def load(self, pointer: ir.Value, dtype: np.dtype) -> Scalar:
        """An element from memory."""
        if dtype.kind == "c":
            part = real_dtype(dtype)
            return Complex(*(self.load(p, part) for p in self.part_pointers(pointer, part)))
        value = self.f.load(memory_type(dtype), pointer, dtype.itemsize)
        return self._new(value.differs(0) if dtype.kind == "b" else value, dtype)

    def store(self, value: Scalar, pointer: ir.Value, dtype: np.dtype) -> None:
        """An element into memory of its own dtype: any other would leave part of the memory unwritten."""
        if value.dtype != dtype:
            raise RuntimeError(f"compiled code puts {value.dtype} into memory of {dtype}: a fault of wonderland's")
        if dtype.kind == "c":
            part = real_dtype(dtype)
            for number, place in zip(value.parts, self.part_pointers(pointer, part), strict=True):
                self.store(number, place, part)
            return
        word = self.f.convert(value, ir.BYTE, signed=False) if dtype.kind == "b" else value
        self.f.store(word, pointer, dtype.itemsize)
        self.cost += 1

    def part_pointers(self, pointer: ir.Value, part: np.dtype) -> tuple[ir.Value, ir.Value]:
        """The addresses of a complex number's parts."""
        return pointer, self.f.element(TYPES[part], pointer, 1)


def _of_all_numbers(name: str) -> Any:
    """An operation of the emitter, of complex numbers too; numbers of Python become like the last operand."""
    method = getattr(Emitter, name)

    @wraps(method)
    def operation(self: Emitter, *args: Any, **options: Any) -> Any:
        kinds = {type(a) for a in args}
        if not kinds.isdisjoint(NUMBERS):
            like = next(a for a in reversed(args) if isinstance(a, Scalar))
            args = tuple(like.like(a) if type(a) in NUMBERS else a for a in args)
        if Complex in kinds:
            return complex_code.operate(name, *args, **options)
        return method(self, *args, **options)

    return operation


for _name in complex_code.OPERATIONS:
    setattr(Emitter, _name, _of_all_numbers(_name))


def lowest(dtype: np.dtype) -> Any:
    """The neutral element of a maximum."""
    lowest = {"b": False, "f": -np.inf, "c": complex(-np.inf, -np.inf)}
    return lowest[dtype.kind] if dtype.kind in lowest else np.iinfo(dtype).min


@cache
def _probed(emit: Any, dtypes: tuple[np.dtype, ...]) -> tuple[np.dtype, int, bool]:
    e = Emitter(ir.Function("probe"))
    result = emit(e, *(named(f"%x{i}", d, e) for i, d in enumerate(dtypes)))
    return result.dtype, e.cost, e.checks


def probe(emit: Any, dtypes: tuple[np.dtype, ...], out: np.dtype) -> tuple[int, bool]:
    """What a scalar function on these dtypes costs, and whether it can fail; `Unsupported` if there is no code."""
    dtype, cost, checks = _probed(emit, dtypes)
    if dtype != out:
        raise Unsupported(f"the scalar code gives {dtype}, not {out}")
    return cost, checks
