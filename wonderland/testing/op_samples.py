"""Samples of a row of the op table: a case, a dtype and a layout, with concrete arguments; and how results compare."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.types import is_python_scalar
from wonderland.testing.check_grads import is_inexact
from wonderland.testing.op_table import Row
from wonderland.testing.samples import LAYOUTS, Case, broadcast_cases, make


@dataclass(frozen=True)
class Sample:
    """Concrete arguments for a row."""

    row: Row
    case: Case
    dtype: str  # or several, one per operand, separated by commas
    layout: str = "contiguous"

    def __str__(self) -> str:
        parts = [str(self.row), str(self.case), self.dtype] + ([] if self.layout == "contiguous" else [self.layout])
        return " ".join(parts)

    def args(self, dtype: str | None = None, batch: Sequence[bool] | None = None) -> tuple[Any, ...]:
        return make(self.row.operands, self.case.shapes, dtype or self.dtype, self.layout, batch)

    @property
    def tolerance(self) -> float:
        """What two right computations may differ by, relative to the largest number in the result."""
        return 3e-5 if self.dtype in ("float32", "complex64") or not is_wide(self) else 1e-11

    @property
    def function(self) -> Callable:
        return self.row.call(self.case.params)

    def differentiated(self, args: tuple[Any, ...]) -> list[int]:
        """The operands to differentiate with respect to."""
        return [i for i, (o, a) in enumerate(zip(self.row.operands, args)) if o.differentiable and is_inexact(a)]


def samples(row: Row, dtypes: Sequence[str] | None = None, layouts: Sequence[str] = LAYOUTS) -> Iterator[Sample]:
    """All cases in all dtypes as contiguous arrays; the other layouts for the largest case."""
    for dtype in row.dtype_names():
        if dtypes is not None and dtype not in dtypes:
            continue
        yield from (Sample(row, c, dtype) for c in row.cases if "contiguous" in layouts)
        largest = max(row.cases, key=_size)
        yield from (Sample(row, largest, dtype, layout) for layout in layouts if layout != "contiguous")


def _size(c: Case) -> int:
    return sum(int(np.prod(shape)) for shape in c.shapes if shape is not None)


def of_each_kind(row: Row, dtype: str, most: float = np.inf) -> list[Sample]:
    """Contiguous arrays, and of cases that differ in sizes alone the largest: what one dtype needs beside another.

    Of an elementwise operator that is: equal shapes, shapes that broadcast, and a Python scalar. Operands have no more
    than `most` elements together.
    """
    elementwise = row.cases == broadcast_cases(len(row.operands))
    kinds: dict[Any, Case] = {}
    for c in sorted((c for c in row.cases if _size(c) <= most), key=_size):
        ranks = tuple(None if shape is None else len(shape) for shape in c.shapes)
        kinds[(None in ranks, len(set(c.shapes)) == 1) if elementwise else (ranks, repr(c.params))] = c
    return [Sample(row, c, dtype) for c in kinds.values() if dtype in row.dtype_names()]


def mixed_samples(row: Row) -> Iterator[Sample]:
    """Operands of different dtypes, for an elementwise row of several operands."""
    if len(row.operands) > 1:
        names = ("bool", "uint8", "int32", "int64", "float32", "float64", "complex64")
        for pair in itertools.permutations(names, 2):
            dtypes = (pair[0],) * (len(row.operands) - 1) + pair[1:]
            yield Sample(row, Case(((4,),) * len(row.operands)), ",".join(dtypes))


def quiet(check: Callable[..., None]) -> Callable[..., None]:
    """Samples of integers and bools divide by zero, and that is fine."""

    @functools.wraps(check)
    def quietly(s: Sample, **options: Any) -> None:
        with np.errstate(all="ignore"):
            check(s, **options)

    return quietly


# Comparing -----------------------------------------------------------------------------------------------------------


def assert_close(actual: Any, expected: Any, what: str, tolerance: float, dtypes: bool = True) -> None:
    """Compare trees leaf by leaf, relative to the largest number, with their shapes and (if asked) dtypes."""
    a_leaves, b_leaves = tree.leaves(actual), tree.leaves(expected)
    assert len(a_leaves) == len(b_leaves), f"{what}: {len(a_leaves)} results instead of {len(b_leaves)}"
    for a, b in zip(a_leaves, b_leaves):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape, f"{what}: shape {a.shape} instead of {b.shape}"
        if dtypes:
            assert a.dtype == b.dtype, f"{what}: dtype {a.dtype} instead of {b.dtype}"
        if a.dtype.kind not in "fc":
            assert np.array_equal(a, b), f"{what}: {a} instead of {b}"
            continue
        rtol = max(tolerance, 4 * float(np.finfo(a.dtype).eps))
        scale = max(1.0, float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b))))
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(np.subtract(a, b)) <= rtol * scale)
        assert np.all(same), f"{what}: {a} instead of {b}"


def scalar_of(f: Callable, weights: Any) -> Callable:
    """A smooth real number made of all results, whose second derivative isn't trivial: sum Re(w f^2) + f.

    `weights` is a tree like the result.
    """

    def scalar(*args: Any) -> Any:
        total: Any = 0.0
        for w, out in zip(tree.leaves(weights), tree.leaves(f(*args)), strict=True):
            if out.dtype.kind in "fc":
                total = total + np.sum(np.real(w * out * out + out))
        return total

    return scalar


def is_excluded(s: Sample, *checks: str) -> bool:
    """Does the row name one of these as a check that doesn't apply?"""
    return any(c in s.row.excluded for c in checks)


def chosen_alone(f: Callable, args: tuple, chosen: Sequence[int]) -> tuple[Callable, tuple]:
    """The function of the chosen arguments alone."""

    def g(*values: Any) -> Any:
        full = list(args)
        for i, v in zip(chosen, values, strict=True):
            full[i] = v
        return f(*full)

    return g, tuple(args[i] for i in chosen)


def is_wide(s: Sample) -> bool:
    """Is nothing of single precision inside (a parameter may say so)?"""
    return not any(np.dtype(p) == np.float32 for p in s.case.params.values() if isinstance(p, np.dtype))


def widened(args: tuple, models: tuple) -> tuple:
    """The same numbers in the dtypes of the models: widening is exact, sampling again is not."""
    return tuple(
        a if is_python_scalar(a) else np.asarray(a).astype(np.result_type(w))[()] for a, w in zip(args, models)
    )
