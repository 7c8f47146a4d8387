"""Elementary functions of complex numbers as scalar code, composed of the real ones of `vecmath`.

Each part of a result is right to a few ulp, not only the pair: nothing cancels, and nothing overflows before the result
does. Branch cuts, signed zeros, infinities and NaN are as in C99's annex G, but for signs that it leaves open. The
inverse functions are Kahan's ("Branch cuts for complex elementary functions", 1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.compile.scalars import Complex, Scalar

LN2 = math.log(2.0)


class Real:
    """A real scalar with operators, so that formulas read as such."""

    __slots__ = ("e", "scalar")

    e: Any
    scalar: Scalar

    def __init__(self, e: Any, scalar: Scalar):
        self.e, self.scalar = e, scalar

    def of(self, other: Real | float) -> Scalar:
        return other.scalar if isinstance(other, Real) else self.e.constant(other, self.scalar)

    def __add__(self, other: Real | float) -> Real:
        return Real(self.e, self.e.add(self.scalar, self.of(other)))

    def __radd__(self, other: float) -> Real:
        return self + other

    def __sub__(self, other: Real | float) -> Real:
        return Real(self.e, self.e.sub(self.scalar, self.of(other)))

    def __rsub__(self, other: float) -> Real:
        return Real(self.e, self.e.sub(self.of(other), self.scalar))

    def __mul__(self, other: Real | float) -> Real:
        return Real(self.e, self.e.mul(self.scalar, self.of(other)))

    def __rmul__(self, other: float) -> Real:
        return self * other

    def __truediv__(self, other: Real | float) -> Real:
        return Real(self.e, self.e.div(self.scalar, self.of(other)))

    def __rtruediv__(self, other: float) -> Real:
        return Real(self.e, self.e.div(self.of(other), self.scalar))

    def __neg__(self) -> Real:
        return Real(self.e, self.e.neg(self.scalar))

    def __abs__(self) -> Real:
        return Real(self.e, self.e.abs(self.scalar))

    def compare(self, op: str, other: Real | float) -> Test:
        return Test(self.e, self.e.compare(op, self.scalar, self.of(other)))

    def __lt__(self, other: Real | float) -> Test:
        return self.compare("lt", other)

    def __le__(self, other: Real | float) -> Test:
        return self.compare("le", other)

    def __gt__(self, other: Real | float) -> Test:
        return self.compare("gt", other)

    def equals(self, other: Real | float) -> Test:
        return self.compare("eq", other)

    @property
    def infinite(self) -> Test:
        return abs(self).equals(np.inf)

    @property
    def finite(self) -> Test:
        return abs(self) < np.inf

    @property
    def missing(self) -> Test:
        """Is it NaN?"""
        return self.compare("ne", self)

    def call(self, name: str, *others: Real) -> Real:
        return Real(self.e, self.e.call(name, self.scalar, *(o.scalar for o in others)))

    def sqrt(self) -> Real:
        return Real(self.e, self.e.sqrt(self.scalar))

    def signed(self, like: Real) -> Real:
        """This size with the sign of another number."""
        return Real(self.e, self.e.intrinsic("copysign", self.scalar, like.scalar))

    def rounded(self) -> Real:
        """Not to be contracted into a sum."""
        return Real(self.e, self.scalar.rounded())

    def square_error(self, square: Real) -> Real:
        """x x - square, exactly."""
        return Real(self.e, self.e.intrinsic("fma", self.scalar, self.scalar, (-square).scalar))

    def number(self, value: float) -> Real:
        return Real(self.e, self.of(value))

    def is_double(self) -> bool:
        return self.scalar.dtype.itemsize == 8


class Test:
    """A condition."""

    __slots__ = ("e", "scalar")

    e: Any
    scalar: Scalar

    def __init__(self, e: Any, scalar: Scalar):
        self.e, self.scalar = e, scalar

    def __and__(self, other: Test) -> Test:
        return Test(self.e, self.e.bit_and(self.scalar, other.scalar))

    def __or__(self, other: Test) -> Test:
        return Test(self.e, self.e.bit_or(self.scalar, other.scalar))

    def __invert__(self) -> Test:
        return Test(self.e, self.e.invert(self.scalar))

    def choose(self, x: Real | float, y: Real | float) -> Real:
        """x where it holds, else y; one of them is a `Real`."""
        model = x if isinstance(x, Real) else y
        assert isinstance(model, Real)
        return Real(self.e, self.e.select(self.scalar, model.of(x), model.of(y)))


def _function(body: Callable[[Real, Real], tuple[Real, Real]]) -> Callable[[Any, Complex], Complex]:
    """A function of the two parts as scalar code."""

    def emit(e: Any, z: Complex) -> Complex:
        re, im = body(Real(e, z.re), Real(e, z.im))
        return Complex(re.scalar, im.scalar)

    return emit


def _larger(x: Real, y: Real) -> tuple[Real, Real]:
    """The sizes of two numbers, the larger one first; NaN is larger than all."""
    x, y = abs(x), abs(y)
    swapped = x < y
    total = x + y
    return total.missing.choose(total, swapped.choose(y, x)), swapped.choose(x, y)


def _sum(x: Real, y: Real) -> tuple[Real, Real]:
    """x + y and its rounding error (Knuth)."""
    total = (x + y).rounded()
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _reciprocal(x: Real, y: Real) -> tuple[Real, Real]:
    """With q = y / x and d = x + y q, (1, -q) / d; or the parts exchanged, if y is the larger one."""
    level = abs(y) <= abs(x)
    big, small = level.choose(x, y), level.choose(y, x)
    ratio = small / big
    below = big + (small * ratio).rounded()  # not contracted: the digits are NumPy's
    return level.choose(1.0, ratio) / below, -(level.choose(ratio, 1.0) / below)


# Exponentials and logarithms -----------------------------------------------------------------------------------------


def _exponential(x: Real, y: Real) -> tuple[Real, Real]:
    """e^x (cos y, sin y). A large e^x is applied in two steps: cos y may be small enough."""
    step = 700.0 if x.is_double() else 86.0
    large = x > step
    size, rest = (large.choose(x - step, x)).call("exp"), large.choose(math.exp(step), x.number(1.0))
    cos, sin = y.call("cos"), y.call("sin")
    lost = x.infinite & ~y.finite  # e^-inf is 0 in any direction
    cos, sin = lost.choose(1.0, cos), (lost & (x < 0.0)).choose(0.0, sin)
    return size * cos * rest, y.equals(0.0).choose(y, size * sin * rest)


def _expm1(x: Real, y: Real) -> tuple[Real, Real]:
    """e^z - 1, of which the real part is (e^x - 1) cos y - 2 sin^2(y / 2)."""
    half = (0.5 * y).call("sin")
    re, im = _exponential(x, y)
    near = x.call("expm1") * y.call("cos") - (2.0 * half * half).rounded()
    near = x.equals(-np.inf).choose(-1.0, near)  # in any direction
    return (x < 50.0).choose(near, re), im  # from where on the 1 isn't seen


def _log_size(x: Real, y: Real, shift: float) -> Real:
    """log |x + shift + i y| for shift 0 or 1. Near 0 it is log1p(|.|^2 - 1) / 2, with the sum's rounding errors."""
    a = x + shift if shift else x
    big, small = _larger(a, y)
    if shift:  # 2 x + x^2 + y^2
        first, second, start = x, y, (2.0 * x).rounded()
    else:
        first, second, start = big, small, x.number(-1.0)
    square, other = (first * first).rounded(), (second * second).rounded()
    sum, error = _sum(start, square)
    sum, more = _sum(sum, other)
    excess = sum + ((error + more) + (first.square_error(square) + second.square_error(other)))
    near = (excess > -0.5) & (excess < 2.0)
    ratio = (big.equals(0.0) | big.infinite).choose(0.0, small / big)
    rest = near.choose(0.0, big.call("log"))
    size = rest + 0.5 * near.choose(excess, ratio * ratio).call("log1p")
    return (a.infinite | y.infinite).choose(np.inf, size)


