"""Special functions: the error function, gamma, beta and zeta functions, Bessel functions and their relatives.

SciPy evaluates them; it is imported when the first of them is. Each derivative is written with primitives, in the form
that keeps its digits in the tails. Where a derivative exists but nobody computes it (with respect to the order of a
Bessel function, say) the rule refuses, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.forks import loading
from wonderland.core.primitive import Primitive
from wonderland.core.types import type_of
from wonderland.ops import scalar_code as code
from wonderland.ops.elementwise import (
    add,
    bitwise_and,
    div,
    elementwise,
    eq,
    exp,
    gt,
    like,
    log,
    mul,
    neg,
    real,
    scale,
    sign,
    sub,
    where,
)
from wonderland.ops.math import log1p

TWO_OVER_ROOT_PI, HALF_ROOT_PI = 2.0 / math.sqrt(math.pi), math.sqrt(math.pi) / 2.0
LOG_ROOT_TWO_PI = 0.5 * math.log(2.0 * math.pi)


_DOUBLE = {np.dtype(np.longdouble): np.float64, np.dtype(np.clongdouble): np.complex128}


def _scipy(name: str) -> Callable:
    """SciPy's function of this name, imported when it is first called."""

    def evaluate(*args: Any) -> Any:
        with loading():
            import scipy.special

        f = getattr(scipy.special, name)
        if not any(getattr(a, "dtype", None) in _DOUBLE for a in args):
            return f(*args)
        # Long doubles, which most of SciPy's functions don't know, are computed as doubles.
        out = f(*(a.astype(_DOUBLE[a.dtype]) if getattr(a, "dtype", None) in _DOUBLE else a for a in args))
        return out.astype(np.clongdouble if out.dtype.kind == "c" else np.longdouble)

    return evaluate


def scipys(name: str, derivatives: tuple[Callable[..., Any], ...], **rest: Any) -> Primitive:
    """The primitive that is SciPy's function of this name."""
    return elementwise(name, _scipy(name), derivatives, ufunc=f"scipy.special.{name}", **rest)


def _foreign(name: str) -> Callable:
    """Scalar code that calls SciPy's function of this name."""
    return lambda e, *args: e.foreign(name, *args)


def _refuse(name: str, operand: str) -> Callable:
    """The derivative with respect to an operand for which there is none."""

    def derivative(out: Any, *operands: Any) -> Any:
        raise TypeError(
            f"scipy.special.{name} has no derivative with respect to {operand} here. If {operand} is to be a constant, "
            f"use wl.stop_gradient({operand}); otherwise give the function a rule with wl.custom_jvp."
        )

    return derivative


def _is_complex(x: Any) -> bool:
    return type_of(x).dtype.kind == "c"


# The error function --------------------------------------------------------------------------------------------------


def _bell(x: Any, factor: float = TWO_OVER_ROOT_PI) -> Any:
    return mul(factor, exp(neg(mul(x, x))))


erf: Primitive = scipys("erf", (lambda out, x: _bell(x),), emit=lambda e, x: e.call("erf", x))
erfc: Primitive = scipys("erfc", (lambda out, x: _bell(x, -TWO_OVER_ROOT_PI),), emit=lambda e, x: e.call("erfc", x))
erfi: Primitive = scipys("erfi", (lambda out, x: mul(TWO_OVER_ROOT_PI, exp(mul(x, x))),), emit=_foreign("erfi"))
erfinv: Primitive = scipys("erfinv", (lambda out, x: mul(HALF_ROOT_PI, exp(mul(out, out))),), emit=_foreign("erfinv"))
erfcinv: Primitive = scipys(
    "erfcinv", (lambda out, x: mul(-HALF_ROOT_PI, exp(mul(out, out))),), emit=lambda e, x: e.call("erfcinv", x)
)


def _erfcx_derivative(out: Any, x: Any) -> Any:
    """2 x erfcx(x) - 2 / sqrt(pi); where nearly all digits of the two cancel, their asymptotic series."""
    exact = sub(mul(mul(2.0, x), out), TWO_OVER_ROOT_PI)
    if _is_complex(x):
        return exact
    limit = 8.0 if type_of(x).dtype.itemsize <= 4 else 50.0
    far = gt(x, limit)
    inverse = div(1.0, where(far, x, limit))
    u = mul(inverse, inverse)
    series: Any = 59.0625
    for coefficient in (-13.125, 3.75, -1.5, 1.0):
        series = add(coefficient, mul(u, series))
    return where(far, mul(mul(-0.5 * TWO_OVER_ROOT_PI, u), series), exact)


erfcx: Primitive = scipys("erfcx", (_erfcx_derivative,), emit=lambda e, x: e.call("erfcx", x))


