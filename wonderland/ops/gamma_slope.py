"""How a gamma variable moves with its shape parameter: `gamma_slope`, the derivative of a sample of it, to any order.

A sample w = log z of shape a moves with a so that its probability F(a, w) stays (implicit reparametrisation, Figurnov,
Mohamed and Mnih 2018): G(a, w) = dw/da = -F_a / F_w. With t = z e^(-y) in F = integral of t^(a-1) e^(-t) / Gamma(a),

    a G = -M + z * integral of (y - M) exp(-(a + 1) y + z (1 - e^(-y))) dy,    M = w - psi(a + 1),    for z <= a,
      G =          integral of (L + y) exp(a y + z (1 - e^y)) dy,              L = w - psi(a),        for z > a,

over y > 0 (the first after an integration by parts, the second from 1 - F). Both integrands are smooth, decay and don't
change sign, so that nothing cancels: Gauss-Legendre on the part that counts. Derivatives with respect to a are taken
inside the integrals; those with respect to w come from G_w = psi(a) - w + (z - a) G.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from wonderland.core.forks import loading
from wonderland.core.primitive import Primitive
from wonderland.core.program import Program, Record
from wonderland.core.types import ArrayType, broadcast_shapes, promote, shape_of
from wonderland.ops.elementwise import abs as size
from wonderland.ops.elementwise import (
    add,
    align,
    bitwise_and,
    div,
    exp,
    gt,
    log,
    lt,
    maximum,
    minimum,
    mul,
    neg,
    scale,
    sqrt,
    sub,
    where,
)
from wonderland.ops.math import expm1
from wonderland.ops.reading import elementwise_pattern
from wonderland.ops.reduce import sum as reduce_sum
from wonderland.ops.shape import broadcast, reshape
from wonderland.ops.special import digamma, zeta
from wonderland.ops.work import each

_DECAY = 42.0  # integrands are followed down to e^-42
_NODES = 48
_ROWS = 1024  # elements integrated at a time


@functools.cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on (0, 1)."""
    x, weights = np.polynomial.legendre.leggauss(_NODES)
    return (x + 1) / 2, weights / 2


def _half_square(y: np.ndarray, large: bool) -> np.ndarray:
    """e^y - 1 - y; by its series where it is multiplied by a large z, for which y is below 1."""
    if not large:
        return np.expm1(y) - y
    series = np.full_like(y, 1 / 17)
    for k in range(16, 1, -1):
        series *= y
        series += 1
        series *= 1 / k
    return series * y * y


def _reach(slope: np.ndarray, z: np.ndarray, sign: float) -> np.ndarray:
    """Where slope * y + z (e^(sign y) - 1 - sign y) is _DECAY: Newton's method from above, on a convex function."""
    ratio = _DECAY / np.maximum(z, 1e-100)
    if sign > 0:
        bound = np.minimum(np.sqrt(2 * ratio), np.maximum(2.0, np.log(2 * ratio)))
    else:
        bound = 0.5 * (ratio + np.sqrt(ratio * ratio + 8 * ratio))
    y = np.minimum(bound, _DECAY / slope)
    for _ in range(6):
        value = slope * y + z * _half_square(sign * y, False) - _DECAY
        y = y - np.maximum(value, 0.0) / (slope + sign * z * np.expm1(sign * y))
    return y


def _derivatives_in_a(a: np.ndarray, w: np.ndarray, order: int) -> list[np.ndarray]:
    """G and its first derivatives with respect to a, for z = e^w on either side of a."""
    out = [np.empty(a.shape) for _ in range(order + 1)]
    right, large = np.exp(w) > a, w > 5
    for side, is_large in ((-1.0, False), (-1.0, True), (1.0, False), (1.0, True)):
        chosen = np.flatnonzero((right == (side > 0)) & (large == is_large))
        for start in range(0, chosen.size, _ROWS):
            part = chosen[start : start + _ROWS]
            for into, values in zip(out, _one_side(a[part], w[part], order, side, is_large), strict=True):
                into[part] = values
    return out


