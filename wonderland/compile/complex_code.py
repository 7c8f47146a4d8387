"""Scalar code for complex numbers: what each operation of the emitter is in terms of real ones.

`OPERATIONS` has an entry for each operation of `Emitter` that complex operands can have; `complex_math` has the
elementary functions. The formulas are NumPy's: the plain product (so an infinity times a complex number may have NaN
parts), and Smith's quotient, which doesn't overflow where the result doesn't.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.compile import complex_math
from wonderland.compile.scalars import Complex, Scalar, Unsupported, real_dtype
from wonderland.compile.vecmath.formula import copysign, floor, where

BITS = 7  # exponents of fewer bits are worked off by multiplication: NumPy does so up to 99
LARGEST_EXPONENT = 99


def mul(x: Complex, y: Complex) -> Complex:
    """The first product of a part may be contracted, the second is rounded."""
    re = x.re * y.re - (x.im * y.im).rounded()
    return Complex(re, x.re * y.im + (x.im * y.re).rounded())


def div(x: Complex, y: Complex) -> Complex:
    """Smith's quotient: with q = y.im / y.re, x / y = (x.re + x.im q, x.im - x.re q) / (y.re + y.im q)."""
    upright = abs(y.re) < abs(y.im)  # the roles of the parts are exchanged
    big, small = where(upright, y.im, y.re), where(upright, y.re, y.im)
    first, second = where(upright, x.im, x.re), where(upright, x.re, x.im)
    ratio = small / big
    # No product is contracted: the digits are NumPy's.
    scale = 1 / (big + (small * ratio).rounded())
    re = (first + (second * ratio).rounded()) * scale
    turned = (first * ratio).rounded()
    im = (where(upright, turned, second) - where(upright, second, turned)) * scale
    zero = y.re.equals(0) & y.im.equals(0)
    size = abs(y.re)
    return Complex(where(zero, x.re / size, re), where(zero, x.im / size, im))


def compare(op: str, x: Complex, y: Complex) -> Scalar:
    """NumPy's order: by the real parts, then by the imaginary ones; nothing is less than, or more than, a NaN."""
    of = x.code.compare
    if op == "eq":
        return of(op, x.re, y.re) & of(op, x.im, y.im)
    if op == "ne":
        return of(op, x.re, y.re) | of(op, x.im, y.im)
    known = x.im.equals(x.im) & y.im.equals(y.im)
    return of(op[:1] + "t", x.re, y.re) & known | x.re.equals(y.re) & of(op, x.im, y.im)


def _extreme(op: str) -> Callable:
    """The first operand if it wins or is NaN."""
    return lambda x, y: where(compare(op, x, y) | x.differs(x), x, y)


def select(condition: Scalar, x: Complex, y: Complex) -> Complex:
    """Both parts of one operand, of which the other may be a number of Python."""
    x = x if isinstance(x, Complex) else y.like(x)
    y = x.like(y)
    return Complex(where(condition, x.re, y.re), where(condition, x.im, y.im))


def sign(x: Complex) -> Complex:
    """x / |x|: 0 at 0; for one infinite part its direction, for two NaN."""
    limit = np.finfo(x.re.dtype).max / 4
    large = (abs(x.re) > limit) | (abs(x.im) > limit)
    factor = where(large, 0.25, x.re.like(1))  # |x| overflows before its parts do
    x = Complex(x.re * factor, x.im * factor)
    size: Any = abs(x)
    infinite, divisor = size.equals(np.inf), where(size.equals(0), 1, size)

    def part(value: Scalar, other: Scalar) -> Scalar:
        whole = where(abs(value).equals(np.inf), copysign(size.like(1), value), 0)
        both = abs(value).equals(np.inf) & abs(other).equals(np.inf)
        missing = both | size.differs(size)
        chosen = where(infinite, whole, value / divisor)
        return where(missing, np.nan, where(size.equals(0), 0, chosen))  # a zero without the sign of a part

    return Complex(part(x.re, x.im), part(x.im, x.re))


