"""The exponential family as branch-free code: exp, exp2, expm1, sigmoid, tanh, sinh, cosh, erf.

All of them reduce to x = n ln 2 + r with |r| <= ln(2)/2 and a polynomial in r. Coefficients are minimax fits
(Remez in 200-bit arithmetic, for EXP of float linear programming; rounded one by one from the lowest, the
rest fitted again after each rounding); the comment beside each says what was fitted, where, and the largest
error of the rounded polynomial relative to the function. Those that only formulas in float read have a float's digits.
"""

from __future__ import annotations

from wonderland.compile.ir import Value
from wonderland.compile.vecmath.bits import BIAS, MANTISSA, bits_of, float_of, power_of_two, round_to_integer
from wonderland.compile.vecmath.formula import clamp, copysign, fabs, fast_two_sum, fma, polynomial, where
from wonderland.compile.vecmath.functions import vector_function

INFINITY = float("inf")
LOG2_E = 1.4426950408889634
LOWEST = {"float": -104.0, "double": -746.0}  # where exp is 0
# ln 2 as a sum of two numbers of the type.
LN2 = {"float": (0.6931472, -1.9046543e-09), "double": (0.6931471805599453, 2.3190468138462996e-17)}

# (exp(r) - 1 - r) / r^2 for |r| <= ln(2)/2, error relative to expm1(r): for float 2^-26.7 where r is
# negative, which `tanh` needs most, and 2^-25.8 where it is positive; for double 2^-60.4
EXP = {
    "float": (
        0.49999991059303284, 0.1666654795408249, 0.041669514030218124, 0.00836610235273838, 0.0013730167411267757,
    ),
    "double": (
        0.5, 0.16666666666666677, 0.04166666666666669, 0.008333333333321738, 0.0013888888888867676,
        0.0001984126988626518, 2.4801587357671986e-05, 2.75572434417576e-06, 2.7557246111021906e-07,
        2.510951516341666e-08, 2.092418065132338e-09,
    ),
}  # fmt: skip
# (tanh(x) / x - 1) / x^2 as a polynomial in x^2 for |x| <= 0.5625: 2^-59.9
TANH = (
    -0.3333333333333328, 0.13333333333323635, -0.05396825396197399, 0.02186948833356427, -0.00886323172940077,
    0.0035920830930062896, -0.001455484592347816, 0.0005882023325572062, -0.00023276002439604715, 8.241899334293072e-05,
    -1.8937209952380214e-05,
)  # fmt: skip
# erf(x) / x - 1 as a polynomial in x^2 for |x| <= 0.875: 2^-30.1 and 2^-56.3
ERF_SMALL = {
    "float": (0.12837917, -0.3761263, 0.11283623, -0.026855364, 0.00519094, -0.00080263003, 7.866155e-05),
    "double": (
        0.1283791670955126, -0.3761263890318413, 0.11283791670974298, -0.026866170648922764, 0.005223977663904592,
        -0.0008548329296125282, 0.00012055416364588447, -1.4927598969036502e-05, 1.6490877166255556e-06,
        -1.6619261360133303e-07, 1.5920215229150813e-08, -1.2896652254762342e-09,
    ),
}  # fmt: skip
# log(1 - erf(u + c)), 0.875 <= u + c <= 3.95 with c = 1.5 for float, 5.95 with c = 1 for double; relative to
# erf 2^-28.0 and 2^-57.0
ERF_LARGE = {
    "float": (-3.3844922, -3.5088017, -0.89263994, -0.025810929, 0.006017768, -0.0012892543, 0.00019220158),
    "double": (
        -1.8496055099332482, -2.6389675142347917, -0.8431072563584988, -0.041561098046421475, 0.010033825435632837,
        -0.001977903033992762, 0.00023732470825482194, 2.6270766777227688e-05, -2.7143289060169644e-05,
        9.583619213883539e-06, -2.0302370349448923e-06, 1.1738696892900471e-07, 1.1383716814782886e-07,
        -5.970522175448057e-08, 1.752830013539198e-08, -3.4924515115295858e-09, 4.687128033024374e-10,
        -3.8396529829675516e-11, 1.4507574980456456e-12,
    ),
}  # fmt: skip


