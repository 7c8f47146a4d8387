"""The exponential family as branch-free code: exp, exp2, expm1, sigmoid, tanh, sinh, cosh, erf.

All of them reduce to x = n ln 2 + r with |r| <= ln(2)/2 and a polynomial in r. Coefficients are minimax fits
(Remez in 200-bit arithmetic, rounded one by one from the lowest, the rest fitted again after each rounding);
the comment beside each says what was fitted, where, and the largest error of the rounded polynomial relative
to the function.
"""

from __future__ import annotations

from wonderland.compile.vecmath_emit import (
    BIAS,
    MANTISSA,
    Value,
    clamp,
    copysign,
    fabs,
    fast_two_sum,
    fma,
    polynomial,
    power_of_two,
    round_to_integer,
    where,
)

INFINITY = float("inf")
LOG2_E = 1.4426950408889634
# ln 2 as a sum of two numbers of the type.
LN2 = {
    "float": (0.693147182464599609375, -1.904654299957768e-09),
    "double": (0.6931471805599453, 2.3190468138462996e-17),
}

# (exp(r) - 1 - r) / r^2 for |r| <= ln(2)/2, error relative to expm1(r): 2^-28.2 and 2^-60.4
EXP = {
    "float": (
        0.5,
        0.16666635870933533,
        0.041666511446237564,
        0.008341510780155659,
        0.0013930543791502714,
        0.00015016234829090536,
    ),
    "double": (
        0.5,
        0.16666666666666677,
        0.04166666666666669,
        0.008333333333321738,
        0.0013888888888867676,
        0.0001984126988626518,
        2.4801587357671986e-05,
        2.75572434417576e-06,
        2.7557246111021906e-07,
        2.510951516341666e-08,
        2.092418065132338e-09,
    ),
}
# (tanh(x) / x - 1) / x^2 as a polynomial in x^2 for |x| <= 0.5625: 2^-29.5 and 2^-59.9
TANH = {
    "float": (
        -0.3333331346511841,
        0.13332433998584747,
        -0.05383520573377609,
        0.020997386425733566,
        -0.006164690013974905,
    ),
    "double": (
        -0.3333333333333328,
        0.13333333333323635,
        -0.05396825396197399,
        0.02186948833356427,
        -0.00886323172940077,
        0.0035920830930062896,
        -0.001455484592347816,
        0.0005882023325572062,
        -0.00023276002439604715,
        8.241899334293072e-05,
        -1.8937209952380214e-05,
    ),
}
# erf(x) / x - 1 as a polynomial in x^2 for |x| <= 0.875: 2^-30.1 and 2^-56.3
ERF_SMALL = {
    "float": (
        0.12837916612625122,
        -0.3761262893676758,
        0.11283622682094574,
        -0.026855364441871643,
        0.005190940108150244,
        -0.0008026300347410142,
        7.86615491961129e-05,
    ),
    "double": (
        0.1283791670955126,
        -0.3761263890318413,
        0.11283791670974298,
        -0.026866170648922764,
        0.005223977663904592,
        -0.0008548329296125282,
        0.00012055416364588447,
        -1.4927598969036502e-05,
        1.6490877166255556e-06,
        -1.6619261360133303e-07,
        1.5920215229150813e-08,
        -1.2896652254762342e-09,
    ),
}
# log(1 - erf(u + c)), 0.875 <= u + c <= 3.95 with c = 1.5 for float, 5.95 with c = 1 for double; relative to
# erf 2^-28.0 and 2^-57.0
ERF_LARGE = {
    "float": (
        -3.3844921588897705,
        -3.5088016986846924,
        -0.8926399350166321,
        -0.025810929015278816,
        0.006017767824232578,
        -0.0012892542872577906,
        0.00019220157992094755,
    ),
    "double": (
        -1.8496055099332482,
        -2.6389675142347917,
        -0.8431072563584988,
        -0.041561098046421475,
        0.010033825435632837,
        -0.001977903033992762,
        0.00023732470825482194,
        2.6270766777227688e-05,
        -2.7143289060169644e-05,
        9.583619213883539e-06,
        -2.0302370349448923e-06,
        1.1738696892900471e-07,
        1.1383716814782886e-07,
        -5.970522175448057e-08,
        1.752830013539198e-08,
        -3.4924515115295858e-09,
        4.687128033024374e-10,
        -3.8396529829675516e-11,
        1.4507574980456456e-12,
    ),
}


def reduce(x: Value) -> tuple[Value, Value, Value]:
    """n as an integer, and r = x - n ln 2 as a rounded head and the tail that the rounding lost."""
    high, low = LN2[x.kind]
    n, integer = round_to_integer(x * LOG2_E)
    head, tail = fast_two_sum(fma(n, -high, x), n * -low)
    return integer, head, tail


def exp_of_reduced(r: Value) -> Value:
    """exp(r) for |r| <= ln(2)/2."""
    return fma(r * r, polynomial(r, EXP[r.kind]), r) + 1.0


