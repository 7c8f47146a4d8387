"""Rows of the op table: NumPy's functions that reshape, join, split and rearrange arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import wonderland.numpy as wnp
from wonderland.testing.op_table import function
from wonderland.testing.samples import case, positive, reals

# Reshaping -----------------------------------------------------------------------------------------------------------

function(
    np.reshape, reals,
    cases=[
        case((3, 4), shape=(2, -1)), case((), shape=(1, 1)), case((0, 3), shape=(3, 0)), case((6,), shape=(3, 2)),
        case((3, 4), shape=(2, 6), order="F"), case((2, 3, 4), shape=(4, -1), order="F"),
    ],
)  # fmt: skip
function(
    np.ravel, reals,
    cases=[case((3, 4)), case(()), case((0, 3)), case((2, 3, 4), order="F")],
)  # fmt: skip
function(
    np.transpose, reals, call=lambda x, axes=None: np.transpose(x, axes)[()],
    cases=[case((3, 4)), case(()), case((0, 3)), case((2, 3, 4), axes=(2, 0, -2))],
)  # fmt: skip
function(np.matrix_transpose, reals, cases=[case((3, 4)), case((2, 3, 4)), case((0, 3))])
function(np.swapaxes, reals, cases=[case((2, 3, 4), axis1=0, axis2=-1), case((0, 3), axis1=1, axis2=0)])
function(
    np.moveaxis, reals,
    cases=[
        case((2, 3, 4), source=0, destination=-1), case((2, 3, 4), source=(2, 0), destination=(0, 1)),
        case((0, 3), source=1, destination=0),
    ],
)  # fmt: skip
function(
    np.rollaxis, reals,
    cases=[case((2, 3, 4), axis=2), case((2, 3, 4), axis=0, start=3), case((2, 3, 4), axis=1, start=-1)],
)  # fmt: skip
function(
    np.expand_dims, reals,
    cases=[case((3, 4), axis=1), case((3,), axis=(0, -1)), case((), axis=0), case((0, 3), axis=-1)],
)  # fmt: skip
function(
    np.squeeze, reals, call=lambda x, **p: np.squeeze(x, **p)[()],
    cases=[case((1, 3, 1)), case((1, 3, 1), axis=0), case((1, 1)), case((1, 0), axis=(0,)), case(())],
)  # fmt: skip
for _atleast in (np.atleast_1d, np.atleast_2d, np.atleast_3d):
    function(_atleast, reals, cases=[case(()), case((3,)), case((0, 3)), case((2, 3, 4))])
function(
    np.atleast_2d, reals, reals, label="np.atleast_2d of two", cases=[case((), (3,)), case((2, 3), ())],
)  # fmt: skip
function(
    np.broadcast_to, reals,
    cases=[case((), shape=(2, 3)), case((3,), shape=(2, 3)), case((2, 1), shape=(4, 2, 3)), case((1,), shape=(0,))],
)  # fmt: skip
function(
    np.broadcast_arrays, reals, reals, cases=[case((3, 1), (4,)), case((2, 3), (2, 3)), case((), (0, 3))],
)  # fmt: skip

# Joining -------------------------------------------------------------------------------------------------------------


def _two(f: Callable) -> Callable:
    return lambda x, y, **p: f([x, y], **p)


function(
    np.concatenate, reals, reals, call=_two(np.concatenate),
    cases=[
        case((3, 4), (2, 4)), case((3, 4), (3, 1), axis=-1), case((0, 3), (2, 3)), case((2, 2), (3,), axis=None),
    ],
)  # fmt: skip
function(
    np.concatenate, reals, label="np.concatenate (dtype)", dtypes="if",
    call=lambda x: np.concatenate([x, x], dtype=complex),
    cases=[case((3,)), case((0, 2))],
)  # fmt: skip
function(
    np.concatenate, reals, label="np.concatenate of an array", cases=[case((2, 3, 4), axis=1), case((1, 2))],
)  # fmt: skip
function(
    np.stack, reals, reals, call=_two(np.stack),
    cases=[case((3, 4), (3, 4)), case((3, 4), (3, 4), axis=1), case((), ()), case((0, 3), (0, 3), axis=-1)],
)  # fmt: skip
function(np.vstack, reals, reals, call=_two(np.vstack), cases=[case((4,), (2, 4)), case((), ()), case((0, 3), (3,))])
function(np.hstack, reals, reals, call=_two(np.hstack), cases=[case((4,), (2,)), case((), ()), case((2, 0), (2, 3))])
function(np.dstack, reals, reals, call=_two(np.dstack), cases=[case((4,), (4,)), case((2, 3), (2, 3, 2)), case((), ())])
function(
    np.column_stack, reals, reals, call=_two(np.column_stack),
    cases=[case((4,), (4, 2)), case((), ()), case((0,), (0, 3))],
)  # fmt: skip
function(
    np.block, reals, reals, call=lambda x, y: np.block([[x, y], [y, x]]),
    cases=[case((2, 2), (2, 2)), case((), ()), case((2,), (3,)), case((1, 0), (1, 2))],
)  # fmt: skip
function(
    np.append, reals, reals,
    cases=[case((3,), (2, 2)), case((2, 3), (1, 3), axis=0), case((), ()), case((0, 3), (0, 2), axis=1)],
)  # fmt: skip
function(
    np.meshgrid, reals, reals,
    cases=[case((3,), (4,)), case((3,), (4,), indexing="ij"), case((3,), (2,), sparse=True), case((), (2,)),
           case((0,), (2,))],
)  # fmt: skip

# Splitting -----------------------------------------------------------------------------------------------------------

function(
    np.split, reals,
    cases=[case((6,), indices_or_sections=3), case((3, 4), indices_or_sections=[1, 3], axis=1),
           case((0, 2), indices_or_sections=1)],
)  # fmt: skip
function(
    np.array_split, reals,
    cases=[case((7,), indices_or_sections=3), case((3, 4), indices_or_sections=(1, 2, 9), axis=-1),
           case((2,), indices_or_sections=3)],
)  # fmt: skip
function(np.hsplit, reals, cases=[case((4,), indices_or_sections=2), case((2, 3), indices_or_sections=[1])])
function(np.vsplit, reals, cases=[case((4, 3), indices_or_sections=2), case((0, 3), indices_or_sections=[1])])
function(np.dsplit, reals, cases=[case((2, 3, 4), indices_or_sections=2), case((1, 0, 2), indices_or_sections=[1])])
if hasattr(np, "unstack"):
    function(np.unstack, reals, cases=[case((3, 4)), case((2, 3, 4), axis=1), case((2, 0))])

# Rearranging ---------------------------------------------------------------------------------------------------------

function(
    np.flip, reals, call=lambda x, **p: np.flip(x, **p)[()],
    cases=[case((3, 4)), case((3, 4), axis=1), case((2, 3, 4), axis=(0, -1)), case(()), case((0, 3))],
)  # fmt: skip
function(np.flipud, reals, cases=[case((3, 4)), case((3,)), case((0, 3))])
function(np.fliplr, reals, cases=[case((3, 4)), case((0, 3))])
function(
    np.rot90, reals,
    cases=[case((3, 4)), case((3, 4), k=2), case((2, 3, 4), k=-1, axes=(1, 2)), case((3, 4), k=4), case((0, 3))],
)  # fmt: skip
function(
    np.roll, reals, call=lambda x, **p: np.roll(x, **p)[()],
    cases=[
        case((5,), shift=2), case((3, 4), shift=-3), case((3, 4), shift=(1, 2), axis=(0, 1)),
        case((3, 4), shift=9, axis=1),
        case((3, 4), shift=(1, 2), axis=0), case((3, 4), shift=1, axis=(0, 1)), case((), shift=1),
        case((0, 3), shift=1, axis=0),
    ],
)  # fmt: skip
function(
    np.repeat, reals,
    cases=[
        case((3, 4), repeats=2), case((3, 4), repeats=3, axis=1), case((3,), repeats=[2, 0, 1]), case((), repeats=2),
        case((2, 3), repeats=np.array([1, 2]), axis=0), case((0, 3), repeats=2, axis=1), case((2,), repeats=0),
    ],
)  # fmt: skip
function(
    np.tile, reals,
    cases=[case((3,), reps=2), case((2, 3), reps=(2, 1, 2)), case((), reps=(2, 2)), case((2, 3), reps=0),
           case((2, 1, 2), reps=(3,))],
)  # fmt: skip
function(
    np.resize, reals,
    cases=[case((2, 3), new_shape=(2, 5)), case((5,), new_shape=3), case((), new_shape=(2,)),
        case((0,), new_shape=(2, 2))],
)  # fmt: skip
function(
    np.delete, reals,
    cases=[
        case((5,), obj=2), case((3, 4), obj=[0, -1], axis=1), case((3, 4), obj=slice(0, 6, 2)),
        case((0, 3), obj=1, axis=1),
        case((3,), obj=np.array([True, False, True])),
    ],
)  # fmt: skip
function(
    np.insert, reals, reals, call=lambda x, v, **p: np.insert(x, values=v, **p),
    cases=[
        case((5,), (), obj=2), case((5,), (3,), obj=2), case((5,), (3,), obj=[2, 0, 2]),
        case((3, 4), (3,), obj=1, axis=1),
        case((3, 4), (3, 2), obj=[1, -1], axis=1), case((3, 4), (3, 1), obj=[1], axis=1), case((3, 4), (), obj=5),
        case((3, 4), (), obj=slice(0, 2), axis=0), case((0,), (2,), obj=0),
    ],
)  # fmt: skip
_values = {"recording": "the result's shape depends on values"}
function(
    np.trim_zeros, reals, call=lambda x, **p: np.trim_zeros(np.concatenate([x * 0, x, x * 0]), **p), excluded=_values,
    dtypes="ifc", cases=[case((4,)), case((4,), trim="f"), case((4,), trim="b"), case((0,))],
)  # fmt: skip

# Diagonals and triangles ---------------------------------------------------------------------------------------------

_OFFSETS = [
    case((3, 3)),
    case((3, 4), k=1),
    case((3, 4), k=-2),
    case((4,), k=-1),
    case((0,)),
    case((2,), k=2),
    case((3, 2), k=5),
]
function(np.diag, reals, cases=_OFFSETS)
function(np.diagflat, reals, cases=[case((3,)), case((2, 2), k=1), case((), k=-1), case((0, 2))])
_DIAGONALS = [
    case((3, 3)), case((3, 4), offset=1), case((3, 4), offset=-2), case((2, 3, 4), axis1=2, axis2=0), case((0, 3)),
    case((2, 3, 4), offset=1, axis1=1, axis2=-1), case((3, 2), offset=5),
]  # fmt: skip
function(np.diagonal, reals, cases=_DIAGONALS)
function(np.trace, reals, cases=_DIAGONALS)
for _triangle in (np.tril, np.triu):
    function(
        _triangle, reals, cases=[case((3, 3)), case((3, 4), k=1), case((2, 3, 2), k=-1), case((3,)), case((0, 3))]
    )  # fmt: skip
for _from in (np.tril_indices_from, np.triu_indices_from):
    function(_from, reals, call=lambda x, _from=_from, **p: x[_from(x, **p)], cases=[case((3, 4)), case((3, 3), k=-1)])
function(
    np.diag_indices_from, reals, call=lambda x: x[np.diag_indices_from(x)], cases=[case((3, 3)), case((2, 2, 2))]
)  # fmt: skip

# Padding -------------------------------------------------------------------------------------------------------------


def _pad(mode: Any, *cases: Any, dtypes: str = "bifc", operand: Any = reals, **options: Any) -> None:
    function(
        np.pad, operand, label=f"np.pad ({', '.join([mode, *options.values()])})", cases=cases, dtypes=dtypes,
        call=lambda x, **p: np.pad(x, mode=mode, **options, **p),
    )  # fmt: skip


_pad(
    "constant", case((3,), pad_width=2), case((3, 4), pad_width=((1, 2), (0, 3)), constant_values=7),
    case((0, 3), pad_width=1),
    case((2, 3), pad_width=(1, 2), constant_values=((1, 2), (3, 4))), dtypes="ifc",
)  # fmt: skip
_pad(
    "edge",
    case((3,), pad_width=(2, 1)),
    case((3, 4), pad_width=((0, 2), (1, 0))),
    case((2, 0), pad_width=((1, 1), (0, 0))),
)
_pad("wrap", case((3,), pad_width=(2, 7)), case((3, 4), pad_width=1))
_pad(
    "linear_ramp", case((3,), pad_width=(3, 2)), case((2, 3), pad_width=2, end_values=((1, 2), (3, 4))),
    case((2,), pad_width=(0, 3), end_values=-2), dtypes="ifc", operand=positive,
)  # fmt: skip
for _reflect in ("even", "odd"):
    for _mode in ("reflect", "symmetric"):
        _pad(
            _mode, case((4,), pad_width=(2, 3)), case((3,), pad_width=(7, 9)), case((3, 4), pad_width=1),
            case((1,), pad_width=2), dtypes="ifc", reflect_type=_reflect,
        )  # fmt: skip
for _statistic in ("maximum", "minimum", "mean", "median"):
    _pad(
        _statistic, case((4,), pad_width=(2, 1)), case((3, 5), pad_width=1, stat_length=3),
        case((3, 5), pad_width=((1, 0), (0, 2)), stat_length=((1, 2), (3, 2))), dtypes="if",
    )  # fmt: skip

# Making arrays -------------------------------------------------------------------------------------------------------

_LIKE = [
    case((3, 4)),
    case((0, 3)),
    case((3,), dtype=np.dtype("complex128")),
    case((3,), shape=(2, 2)),
    case((2,), order="F"),
]
for _like in (np.zeros_like, np.ones_like):
    function(_like, reals, cases=_LIKE, excluded={"derivatives": "the result doesn't depend on the numbers"})
function(
    np.empty_like, reals, cases=_LIKE, call=lambda x, **p: np.shape(np.empty_like(x, **p))[0] * np.ones_like(x, **p),
    excluded={"derivatives": "the result doesn't depend on the numbers"},
)  # fmt: skip
function(
    np.full_like, reals, reals, call=wnp.full_like,
    cases=[case((3, 4), ()), case((2, 3), (3,)), case((0, 3), ()), case((3,), (), shape=(2, 2))]
)  # fmt: skip
function(
    np.linspace, reals, positive, dtypes="ifc",
    cases=[
        case((), (), num=5), case((3,), (3,), num=4, axis=-1), case((2,), (), num=3, endpoint=False),
        case((), (), num=1),
        case((), (), num=0), case((), (), num=4, retstep=True),
    ],
)  # fmt: skip
function(
    np.logspace, reals, positive, dtypes="ifc", cases=[case((), (), num=4), case((2,), (2,), num=3, base=2.0, axis=1)]
)
function(
    np.geomspace, positive, positive, dtypes="ifc",
    cases=[case((), (), num=4), case((2,), (2,), num=3, axis=1), case((), (), num=3, endpoint=False)],
)  # fmt: skip
for _dtype in ("complex128", "float64"):
    function(
        np.astype, reals, label=f"np.astype ({_dtype})", cases=[case((3, 4)), case((0, 3))],
        call=lambda x, _dtype=_dtype: np.astype(x, _dtype), dtypes="bifc" if _dtype == "complex128" else "bif",
    )  # fmt: skip
