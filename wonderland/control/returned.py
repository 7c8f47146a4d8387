"""What rules of the user's return, checked: a value and the type it must have come in, the value goes out."""

from __future__ import annotations

from typing import Any

from wonderland.core.errors import ArgumentError
from wonderland.core.types import ArrayType, is_differentiable, type_of
from wonderland.ops.shape import convert, zeros_like_type


def checked(value: Any, expected: ArrayType, what: str) -> Any:
    """A tangent or cotangent, zeros for None; None where there is no derivative."""
    if value is None or not is_differentiable(expected.dtype):
        return None if not is_differentiable(expected.dtype) else zeros_like_type(expected)
    try:
        actual = type_of(value)
    except TypeError as error:
        raise ArgumentError(f"{what} isn't an array of shape {expected.shape}: {error}") from None
    if actual.shape != expected.shape:
        raise ArgumentError(f"{what} has shape {actual.shape}, expected {expected.shape}")
    if actual.dtype != expected.dtype:
        if actual.dtype.kind != expected.dtype.kind and not actual.weak:
            raise ArgumentError(f"{what} has dtype {actual.dtype}, expected {expected.dtype}")
        value = convert(value, dtype=expected.dtype)
    return value


def shown(result: Any) -> str:
    """What a rule returned, for messages."""
    return f"a {type(result).__name__}" + (f" of {len(result)}" if isinstance(result, (tuple, list)) else "")
