"""Logarithms and powers as branch-free code: log, log1p, log2, log10, pow.

All of them split x = 2^e (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2). Coefficients are minimax fits as in `exp`.
"""

from __future__ import annotations

import struct

from wonderland.compile.ir import Value
from wonderland.compile.vecmath.bits import BIAS, MANTISSA, bits_of, float_of, power_of_two, round_to_integer
from wonderland.compile.vecmath.exp import EXP, INFINITY, LN2, exp_scaled, round_quotient
from wonderland.compile.vecmath.formula import clamp, fabs, fast_two_sum, fma, polynomial, two_product, where
from wonderland.compile.vecmath.functions import vector_function

NAN = float("nan")
# (log(1 + f) - f + f^2/2) / f^3 for sqrt(1/2) - 1 <= f <= sqrt(2) - 1: 2^-29.7
LOG_FLOAT = (
    0.33333313, -0.25000033, 0.20002054, -0.1666773, 0.142204, -0.12398743, 0.11872542, -0.117608204, 0.06919505,
)  # fmt: skip
# (2 atanh(s) / s - 2) / s^2 as a polynomial in s^2, s = f / (2 + f): 2^-66.6
LOG_DOUBLE = (
    0.6666666666666666, 0.40000000000004926, 0.2857142856940978, 0.22222222607239345, 0.18181778329782255,
    0.15386990090547206, 0.13252118293034498, 0.1323505944928654,
)  # fmt: skip
# log2(e) as a sum of two numbers of the type.
LOG2_E = {"float": (1.442695, 1.925963e-08), "double": (1.4426950408889634, 2.0355273740931033e-17)}
# log10(2) as a sum of two doubles.
LOG10_2 = (0.3010299956639812, -2.8037281277851704e-18)
# log2((1 + s) / (1 - s)) / s: constant and s^2 coefficient 2 log2(e) and 2 log2(e) / 3 as double-doubles ...
LOG2_FIRST = (2.8853900817779268, 4.0710547481862066e-17)
LOG2_SECOND = (0.9617966939259756, 5.0577616648125906e-17)
# ... and the rest, divided by s^4: 2^-73.4; the same from s^2 on, for float results: 2^-44.9
LOG2_REST = (
    0.5770780163555851, 0.4121985831113458, 0.32059889791275925, 0.2623081986621863, 0.22195226999304457,
    0.19240133894479894, 0.16845112573717097, 0.17282092226591073,
)  # fmt: skip
LOG2_SHORT = (0.9617966940577943, 0.5770779531829482, 0.4122084025665667, 0.31993475684298617, 0.28253972164145197)


def pattern(value: float, type: str) -> int:
    """The bits of a number of the type, as a signed integer."""
    integer, number = ("<i", "<f") if type == "float" else ("<q", "<d")
    return struct.unpack(integer, struct.pack(number, value))[0]


def split_normal(x: Value) -> tuple[Value, Value, Value]:
    """Biased e as an integer, e as a float, and 1 + f of a positive normal x = 2^e (1 + f)."""
    type, mantissa = x.type, MANTISSA[x.type]
    low = pattern(0.7071067811865476, type)
    shifted = bits_of(x) + (pattern(1.0, type) - low)
    biased = shifted >> mantissa
    # It becomes a float by way of the low bits of 2^mantissa: AVX2 can't convert 64-bit integers.
    e = float_of(biased | pattern(2.0**mantissa, type)) - (2.0**mantissa + BIAS[type])
    return biased, e, float_of((shifted & (2**mantissa - 1)) + low)


def split(x: Value) -> tuple[Value, Value]:
    """e as a float and f, for subnormal x too."""
    lift = MANTISSA[x.type] + 1
    subnormal = x < 2.0 ** (1 - BIAS[x.type])
    _, e, one_plus_f = split_normal(where(subnormal, x * 2.0**lift, x))
    return e - where(subnormal, x.like(lift), 0.0), one_plus_f - 1.0


def log1p_rest(f: Value) -> Value:
    """log(1 + f) - f."""
    square = f * f
    half_square = square * 0.5
    if f.type == "float":
        return fma(square * f, polynomial(f, LOG_FLOAT), -half_square)
    s = f / (f + 2.0)
    z = s * s
    return fma(s, fma(z, polynomial(z, LOG_DOUBLE), half_square), -half_square)


def log_of_split(e: Value, f: Value, extra: Value | None = None) -> Value:
    """e ln 2 + log(1 + f) (+ extra, which is small), summed from the small terms to the large."""
    high, low = LN2[f.type]
    rest = fma(e, low, log1p_rest(f))
    return fma(e, high, f + (rest if extra is None else rest + extra))


def log_edges(x: Value, result: Value) -> Value:
    """The logarithm of x at infinity, NaN, zero and below."""
    result = where(x < INFINITY, result, x)
    result = where(x < 0.0, NAN, result)
    return where(x.equals(0.0), -INFINITY, result)


@vector_function
def log(x: Value) -> Value:
    """See `log_of_split`."""
    return log_edges(x, log_of_split(*split(x)))


@vector_function
def log2(x: Value) -> Value:
    """e + f log2(e) + rest: the product with f is kept exactly, the rest is small."""
    e, f = split(x)
    high, low = LOG2_E[x.type]
    head, tail = two_product(f, high)
    rest = fma(log1p_rest(f), high, fma(f, low, tail))
    return log_edges(x, (e + head) + rest)