def reduce(x: Value) -> tuple[Value, Value, Value]:
    """n as an integer, and r = x - n ln 2 as a rounded head and the tail that the rounding lost."""
    high, low = LN2[x.type]
    n, integer = round_to_integer(x * LOG2_E)
    head, tail = fast_two_sum(fma(n, -high, x), n * -low)
    return integer, head, tail


def round_quotient(x: Value, factor: float, bias: int) -> tuple[Value, Value]:
    """n nearest to x * factor: -n as a float, and bits that end in n + bias, to be shifted into an exponent.

    As `round_to_integer`, but one constant serves the rounding and the way back, and the bias costs nothing.
    """
    shifter = x.like(1.5 * 2.0 ** MANTISSA[x.element] + bias)
    shifted = fma(x, factor, shifter)
    return shifter - shifted, bits_of(shifted)


def expm1_of_reduced(r: Value) -> Value:
    """exp(r) - 1 for |r| <= ln(2)/2."""
    square = r * r
    *coefficients, last = EXP[r.element]
    pairs = [fma(r, odd, even) for even, odd in zip(coefficients[0::2], coefficients[1::2], strict=True)]
    return fma(square, polynomial(square, [*pairs, last]), r)


def exp_factors(x: Value) -> tuple[Value, Value]:
    """2^n and p with exp(x) = 2^n (1 + p), for x <= 0 with 2^n still normal, to be subtracted from 1.

    In float the first part of ln 2 is so close that the second doesn't count beside the 1.
    """
    high, low = LN2[x.type]
    minus_n, bits = round_quotient(x, LOG2_E, BIAS[x.type])
    r = fma(minus_n, high, x)
    if x.type == "double":
        r = fma(minus_n, low, r)
    # p before the power: LLVM keeps the order, and a loop with tanh and exp took 5 % longer the other way.
    p = expm1_of_reduced(r)
    return float_of(bits << MANTISSA[x.type]), p


def exp_scaled(r: Value, bits: Value) -> Value:
    """2^n exp(r) for bits that end in n + 2 * bias of the exponent, n within twice the range of exponents.

    2^n is a product of two factors of about 2^(n/2): the first multiplication scales exactly, the second
    rounds once, gradual underflow included.
    """
    p = expm1_of_reduced(r)
    half = bits >> 1
    first, second = (float_of(exponent << MANTISSA[r.element]) for exponent in (half, bits - half))
    return fma(first, p, first) * second


def exp_clamped(x: Value) -> Value:
    """exp(x) for x not far beyond the arguments with finite, nonzero results."""
    high, low = LN2[x.element]
    minus_n, bits = round_quotient(x, LOG2_E, 2 * BIAS[x.element])
    return exp_scaled(fma(minus_n, low, fma(minus_n, high, x)), bits)


def exp_below(x: Value) -> Value:
    """exp(x) for x that is negative, or hardly positive; of vectors, too."""
    lowest = LOWEST[x.element]
    return exp_clamped(where(x < lowest, lowest, x))


@vector_function
def exp(x: Value) -> Value:
    """Beyond the clamp the result is infinite or zero anyway."""
    return exp_clamped(clamp(x, LOWEST[x.type], 89.0 if x.type == "float" else 710.0))


@vector_function
def exp2(x: Value) -> Value:
    """r = (x - n) ln 2; clamped as in `exp`."""
    x = clamp(x, -151.0, 129.0) if x.type == "float" else clamp(x, -1076.0, 1025.0)
    minus_n, bits = round_quotient(x, 1.0, 2 * BIAS[x.type])
    return exp_scaled((x + minus_n) * LN2[x.type][0], bits)


@vector_function
def expm1(x: Value) -> Value:
    """2^n r + (2^n - 1) + 2^n (exp(r) - 1 - r), large terms in one fma; halved, so that 2^n is finite."""
    argument = x
    x = clamp(x, -20.0, 89.0) if x.type == "float" else clamp(x, -40.0, 710.0)
    n, head, tail = reduce(x)
    rest = fma(head * head, polynomial(head, EXP[x.type]), fma(tail, head, tail))
    half = power_of_two(n - 1)
    result = fma(rest, half, fma(head, half, half - 0.5)) * 2.0
    # Tiny arguments, -0.0 and subnormal ones among them, are their own result.
    return where(fabs(argument) < 2.0**-60, argument, result)


