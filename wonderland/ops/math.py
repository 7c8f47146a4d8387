"""Elementary functions: exponentials, logarithms, trigonometric and hyperbolic functions and their inverses.

Each is one `elementwise` block: NumPy's function, its derivatives written with primitives, and the scalar code of the
compiler. Derivatives are written so that they keep their digits at the ends of the domain (1 - x^2 as a product, no
square that overflows).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wonderland.core.primitive import Linear, Primitive
from wonderland.core.types import ArrayType, is_differentiable, type_of
from wonderland.ops import scalar_code as code
from wonderland.ops.elementwise import (
    add,
    bitwise_and,
    cos,
    div,
    elementwise,
    elementwise_pattern,
    eq,
    exp,
    imag,
    like,
    masked,
    mul,
    ne,
    neg,
    real,
    scale,
    sqrt,
    stop_gradient,
    sub,
    unbroadcast,
    where,
)
from wonderland.ops.series import integral
from wonderland.ops.work import each

LN2, LN10 = math.log(2.0), math.log(10.0)

# Exponentials and logarithms -----------------------------------------------------------------------------------------

expm1: Primitive = elementwise(
    "expm1", np.expm1, (lambda out, x: exp(x),), emit=lambda e, x: e.call("expm1", x),
    monotone=True, zero_preserving=True,
)  # fmt: skip
log1p: Primitive = elementwise(
    "log1p", np.log1p, (lambda out, x: div(1.0, add(1.0, x)),), emit=lambda e, x: e.call("log1p", x),
    monotone=True, zero_preserving=True,
)  # fmt: skip
exp2: Primitive = elementwise(
    "exp2", np.exp2, (lambda out, x: mul(LN2, out),), emit=lambda e, x: e.call("exp2", x), monotone=True
)
log2: Primitive = elementwise(
    "log2", np.log2, (lambda out, x: div(1.0, mul(LN2, x)),), emit=lambda e, x: e.call("log2", x), monotone=True
)
log10: Primitive = elementwise(
    "log10", np.log10, (lambda out, x: div(1.0, mul(LN10, x)),), emit=lambda e, x: e.call("log10", x), monotone=True
)


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
    monotone=True, taylor=_sigmoid_taylor,
)  # fmt: skip


def _share(x: Any, y: Any, base: float = math.e) -> Any:
    """The weight b^x / (b^x + b^y) in log(b^x + b^y): 0 for x = -inf even if y is too, a half if both are +inf."""
    difference = sub(x, y)
    equal = bitwise_and(eq(x, y), ne(difference, difference))  # inf - inf
    difference = where(equal, 0.0, difference)
    return where(eq(x, -np.inf), 0.0, sigmoid(difference if base == math.e else mul(math.log(base), difference)))


logaddexp: Primitive = elementwise(
    "logaddexp", np.logaddexp, (lambda out, x, y: _share(x, y), lambda out, x, y: _share(y, x)),
    emit=code.logaddexp, monotone=True,
)  # fmt: skip
logaddexp2: Primitive = elementwise(
    "logaddexp2", np.logaddexp2, (lambda out, x, y: _share(x, y, 2.0), lambda out, x, y: _share(y, x, 2.0)),
    emit=code.logaddexp2, monotone=True,
)  # fmt: skip

# Roots ---------------------------------------------------------------------------------------------------------------

# 1 / z has other signs of zero, and other limits at 0 and infinity.
complex_reciprocal: Primitive = elementwise(
    "complex_reciprocal", np.reciprocal, (lambda out, x: neg(mul(out, out)),),
    emit=lambda e, x: e.call("reciprocal", x), cost=each(multiplications=1),
)  # fmt: skip
cbrt: Primitive = elementwise(
    "cbrt", np.cbrt, (lambda out, x: div(1.0 / 3.0, mul(out, out)),), emit=lambda e, x: e.call("cbrt", x),
    monotone=True, zero_preserving=True,
)  # fmt: skip


def _part_of_hypot(out: Any, x: Any) -> Any:
    origin = eq(out, 0)
    return where(origin, 0.0, div(x, where(origin, 1.0, out)))


# The length of (x, y). At the origin, the tip of a cone, the derivative is 0, as that of abs at 0.
hypot: Primitive = elementwise(
    "hypot", np.hypot, (lambda out, x, y: _part_of_hypot(out, x), lambda out, x, y: _part_of_hypot(out, y)),
    emit=lambda e, x, y: e.call("hypot", x, y), zero_preserving=True,
)  # fmt: skip

# Trigonometric functions ---------------------------------------------------------------------------------------------


def _one_minus_square(x: Any) -> Any:
    return mul(sub(1.0, x), add(1.0, x))


def _root_of_one_plus_square(x: Any) -> Any:
    return sqrt(add(1.0, mul(x, x))) if type_of(x).dtype.kind == "c" else hypot(1.0, x)  # which doesn't overflow


tan: Primitive = elementwise(
    "tan", np.tan, (lambda out, x: add(1.0, mul(out, out)),), emit=lambda e, x: e.call("tan", x), zero_preserving=True
)
arcsin: Primitive = elementwise(
    "arcsin", np.arcsin, (lambda out, x: div(1.0, sqrt(_one_minus_square(x))),), emit=lambda e, x: e.call("arcsin", x),
    zero_preserving=True,
)  # fmt: skip
arccos: Primitive = elementwise(
    "arccos", np.arccos, (lambda out, x: div(-1.0, sqrt(_one_minus_square(x))),),
    emit=lambda e, x: e.call("arccos", x),
)  # fmt: skip
arctan: Primitive = elementwise(
    "arctan", np.arctan, (lambda out, x: div(1.0, add(1.0, mul(x, x))),), emit=lambda e, x: e.call("arctan", x),
    monotone=True, zero_preserving=True,
)  # fmt: skip


def _turn(component: Any, other: Any) -> Any:
    """x / (x^2 + y^2), without squares that overflow."""
    length = hypot(component, other)
    return div(div(component, length), length)


arctan2: Primitive = elementwise(
    "arctan2", np.arctan2, (lambda out, y, x: _turn(x, y), lambda out, y, x: neg(_turn(y, x))),
    emit=lambda e, y, x: e.call("arctan2", y, x), zero_preserving=True,
)  # fmt: skip

# Hyperbolic functions ------------------------------------------------------------------------------------------------

sinh: Primitive = elementwise(
    "sinh", np.sinh, (lambda out, x: cosh(x),), emit=lambda e, x: e.call("sinh", x),
    monotone=True, zero_preserving=True,
)  # fmt: skip
cosh: Primitive = elementwise("cosh", np.cosh, (lambda out, x: sinh(x),), emit=lambda e, x: e.call("cosh", x))
arcsinh: Primitive = elementwise(
    "arcsinh", np.arcsinh, (lambda out, x: div(1.0, _root_of_one_plus_square(x)),),
    emit=lambda e, x: e.call("arcsinh", x), monotone=True, zero_preserving=True,
)  # fmt: skip
arccosh: Primitive = elementwise(
    "arccosh", np.arccosh, (lambda out, x: div(1.0, mul(sqrt(sub(x, 1.0)), sqrt(add(x, 1.0)))),),
    emit=lambda e, x: e.call("arccosh", x), monotone=True,
)  # fmt: skip
arctanh: Primitive = elementwise(
    "arctanh", np.arctanh, (lambda out, x: div(1.0, _one_minus_square(x)),), emit=lambda e, x: e.call("arctanh", x),
    zero_preserving=True,
)  # fmt: skip

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
    "complex", _complex, jvp=_complex_jvp, linear=(0, 1), zero_preserving=True,
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
