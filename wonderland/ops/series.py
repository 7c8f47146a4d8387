"""Sums of products of Taylor coefficients, for the `taylor` rules of primitives.

A series is indexed by order: `x[k]` is the coefficient of t^k, None where it is a structural zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.core.types import shape_of, type_of
from wonderland.ops.elementwise import add, div, masked, mul


def plus(x: Any, y: Any) -> Any:
    """The sum of two coefficients, either of which may be None."""
    return y if x is None else x if y is None else add(x, y)


def convolve(x: Any, y: Any, k: int, product: Callable = masked, first: int = 0, last: int | None = None) -> Any:
    """Coefficient k of a product of series: the sum of x[j] y[k - j], j from `first` to `last` (by default k)."""
    out = None
    if x is y and product is masked and first == 0 and last is None:  # a square: every pair once
        for j in range((k + 1) // 2):
            if x[j] is not None and x[k - j] is not None:
                out = plus(out, masked(x[k - j], x[j]))
        out = None if out is None else mul(2.0, out)
        return out if k % 2 or x[k // 2] is None else plus(out, masked(x[k // 2], x[k // 2]))
    for j in range(first, (k if last is None else last) + 1):
        if x[j] is not None and y[k - j] is not None:
            one = j == 0 and product is masked and _is_one(x[0], y[k])  # the slope of the variable itself
            out = plus(out, y[k] if one else product(x[j], y[k - j]))
    return out


def _is_one(x: Any, y: Any) -> bool:
    """Is x plainly the number 1, or that number seen many times, so that x y is y?"""
    if type(x) is float:
        return x == 1.0
    plain = isinstance(x, np.floating) or (type(x) is np.ndarray and x.shape == shape_of(y) and not any(x.strides))
    return plain and x.size > 0 and x.item(0) == 1 and x.dtype == type_of(y).dtype


def integral(slope: Any, k: int) -> Any:
    """Coefficient k of the series whose derivative this is (None: zero)."""
    c = None if slope is None else slope[k - 1]
    return c if c is None or k == 1 else div(c, float(k))
