"""How a transformed function is called: after the function that it comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wonderland.core.errors import check_function


def named(wrapper: Callable, f: Callable, prefix: str) -> Any:
    """A transformed function, with the name, docstring and signature of the one it comes from, which is checked."""
    check_function(f, prefix)
    wrapper.__name__ = f"{prefix}({getattr(f, '__name__', 'function')})"
    wrapper.__doc__ = getattr(f, "__doc__", None)
    wrapper.__wrapped__ = f  # type: ignore[attr-defined]
    return wrapper