def _log_ndtr_derivative(out: Any, x: Any) -> Any:
    """Density over distribution function, as a difference of logarithms above 0 and by erfcx below."""
    upper = exp(sub(mul(-0.5, mul(x, x)), add(out, LOG_ROOT_TWO_PI)))
    if _is_complex(x):
        return upper
    above = gt(x, 0)
    lower = div(math.sqrt(2.0 / math.pi), erfcx(mul(-math.sqrt(0.5), where(above, 0.0, x))))
    return where(above, upper, lower)


log_ndtr: Primitive = scipys("log_ndtr", (_log_ndtr_derivative,), emit=code.log_ndtr)
ndtri_exp: Primitive = scipys(
    "ndtri_exp", (lambda out, x: exp(add(x, add(LOG_ROOT_TWO_PI, mul(0.5, mul(out, out))))),),
    emit=_foreign("ndtri_exp"),
)  # fmt: skip

# Logarithms with a limit at 0 ----------------------------------------------------------------------------------------

logit: Primitive = scipys("logit", (lambda out, x: div(1.0, mul(x, sub(1.0, x))),), emit=code.logit)


def _quotient(x: Any, y: Any) -> Any:
    """x / y, and 0 for 0 / 0."""
    return div(x, where(bitwise_and(eq(x, 0), eq(y, 0)), 1.0, y))


def _emit_xlogy(logarithm: Callable) -> Callable:
    def emit(e: Any, x: Any, y: Any) -> Any:
        zero = e.constant(0, x)
        nothing = e.bit_and(e.compare("eq", x, zero), e.compare("eq", y, y))
        return e.select(nothing, zero, e.mul(x, logarithm(e, y)))

    return emit


# x log y is 0 at x = 0 whatever y is; its derivative with respect to x is log y there too.
xlogy: Primitive = scipys(
    "xlogy",
    (lambda out, x, y: log(y), lambda out, x, y: _quotient(x, y)),
    emit=_emit_xlogy(lambda e, y: e.call("log", y)),
)
xlog1py: Primitive = scipys(
    "xlog1py",
    (lambda out, x, y: log1p(y), lambda out, x, y: _quotient(x, add(1.0, y))),
    emit=_emit_xlogy(lambda e, y: e.call("log1p", y)),
)
rel_entr: Primitive = scipys(
    "rel_entr", (lambda out, x, y: add(1.0, log(div(x, y))), lambda out, x, y: neg(_quotient(x, y))),
    emit=code.rel_entr,
)  # fmt: skip

# Gamma, beta and zeta functions --------------------------------------------------------------------------------------


def _trigamma(out: Any, x: Any) -> Any:
    if _is_complex(x):
        raise TypeError("scipy.special.digamma has no derivative at complex numbers here; give it by wl.custom_jvp")
    return zeta(2.0, x)


zeta: Primitive = elementwise(
    "zeta", _scipy("zeta"), (_refuse("zeta", "x"), lambda out, s, q: neg(mul(s, zeta(add(s, 1.0), q)))), emit=code.zeta
)
digamma: Primitive = scipys("digamma", (_trigamma,), emit=lambda e, x: e.call("digamma", x))
gammaln: Primitive = scipys("gammaln", (lambda out, x: digamma(x),), emit=lambda e, x: e.call("gammaln", x))
loggamma: Primitive = scipys("loggamma", (lambda out, x: digamma(x),), emit=code.loggamma)
gamma: Primitive = scipys("gamma", (lambda out, x: mul(out, digamma(x)),), emit=_foreign("gamma"))


def _beta_slope(a: Any, b: Any) -> Any:
    return sub(digamma(a), digamma(add(a, b)))


betaln: Primitive = scipys(
    "betaln", (lambda out, a, b: _beta_slope(a, b), lambda out, a, b: _beta_slope(b, a)), emit=_foreign("betaln")
)
beta: Primitive = scipys(
    "beta", (lambda out, a, b: mul(out, _beta_slope(a, b)), lambda out, a, b: mul(out, _beta_slope(b, a))),
    emit=_foreign("beta"),
)  # fmt: skip


def _binom_slope(upper: Any, lower: Any) -> Any:
    return sub(digamma(add(upper, 1.0)), digamma(add(lower, 1.0)))


binom: Primitive = scipys(
    "binom",
    (
        lambda out, n, k: mul(out, _binom_slope(n, sub(n, k))),
        lambda out, n, k: mul(out, _binom_slope(sub(n, k), k)),
    ),
    emit=_foreign("binom"),
)  # fmt: skip


def _gamma_density(a: Any, x: Any) -> Any:
    return exp(sub(xlogy(sub(a, 1.0), x), add(x, gammaln(a))))


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    return exp(sub(add(xlogy(sub(a, 1.0), x), xlog1py(sub(b, 1.0), neg(x))), betaln(a, b)))


