"""What formulas are made of, beside the operators of `ir.Value` (or of `Scalar`: `complex_math` has them from here).

Every operation rounds once, as written: nothing here has fast-math flags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wonderland.compile.ir import Number, Value


def intrinsic(name: str) -> Callable[..., Any]:
    """A function that LLVM knows."""
    return lambda x, *others: x.code.intrinsic(name, x, *others)


fabs = intrinsic("fabs")  # without the sign bit
sqrt = intrinsic("sqrt")  # correctly rounded
floor = intrinsic("floor")
copysign = intrinsic("copysign")  # a number, and one whose sign bit it gets


def fma(x: Value, y: Number, z: Number) -> Any:
    """x * y + z, rounded once."""
    return x.code.intrinsic("fma", x, x.like(y), x.like(z))


def where(condition: Value, yes: Number, no: Number) -> Any:
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


def fast_two_sum(x: Value, y: Value) -> tuple[Value, Value]:
    """x + y as a rounded sum and its exact error, for |x| >= |y|."""
    total = x + y
    return total, y - (total - x)


def two_product(x: Value, y: Number) -> tuple[Value, Value]:
    """x * y as a rounded product and its exact error."""
    product = x * y
    return product, fma(x, y, -product)
