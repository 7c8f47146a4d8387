"""Rows of the op table: elementary functions, rounding and bits, and NumPy's elementwise functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from wonderland.core.primitive import registry
from wonderland.testing.op_table import add, function
from wonderland.testing.samples import Operand, between, booleans, broadcast_cases, case, positive, reals

_chooses = {"pattern exact": "which operand is read depends on values"}
_no_derivative = {"derivatives": "its result is not a floating-point number"}
inside: Operand = between(-0.9, 0.9)
above_one: Operand = between(1.2, 3.0)
exponents: Operand = Operand(lambda rng, shape: rng.integers(-3, 4, shape), dtype=np.int32, differentiable=False)
shifts: Operand = Operand(lambda rng, shape: rng.integers(0, 5, shape), dtype=np.int8, differentiable=False)


def both(name: str, ufunc: Callable, *operands: Operand, **rest: Any) -> None:
    """A row for the primitive, one for NumPy's function, which it is, and one for SciPy's if it is that too."""
    add(name, *operands, reference=ufunc, **rest)
    function(ufunc, *operands, **rest)
    others(name, *operands)


def others(name: str, *operands: Operand) -> None:
    """Rows for SciPy's functions that the primitive is, in their dtypes."""
    for full in registry[name].also:
        f = getattr(scipy.special, full.removeprefix("scipy.special."))
        function(f, *operands, dtypes="if", excluded={"higher precision": "SciPy knows no long doubles"})


# Elementary functions ------------------------------------------------------------------------------------------------

for _ufunc, _operand in {
    np.expm1: reals, np.log1p: inside, np.exp2: reals, np.log2: positive, np.log10: positive, np.tan: inside,
    np.arcsin: inside, np.arccos: inside, np.arctan: reals, np.sinh: reals, np.cosh: reals, np.arcsinh: reals,
    np.arccosh: above_one, np.arctanh: inside,
}.items():  # fmt: skip
    both(_ufunc.__name__, _ufunc, _operand)
both("cbrt", np.cbrt, reals, dtypes="bif")
for _ufunc in (np.logaddexp, np.logaddexp2, np.hypot, np.arctan2):
    both(_ufunc.__name__, _ufunc, reals, reals, dtypes="bif")
add("sigmoid", reals, reference=lambda x: 1 / (1 + np.exp(-np.asarray(x, float))), dtypes="if")
others("sigmoid", reals)
add(
    "sinc", reals, reference=lambda t, order: np.sinc(t / np.pi), dtypes="ifc",
    cases=[case(c.shapes[0], order=0) for c in broadcast_cases(1)],
)  # fmt: skip
for _order in (1, 2, 5):
    add(
        "sinc", between(-8.0, 8.0), label=f"sinc, derivative {_order}", dtypes="ifc",
        cases=[case(c.shapes[0], order=_order) for c in broadcast_cases(1)],
    )  # fmt: skip
add("complex", reals, reals, reference=lambda x, y: x + 1j * y, dtypes="if")

# Rounding, remainders, the parts of a float, bits --------------------------------------------------------------------

for _ufunc in (np.floor, np.ceil, np.trunc):
    both(_ufunc.__name__, _ufunc, reals, dtypes="bif")
both("rint", np.rint, between(0.6, 1.4), dtypes="bifc")
both("floor_divide", np.floor_divide, reals, reals, dtypes="bif")
both("remainder", np.remainder, between(4.2, 4.8), between(1.5, 1.9), dtypes="bif")
both("fmod", np.fmod, between(4.2, 4.8), between(1.5, 1.9), dtypes="bif")
both("signbit", np.signbit, reals, dtypes="bif", excluded=_no_derivative)
both("copysign", np.copysign, reals, reals, dtypes="bif")
both("nextafter", np.nextafter, reals, reals, dtypes="if")
both("spacing", np.spacing, between(1.1, 1.9), dtypes="if")
add("exponent", between(1.1, 1.9), reference=lambda x: np.frexp(x)[1], dtypes="if", excluded=_no_derivative)
both("ldexp", np.ldexp, reals, exponents, dtypes="if")
both("left_shift", np.left_shift, reals, shifts, dtypes="bi", excluded=_no_derivative)
both("right_shift", np.right_shift, reals, shifts, dtypes="bi", excluded=_no_derivative)
both("bitwise_count", np.bitwise_count, reals, dtypes="bi", excluded=_no_derivative)
both("gcd", np.gcd, reals, reals, dtypes="i", excluded=_no_derivative)
both("lcm", np.lcm, reals, reals, dtypes="i", excluded=_no_derivative)

# NumPy's functions whose primitives have their rows in primitives.py -------------------------------------------------