def _logarithm(x: Real, y: Real) -> tuple[Real, Real]:
    return _log_size(x, y, 0.0), y.call("arctan2", x)


def _log1p(x: Real, y: Real) -> tuple[Real, Real]:
    return _log_size(x, y, 1.0), y.call("arctan2", x + 1.0)


def _log_to(factor: float) -> Callable[[Real, Real], tuple[Real, Real]]:
    """The logarithm to another base."""

    def body(x: Real, y: Real) -> tuple[Real, Real]:
        re, im = _logarithm(x, y)
        return re * factor, im * factor

    return body


# Roots ---------------------------------------------------------------------------------------------------------------


def _root(x: Real, y: Real) -> tuple[Real, Real]:
    """t = sqrt((|x| + |z|) / 2) is one part and |y| / 2t the other. Very large and very small numbers are scaled."""
    double = x.is_double()
    big, small = _larger(x, y)
    large, tiny = (1e307, 1e-280) if double else (1e37, 1e-30)
    up = 2.0**54 if double else 2.0**30
    factor = (big > large).choose(0.0625, (big < tiny).choose(up, x.number(1.0)))
    back = (big > large).choose(4.0, (big < tiny).choose(up**-0.5, x.number(1.0)))
    ratio = big.equals(0.0).choose(0.0, small / big)
    length = big * factor * (1.0 + ratio * ratio).sqrt()
    side, height = abs(x) * factor, abs(y) * factor
    t = (0.5 * (side + length)).sqrt()
    zero = t.equals(0.0)
    other = zero.choose(0.0, height / zero.choose(1.0, 2.0 * t))
    left = x < 0.0
    re, im = left.choose(other, t) * back, left.choose(t, other) * back
    # An infinite part: of y, both are; of x, one is.
    re = x.infinite.choose(left.choose(y.missing.choose(y, 0.0), x), re)
    im = x.infinite.choose(y.missing.choose(left.choose(np.inf, y), left.choose(x.number(np.inf), 0.0)), im)
    both = y.infinite
    return both.choose(np.inf, re), both.choose(np.inf, im).signed(y)


