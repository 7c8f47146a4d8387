"""Registers SciPy's special functions for traced arrays; loaded when the first of them is used on one.

SciPy's ufuncs are primitives of `ops/special.py` and compositions of them. Operands are first brought to the dtype that
SciPy computes in, which SciPy is asked for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.special as sp

from wonderland.core.types import shape_of, type_of
from wonderland.numpy.dispatch import implements
from wonderland.numpy.missing import complete
from wonderland.numpy.shape import normalize_axes, reduced_axes
from wonderland.numpy.ufuncs import composed, implement_primitives
from wonderland.ops import elementwise as ops
from wonderland.ops import math as elementary
from wonderland.ops import reduce, special
from wonderland.ops.shape import broadcast, convert, reshape

sp = complete(sp)

# Ufuncs that are one primitive ---------------------------------------------------------------------------------------

implement_primitives("scipy.special", sp)

# Ufuncs that are compositions ----------------------------------------------------------------------------------------

_BESSEL = {
    "i#": special.bessel_i, "i#e": special.bessel_ie, "j#": special.bessel_j, "y#": special.bessel_y,
    "k#": special.bessel_k, "k#e": special.bessel_ke,
}  # fmt: skip
for _name, _primitive in _BESSEL.items():
    for _order in (0, 1):
        composed(getattr(sp, _name.replace("#", str(_order))))(lambda x, p=_primitive, n=_order: p(n, x))


@composed(sp.exp10)
def exp10(x: Any) -> Any:
    return elementary.pow(10.0, x)


@composed(sp.cosm1)
def cosm1(x: Any) -> Any:
    half = ops.sin(ops.mul(0.5, x))
    return ops.mul(-2.0, ops.mul(half, half))


@composed(sp.log_expit)
def log_expit(x: Any) -> Any:
    return ops.neg(elementary.logaddexp(0.0, ops.neg(x)))


@composed(sp.ndtr)
def ndtr(x: Any) -> Any:
    return ops.mul(0.5, special.erfc(ops.mul(-math.sqrt(0.5), x)))


@composed(sp.ndtri)
def ndtri(p: Any) -> Any:
    return ops.mul(-math.sqrt(2.0), special.erfcinv(ops.mul(2.0, p)))


@composed(sp.entr)
def entr(x: Any) -> Any:
    return ops.where(ops.lt(x, 0), -np.inf, ops.neg(special.xlogy(x, x)))


@composed(sp.kl_div)
def kl_div(x: Any, y: Any) -> Any:
    return ops.add(ops.sub(special.rel_entr(x, y), x), y)


@composed(sp.huber)
def huber(delta: Any, r: Any) -> Any:
    size = ops.abs(r)
    linear = ops.mul(delta, ops.sub(size, ops.mul(0.5, delta)))
    out = ops.where(ops.le(size, delta), ops.mul(0.5, ops.mul(r, r)), linear)
    return ops.where(ops.lt(delta, 0), np.inf, out)


@composed(sp.pseudo_huber)
def pseudo_huber(delta: Any, r: Any) -> Any:
    """r^2 / (1 + sqrt(1 + (r / delta)^2)), in which nothing cancels."""
    zero = ops.eq(delta, 0)
    ratio = ops.div(r, ops.where(zero, 1.0, delta))
    out = ops.div(ops.mul(r, r), ops.add(1.0, elementary.hypot(1.0, ratio)))
    return ops.where(ops.lt(delta, 0), np.inf, ops.where(zero, 0.0, out))


# Python functions, into which SciPy offers no hook: for wonderland.scipy.special, and code under wl.lift -------------


@implements(sp.polygamma)
def polygamma(n: Any, x: Any) -> Any:
    x = convert(x, dtype=np.dtype(float))  # as SciPy, whatever comes in
    orders: Any = np.asarray(n)
    if not np.all(orders == np.floor(orders)):
        raise ValueError(f"polygamma takes whole numbers n, not {n}")
    if not orders.any():
        return special.digamma(x)
    higher = ops.mul(np.where(orders % 2, 1.0, -1.0) * sp.gamma(orders + 1.0), special.zeta(orders + 1.0, x))
    return higher if orders.all() else ops.where(orders == 0, special.digamma(x), higher)


@implements(sp.zeta, sp._ufuncs._zeta, sp._ufuncs._riemann_zeta)  # type: ignore[attr-defined]  (what it calls)
def zeta(x: Any, q: Any = None) -> Any:
    if q is None:
        raise TypeError(
            "scipy.special.zeta(x) isn't supported on traced arrays. Where x > 1, zeta(x, 1.0) is the same and is "
            "supported (its derivative is with respect to q)."
        )
    return special.zeta(x, q)


@implements(sp.multigammaln)  # type: ignore[attr-defined]
def multigammaln(a: Any, d: int) -> Any:
    a = convert(a, dtype=np.dtype(float))  # as SciPy, whatever comes in
    out: Any = 0.25 * d * (d - 1) * math.log(math.pi)
    for j in range(d):
        out = ops.add(out, special.gammaln(ops.sub(a, 0.5 * j)))
    return out


@implements(sp.factorial)
def factorial(n: Any, exact: bool = False, extend: str = "zero") -> Any:
    if exact or extend != "zero":
        raise TypeError('factorial of a traced array takes exact=False, extend="zero"; scipy.special.gamma(n + 1) too')
    if shape_of(n):
        n = convert(n, dtype=np.dtype(float))  # as SciPy, whatever comes in
    return ops.where(ops.lt(n, 0), 0.0, special.gamma(ops.add(n, 1.0)))


@implements(sp.comb)
def comb(N: Any, k: Any, *, exact: bool = False, repetition: bool = False) -> Any:
    if exact:
        raise TypeError("comb of traced arrays takes exact=False")
    if repetition:
        return comb(ops.sub(ops.add(N, k), 1), k)
    negative = ops.bitwise_or(ops.lt(N, 0), ops.lt(k, 0))
    return ops.where(ops.bitwise_or(ops.gt(k, N), negative), 0.0, special.binom(N, k))


@implements(sp.softplus)
def softplus(x: Any) -> Any:
    return elementary.logaddexp(0, x)


# Sums of exponentials ------------------------------------------------------------------------------------------------


def _floating(a: Any) -> Any:
    """As floating-point numbers; lists as arrays."""
    a = np.asarray(a) if isinstance(a, (list, tuple)) else a
    kind = type_of(a)
    if kind.dtype.kind in "biu" or kind.weak:
        a = convert(a, dtype=np.result_type(kind.dtype, np.float64))
    return a


def _largest(a: Any, axes: tuple[int, ...]) -> Any:
    """The largest (real part) along the axes, which stay as ones. A constant: as a shift, it cancels."""
    top = ops.stop_gradient(ops.real(a) if type_of(a).dtype.kind == "c" else a)
    return _kept(reduce.max(top, axes=axes), shape_of(a), axes) if axes else top


def _finite(top: Any) -> Any:
    return ops.where(ops.lt(ops.abs(top), np.inf), top, 0.0)


def _kept(out: Any, shape: tuple, axes: tuple[int, ...]) -> Any:
    return reshape(out, shape=tuple(1 if i in axes else n for i, n in enumerate(shape)))


def _sum(a: Any, axes: tuple[int, ...]) -> Any:
    return _kept(reduce.sum(a, axes=axes), shape_of(a), axes) if axes else a


def _log_of_sum(shifted: Any, axes: tuple[int, ...]) -> Any:
    """log(sum(exp(shifted))) of real numbers whose largest is 0.

    Of the terms exp(0) the ones are counted and taken out, so that the rest keeps its digits: log c + log1p(rest / c).
    The derivative of a term is that of exp, for the largest too. Without a 0 (nothing is finite) it is log(rest).
    """
    ones = convert(ops.eq(shifted, 0), dtype=type_of(shifted).dtype)
    rest, count = _sum(ops.sub(ops.exp(shifted), ones), axes), _sum(ones, axes)
    none = ops.eq(count, 0)
    count = ops.where(none, 1.0, count)
    out = ops.add(ops.log(count), elementary.log1p(ops.div(rest, count)))
    return ops.where(none, ops.log(ops.where(none, rest, 1.0)), out)


@implements(sp.logsumexp)
def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    """log(sum(b exp(a))).

    Where the sum is 0 (a row of -inf) the result is -inf, and its derivative is defined to be 0: what is masked out
    contributes nothing. A row with +inf has a NaN for a derivative.
    """
    a = _floating(a)
    if b is not None:
        b = _floating(b)
        shape = np.broadcast_shapes(shape_of(a), shape_of(b))
        a, b = (x if shape_of(x) == shape else broadcast(x, shape=shape) for x in (a, b))
    if not shape_of(a):  # SciPy's numbers are arrays of one element here
        a, b = reshape(a, shape=(1,)), None if b is None else reshape(b, shape=(1,))
    shape, dtype = shape_of(a), type_of(a).dtype
    axes = normalize_axes(axis, len(shape))
    if any(shape[i] == 0 for i in axes):
        out: Any = np.full(tuple(1 if i in axes else n for i, n in enumerate(shape)), -np.inf, dtype)
        return _shaped(out, np.sign(out) if return_sign else None, axes, keepdims)
    if b is None and dtype.kind != "c" and not return_sign:
        largest = _largest(a, axes)
        top = _finite(largest)
        out = ops.add(top, _log_of_sum(ops.sub(a, top), axes))
        return _shaped(ops.where(ops.eq(largest, -np.inf), -np.inf, out), None, axes, keepdims)
    # A weight of 0 takes its term out, however large, but the derivative with respect to the weight is still exp(a).
    top = _finite(_largest(a if b is None else ops.where(ops.eq(b, 0), -np.inf, a), axes))
    terms = ops.exp(ops.sub(a, top))
    total = _sum(terms if b is None else ops.masked_mul(b, terms), axes)
    nothing = ops.eq(total, 0)
    size = ops.where(nothing, 1.0, ops.abs(total) if return_sign else total)
    out = ops.where(nothing, -np.inf, ops.add(top, ops.log(size)))
    if not return_sign:
        return _shaped(out, None, axes, keepdims)
    return _shaped(out, ops.div(total, size) if dtype.kind == "c" else ops.sign(total), axes, keepdims)


def _shaped(out: Any, sign: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    def final(x: Any) -> Any:
        return x if keepdims else reshape(x, shape=tuple(n for i, n in enumerate(shape_of(x)) if i not in axes))

    return final(out) if sign is None else (final(out), final(sign))


@implements(sp.softmax)
def softmax(x: Any, axis: Any = None) -> Any:
    x = _floating(x)
    axes = reduced_axes(axis, len(shape_of(x)))
    terms = ops.exp(ops.sub(x, _largest(x, axes)))
    return ops.div(terms, _sum(terms, axes))


@implements(sp.log_softmax)
def log_softmax(x: Any, axis: Any = None) -> Any:
    x = _floating(x)
    axes = reduced_axes(axis, len(shape_of(x)))
    shifted = ops.sub(x, _finite(_largest(x, axes)))
    return ops.sub(shifted, _log_of_sum(shifted, axes))
