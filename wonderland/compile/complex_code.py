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

BITS = 7  # exponents of fewer bits are worked off by multiplication: NumPy does so up to 99
LARGEST_EXPONENT = 99


def _by_parts(name: str) -> Callable:
    """An operation that is done to both parts."""

    def operation(e: Any, *args: Complex) -> Complex:
        method = getattr(e, name)
        return Complex(method(*(a.re for a in args)), method(*(a.im for a in args)))

    return operation


def mul(e: Any, x: Complex, y: Complex) -> Complex:
    """(x.re y.re - x.im y.im, x.re y.im + x.im y.re)"""
    re = e.sub(e.mul(x.re, y.re), e.mul(x.im, y.im).rounded())
    im = e.add(e.mul(x.re, y.im), e.mul(x.im, y.re).rounded())
    return Complex(re, im)


def div(e: Any, x: Complex, y: Complex) -> Complex:
    """Smith's quotient: with q = y.im / y.re, x / y = (x.re + x.im q, x.im - x.re q) / (y.re + y.im q)."""
    upright = e.compare("lt", e.abs(y.re), e.abs(y.im))  # the roles of the parts are exchanged
    big, small = e.select(upright, y.im, y.re), e.select(upright, y.re, y.im)
    first, second = e.select(upright, x.im, x.re), e.select(upright, x.re, x.im)
    ratio = e.div(small, big)
    # No product is contracted: the digits are NumPy's.
    scale = e.div(e.constant(1, big), e.add(big, e.mul(small, ratio).rounded()))
    re = e.mul(e.add(first, e.mul(second, ratio).rounded()), scale)
    turned = e.mul(first, ratio).rounded()
    im = e.mul(e.sub(e.select(upright, turned, second), e.select(upright, second, turned)), scale)
    zero = e.bit_and(_is(e, y.re, 0), _is(e, y.im, 0))
    size = e.abs(y.re)
    return Complex(e.select(zero, e.div(x.re, size), re), e.select(zero, e.div(x.im, size), im))


def _is(e: Any, x: Scalar, number: float) -> Scalar:
    return e.compare("eq", x, e.constant(number, x))


def _isnan(e: Any, x: Complex) -> Scalar:
    return e.bit_or(e.compare("ne", x.re, x.re), e.compare("ne", x.im, x.im))


def compare(e: Any, op: str, x: Complex, y: Complex) -> Scalar:
    """NumPy's order: by the real parts, then by the imaginary ones; nothing is less than, or more than, a NaN."""
    if op in ("eq", "ne"):
        return (e.bit_and if op == "eq" else e.bit_or)(e.compare(op, x.re, y.re), e.compare(op, x.im, y.im))
    known = e.bit_and(e.compare("eq", x.im, x.im), e.compare("eq", y.im, y.im))
    before = e.bit_and(e.compare(op[:1] + "t", x.re, y.re), known)
    return e.bit_or(before, e.bit_and(e.compare("eq", x.re, y.re), e.compare(op, x.im, y.im)))


def _extreme(op: str) -> Callable:
    """The first operand if it wins or is NaN."""
    return lambda e, x, y: e.select(e.bit_or(compare(e, op, x, y), _isnan(e, x)), x, y)


def select(e: Any, condition: Scalar, x: Complex, y: Complex) -> Complex:
    """Both parts of one operand."""
    return Complex(e.select(condition, x.re, y.re), e.select(condition, x.im, y.im))


def sign(e: Any, x: Complex) -> Complex:
    """x / |x|: 0 at 0; for one infinite part its direction, for two NaN."""
    limit = e.constant(np.finfo(x.re.dtype).max / 4, x.re)
    large = e.bit_or(e.compare("gt", e.abs(x.re), limit), e.compare("gt", e.abs(x.im), limit))
    factor = e.select(large, e.constant(0.25, x.re), e.constant(1, x.re))  # |x| overflows before its parts do
    x = Complex(e.mul(x.re, factor), e.mul(x.im, factor))
    size = e.call("hypot", x.re, x.im)
    zero, one, infinite = e.constant(0, size), e.constant(1, size), _is(e, size, np.inf)
    divisor = e.select(_is(e, size, 0), one, size)

    def part(value: Scalar, other: Scalar) -> Scalar:
        whole = e.select(_is(e, e.abs(value), np.inf), e.intrinsic("copysign", one, value), zero)
        both = e.bit_and(_is(e, e.abs(value), np.inf), _is(e, e.abs(other), np.inf))
        missing = e.bit_or(both, e.compare("ne", size, size))
        chosen = e.select(infinite, whole, e.div(value, divisor))
        chosen = e.select(_is(e, size, 0), zero, chosen)  # without the sign of a part
        return e.select(missing, e.constant(np.nan, size), chosen)

    return Complex(part(x.re, x.im), part(x.im, x.re))


