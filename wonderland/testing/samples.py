"""Sample operands for tests of operators: which numbers, in which shapes, lying in memory in which way.

An `Operand` says what may stand in one place of an operator (positive numbers, indices below 4); a `Case` gives the
shapes of all operands and the parameters. `make` turns them into arrays for a dtype and a layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LAYOUTS = ("contiguous", "strided", "reversed", "transposed")


@dataclass(frozen=True)
class Operand:
    """What may stand in one place of an operator: `sample(rng, shape)` gives float64 numbers of the domain.

    `dtype` is for operands whose dtype doesn't follow the row's (indices, conditions); `differentiable` says whether
    derivatives with respect to it are checked.
    """

    sample: Callable[[np.random.Generator, tuple[Any, ...]], Any]
    dtype: Any = None
    differentiable: bool = True

    def make(self, rng: np.random.Generator, shape: tuple[Any, ...], dtype: Any) -> np.ndarray:
        """A C-contiguous array."""
        dtype = np.dtype(dtype if self.dtype is None else self.dtype)
        numbers = np.asarray(self.sample(rng, shape))
        if dtype.kind == "c":  # off the real axis, and away from the branch cuts on its negative half
            numbers = numbers + 1j * rng.uniform(0.2, 0.6, shape)
        elif dtype.kind == "b" and self.dtype is None:
            numbers = numbers > 0
        elif dtype.kind in "iu" and self.dtype is None:
            # Away from zero, so that what is allowed for the real numbers is allowed for these.
            numbers = np.where(numbers < 0, -1, 1) * np.ceil(2 * np.abs(numbers))
        return np.array(numbers, dtype)


def _spread(rng: np.random.Generator, shape: tuple, low: float, high: float) -> np.ndarray:
    """Numbers no two of which are close, in random order: maxima and comparisons are decided clearly."""
    count = int(np.prod(shape))
    places = (np.arange(count) + rng.uniform(0.3, 0.7, count)) / max(count, 1)
    return low + (high - low) * rng.permutation(places).reshape(shape)


def between(low: float, high: float) -> Operand:
    """Numbers in an interval."""
    return Operand(lambda rng, shape: _spread(rng, shape, low, high))


def _away_from_zero(rng: np.random.Generator, shape: tuple) -> np.ndarray:
    return _spread(rng, shape, 0.5, 2.0) * rng.choice([-1.0, 1.0], shape)


def indices(below: int) -> Operand:
    """Integers from -below to below - 1."""
    return Operand(lambda rng, shape: rng.integers(-below, below, shape), dtype=np.int64, differentiable=False)


reals: Operand = Operand(_away_from_zero)
positive: Operand = between(0.5, 2.5)
booleans: Operand = Operand(lambda rng, shape: rng.integers(0, 2, shape), dtype=bool, differentiable=False)


@dataclass(frozen=True)
class Case:
    """Shapes of the operands and parameters. A last operand of shape `None` is a Python scalar."""

    shapes: tuple[Any, ...]
    params: dict[Any, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = "-".join("weak" if s is None else "x".join(map(str, s)) or "scalar" for s in self.shapes)
        return "-".join([shown, *(f"{k}={v}" for k, v in self.params.items())]).replace(" ", "")


def case(*shapes: Any, **params: Any) -> Case:
    """One case of a row: the operands' shapes, then the parameters by name."""
    return Case(shapes, params)


def broadcast_cases(count: int) -> tuple[Case, ...]:
    """The cases of an elementwise operator of `count` operands."""
    same = [Case((shape,) * count) for shape in ((), (0, 3), (5,), (3, 4))]
    if count == 1:
        return tuple(same)
    partners: tuple = ((3, 1), (4,), (2, 1, 1))
    mixed = [Case(partners[:count]), Case((*[(2, 3)] * (count - 1), ())), Case(((), *[(0, 3)] * (count - 1)))]
    return (*same, *mixed, Case((*[(4,)] * (count - 1), None)))


def lay_out(array: np.ndarray, layout: str) -> np.ndarray:
    """The same numbers, in memory as a strided, reversed or transposed view."""
    if array.ndim == 0 or layout == "contiguous":
        return array
    if layout == "strided":
        base = np.zeros([2 * n for n in array.shape], array.dtype)
        view = base[(slice(None, None, 2),) * array.ndim]
    elif layout == "reversed":
        view = np.zeros(array.shape, array.dtype)[(slice(None, None, -1),) * array.ndim]
    elif layout == "transposed":
        view = np.zeros(array.shape[::-1], array.dtype).T
    else:
        raise ValueError(f"a layout is one of {', '.join(LAYOUTS)}, not {layout!r}")
    view[...] = array
    return view


def make(
    operands: tuple[Operand, ...],
    shapes: tuple[Any, ...],
    dtypes: str,
    layout: str = "contiguous",
    batch: Sequence[bool] | None = None,
) -> tuple[Any, ...]:
    """Arguments for an operator: arrays (NumPy scalars where the shape is ()), or a Python scalar for None.

    `dtypes` is one for all, or one per operand separated by commas. `batch` flags the operands that get a leading
    batch axis of 3.
    """
    rng = np.random.default_rng(0)
    args = []
    names = dtypes.split(",") if "," in dtypes else [dtypes] * len(operands)
    for i, (operand, shape, dtype) in enumerate(zip(operands, shapes, names, strict=True)):
        if shape is None:
            args.append(operand.make(rng, (), dtype)[()].item())
            continue
        whole = (3, *shape) if batch is not None and batch[i] else shape
        args.append(lay_out(operand.make(rng, whole, dtype), layout)[()])
    return tuple(args)
