"""Rows of the op table: sorting, searching and what is found by order."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.testing.op_table import add, function
from wonderland.testing.samples import Case, Operand, between, case, reals

_chooses = {"pattern exact": "which element is read depends on values"}
_no_derivative = {"derivatives": "its result is not a floating-point number"}

# Primitives ----------------------------------------------------------------------------------------------------------

_ALONG = [case((5,), axis=0), case((3, 4), axis=0), case((2, 3, 2), axis=1), case((0, 3), axis=1), case((3, 0), axis=1)]
_ordered = Operand(lambda rng, shape: np.sort(rng.uniform(-2, 2, shape), axis=-1), differentiable=False)

add("sort", reals, reference=lambda x, axis: np.sort(x, axis), cases=_ALONG, excluded=_chooses)
add(
    "argsort", reals, reference=lambda x, axis: np.argsort(x, axis, kind="stable"), cases=_ALONG,
    excluded=_no_derivative,
)  # fmt: skip
add(
    "searchsorted", _ordered, between(-3, 3), dtypes="if", excluded=_no_derivative,
    reference=lambda a, v, side, rows: np.sum(
        (np.less if side == "left" else np.less_equal)(
            a.reshape(a.shape[:rows] + (1,) * (v.ndim - rows) + a.shape[rows:]), v[..., None]
        ),
        axis=-1,
    ),
    cases=[
        case((5,), (3, 4), side="left", rows=0), case((5,), (7,), side="right", rows=0),
        case((2, 5), (2, 3), side="right", rows=1), case((0,), (2,), side="left", rows=0),
        case((5,), (0,), side="left", rows=0),
    ],
)  # fmt: skip

# NumPy's functions ---------------------------------------------------------------------------------------------------

_SORTED = [
    case((5,)), case((3, 4)), case((3, 4), axis=0), case((2, 3, 2), axis=1), case((3, 4), axis=None), case((0, 3)),
    case((3, 4), kind="stable"),
]  # fmt: skip
_KTH = [case((7,), kth=2), case((3, 4), kth=1), case((3, 4), kth=-1)]

function(np.sort, reals, cases=_SORTED)
function(np.argsort, between(-2, 2), cases=_SORTED, dtypes="f", excluded=_no_derivative)
function(
    np.argsort, reals, cases=[case((5,), kind="stable"), case((3, 4), axis=0, kind="stable")], dtypes="bic",
    excluded=_no_derivative, label="np.argsort of ties",
)  # fmt: skip
function(np.partition, reals, cases=_KTH, call=lambda x, kth: np.take(np.partition(x, kth), kth, axis=-1))
function(
    np.argpartition, reals, cases=_KTH, call=lambda x, kth: np.take(np.argpartition(x, kth), kth, axis=-1), dtypes="fc",
    excluded=_no_derivative,
)  # fmt: skip
function(np.sort_complex, reals, cases=[case((5,)), case((3, 4))], dtypes="ifc")
function(
    np.lexsort, between(-2, 2), call=np.lexsort, excluded=_no_derivative, dtypes="bif",
    cases=[case((2, 5)), case((3, 2, 4), axis=0), case((1, 3))],
)  # fmt: skip
function(
    np.searchsorted, _ordered, between(-3, 3), dtypes="if", excluded=_no_derivative,
    cases=[case((5,), ()), case((5,), (3, 4)), case((5,), (7,), side="right"), case((0,), (2,)), case((5,), (0,))],
)  # fmt: skip
function(
    np.searchsorted, between(-2, 2), between(-3, 3), dtypes="f", excluded=_no_derivative,
    label="np.searchsorted, sorter",
    call=lambda a, v: np.searchsorted(a, v, sorter=np.argsort(a)), cases=[case((5,), (3,))],
)  # fmt: skip


def _double(x: Any) -> Any:
    """At most double: compiled code is compared with longer numbers, which these functions of NumPy's don't take."""
    return x.astype(np.float64) if x.dtype == np.longdouble else x


function(
    np.digitize, between(-3, 3), _ordered, dtypes="if", excluded=_no_derivative,
    call=lambda x, bins, **p: np.digitize(_double(x), _double(bins), **p),
    cases=[case((7,), (5,)), case((3, 4), (5,), right=True), case((), (3,)), case((4,), (1,))],
)  # fmt: skip
function(
    np.digitize, between(-3, 3), _ordered, dtypes="f", excluded=_no_derivative, label="np.digitize, falling bins",
    call=lambda x, bins, **p: np.digitize(_double(x), _double(bins[::-1]), **p),
    cases=[case((7,), (5,)), case((7,), (5,), right=True)],
)  # fmt: skip
function(
    np.bincount, reals, call=lambda w, **p: np.bincount([1, 4, 1, 0, 4], weights=_double(w), **p), dtypes="if",
    excluded={"higher precision": "NumPy adds weights in double precision only"},
    cases=[case((5,), minlength=0), case((5,), minlength=7)],
)  # fmt: skip
for _params in ({"bins": 4}, {"bins": 3, "range": (-1.0, 2.5)}, {"bins": np.array([-2.0, 0.3, 0.8, 2.0])}):
    function(
        np.histogram, reals, reals, dtypes="f", label=f"np.histogram {_params}",
        call=lambda x, w, **p: np.histogram(x, weights=w, **p),
        cases=[case((9,), (9,), **_params), case((3, 4), (3, 4), **_params)],
    )  # fmt: skip
function(
    np.histogram, reals, dtypes="f", label="np.histogram, density", cases=[case((9,), bins=3, density=True)],
)  # fmt: skip
function(np.histogram, reals, dtypes="i", cases=[case((9,)), case((3, 4), bins=2)], excluded=_no_derivative)
function(np.histogram_bin_edges, reals, dtypes="f", cases=[case((9,)), case((9,), bins=3), case((9,), range=(0, 4))])

# Order statistics ----------------------------------------------------------------------------------------------------

_MIDDLES = [case(()), case((5,)), case((4,)), case((3, 4), axis=1), case((2, 3, 2), axis=(0, 2), keepdims=True)]
_METHODS = (
    "linear", "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased", "normal_unbiased", "inverted_cdf",
    "closest_observation", "lower", "higher", "nearest", "averaged_inverted_cdf", "midpoint",
)  # fmt: skip
_PARTS = [
    case((7,), q=0.3), case((3, 4), q=0.45, axis=1), case((3, 4), q=0.71, axis=(0, 1), keepdims=True),
    case((2, 3, 2), q=np.array([0.1, 0.83]), axis=1, keepdims=True), case((2, 4), q=np.array([[0.2], [0.6]]), axis=1),
    case((), q=0.5), case((1,), q=0.9),
]  # fmt: skip


def _percent(c: Case) -> Case:
    return case(*c.shapes, **{**c.params, "q": 100 * c.params["q"]})


def _with_holes(f: Any) -> Any:
    """NaN comes in through a constant, where derivatives can't see it."""

    def call(x: Any, **params: Any) -> Any:
        holes = np.arange(x.size).reshape(x.shape) % 5 == 1 if x.shape else False
        return f(np.where(holes, np.nan, x), **params)

    return call


