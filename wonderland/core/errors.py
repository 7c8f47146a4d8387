"""The errors a person meets, each saying what came, what was expected and what to write instead."""

from __future__ import annotations

from typing import Any

from wonderland.core.tracebacks import doing
from wonderland.core.tracebacks import user_line as user_line


class TracingError(TypeError):
    """Something that needs a value was asked of a value that isn't known, or whose derivative would be lost."""


class NoValueError(TracingError):
    """Python control flow or conversion on a value that isn't known while a function is recorded or batched."""

    def __init__(self, what: str, value: Any):
        super().__init__(
            f"{doing(what)}{user_line()} needs the value of {value.type}, but inside {value.level.name} there is only "
            "its type. For decisions use wl.cond, wl.while_loop or np.where; instead of converting keep it an array "
            "(np.sin, not math.sin; wl.lift or wonderland.numpy where NumPy makes arrays); sizes and Python's own "
            "indices come from .shape or from static arguments (static_argnums of wl.jit)."
        )


class LostDerivativeError(TracingError):
    """A conversion that would silently drop a derivative."""


class LeakedTracerError(TracingError):
    """A traced value used after its transformation has ended."""

    def __init__(self, value: Any):
        super().__init__(
            f"a traced value {value.type} is used{user_line()} after {value.level.name} that made it has ended. "
            "It was probably stored in a global, an attribute or a list from inside a transformed function: return "
            "it from the function instead."
        )


class MutationError(TracingError):
    """A mutable argument, or an array from outside, was changed in a way that can't be carried out."""


class ArgumentError(TypeError):
    """A wrong argument to a transformation."""


def check_function(f: Any, name: str) -> None:
    """Refuse what isn't a function where a transformation, `name`, takes one."""
    if not callable(f):
        came = f"{type(f).__name__} ({str(f)[:60]})"
        raise ArgumentError(f"{name} takes a function, not {came}: pass the function itself, not what it returns")