@vector_function
def log1p(x: Value) -> Value:
    """Splits u = 1 + x, but takes f = x 2^-e + (2^-e - 1) from x: exact for e = 0, otherwise rounded once."""
    u = x + 1.0
    e, f = split_one_plus(x, u)
    return where(x.equals(0.0), x, log_edges(u, log_of_split(e, f)))


def split_one_plus(x: Value, u: Value) -> tuple[Value, Value]:
    """e and f of 1 + x, whose rounded value is u."""
    biased, e, one_plus_f = split_normal(u)
    shrink = float_of((2 * BIAS[x.type] - biased) << MANTISSA[x.type])
    return e, where(u < 2.0**60, fma(x, shrink, shrink - 1.0), one_plus_f - 1.0)


@vector_function
def log10(x: Value) -> Value:
    """log2(x) log10(2) with more bits than the type has, so that powers of ten give integers."""
    if x.type == "float":
        return log_edges(x, (log2_double(x.convert("double")) * LOG10_2[0]).convert("float"))
    high, low = log2_double_double(x)
    product, product_low = two_product(high, LOG10_2[0])
    return log_edges(x, product + fma(low, LOG10_2[0], fma(high, LOG10_2[1], product_low)))


def log2_double(x: Value) -> Value:
    """log2 of a normal double to 2^-44, relative to the result."""
    _, e, m = split_normal(x)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    return fma(s, fma(z, polynomial(z, LOG2_SHORT), LOG2_FIRST[0]), e)


def log2_double_double(x: Value) -> tuple[Value, Value]:
    """log2 of a double to about 2^-66, as a sum of two doubles.

    s = f / (2 + f) as a double-double (one division; the residual of the quotient gives the low part), then
    s (c0 + s^2 (c1 + s^2 rest)) with c0, c1 and the outer operations in double-double.
    """
    e, f = split(x)
    denominator, denominator_low = fast_two_sum(x.like(2.0), f)
    reciprocal = 1.0 / denominator
    s = f * reciprocal
    s_low = fma(-s, denominator_low, fma(-s, denominator, f)) * reciprocal
    z, z_low = two_product(s, s)
    z_low = fma(s + s, s_low, z_low)
    c, c_low = fast_two_sum(x.like(LOG2_SECOND[0]), fma(z, polynomial(z, LOG2_REST), LOG2_SECOND[1]))
    p, p_low = two_product(z, c)
    p_low = fma(z, c_low, fma(z_low, c, p_low))
    c, c_low = fast_two_sum(x.like(LOG2_FIRST[0]), p)
    c_low = c_low + (p_low + LOG2_FIRST[1])
    p, p_low = two_product(s, c)
    p_low = fma(s, c_low, fma(s_low, c, p_low))
    total, total_low = fast_two_sum(e, p)
    return fast_two_sum(total, total_low + p_low)


def power_of_magnitude(x: Value, y: Value) -> Value:
    """x^y = 2^(y log2 x) for finite x > 0 and finite y; float is computed in double."""
    if x.type == "float":
        exponent = clamp(y.convert("double") * log2_double(x.convert("double")), -200.0, 200.0)
        n, integer = round_to_integer(exponent)
        r = (exponent - n) * LN2["double"][0]
        value = fma(r * r, polynomial(r, EXP["float"]), r) + 1.0
        return (value * power_of_two(integer)).convert("float")
    log_high, log_low = log2_double_double(x)
    high, low = two_product(y, log_high)
    low = fma(y, log_low, low)
    # Far outside the range the product may have overflowed: then its low part is no number.
    low = where(fabs(high) > 1100.0, 0.0, low)
    high = clamp(high, -1100.0, 1100.0)
    minus_n, bits = round_quotient(high, 1.0, 2 * BIAS["double"])
    fraction = high + minus_n
    r = fma(fraction, LN2["double"][0], fma(fraction, LN2["double"][1], low * LN2["double"][0]))
    return exp_scaled(r, bits)


@vector_function
def pow(x: Value, y: Value) -> Value:
    """C's pow, special cases included."""
    magnitude, size = fabs(x), fabs(y)
    # Adding 2^mantissa to |y| rounds it to an integer whose parity is the lowest bit; above that, y is whole.
    whole = 2.0 ** MANTISSA[y.type]
    large = size >= whole
    shifted = where(large, size, size + whole)
    integer = large | (shifted - whole).equals(size)
    odd = integer & (size < 2.0 * whole) & (bits_of(shifted) & 1).equals(1)
    negative = bits_of(x) < 0
    result = power_of_magnitude(magnitude, y)
    # 0, infinity: grows without bound or vanishes.
    edge = magnitude.equals(0.0) | magnitude.equals(INFINITY) | size.equals(INFINITY)
    grows = (magnitude > 1.0) ^ (y < 0.0)
    result = where(edge, where(grows, x.like(INFINITY), 0.0), result)
    result = where((x < 0.0) & ~integer & ~edge, NAN, result)
    result = where(negative & odd, -result, result)
    result = where(x.is_nan() | y.is_nan(), NAN, result)
    one = x.equals(1.0) | y.equals(0.0) | (magnitude.equals(1.0) & size.equals(INFINITY))
    return where(one, 1.0, result)