def convert(x: Complex, dtype: np.dtype) -> Scalar:
    """NumPy's `astype`: to a real number, the real part."""
    if dtype.kind == "c":
        return Complex(x.re.convert(real_dtype(dtype)), x.im.convert(real_dtype(dtype)))
    return x.differs(0) if dtype.kind == "b" else x.re.convert(dtype)


def call(name: str, x: Complex, *others: Complex) -> Scalar:
    """A function of `complex_math`."""
    if name not in complex_math.FUNCTIONS:
        raise Unsupported(f"{name} of complex numbers")
    return Complex(*complex_math.FUNCTIONS[name](x.re, x.im))


def _exponent(y: Complex) -> int | None:
    """The exponent, if it is written as a whole number in the code."""
    if not all(part.text.startswith("0x") for part in y.parts):
        return None
    re, im = (float(np.uint64(int(part.text, 16)).view(np.float64)) for part in y.parts)
    return int(re) if im == 0 and re.is_integer() and abs(re) <= LARGEST_EXPONENT else None


def power(x: Complex, y: Complex) -> Scalar:
    """By multiplication for small whole exponents, else exp(y log x); 0^y is 0 for y.re > 0, x^0 is 1."""
    one, missing = x.like(1), x.like(complex(np.nan, np.nan))
    known = _exponent(y)
    if known is not None:
        out = _whole_power(x, abs(known)) if known else one
        return out if known >= 0 else where(x.equals(0), missing, one / out)
    size: Any = abs(y.re)
    whole = y.im.equals(0) & size.equals(floor(size)) & (size <= LARGEST_EXPONENT)
    general = call("exp", y * call("log", x))
    nothing = x.equals(0)
    general = where(nothing, where(y.re > 0, 0, missing), general)
    product, square = one, x
    count = where(whole, size, 0).convert(np.dtype(np.int32))
    for bit in range(BITS):
        odd = (count & 1 << bit).differs(0)
        empty = (count & (1 << bit) - 1).equals(0)
        product = where(odd, where(empty, square, product * square), product)
        square = square * square
    negative = y.re < 0
    product = where(negative, one / product, product)
    return where(whole, where(nothing & negative, missing, product), general)


def _whole_power(x: Scalar, n: int) -> Any:
    """By squares, for n > 0."""
    out = None
    for bit in range(n.bit_length()):
        x = x * x if bit else x
        if n >> bit & 1:
            out = x if out is None else out * x
    return out


def intrinsic(name: str, x: Complex, *others: Complex) -> Scalar:
    """Rounding is done to both parts."""
    if name != "rint":
        raise Unsupported(f"{name} of complex numbers")
    return Complex(x.code.intrinsic(name, x.re), x.code.intrinsic(name, x.im))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: Complex(x.re + y.re, x.im + y.im),
    "sub": lambda x, y: Complex(x.re - y.re, x.im - y.im),
    "neg": lambda x: Complex(-x.re, -x.im),
    "abs": lambda x: x.code.call("hypot", x.re, x.im),
    "conj": lambda x: Complex(x.re, -x.im),
    "real": lambda x: x.re,
    "imag": lambda x: x.im,
    "sqrt": lambda x: call("sqrt", x),
    "maximum": _extreme("ge"),
    "minimum": _extreme("le"),
    **{function.__name__: function for function in (mul, div, sign, compare, select, power, call, convert, intrinsic)},
}


def operate(name: str, *args: Any, **options: Any) -> Any:
    """An operation of the emitter, of which some operand is complex: then all of them must be."""
    operands = args[1:] if name == "select" else args  # behind the condition
    if any(type(a) is Scalar for a in operands):
        raise Unsupported(f"{name} of real and complex numbers together")
    return OPERATIONS[name](*args, **options)
