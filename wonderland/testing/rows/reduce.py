"""Rows of the op table: reductions and cumulative operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.testing.op_table import add, function
from wonderland.testing.samples import Operand, case, reals

_chooses = {"pattern exact": "which element is read depends on values"}
_no_derivative = {"derivatives": "its result is not a floating-point number"}

# Primitives ----------------------------------------------------------------------------------------------------------

_AXES = [
    case((3, 4), axes=(1,)), case((3, 4), axes=(0, 1)), case((2, 3, 2), axes=(0, 2)), case((0, 3), axes=(0,)),
    case((0, 3), axes=(1,)), case((5,), axes=(0,)), case((1,), axes=(0,)),
]  # fmt: skip
_ALONG = [
    case((5,), axis=0, reverse=False), case((3, 4), axis=0, reverse=True), case((3, 4), axis=1, reverse=False),
    case((0, 3), axis=0, reverse=False), case((2, 1, 9), axis=1, reverse=True), case((3, 0), axis=0, reverse=False),
]  # fmt: skip


def _along(ufunc: np.ufunc) -> Any:
    """A cumulative operation as a loop."""

    def reference(x: Any, axis: int, reverse: bool) -> Any:
        out = np.moveaxis(np.array(x), axis, 0)
        step = -1 if reverse else 1
        for k in range(len(out))[::step][1:]:
            out[k] = ufunc(out[k - step], out[k])
        return np.moveaxis(out, 0, axis)

    return reference


def _recurrence(a: Any, b: Any, axis: int, reverse: bool) -> Any:
    """y_k = a_k y_{k-1} + b_k, by the sum over all ways: b_i a_{i+1} ... a_k."""
    a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    if reverse:
        a, b = a[::-1], b[::-1]
    out = np.zeros(b.shape, np.result_type(a, b))
    for k in range(len(b)):
        for i in range(k + 1):
            out[k] += b[i] * np.prod(a[i + 1 : k + 1], axis=0)
    return np.moveaxis(out[::-1] if reverse else out, 0, axis)


def _joined(x: Any, axes: Any) -> Any:
    """Axes as one, the last."""
    x = np.moveaxis(x, axes, range(-len(axes), 0))
    return x.reshape((*x.shape[: -len(axes)], np.prod(x.shape[-len(axes) :], dtype=int)))


add("prod", reals, reference=lambda x, axes: np.prod(x, axis=axes), dtypes="ifc", cases=_AXES)
add(
    "argmax", reals, reference=lambda x, axes: np.argmax(_joined(x, axes), -1), excluded=_no_derivative,
    cases=[
        case((5,), axes=(0,)), case((3, 4), axes=(0,)), case((3, 4), axes=(1,)), case((0, 3), axes=(1,)),
        case((2, 3, 4), axes=(0, 2)), case((2, 3), axes=(0, 1)),
    ],
)  # fmt: skip
add(
    "first_max", reals, reference=lambda x, axes: np.max(x, axis=axes), dtypes="bif", excluded=_chooses,
    cases=[case((3, 4), axes=(1,)), case((2, 3), axes=(0, 1)), case((2, 3, 4), axes=(0, 2)), case((0, 3), axes=(1,))],
)  # fmt: skip
add("cumsum", reals, reference=_along(np.add), dtypes="ifc", cases=_ALONG)
add("cumprod", reals, reference=_along(np.multiply), dtypes="ifc", cases=_ALONG)
add("cummax", reals, reference=_along(np.maximum), dtypes="bif", cases=_ALONG, excluded=_chooses)
add(
    "recurrence", reals, reals, reference=_recurrence, dtypes="fc",
    cases=[case(c.shapes[0], c.shapes[0], **c.params) for c in _ALONG],
)  # fmt: skip

# NumPy's reductions --------------------------------------------------------------------------------------------------

_MASK = np.array([[True, False, True, True], [False, True, True, False], [True, True, False, False]])
_REDUCED = [
    case(()), case((5,)), case((3, 4), axis=1), case((2, 3, 2), axis=(0, -1), keepdims=True), case((3, 4), axis=()),
    case((0, 3), axis=1), case((3, 4), axis=0, where=_MASK), case((3, 4), where=_MASK[:, :1], keepdims=True),
]  # fmt: skip
_TOTALS = [
    *_REDUCED, case((0, 3)), case((3, 4), dtype=np.dtype("complex128"), axis=0),
    case((3, 4), axis=1, initial=1.5, where=_MASK), case((0, 3), axis=0, initial=2),
]  # fmt: skip
_EXTREMA = [
    case(()), case((5,)), case((3, 4), axis=1), case((2, 3, 2), axis=(0, -1), keepdims=True), case((3, 4), axis=()),
    case((0, 3), axis=1), case((3, 4), axis=0, initial=0.5, where=_MASK), case((0, 3), axis=0, initial=1),
    case((3, 4), initial=1),
]  # fmt: skip
_SPREADS = [
    *_REDUCED[:-2], case((3, 4), axis=0, ddof=1), case((3, 4), axis=1, where=_MASK), case((5,), correction=1),
    case((3, 4), mean=0.25, axis=1),
]  # fmt: skip
_PLACES = [
    case(()), case((5,)), case((3, 4)), case((3, 4), axis=1), case((3, 4), axis=-2, keepdims=True),
    case((3, 4), keepdims=True), case((0, 3), axis=1),
]  # fmt: skip


def _several(cases: list) -> list:
    """The cases with statistics of more than one number: not of a single NaN, nor where a deviation is zero."""
    return [c for c in cases if c.shapes != ((),) and c.params.get("axis") != ()]


_small_integers = Operand(lambda rng, shape: rng.integers(-1, 2, shape), differentiable=False)


_flat = {
    "derivatives": "the deviation is zero, where its derivative is set to zero",
}


def _at_numbers(f: Any) -> Any:
    """A function of the numbers that are there: NaN comes in through a constant, where derivatives can't see it."""

    def call(x: Any, **params: Any) -> Any:
        holes = np.arange(x.size).reshape(x.shape) % 5 == 1 if x.shape else False
        return f(np.where(holes, np.nan, x), **params)

    return call