def _one_side(a: np.ndarray, w: np.ndarray, order: int, side: float, large: bool) -> list[np.ndarray]:
    with loading():
        from scipy.special import polygamma

    left = side < 0
    z = np.exp(w)
    shifted = a + 1 if left else a
    slope = shifted - z if left else z - a
    psi = [polygamma(k, shifted) for k in range(order + 1)]
    nodes, weights = _quadrature()
    reach = _reach(np.maximum(slope, 1e-300), z, side)[:, None]
    y = reach * nodes
    measure = np.exp(-slope[:, None] * y - z[:, None] * _half_square(side * y, large)) * (weights * reach)
    factor = [side * (w - psi[0])[:, None] + y, *(-side * p[:, None] for p in psi[1:])]  # y - M or L + y, derivatives
    out: list[np.ndarray] = []
    for n in range(order + 1):
        integrand = sum(math.comb(n, k) * factor[k] * (side * y) ** (n - k) for k in range(n)) + factor[n]
        total = np.sum(integrand * measure, axis=1)
        if left:
            total = (psi[n] - (w if n == 0 else 0.0) + z * total - (n * out[n - 1] if n else 0.0)) / a
        out.append(total)
    return out


def _gamma_slope(a: Any, w: Any, da: int, dw: int) -> Any:
    with loading():
        from scipy.special import polygamma

    dtype = np.result_type(a, w)
    a, w = (np.asarray(x, np.float64) for x in np.broadcast_arrays(a, w))
    shape = a.shape
    valid = ((a > 0) & (a < np.inf) & np.isfinite(w)).ravel()
    a, w = a.ravel()[valid], w.ravel()[valid]
    z = np.exp(w)
    table = {(n, 0): g for n, g in enumerate(_derivatives_in_a(a, w, da))}
    for m in range(dw):
        for n in range(da + 1):
            term = (z - a) * table[n, m] - (n * table[n - 1, m] if n else 0.0)
            term += sum(math.comb(m, k) * z * table[n, m - k] for k in range(1, m + 1))
            if m == 0:
                term += polygamma(n, a)
            if n == 0 and m <= 1:
                term -= w if m == 0 else 1.0
            table[n, m + 1] = term
    out = np.full(valid.shape, np.nan)
    out[valid] = table[da, dw]
    return out.reshape(shape).astype(dtype)[()]


def _slope_jvp(primals: tuple, tangents: tuple, da: int, dw: int) -> tuple[Any, Any]:
    out, total = gamma_slope(*primals, da=da, dw=dw), None
    for t, orders in zip(tangents, ({"da": da + 1, "dw": dw}, {"da": da, "dw": dw + 1}), strict=True):
        if t is not None:
            term = scale(t, gamma_slope(*primals, **orders), out)
            total = term if total is None else add(total, term)
    return out, total


# In compiled code: the same integrals, branch-free --------------------------------------------------------------------


def _sum_of(*terms: Any) -> Any:
    return functools.reduce(add, terms)


def _polygamma(n: int, x: Any) -> Any:
    return digamma(x) if n == 0 else mul((-1.0) ** (n + 1) * math.factorial(n), zeta(n + 1.0, x))


def _trace_half_square(y: Any, large: Any) -> Any:
    """See `_half_square`."""
    series: Any = 1 / 17
    for k in range(16, 1, -1):
        series = mul(add(mul(series, y), 1.0), 1 / k)
    return where(large, mul(series, mul(y, y)), sub(expm1(y), y))


def _trace_reach(slope: Any, z: Any, right: Any, side: Any) -> Any:
    """See `_reach`."""
    ratio = div(_DECAY, maximum(z, 1e-100))
    above = minimum(sqrt(mul(2.0, ratio)), maximum(2.0, log(mul(2.0, ratio))))
    below = mul(0.5, add(ratio, sqrt(add(mul(ratio, ratio), mul(8.0, ratio)))))
    y = minimum(where(right, above, below), div(_DECAY, slope))
    for _ in range(6):
        step = expm1(mul(side, y))
        value = sub(add(mul(slope, y), mul(z, sub(step, mul(side, y)))), _DECAY)
        y = sub(y, div(maximum(value, 0.0), add(slope, mul(mul(side, z), step))))
    return y


