"""Sine, cosine and tangent, right for the largest arguments.

x = n pi/2 + r with |r| <= pi/4, then a polynomial in r chosen by n mod 4; coefficients are minimax fits as in
`exp`. Up to |x| = 2^40 three fma with the three doubles of pi/2 give r, branch-free (float computes
it in double). Beyond, r needs up to 1200 bits of 2/pi. Doing that for every element, by gathers from a table,
made the float sine twice as slow, and double needs four gathers where float needs two. So it is a function of
its own, called once for every *vector* of elements: its vector variants, which the loop vectoriser finds by
the call's attribute `vector-function-abi-variant`, return at once unless an element is large.
"""

from __future__ import annotations

from wonderland.compile.ir import BOOL, LONG, SUFFIX, Function, Value, table, vector
from wonderland.compile.vecmath.bits import INTEGER, bits_of, float_of, power_of_two, round_to_integer
from wonderland.compile.vecmath.formula import fabs, fast_two_sum, fma, intrinsic, polynomial, where
from wonderland.compile.vecmath.functions import vector_function

LARGE = 2.0**40
LANES = (2, 4, 8, 16)
PURE = "noinline optsize nounwind willreturn speculatable memory(none)"
TWO_OVER_PI = 0.6366197723675814
# pi/2 as a sum of three doubles.
HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
# 64 zeros, then the bits of 2/pi after the binary point.
TWO_OVER_PI_BITS = (
    0x0000000000000000, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484, 0xE99C7026B45F7E41,
    0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB,
)  # fmt: skip
# (sin(r) / r - 1) / r^2 as a polynomial in r^2: 2^-28.0 and 2^-58.0
SIN = {
    "float": (-0.16666655242443085, 0.008332191966474056, -0.0001951878803083673),
    "double": (
        -0.16666666666666632, 0.008333333333322488, -0.00019841269829855578, 2.7557313706030284e-06,
        -2.505076006450021e-08, 1.5896897757969657e-10,
    ),
}  # fmt: skip
# (cos(r) - 1 + r^2/2) / r^4 as a polynomial in r^2: 2^-33.0 and 2^-63.9
COS = {
    "float": (0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05),
    "double": (
        0.041666666666666595, -0.001388888888887334, 2.480158728899982e-05, -2.75573142161988e-07,
        2.0875705262587268e-09, -1.1358741540941877e-11,
    ),
}  # fmt: skip


funnel_shift = intrinsic("fshl")  # high, low and an amount: the upper half of (high, low) << (amount mod width)


def reduce(x: Value) -> tuple[Value, Value, Value]:
    """n as i64, and r as a double and what its rounding lost, for |x| < LARGE."""
    wide = x.convert("double")
    n, integer = round_to_integer(wide * TWO_OVER_PI)
    exact = fma(n, -HALF_PI[0], wide)
    near = fma(n, -HALF_PI[1], exact)
    if x.type == "float":
        return integer, near, near.like(0.0)
    r = fma(n, -HALF_PI[2], near)
    lost = fma(n, -HALF_PI[2], fma(n, -HALF_PI[1], exact - near)) - (r - near)
    return integer, r, lost


def reduce_large(x: Value) -> tuple[Value, Value, Value]:
    """The same for a double with |x| >= LARGE, by integers (Payne and Hanek).

    |x| = m 2^e with a 53-bit integer m. Of the bits of 2/pi those worth a multiple of 4 in x 2/pi are skipped and the
    next 192 are taken: their product with m, modulo 2^192, is the fraction of a full turn. No double is closer than
    2^-61 to a multiple of pi/2, so the upper 128 bits are enough, and r isn't only in the lower 64 of these.
    """
    bits = bits_of(x)
    mantissa = (bits & (2**52 - 1)) | 2**52
    exponent = ((bits >> 52) & 2047) - (1023 + 52)
    skip = exponent + (64 - 2)
    f, first = x.code, skip >> 6
    bits_of_ratio = f.at(table("wl_two_over_pi", TWO_OVER_PI_BITS))
    words = [f.load(LONG, f.element(LONG, bits_of_ratio, first + i)) for i in range(4)]
    window = [funnel_shift(words[i], words[i + 1], skip).convert("i128", signed=False) for i in range(3)]
    m = mantissa.convert("i128", signed=False)
    turn = ((m * window[0]) << 64) + m * window[1] + ((m * window[2]) >> 64)
    n = (turn + 2**125) >> 126
    signed = turn - (n << 126)
    size = where(signed < 0, -signed, signed)
    upper = (size >> 64).convert("i64")
    zeros = f.intrinsic("ctlz", upper, f.constant(False, BOOL))  # leading ones
    top = funnel_shift(upper, size.convert("i64"), zeros)
    # size = top 2^(64 - zeros), |r| = size 2^-126 pi/2; both parts of top become doubles exactly.
    high, low = (top >> 11).convert("double") * 2.0**11, (top & 2047).convert("double")
    tail = fma(high, HALF_PI[1], low * HALF_PI[0])
    r = fma(high, HALF_PI[0], tail)
    r_low = fma(high, HALF_PI[0], -r) + tail
    unit = power_of_two((64 - 126) - zeros)
    # Infinity minus itself makes NaN of infinite arguments.
    unit = where(signed < 0, -unit, unit) + (x - x)
    unit = where(x < 0.0, -unit, unit)
    n = n.convert("i64")
    return where(x < 0.0, -n, n), r * unit, r_low * unit


