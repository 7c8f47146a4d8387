"""Which elements of their operands elementwise operations read: their sparsity patterns.

Types of the operands come in (an operand that is known comes as its array), and for each operand the pairs (output
element, operand element) go out, or None for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.core.types import ArrayType, broadcast_shapes, is_differentiable


def elementwise_pattern(types: tuple[ArrayType, ...], params: dict[Any, Any]) -> list[Any]:
    """Output element i reads element i of each operand, as broadcast."""
    return reads_where(types, [True] * len(types))


def reads_where(types: tuple[ArrayType, ...], masks: Sequence[Any]) -> list[Any]:
    """The pattern of an elementwise operation that reads each operand where its mask says so."""
    shape = broadcast_shapes(*(t.shape for t in types))
    rows = np.arange(math.prod(shape))
    return [
        _reading(t, shape, rows, mask) if is_differentiable(t.dtype) and mask is not False else None
        for t, mask in zip(types, masks, strict=True)
    ]


def _reading(t: ArrayType, shape: tuple, rows: np.ndarray, mask: Any) -> tuple[np.ndarray, np.ndarray]:
    numbers = rows if t.shape == shape else np.broadcast_to(np.arange(t.size).reshape(t.shape), shape).ravel()
    if mask is True or np.all(mask):
        return rows, numbers
    chosen = np.broadcast_to(mask, shape).ravel()
    return rows[chosen], numbers[chosen]


def reads_nothing(types: tuple[ArrayType, ...], params: dict[Any, Any]) -> list[Any]:
    """The pattern of what is constant wherever it has a derivative."""
    return [None] * len(types)


def reads_first(types: tuple[ArrayType, ...], params: dict[Any, Any]) -> list[Any]:
    """The pattern of what is constant in all operands but the first."""
    return reads_where(types, [True, *[False] * (len(types) - 1)])


def _nonzero(factor: Any) -> Any:
    """Where a factor isn't known to be 0."""
    return np.not_equal(factor, 0) if isinstance(factor, np.ndarray) else True


def product_pattern(types: tuple[ArrayType, ...], params: dict[Any, Any]) -> list[Any]:
    """A factor is read where the other one isn't known to be 0."""
    return reads_where(types, [_nonzero(types[1]), _nonzero(types[0])])


def quotient_pattern(types: tuple[ArrayType, ...], params: dict[Any, Any]) -> list[Any]:
    """The divisor is read where the dividend isn't known to be 0."""
    return reads_where(types, [True, _nonzero(types[0])])


def power_pattern(types: tuple[ArrayType, ...], params: dict[Any, Any]) -> list[Any]:
    """A known 0 or 1 stays itself, whatever the exponent."""
    x, _ = types
    constant = np.equal(x, 0) | np.equal(x, 1) if isinstance(x, np.ndarray) else np.False_
    return reads_where(types, [_nonzero(types[1]), np.logical_not(constant)])


def where_pattern(types: tuple[ArrayType, ...], params: dict[Any, Any]) -> list[Any]:
    """Of known conditions, the branch that is taken."""
    condition = types[0]
    if not isinstance(condition, np.ndarray):
        return reads_where(types, [False, True, True])
    chosen = np.not_equal(condition, 0)
    return reads_where(types, [False, chosen, np.logical_not(chosen)])


def complex_pattern(types: tuple[ArrayType, ...], params: dict[Any, Any]) -> list[Any]:
    """Of what is constant on the real line."""
    return reads_where(types, [types[0].dtype.kind == "c"])
