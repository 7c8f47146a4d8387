"""What must hold for compiled code: a sample of a row comes in, and an AssertionError says where `jit` differs.

The oracle is a higher precision: compiled code may be off by a small multiple of NumPy's own error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import wonderland as wl
from wonderland.core import tree
from wonderland.core.types import is_python_scalar, type_of
from wonderland.testing.check_grads import is_inexact, random_like
from wonderland.testing.op_samples import Sample, is_excluded, is_wide, quiet, scalar_of, widened
from wonderland.testing.op_table import Row


@quiet
def check_compiled(s: Sample, batched: bool = True) -> None:
    """jit gives eager's types, and values as exact as NumPy's (SEMANTICS 7); of gradients and (or not) batches too."""
    if is_excluded(s, "recording"):
        return
    args = s.args()
    eps = 0.0 if is_wide(s) else float(np.finfo(np.float32).eps)
    wider = WIDER.get(s.dtype, s.dtype)
    if is_excluded(s, "higher precision") and s.dtype != "float32":  # then with eager, up to the order of additions
        wider, eps = s.dtype, s.tolerance
    compare_compiled(s.function, args, s.args(wider), f"{s}: jit", eps)
    flags = tuple(shape is not None for shape in s.case.shapes)
    if batched and any(flags):
        mapped = wl.vmap(s.function, tuple(0 if b else None for b in flags))
        wide = s.args(wider, flags)
        compare_compiled(mapped, s.args(batch=flags), wide, f"{s}: jit of vmap", eps)
    chosen = s.differentiated(args)
    if is_excluded(s, "derivatives") or not chosen:
        return
    weights = random_like(s.function(*args), np.random.default_rng(7))
    gradient = wl.grad(scalar_of(s.function, weights), tuple(chosen))
    compare_compiled(gradient, args, s.args(wider), f"{s}: jit of grad", eps)


WIDER = {"float32": "float64", "float64": "longdouble", "complex64": "complex128", "complex128": "clongdouble"}


def compare_compiled(f: Callable, args: tuple[Any, ...], wide: tuple[Any, ...], what: str, eps: float) -> None:
    """The error against a wider evaluation is at most a small multiple of eager's and a few units in the last place.

    `eps` is a coarser unit than the results', for functions that round inside. Where the value isn't finite, it is
    eager's.
    """
    eager, native = f(*args), wl.jit(f)(*args)
    exact = f(*widened(args, wide))
    assert tree.flatten(native)[1] == tree.flatten(eager)[1], f"{what}: another structure of results"
    usual: list[Any] = []
    for i, (n, e, x) in enumerate(zip(tree.leaves(native), tree.leaves(eager), tree.leaves(exact), strict=True)):
        assert type_of(n) == type_of(e), f"{what}: {type_of(n)} instead of {type_of(e)}"
        assert isinstance(n, np.ndarray) == isinstance(e, np.ndarray), f"{what}: {type(n)} instead of {type(e)}"
        if np.result_type(e).kind not in "fc":
            assert np.array_equal(n, e), f"{what}: {n} instead of {e}"
            continue
        ulp = max(eps, np.finfo(np.result_type(e)).eps)
        if _as_exact(n, e, x, ulp, largest_error(e, x)):
            continue
        usual = usual or _usual_errors(f, args, wide)
        message = f"{what}: {n} instead of {e}, exactly {x}; eager is usually right to {usual[i]:.2g}"
        assert _as_exact(n, e, x, ulp, usual[i]), message


def _as_exact(native: Any, eager: Any, exact: Any, ulp: float, eager_error: Any) -> bool:
    finite = np.isfinite(eager) & np.isfinite(exact)
    limit = 4 * eager_error + 4 * ulp * np.abs(exact) + 2 * ulp * np.max(np.abs(exact), initial=0.0, where=finite)
    same = (native == eager) | (np.isnan(native) & np.isnan(eager))
    return bool(np.all(same | (finite & (np.abs(native - exact) <= limit))))


def largest_error(eager: Any, exact: Any) -> Any:
    """Where both are finite: elsewhere there is none to measure."""
    finite = np.isfinite(eager) & np.isfinite(exact)
    return np.max(np.abs(eager - exact), initial=0.0, where=finite)


def _usual_errors(f: Callable, args: tuple, wide: tuple, points: int = 16) -> list[Any]:
    """The largest error that eager makes near the arguments, by result: at one point it may be zero by luck."""
    rng = np.random.default_rng(10)
    moved = lambda a: np.asarray(a * (1 + 2.0**-19 * rng.uniform(-1, 1, np.shape(a))), np.result_type(a))[()]
    errors = []
    for _ in range(points):
        near = tuple(moved(a) if is_inexact(a) and not is_python_scalar(a) else a for a in args)
        results = zip(tree.leaves(f(*near)), tree.leaves(f(*widened(near, wide))), strict=True)
        errors.append([largest_error(e, x) if is_inexact(e) else 0.0 for e, x in results])
    return [max(of_one) for of_one in zip(*errors, strict=True)]


def special_values(dtype: Any) -> np.ndarray:
    """Zeros, infinities, NaN, the largest and smallest numbers, and where exp and its inverse change their ways."""
    info = np.finfo(dtype)
    edges = [info.max, info.tiny, info.smallest_subnormal, 1e5, 1e30, 88.7, 103.9, 709.7, 745.2, 1e-30, np.pi, np.inf]
    numbers = np.array([0.0, 0.5, 1.0, 2.0, 3.0, *edges], dtype)
    return np.concatenate([numbers, -numbers, np.array([np.nan], dtype)])


def check_special_values(row: Row, dtype: str) -> None:
    """Compiled, an elementwise operator treats special values as NumPy does, signs of zeros included.

    The error against a wider evaluation is a few units in the last place, and small multiples of eager's.
    """
    numbers = special_values(dtype)
    grids = np.meshgrid(*(numbers if o.dtype is None else np.array([False, True]) for o in row.operands))
    args = tuple(np.ascontiguousarray(g) for g in grids)
    f = row.call({})
    with np.errstate(all="ignore"):
        eager, native = f(*args), wl.jit(f)(*args)
        wider = dtype if "higher precision" in row.excluded and dtype != "float32" else WIDER[dtype]
        exact = f(*(a.astype(wider) if is_inexact(a) else a for a in args))
        real = np.result_type(eager).kind == "f"
        equal = (native == eager) & (np.signbit(native) == np.signbit(eager) if real else True)
        equal = equal | (np.isnan(native) & np.isnan(eager))
        if real:
            info = np.finfo(np.result_type(eager))
            limit = 4 * info.eps * np.abs(exact) + 2 * info.smallest_subnormal + 2 * np.abs(eager - exact)
            near = (np.abs(native - exact) <= limit) & np.isfinite(eager) & (np.signbit(native) == np.signbit(eager))
            equal = equal | near
    for place in np.argwhere(~equal)[:1]:
        at = tuple(place)
        operands = ", ".join(str(a[at]) for a in args)
        raise AssertionError(f"{row} {dtype}: jit gives {native[at]} for {operands}, NumPy {eager[at]}")