def _incomplete(name: str, derivative: Callable, shapes: tuple[str, ...]) -> Primitive:
    """An incomplete function or its inverse: differentiable in its last operand, not in the shape parameters."""
    return scipys(name, (*(_refuse(name, s) for s in shapes), derivative), emit=_foreign(name))


gammainc: Primitive = _incomplete("gammainc", lambda out, a, x: _gamma_density(a, x), ("a",))
gammaincc: Primitive = _incomplete("gammaincc", lambda out, a, x: neg(_gamma_density(a, x)), ("a",))
gammaincinv: Primitive = _incomplete("gammaincinv", lambda out, a, y: div(1.0, _gamma_density(a, out)), ("a",))
gammainccinv: Primitive = _incomplete("gammainccinv", lambda out, a, y: div(-1.0, _gamma_density(a, out)), ("a",))
betainc: Primitive = _incomplete("betainc", lambda out, a, b, x: _beta_density(a, b, x), ("a", "b"))
betaincinv: Primitive = _incomplete("betaincinv", lambda out, a, b, y: div(1.0, _beta_density(a, b, out)), ("a", "b"))

exp1: Primitive = scipys("exp1", (lambda out, x: neg(div(exp(neg(x)), x)),), emit=_foreign("exp1"))
expi: Primitive = scipys("expi", (lambda out, x: div(exp(x), x),), emit=_foreign("expi"))

# Bessel functions ----------------------------------------------------------------------------------------------------


def _bessel(
    name: str, general: str, fast: str, slopes: tuple[float, float], extra: Callable | None = None, **facts: Any
) -> Primitive:
    """A Bessel function of order v: its derivative is a combination of the orders below and above.

    `slopes` are the coefficients of those two; `extra(t, out, x)` is the part of the tangent that an exponential factor
    adds. `fast` names SciPy's functions for the orders # = 0 and 1. The recurrences hold at 0: nothing is divided by x.
    """
    evaluate_any = _scipy(general)
    names = {n: fast.replace("#", str(n)) for n in (0, 1)}
    quick = {n: _scipy(names[n]) for n in names}
    codes = {n: _foreign(names[n]) for n in names}
    refuse = _refuse(general, "v")
    low, high = slopes

    def evaluate(v: Any, x: Any) -> Any:
        if type(v) is int and v in quick and not _is_complex(x):
            return quick[v](x)
        return evaluate_any(v, x)

    def jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        (v, x), (t_v, t) = primals, tangents
        out = primitive(v, x)
        if t_v is not None:
            refuse(out)
        if type(v) is int and v == 0:  # the orders -1 and 1 are the same, up to a sign
            slope = primitive(1, x) if low == high > 0 else neg(primitive(1, x))
        else:
            slope = add(mul(low, primitive(sub(v, 1), x)), mul(high, primitive(add(v, 1), x)))
        tangent = scale(t, slope, out)
        return out, like(tangent if extra is None else add(tangent, extra(t, out, x)), out)

    primitive = elementwise(name, evaluate, jvp=jvp, emit=_foreign(general), ufunc=f"scipy.special.{general}", **facts)
    lower_any: Any = primitive.lower

    def lower(builder: Any, v: Any, x: Any) -> Any:
        order = getattr(v, "value", None) if v.type.weak else None
        if order is None or v.type.dtype.kind != "i" or int(order) not in codes:
            return lower_any(builder, v, x)
        dtype = primitive.infer(v.type, x.type).dtype
        return builder.broadcast(builder.map(codes[int(order)], [builder.convert(x, dtype)], dtype), x.shape)

    primitive.lower = lower
    return primitive


def _decay(t: Any, out: Any, x: Any) -> Any:
    """What the factor exp(-|Re x|) adds, which isn't analytic."""
    if _is_complex(x):
        t, x = real(t), real(x)
    return neg(scale(t, mul(sign(x), out), out))


bessel_i: Primitive = _bessel("bessel_i", "iv", "i#", (0.5, 0.5))
bessel_ie: Primitive = _bessel("bessel_ie", "ive", "i#e", (0.5, 0.5), _decay, analytic=False)
bessel_j: Primitive = _bessel("bessel_j", "jv", "j#", (0.5, -0.5))
bessel_y: Primitive = _bessel("bessel_y", "yv", "y#", (0.5, -0.5))
bessel_k: Primitive = _bessel("bessel_k", "kv", "k#", (-0.5, -0.5))
bessel_ke: Primitive = _bessel("bessel_ke", "kve", "k#e", (-0.5, -0.5), lambda t, out, x: scale(t, out, out))
