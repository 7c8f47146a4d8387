"""What scalar code is made of: the dtypes of compiled code, and one value of it, real or complex.

A complex number is two real ones, in registers as in memory, where they are neighbours. So everything below an
operation on numbers (loops, phis, loads, stores) handles `parts`, of which a real number has one.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from wonderland.compile import ir

_NAMES = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "i8", "uint16": "i16",
    "uint32": "i32", "uint64": "i64", "float32": "float", "float64": "double",
}  # fmt: skip
TYPES = {np.dtype(name): type for name, type in _NAMES.items()}  # of the machine's byte order
REAL = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}


class Unsupported(Exception):
    """Something the compiler has no code for: the equation falls back to NumPy."""


def is_native(dtype: np.dtype) -> bool:
    """Does compiled code compute with this dtype?"""
    return dtype in TYPES or dtype in REAL


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of a number's parts: its own, if it is real."""
    return REAL.get(dtype, dtype)


def memory_type(dtype: np.dtype) -> str:
    """The IR type of an element in memory."""
    part = ir.BYTE if dtype.kind == "b" else TYPES[real_dtype(dtype)]
    return f"{{ {part}, {part} }}" if dtype.kind == "c" else part


class Scalar(ir.Value):
    """A number of compiled code with its NumPy dtype; operators have NumPy's meaning, by the `Emitter` it is from."""

    __slots__ = ("dtype", "factors")

    def __init__(self, text: str, dtype: np.dtype, code: Any = None):
        super().__init__(TYPES[dtype], text, code)
        self.dtype: np.dtype = dtype
        self.factors: tuple[Scalar, Scalar] | None = None  # of a product that a sum may take over

    @property
    def parts(self) -> tuple[Scalar, ...]:
        """The real numbers it consists of."""
        return (self,)

    def rounded(self) -> Scalar:
        """The same number, not to be taken over by a sum: others may read it from memory."""
        return Scalar(self.text, self.dtype, self.code) if self.factors else self

    def like(self, other: Any) -> Any:
        """`other` as a number of this dtype."""
        return super().like(other) if isinstance(other, ir.Value) else literal(other, self.dtype, self.code)

    def __abs__(self) -> Any:
        return self.code.abs(self)


class Complex(Scalar):
    """A complex number: two real values. It has no text, so that code for real numbers can't take it for one."""

    __slots__ = ("im", "re")

    def __init__(self, re: Scalar, im: Scalar):
        self.re: Scalar = re.rounded()
        self.im: Scalar = im.rounded()
        self.code: Any = re.code or im.code
        self.dtype: np.dtype = np.dtype(f"c{2 * re.dtype.itemsize}")
        self.factors: Any = None

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("text", "type"):  # which aren't set
            raise Unsupported(f"the compiler has no such operation on {self.dtype}")
        raise AttributeError(name)

    @property
    def parts(self) -> tuple[Scalar, ...]:
        return (self.re, self.im)

    def rounded(self) -> Scalar:
        return self

    def like(self, other: Any) -> Any:
        return other if isinstance(other, Complex) else super().like(other)


def assembled(parts: tuple[Scalar, ...]) -> Scalar:
    """A number from its parts."""
    return Complex(*parts) if len(parts) == 2 else parts[0]


def named(name: str, dtype: np.dtype, code: Any = None) -> Scalar:
    """A number whose parts have names made of this one."""
    if dtype.kind == "c":
        return Complex(*(Scalar(name + end, real_dtype(dtype), code) for end in (".re", ".im")))
    return Scalar(name, dtype, code)


def literal(value: Any, dtype: np.dtype, code: Any = None) -> Scalar:
    """A constant."""
    value = np.asarray(value).astype(dtype)
    if dtype.kind == "c":
        return Complex(*(literal(part, real_dtype(dtype), code) for part in (value.real, value.imag)))
    return Scalar(ir.constant(value[()], TYPES[dtype]).text, dtype, code)