# Hyperbolic and trigonometric functions ------------------------------------------------------------------------------


def _growth(x: Real) -> tuple[Real, Real, Real]:
    """cosh x and sinh |x|, both to be multiplied by the third number: e^|x| may overflow before a product does."""
    step = 700.0 if x.is_double() else 86.0
    size = abs(x)
    large = size > step
    less = large.choose(size - step, size).call("expm1")
    grown = less + 1.0
    decay = large.choose(0.0, 1.0 / grown)
    sinh = 0.5 * large.choose(grown, less + less / grown)
    sinh = size.infinite.choose(size, sinh)
    return 0.5 * (grown + decay), sinh, large.choose(math.exp(step), x.number(1.0))


def _cosh(x: Real, y: Real) -> tuple[Real, Real]:
    """(cosh x cos y, sinh x sin y)"""
    cosh, sinh, rest = _growth(x)
    cos, sin = y.call("cos"), y.call("sin")
    re = (x.infinite & ~y.finite).choose(np.inf, cosh * cos * rest)
    im = (sinh * sin * rest) * x.number(1.0).signed(x)
    # A zero stays one, whatever the other part is.
    im = x.equals(0.0).choose(y.finite.choose(x * sin, x), im)
    return re, y.equals(0.0).choose(y * x.number(1.0).signed(x), im)


