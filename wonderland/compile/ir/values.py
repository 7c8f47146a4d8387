"""What instructions are about: types, values and constants, and the names of functions and memory elsewhere.

A type is LLVM's word for it. The operators of a `Value` append the instruction for its type to the function that the
value belongs to, so that code reads like the formula it computes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

BOOL, BYTE, INT, LONG, FLOAT, DOUBLE, POINTER, VOID = "i1", "i8", "i32", "i64", "float", "double", "ptr", "void"
SUFFIX = {FLOAT: "f32", DOUBLE: "f64", POINTER: "p0"}  # of intrinsics' names, where it isn't the type itself
FLOATS = {"f32": FLOAT, "f64": DOUBLE}
BYTES = {BOOL: 1, BYTE: 1, "i16": 2, INT: 4, LONG: 8, FLOAT: 4, DOUBLE: 8, POINTER: 8}
OF_FLOATS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}  # NaN is unequal to all


def vector(type: str, lanes: int) -> str:
    """The type of so many numbers side by side."""
    return f"<{lanes} x {type}>"


def array(type: str, count: int) -> str:
    """The type of so many numbers in memory."""
    return f"[{count} x {type}]"


@cache
def lanes_of(type: str) -> tuple[int, str]:
    """How many numbers a value of this type has (0: it isn't a vector), and their type."""
    if type[0] != "<":
        return 0, type
    count, _, element = type[1:-1].partition(" x ")
    return int(count), element


def alike(type: str, element: str) -> str:
    """The type of as many numbers of another type."""
    lanes, _ = lanes_of(type)
    return vector(element, lanes) if lanes else element


@cache
def is_float(type: str) -> bool:
    """Is it a type of floats, or of vectors of them?"""
    return type.endswith(("float", "double", "float>", "double>"))


@cache
def mangled(type: str) -> str:
    """A type as names of intrinsics have it."""
    lanes, element = lanes_of(type)
    return f"v{lanes}{SUFFIX.get(element, element)}" if lanes else SUFFIX.get(type, type)


@cache
def bytes_of(type: str) -> int:
    """The size of a value in memory."""
    lanes, element = lanes_of(type)
    return BYTES[element] * max(lanes, 1)


def _operator(method: str, *words: str, **options: Any) -> Any:
    """Python's operator for a method of `Function` (or of `Emitter`, for its numbers)."""

    def operate(x: Any, y: Any) -> Any:
        y = x.like(y)
        return getattr(x.code or y.code, method)(*words, x, y, **options)

    return operate


class Value:
    """A number, pointer or vector that is computed when the code runs, or a constant; `str` has its type, too."""

    __slots__ = ("code", "text", "type")

    def __init__(self, type: str, text: str, code: Any = None):
        self.type: str = type
        self.text: str = text
        self.code: Any = code  # the function it belongs to; constants may have none

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def element(self) -> str:
        """The type of its numbers."""
        return lanes_of(self.type)[1]

    def like(self, other: Number) -> Value:
        """`other` as a value of this type."""
        if not isinstance(other, Value):
            return constant(other, self.type, self.code)
        if other.type != self.type:
            raise TypeError(f"compiled code: {self.type} meets {other.type}")
        return other

    __add__: Any = _operator("add")
    __radd__: Any = __add__
    __sub__: Any = _operator("sub")
    __rsub__: Any = lambda x, y: x.like(y) - x
    __neg__: Any = lambda x: x.code.neg(x)
    __mul__: Any = _operator("mul")
    __rmul__: Any = __mul__
    __truediv__: Any = _operator("div")
    __rtruediv__: Any = lambda x, y: x.like(y) / x
    __floordiv__: Any = __truediv__
    __mod__: Any = _operator("remainder")
    __and__: Any = _operator("bit_and")
    __or__: Any = _operator("bit_or")
    __xor__: Any = _operator("bit_xor")
    __lshift__: Any = _operator("shift_left")
    __rshift__: Any = _operator("shift_right")  # zeros come in (AVX2 has no arithmetic shift of 64-bit integers)
    __lt__: Any = _operator("compare", "lt")
    __le__: Any = _operator("compare", "le")
    __gt__: Any = _operator("compare", "gt")
    __ge__: Any = _operator("compare", "ge")
    equals: Any = _operator("compare", "eq")
    differs: Any = _operator("compare", "ne")
    below: Any = _operator("compare", "lt", signed=False)

    def __bool__(self) -> bool:
        raise TypeError("a value of compiled code is known when it runs: use `select`, or `with code.when(condition):`")

    def __invert__(self) -> Any:
        return self ^ (True if lanes_of(self.type)[1] == BOOL else -1)

    def is_nan(self) -> Value:
        return self.code.unordered(self, self)

    def convert(self, type: Any, **signed: bool) -> Any:
        """The same number as another type; `signed` says what integers are."""
        return self.code.convert(self, type, **signed)

    def bitcast(self, type: Any) -> Any:
        """The same bits as another type of the same size."""
        return self.code.bitcast(self, type)


Number = Value | int | float


def constant(value: Any, type: str, code: Any = None) -> Value:
    """A number as LLVM spells it (the bits of a double for both float types); of a vector, in all lanes."""
    lanes, element = lanes_of(type)
    if lanes:
        return Value(type, f"splat ({constant(value, element)})" if value else "zeroinitializer", code)
    if element in (FLOAT, DOUBLE):
        number = struct.unpack("f", struct.pack("f", value))[0] if element == FLOAT else float(value)
        return Value(type, f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}", code)
    if element == BOOL:
        return Value(type, "true" if value else "false", code)
    return Value(type, "null" if value is None else str(int(value)), code)


def undefined(type: str) -> Value:
    """A value that nothing reads."""
    return Value(type, "poison")


def is_number(y: Any, number: int) -> bool:
    """Is it an integer constant with this value?"""
    return y.text == str(number) if isinstance(y, Value) else type(y) is int and y == number


@dataclass(frozen=True)
class External:
    """A function (or, without parameters, a variable) of others; `address` finds it, if the linker doesn't.

    `code` is the `Resident` that it is part of, if we have written it.
    """

    name: str
    returns: str = ""
    parameters: tuple[str, ...] | None = None
    attributes: str = ""
    address: Callable[[], int] | None = field(default=None, compare=False)
    code: Any = field(default=None, compare=False)

    def text(self) -> str:
        if self.parameters is None:
            return f"@{self.name} = external global i8"
        return f"declare {self.returns} @{self.name}({', '.join(self.parameters)}) {self.attributes}".rstrip()


@dataclass(frozen=True)
class Global:
    """A variable or table of a module: its definition, after the equals sign."""

    name: str
    definition: str

    def text(self) -> str:
        return f"@{self.name} = {self.definition}"


def table(name: str, values: Sequence[int | float], type: str = LONG) -> Global:
    """Constants in memory."""
    items = ", ".join(str(constant(value, type)) for value in values)
    return Global(name, f"private unnamed_addr constant {array(type, len(values))} [{items}]")


def zeros(name: str, type: str, align: int) -> Global:
    """A variable of this module, zero at first."""
    return Global(name, f"internal global {type} zeroinitializer, align {align}")