function(np.sum, reals, cases=_TOTALS)
function(np.prod, reals, cases=_TOTALS)
function(np.mean, reals, cases=_REDUCED)
function(np.var, reals, cases=_SPREADS)
function(np.std, reals, cases=_several(_SPREADS))
function(np.std, reals, cases=[case(()), case((3, 4), axis=())], excluded=_flat, label="np.std of one number")
for _f in (np.max, np.min, np.amax, np.amin):
    function(_f, reals, cases=_EXTREMA, dtypes="if")
    function(_f, reals, cases=_EXTREMA[:-3], dtypes="bc", label=f"np.{_f.__name__} in other dtypes")
function(np.ptp, reals, cases=[c for c in _EXTREMA if not {"initial", "where"} & set(c.params)], dtypes="ifc")
for _f in (np.any, np.all):
    function(_f, _small_integers, cases=[*_REDUCED, case((0, 3))], excluded=_no_derivative)
function(
    np.count_nonzero, _small_integers, excluded=_no_derivative,
    cases=[c for c in [*_REDUCED, case((0, 3))] if "where" not in c.params],
)  # fmt: skip
for _f in (np.argmax, np.argmin):
    function(_f, reals, cases=_PLACES, excluded=_no_derivative)

# Passing over NaN ----------------------------------------------------------------------------------------------------

for _f in (np.nansum, np.nanprod, np.nanmean):
    function(_f, reals, call=_at_numbers(_f), cases=_several(_REDUCED))
for _f in (np.nanvar, np.nanstd):
    function(_f, reals, call=_at_numbers(_f), cases=_several(_SPREADS))
for _f in (np.nanmax, np.nanmin):
    function(_f, reals, call=_at_numbers(_f), cases=_several(_EXTREMA), dtypes="f")
    function(_f, reals, cases=_EXTREMA[:-3], dtypes="bi", label=f"np.{_f.__name__} of integers")
for _f in (np.nanargmax, np.nanargmin):
    function(_f, reals, call=_at_numbers(_f), cases=_PLACES[1:], dtypes="if", excluded=_no_derivative)

# Cumulative ----------------------------------------------------------------------------------------------------------

