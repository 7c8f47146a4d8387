"""Elementary functions of complex numbers as scalar code, composed of the real ones of `vecmath`.

A function takes the parts of a number and returns those of the result. Each is right to a few ulp, not only the pair:
nothing cancels, and nothing overflows before the result does. Branch cuts, signed zeros, infinities and NaN are as in
C99's annex G, but for signs that it leaves open. The inverse functions are Kahan's ("Branch cuts for complex elementary
functions", 1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.compile.scalars import Scalar
from wonderland.compile.vecmath.formula import copysign, fma, where

LN2 = math.log(2.0)
Parts = tuple[Scalar, Scalar]


def _real(name: str) -> Callable[..., Any]:
    """A function of the vector library."""
    return lambda x, *others: x.code.call(name, x, *others)


_cos, _sin, _tan, _exp, _expm1, _log, _log1p, _arcsinh, _arctan2 = map(
    _real, ("cos", "sin", "tan", "exp", "expm1", "log", "log1p", "arcsinh", "arctan2")
)


_sqrt: Callable[..., Any] = lambda x: x.code.sqrt(x)
_infinite: Callable[..., Any] = lambda x: abs(x).equals(np.inf)
_finite: Callable[..., Any] = lambda x: abs(x) < np.inf
_missing: Callable[..., Any] = lambda x: x.differs(x)  # is it NaN?
_is_double: Callable[[Scalar], bool] = lambda x: x.type == "double"


def _larger(x: Scalar, y: Scalar) -> Parts:
    """The sizes of two numbers, the larger one first; NaN is larger than all."""
    x, y = abs(x), abs(y)
    swapped = x < y
    total = x + y
    return where(_missing(total), total, where(swapped, y, x)), where(swapped, x, y)


def _sum(x: Scalar, y: Scalar) -> Parts:
    """x + y and its rounding error (Knuth)."""
    total = (x + y).rounded()
    part = total - x
    return total, (x - (total - part)) + (y - part)


def reciprocal(x: Scalar, y: Scalar) -> Parts:
    """With q = y / x and d = x + y q, (1, -q) / d; or the parts exchanged, if y is the larger one."""
    level = abs(y) <= abs(x)
    big, small = where(level, x, y), where(level, y, x)
    ratio = small / big
    below = big + (small * ratio).rounded()  # not contracted: the digits are NumPy's
    return where(level, 1.0, ratio) / below, -(where(level, ratio, 1.0) / below)


# Exponentials and logarithms -----------------------------------------------------------------------------------------


def exp(x: Scalar, y: Scalar) -> Parts:
    """e^x (cos y, sin y). A large e^x is applied in two steps: cos y may be small enough."""
    step = 700.0 if _is_double(x) else 86.0
    large = x > step
    size, rest = _exp(where(large, x - step, x)), where(large, math.exp(step), x.like(1.0))
    cos, sin = _cos(y), _sin(y)
    lost = _infinite(x) & ~_finite(y)  # e^-inf is 0 in any direction
    cos, sin = where(lost, 1.0, cos), where(lost & (x < 0.0), 0.0, sin)
    return size * cos * rest, where(y.equals(0.0), y, size * sin * rest)


def expm1(x: Scalar, y: Scalar) -> Parts:
    """e^z - 1, of which the real part is (e^x - 1) cos y - 2 sin^2(y / 2)."""
    half = _sin(0.5 * y)
    re, im = exp(x, y)
    near = _expm1(x) * _cos(y) - (2.0 * half * half).rounded()
    near = where(x.equals(-np.inf), -1.0, near)  # in any direction
    return where(x < 50.0, near, re), im  # from where on the 1 isn't seen


def _log_size(x: Scalar, y: Scalar, shift: float) -> Scalar:
    """log |x + shift + i y| for shift 0 or 1. Near 0 it is log1p(|.|^2 - 1) / 2, with the sum's rounding errors."""
    a = x + shift if shift else x
    big, small = _larger(a, y)
    if shift:  # 2 x + x^2 + y^2
        first, second, start = x, y, (2.0 * x).rounded()
    else:
        first, second, start = big, small, x.like(-1.0)
    square, other = (first * first).rounded(), (second * second).rounded()
    sum, error = _sum(start, square)
    sum, more = _sum(sum, other)
    excess = sum + ((error + more) + (fma(first, first, -square) + fma(second, second, -other)))
    near = (excess > -0.5) & (excess < 2.0)
    ratio = where(big.equals(0.0) | _infinite(big), 0.0, small / big)
    rest = where(near, 0.0, _log(big))
    size = rest + 0.5 * _log1p(where(near, excess, ratio * ratio))
    return where(_infinite(a) | _infinite(y), np.inf, size)


