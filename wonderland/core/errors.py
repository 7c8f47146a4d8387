"""The errors a person meets, each saying what came, what was expected and what to write instead."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_frame() -> FrameType | None:
    """The innermost frame of the stack that isn't wonderland's or NumPy's."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE) and not any(f"{os.sep}{part}{os.sep}" in name for part in ("numpy", "scipy")):
            return frame
        frame = frame.f_back
    return None


def user_line() -> str:
    """That frame's line, for messages: ` (file.py:12)`."""
    frame = user_frame()
    return "" if frame is None else f" ({os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno})"


def annotated(what: Any, f: Callable, args: tuple, kwargs: dict) -> Any:
    """`f(*args, **kwargs)`; an error gets a note."""
    try:
        return f(*args, **kwargs)
    except (TypeError, ValueError, IndexError) as error:
        noted(error, what, args)
        raise


def noted(error: Exception, what: Any, args: tuple) -> None:
    """Add a note to an error: which operation, on what, in which line of the user's."""
    if not getattr(error, "__notes__", None):
        if not isinstance(what, str):  # a function of NumPy's or SciPy's (whose ufuncs don't say whose they are)
            module = getattr(what, "__module__", None) or "scipy.special"
            what = f"{module}.{what.__name__}".replace("numpy", "np", 1)
        error.add_note(f"in {what}({', '.join(map(_brief, args))}){user_line()}")


def _brief(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_brief, value[:4])) + (", ..." if len(value) > 4 else "") + "]"
    shape = getattr(value, "shape", ())
    text = str(getattr(value, "type", None) or (f"{value.dtype}{list(shape)}" if shape else repr(value)))
    return text if len(text) <= 60 else text[:57] + "..."


class TracingError(TypeError):
    """Something that needs a value was asked of a value that isn't known, or whose derivative would be lost."""


class NoValueError(TracingError):
    """Python control flow or conversion on a value that isn't known while a function is recorded or batched."""

    def __init__(self, what: str, value: Any):
        super().__init__(
            f"{what}{user_line()} needs the value of {value.type}, but inside {value.level.name} there is only its "
            "type. For decisions use wl.cond, wl.while_loop or np.where; instead of converting keep it an array "
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