def sine_of_quadrant(n: Value, r: Value, _: Value, type: str) -> Value:
    """sin(n pi/2 + r), in the given type; what r lacks doesn't matter here."""
    r, n = r.convert(type), n.convert(INTEGER[type])
    square = r * r
    sine = fma(square * r, polynomial(square, SIN[type]), r)
    cosine = fma(square * square, polynomial(square, COS[type]), fma(square, -0.5, 1.0))
    value = where((n & 1).equals(0), sine, cosine)
    sign = (n & 2) << (30 if type == "float" else 62)
    return float_of(bits_of(value) ^ sign)


def tangent_of_quadrant(n: Value, r: Value, r_low: Value, type: str) -> Value:
    """tan(n pi/2 + r) = sin / cos or -cos / sin, in double; for double corrected by all that rounding lost."""
    square = r * r
    sine, sine_low = fast_two_sum(r, square * r * polynomial(square, SIN[type]))
    half, half_low = fast_two_sum(r.like(1.0), square * -0.5)
    cosine, cosine_low = fast_two_sum(half, square * square * polynomial(square, COS[type]))
    odd = (n & 1).equals(1)
    numerator, denominator = where(odd, -cosine, sine), where(odd, sine, cosine)
    if type == "float":
        return (numerator / denominator).convert("float")
    sine_low = fma(r_low, cosine, sine_low)
    cosine_low = fma(-r_low, sine, cosine_low + half_low)
    reciprocal = 1.0 / denominator
    quotient = numerator * reciprocal
    missing = fma(-quotient, denominator, numerator) + where(odd, -cosine_low, sine_low)
    return fma(fma(-quotient, where(odd, sine_low, cosine_low), missing), reciprocal, quotient)


OF_QUADRANT = {
    "sin": sine_of_quadrant, "cos": lambda n, *rest: sine_of_quadrant(n + 1, *rest), "tan": tangent_of_quadrant,
}  # fmt: skip


def with_large(name: str, x: Value) -> Value:
    """The function for all x: by the fast reduction for |x| < LARGE, otherwise by a call."""
    small = OF_QUADRANT[name](*reduce(x), x.type)
    function = large_function(name, x.type)
    variants = {f"_ZGV_LLVM_N{lanes}v_{function.name}": large_variant(function, lanes) for lanes in LANES}
    x.code.needs |= {variant.name: variant for variant in variants.values()}
    names = ",".join(f"{mangled}({variant.name})" for mangled, variant in variants.items())
    large = x.code.call(function, x, attributes=f'"vector-function-abi-variant"="{names}"')
    return where(fabs(x) >= LARGE, large, small)


# These are hidden and not internal, or else they would be gone before the vectoriser looks for them.


def large_function(name: str, type: str) -> Function:
    """The function for |x| >= LARGE, otherwise anything (x)."""
    f = Function(f"wl_{name}_large_{SUFFIX[type]}", [("x", type)], type, hidden=True, attributes=PURE)
    (x,) = f.parameters
    work = lambda: OF_QUADRANT[name](*reduce_large(x.convert("double")), type)
    f.ret(f.choose(fabs(x) >= LARGE, work, lambda: x))
    return f


def large_variant(function: Function, lanes: int) -> Function:
    """`function` of each element of a vector if one of them is large, otherwise anything (the vector)."""
    type = vector(function.returns, lanes)
    f = Function(f"{function.name}_v{lanes}", [("x", type)], type, hidden=True, attributes=PURE)
    (x,) = f.parameters

    def step(i: Value, so_far: Value) -> tuple:
        following, more = i + 1, f.insert(so_far, f.call(function, f.extract(x, i)), i)
        return (following, more), following.below(lanes)

    some = (fabs(x) >= LARGE).bitcast(f"i{lanes}").differs(0)
    f.ret(f.choose(some, lambda: f.repeat([f.constant(0), x], step)[1], lambda: x))
    return f


@vector_function
def sin(x: Value) -> Value:
    """The last fma of the reduction loses the sign of -0.0: zero is its own sine."""
    return where(x.equals(0.0), x, with_large("sin", x))


@vector_function
def cos(x: Value) -> Value:
    """See `with_large`."""
    return with_large("cos", x)


@vector_function
def tan(x: Value) -> Value:
    """Zero as in `sin`."""
    return where(x.equals(0.0), x, with_large("tan", x))