def log(x: Scalar, y: Scalar, factor: float | None = None) -> Parts:
    """With a factor, to another base."""
    re, im = _log_size(x, y, 0.0), _arctan2(y, x)
    return (re, im) if factor is None else (re * factor, im * factor)


def log1p(x: Scalar, y: Scalar) -> Parts:
    """log(1 + z)"""
    return _log_size(x, y, 1.0), _arctan2(y, x + 1.0)


# Roots ---------------------------------------------------------------------------------------------------------------


def sqrt(x: Scalar, y: Scalar) -> Parts:
    """t = sqrt((|x| + |z|) / 2) is one part and |y| / 2t the other. Very large and very small numbers are scaled."""
    big, small = _larger(x, y)
    large, tiny, up = (1e307, 1e-280, 2.0**54) if _is_double(x) else (1e37, 1e-30, 2.0**30)
    factor = where(big > large, 0.0625, where(big < tiny, up, x.like(1.0)))
    back = where(big > large, 4.0, where(big < tiny, up**-0.5, x.like(1.0)))
    ratio = where(big.equals(0.0), 0.0, small / big)
    length = big * factor * _sqrt(1.0 + ratio * ratio)
    side, height = abs(x) * factor, abs(y) * factor
    t = _sqrt(0.5 * (side + length))
    zero = t.equals(0.0)
    other = where(zero, 0.0, height / where(zero, 1.0, 2.0 * t))
    left = x < 0.0
    re, im = where(left, other, t) * back, where(left, t, other) * back
    # An infinite part: of y, both are; of x, one is.
    re = where(_infinite(x), where(left, where(_missing(y), y, 0.0), x), re)
    im = where(_infinite(x), where(_missing(y), where(left, np.inf, y), where(left, x.like(np.inf), 0.0)), im)
    both = _infinite(y)
    return where(both, np.inf, re), copysign(where(both, np.inf, im), y)


# Hyperbolic and trigonometric functions ------------------------------------------------------------------------------


