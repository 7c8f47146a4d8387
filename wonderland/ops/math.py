"""Elementary functions: exponentials, logarithms, powers, trigonometric and hyperbolic functions and their inverses.

Each is one block: NumPy's function, its derivatives written with primitives, and the scalar code of the
compiler. Derivatives are written so that they keep their digits at the ends of the domain (1 - x^2 as a product, no
square that overflows).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.primitive import Linear, Primitive
from wonderland.core.types import PYTHON_SCALARS, ArrayType, is_differentiable, type_of
from wonderland.ops import scalar_code as code
from wonderland.ops.elementwise import (
    abs,
    add,
    bitwise_and,
    cos,
    div,
    elementwise,
    eq,
    exp,
    imag,
    like,
    log,
    masked,
    mul,
    ne,
    neg,
    real,
    scale,
    sqrt,
    stop_gradient,
    sub,
    ufunc,
    unbroadcast,
    where,
)
from wonderland.ops.reading import elementwise_pattern, power_pattern
from wonderland.ops.series import integral, plus
from wonderland.ops.work import each

LN2, LN10 = math.log(2.0), math.log(10.0)

# Exponentials and logarithms -----------------------------------------------------------------------------------------

expm1: Primitive = ufunc(
    np.expm1, (lambda out, x: exp(x),), emit=lambda e, x: e.call("expm1", x), also="scipy.special.expm1"
)
log1p: Primitive = ufunc(
    np.log1p, (lambda out, x: div(1.0, add(1.0, x)),), emit=lambda e, x: e.call("log1p", x), also="scipy.special.log1p"
)
exp2: Primitive = ufunc(
    np.exp2, (lambda out, x: mul(LN2, out),), also="scipy.special.exp2", emit=lambda e, x: e.call("exp2", x)
)
log2: Primitive = ufunc(np.log2, (lambda out, x: div(1.0, mul(LN2, x)),), emit=lambda e, x: e.call("log2", x))
log10: Primitive = ufunc(np.log10, (lambda out, x: div(1.0, mul(LN10, x)),), emit=lambda e, x: e.call("log10", x))


def _sigmoid(x: Any) -> Any:
    if np.asarray(x).dtype.kind in "bu":  # which have no negative
        x = np.asarray(x).astype(np.exp(np.zeros((), np.asarray(x).dtype)).dtype)[()]
    decay = np.exp(-np.abs(x))  # never overflows, and keeps the digits of the lower tail
    return np.where(np.less(x, 0), decay, np.ones((), decay.dtype))[()] / (1 + decay)


def _sigmoid_taylor(out: Any, x: Any) -> Any:
    # sigma(-x) is 1 - sigma(x): only at t = 0 must it be computed, for its digits.
    other = add(stop_gradient(sigmoid(neg(x))), sub(stop_gradient(out), out))
    slope = masked(x.slope(), mul(out, other))
    return lambda k: like(integral(slope, k), out[0])


# The derivative sigma(x) sigma(-x) keeps its digits in both tails, where sigma (1 - sigma) has none left.
sigmoid: Primitive = elementwise(
    "sigmoid", _sigmoid, (lambda out, x: mul(out, sigmoid(neg(x))),), emit=lambda e, x: e.call("sigmoid", x),
    taylor=_sigmoid_taylor, also="scipy.special.expit",
)  # fmt: skip


def _share(x: Any, y: Any, base: float = math.e) -> Any:
    """The weight b^x / (b^x + b^y) in log(b^x + b^y): 0 for x = -inf even if y is too, a half if both are +inf."""
    difference = sub(x, y)
    equal = bitwise_and(eq(x, y), ne(difference, difference))  # inf - inf
    difference = where(equal, 0.0, difference)
    return where(eq(x, -np.inf), 0.0, sigmoid(difference if base == math.e else mul(math.log(base), difference)))


logaddexp: Primitive = ufunc(
    np.logaddexp, (lambda out, x, y: _share(x, y), lambda out, x, y: _share(y, x)), emit=code.logaddexp
)
logaddexp2: Primitive = ufunc(
    np.logaddexp2, (lambda out, x, y: _share(x, y, 2.0), lambda out, x, y: _share(y, x, 2.0)), emit=code.logaddexp2
)

# Powers and roots ----------------------------------------------------------------------------------------------------


def _pow_base_derivative(out: Any, x: Any, y: Any) -> Any:
    # y x^(y-1), and 0 where y is 0: x^0 = 1 for every x.
    if type(y) in PYTHON_SCALARS:
        return 0.0 if y == 0 else mul(y, x) if y == 2 else mul(y, pow(x, y - 1))
    return where(eq(y, 0), 0.0, mul(y, pow(x, sub(y, 1))))


def _pow_exponent_derivative(out: Any, x: Any, y: Any) -> Any:
    # x^y log x, and 0 at x = 0, where x^y stays 0 for every y > 0.
    return where(eq(x, 0), 0.0, mul(out, log(x)))


def _power(x: Any, y: Any) -> Any:
    if type(y) is int and y == 2 and type(x) is np.ndarray and x.dtype.kind in "fc":
        return np.square(x)  # the same, in half the time
    return np.power(x, y)


def _pow_taylor(out: Any, x: Any, y: Any) -> Callable:
    exponent = y[0] if y.constant and isinstance(y[0], (float, int, np.number)) else None
    if exponent is not None and exponent >= 0 and exponent == exponent // 1:  # by products: 0 is nothing special
        whole = _repeated(x, int(exponent))
        return lambda k: like(whole[k], out[0])
    # x y' = a x' y, so that every order costs one convolution; at x = 0 there is nothing to divide by.
    first, second = x.slope(), None if y.constant else y.slope()
    slope = masked(first, mul(y, div(out, x)))
    if second is not None:
        slope = add(slope, masked(second, _pow_exponent_derivative(out, x, y)))
    if _nowhere_zero(x[0]):
        return lambda k: like(integral(slope, k), out[0])
    if exponent is None:
        _, chain = pow.jvp((x, y), (first, second))  # type: ignore[misc]
        slope = where(eq(x, 0), chain, slope)
        return lambda k: like(integral(slope, k), out[0])

    def coefficient(k: int) -> Any:
        # 0^(a - k) at x = 0: nothing before the order a, infinite after it wherever x moves.
        moved: Any = None
        for j in range(1, k + 1) if k > exponent else ():
            moved = moved if x[j] is None else plus(moved, abs(x[j]))
        sign = -np.inf if sum(exponent < j for j in range(k)) % 2 else np.inf
        limit = 0.0 if moved is None else masked(moved, sign)
        value = integral(slope, k)
        return None if value is None else like(where(eq(x[0], 0), limit, value), out[0])

    return coefficient


def _repeated(x: Any, n: int) -> Any:
    """x^n for an integer n, by squaring."""
    if n < 2:
        return x if n else [1.0, *[None] * x.level.order]
    half = _repeated(x, n // 2)
    return mul(mul(half, half), x) if n % 2 else mul(half, half)


def _nowhere_zero(x: Any) -> bool:
    """Is it known that there is no 0 in it?"""
    return isinstance(x, (np.ndarray, np.number, float, int)) and bool(np.all(x))


pow: Primitive = elementwise(
    "pow", _power, (_pow_base_derivative, _pow_exponent_derivative),
    emit=lambda e, x, y: e.power(x, y), compute=lambda types, out: (out, out), taylor=_pow_taylor,
    pattern=power_pattern, ufunc="np.power", raises=lambda types, params: all(t.dtype.kind in "iu" for t in types),
)  # fmt: skip

# 1 / z has other signs of zero, and other limits at 0 and infinity.
complex_reciprocal: Primitive = elementwise(
    "complex_reciprocal", np.reciprocal, (lambda out, x: neg(mul(out, out)),),
    emit=lambda e, x: e.call("reciprocal", x), cost=each(multiplications=1),
)  # fmt: skip
cbrt: Primitive = ufunc(
    np.cbrt, (lambda out, x: div(1.0 / 3.0, mul(out, out)),), emit=lambda e, x: e.call("cbrt", x),
    also="scipy.special.cbrt",
)  # fmt: skip


def _part_of_hypot(out: Any, x: Any) -> Any:
    origin = eq(out, 0)
    return where(origin, 0.0, div(x, where(origin, 1.0, out)))


# The length of (x, y). At the origin, the tip of a cone, the derivative is 0, as that of abs at 0.
hypot: Primitive = ufunc(
    np.hypot, (lambda out, x, y: _part_of_hypot(out, x), lambda out, x, y: _part_of_hypot(out, y)),
    emit=lambda e, x, y: e.call("hypot", x, y),
)  # fmt: skip

# Trigonometric functions ---------------------------------------------------------------------------------------------


def _one_minus_square(x: Any) -> Any:
    return mul(sub(1.0, x), add(1.0, x))


def _root_of_one_plus_square(x: Any) -> Any:
    return sqrt(add(1.0, mul(x, x))) if type_of(x).dtype.kind == "c" else hypot(1.0, x)  # which doesn't overflow


tan: Primitive = ufunc(np.tan, (lambda out, x: add(1.0, mul(out, out)),), emit=lambda e, x: e.call("tan", x))
arcsin: Primitive = ufunc(
    np.arcsin, (lambda out, x: div(1.0, sqrt(_one_minus_square(x))),), emit=lambda e, x: e.call("arcsin", x)
)
arccos: Primitive = ufunc(
    np.arccos, (lambda out, x: div(-1.0, sqrt(_one_minus_square(x))),), emit=lambda e, x: e.call("arccos", x)
)
arctan: Primitive = ufunc(
    np.arctan, (lambda out, x: div(1.0, add(1.0, mul(x, x))),), emit=lambda e, x: e.call("arctan", x)
)


def _turn(component: Any, other: Any) -> Any:
    """x / (x^2 + y^2), without squares that overflow."""
    length = hypot(component, other)
    return div(div(component, length), length)


arctan2: Primitive = ufunc(
    np.arctan2, (lambda out, y, x: _turn(x, y), lambda out, y, x: neg(_turn(y, x))),
    emit=lambda e, y, x: e.call("arctan2", y, x),
)  # fmt: skip

# Hyperbolic functions ------------------------------------------------------------------------------------------------

sinh: Primitive = ufunc(np.sinh, (lambda out, x: cosh(x),), emit=lambda e, x: e.call("sinh", x))
cosh: Primitive = ufunc(np.cosh, (lambda out, x: sinh(x),), emit=lambda e, x: e.call("cosh", x))
arcsinh: Primitive = ufunc(
    np.arcsinh, (lambda out, x: div(1.0, _root_of_one_plus_square(x)),), emit=lambda e, x: e.call("arcsinh", x)
)
arccosh: Primitive = ufunc(
    np.arccosh, (lambda out, x: div(1.0, mul(sqrt(sub(x, 1.0)), sqrt(add(x, 1.0)))),),
    emit=lambda e, x: e.call("arccosh", x),
)  # fmt: skip
arctanh: Primitive = ufunc(
    np.arctanh, (lambda out, x: div(1.0, _one_minus_square(x)),), emit=lambda e, x: e.call("arctanh", x)
)

# Complex numbers -----------------------------------------------------------------------------------------------------


def _complex(x: Any, y: Any) -> Any:
    # Not x + 1j * y, which makes NaN of an infinite y.
    out = np.empty(np.broadcast_shapes(np.shape(x), np.shape(y)), np.result_type(x, y, 0j))
    out.real, out.imag = np.real(x), np.real(y)
    return out[()]


def _complex_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    out = complex(*primals)
    return out, like(complex(*(0.0 if t is None else t for t in tangents)), out)


complex: Primitive = elementwise(
    "complex", _complex, jvp=_complex_jvp, linear=(0, 1),
    transpose=lambda ct, x, y: (
        unbroadcast(real(ct), x) if isinstance(x, Linear) else None,
        unbroadcast(imag(ct), y) if isinstance(y, Linear) else None,
    ),
    emit=lambda e, x, y: e.complex(x, y), compute=lambda types, out: (np.dtype(f"f{out.itemsize // 2}"),) * 2,
)  # fmt: skip

# sin(t) / t ----------------------------------------------------------------------------------------------------------


def _sinc(t: Any, order: int) -> Any:
    """The derivative of this order of f(t) = sin(t) / t, to full precision everywhere.

    Far from 0 from t f = sin t, differentiated: t f^(n) + n f^(n-1) = sin^(n). The recursion loses digits where |t| is
    below n; there f(t) = integral of cos(t s) over s in [0, 1] is differentiated inside, and Gauss's rule is exact.
    """
    t = np.asarray(t)
    small = np.abs(t) < max(1, order)
    far = np.where(small, 1, t)
    waves = (np.sin(far), np.cos(far), -np.sin(far), -np.cos(far))
    out = waves[0] / far
    for n in range(1, order + 1):
        out = (waves[n % 4] - n * out) / far
    if np.any(small):
        near = t[small] if t.ndim else t
        wave = (np.cos, np.sin)[order % 2]
        nodes, weights = np.polynomial.legendre.leggauss(12 + order)
        total = np.zeros_like(near)
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            total = total + float(weight * node**order) * wave(float(node) * near)
        total = total if order % 4 in (0, 3) else -total
        out = np.array(out)
        out[small] = total
    return out[()]


def _sinc_jvp(primals: tuple, tangents: tuple, order: int) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    out = sinc(x, order=order)
    return out, scale(t, sinc(x, order=order + 1), out)


def _sinc_infer(x: ArrayType, order: int) -> ArrayType:
    return x if is_differentiable(x.dtype) else ArrayType(x.shape, cos.infer(x).dtype)


def _lower_sinc(builder: Any, x: Any, order: int) -> Any:
    dtype = _sinc_infer(x.type, order).dtype
    return builder.map(code.sinc(order), [builder.convert(x, dtype)], dtype)


# A quotient with a `where` would have the right value at 0 and no derivative there; as a family of primitives, each
# the derivative of the one before, it has all of them.
sinc: Primitive = Primitive(
    "sinc",
    _sinc,
    _sinc_infer,
    jvp=_sinc_jvp,
    batch=lambda size, args, batched, order: sinc(args[0], order=order),
    pattern=elementwise_pattern,
    lower=_lower_sinc,
    cost=each(calls=1),
)