@vector_function
def sigmoid(x: Value) -> Value:
    """e = exp(-|x|), q = e / (1 + e); then 1 - q, or e (1 - q) for negative x: exact in the left tail too."""
    magnitude = fabs(x)
    limit = 104.0 if x.type == "float" else 746.0
    e = exp_clamped(-where(magnitude > limit, limit, magnitude))
    q = e / (e + 1.0)
    base = where(x < 0.0, e, 1.0)
    return fma(-base, q, base)


@vector_function
def tanh(x: Value) -> Value:
    """-expm1(z) / (expm1(z) + 2) with z = -2|x| and exp(z) = 2^n (1 + p).

    That is (1 - 2^n - 2^n p) / (1 + 2^n + 2^n p), where 1 - 2^n and 1 + 2^n are exact as long as 2^n counts:
    numerator, denominator and quotient round once each. For small |x| the first two are just below a power of
    two, where rounding costs least; positive z would have them just above. Every float was checked:
    1.96 ulp. For double, where that can't be done, a polynomial serves below 0.5625.
    """
    magnitude = fabs(x)
    sign = bits_of(x) ^ bits_of(magnitude)
    limit = 10.0 if x.type == "float" else 20.0
    capped = where(magnitude > limit, limit, magnitude)
    power, p = exp_factors(-(capped + capped))
    result = fma(-power, p, 1.0 - power) / fma(power, p, power + 1.0)
    if x.type == "double":
        square = capped * capped
        small = fma(capped * square, polynomial(square, TANH), capped)
        result = where(capped < 0.5625, small, result)
    return float_of(bits_of(result) | sign)


def hyperbolic(x: Value, sign: float) -> Value:
    """(exp|x| + sign exp(-|x|)) / 2 with |x| = n ln 2 + r; half of it is computed, against overflow.

    It is a cosh(r) + b sinh(r) with a, b = (2^n + sign 2^-n) / 4, (2^n - sign 2^-n) / 4. cosh(r) - 1 and sinh(r) - r
    are the even and odd parts of the polynomial for exp(r) - 1 - r. The large terms, a + b r, are added last.
    """
    magnitude = fabs(x)
    limit = 89.5 if x.type == "float" else 710.5
    n, head, tail = reduce(where(magnitude > limit, limit, magnitude))
    square = head * head
    even = fma(head, tail, square * polynomial(square, EXP[x.type][0::2]))
    odd = fma(square * head, polynomial(square, EXP[x.type][1::2]), tail)
    large = power_of_two(n - 2)
    # 2^-n no longer counts beside 2^n long before its exponent would leave the range.
    small = power_of_two(-2 - where(n > 60, 60, n)) * sign
    a, a_low = fast_two_sum(large, small)
    b = large - small
    rest = fma(odd, b, fma(even, a, a_low))
    return (fma(head, b, a) + rest) * 2.0


@vector_function
def sinh(x: Value) -> Value:
    """Tiny arguments are their own result: half of a subnormal number might not be a number of the type."""
    return copysign(where(fabs(x) < 2.0**-30, fabs(x), hyperbolic(x, -1.0)), x)


@vector_function
def cosh(x: Value) -> Value:
    """See `hyperbolic`."""
    return hyperbolic(x, 1.0)


@vector_function
def erf(x: Value) -> Value:
    """x + x P(x^2) below 0.875; above, 1 - exp(Q(|x| - c)): log(1 - erf) is close to a parabola."""
    square = x * x
    small = fma(x, polynomial(square, ERF_SMALL[x.type]), x)
    magnitude = fabs(x)
    limit, centre = (3.95, 1.5) if x.type == "float" else (5.95, 1.0)
    capped = where(magnitude > limit, limit, magnitude)
    power, p = exp_factors(polynomial(capped - centre, ERF_LARGE[x.type]))
    large = fma(-power, p, 1.0 - power)
    return copysign(where(magnitude < 0.875, small, large), x)