for _ufunc in (np.add, np.multiply, np.true_divide):
    function(_ufunc, reals, reals)
function(np.subtract, reals, reals, dtypes="ifc")
for _ufunc, _operand in {
    np.exp: reals, np.log: positive, np.tanh: reals, np.sin: reals, np.cos: reals, np.sqrt: positive,
    np.absolute: reals, np.conjugate: reals, np.square: reals,
}.items():  # fmt: skip
    function(_ufunc, _operand)
for _ufunc in (np.negative, np.positive, np.reciprocal):
    function(_ufunc, reals, dtypes="ifc")
function(np.sign, reals, dtypes="if")
function(np.fabs, reals, dtypes="bif")
function(np.power, positive, reals, dtypes="fc")
function(np.power, positive, positive, dtypes="i", label="np.power of integers")
function(np.float_power, positive, reals, excluded={"central differences": "it computes in float64 for every dtype"})
for _ufunc in (np.maximum, np.minimum, np.fmax, np.fmin):
    function(_ufunc, reals, reals, dtypes="bif", excluded=_chooses)
for _ufunc in (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal):
    function(_ufunc, reals, reals, excluded=_no_derivative)
for _ufunc in (np.logical_and, np.logical_or, np.logical_xor):
    function(_ufunc, reals, reals, excluded=_no_derivative)
for _ufunc in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
    function(_ufunc, reals, reals, dtypes="bi", excluded=_no_derivative)
function(np.invert, reals, dtypes="bi", excluded=_no_derivative)
for _ufunc in (np.logical_not, np.isnan, np.isfinite, np.isinf, np.iscomplex, np.isreal):
    function(_ufunc, reals, excluded=_no_derivative)
for _ufunc in (np.isposinf, np.isneginf):
    function(_ufunc, reals, dtypes="bif", excluded=_no_derivative)

# NumPy's functions that are compositions -----------------------------------------------------------------------------

for _ufunc in (np.deg2rad, np.rad2deg, np.radians, np.degrees):
    function(_ufunc, reals, dtypes="bif")
function(np.sinc, reals)
function(np.i0, reals, dtypes="if", call=lambda x: np.i0(x)[()])
function(np.heaviside, reals, reals, dtypes="bif", excluded=_chooses)
function(np.divmod, reals, reals, dtypes="if")
function(np.modf, reals, dtypes="bif")
function(np.frexp, reals, dtypes="if")
for _f in (np.round, np.around):
    function(
        _f, between(2.06, 2.44), dtypes="if",
        cases=[case(()), case((0, 3)), case((3, 4), decimals=1), case((3, 4), decimals=-1), case((5,), decimals=0)],
    )  # fmt: skip
function(np.round, between(0.6, 1.4), dtypes="c", label="np.round of complex numbers")
function(np.fix, reals, dtypes="bif")
function(np.clip, reals, cases=[
    case((), a_min=-1.0, a_max=1.0), case((0, 3), a_min=0, a_max=None), case((3, 4), a_min=None, a_max=1),
    case((3, 4), a_min=-1, a_max=1), case((5,), a_min=1, a_max=-1),
], dtypes="if", excluded=_chooses)  # fmt: skip
function(np.clip, reals, reals, reals, dtypes="bif", label="np.clip between arrays", excluded=_chooses)
function(np.where, booleans, reals, reals, call=lambda c, x, y: np.where(c, x, y)[()])
function(np.nan_to_num, reals, cases=[
    case(()), case((0, 3)), case((3, 4)), case((5,), nan=1.0, posinf=2.0, neginf=-3.0)
], excluded=_chooses)  # fmt: skip
function(np.isclose, reals, reals, excluded=_no_derivative, cases=[
    case((), ()), case((0, 3), (0, 3)), case((3, 1), (4,)), case((3, 4), (3, 4), rtol=0.5, equal_nan=True),
    case((4,), None, atol=0.7),
])  # fmt: skip
for _f in (np.allclose, np.array_equal, np.array_equiv):
    function(
        _f, reals, reals, call=lambda x, y, f=_f, **params: np.logical_not(f(x, y, **params)), excluded=_no_derivative,
        cases=[case((), ()), case((0, 3), (0, 3)), case((3, 1), (4,)), case((3, 4), (3, 4))],
    )  # fmt: skip
function(np.real, reals)
function(np.imag, reals)
function(np.angle, reals, cases=[case(()), case((0, 3)), case((3, 4)), case((5,), deg=True)])
function(np.real_if_close, reals, dtypes="bif", call=lambda x: np.real_if_close(x)[()])
function(np.copy, reals, call=lambda x: np.copy(x)[()])
if hasattr(np, "astype"):
    function(np.astype, reals, call=lambda x: np.astype(np.atleast_1d(x), np.complex128))
