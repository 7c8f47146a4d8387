"""What a value is, without its contents: shape, dtype, and whether it is a weak (Python) scalar.

Values come in (arrays, NumPy scalars, Python scalars, traced values); an `ArrayType` goes out. Promotion is NumPy 2's
(NEP 50): a Python scalar is *weak*, it takes the kind of its partner, `float32 * 2.0` stays float32.
"""

from __future__ import annotations

from math import prod
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")  # the parameters of a function, which a transformed one keeps
R = TypeVar("R")  # and its result
Params = dict[str, Any]  # of a primitive, in an equation
Shape = tuple[Any, ...]  # ints; the leading one is None when only the run knows it (residuals of a while loop)

SHORT_NAMES = {"float": "f", "complex": "c", "int": "i", "uint": "u"}


class ArrayType:
    """Shape, dtype and weakness of a value. Compares and hashes by content."""

    __slots__ = ("dtype", "shape", "weak")

    def __init__(self, shape: Shape, dtype: Any, weak: bool = False):
        self.shape: Shape = shape
        self.dtype: np.dtype = dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)
        self.weak: bool = weak

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ArrayType)
            and self.shape == other.shape
            and self.dtype == other.dtype
            and self.weak == other.weak
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.weak))

    def __repr__(self) -> str:
        name = self.dtype.name
        kind = name.rstrip("0123456789")
        short = SHORT_NAMES.get(kind, kind) + name[len(kind) :]
        extents = ",".join("?" if extent is None else str(extent) for extent in self.shape)
        return f"{short}{'*' if self.weak else ''}[{extents}]"


BOOL, INT, FLOAT, COMPLEX = (np.dtype(t) for t in (np.bool_, np.int64, np.float64, np.complex128))
PYTHON_SCALARS = frozenset({bool, int, float, complex})
_SCALAR_TYPES = {np.dtype(c).type: ArrayType((), np.dtype(c)) for c in "?bhilqBHILQefdgFDG"}
_SCALAR_TYPES |= {c: ArrayType((), np.dtype(c), True) for c in PYTHON_SCALARS}
_PYTHON_VALUES = {"b": False, "i": 0, "u": 0, "f": 0.0, "c": 0j}
NUMERIC_KINDS = frozenset("biufc")
_array_types: dict[tuple, ArrayType] = {}  # of arrays by shape and dtype: most are met again and again


def type_of(value: Any) -> ArrayType:
    """The type of an array, NumPy scalar, Python scalar or traced value."""
    cls = type(value)
    if cls is np.ndarray:
        known = _array_types.get((value.shape, value.dtype))
        if known is not None:
            return known
    if cls in _SCALAR_TYPES:
        return _SCALAR_TYPES[cls]
    if isinstance(value, (np.ndarray, np.generic)):
        dtype = value.dtype
        if dtype.kind not in NUMERIC_KINDS:
            raise TypeError(
                f"wonderland computes with numbers and bools; this array has dtype {dtype} "
                f"and shape {value.shape}. Convert it first, for example with .astype(float)."
            )
        if isinstance(value, np.matrix) or type(value).__module__ == "numpy.ma":
            raise TypeError(f"{type(value).__name__} has its own arithmetic; use a plain array: np.asarray(x)")
        found = ArrayType(value.shape, dtype if dtype.isnative else dtype.newbyteorder("="))
        if len(_array_types) > 10_000:
            _array_types.clear()
        return _array_types.setdefault((value.shape, dtype), found) if cls is np.ndarray else found
    kind = getattr(value, "type", None)
    if isinstance(kind, ArrayType):
        return kind
    raise TypeError(
        f"expected an array or a number, got {type(value).__name__}: {str(value)[:80]!r}. Arguments may be arrays, "
        "numbers, (nested) tuples, lists and dicts of them, and objects of classes registered by wl.register_mutable."
    )


def shape_of(value: Any) -> Shape:
    """`type_of(value).shape`, cheaper."""
    return () if type(value) in PYTHON_SCALARS else value.shape


def is_python_scalar(value: Any) -> bool:
    """Is it a bool, int, float or complex of Python's own?"""
    return type(value) in PYTHON_SCALARS


def is_differentiable(dtype: np.dtype) -> bool:
    """Only floating point and complex values have tangents."""
    return dtype.kind in "fc"


def promote(*types: ArrayType) -> tuple[np.dtype, bool]:
    """NEP 50 promotion of operand types: the dtype, and whether the result is weak (all operands are)."""
    first = types[0]
    if all(t.dtype == first.dtype and t.weak == first.weak for t in types):
        return first.dtype, first.weak
    if all(t.weak for t in types):
        return np.result_type(*(t.dtype for t in types)), True
    return np.result_type(*(_PYTHON_VALUES[t.dtype.kind] if t.weak else t.dtype for t in types)), False


def broadcast_shapes(*shapes: Shape) -> Shape:
    """NumPy's broadcasting of shapes; an error in NumPy's words."""
    first = shapes[0]
    for shape in shapes[1:]:
        if first == ():
            first = shape
        elif shape not in ((), first):
            if max(map(len, shapes)) > 32:  # arrays have up to 64 axes, but NumPy's function takes no more than these
                return broadcast_shapes(*(s[:-32] for s in shapes)) + broadcast_shapes(*(s[-32:] for s in shapes))
            return np.broadcast_shapes(*shapes)
    return first
