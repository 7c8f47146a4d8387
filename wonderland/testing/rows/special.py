"""Rows of the op table: special functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as sp

import wonderland.scipy.special as ours
from wonderland.testing.op_table import add, function
from wonderland.testing.samples import Operand, between, broadcast_cases, case, positive, reals

_chooses = {"pattern exact": "which operand is read depends on values"}
unit: Operand = between(0.1, 0.9)
inside: Operand = between(-0.9, 0.9)
_scale = Operand(positive.sample, differentiable=False)
orders: Operand = Operand(lambda rng, shape: rng.integers(0, 4, shape), dtype=np.float64, differentiable=False)
_DOUBLE = {"higher precision": "SciPy knows no long doubles"}


def both(name: str, ufunc: Any, *operands: Operand, dtypes: str = "if") -> None:
    """A row for the primitive and one for SciPy's function, which it is."""
    add(name, *operands, reference=ufunc, dtypes=dtypes, excluded=_DOUBLE)
    function(ufunc, *operands, dtypes=dtypes, excluded=_DOUBLE)


for _name, _operand in {"erf": reals, "erfc": reals, "erfi": reals}.items():
    both(_name, getattr(sp, _name), _operand, dtypes="bifc")
for _name, _operand in {
    "erfcx": reals, "erfinv": inside, "erfcinv": between(0.1, 1.9), "log_ndtr": reals, "ndtri_exp": between(-3.0, -0.1),
    "logit": unit, "gamma": positive, "loggamma": positive, "gammaln": positive, "digamma": positive, "exp1": positive,
    "expi": positive,
}.items():  # fmt: skip
    both(_name, getattr(sp, _name), _operand)
add("normal_quantile", unit, reference=lambda p: -sp.ndtri(p), dtypes="f", excluded=_DOUBLE)
for _name in ("rel_entr", "beta", "betaln"):
    both(_name, getattr(sp, _name), positive, positive)
for _name in ("xlogy", "xlog1py"):
    both(_name, getattr(sp, _name), reals, positive, dtypes="ifc")
both("binom", sp.binom, between(4.0, 6.0), positive)
for _name in ("gammainc", "gammaincc"):
    both(_name, getattr(sp, _name), _scale, positive)
for _name in ("gammaincinv", "gammainccinv"):
    both(_name, getattr(sp, _name), _scale, unit)
for _name in ("betainc", "betaincinv"):
    both(_name, getattr(sp, _name), _scale, _scale, unit)
add(
    "zeta",
    Operand(between(2.5, 4.0).sample, differentiable=False),
    positive,
    reference=sp.zeta,
    dtypes="f",
    excluded=_DOUBLE,
)
for _name, _ufunc, _operand in (
    ("bessel_i", sp.iv, reals), ("bessel_ie", sp.ive, reals), ("bessel_j", sp.jv, reals), ("bessel_y", sp.yv, positive),
    ("bessel_k", sp.kv, positive), ("bessel_ke", sp.kve, positive),
):  # fmt: skip
    both(_name, _ufunc, orders, _operand, dtypes="fc")

for _name, _operand in {
    "exp10": inside, "cosm1": reals, "log_expit": reals, "ndtr": reals, "ndtri": unit, "entr": positive, "i0": reals,
    "i0e": reals, "i1": reals,
    "i1e": reals, "j0": reals, "j1": reals, "y0": positive, "y1": positive, "k0": positive, "k0e": positive,
    "k1": positive, "k1e": positive,
}.items():  # fmt: skip
    function(getattr(sp, _name), _operand, dtypes="if", excluded=_DOUBLE)
function(sp.kl_div, positive, positive, dtypes="if", excluded=_DOUBLE)
function(sp.huber, positive, reals, dtypes="if", excluded={**_DOUBLE, **_chooses})
function(sp.pseudo_huber, positive, reals, dtypes="if", excluded=_DOUBLE)

# SciPy's Python functions, which are called by our names --------------------------------------------------------------

_SHAPES = [c.shapes[0] for c in broadcast_cases(1)]


def _python(original: Callable, *operands: Operand, **rest: Any) -> None:
    function(original, *operands, call=getattr(ours, original.__name__), excluded=_DOUBLE, **rest)


function(
    sp.polygamma, positive, call=lambda x, n: ours.polygamma(n, x)[()], dtypes="f", excluded=_DOUBLE,
    cases=[case(shape, n=n) for shape in _SHAPES for n in (0, 1, 3)],
)  # fmt: skip
_python(sp.zeta, Operand(between(2.5, 4.0).sample, differentiable=False), positive, dtypes="f")
_python(
    sp.multigammaln,  # type: ignore[attr-defined]  (SciPy's stubs lack it)
    between(2.0, 4.0),
    dtypes="f",
    cases=[case(s, d=d) for s in _SHAPES for d in (1, 3)],
)
_python(sp.factorial, positive, dtypes="f", cases=[case(()), case((5,)), case((3, 4))])
_python(
    sp.comb,
    between(4.0, 6.0),
    positive,
    dtypes="f",
    cases=[case((), ()), case((0, 3), (0, 3)), case((3, 1), (4,)), case((3,), (3,), repetition=True)],
)
if hasattr(sp, "softplus"):
    _python(sp.softplus, reals, dtypes="if")
_REDUCED = [
    case(()), case((5,)), case((3, 4), axis=1), case((2, 3, 4), axis=(0, 2)), case((0, 3), axis=1),
    case((3, 4), axis=-2),
]  # fmt: skip
_python(sp.logsumexp, reals, dtypes="ifc", cases=[
    *_REDUCED, case((3, 4), axis=0, keepdims=True), case((3, 4), axis=1, return_sign=True),
])  # fmt: skip
function(
    sp.logsumexp, reals, positive, call=lambda a, b, **p: ours.logsumexp(a, b=b, **p), label="logsumexp with weights",
    dtypes="ifc", cases=[case((), ()), case((3, 4), (4,), axis=1), case((3, 1), (3, 4), keepdims=True)],
)  # fmt: skip
_python(sp.softmax, reals, dtypes="ifc", cases=_REDUCED)
_python(sp.log_softmax, reals, dtypes="if", cases=_REDUCED)