function(np.median, reals, cases=_MIDDLES)
function(np.nanmedian, reals, call=_with_holes(np.nanmedian), cases=_MIDDLES, dtypes="if")
for _name in _METHODS:
    _cases = [case(*c.shapes, **c.params, **({} if _name == "linear" else {"method": _name})) for c in _PARTS]
    _label = "" if _name == "linear" else f", {_name}"
    function(np.quantile, reals, cases=_cases, dtypes="if", label=f"np.quantile{_label}")
    function(
        np.nanquantile, reals, call=_with_holes(np.nanquantile), cases=_cases[:4], dtypes="if",
        label=f"np.nanquantile{_label}",
    )  # fmt: skip
function(np.percentile, reals, cases=list(map(_percent, _PARTS)), dtypes="if")
function(
    np.nanpercentile, reals, call=_with_holes(np.nanpercentile), cases=list(map(_percent, _PARTS[:4])), dtypes="if"
)
function(
    np.quantile, reals, between(0.1, 0.9), dtypes="f", cases=[case((5,), ()), case((3, 4), (2,), axis=1)],
    label="np.quantile of traced q",
)  # fmt: skip
for _f in (np.quantile, np.nanquantile):
    function(
        _f, reals, between(0.5, 1.5), dtypes="f", label=f"np.{_f.__name__}, weights",
        call=lambda x, w, _f=_f, **p: _f(x, method="inverted_cdf", weights=w, **p),
        cases=[case((5,), (5,), q=np.array([0.3])), case((3, 4), (3, 4), q=np.array([0.2, 0.7]), axis=1)],
    )  # fmt: skip
function(
    np.average, reals, between(0.5, 1.5), dtypes="ifc", call=lambda x, w, **p: np.average(x, weights=w, **p),
    cases=[
        case((5,), (5,)), case((3, 4), (3, 4), axis=1, keepdims=True), case((3, 4), (3,), axis=0),
        case((3, 4), (3, 4), returned=True), case((3, 4), (4,), axis=-1, returned=True),
        case((2, 3, 4), (4, 2), axis=(2, 0)),
    ],
)  # fmt: skip
function(
    np.average, reals, label="np.average without weights",
    cases=[case(()), case((5,)), case((3, 4), axis=1), case((3, 4), axis=0, returned=True)],
)  # fmt: skip
