"""Special functions as branch-free code: erfc, erfcx, the logarithm of the gamma function and its derivative.

Float is computed in double. Coefficients interpolate at Chebyshev points (in 250-bit arithmetic, then rounded); the
comment beside each says of what, where, and the largest error of the rounded polynomial relative to the function.
"""

from __future__ import annotations

import math

from wonderland.compile.ir import Value
from wonderland.compile.vecmath.exp import ERF_SMALL, INFINITY, exp_clamped
from wonderland.compile.vecmath.formula import copysign, fabs, floor, fma, polynomial, two_product, where
from wonderland.compile.vecmath.functions import in_double, vector_function
from wonderland.compile.vecmath.log import NAN, log
from wonderland.compile.vecmath.trig import reduce, sine_of_quadrant, tangent_of_quadrant

# (1 + 2 x) exp(x^2) erfc(x) as a polynomial in (x - 4) / (x + 4) for x >= 0: 2^-54.4
ERFCX = (
    1.2329951186255526, -0.1396211168405625, 0.015379652102610162, 0.0680970542546862, -0.10103906603585294,
    0.09373283499865172, -0.06633036582050367, 0.0371675155318432, -0.01619773397992426, 0.005031970032548695,
    -0.0007577737141838885, -0.00019925700412184815, 0.0001506231178516207, -2.439811794207995e-05,
    -1.1225140354449658e-05, 5.707239573693257e-06, 2.980596055322769e-07, -8.218020654813044e-07,
    7.111912428010423e-08, 1.0683442926744586e-07, -1.6357383982124768e-08, -1.2544825403855518e-08,
    1.5712153638319064e-09, 9.655408225482863e-10,
)  # fmt: skip
# log(gamma(2 + t)) / t as a polynomial in t for |t| <= 1/2: 2^-53.6
LOG_GAMMA = (
    0.42278433509846713, 0.32246703342411326, -0.06735230105319812, 0.020580808427780293, -0.007385551028671209,
    0.002890510331039541, -0.0011927539118787947, 0.0005096695152669058, -0.00022315475319194182, 9.945767564658225e-05,
    -4.4926323618914974e-05, 2.0505573755772915e-05, -9.438639897668234e-06, 4.3847828025057685e-06,
    -2.044224759667964e-06, 9.198618315074536e-07, -4.3179366528725554e-07, 2.789315568660735e-07,
    -1.3289083478838066e-07,
)  # fmt: skip
# digamma(x) / (x - ROOT) as a polynomial in x - 3/2 for 1 <= x <= 2: 2^-54.2
DIGAMMA = (
    0.9510558760318328, -0.4236274212814606, 0.24054248424078697, -0.14840492305388092, 0.09498872445289039,
    -0.06192213327548831, 0.040760833940846085, -0.026975796659787055, 0.017907248317313294, -0.011908220105959716,
    0.007927021796868154, -0.005279937255532708, 0.003518106563802472, -0.0023454947397380833, 0.0015633696313653504,
    -0.0010364584817312839, 0.0006909255761282986, -0.00048595039220036254, 0.00032395945401345196,
    -0.00014480643368061614, 9.653646261410062e-05, -0.0001782188548855923, 0.00011881232908510335,
)  # fmt: skip
# The zero of digamma, as a sum of two doubles.
ROOT = (1.4616321449683622, 9.549995429965697e-17)
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
# B_2k / (2k (2k - 1)) and B_2k / 2k of the asymptotic series.
STIRLING = tuple(b / (2 * k * (2 * k - 1)) for k, b in enumerate(BERNOULLI, 1))
DIGAMMA_SERIES = tuple(b / (2 * k) for k, b in enumerate(BERNOULLI, 1))
HALF_LOG_TWO_PI = 0.9189385332046728
LARGE = 13.0  # from here on the series are exact


def erfcx_of_size(size: Value) -> Value:
    """exp(x^2) erfc(x) for x >= 0."""
    u = (size - 4.0) / (size + 4.0)
    # Beyond 2^1000 (and for infinity) the quotient is 1.
    u = where(size > 2.0**1000, 1.0, u)
    return polynomial(u, ERFCX) * 0.5 / (size + 0.5)


def exp_of_square(size: Value, sign: float) -> Value:
    """exp(sign x^2), with what the rounded square lacks."""
    square, lost = two_product(size, size)
    power = exp_clamped(square * sign)
    return fma(power, lost * sign, power)


def erfc_near_zero(x: Value) -> Value:
    """1 - erf(x) for |x| < 1/2."""
    return 1.0 - fma(x, polynomial(x * x, ERF_SMALL[x.type]), x)


