"""Inverse functions as branch-free code: of the trigonometric and hyperbolic functions, cube root and hypot.

Coefficients are minimax fits as in `exp`. Float is computed in double where float's own rounding
errors would add up to more than 2 ulp.
"""

from __future__ import annotations

from wonderland.compile.ir import Value
from wonderland.compile.vecmath.bits import bits_of, power_of_two, round_to_integer
from wonderland.compile.vecmath.exp import INFINITY, LN2
from wonderland.compile.vecmath.formula import copysign, fabs, fast_two_sum, fma, polynomial, sqrt, two_product, where
from wonderland.compile.vecmath.functions import in_double, vector_function
from wonderland.compile.vecmath.log import LOG_DOUBLE, NAN, log_of_split, split, split_normal, split_one_plus

# Half and a quarter of pi as sums of two numbers of the type.
HALF_PI = {"float": (1.5707964, -4.371139e-08), "double": (1.5707963267948966, 6.123233995736766e-17)}
QUARTER_PI = (0.7853981633974483, 3.061616997868383e-17)
TAN_OF_EIGHTH = 0.41421356237309503
# (arctan(u) / u - 1) / u^2 as a polynomial in u^2 for |u| <= tan(pi/8): 2^-30.4 and 2^-59.4
ARCTAN = {
    "float": (
        -0.33333316445350647, 0.19998528063297272, -0.14244391024112701, 0.1059916689991951, -0.060900427401065826,
    ),
    "double": (
        -0.333333333333332, 0.1999999999995366, -0.14285714280197828, 0.11111110783396572, -0.09090897754617625,
        0.07692060157346764, -0.06663103485428548, 0.05847886268864382, -0.05039296744261288, 0.038064515795824316,
        -0.01790733813210443,
    ),
}  # fmt: skip
# (arcsin(x) / x - 1) / x^2 as a polynomial in x^2 for |x| <= 1/2: 2^-27.6 and 2^-59.8
ARCSIN = {
    "float": (0.16666752, 0.074953064, 0.04546977, 0.024180816, 0.042166296),
    "double": (
        0.1666666666666676, 0.0749999999997081, 0.04464285717464585, 0.030381942704720725, 0.02237221510399911,
        0.0173516094941852, 0.013980855043418708, 0.011398599625678888, 0.010782155911476177, 0.00369870337000181,
        0.021727352061856768, -0.021028756636161775, 0.032648091130615994,
    ),
}  # fmt: skip
# m^(-1/3) for sqrt(1/2) <= m <= sqrt(2): 2^-14.7
INVERSE_CBRT = (1.8745192144850136, -1.8618225939109985, 1.5612802858475823, -0.7023621349395315, 0.12836177978726185)


def arctan_of_ratio(small: Value, large: Value, turns: Value, sign: Value, precision: str) -> Value:
    """turns pi/4 + sign arctan(small / large) for 0 <= small <= large, large > 0 and finite, all in double.

    Above tan(pi/8) the angle is taken from pi/4: arctan(s / l) = pi/4 + arctan((s - l) / (s + l)).
    """
    upper = small > large * TAN_OF_EIGHTH
    numerator, numerator_low = fast_two_sum(-large, small)
    denominator, denominator_low = fast_two_sum(large, small)
    numerator, numerator_low = where(upper, numerator, small), where(upper, numerator_low, 0.0)
    denominator, denominator_low = where(upper, denominator, large), where(upper, denominator_low, 0.0)
    turns = where(upper, turns + sign, turns)
    if precision == "float":
        u = numerator / denominator
        square = u * u
        return fma(turns, QUARTER_PI[0], sign * fma(u * square, polynomial(square, ARCTAN[precision]), u))
    # The quotient's own rounding and those of its parts are kept, to first order.
    reciprocal = 1.0 / denominator
    u = numerator * reciprocal
    low = fma(-u, denominator_low, fma(-u, denominator, numerator) + numerator_low) * reciprocal
    square = u * u
    rest = fma(u * square, polynomial(square, ARCTAN[precision]), low)
    return fma(turns, QUARTER_PI[0], sign * u) + fma(turns, QUARTER_PI[1], sign * rest)


