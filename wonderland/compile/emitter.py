"""Scalar code as text: typed scalars come in, lines of LLVM IR go out.

The `emit` functions of `ops/` call the methods of an `Emitter` (`e.add(x, y)`, `e.call("exp", x)`). A bool is an `i1`
here and a byte in memory. A product that feeds a sum contracts to FMA, by our decision and not LLVM's: a value that is
computed in two places is the same number in both (`x == max(x)` must hold somewhere). Nothing else is relaxed, and
nothing has undefined behaviour: conversions from float to integer give what NumPy gives on x86.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from wonderland.compile import complex_code, foreign, vecmath
from wonderland.compile.routine import Routine, find
from wonderland.compile.scalars import (
    KINDS,
    Complex,
    Scalar,
    Unsupported,
    assembled,
    literal,
    memory_kind,
    named,
    real_dtype,
)

SUFFIX = {"float": "f32", "double": "f64"}
BOOL, INT32, INT64 = np.dtype(bool), np.dtype(np.int32), np.dtype(np.int64)
FLOAT64 = np.dtype(np.float64)
FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
SIGNED_COMPARE = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
CALL_COST, DIVIDE_COST = 12, 4  # of a transcendental function and of a division or root, in additions
FOREIGN_COST = 1000  # of a function of SciPy
NEGATIVE_POWER = "Integers to negative integer powers are not allowed."


def _complex_too(method: Callable) -> Any:
    """An operation that, on complex operands, is what `complex_code` says."""
    name = method.__name__

    @wraps(method)
    def operation(self: Emitter, *args: Any, **options: Any) -> Any:
        for a in args:
            if type(a) is Complex:
                return complex_code.operate(self, name, *args, **options)
        return method(self, *args, **options)

    return operation


class Emitter:
    """Appends instructions to `lines`.

    `needed` collects the vector functions, `routines` those that bring their text, `declared` the declarations.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.needed: set[tuple[str, str]] = set()
        self.routines: dict[str, Routine] = {}
        self.report: Callable[[Scalar, type, str], None] | None = None  # how a kernel reports what went wrong
        self.declared: set[str] = set()
        self.checks = False  # does something `require` a condition?
        self.cost: int = 0
        self.count: int = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise Unsupported(f"the compiler has no scalar operation {name!r}")

    def name(self) -> str:
        """A fresh name."""
        self.count += 1
        return f"%v{self.count}"

    def let(self, instruction: str, dtype: np.dtype) -> Scalar:
        """A new value."""
        name = self.name()
        self.lines.append(f"  {name} = {instruction}")
        self.cost += 1
        return Scalar(name, dtype)

    @_complex_too
    def intrinsic(self, name: str, *args: Scalar, extra: str = "", flags: str = "") -> Scalar:
        """An LLVM intrinsic whose operands and result have one type."""
        kind = args[0].kind
        full = f"@llvm.{name}.{SUFFIX.get(kind, kind)}"
        types = ", ".join([kind] * len(args) + (["i1"] if extra else []))
        self.declared.add(f"declare {kind} {full}({types})")
        operands = ", ".join([a.typed for a in args] + ([extra] if extra else []))
        return self.let(f"call {flags}{kind} {full}({operands})", args[0].dtype)

    def constant(self, value: Any, like: Scalar | np.dtype) -> Scalar:
        """A number of the dtype of a scalar."""
        return literal(value, like.dtype if isinstance(like, Scalar) else like)

    def _arithmetic(self, x: Scalar, y: Scalar, of_float: str, of_int: str, of_bool: str) -> Scalar:
        if x.dtype.kind == "f":
            return self.let(f"{of_float} {x.typed}, {y.text}", x.dtype)
        if x.dtype.kind == "b":
            if not of_bool:
                raise Unsupported(f"{of_int} of bools")
            return self.let(f"{of_bool} {x.typed}, {y.text}", x.dtype)
        return self.let(f"{of_int} {x.typed}, {y.text}", x.dtype)

    @_complex_too
    def add(self, x: Scalar, y: Scalar) -> Scalar:
        if x.factors:
            return self.intrinsic("fmuladd", *x.factors, y)
        if y.factors:
            return self.intrinsic("fmuladd", *y.factors, x)
        return self._arithmetic(x, y, "fadd", "add", "or")

    @_complex_too
    def sub(self, x: Scalar, y: Scalar) -> Scalar:
        if x.factors:
            return self.intrinsic("fmuladd", *x.factors, self.neg(y))
        if y.factors:
            return self.intrinsic("fmuladd", self.neg(y.factors[0]), y.factors[1], x)
        return self._arithmetic(x, y, "fsub", "sub", "")

    @_complex_too
    def mul(self, x: Scalar, y: Scalar) -> Scalar:
        if x.dtype.kind == "f":  # `contract` lets the sum of a reduction, whose order is free, take it over
            product = self.let(f"fmul contract {x.typed}, {y.text}", x.dtype)
            product.factors = (x, y)
            return product
        return self._arithmetic(x, y, "", "mul", "and")

    @_complex_too
    def div(self, x: Scalar, y: Scalar) -> Scalar:
        if x.dtype.kind != "f":
            raise Unsupported("division of integers")
        self.cost += DIVIDE_COST
        return self.let(f"fdiv {x.typed}, {y.text}", x.dtype)

    @_complex_too
    def neg(self, x: Scalar) -> Scalar:
        if x.dtype.kind == "b":
            raise Unsupported("the negative of a bool")
        return self.let(f"fneg {x.typed}" if x.dtype.kind == "f" else f"sub {x.kind} 0, {x.text}", x.dtype)

    @_complex_too
    def abs(self, x: Scalar) -> Scalar:
        if x.dtype.kind == "f":
            return self.intrinsic("fabs", x)
        return self.intrinsic("abs", x, extra="i1 false") if x.dtype.kind == "i" else x

    @_complex_too
    def conj(self, x: Scalar) -> Scalar:
        return x

    @_complex_too
    def real(self, x: Scalar) -> Scalar:
        return x

    @_complex_too
    def imag(self, x: Scalar) -> Scalar:
        return self.constant(0, x)

    def complex(self, re: Scalar, im: Scalar) -> Scalar:
        return Complex(re, im)

    @_complex_too
    def sqrt(self, x: Scalar) -> Scalar:
        self.cost += DIVIDE_COST
        return self.intrinsic("sqrt", x)

    @_complex_too
    def sign(self, x: Scalar) -> Scalar:
        one, zero = self.constant(1, x), self.constant(0, x)
        if x.dtype.kind in "bu":
            return self.select(self.compare("ne", x, zero), one, zero)
        negative = self.select(self.compare("lt", x, zero), self.constant(-1, x), zero)
        known = self.select(self.compare("gt", x, zero), one, negative)
        return self.select(self.compare("ne", x, x), x, known) if x.dtype.kind == "f" else known

    def _extreme(self, x: Scalar, y: Scalar, compare: str, name: str, of_bool: str) -> Scalar:
        if x.dtype.kind == "b":
            return self.let(f"{of_bool} {x.typed}, {y.text}", x.dtype)
        if x.dtype.kind != "f":
            return self.intrinsic(("s" if x.dtype.kind == "i" else "u") + name, x, y)
        # The first operand where it wins or is NaN; a NaN in the second loses no comparison and so is taken.
        wins = self.compare(compare, x, y)
        chosen = self.let(f"or i1 {wins.text}, {self.compare('ne', x, x).text}", BOOL)
        return self.select(chosen, x, y)

    @_complex_too
    def maximum(self, x: Scalar, y: Scalar) -> Scalar:
        return self._extreme(x, y, "gt", "max", "or")

    @_complex_too
    def minimum(self, x: Scalar, y: Scalar) -> Scalar:
        return self._extreme(x, y, "lt", "min", "and")

    @_complex_too
    def compare(self, op: str, x: Scalar, y: Scalar) -> Scalar:
        if x.dtype.kind == "f":
            return self.let(f"fcmp {FLOAT_COMPARE[op]} {x.typed}, {y.text}", BOOL)
        predicate = SIGNED_COMPARE[op]
        if x.dtype.kind in "bu":
            predicate = predicate.replace("s", "u", 1) if predicate[0] == "s" else predicate
        return self.let(f"icmp {predicate} {x.typed}, {y.text}", BOOL)

    @_complex_too
    def select(self, condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
        return self.let(f"select {condition.typed}, {x.typed}, {y.typed}", x.dtype)

    def _bits(self, operation: str, x: Scalar, y: Scalar) -> Scalar:
        if x.dtype.kind == "f":
            raise Unsupported("bits of floats")
        return self.let(f"{operation} {x.typed}, {y.text}", x.dtype)

    def bit_and(self, x: Scalar, y: Scalar) -> Scalar:
        return self._bits("and", x, y)

    def bit_or(self, x: Scalar, y: Scalar) -> Scalar:
        return self._bits("or", x, y)

    def bit_xor(self, x: Scalar, y: Scalar) -> Scalar:
        return self._bits("xor", x, y)

    def invert(self, x: Scalar) -> Scalar:
        return self._bits("xor", x, self.constant(True if x.dtype.kind == "b" else -1, x))

    @_complex_too
    def power(self, x: Scalar, y: Scalar) -> Scalar:
        if x.dtype.kind == "f":
            return self.call("pow", x, y)
        if x.dtype.kind == "b":
            raise Unsupported("powers of bools")
        zero, one = self.constant(0, x), self.constant(1, x)
        if x.dtype.kind == "i":
            self.require(self.compare("ge", y, zero), ValueError, NEGATIVE_POWER)
        result = one
        for bit in range(8 * x.dtype.itemsize - (x.dtype.kind == "i")):  # a known exponent leaves only its own steps
            chosen = self.compare("ne", self.bit_and(y, self.constant(1 << bit, x)), zero)
            result = self.mul(result, self.select(chosen, x, one))
            x = self.mul(x, x)
        return result

    @_complex_too
    def call(self, name: str, *args: Scalar) -> Scalar:
        """A function of the vector library."""
        kind = args[0].kind
        if kind not in SUFFIX:
            raise Unsupported(f"{name} of {args[0].dtype}")
        if name not in vecmath.FUNCTIONS:
            raise Unsupported(f"no function {name!r}")
        self.cost += CALL_COST
        self.needed.add((name, SUFFIX[kind]))
        arguments = ", ".join(a.typed for a in args)
        return self.let(f"call {kind} @wl_{name}_{SUFFIX[kind]}({arguments})", args[0].dtype)

    def foreign(self, name: str, *args: Scalar) -> Scalar:
        """A function of SciPy: that of float where there is one, otherwise that of double."""
        out, count = args[0].dtype, len(args)
        single = out.itemsize == 4 and foreign.address(name, "float", count)
        dtype = out if single else FLOAT64
        kind = KINDS[dtype.name]
        if out.kind == "c" or not foreign.address(name, kind, count):
            raise Unsupported(f"SciPy has no {name!r} of {out} for compiled code")
        self.cost += FOREIGN_COST
        self.declared.add(foreign.declaration(name, kind, count))
        given = "".join(f"{self.convert(a, dtype).typed}, " for a in args)
        return self.convert(self.let(f"call {kind} @{foreign.symbol(name, kind)}({given}i32 0)", dtype), out)

    def routine(self, name: str, of: tuple[Any, ...], dtype: np.dtype, *args: Scalar) -> Scalar:
        """A function with control flow, from the library of `routine`, made for the values `of`."""
        routine = find(name, of)
        self.cost += routine.cost
        self.routines[routine.name] = routine
        return self.let(f"call {KINDS[dtype.name]} @{routine.name}({', '.join(a.typed for a in args)})", dtype)

    def require(self, fine: Scalar, kind: type[Exception], message: str) -> None:
        """Without this condition the run raises an exception in the end; the code goes on with what it has."""
        self.checks: bool = True
        self.cost += 1
        if self.report is not None:
            self.report(fine, kind, message)

    def bitcast(self, x: Scalar, dtype: np.dtype) -> Scalar:
        """The same bits as another type of the same size."""
        return self.let(f"bitcast {x.typed} to {KINDS[dtype.name]}", dtype)

    @_complex_too
    def convert(self, x: Scalar, dtype: np.dtype) -> Scalar:
        """NumPy's `astype`."""
        if x.dtype == dtype:
            return x
        if dtype.kind == "c":
            part = real_dtype(dtype)
            return Complex(self.convert(x, part), self.constant(0, part))
        if dtype.name not in KINDS:
            raise Unsupported(f"a conversion to {dtype}")
        if dtype.kind == "b":
            return self.compare("ne", x, self.constant(0, x))
        if x.dtype.kind == "f":
            return self._from_float(x, dtype)
        if dtype.kind == "f":
            operation = "sitofp" if x.dtype.kind == "i" else "uitofp"
        elif x.kind != "i1" and dtype.itemsize <= x.dtype.itemsize:
            if dtype.itemsize == x.dtype.itemsize:
                return Scalar(x.text, dtype)
            operation = "trunc"
        else:
            operation = "sext" if x.dtype.kind == "i" else "zext"
        return self.let(f"{operation} {x.typed} to {KINDS[dtype.name]}", dtype)

    def _from_float(self, x: Scalar, dtype: np.dtype) -> Scalar:
        if dtype.kind == "f":
            return self.let(f"{'fpext' if dtype.itemsize == 8 else 'fptrunc'} {x.typed} to {KINDS[dtype.name]}", dtype)
        # Through int32 or int64 as x86 does it: what doesn't fit (or is NaN) becomes the smallest number.
        wide = INT32 if dtype.itemsize < 4 or dtype == INT32 else INT64
        limit = 2.0 ** (8 * wide.itemsize - 1)
        low = self.compare("ge", x, self.constant(-limit, x))
        high = self.compare("lt", x, self.constant(limit, x))
        inside = self.bit_and(low, high)
        value = self.let(f"fptosi {x.typed} to {KINDS[wide.name]}", wide)
        value = self.select(inside, value, self.constant(-int(limit), wide))
        if dtype.name == "uint64":
            above = self.bit_and(self.compare("ge", x, self.constant(limit, x)),
                                 self.compare("lt", x, self.constant(2 * limit, x)))  # fmt: skip
            value = self.select(above, self.let(f"fptoui {x.typed} to i64", INT64), value)
        return self.convert(value, dtype)

    def load(self, pointer: str, dtype: np.dtype) -> Scalar:
        """An element from memory."""
        if dtype.kind == "c":
            part = real_dtype(dtype)
            return assembled(tuple(self.load(p, part) for p in self.part_pointers(pointer, part)))
        value = self.let(f"load {memory_kind(dtype)}, ptr {pointer}, align {dtype.itemsize}", dtype)
        if dtype.kind == "b":
            return self.let(f"icmp ne i8 {value.text}, 0", dtype)
        return value

    def store(self, value: Scalar, pointer: str, dtype: np.dtype) -> None:
        """An element into memory of its own dtype: any other would leave part of the memory unwritten."""
        if value.dtype != dtype:
            raise RuntimeError(f"compiled code puts {value.dtype} into memory of {dtype}: a fault of wonderland's")
        if dtype.kind == "c":
            part = real_dtype(dtype)
            for number, place in zip(value.parts, self.part_pointers(pointer, part), strict=True):
                self.store(number, place, part)
            return
        if value.dtype.kind == "b":
            value = self.let(f"zext {value.typed} to i8", np.dtype(np.uint8))
        self.lines.append(f"  store {value.typed}, ptr {pointer}, align {value.dtype.itemsize}")
        self.cost += 1

    def part_pointers(self, pointer: str, part: np.dtype) -> tuple[str, str]:
        """The addresses of a complex number's parts."""
        return pointer, self.let(f"getelementptr inbounds {KINDS[part.name]}, ptr {pointer}, i64 1", INT64).text


def lowest(dtype: np.dtype) -> Any:
    """The neutral element of a maximum."""
    if dtype.kind == "f":
        return -np.inf
    if dtype.kind == "c":
        return complex(-np.inf, -np.inf)
    return False if dtype.kind == "b" else np.iinfo(dtype).min


_probed: dict[tuple, tuple[np.dtype, int, bool]] = {}


def probe(emit: Any, dtypes: tuple[np.dtype, ...], out: np.dtype) -> tuple[int, bool]:
    """What a scalar function on these dtypes costs, and whether it can fail; `Unsupported` if there is no code."""
    key = (emit, dtypes)
    if key not in _probed:
        e = Emitter()
        result = emit(e, *(named(f"%x{i}", d) for i, d in enumerate(dtypes)))
        _probed[key] = result.dtype, e.cost, e.checks
    dtype, cost, checks = _probed[key]
    if dtype != out:
        raise Unsupported(f"the scalar code gives {dtype}, not {out}")
    return cost, checks
