"""Rows of the op table: finite differences, quadrature, interpolation, convolution, polynomials, covariance."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.testing.op_table import function
from wonderland.testing.samples import Operand, between, case, reals


def _increasing(rng: np.random.Generator, shape: tuple) -> Any:
    """Points in increasing order, apart from each other, along the last axis."""
    return np.cumsum(rng.uniform(0.5, 1.0, shape), axis=-1) if shape else rng.uniform(0.5, 1.0)


increasing: Operand = Operand(_increasing)

function(
    np.trapezoid, reals, dtypes="ifc",
    cases=[case((5,)), case((3, 4), axis=0, dx=0.5), case((3, 4)), case((1,)), case((2, 0), axis=0)],
)  # fmt: skip
function(
    np.trapezoid, reals, increasing, dtypes="f", label="np.trapezoid over points",
    cases=[case((5,), (5,)), case((3, 4), (3,), axis=0), case((2, 4), (2, 4))],
)  # fmt: skip

# Finite differences --------------------------------------------------------------------------------------------------

function(
    np.gradient, reals, dtypes="ifc",
    cases=[
        case((5,)), case((2,)), case((3, 4)), case((3, 4), axis=0), case((4, 5), axis=(1, 0), edge_order=2), case((3,)),
        case((2, 0), axis=0),
    ],
)  # fmt: skip
function(
    np.gradient, reals, increasing, dtypes="f", label="np.gradient over points",
    cases=[
        case((5,), (5,)), case((4,), ()), case((3, 4), (3,), axis=0), case((6,), (6,), edge_order=2), case((2,), (2,)),
        case((3,), (3,), edge_order=2), case((3, 4), ()),
    ],
)  # fmt: skip
function(
    np.gradient, reals, increasing, increasing, dtypes="f", label="np.gradient along two axes",
    cases=[case((3, 4), (3,), ()), case((4, 3), (4,), (3,), edge_order=2)],
)  # fmt: skip
function(
    np.unwrap, between(-20.0, 20.0), dtypes="if",
    cases=[case((8,)), case((3, 4)), case((3, 4), axis=0), case((6,), period=4), case((6,), discont=5.0), case((0,)),
           case((1,)), case((5,), period=2.5)],
)  # fmt: skip

# Interpolation -------------------------------------------------------------------------------------------------------

_double = {"higher precision": "NumPy computes it in double precision only"}
_at = between(0.3, 6.5)  # from before the first point to after the last
function(
    np.interp, _at, increasing, reals, dtypes="if", excluded=_double,
    cases=[
        case((7,), (5,), (5,)), case((), (4,), (4,)), case((2, 3), (6,), (6,)), case((4,), (1,), (1,)),
        case((0,), (3,), (3,)), case((6,), (5,), (5,), left=-1.0, right=2.5), case((6,), (3,), (3,), period=3.7),
        case((6,), (3,), (3,), period=-3.7),
    ],
)  # fmt: skip
function(
    np.interp, _at, increasing, reals, dtypes="c", label="np.interp of complex numbers", excluded=_double,
    call=lambda x, xp, fp, **options: np.interp(np.real(x), np.real(xp), fp, **options),
    cases=[case((7,), (5,), (5,)), case((), (4,), (4,), left=1j)],
)  # fmt: skip

# Convolution and windows ---------------------------------------------------------------------------------------------

_MODES = [
    case((5,), (3,)), case((3,), (5,)), case((4,), (4,)), case((1,), (4,)),
    *(case((6,), (3,), mode=mode) for mode in ("same", "valid", "full")),
    *(case((4,), (6,), mode=mode) for mode in ("same", "valid", "full")), case((5,), (2,), mode="same"),
]  # fmt: skip
function(np.convolve, reals, reals, cases=[*_MODES, case((), (3,))])
function(np.correlate, reals, reals, cases=_MODES)
function(
    np.lib.stride_tricks.sliding_window_view, reals,
    cases=[
        case((6,), window_shape=3), case((6,), window_shape=1), case((4, 5), window_shape=(2, 3)),
        case((3,), window_shape=3), case((4, 5), window_shape=2, axis=0),
        case((4, 5), window_shape=(2, 3), axis=(1, 1)),
        case((2, 0), window_shape=2, axis=0),
    ],
)  # fmt: skip

# Polynomials ---------------------------------------------------------------------------------------------------------

function(
    np.polyval, reals, reals,
    cases=[case((4,), ()), case((3,), (5,)), case((1,), (2, 3)), case((0,), (3,)), case((3,), (0,))],
)  # fmt: skip
for _f in (np.polyadd, np.polysub):
    function(
        _f, reals, reals, dtypes="ifc",
        cases=[case((3,), (3,)), case((4,), (2,)), case((2,), (4,)), case((), (3,)), case((0,), (2,))],
    )  # fmt: skip
function(np.polymul, reals, reals, dtypes="ifc", cases=[case((3,), (3,)), case((4,), (2,)), case((), (3,))])
function(
    np.polyder, reals, dtypes="ifc",
    cases=[case((4,)), case((4,), m=2), case((2,), m=3), case((1,)), case((3,), m=0)],
)  # fmt: skip
function(
    np.polyint, reals, dtypes="ifc",
    cases=[case((4,)), case((3,), m=2), case((3,), m=2, k=[1.0, 2.0]), case((3,), k=3), case((0,)), case((2,), m=0)],
)  # fmt: skip
function(np.poly, reals, dtypes="if", cases=[case((4,)), case((1,))])
function(
    np.vander, reals,
    cases=[
        case((4,)), case((3,), N=2), case((3,), N=5, increasing=True), case((3,), N=1), case((3,), N=0), case((0,)),
        case((0,), N=2),
    ],
)  # fmt: skip

function(
    np.polyfit, increasing, reals, dtypes="f", excluded=_double,
    cases=[case((6,), (6,), deg=2), case((4,), (4,), deg=3), case((5,), (5, 2), deg=1), case((3,), (3,), deg=0),
           case((5,), (5,), deg=1, w=[1.0, 2.0, 0.5, 1.0, 3.0])],
)  # fmt: skip

# Covariance ----------------------------------------------------------------------------------------------------------

function(
    np.cov, reals, call=lambda x, **options: np.cov(x, **options)[()],
    cases=[
        case((3, 5)), case((5,)), case((5, 2), rowvar=False), case((3, 5), bias=True), case((2, 4), ddof=0),
        case((2, 4), fweights=[1, 2, 1, 3]), case((2, 4), aweights=[0.5, 0.2, 1.0, 0.7]),
        case((2, 4), fweights=[1, 2, 1, 3], aweights=[0.5, 0.2, 1.0, 0.7]),
    ],
)  # fmt: skip
function(
    np.cov,
    reals,
    reals,
    label="np.cov of two",
    cases=[case((5,), (5,)), case((2, 4), (3, 4)), case((4, 2), (4, 3), rowvar=False)],
)
function(
    np.corrcoef, reals, dtypes="ifc", cases=[case((3, 6)), case((6, 3), rowvar=False)],
)  # fmt: skip

# Functions along axes ------------------------------------------------------------------------------------------------


def _norm(x: Any) -> Any:
    return np.sum(x * x)


def _along(x: Any, axis: int, outer: bool = False) -> Any:
    f = (
        (lambda v: np.multiply.outer(v, v[:2]) if not hasattr(v, "type") else v[:, None] * v[None, :2])
        if outer
        else _norm
    )
    return np.apply_along_axis(f, axis, x)


function(
    np.apply_along_axis, reals, dtypes="ifc", call=_along,
    cases=[case((3, 4), axis=0), case((4, 2), axis=-1), case((2, 3, 2), axis=1, outer=True), case((3, 0), axis=1)],
)  # fmt: skip
function(
    np.apply_over_axes, reals, dtypes="ifc", call=lambda x, axes: np.apply_over_axes(np.sum, x, axes),
    cases=[case((3, 4), axes=0), case((2, 3, 4), axes=(0, 2)), case((2, 3), axes=[-1]), case((0, 3), axes=0)],
)  # fmt: skip