@vector_function
def arctan(x: Value) -> Value:
    """arctan(|x|) for |x| <= 1, pi/2 - arctan(1 / |x|) above."""
    size = fabs(x).convert("double")
    inverted = size > 1.0
    # Beyond 2^100 the angle is pi/2 to the last bit.
    large = where(inverted, where(size > 2.0**100, 2.0**100, size), 1.0)
    small = where(inverted, 1.0, size)
    turns = where(inverted, size.like(2.0), 0.0)
    result = arctan_of_ratio(small, large, turns, where(inverted, size.like(-1.0), 1.0), x.type)
    # The angle of a tiny x is x; the general formula would underflow in between.
    result = where(fabs(x) < 2.0**-30, fabs(x), result.convert(x.type))
    return copysign(result, x)


@vector_function
def arctan2(y: Value, x: Value) -> Value:
    """The angle of the point (x, y): that of min / max of the sizes, reflected into its octant."""
    a, b = fabs(y).convert("double"), fabs(x).convert("double")
    steep = a > b
    large, small = where(steep, a, b), where(steep, b, a)
    # Infinite and zero points have the angles of these finite ones.
    infinite = large.equals(INFINITY)
    small = where(infinite, where(small.equals(INFINITY), small.like(1.0), 0.0), small)
    large = where(infinite | large.equals(0.0), 1.0, large)
    if x.type == "double":
        # Away from overflow of the sum, and from underflow of the products.
        factor = where(large > 2.0**900, large.like(2.0**-200), where(large < 2.0**-700, large.like(2.0**200), 1.0))
        small, large = small * factor, large * factor
    left = bits_of(x) < 0
    turns = where(steep, a.like(2.0), where(left, a.like(4.0), 0.0))
    sign = where(steep ^ left, a.like(-1.0), 1.0)
    result = arctan_of_ratio(small, large, turns, sign, x.type).convert(x.type)
    return where(x.is_nan() | y.is_nan(), NAN, copysign(result, y))


def arcsin_parts(x: Value) -> tuple[Value, Value, Value]:
    """Is |x| > 1/2, and s, rest with arcsin(s) = s + rest: s = |x|, or then sqrt((1 - |x|) / 2)."""
    size = fabs(x)
    outer = size > 0.5
    square = where(outer, (1.0 - size) * 0.5, x * x)
    s = where(outer, sqrt(square), size)
    return outer, s, s * square * polynomial(square, ARCSIN[x.type])


@vector_function
def arcsin(x: Value) -> Value:
    """pi/2 - 2 arcsin(sqrt((1 - |x|) / 2)) for |x| > 1/2."""
    outer, s, rest = arcsin_parts(x)
    high, low = HALF_PI[x.type]
    difference, difference_low = fast_two_sum(x.like(high), s * -2.0)
    result = where(outer, difference + fma(rest, -2.0, difference_low + low), s + rest)
    return copysign(result, x)


@vector_function
def arccos(x: Value) -> Value:
    """pi/2 - arcsin(x) in the middle; outside, 2 arcsin(sqrt((1 - |x|) / 2)), or pi minus that for x < 0."""
    outer, s, rest = arcsin_parts(x)
    high, low = HALF_PI[x.type]
    middle = (high - copysign(s, x)) + (low - copysign(rest, x))
    right = (s + rest) * 2.0
    left = ((high - s) + (low - rest)) * 2.0
    return where(outer, where(x < 0.0, left, right), middle)


@vector_function
def cbrt(x: Value) -> Value:
    """|x| = 2^(3q + k) m with k in -1, 0, 1; y = (2^k m)^(-1/3) by a polynomial and a step of fourth order.

    The root is 2^k m y^2, after one step of Newton's method.
    """
    size = fabs(x)
    e, f = split(size)
    q, integer = round_to_integer(e * (1.0 / 3.0))
    k = fma(q, -3.0, e)
    m = f + 1.0
    y = polynomial(m, INVERSE_CBRT)
    up, down = k > 0.5, k < -0.5
    y = y * where(up, x.like(2.0 ** (-1 / 3)), where(down, x.like(2.0 ** (1 / 3)), 1.0))
    m = m * where(up, x.like(2.0), where(down, x.like(0.5), 1.0))
    miss = fma(-(m * y), y * y, 1.0)
    y = fma(y * miss, polynomial(miss, (1 / 3, 2 / 9, 14 / 81)), y)
    root = m * y * y
    # Newton's step on root^3 = m, with the cube's error term.
    root = fma(fma(-(root * root), root, m), y * y * (1.0 / 3.0), root)
    result = copysign(root * power_of_two(integer), x)
    return where(size.equals(0.0) | ~(size < INFINITY), x, result)