_CUMULATED = [
    case(()), case((5,)), case((3, 4)), case((3, 4), axis=0), case((2, 3, 2), axis=-2), case((0, 3), axis=0),
    case((3, 4), axis=1, dtype=np.dtype("complex128")),
]  # fmt: skip
_INITIAL = [
    case((5,)), case((3, 4), axis=0, include_initial=True), case((3, 4), axis=-1), case((0,), include_initial=True),
]  # fmt: skip

for _f in (np.cumsum, np.cumprod):
    function(_f, reals, cases=_CUMULATED)
for _f in (np.nancumsum, np.nancumprod):
    function(_f, reals, call=_at_numbers(_f), cases=_CUMULATED[1:])
if hasattr(np, "cumulative_sum"):
    function(np.cumulative_sum, reals, cases=_INITIAL)
    function(np.cumulative_prod, reals, cases=_INITIAL)
function(
    np.diff, reals,
    cases=[
        case((5,)), case((3, 4), n=2), case((3, 4), axis=0), case((5,), n=0), case((1,)), case((0, 3)), case((2,), n=3),
        case((3, 4), prepend=0.5), case((3, 4), axis=0, append=np.ones((2, 4)), prepend=1, n=2),
    ],
)  # fmt: skip
function(
    np.diff, reals, reals, label="np.diff with ends", call=lambda x, y, **p: np.diff(x, prepend=y, append=y, **p),
    cases=[case((5,), ()), case((3, 4), (3, 1)), case((3, 4), (2, 4), axis=0)], dtypes="ifc",
)  # fmt: skip
function(np.ediff1d, reals, cases=[case((5,)), case((3, 4)), case((1,)), case((0,))], dtypes="ifc")
function(
    np.ediff1d, reals, reals, label="np.ediff1d with ends", cases=[case((5,), (2,)), case((3, 4), ())], dtypes="ifc",
    call=lambda x, y: np.ediff1d(x, to_end=y, to_begin=y),
)  # fmt: skip

# Methods of ufuncs, whose rows are those of the ufuncs they belong to -------------------------------------------------


def _method(ufunc: np.ufunc, name: str, *operands: Operand, cases: Any, **rest: Any) -> None:
    function(ufunc, *operands, call=getattr(ufunc, name), cases=cases, label=f"np.{ufunc.__name__}.{name}", **rest)


_AXIS_0 = [case((5,)), case((3, 4)), case((3, 4), axis=1, keepdims=True), case((2, 3), axis=None)]
for _ufunc in (np.add, np.multiply):
    _method(_ufunc, "reduce", reals, cases=[*_AXIS_0, case((0, 3)), case((3, 4), initial=2, where=_MASK)])
    _method(_ufunc, "accumulate", reals, cases=[case((5,)), case((3, 4)), case((3, 4), axis=1), case((0, 3))])
for _ufunc in (np.maximum, np.minimum, np.fmax, np.fmin):
    _method(_ufunc, "reduce", reals, cases=[*_AXIS_0, case((3, 4), initial=1, where=_MASK)], dtypes="if")
for _ufunc in (np.maximum, np.minimum):
    _method(_ufunc, "accumulate", reals, cases=[case((5,)), case((3, 4)), case((3, 4), axis=1), case((0, 3))])
for _ufunc in (np.logical_and, np.logical_or, np.logical_xor):
    _method(_ufunc, "reduce", _small_integers, cases=[*_AXIS_0, case((0, 3))], excluded=_no_derivative)
_method(np.logaddexp, "reduce", reals, cases=[*_AXIS_0, case((3, 4), where=_MASK), case((4,), initial=0.5)], dtypes="f")
_method(np.logaddexp, "accumulate", reals, cases=[case((5,)), case((3, 4)), case((3, 4), axis=1)], dtypes="f")
_method(
    np.add, "reduceat", reals,
    cases=[case((8,), indices=[0, 4, 1, 5]), case((3, 4), indices=[0, 3, 2], axis=1), case((3, 2), indices=[1])],
)  # fmt: skip
for _ufunc, _dtypes in ((np.add, "bifc"), (np.subtract, "ifc"), (np.multiply, "bifc"), (np.maximum, "if")):
    _method(_ufunc, "outer", reals, reals, cases=[case((3,), (2, 2)), case((), (2,)), case((0,), (2,))], dtypes=_dtypes)