def convert(e: Any, x: Complex, dtype: np.dtype) -> Scalar:
    """NumPy's `astype`: to a real number, the real part."""
    if dtype.kind == "c":
        part = real_dtype(dtype)
        return Complex(e.convert(x.re, part), e.convert(x.im, part))
    if dtype.kind == "b":
        return compare(e, "ne", x, e.constant(0, x))
    return e.convert(x.re, dtype)


def call(e: Any, name: str, *args: Complex) -> Scalar:
    """A function of `complex_math`."""
    if name not in complex_math.FUNCTIONS:
        raise Unsupported(f"{name} of complex numbers")
    return complex_math.FUNCTIONS[name](e, *args)


def _exponent(y: Complex) -> int | None:
    """The exponent, if it is written as a whole number in the code."""
    values = [_value(part) for part in y.parts]
    if values[1] != 0 or values[0] is None or values[0] != round(values[0]) or abs(values[0]) > LARGEST_EXPONENT:
        return None
    return round(values[0])


def _value(x: Scalar) -> float | None:
    if not x.text.startswith("0x"):
        return None
    value = float(np.uint64(int(x.text, 16)).view(np.float64))
    return value if np.isfinite(value) else None


def power(e: Any, x: Complex, y: Complex) -> Scalar:
    """By multiplication for small whole exponents, else exp(y log x); 0^y is 0 for y.re > 0, x^0 is 1."""
    one = e.constant(1, x)
    known = _exponent(y)
    if known is not None:
        out = _whole_power(e, x, abs(known)) if known else one
        if known >= 0:
            return out
        return e.select(e.compare("eq", x, e.constant(0, x)), e.constant(complex(np.nan, np.nan), x), e.div(one, out))
    size = e.abs(y.re)
    whole = e.bit_and(_is(e, y.im, 0), e.compare("eq", size, e.intrinsic("floor", size)))
    whole = e.bit_and(whole, e.compare("le", size, e.constant(LARGEST_EXPONENT, size)))
    general = complex_math.exp(e, mul(e, y, complex_math.log(e, x)))
    nothing = compare(e, "eq", x, e.constant(0, x))
    positive = e.compare("gt", y.re, e.constant(0, size))
    missing = e.constant(complex(np.nan, np.nan), x)
    general = select(e, nothing, select(e, positive, e.constant(0, x), missing), general)
    product, square = one, x
    count = e.convert(e.select(whole, size, e.constant(0, size)), np.dtype(np.int32))
    for bit in range(BITS):
        odd = e.compare("ne", e.bit_and(count, e.constant(1 << bit, count)), e.constant(0, count))
        empty = e.compare("eq", e.bit_and(count, e.constant((1 << bit) - 1, count)), e.constant(0, count))
        product = select(e, odd, select(e, empty, square, mul(e, product, square)), product)
        square = mul(e, square, square)
    negative = e.compare("lt", y.re, e.constant(0, size))
    product = select(e, negative, div(e, one, product), product)
    product = select(e, e.bit_and(nothing, negative), missing, product)
    return select(e, whole, product, general)


def _whole_power(e: Any, x: Scalar, n: int) -> Scalar:
    out: Scalar | None = None
    while True:
        if n & 1:
            out = x if out is None else e.mul(out, x)
        n >>= 1
        if not n:
            assert out is not None
            return out
        x = e.mul(x, x)


def intrinsic(e: Any, name: str, *args: Complex) -> Scalar:
    """Rounding is done to both parts."""
    if name != "rint":
        raise Unsupported(f"{name} of complex numbers")
    return Complex(e.intrinsic(name, args[0].re), e.intrinsic(name, args[0].im))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": _by_parts("add"),
    "sub": _by_parts("sub"),
    "neg": _by_parts("neg"),
    "mul": mul,
    "div": div,
    "abs": lambda e, x: e.call("hypot", x.re, x.im),
    "conj": lambda e, x: Complex(x.re, e.neg(x.im)),
    "real": lambda e, x: x.re,
    "imag": lambda e, x: x.im,
    "sqrt": complex_math.sqrt,
    "sign": sign,
    "maximum": _extreme("ge"),
    "minimum": _extreme("le"),
    "compare": compare,
    "select": select,
    "power": power,
    "call": call,
    "convert": convert,
    "intrinsic": intrinsic,
}


def operate(e: Any, name: str, *args: Any, **options: Any) -> Any:
    """An operation of the emitter, of which some operand is complex: then all of them must be."""
    operands = args[1:] if name == "select" else args  # behind the condition
    if any(type(a) is Scalar for a in operands):
        raise Unsupported(f"{name} of real and complex numbers together")
    return OPERATIONS[name](e, *args, **options)
