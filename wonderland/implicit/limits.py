"""What people set solvers to, looked at: a tolerance, a number of iterations, of vectors to keep."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError, TracingError


def check_whole(value: Any, name: str, least: int = 0) -> int:
    """A whole number, at least so large, as one of Python's; `name` says which it is."""
    try:
        number = index(value)
    except TracingError:
        raise
    except TypeError:
        number = least - 1
    if number < least:
        raise ArgumentError(f"{name} must be a whole number, at least {least}, got {value!r}")
    return number


def check_tolerance(tol: Any, name: str) -> float:
    """A positive number, as one of Python's."""
    if not isinstance(tol, (int, float, np.number)) or not tol > 0:
        raise ArgumentError(f"{name}: tol must be a positive number, got {tol!r}")
    return float(tol)