def _sinh(x: Real, y: Real) -> tuple[Real, Real]:
    """(sinh x cos y, cosh x sin y)"""
    cosh, sinh, rest = _growth(x)
    cos, sin = y.call("cos"), y.call("sin")
    re = (sinh * cos * rest).rounded() * x.number(1.0).signed(x)
    re = (x.infinite & ~y.finite).choose(x, re)
    re = x.equals(0.0).choose(y.finite.choose(x * cos, x), re)
    return re, y.equals(0.0).choose(y, cosh * sin * rest)


def _tanh(x: Real, y: Real) -> tuple[Real, Real]:
    """With t = tan y, s = sinh x, b = 1 + t^2: (b s cosh x, t) / (1 + b s^2); for large x, (1, 4 sin y cos y e^-2x)."""
    far = abs(x) > (22.0 if x.is_double() else 11.0)
    cosh, sinh, _ = _growth(far.choose(1.0, x))
    t = y.call("tan")
    b = 1.0 + t * t
    below = 1.0 + b * sinh * sinh
    re = far.choose(1.0, b * sinh * cosh / below).signed(x)
    re = (~y.finite & x.finite).choose(x.equals(0.0).choose(x, np.nan), re)
    decay = (-abs(x)).call("exp")
    tail = 4.0 * y.call("sin") * y.call("cos") * decay * decay
    tail = (x.infinite & ~y.finite).choose(0.0, tail)
    im = far.choose(tail, t / below)
    return x.missing.choose(x, re), y.equals(0.0).choose(y, x.missing.choose(x, im))


def _turned(body: Callable) -> Callable[[Real, Real], tuple[Real, Real]]:
    """-i f(i z): the sine of the hyperbolic sine, and so on."""

    def turned(x: Real, y: Real) -> tuple[Real, Real]:
        re, im = body(-y, x)
        return im, -re

    return turned


# Inverse functions (Kahan) -------------------------------------------------------------------------------------------


def _corner(x: Real) -> Real:
    """1 for an infinite number, 0 for others, with its sign: the directions in which a number can be infinite."""
    return x.missing.choose(x, x.infinite.choose(1.0, x.number(0.0)).signed(x))


class Range:
    """A number z away from the ends of the range: of parts (x, y), scaled where they are too large or too small.

    What is very far from 0, where f grows like log z, is made 16 times smaller. A very small y, of which the small part
    of f is a multiple, is made larger (but for x = +-1, where that part is a root).
    """

    x: Real
    y: Real
    inside: Test
    right: Test

    def __init__(self, x: Real, y: Real):
        largest, tiny, up = (2.0**1000, 2.0**-1000, 2.0**800) if x.is_double() else (2.0**100, 2.0**-120, 2.0**70)
        size = abs(x)
        self.far: Test = (size > largest) | (abs(y) > largest)
        self.near: Test = (abs(y) < tiny) & ~size.equals(1.0)
        factor = self.far.choose(0.0625, self.near.choose(up, x.number(1.0)))
        self.x, self.y = self.far.choose(0.0625 * x, x), y * factor
        self.down: Real = self.near.choose(1.0 / up, x.number(1.0))
        self.inside, self.right = size < 1.0, x > 1.0
        self.lost: Test = x.equals(0.0) & y.missing  # of which one part is known still

    def arcsinh(self, u: Real) -> Real:
        """arcsinh of a number of z's size, which is small for x between -1 and 1."""
        found = u.call("arcsinh")
        return found * self.inside.choose(self.down, u.number(1.0)) + self.far.choose(4 * LN2, u.number(0.0)).signed(u)

    def twice(self, angle: Real) -> Real:
        """An angle doubled, which is small for x > 1."""
        return 2.0 * angle * self.right.choose(self.down, angle.number(1.0))


