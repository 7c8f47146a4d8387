"""Where in the user's code an error or a warning comes from: notes, tracebacks and warnings that end there.

An error that leaves a public function has none of our frames in it.

`edge` makes a function one through which errors leave; `publish` does that with the functions of a public namespace,
and with the functions that they return (`wl.grad(f)`, the `pull` of `wl.vjp`). `WONDERLAND_TRACEBACK=full` keeps all
frames.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from opcode import opmap
from types import FrameType, FunctionType, TracebackType
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TESTING = os.path.join(PACKAGE, "testing") + os.sep
_NUMPY = os.path.dirname(np.__file__) + os.sep
_SCIPY = os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "scipy") + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep
_SITE = f"{os.sep}site-packages{os.sep}"

# What Python raises when our code is wrong: such errors keep their frames, which say where.
_FAULTS = (AssertionError, AttributeError, KeyError, NameError)
_WRITES = {opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in opmap}  # `array[i] = value`
_HIDDEN = "frames inside wonderland are hidden; WONDERLAND_TRACEBACK=full shows them"


def fold(error: BaseException) -> None:
    """Take our frames out of the traceback of an error and of the errors it came from; for `except`, before `raise`.

    (A bare `raise` doesn't add the frame of the function that it is in.)
    """
    if os.environ.get("WONDERLAND_TRACEBACK") == "full":
        return
    left: list[BaseException | None] = [error]
    seen = set()
    while left:
        current = left.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        left += [current.__cause__, current.__context__]
        meant = _is_meant(current)
        if meant or not isinstance(current, _FAULTS):
            current.__traceback__ = _folded(current.__traceback__)
            if not meant and isinstance(current, Exception) and not getattr(current, "__notes__", None):
                current.add_note(_HIDDEN)


def _is_meant(error: BaseException) -> bool:
    """Was it raised by the user's code, or by a `raise` of ours?"""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or not last.tb_frame.f_code.co_filename.startswith(PACKAGE):
        return True
    if isinstance(error, AssertionError):  # `assert` raises like `raise`; functions for tests are meant to
        return last.tb_frame.f_code.co_filename.startswith(_TESTING)
    return last.tb_frame.f_code.co_code[last.tb_lasti] == opmap["RAISE_VARARGS"]


def _folded(traceback: TracebackType | None) -> TracebackType | None:
    """Without our frames, and without those of libraries that lead to ours or that ours lead to."""
    kept: list[tuple[TracebackType, bool]] = []
    inside = False  # are we below one of our frames, with no frame of the user's since?
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        library = _is_library(name)
        if name.startswith(PACKAGE):
            inside = True
            while kept and kept[-1][1]:
                kept.pop()
        elif not (library and inside):
            inside = False
            kept.append((traceback, library))
        traceback = traceback.tb_next
    for entry, _ in reversed(kept):
        traceback = TracebackType(traceback, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return traceback


def _is_library(name: str) -> bool:
    return name.startswith((_NUMPY, _SCIPY)) or (name.startswith(_STANDARD) and _SITE not in name)


def user_frame() -> FrameType | None:
    """The innermost frame of the stack that isn't wonderland's, NumPy's or of another library below it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(PACKAGE) and not _is_library(name):
            break
        frame = frame.f_back
    return frame


def user_line() -> str:
    """That frame's line, for messages: ` (file.py:12)`."""
    frame = user_frame()
    return "" if frame is None else f" ({os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno})"


def doing(what: str) -> str:
    """What the user's line does with a traced value: `what`; or `array[i] = value`, where NumPy converts the value."""
    frame = user_frame()
    writes = frame is not None and frame.f_code.co_code[frame.f_lasti] in _WRITES
    return "writing a traced value into a part of a plain array" if writes else what


def reveal(error: Any) -> None:
    """Raise the error of ours behind NumPy's: if a value can't be converted, that says it can't write a sequence."""
    ours = error.__cause__
    numpys = error.args == ("setting an array element with a sequence.",)
    if ours is not None and numpys and type(ours).__module__ == "wonderland.core.errors":
        raise ours.with_traceback(error.__traceback__) from None


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's that we were called from; Python shows a warning once per line."""
    frame = user_frame()
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__", "<unknown>")
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


def annotated(what: Any, f: Callable, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
    """`f(*args, **kwargs)`; an error gets a note."""
    try:
        return f(*args, **kwargs)
    except (TypeError, ValueError, IndexError) as error:
        noted(error, what, args)
        raise


def noted(error: Exception, what: Any, args: tuple[Any, ...]) -> None:
    """Add a note to an error: which operation, on what, in which line of the user's."""
    if not getattr(error, "__notes__", None):
        if not isinstance(what, str):  # a function of NumPy's or SciPy's (whose ufuncs don't say whose they are)
            module = getattr(what, "__module__", None) or "scipy.special"
            what = f"{module}.{what.__name__}".replace("numpy", "np", 1)
        error.add_note(f"in {what}({', '.join(map(_brief, args))}){user_line()}")
    fold(error)


def _brief(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_brief, value[:4])) + (", ..." if len(value) > 4 else "") + "]"
    shape = getattr(value, "shape", ())
    text = str(getattr(value, "type", None) or (f"{value.dtype}{list(shape)}" if shape else repr(value)))
    return text if len(text) <= 60 else text[:57] + "..."


def edge(function: F) -> F:
    """The function, as one whose errors end at the line that called it."""

    @functools.wraps(function)
    def outermost(*args: Any, **kwargs: Any) -> Any:
        try:
            out = function(*args, **kwargs)
        except BaseException as error:
            fold(error)
            raise
        if type(out) is FunctionType:
            return _returned(out)
        if type(out) is tuple and FunctionType in map(type, out):
            return tuple(map(_returned, out))
        return out

    return outermost  # type: ignore[return-value]


def _returned(out: Any) -> Any:
    """A result of a public function; if it is a function of ours, errors leave through it as well."""
    ours = type(out) is FunctionType and out.__code__.co_filename.startswith(PACKAGE)
    return edge(out) if ours and out.__code__ is not _EDGE else out


_EDGE = edge(fold).__code__


def edges(cls: type[T]) -> type[T]:
    """A class whose methods are edges: for objects that public functions return."""
    for name, method in list(vars(cls).items()):
        if type(method) is FunctionType and (name[0] != "_" or name in ("__call__", "__getitem__", "__init__")):
            setattr(cls, name, edge(method))
    return cls


def publish(module: str, space: dict[str, Any], names: Iterable[str]) -> None:
    """Make the functions of a public namespace edges, known under its name (which is where pickle finds them)."""
    for name in names:
        value = space.get(name)
        if type(value) is FunctionType and value.__code__ is not _EDGE:
            space[name] = edge(value)
            space[name].__module__ = module
