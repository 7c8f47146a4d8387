"""Rows of the op table: the primitives of `ops/`, control flow and compiled functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import wonderland as wl
import wonderland.compile.jit
import wonderland.control.reversal
from wonderland.control.cond import cond
from wonderland.control.custom import custom_jvp, custom_vjp
from wonderland.control.effects import HostCall, check, host_call_p
from wonderland.control.loops import fori_loop, scan, while_loop
from wonderland.control.segments import binomial
from wonderland.core.tracer import unwrap
from wonderland.numpy.sparse import CompressedRows
from wonderland.testing.op_table import add
from wonderland.testing.samples import Case, Operand, between, booleans, case, indices, positive, reals
from wonderland.transform.checkpoint import checkpoint

# Elementwise ---------------------------------------------------------------------------------------------------------

_chooses = {"pattern exact": "which operand is read depends on values"}
_no_derivative = {"derivatives": "its result is not a floating-point number"}

add("neg", reals, reference=np.negative, dtypes="ifc")
add("add", reals, reals, reference=np.add)
add("sub", reals, reals, reference=np.subtract, dtypes="ifc")
add("mul", reals, reals, reference=np.multiply)
add("masked_mul", reals, reals, reference=np.multiply)
add("div", reals, reals, reference=np.true_divide)
add("complex_reciprocal", reals, reference=np.reciprocal, dtypes="c")
add("exp", reals, reference=np.exp)
add("log", positive, reference=np.log)
add("tanh", reals, reference=np.tanh)
add("sin", reals, reference=np.sin)
add("cos", reals, reference=np.cos)
add("sqrt", positive, reference=np.sqrt)
add("pow", positive, reals, reference=np.power, dtypes="fc")
add("pow", positive, positive, reference=np.power, dtypes="i", label="pow of integers")
add("maximum", reals, reals, reference=np.maximum, dtypes="bif", excluded=_chooses)
add("minimum", reals, reals, reference=np.minimum, dtypes="bif", excluded=_chooses)
add("sign", reals, reference=np.sign, dtypes="if")
add("sign", reals, reference=np.sign, dtypes="c", label="sign of complex numbers")
add("abs", reals, reference=np.abs)
add("conj", reals, reference=np.conjugate, dtypes="ifc")
add("real", reals, reference=np.real)
add("imag", reals, reference=np.imag)
add("where", booleans, reals, reals, reference=np.where)
add(
    "stop_gradient", reals, reference=np.positive, dtypes="ifc",
    excluded={"central differences": "it has no derivative, whatever it does"},
)  # fmt: skip
for _name, _ufunc in {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal
}.items():  # fmt: skip
    add(_name, reals, reals, reference=_ufunc, excluded=_no_derivative)
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    add(_name, reals, reals, reference=getattr(np, _name), dtypes="bi", excluded=_no_derivative)
add("invert", reals, reference=np.invert, dtypes="bi", excluded=_no_derivative)

# Shapes --------------------------------------------------------------------------------------------------------------

add(
    "broadcast", reals, reference=lambda x, shape: np.broadcast_to(x, shape),
    cases=[
        case((), shape=(2, 3)), case((3,), shape=(2, 3)), case((2, 1), shape=(4, 2, 3)), case((1,), shape=(0,)),
    ],
)  # fmt: skip
add(
    "reshape", reals, reference=lambda x, shape: np.reshape(x, shape),
    cases=[
        case((3, 4), shape=(2, 6)), case((), shape=(1, 1)), case((1,), shape=()), case((0, 3), shape=(3, 0)),
        case((6,), shape=(3, 2)),
    ],
)  # fmt: skip
add(
    "transpose", reals, reference=lambda x, permutation: np.transpose(x, permutation),
    cases=[
        case((3, 4), permutation=(1, 0)), case((2, 3, 4), permutation=(2, 0, 1)), case((0, 3), permutation=(1, 0)),
        case((), permutation=()),
    ],
)  # fmt: skip
for _dtype in ("float32", "float64"):
    add(
        "convert", reals, reference=lambda x, dtype: np.real(x).astype(dtype), label=f"convert to {_dtype}",
        cases=[case(s, dtype=np.dtype(_dtype)) for s in ((), (0, 3), (5,), (3, 4))],
        excluded={"central differences": "rounding to float32 is a staircase"} if _dtype == "float32" else {},
    )  # fmt: skip
add(
    "convert", reals, reference=lambda x, dtype: np.asarray(x).astype(dtype), label="convert to complex128",
    cases=[case(s, dtype=np.dtype("complex128")) for s in ((), (0, 3), (5,), (3, 4))],
)  # fmt: skip
add(
    "convert", positive, reference=lambda x, dtype: np.real(x).astype(dtype), label="convert to int64",
    cases=[case(s, dtype=np.dtype("int64")) for s in ((), (3, 4))], excluded=_no_derivative,
)  # fmt: skip

# Reductions and products ---------------------------------------------------------------------------------------------

add(
    "sum", reals, reference=lambda x, axes: np.sum(x, axis=axes, dtype=np.asarray(x).dtype), dtypes="ifc",
    cases=[
        case((3, 4), axes=(1,)), case((3, 4), axes=(0, 1)), case((2, 3, 4), axes=(0, 2)), case((0, 3), axes=(0,)),
        case((0, 3), axes=(1,)), case((5,), axes=(0,)),
    ],
)  # fmt: skip
add(
    "max", reals, reference=lambda x, axes: np.max(x, axis=axes), dtypes="bif", excluded=_chooses,
    cases=[case((3, 4), axes=(1,)), case((3, 4), axes=(0, 1)), case((2, 3, 4), axes=(0, 2)), case((0, 3), axes=(1,))],
)  # fmt: skip


def _einsum(x: Any, y: Any, contract: Any, batch: Any) -> Any:
    """`dot`, spelled by letters."""
    xs, ys = list(range(np.ndim(x))), [100 + i for i in range(np.ndim(y))]
    for i, j in (*zip(*contract, strict=True), *zip(*batch, strict=True)):
        ys[j] = xs[i]
    gone = {xs[i] for i in contract[0]}
    paired = [xs[i] for i in batch[0]]
    out = paired + [a for a in (*xs, *ys) if a not in gone and a not in paired]
    letters = {a: chr(97 + n) for n, a in enumerate(dict.fromkeys([*xs, *ys]))}
    spec = ["".join(letters[a] for a in axes) for axes in (xs, ys, out)]
    return np.einsum(f"{spec[0]},{spec[1]}->{spec[2]}", x, y)


add(
    "dot", reals, reals, reference=_einsum, dtypes="ifc",
    cases=[
        case((3, 4), (4, 2), contract=((1,), (0,)), batch=((), ())),
        case((4, 3), (2, 4), contract=((0,), (1,)), batch=((), ())),
        case((4,), (4,), contract=((0,), (0,)), batch=((), ())),
        case((4,), (4, 3), contract=((0,), (0,)), batch=((), ())),
        case((3,), (2,), contract=((), ()), batch=((), ())),
        case((2, 3, 4), (2, 4, 5), contract=((2,), (1,)), batch=((0,), (0,))),
        case((3, 2, 4), (5, 4, 2, 3), contract=((2, 0), (1, 3)), batch=((1,), (2,))),
        case((0, 4), (4, 3), contract=((1,), (0,)), batch=((), ())),
        case((3, 0), (0, 2), contract=((1,), (0,)), batch=((), ())),
        case((), (2, 3), contract=((), ()), batch=((), ())),
    ],
)  # fmt: skip

# Indexing ------------------------------------------------------------------------------------------------------------

_PARTS = [
    case((3, 4), index=(slice(0, 3, 2), slice(1, 3, 1))),
    case((3, 4), index=(1, slice(3, None, -2))),
    case((5,), index=(slice(4, 0, -1),)),
    case((5,), index=(2,)),
    case((0, 3), index=(slice(0, 0, 1), 1)),
]


def _part_shape(c: Case) -> tuple:
    return np.empty(c.shapes[0])[c.params["index"]].shape


def _write(x: Any, u: Any, index: Any, mode: str) -> Any:
    out = np.array(x)
    out[index] = out[index] + u if mode == "add" else u
    return out


add("slice", reals, reference=lambda x, index: x[index], cases=_PARTS)
for _mode in ("set", "add"):
    add(
        "scatter_slice", reals, reals, reference=_write, label=f"scatter_slice ({_mode})", dtypes="ifc",
        cases=[case(c.shapes[0], _part_shape(c), **c.params, mode=_mode) for c in _PARTS],
    )  # fmt: skip
add(
    "gather", reals, indices(4), reference=lambda x, i, axes: np.take(np.moveaxis(x, axes[0], 0), i, axis=0),
    cases=[
        case((4, 3), (5,), axes=(0,)), case((3, 4), (2, 2), axes=(1,)), case((4,), (), axes=(0,)),
        case((4, 2), (0,), axes=(0,)),
    ],
)  # fmt: skip
add(
    "gather", reals, indices(3), indices(4), reference=lambda x, i, j, axes: x[i, j], label="gather by two indices",
    cases=[case((3, 4), (5,), (5,), axes=(0, 1)), case((3, 4, 2), (2, 1), (3,), axes=(0, 1))],
)  # fmt: skip


def _scatter_loop(x: Any, i: Any, u: Any, axes: Any, mode: str) -> Any:
    """One element after the other."""
    out = np.moveaxis(np.array(x), axes[0], 0)
    for place in np.ndindex(np.shape(i)):
        out[i[place]] = out[i[place]] + u[place] if mode == "add" else u[place]
    return np.moveaxis(out, 0, axes[0])


for _mode in ("set", "add"):
    add(
        "scatter", reals, indices(4), reals, reference=_scatter_loop, label=f"scatter ({_mode})", dtypes="ifc",
            cases=[
            case((4, 3), (5,), (5, 3), axes=(0,), mode=_mode), case((3, 4), (2, 3), (2, 3, 3), axes=(1,), mode=_mode),
            case((4,), (2,), (2,), axes=(0,), mode=_mode), case((4, 2), (0,), (0, 2), axes=(0,), mode=_mode),
        ],
    )  # fmt: skip

# Windows -------------------------------------------------------------------------------------------------------------


def _windows_loop(x: Any, axes: Any, sizes: Any, strides: Any, dilations: Any, padding: Any) -> Any:
    """One axis after the other, one window after the other."""
    rank = np.ndim(x)
    x = np.pad(x, [dict(zip(axes, padding, strict=True)).get(a, (0, 0)) for a in range(rank)])
    for a, size, stride, dilation in zip(axes, sizes, strides, dilations, strict=True):
        starts = range(0, x.shape[a] - (size - 1) * dilation, stride)
        parts = [np.take(x, range(i, i + size * dilation, dilation), a) for i in starts]
        x = np.stack(parts, a) if parts else np.zeros((*x.shape[:a], 0, size, *x.shape[a + 1 :]), x.dtype)
        x = np.moveaxis(x, a + 1, -1)
    return np.array(x).reshape(x.shape[: rank + len(sizes)])


def _fold_loop(w: Any, shape: Any, **params: Any) -> Any:
    out = np.zeros(int(np.prod(shape)) + 1, w.dtype)  # the first for what goes to the padding
    numbers = np.arange(1, out.size).reshape(shape)
    np.add.at(out, _windows_loop(numbers, **params), w)
    return out[1:].reshape(shape)


_WINDOWS = [
    ((7,), (0,), (3,), (1,), (1,), ((0, 0),)),  # overlapping
    ((7, 2), (0,), (2,), (3,), (1,), ((0, 0),)),  # apart, with a rest
    ((2, 8), (1,), (3,), (2,), (2,), ((1, 2),)),  # dilated, with zeros around
    ((2, 5, 6), (2, 1), (2, 3), (1, 2), (2, 1), ((0, 0), (2, 1))),
    ((6, 4), (0, 1), (2, 2), (2, 2), (1, 1), ((0, 0), (1, 1))),  # tiles
    ((9,), (0,), (6,), (1,), (1,), ((0, 0),)),  # fewer windows than elements of one
    ((2, 3), (1,), (5,), (1,), (1,), ((0, 0),)),  # none fits
    ((2, 1), (1,), (3,), (2,), (1,), ((2, 2),)),  # larger than the array
    ((0, 4), (1,), (2,), (1,), (1,), ((1, 0),)),
]


def _window_params(axes: tuple, sizes: tuple, strides: tuple, dilations: tuple, padding: tuple) -> dict:
    return {"axes": axes, "sizes": sizes, "strides": strides, "dilations": dilations, "padding": padding}


add(
    "windows", reals, reference=_windows_loop,
    cases=[case(shape, **_window_params(*params)) for shape, *params in _WINDOWS],
)  # fmt: skip
add(
    "fold", reals, reference=_fold_loop, dtypes="ifc",
    cases=[
        case(_windows_loop(np.zeros(shape), *params).shape, **_window_params(*params), shape=shape)
        for shape, *params in _WINDOWS
    ],
)  # fmt: skip

# Control flow --------------------------------------------------------------------------------------------------------

_any_branch = {"pattern exact": "any branch may be taken, any number of steps run"}


def _cond(p: Any, x: Any, y: Any) -> Any:
    return cond(p, lambda x, y: (np.sin(x) * y, x + y), lambda x, y: (x * x, y), x, y)


def _scan(c: Any, xs: Any, w: Any, reverse: bool, checkpoint: Any = None) -> Any:
    return scan(lambda c, x: (np.tanh(c * w + x), c * x), c, xs, reverse=reverse, checkpoint=checkpoint)


def _while(x: Any, w: Any) -> Any:
    return while_loop(lambda c: np.sum(c[0] * c[0]) < 50.0, lambda c: (c[0] * w + c[0], c[1] + 1), (x, 0))[0]


def _fori(n: Any, x: Any) -> Any:
    return fori_loop(0, n, lambda i, c: np.where(i > 1, np.sin(c) + x, c * x), x)


add(
    "cond", booleans, reals, reals, function=_cond, dtypes="f",
    cases=[case((), (3,), (3,)), case((), (), ())],
    reference=lambda p, x, y: (np.sin(x) * y, x + y) if p else (x * x, y),
)  # fmt: skip
add(
    "scan", reals, reals, reals, function=_scan, dtypes="f",
    cases=[
        case((2,), (3, 2), (2,), reverse=False), case((), (4,), (), reverse=True), case((2,), (0, 2), (), reverse=False)
    ],
)  # fmt: skip
add(
    "scan", positive, between(0.5, 1.0), function=_while, dtypes="f", excluded=_any_branch, label="while_loop",
    cases=[case((2,), (2,)), case((), ())],
)  # fmt: skip
add(
    "scan", Operand(lambda rng, shape: rng.integers(1, 5, shape), dtype=np.int64, differentiable=False), reals,
    function=_fori, dtypes="f", label="fori_loop", cases=[case((), (3,)), case((), ())],
)  # fmt: skip

# Effects -------------------------------------------------------------------------------------------------------------


def _checked(x: Any) -> Any:
    check(np.isfinite(x), "x is {}", x)
    return np.sin(x) * x


def _watched(x: Any) -> Any:
    host_call_p(unwrap(x), call=HostCall("look", lambda x: (), watches=True))
    return np.sin(x) * x


for _name, _function in (("check", _checked), ("host_call", _watched)):
    add(
        _name, reals, function=_function, reference=lambda x: np.sin(x) * x, dtypes="f",
        cases=[case((3,)), case(()), case((2, 0))],
    )  # fmt: skip

# Products with SciPy's sparse matrices -------------------------------------------------------------------------------


def _sparse_dense(data: Any, x: Any, structure: CompressedRows, transposed: bool) -> Any:
    rows, columns = structure.places(False)
    matrix = np.zeros(structure.shape, np.result_type(data, x))
    matrix[rows, columns] = data
    return (matrix.T if transposed else matrix) @ x


_places = CompressedRows(np.array([0, 2, 1]), np.array([0, 2, 2, 3]), (3, 4))
add(
    "sparse_dot", reals, reals, reference=_sparse_dense, dtypes="fc",
    cases=[
        case((3,), (4,), structure=_places, transposed=False), case((3,), (3,), structure=_places, transposed=True),
        case((3,), (4, 2), structure=_places, transposed=False), case((3,), (3, 2), structure=_places, transposed=True),
    ],
)  # fmt: skip

# Functions with rules, and compiled functions -------------------------------------------------------------------------


@custom_jvp
def _cube(x: Any, y: Any) -> Any:
    return x * x * x * y


@_cube.defjvp
def _cube_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x, y), (s, t) = primals, tangents
    return _cube(x, y), 3.0 * x * x * y * s + x * x * x * t


@custom_vjp
def _fifth(x: Any, y: Any) -> Any:
    return x**5 * y


_fifth.defvjp(
    lambda x, y: (_fifth(x, y), (x, y)),
    lambda residuals, ct: (5.0 * residuals[0] ** 4 * residuals[1] * ct, residuals[0] ** 5 * ct),
)


@functools.cache
def _jitted() -> Callable:
    return wl.jit(lambda x, y: (np.sin(x) * y, np.sum(x)))


_SMALL = [case((3,), (3,)), case((), ()), case((2, 3), (2, 3))]
add("custom", reals, reals, function=_cube, reference=lambda x, y: x**3 * y, dtypes="f", cases=_SMALL)
add(
    "custom_linear", reals, reals, function=_fifth, reference=lambda x, y: x**5 * y, dtypes="f", cases=_SMALL,
    excluded={"forward mode": "a custom vjp has only reverse mode"},
)  # fmt: skip
add(
    "captured", reals, Operand(lambda rng, shape: rng.standard_normal(shape), differentiable=False),
    reference=lambda x, c, name: x, dtypes="fc",
    cases=[case((3,), (2,), name="f"), case((), (), name="f"), case((2, 0), (3,), name="f")],
)  # fmt: skip
add(
    "checkpoint_name", reals, reference=lambda x, name: x, dtypes="bifc",
    cases=[case((3,), name="a"), case((), name="a"), case((2, 0), name="a")],
)  # fmt: skip
for _name in ("checkpoint", "recompute"):  # the call, and what reverse mode makes of it
    add(
        _name, reals, reals, function=checkpoint(lambda x, y: (np.sin(x) * np.exp(y), np.sum(x * y))), dtypes="fc",
        reference=lambda x, y: (np.sin(x) * np.exp(y), np.sum(x * y)), cases=_SMALL,
    )  # fmt: skip
for _name in ("scan", "reversal"):
    add(
        _name, reals, reals, reals, function=lambda *args: _scan(*args, reverse=False, checkpoint=binomial(2)),
        dtypes="f", cases=[case((2,), (4, 2), (2,)), case((), (5,), ())],
        label=f"{_name} in two slots",
    )  # fmt: skip
add(
    "jit", reals, reals, function=lambda x, y: _jitted()(x, y), reference=lambda x, y: (np.sin(x) * y, np.sum(x)),
    dtypes="f", cases=_SMALL[1:],
)  # fmt: skip