def _arcsin(x: Real, y: Real) -> tuple[Real, Real]:
    """With sqrt(1 - z) = a + i b, sqrt(1 + z) = c + i d: b has not the sign of d, and no sum cancels."""
    z = Range(x, y)
    a, b = _root(1.0 - z.x, -z.y)
    c, d = _root(1.0 + z.x, z.y)
    infinite = x.infinite | y.infinite
    far = infinite.choose(abs(_corner(y)), a * c - (b * d).rounded())
    im = infinite.choose(x.number(np.inf).signed(y), a * d + (-b * c).rounded())
    return z.lost.choose(x, infinite.choose(_corner(x), z.x).call("arctan2", far)), z.arcsinh(im)


def _arccos(x: Real, y: Real) -> tuple[Real, Real]:
    z = Range(x, y)
    a, b = _root(1.0 - z.x, -z.y)
    c, d = _root(1.0 + z.x, z.y)
    infinite = x.infinite | y.infinite
    angle = infinite.choose(abs(_corner(y)), a).call("arctan2", infinite.choose(_corner(x), c))
    im = infinite.choose(x.number(np.inf).signed(-y), c * b - (d * a).rounded())
    return z.lost.choose(math.pi / 2, infinite.choose(angle, z.twice(angle))), z.arcsinh(im)


def _arccosh(x: Real, y: Real) -> tuple[Real, Real]:
    z = Range(x, y)
    a, b = _root(z.x - 1.0, z.y)
    c, d = _root(z.x + 1.0, z.y)
    infinite = x.infinite | y.infinite
    angle = infinite.choose(_corner(y), b).call("arctan2", infinite.choose(_corner(x), c))
    re = infinite.choose(np.inf, a * c + (b * d).rounded())
    return z.arcsinh(re), z.lost.choose(math.pi / 2, infinite.choose(angle, z.twice(angle)))


def _arctanh(x: Real, y: Real) -> tuple[Real, Real]:
    """(log1p(4 x / ((1 - x)^2 + y^2)) / 4, arctan2(y, ((1 - x) (1 + x) - y^2) / 2) / 2), for x >= 0."""
    side = abs(x)
    big, small = _larger(1.0 - side, y)
    ratio = (big.equals(0.0) | big.infinite).choose(0.0, small / big)
    # No square of a part that could overflow; very near 1, where only the quotient counts, its fourth root.
    near = big < (1e-40 if x.is_double() else 1e-17)
    quotient = side / (1.0 + ratio * ratio)
    root = (4.0 * quotient).sqrt().sqrt() / big.sqrt()
    re = near.choose(1.0, x.number(0.25)) * near.choose(root, 4.0 * (quotient / big / big)).call("log1p")
    im = 0.5 * y.call("arctan2", 0.5 * ((1.0 - side) * (1.0 + side) - (y * y).rounded()))
    infinite = x.infinite | y.infinite
    re = (infinite | (side.equals(0.0) & y.missing)).choose(0.0, re)
    im = infinite.choose(y.missing.choose(y, x.number(math.pi / 2).signed(y)), im)
    return re.signed(x), im


sqrt: Callable[..., Any] = _function(_root)
exp: Callable[..., Any] = _function(_exponential)
log: Callable[..., Any] = _function(_logarithm)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "reciprocal": _function(_reciprocal),
    "exp": exp,
    "log": log,
    "expm1": _function(_expm1),
    "log1p": _function(_log1p),
    "exp2": _function(lambda x, y: _exponential(x * LN2, y * LN2)),
    "log2": _function(_log_to(1.0 / LN2)),
    "log10": _function(_log_to(1.0 / math.log(10.0))),
    "sinh": _function(_sinh),
    "cosh": _function(_cosh),
    "tanh": _function(_tanh),
    "sin": _function(_turned(_sinh)),
    "cos": _function(lambda x, y: _cosh(-y, x)),
    "tan": _function(_turned(_tanh)),
    "arcsin": _function(_arcsin),
    "arccos": _function(_arccos),
    "arctan": _function(_turned(_arctanh)),
    "arcsinh": _function(_turned(_arcsin)),
    "arccosh": _function(_arccosh),
    "arctanh": _function(_arctanh),
}