def scale(x: Value, n: Value) -> Value:
    """x * 2**n for x near 1 and n a little beyond the range of exponents, gradual underflow included.

    Two factors of about 2**(n/2): the first product is exact, the second rounds once.
    """
    half_range = BIAS[x.kind] + 1
    half = (n + 2 * half_range) >> 1
    first = (half - 1) << MANTISSA[x.kind]
    second = (n - half + (2 * half_range - 1)) << MANTISSA[x.kind]
    return x * first.as_float() * second.as_float()


def exp(x: Value) -> Value:
    """Beyond the clamp the result is infinite or zero anyway; within it n stays in the reach of `scale`."""
    x = clamp(x, -104.0, 89.0) if x.kind == "float" else clamp(x, -746.0, 710.0)
    n, head, _ = reduce(x)
    return scale(exp_of_reduced(head), n)


def exp2(x: Value) -> Value:
    """r = (x - n) ln 2; clamped as in `exp`."""
    x = clamp(x, -151.0, 129.0) if x.kind == "float" else clamp(x, -1076.0, 1025.0)
    n, integer = round_to_integer(x)
    return scale(exp_of_reduced((x - n) * LN2[x.kind][0]), integer)


def expm1(x: Value) -> Value:
    """2^n r + (2^n - 1) + 2^n (exp(r) - 1 - r), large terms in one fma; halved, so that 2^n is finite."""
    argument = x
    x = clamp(x, -20.0, 89.0) if x.kind == "float" else clamp(x, -40.0, 710.0)
    n, head, tail = reduce(x)
    rest = fma(head * head, polynomial(head, EXP[x.kind]), fma(tail, head, tail))
    half = power_of_two(n - 1, x.kind)
    result = fma(rest, half, fma(head, half, half - 0.5)) * 2.0
    # Tiny arguments, -0.0 and subnormal ones among them, are their own result.
    return where(fabs(argument) < 2.0**-60, argument, result)


def sigmoid(x: Value) -> Value:
    """e = exp(-|x|), q = e / (1 + e); then 1 - q, or e (1 - q) for negative x: exact in the left tail too."""
    e = exp(-fabs(x))
    q = e / (e + 1.0)
    base = where(x < 0.0, e, 1.0)
    return fma(-base, q, base)


def tanh(x: Value) -> Value:
    """A polynomial below 0.5625, where 1 - 2 / (exp(2|x|) + 1) would cancel, and that formula above."""
    square = x * x
    small = fma(x * square, polynomial(square, TANH[x.kind]), x)
    magnitude = fabs(x)
    limit = 10.0 if x.kind == "float" else 20.0
    doubled = where(magnitude > limit, limit, magnitude)
    doubled = doubled + doubled
    n, head, _ = reduce(doubled)
    large = 1.0 - 2.0 / (exp_of_reduced(head) * power_of_two(n, x.kind) + 1.0)
    return copysign(where(magnitude < 0.5625, small, large), x)


def hyperbolic(x: Value, sign: float) -> Value:
    """(exp|x| + sign exp(-|x|)) / 2 with |x| = n ln 2 + r; half of it is computed, against overflow.

    It is a cosh(r) + b sinh(r) with a, b = (2^n + sign 2^-n) / 4, (2^n - sign 2^-n) / 4. cosh(r) - 1 and
    sinh(r) - r are the even and odd parts of the polynomial for exp(r) - 1 - r. The large terms, a + b r, are
    added last.
    """
    magnitude = fabs(x)
    limit = 89.5 if x.kind == "float" else 710.5
    n, head, tail = reduce(where(magnitude > limit, limit, magnitude))
    square = head * head
    even = fma(head, tail, square * polynomial(square, EXP[x.kind][0::2]))
    odd = fma(square * head, polynomial(square, EXP[x.kind][1::2]), tail)
    large = power_of_two(n - 2, x.kind)
    # 2^-n no longer counts beside 2^n long before its exponent would leave the range.
    small = power_of_two(-2 - where(n > 60, 60, n), x.kind) * sign
    a, a_low = fast_two_sum(large, small)
    b = large - small
    rest = fma(odd, b, fma(even, a, a_low))
    return (fma(head, b, a) + rest) * 2.0


def sinh(x: Value) -> Value:
    """Tiny arguments are their own result: half of a subnormal number might not be a number of the type."""
    magnitude = where(fabs(x) < 2.0**-30, fabs(x), hyperbolic(x, -1.0))
    return copysign(magnitude, x)


def cosh(x: Value) -> Value:
    """See `hyperbolic`."""
    return hyperbolic(x, 1.0)


def erf(x: Value) -> Value:
    """x + x P(x^2) below 0.875; above, 1 - exp(Q(|x| - c)): log(1 - erf) is close to a parabola."""
    square = x * x
    small = fma(x, polynomial(square, ERF_SMALL[x.kind]), x)
    magnitude = fabs(x)
    limit, centre = (3.95, 1.5) if x.kind == "float" else (5.95, 1.0)
    capped = where(magnitude > limit, limit, magnitude)
    n, head, _ = reduce(polynomial(capped - centre, ERF_LARGE[x.kind]))
    large = 1.0 - exp_of_reduced(head) * power_of_two(n, x.kind)
    return copysign(where(magnitude < 0.875, small, large), x)
