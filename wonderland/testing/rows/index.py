"""Rows of the op table: NumPy's functions that select elements by index, condition or value, or write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.tracer import Tracer, unwrap
from wonderland.numpy.dispatch import has_tracer
from wonderland.testing.op_table import add, function
from wonderland.testing.samples import Operand, booleans, case, indices, reals

_chooses = {"pattern exact": "which element is the largest depends on values"}
_shape_by_values = {"recording": "the result's shape depends on values"}
_no_derivative = {"derivatives": "its result is not a floating-point number"}


def _scatter_max(x: Any, i: Any, u: Any, axes: Any) -> Any:
    """One element after the other."""
    out = np.moveaxis(np.array(x), axes[0], 0)
    for place in np.ndindex(np.shape(i)):
        out[i[place]] = np.maximum(out[i[place]], u[place])
    return np.moveaxis(out, 0, axes[0])


add(
    "scatter_max", reals, indices(4), reals, reference=_scatter_max, dtypes="bif", excluded=_chooses,
    cases=[
        case((4, 3), (5,), (5, 3), axes=(0,)), case((3, 4), (2, 3), (2, 3, 3), axes=(1,)),
        case((4,), (2,), (2,), axes=(0,)),
        case((4, 2), (0,), (0, 2), axes=(0,)), case((4,), (), (), axes=(0,)),
    ],
)  # fmt: skip

# By place ------------------------------------------------------------------------------------------------------------

_below = lambda n: Operand(lambda rng, shape: rng.integers(0, n, shape), dtype=np.int64, differentiable=False)
_TAKE = [
    case((4, 3), (2,), axis=0), case((3, 4), (2, 2), axis=1), case((4,), ()), case((2, 2), (3,)),
    case((4, 2), (0,), axis=0),
]  # fmt: skip


def _in_mode(f: Callable, mode: str) -> Callable:
    return lambda *args, **params: f(*args, mode=mode, **params)


function(np.take, reals, indices(4), cases=_TAKE)
for _mode in ("wrap", "clip"):
    function(
        np.take, reals, indices(9), label=f"np.take ({_mode})", cases=_TAKE,
        call=_in_mode(np.take, _mode),
    )  # fmt: skip
function(
    np.take_along_axis, reals, indices(3),
    cases=[
        case((3, 4), (2, 4), axis=0), case((4, 3), (4, 5), axis=-1), case((4, 3), (1, 2), axis=1),
        case((3,), (0,), axis=0),
        case((1, 3), (4,), axis=None),
    ],
)  # fmt: skip
function(
    np.choose, _below(2), reals, reals, call=lambda i, x, y: np.choose(i, [x, y]), dtypes="ifc",
    cases=[case((3,), (3,), (3,)), case((2, 1), (3,), ()), case((), (2,), (2,)), case((0,), (), (0,))],
)  # fmt: skip
for _mode in ("wrap", "clip"):
    function(
        np.choose, indices(5), reals, label=f"np.choose ({_mode})", cases=[case((3,), (2, 3)), case((2,), (3, 1))],
        call=_in_mode(np.choose, _mode),
    )  # fmt: skip
_ORDERS: tuple[Any, ...] = ("C", "F")
for _order in _ORDERS:
    function(
        np.unravel_index, _below(24), cases=[case((5,)), case((2, 3)), case(()), case((0,))], dtypes="i",
        label=f"np.unravel_index ({_order})", excluded=_no_derivative,
        call=lambda i, _order=_order: np.unravel_index(i, (2, 3, 4), _order),
    )  # fmt: skip
    function(
        np.ravel_multi_index, indices(9), indices(9), dtypes="i",
        cases=[case((5,), (5,)), case((2, 1), (3,)), case((), ())],
        label=f"np.ravel_multi_index ({_order})", excluded=_no_derivative,
        call=lambda i, j, _order=_order: np.ravel_multi_index((i, j), (3, 4), ("wrap", "clip"), _order),
    )  # fmt: skip

# By condition --------------------------------------------------------------------------------------------------------

_MASK = np.array([True, False, True, True])
function(
    np.select, booleans, booleans, reals, reals, call=lambda a, b, x, y, **p: np.select([a, b], [x, y], **p),
    dtypes="ifc",
    cases=[case((3,), (3,), (3,), (3,)), case((2, 3), (3,), (3,), (2, 1), default=5), case((0,), (0,), (0,), (0,))],
)  # fmt: skip
function(
    np.compress, reals, call=lambda x, **p: np.compress(_MASK, x, **p),
    cases=[case((4,)), case((4, 2), axis=0), case((2, 5), axis=1), case((2, 4))],
)  # fmt: skip
function(np.extract, reals, call=lambda x: np.extract(_MASK.reshape(2, 2), x), cases=[case((2, 2)), case((4,))])
function(
    np.nonzero, reals, call=lambda x: x[np.nonzero(x > 1)], cases=[case((5,)), case((3, 4)), case((0, 2))], dtypes="if",
    excluded=_shape_by_values,
)  # fmt: skip
function(
    np.flatnonzero, reals, call=lambda x: x.ravel()[np.flatnonzero(x > 1)], cases=[case((3, 4)), case((0, 2))],
    dtypes="if",
    excluded=_shape_by_values,
)  # fmt: skip
function(
    np.argwhere, reals, call=lambda x: np.argwhere(x > 1) * np.sum(x), cases=[case((3, 4)), case((0, 2))], dtypes="if",
    excluded=_shape_by_values,
)  # fmt: skip
function(
    np.piecewise, reals, dtypes="f", cases=[case((5,)), case((3, 4)), case((0,))],
    call=lambda x: np.piecewise(x, [x < 0, x > 1], [np.sin, lambda x: x * x, 2.0]),
)  # fmt: skip

# By value ------------------------------------------------------------------------------------------------------------

function(
    np.isin, reals, reals, call=lambda x, y, **p: np.isin(x, y, **p)[()], dtypes="bif", excluded=_no_derivative,
    cases=[case((5,), (3,)), case((2, 3), (2, 2), invert=True), case((), (4,)), case((0, 3), (2,)), case((3,), (0,))],
)  # fmt: skip
function(
    np.unique, reals, cases=[case((5,)), case((3, 4)), case((2, 3), axis=0), case((0,))], excluded=_shape_by_values
)
function(
    np.unique, reals, label="np.unique (all)", cases=[case((5,)), case((3, 4))], dtypes="bif",
    excluded=_shape_by_values,
    call=lambda x: np.unique(x, return_index=True, return_inverse=True, return_counts=True),
)  # fmt: skip
function(
    np.unique_values,
    reals,
    call=lambda x: np.sum(np.unique_values(x)),
    cases=[case((5,)), case((0,))],
    dtypes="if",
    excluded=_shape_by_values,
)
function(
    np.unique_counts,
    reals,
    call=lambda x: tuple(np.unique_counts(x)),
    cases=[case((5,)), case((2, 3))],
    excluded=_shape_by_values,
)
function(
    np.unique_inverse,
    reals,
    call=lambda x: tuple(np.unique_inverse(x)),
    cases=[case((5,)), case((2, 3))],
    excluded=_shape_by_values,
)
function(
    np.unique_all,
    reals,
    call=lambda x: tuple(np.unique_all(x)),
    cases=[case((5,)), case((2, 3))],
    excluded=_shape_by_values,
)

# Writing -------------------------------------------------------------------------------------------------------------


def _writing(write: Callable) -> Callable:
    """The function that a write into a copy of its first argument is."""

    def written(x: Any, *args: Any, **params: Any) -> Any:
        out = Tracer(unwrap(x)) if has_tracer((x, *args)) else np.copy(x)
        write(out, *args, **params)
        return out

    return written


function(
    np.copyto, reals, reals, call=_writing(np.copyto),
    cases=[case((3, 4), (4,)), case((2, 3), ()), case((0, 3), (3,)),
        case((3,), (3,), where=np.array([True, False, True]))],
)  # fmt: skip
function(
    np.put, reals, reals, call=_writing(lambda x, v, **p: np.put(x, v=v, **p)),
    cases=[
        case((3, 4), (3,), ind=[0, 5, -1]), case((5,), (2,), ind=[4, 1, 0]), case((5,), (), ind=2),
        case((3,), (2,), ind=[]),
        case((5,), (3,), ind=[7, -9, 2], mode="clip"), case((5,), (3,), ind=[7, -9, 1], mode="wrap"),
    ],
)  # fmt: skip
function(
    np.put_along_axis, reals, indices(3), reals, call=_writing(np.put_along_axis), dtypes="ifc",
    cases=[case((3, 4), (1, 4), (1, 4), axis=0), case((4, 3), (4, 2), (), axis=1), case((1, 3), (2,), (2,), axis=None)],
)  # fmt: skip
function(
    np.putmask, reals, booleans, reals, call=_writing(np.putmask),
    cases=[case((3, 4), (3, 4), (3, 4)), case((5,), (5,), (2,)), case((2, 3), (2, 3), ()), case((0,), (0,), (1,))],
)  # fmt: skip
function(
    np.place, reals, booleans, reals, call=_writing(np.place), dtypes="ifc",
    cases=[case((3, 4), (3, 4), (2,)), case((5,), (5,), (7,)), case((2, 3), (2, 3), (1,)), case((0,), (0,), (1,))],
)  # fmt: skip
function(
    np.fill_diagonal, reals, reals, call=_writing(np.fill_diagonal),
    cases=[case((3, 3), ()), case((5, 3), (3,)), case((5, 2), (), wrap=True), case((2, 2, 2), (2,)),
        case((2, 4), (1,))],
)  # fmt: skip
function(
    np.ix_, reals, indices(3), call=lambda x, i: x[np.ix_(i, [1, 0])], cases=[case((3, 4), (2,)), case((3, 2, 2), (3,))]
)  # fmt: skip
