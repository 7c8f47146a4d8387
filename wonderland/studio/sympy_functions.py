"""What a primitive is in SymPy: a function of expressions for an elementwise one.

Most follow from the primitive itself: SymPy's function of the same name as NumPy's or SciPy's, or the evaluation on
objects, by Python's operators. What is found that way is believed if it has the primitive's values at some numbers. The
table has the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from wonderland.core.primitive import Primitive

_NUMBERS = (0.0, 0.3, 1.75, -1.25)


@cache
def function_of(primitive: Primitive, count: int) -> Callable | None:
    """The function of SymPy's expressions that an elementwise primitive of `count` operands is; None: there is none."""
    return exceptions().get(primitive.name) or derived(primitive, count)


def derived(primitive: Primitive, count: int) -> Callable | None:
    """The function as far as it follows from the primitive's names and its evaluation."""
    reals = _values(primitive, itertools.product(_NUMBERS, repeat=count))
    complexes = _values(primitive, [(0.3 + 0.4j,) * count])
    for f in _candidates(primitive, count) if reals else ():
        if _agrees(f, reals, real=True) and _agrees(f, complexes, real=None):
            return f
    return None


def _values(primitive: Primitive, points: Iterable[tuple]) -> dict[tuple, Any]:
    """What the primitive computes at these points, where it computes something."""
    values = {}
    for numbers in points:
        with (
            np.errstate(all="ignore"),
            suppress(TypeError, ValueError),
        ):  # it may be one of integers, or of real numbers
            value = primitive.evaluate(*numbers)
            if np.isfinite(value):
                values[numbers] = value
    return values


def _candidates(primitive: Primitive, count: int) -> Iterator[Callable]:
    import sympy
    from sympy.codegen import cfunctions

    names = [name.rpartition(".")[2] for name in (primitive.ufunc, primitive.name)]
    names = [name.replace("arc", "a", 1) if name.startswith("arc") else name.replace("_", "") for name in names]
    for module, name in itertools.product((sympy, cfunctions), names):
        f = getattr(module, name, None)
        if isinstance(f, type) and issubclass(f, sympy.Function) and count in f.nargs:
            yield f if module is sympy else lambda *xs, f=f: sympy.expand_func(f(*xs), deep=False)
    yield primitive.evaluate


def _agrees(f: Callable, values: dict[tuple, Any], real: bool | None) -> bool:
    """Does a function of symbols have these values?"""
    import sympy

    try:
        for numbers, value in values.items():
            symbols = [sympy.Dummy(real=real) for _ in numbers]
            found = sympy.sympify(f(*symbols)).subs(dict(zip(symbols, numbers, strict=True))).evalf()
            if not np.isclose(complex(found), value, rtol=1e-10, atol=1e-12):
                return False
    except (TypeError, ValueError, AttributeError, sympy.SympifyError):  # it takes no symbols, or makes no numbers
        return False
    return True


@cache
def exceptions() -> dict[str, Callable]:
    """For primitives that SymPy has under another name, or as an expression of others."""
    import sympy as sp

    two = sp.Integer(2)

    def choose(condition: Any, x: Any, y: Any) -> Any:
        if condition.is_Number:
            condition = sp.Ne(condition, 0)
        return sp.Piecewise((x, condition), (y, True))

    def trunc(x: Any) -> Any:
        return sp.sign(x) * sp.floor(sp.Abs(x))

    def mul(x: Any, y: Any) -> Any:
        return sp.S.Zero if x == 0 or y == 0 else x * y

    def xlogy(x: Any, y: Any) -> Any:
        return choose(sp.Eq(x, 0), sp.S.Zero, x * sp.log(y))

    return {
        # arithmetic
        "masked_mul": mul, "sqrt": sp.sqrt, "maximum": sp.Max, "minimum": sp.Min,
        "cbrt": lambda x: sp.sign(x) * sp.Abs(x) ** sp.Rational(1, 3), "arctan2": sp.atan2,
        # exponentials and logarithms
        "sigmoid": lambda x: 1 / (1 + sp.exp(-x)), "logaddexp": lambda x, y: sp.log(sp.exp(x) + sp.exp(y)),
        "logaddexp2": lambda x, y: sp.log(two**x + two**y) / sp.log(two),
        "logit": lambda x: sp.log(x / (1 - x)), "xlogy": xlogy, "xlog1py": lambda x, y: xlogy(x, 1 + y),
        "rel_entr": lambda x, y: xlogy(x, x / y),
        # complex numbers
        "real": sp.re, "imag": sp.im, "complex": lambda x, y: x + sp.I * y,
        # decisions
        "eq": sp.Eq, "ne": sp.Ne, "lt": sp.Lt, "le": sp.Le, "gt": sp.Gt, "ge": sp.Ge, "where": choose,
        "bitwise_and": sp.And, "bitwise_or": sp.Or, "bitwise_xor": sp.Xor, "invert": sp.Not,
        # whole numbers
        "ceil": sp.ceiling, "trunc": trunc, "fmod": lambda x, y: x - y * trunc(x / y), "signbit": lambda x: sp.Lt(x, 0),
        "copysign": lambda x, y: choose(sp.Lt(y, 0), -sp.Abs(x), sp.Abs(x)), "ldexp": lambda x, n: x * two**n,
        "left_shift": lambda x, n: x * two**n, "right_shift": lambda x, n: sp.floor(x / two**n),
        # the error function
        "erfcinv": lambda x: sp.erfinv(1 - x), "erfcx": lambda x: sp.exp(x**2) * sp.erfc(x),
        "normal_quantile": lambda p: sp.sqrt(2) * sp.erfinv(1 - 2 * p),
        "log_ndtr": lambda x: sp.log(sp.erfc(-x / sp.sqrt(2)) / 2),
        "ndtri_exp": lambda x: sp.sqrt(2) * sp.erfinv(2 * sp.exp(x) - 1),
        # gamma and beta functions
        "gammaln": lambda x: sp.log(sp.Abs(sp.gamma(x))), "betaln": lambda a, b: sp.log(sp.Abs(sp.beta(a, b))),
        "binom": lambda n, k: sp.gamma(n + 1) / (sp.gamma(k + 1) * sp.gamma(n - k + 1)),
        "gammainc": lambda a, x: sp.lowergamma(a, x) / sp.gamma(a),
        "gammaincc": lambda a, x: sp.uppergamma(a, x) / sp.gamma(a),
        "betainc": lambda a, b, x: sp.betainc_regularized(a, b, 0, x),
        "exp1": lambda x: sp.expint(1, x), "expi": sp.Ei,
        # Bessel functions
        "bessel_ie": lambda v, x: sp.exp(-sp.Abs(sp.re(x))) * sp.besseli(v, x),
        "bessel_ke": lambda v, x: sp.exp(x) * sp.besselk(v, x),
    }  # fmt: skip