@vector_function
@in_double
def erfc(x: Value) -> Value:
    """erfcx(|x|) exp(-x^2), or 2 minus that for negative x; 1 - erf(x) near 0."""
    size = fabs(x)
    size = where(size > 27.3, 27.3, size)  # beyond, the result is 0
    tail = erfcx_of_size(size) * exp_of_square(size, -1.0)
    return where(size < 0.5, erfc_near_zero(x), where(x < 0.0, 2.0 - tail, tail))


@vector_function
@in_double
def erfcx(x: Value) -> Value:
    """exp(x^2) erfc(x): for negative x 2 exp(x^2) minus the value at |x|."""
    size = fabs(x)
    tail = erfcx_of_size(size)
    infinite = size > 26.64
    power = exp_of_square(where(infinite, 26.64, size), 1.0)
    value = where(x < 0.0, where(infinite, INFINITY, fma(power, 2.0, -tail)), tail)
    return where(size < 0.5, power * erfc_near_zero(x), value)


def distance_to_integer(size: Value) -> tuple[Value, Value]:
    """floor(x), and how far x is from the nearest integer."""
    whole = floor(size)
    part = size - whole
    return whole, where(part > 0.5, 1.0 - part, part)


@vector_function
@in_double
def gammaln(x: Value) -> Value:
    """log|gamma(x)|: by a product to 3/2 <= x <= 5/2 below 13, Stirling's series above, reflected for x < 0."""
    size = fabs(x)
    large = size >= LARGE
    near = where(large, 2.5, size)
    # near = t + whole; the factors from 2 + t to below near, or those from near to below 2 + t.
    whole = floor(near + 0.5)
    t = near - whole
    below = whole < 1.5
    product = where(whole < 0.5, near * (near + 1.0), where(below, near, 1.0))
    for k in range(2, int(LARGE)):
        product = where(whole > k + 0.5, product * (t + float(k)), product)
    logarithm = log(where(large, size, product))
    rest = t * polynomial(t, LOG_GAMMA)
    near = where(below, rest - logarithm, rest + logarithm)
    inverse = 1.0 / where(large, size, LARGE)
    series = inverse * polynomial(inverse * inverse, STIRLING)
    far = fma(size - 0.5, logarithm, -size) + (series + HALF_LOG_TWO_PI)
    far = where(size > 1e306, INFINITY, far)
    value = where(large, far, near)
    # gamma(x) gamma(-x) = -pi / (x sin(pi x)); poles where the sine is 0.
    distance = distance_to_integer(size)[1]
    reflected = log(math.pi / (size * sine_of_quadrant(*reduce(distance * math.pi), x.type))) - value
    reflected = where(distance.equals(0.0), INFINITY, reflected)
    value = where((x < 0.0) & (size > 2.0**-60), reflected, value)
    # As SciPy has it: infinite where 1 / x is, and at minus infinity too.
    value = where(size > 2.0**-1024, value, INFINITY)
    return where(size < INFINITY, value, x)


@vector_function
@in_double
def digamma(x: Value) -> Value:
    """The derivative of `gammaln`: by the recurrence to 1 <= x < 2 below 13, by a series above, reflected for x < 0."""
    # digamma(x) = digamma(1 - x) - pi / tan(pi x)
    size = where(x < 0.0, 1.0 - x, x)
    large = size >= LARGE
    near = where(large, 1.5, size)
    low = near < 1.0
    start = where(low, near + 1.0, near)
    whole = floor(start)
    t = start - whole
    total = where(low, -1.0 / where(low, near, 1.0), 0.0)
    for k in range(1, int(LARGE) - 1):
        total = where(whole > k + 0.5, total + 1.0 / (t + float(k)), total)
    base = t + 1.0
    near = fma((base - ROOT[0]) - ROOT[1], polynomial(t - 0.5, DIGAMMA), total)
    inverse = 1.0 / where(large, size, LARGE)
    square = inverse * inverse
    far = log(where(large, size, LARGE)) - fma(square, polynomial(square, DIGAMMA_SERIES), inverse * 0.5)
    value = where(large, far, near)
    whole, distance = distance_to_integer(fabs(x))
    # pi / tan(pi x) for the negative x: the sign says on which side of the nearest integer it is.
    middle = distance > 0.25
    angle, lost = two_product(where(middle, 0.5 - distance, distance), math.pi)
    tangent = tangent_of_quadrant(x.code.constant(0), angle, lost, x.type)
    slope = where(middle, tangent * math.pi, math.pi / tangent)
    slope = where((fabs(x) - whole) > 0.5, slope, -slope)
    value = where(x < 0.0, where(distance.equals(0.0), NAN, value - slope), value)
    return where(x.equals(0.0), copysign(x.like(INFINITY), -x), where(x.is_nan(), x, value))