def _growth(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """cosh x and sinh |x|, both to be multiplied by the third number: e^|x| may overflow before a product does."""
    step = 700.0 if _is_double(x) else 86.0
    size = abs(x)
    large = size > step
    less = _expm1(where(large, size - step, size))
    grown = less + 1.0
    decay = where(large, 0.0, 1.0 / grown)
    sinh = 0.5 * where(large, grown, less + less / grown)
    sinh = where(_infinite(size), size, sinh)
    return 0.5 * (grown + decay), sinh, where(large, math.exp(step), x.like(1.0))


def cosh(x: Scalar, y: Scalar) -> Parts:
    """(cosh x cos y, sinh x sin y)"""
    cosh, sinh, rest = _growth(x)
    cos, sin = _cos(y), _sin(y)
    re = where(_infinite(x) & ~_finite(y), np.inf, cosh * cos * rest)
    im = (sinh * sin * rest) * copysign(x.like(1.0), x)
    # A zero stays one, whatever the other part is.
    im = where(x.equals(0.0), where(_finite(y), x * sin, x), im)
    return re, where(y.equals(0.0), y * copysign(x.like(1.0), x), im)


def sinh(x: Scalar, y: Scalar) -> Parts:
    """(sinh x cos y, cosh x sin y)"""
    cosh, sinh, rest = _growth(x)
    cos, sin = _cos(y), _sin(y)
    re = (sinh * cos * rest).rounded() * copysign(x.like(1.0), x)
    re = where(_infinite(x) & ~_finite(y), x, re)
    re = where(x.equals(0.0), where(_finite(y), x * cos, x), re)
    return re, where(y.equals(0.0), y, cosh * sin * rest)


def tanh(x: Scalar, y: Scalar) -> Parts:
    """With t = tan y, s = sinh x, b = 1 + t^2: (b s cosh x, t) / (1 + b s^2); for large x, (1, 4 sin y cos y e^-2x)."""
    far = abs(x) > (22.0 if _is_double(x) else 11.0)
    cosh, sinh, _ = _growth(where(far, 1.0, x))
    t = _tan(y)
    b = 1.0 + t * t
    below = 1.0 + b * sinh * sinh
    re = copysign(where(far, 1.0, b * sinh * cosh / below), x)
    re = where(~_finite(y) & _finite(x), where(x.equals(0.0), x, np.nan), re)
    decay = _exp(-abs(x))
    tail = 4.0 * _sin(y) * _cos(y) * decay * decay
    tail = where(_infinite(x) & ~_finite(y), 0.0, tail)
    im = where(far, tail, t / below)
    return where(_missing(x), x, re), where(y.equals(0.0), y, where(_missing(x), x, im))


def _turned(function: Callable[[Any, Any], Parts]) -> Callable[[Scalar, Scalar], Parts]:
    """-i f(i z): the sine of the hyperbolic sine, and so on."""

    def turned(x: Scalar, y: Scalar) -> Parts:
        re, im = function(-y, x)
        return im, -re

    return turned


# Inverse functions (Kahan) -------------------------------------------------------------------------------------------


def _corner(x: Scalar) -> Scalar:
    """1 for an infinite number, 0 for others, with its sign: the directions in which a number can be infinite."""
    return where(_missing(x), x, copysign(where(_infinite(x), 1.0, x.like(0.0)), x))


class Range:
    """A number z away from the ends of the range: of parts (x, y), scaled where they are too large or too small.

    What is very far from 0, where f grows like log z, is made 16 times smaller. A very small y, of which the small part
    of f is a multiple, is made larger (but for x = +-1, where that part is a root).
    """

    def __init__(self, x: Scalar, y: Scalar):
        largest, tiny, up = (2.0**1000, 2.0**-1000, 2.0**800) if _is_double(x) else (2.0**100, 2.0**-120, 2.0**70)
        size, one = abs(x), x.like(1.0)
        self.far = (size > largest) | (abs(y) > largest)
        near = (abs(y) < tiny) & ~size.equals(1.0)
        factor = where(self.far, 0.0625, where(near, up, one))
        self.x, self.y = where(self.far, 0.0625 * x, x), y * factor
        self.down = where(near, 1.0 / up, one)
        self.inside: Any = size < 1.0
        self.right = x > 1.0
        self.lost = x.equals(0.0) & _missing(y)  # of which one part is known still

    def arcsinh(self, u: Scalar) -> Scalar:
        """arcsinh of a number of z's size, which is small for x between -1 and 1."""
        found = _arcsinh(u)
        return found * where(self.inside, self.down, 1.0) + copysign(where(self.far, 4 * LN2, u.like(0.0)), u)

    def twice(self, angle: Scalar) -> Scalar:
        """An angle doubled, which is small for x > 1."""
        return 2.0 * angle * where(self.right, self.down, 1.0)


def arcsin(x: Scalar, y: Scalar) -> Parts:
    """With sqrt(1 - z) = a + i b, sqrt(1 + z) = c + i d: b has not the sign of d, and no sum cancels."""
    z = Range(x, y)
    a, b = sqrt(1.0 - z.x, -z.y)
    c, d = sqrt(1.0 + z.x, z.y)
    infinite = _infinite(x) | _infinite(y)
    far = where(infinite, abs(_corner(y)), a * c - (b * d).rounded())
    im = where(infinite, copysign(x.like(np.inf), y), a * d + (-b * c).rounded())
    return where(z.lost, x, _arctan2(where(infinite, _corner(x), z.x), far)), z.arcsinh(im)


def arccos(x: Scalar, y: Scalar) -> Parts:
    """As in `arcsin`."""
    z = Range(x, y)
    a, b = sqrt(1.0 - z.x, -z.y)
    c, d = sqrt(1.0 + z.x, z.y)
    infinite = _infinite(x) | _infinite(y)
    angle = _arctan2(where(infinite, abs(_corner(y)), a), where(infinite, _corner(x), c))
    im = where(infinite, copysign(x.like(np.inf), -y), c * b - (d * a).rounded())
    return where(z.lost, math.pi / 2, where(infinite, angle, z.twice(angle))), z.arcsinh(im)


def arccosh(x: Scalar, y: Scalar) -> Parts:
    """With sqrt(z - 1) and sqrt(z + 1)."""
    z = Range(x, y)
    a, b = sqrt(z.x - 1.0, z.y)
    c, d = sqrt(z.x + 1.0, z.y)
    infinite = _infinite(x) | _infinite(y)
    angle = _arctan2(where(infinite, _corner(y), b), where(infinite, _corner(x), c))
    re = where(infinite, np.inf, a * c + (b * d).rounded())
    return z.arcsinh(re), where(z.lost, math.pi / 2, where(infinite, angle, z.twice(angle)))


def arctanh(x: Scalar, y: Scalar) -> Parts:
    """(log1p(4 x / ((1 - x)^2 + y^2)) / 4, arctan2(y, ((1 - x) (1 + x) - y^2) / 2) / 2), for x >= 0."""
    side = abs(x)
    big, small = _larger(1.0 - side, y)
    ratio = where(big.equals(0.0) | _infinite(big), 0.0, small / big)
    # No square of a part that could overflow; very near 1, where only the quotient counts, its fourth root.
    near = big < (1e-40 if _is_double(x) else 1e-17)
    quotient = side / (1.0 + ratio * ratio)
    root = _sqrt(_sqrt(4.0 * quotient)) / _sqrt(big)
    re = where(near, 1.0, x.like(0.25)) * _log1p(where(near, root, 4.0 * (quotient / big / big)))
    im = 0.5 * _arctan2(y, 0.5 * ((1.0 - side) * (1.0 + side) - (y * y).rounded()))
    infinite = _infinite(x) | _infinite(y)
    re = where(infinite | (side.equals(0.0) & _missing(y)), 0.0, re)
    im = where(infinite, where(_missing(y), y, copysign(x.like(math.pi / 2), y)), im)
    return copysign(re, x), im


FUNCTIONS: dict[str, Callable[[Scalar, Scalar], Parts]] = {
    "reciprocal": reciprocal, "exp": exp, "expm1": expm1, "exp2": lambda x, y: exp(x * LN2, y * LN2), "log": log,
    "log1p": log1p, "log2": lambda x, y: log(x, y, 1.0 / LN2), "log10": lambda x, y: log(x, y, 1.0 / math.log(10.0)),
    "sqrt": sqrt, "sinh": sinh, "cosh": cosh, "tanh": tanh, "sin": _turned(sinh), "cos": lambda x, y: cosh(-y, x),
    "tan": _turned(tanh), "arcsin": arcsin, "arccos": arccos, "arctan": _turned(arctanh), "arcsinh": _turned(arcsin),
    "arccosh": arccosh, "arctanh": arctanh,
}  # fmt: skip
