"""Scalar code that takes more than a line: scalars of the compiler come in, the code of a primitive goes out.

Each function emits, by the methods of the compiler's emitter `e`, what NumPy or SciPy computes: division by zero of
integers gives 0, the smallest integer divided by -1 itself; signs of zeros, infinities and NaN are theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

BOOL = np.dtype(bool)
_BITS = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}  # of a float, by its size
LOG2_E = 1.0 / math.log(2.0)

# Division with remainder ---------------------------------------------------------------------------------------------


def _safe_divisor(e: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Is y zero, and a divisor that never traps: 1 for 0, and for -1 where x is the smallest number (x / 1 is x)."""
    zero = e.compare("eq", y, e.constant(0, y))
    unsafe = zero
    if x.dtype.kind == "i":
        least = e.compare("eq", x, e.constant(np.iinfo(x.dtype).min, x))
        unsafe = e.bit_or(zero, e.bit_and(least, e.compare("eq", y, e.constant(-1, y))))
    return zero, e.select(unsafe, e.constant(1, y), y)


def _differ_in_sign(e: Any, x: Any, y: Any) -> Any:
    zero = e.constant(0, x)
    return e.bit_xor(e.compare("lt", x, zero), e.compare("lt", y, zero))


def _whole_division(e: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Quotient and remainder of integers, rounded towards zero; both are 0 for y = 0."""
    zero, divisor = _safe_divisor(e, x, y)
    e.cost += 40
    quotient, rest = e.quotient(x, divisor), e.remainder(x, divisor)
    return e.select(zero, e.constant(0, x), quotient), e.select(zero, e.constant(0, x), rest)


def _frem(e: Any, x: Any, y: Any) -> Any:
    e.cost += 200
    return e.remainder(x, y)


def fmod(e: Any, x: Any, y: Any) -> Any:
    """C's remainder."""
    return _frem(e, x, y) if x.dtype.kind == "f" else _whole_division(e, x, y)[1]


def _float_division(e: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
    """fmod, is it to be moved by y, and x / y."""
    rest = _frem(e, x, y)
    moved = e.bit_and(e.compare("ne", rest, e.constant(0, x)), _differ_in_sign(e, rest, y))
    return rest, moved, e.div(x, y)


def remainder(e: Any, x: Any, y: Any) -> Any:
    """Python's remainder, with the sign of y."""
    if x.dtype.kind != "f":
        rest = _whole_division(e, x, y)[1]
        if x.dtype.kind == "u":
            return rest
        moved = e.bit_and(e.compare("ne", rest, e.constant(0, x)), _differ_in_sign(e, rest, y))
        return e.select(moved, e.add(rest, y), rest)
    zero = e.constant(0.0, x)
    rest, moved, _ = _float_division(e, x, y)
    none = e.compare("eq", rest, zero)
    return e.select(none, e.intrinsic("copysign", zero, y), e.select(moved, e.add(rest, y), rest))


def floor_divide(e: Any, x: Any, y: Any) -> Any:
    """Python's //: computed from the remainder, since x / y may be rounded up to the next whole number."""
    zero, one = e.constant(0, x), e.constant(1, x)
    if x.dtype.kind != "f":
        quotient, rest = _whole_division(e, x, y)
        if x.dtype.kind == "u":
            return quotient
        moved = e.bit_and(e.compare("ne", rest, zero), _differ_in_sign(e, rest, y))
        return e.select(moved, e.sub(quotient, one), quotient)
    rest, moved, ratio = _float_division(e, x, y)
    quotient = e.div(e.sub(x, rest), y)
    quotient = e.select(moved, e.sub(quotient, one), quotient)
    floor = e.intrinsic("floor", quotient)
    up = e.compare("gt", e.sub(quotient, floor), e.constant(0.5, x))
    floor = e.select(up, e.add(floor, one), floor)
    floor = e.select(e.compare("eq", quotient, zero), e.intrinsic("copysign", zero, ratio), floor)
    return e.select(e.compare("eq", y, zero), ratio, floor)


# The parts of a floating-point number --------------------------------------------------------------------------------


def nextafter(e: Any, x: Any, y: Any) -> Any:
    """The neighbouring bits: one more away from 0, one less towards it."""
    kind, zero = _BITS[x.dtype.itemsize], e.constant(0.0, x)
    bits = e.bitcast(x, kind)
    away = e.bit_xor(_differ_in_sign(e, x, zero), e.compare("gt", y, x))
    step = e.select(away, e.constant(1, kind), e.constant(-1, kind))
    moved = e.bitcast(e.add(bits, step), x.dtype)
    smallest = e.constant(np.finfo(x.dtype).smallest_subnormal, x)
    moved = e.select(e.compare("eq", x, zero), e.intrinsic("copysign", smallest, y), moved)
    moved = e.select(e.compare("eq", x, y), y, moved)
    unordered = e.unordered(x, y)
    return e.select(unordered, e.add(x, y), moved)


def spacing(e: Any, x: Any) -> Any:
    """The distance to the next number away from 0."""
    kind, zero = _BITS[x.dtype.itemsize], e.constant(0.0, x)
    step = e.sub(e.bitcast(e.add(e.bitcast(x, kind), e.constant(1, kind)), x.dtype), x)
    step = e.select(e.compare("eq", x, zero), e.constant(np.finfo(x.dtype).smallest_subnormal, x), step)
    finite = e.compare("lt", e.abs(x), e.constant(np.inf, x))
    return e.select(finite, step, e.constant(np.nan, x))


def exponent(e: Any, x: Any) -> Any:
    """n of x = m 2^n with 1/2 <= |m| < 1; 0 for zero, infinities and NaN. Subnormal numbers are scaled up first."""
    kind, info = _BITS[x.dtype.itemsize], np.finfo(x.dtype)
    size = e.abs(x)
    small = e.compare("lt", size, e.constant(info.tiny, x))
    scale = info.nmant + 2
    scaled = e.product(size, e.constant(2.0**scale, x))
    bits = e.bitcast(e.select(small, scaled, size), kind)
    biased = e.shift_right(bits, e.constant(info.nmant, kind))
    offset = e.select(small, e.constant(info.minexp - scale, kind), e.constant(info.minexp, kind))
    n = e.convert(e.add(biased, offset), np.dtype(np.int32))
    usual = e.bit_and(e.compare("gt", size, e.constant(0.0, x)), e.compare("lt", size, e.constant(np.inf, x)))
    return e.select(usual, n, e.constant(0, n))


def ldexp(e: Any, x: Any, n: Any) -> Any:
    """x 2^n by three factors, of which only the last may round: the first two keep 2^mantissa above underflow."""
    kind, info = _BITS[x.dtype.itemsize], np.finfo(x.dtype)
    high, low = info.maxexp - 1, info.minexp + info.nmant + 1  # 1023 and -969 for double
    limit = 3 * info.maxexp
    n = e.minimum(e.maximum(n, e.constant(-limit, n)), e.constant(limit, n))
    for _ in range(2):
        up, down = e.compare("gt", n, e.constant(high, n)), e.compare("lt", n, e.constant(info.minexp, n))
        factor = e.select(up, e.constant(2.0**high, x), e.select(down, e.constant(2.0**low, x), e.constant(1.0, x)))
        x = e.product(x, factor)
        n = e.sub(n, e.select(up, e.constant(high, n), e.select(down, e.constant(low, n), e.constant(0, n))))
    n = e.minimum(e.maximum(n, e.constant(info.minexp, n)), e.constant(high, n))
    biased = e.convert(e.add(n, e.constant(info.maxexp - 1, n)), kind)
    last = e.bitcast(e.shift_left(biased, e.constant(info.nmant, kind)), x.dtype)
    return e.product(x, last)


# Integers ------------------------------------------------------------------------------------------------------------


def bitwise_count(e: Any, x: Any) -> Any:
    """The ones among the bits of |x|."""
    return e.convert(e.intrinsic("ctpop", e.abs(x)), np.dtype(np.uint8))


def gcd(e: Any, x: Any, y: Any) -> Any:
    """Of the sizes, taken as unsigned numbers."""
    return e.routine("gcd", (), x.dtype, e.abs(x), e.abs(y))


def lcm(e: Any, x: Any, y: Any) -> Any:
    """x / gcd * y; 0 if one of them is."""
    divisor, zero = gcd(e, x, y), e.constant(0, x)
    divisor = e.select(e.compare("eq", divisor, zero), e.constant(1, x), divisor)
    quotient = e.quotient(e.abs(x), divisor, signed=False)
    return e.mul(quotient, e.abs(y))


# Exponentials and logarithms -----------------------------------------------------------------------------------------


def logaddexp(e: Any, x: Any, y: Any) -> Any:
    """max + log(1 + e^-|x - y|), where two equal infinities have no difference."""
    rest = e.call("log1p", e.call("exp", e.neg(e.abs(e.sub(x, y)))))
    return e.select(e.compare("eq", x, y), e.add(x, e.constant(math.log(2.0), x)), e.add(e.maximum(x, y), rest))


def logaddexp2(e: Any, x: Any, y: Any) -> Any:
    """The same to base 2."""
    rest = e.mul(e.call("log1p", e.call("exp2", e.neg(e.abs(e.sub(x, y))))), e.constant(LOG2_E, x))
    return e.select(e.compare("eq", x, y), e.add(x, e.constant(1.0, x)), e.add(e.maximum(x, y), rest))


def logit(e: Any, x: Any) -> Any:
    """log(x / (1 - x)); near 1/2, where that is small, a difference of two log1p."""
    one, half = e.constant(1.0, x), e.constant(0.5, x)
    s = e.product(e.sub(x, half), e.constant(2.0, x))
    near = e.sub(e.call("log1p", s), e.call("log1p", e.neg(s)))
    far = e.call("log", e.div(x, e.sub(one, x)))
    return e.select(e.compare("lt", e.abs(s), e.constant(0.35, x)), near, far)


def rel_entr(e: Any, x: Any, y: Any) -> Any:
    """x log(x / y): by log1p near x = y, by two logarithms where the quotient leaves the range of numbers."""
    zero, infinity = e.constant(0.0, x), e.constant(np.inf, x)
    ratio = e.div(x, y)
    near = e.bit_and(e.compare("gt", ratio, e.constant(0.5, x)), e.compare("lt", ratio, e.constant(2.0, x)))
    fits = e.bit_and(e.compare("gt", ratio, e.constant(np.finfo(x.dtype).tiny, x)), e.compare("lt", ratio, infinity))
    far = e.select(fits, e.call("log", ratio), e.sub(e.call("log", x), e.call("log", y)))
    logarithm = e.select(near, e.call("log1p", e.div(e.sub(x, y), y)), far)
    positive = e.bit_and(e.compare("gt", x, zero), e.compare("gt", y, zero))
    nothing = e.bit_and(e.compare("eq", x, zero), e.compare("ge", y, zero))
    value = e.select(positive, e.mul(x, logarithm), e.select(nothing, zero, infinity))
    return e.select(e.unordered(x, y), e.constant(np.nan, x), value)


@cache
def sinc(order: int) -> Callable:
    """The code of a derivative of sin(t) / t: the recursion far from 0, Gauss's rule near it (see `ops.math`)."""

    def emit(e: Any, t: Any) -> Any:
        zero, one = e.constant(0.0, t), e.constant(1.0, t)
        if order == 0:
            start = e.compare("eq", t, zero)
            return e.select(start, one, e.div(e.call("sin", t), e.select(start, one, t)))
        small = e.compare("lt", e.abs(t), e.constant(max(1, order), t))
        far = e.select(small, one, t)
        sine, cosine = e.call("sin", far), e.call("cos", far)
        waves = (sine, cosine, e.neg(sine), e.neg(cosine))
        out = e.div(sine, far)
        for n in range(1, order + 1):
            out = e.div(e.sub(waves[n % 4], e.mul(e.constant(n, t), out)), far)
        near = e.select(small, t, zero)
        nodes, weights = np.polynomial.legendre.leggauss(12 + order)
        total = zero
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            wave = e.call("sin" if order % 2 else "cos", e.mul(e.constant(node, t), near))
            total = e.add(total, e.mul(e.constant(weight * node**order, t), wave))
        return e.select(small, total if order % 4 in (0, 3) else e.neg(total), out)

    return emit


def loggamma(e: Any, x: Any) -> Any:
    """The logarithm of the gamma function where that is positive by its argument's sign; NaN for x < 0."""
    return e.select(e.compare("lt", x, e.constant(0.0, x)), e.constant(np.nan, x), e.call("gammaln", x))


def log_ndtr(e: Any, x: Any) -> Any:
    """log of the normal distribution function, in double: by erfcx in the lower tail, where erfc vanishes."""
    dtype = x.dtype
    x = e.convert(x, np.dtype(np.float64))
    t = e.product(x, e.constant(math.sqrt(0.5), x))
    half = e.constant(0.5, x)
    tail = e.sub(e.call("log", e.mul(half, e.call("erfcx", e.neg(t)))), e.mul(t, t))
    body = e.call("log1p", e.neg(e.mul(half, e.call("erfc", t))))
    return e.convert(e.select(e.compare("lt", x, e.constant(-1.0, x)), tail, body), dtype)


# The zeta function ---------------------------------------------------------------------------------------------------


def zeta(e: Any, s: Any, q: Any) -> Any:
    """Hurwitz's zeta function, in double; beyond q = 10^8 by the first terms of its expansion."""
    dtype = s.dtype
    double = np.dtype(np.float64)
    s, q = e.convert(s, double), e.convert(q, double)
    zero, one = (e.constant(c, double) for c in (0.0, 1.0))
    pole = e.bit_and(e.compare("le", q, zero), e.compare("eq", q, e.intrinsic("floor", q)))
    undefined = e.bit_and(e.compare("le", q, zero), e.compare("ne", s, e.intrinsic("floor", s)))
    large = e.compare("gt", q, e.constant(1e8, double))
    plain = e.bit_and(e.compare("le", q, e.constant(1e8, double)), e.invert(pole))
    value = e.routine("zeta", (), double, s, e.select(plain, q, one))
    far = e.mul(e.add(e.div(one, e.sub(s, one)), e.div(e.constant(0.5, double), q)), e.call("pow", q, e.sub(one, s)))
    value = e.select(large, far, value)
    value = e.select(undefined, e.constant(np.nan, double), value)
    value = e.select(pole, e.constant(np.inf, double), value)
    nothing = e.bit_or(e.compare("lt", s, one), e.compare("ne", q, q))
    value = e.select(nothing, e.constant(np.nan, double), value)
    return e.convert(e.select(e.compare("eq", s, one), e.constant(np.inf, double), value), dtype)