def _trace_derivatives(a: Any, w: Any, order: int) -> list[Any]:
    """See `_one_side`; on which side an element is decides the coefficients of its integrand."""
    shape = shape_of(a)
    z = exp(w)
    right = gt(z, a)
    side = where(right, 1.0, -1.0)
    shifted = where(right, a, add(a, 1.0))
    slope = mul(side, sub(z, shifted))
    psi = [_polygamma(k, shifted) for k in range(order + 1)]
    reach = _trace_reach(maximum(slope, 1e-300), z, right, side)
    spread = lambda x: broadcast(reshape(x, shape=(*shape, 1)), shape=(*shape, _NODES))
    nodes, weights = _quadrature()
    wide_side = spread(side)
    y = mul(spread(reach), nodes)
    moved = mul(wide_side, y)
    half = _trace_half_square(moved, spread(gt(w, 5.0)))
    measure = mul(exp(neg(add(mul(spread(slope), y), mul(spread(z), half)))), mul(weights, spread(reach)))
    factor = [add(spread(mul(side, sub(w, psi[0]))), y), *(spread(neg(mul(side, p))) for p in psi[1:])]
    out: list[Any] = []
    for n in range(order + 1):
        integrand, power = factor[n], moved
        for k in range(n - 1, -1, -1):
            integrand = add(integrand, mul(mul(float(math.comb(n, k)), factor[k]), power))
            power = mul(power, moved)
        total = reduce_sum(mul(integrand, measure), axes=(len(shape),))
        left = _sum_of(psi[n], neg(w) if n == 0 else mul(-float(n), out[n - 1]), mul(z, total))
        out.append(where(right, total, div(left, a)))
    return out


def _trace_slope(a: Any, w: Any, da: int, dw: int) -> Any:
    """See `_gamma_slope`."""
    finite = bitwise_and(lt(a, np.inf), lt(size(w), np.inf))
    valid = bitwise_and(gt(a, 0.0), finite)
    a, w = where(valid, a, 1.0), where(valid, w, 0.0)
    z = exp(w)
    table = {(n, 0): g for n, g in enumerate(_trace_derivatives(a, w, da))}
    for m in range(dw):
        for n in range(da + 1):
            terms = [mul(sub(z, a), table[n, m])]
            terms += [mul(-float(n), table[n - 1, m])] if n else []
            terms += [mul(float(math.comb(m, k)), mul(z, table[n, m - k])) for k in range(1, m + 1)]
            terms += [_polygamma(n, a)] if m == 0 else []
            terms += [neg(w) if m == 0 else -1.0] if n == 0 and m <= 1 else []
            table[n, m + 1] = _sum_of(*terms)
    return where(valid, table[da, dw], np.nan)


def _lower_slope(builder: Any, a: Any, w: Any, da: int, dw: int) -> Any:
    out, double = gamma_slope.infer(a.type, w.type, da, dw), np.dtype(np.float64)
    nodes = [builder.broadcast(builder.convert(x, double), out.shape) for x in (a, w)]
    return builder.convert(builder.program(_slope_program(out.shape, da, dw), nodes)[0], out.dtype)


@functools.lru_cache(64)
def _slope_program(shape: tuple, da: int, dw: int) -> Program:
    with Record() as level:
        a, w = (level.variable(ArrayType(shape, np.dtype(np.float64))) for _ in range(2))
        return level.finish([a, w], [_trace_slope(a, w, da, dw)])


# The derivative G(a, w) of the logarithm w of a gamma variable with respect to its shape parameter a, or a higher
# derivative of G: `da` times with respect to a, `dw` times to w.
gamma_slope: Primitive = Primitive(
    "gamma_slope",
    _gamma_slope,
    lambda a, w, da, dw: ArrayType(broadcast_shapes(a.shape, w.shape), promote(a, w)[0]),
    jvp=_slope_jvp,
    batch=lambda size, args, batched, da, dw: gamma_slope(*align(args, batched), da=da, dw=dw),
    pattern=elementwise_pattern,
    lower=_lower_slope,
    cost=each(calls=1),
)