@vector_function
def hypot(x: Value, y: Value) -> Value:
    """sqrt(x^2 + y^2), scaled against overflow, with one Newton step on what the squares and the root lost."""
    a, b = fabs(x).convert("double"), fabs(y).convert("double")
    if x.type == "float":  # squares neither overflow nor underflow
        result = sqrt(fma(a, a, b * b)).convert("float")
    else:
        large, small = where(a > b, a, b), where(a > b, b, a)
        up, down = large < 2.0**-450, large > 2.0**500
        factor = where(up, a.like(2.0**600), where(down, a.like(2.0**-600), 1.0))
        back = where(up, a.like(2.0**-600), where(down, a.like(2.0**600), 1.0))
        large, small = large * factor, small * factor
        root = sqrt(fma(large, large, small * small))
        (big, big_low), (little, little_low), (square, square_low) = (two_product(v, v) for v in (large, small, root))
        missing = ((big - square) + little) + ((big_low - square_low) + little_low)
        result = fma(missing, 0.5 / where(root.equals(0.0), 1.0, root), root) * back
    return where(fabs(x).equals(INFINITY) | fabs(y).equals(INFINITY), INFINITY, result)


def log_of_one_plus(v: Value, low: Value, doublings: Value) -> Value:
    """log(2^doublings (1 + v + low)) for v >= 0, where low is what v lacks."""
    u = v + 1.0
    e, f = split_one_plus(v, u)
    result = log_of_split(e + doublings, f, low / u)
    return where(u < INFINITY, result, u)


@vector_function
@in_double
def arcsinh(x: Value) -> Value:
    """log(1 + v), v = |x| + x^2 / (1 + sqrt(1 + x^2)); log(2 |x|) where x^2 might overflow."""
    size = fabs(x)
    huge = size >= 2.0**60
    capped = where(huge, 1.0, size)
    square = capped * capped
    v, low = fast_two_sum(capped, square / (sqrt(square + 1.0) + 1.0))
    result = log_of_one_plus(where(huge, size, v), where(huge, 0.0, low), where(huge, x.like(1.0), 0.0))
    return copysign(result, x)


@vector_function
@in_double
def arccosh(x: Value) -> Value:
    """log(1 + v), v = t + sqrt(t (x + 1)), t = x - 1, all with their rounding errors; log(2 x) for huge x."""
    huge = x >= 2.0**60
    capped = where(huge, 2.0, x)
    t, t_low = fast_two_sum(capped, x.like(-1.0))
    d, d_low = fast_two_sum(capped, x.like(1.0))
    product, product_low = two_product(t, d)
    product_low = fma(t, d_low, fma(t_low, d, product_low))
    root = sqrt(product)
    root_low = (fma(-root, root, product) + product_low) / where(root.equals(0.0), 1.0, root) * 0.5
    v, low = fast_two_sum(root, t)
    low = low + (root_low + t_low)
    result = log_of_one_plus(where(huge, x, v), where(huge, 0.0, low), where(huge, x.like(1.0), 0.0))
    return where(x < 1.0, NAN, result)


@vector_function
@in_double
def arctanh(x: Value) -> Value:
    """e ln(2) / 2 + arctanh(s) where (1 + |x|) / (1 - |x|) = 2^e (1 + s) / (1 - s) with a small s."""
    size = fabs(x)
    above, above_low = fast_two_sum(x.like(1.0), size)
    below, below_low = fast_two_sum(x.like(1.0), -size)
    _, e, _ = split_normal(above / below)
    n, integer = round_to_integer(e)
    power = power_of_two(integer)
    numerator = fma(-power, below, above) + fma(-power, below_low, above_low)
    denominator = fma(power, below, above)
    s = numerator / denominator
    s_low = fma(-s, denominator, numerator) / denominator
    near = n.equals(0.0)  # then s is |x| itself
    s, s_low = where(near, size, s), where(near, 0.0, s_low)
    square = s * s
    rest = fma(s * square * 0.5, polynomial(square, LOG_DOUBLE), s_low)
    high, low = LN2[x.type]
    result = fma(n, high * 0.5, s + fma(n, low * 0.5, rest))
    result = where(size < 1.0, result, where(size > 1.0, x.like(NAN), INFINITY))
    return copysign(where(x.is_nan(), x, result), x)
