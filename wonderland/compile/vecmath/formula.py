"""What formulas of the vector mathematics are made of, beside the operators of `ir.Value`.

Every operation rounds once, as written: nothing here has fast-math flags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps

from wonderland.compile.ir import BOOL, DOUBLE, FLOAT, INT, LONG, Number, Value

# For each float type: the integer type of its bits, mantissa bits, exponent bias.
INTEGER = {FLOAT: INT, DOUBLE: LONG}
FLOAT_OF = {INT: FLOAT, LONG: DOUBLE}  # the other way
MANTISSA = {FLOAT: 23, DOUBLE: 52}
BIAS = {FLOAT: 127, DOUBLE: 1023}


def bits_of(x: Value) -> Value:
    """The bits of a float as an integer of the same width."""
    return x.bitcast(INTEGER[x.type])


def float_of(bits: Value) -> Value:
    """These bits as a float of the same width."""
    return bits.bitcast(FLOAT_OF[bits.type])


def fma(x: Value, y: Number, z: Number) -> Value:
    """x * y + z, rounded once."""
    return x.code.intrinsic("fma", x, x.like(y), x.like(z))


def funnel_shift(high: Value, low: Value, amount: Value) -> Value:
    """The upper half of (high, low) << (amount mod width)."""
    return high.code.intrinsic("fshl", high, low, amount)


def leading_zeros(x: Value) -> Value:
    """Zero bits above the highest one."""
    return x.code.intrinsic("ctlz", x, x.code.constant(False, BOOL))


def fabs(x: Value) -> Value:
    """x without its sign bit."""
    return x.code.intrinsic("fabs", x)


def sqrt(x: Value) -> Value:
    """The square root, correctly rounded."""
    return x.code.intrinsic("sqrt", x)


def floor(x: Value) -> Value:
    """The largest integer that isn't above x."""
    return x.code.intrinsic("floor", x)


def copysign(magnitude: Value, sign: Value) -> Value:
    """`magnitude` with the sign bit of `sign`."""
    return magnitude.code.intrinsic("copysign", magnitude, sign)


def where(condition: Value, yes: Number, no: Number) -> Value:
    """A select: both sides are computed."""
    return condition.code.select(condition, yes, no)


def clamp(x: Value, low: float, high: float) -> Value:
    """NaN stays NaN: its comparisons are false."""
    x = where(x > high, high, x)
    return where(x < low, low, x)


def polynomial(x: Value, coefficients: Sequence[Number]) -> Value:
    """Horner's rule, constant first; long ones as even(x^2) + x odd(x^2), which halves the latency."""
    if len(coefficients) > 5:
        square = x * x
        return fma(polynomial(square, coefficients[1::2]), x, polynomial(square, coefficients[0::2]))
    result = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result


def power_of_two(n: Value) -> Value:
    """2**n, a float of the integer's width, for n within the normal exponents."""
    type = FLOAT_OF[n.type]
    return float_of((n + BIAS[type]) << MANTISSA[type])


def round_to_integer(x: Value) -> tuple[Value, Value]:
    """The nearest integer as a float and as an integer, for |x| < 2**22 (float) or 2**51 (double).

    Adding 1.5 * 2**mantissa leaves the integer in the low bits: no conversion instruction, and no undefined
    result for NaN (whose integer is some number, its float NaN).
    """
    shifter = x.like(1.5 * 2.0 ** MANTISSA[x.type])
    shifted = x + shifter
    return shifted - shifter, bits_of(shifted) - bits_of(shifter)


def fast_two_sum(x: Value, y: Value) -> tuple[Value, Value]:
    """x + y as a rounded sum and its exact error, for |x| >= |y|."""
    total = x + y
    return total, y - (total - x)


def two_product(x: Value, y: Number) -> tuple[Value, Value]:
    """x * y as a rounded product and its exact error."""
    product = x * y
    return product, fma(x, y, -product)


def in_double(formula: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """The function of a double, for float too."""
    return wraps(formula)(lambda x: formula(x.convert(DOUBLE)).convert(x.type))
