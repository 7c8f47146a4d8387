"""`warn_on_broadcast`: find the (n, 1) + (n,) trap.

A column of shape (n, 1) and a vector of shape (n,) broadcast to an (n, n) matrix, which is hardly ever meant: a loss of
predictions (n, 1) and labels (n,) still is a number, and still has a gradient. Inside the context, an elementwise
operation on traced arrays of different ranks in which both operands are repeated issues a `BroadcastWarning`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from wonderland.core.tracebacks import PACKAGE, fold, user_line, warn_user
from wonderland.core.tracer import FUNCTIONS, METHODS, UFUNCS, Tracer
from wonderland.numpy.dispatch import BINARY, namespace, set_operator


class BroadcastWarning(UserWarning):
    """Two arrays of different ranks broadcast against each other, and both were repeated."""


_active: ContextVar[bool] = ContextVar("warn_on_broadcast", default=False)
_PROTOCOL = tuple(  # where NumPy's calls arrive, between the user's line and us
    os.path.join(PACKAGE, *path) for path in (("core", ""), ("numpy", "dispatch.py"), ("numpy", "broadcasting.py"))
)
_watched: list = []  # not empty once the operations are watched


@contextmanager
def warn_on_broadcast() -> Iterator[None]:
    """Warn of elementwise operations in which both operands are repeated: `(n, 1) + (n,)` makes an (n, n) matrix.

        with wl.warn_on_broadcast():
            wl.grad(loss)(weights, x, y)

    Only operands of different ranks are meant: `x[:, None] - y[None, :]` says what it does, and so do operands that the
    other one is repeated for alone, as `(n, k) + (k,)`. NumPy tells us of operations on traced arrays only, so it holds
    inside `grad`, `jit`, `vmap` and the like (in a jitted function when it is traced: at its first call). The warning
    names the shapes and the line. Make it an error with `warnings.simplefilter("error", wl.BroadcastWarning)`.

    Without this context nothing is checked, and before its first use nothing is installed.
    """
    _watch()
    token = _active.set(True)
    try:
        yield
    finally:
        _active.reset(token)


def is_trap(*shapes: tuple[Any, ...]) -> bool:
    """Do two of these shapes, of different ranks, both get repeated against each other?"""
    for i, x in enumerate(shapes):
        for y in shapes[i + 1 :]:
            if len(x) == len(y) or not x or not y:
                continue
            x_, y_ = ((1,) * (max(len(x), len(y)) - len(s)) + s for s in (x, y))
            if any(m == 1 < n for m, n in zip(x_, y_, strict=True)) and any(
                n == 1 < m for m, n in zip(x_, y_, strict=True)
            ):  # fmt: skip
                return True
    return False


def _check(name: str, args: tuple) -> None:
    """Warn if these operands are a trap and the operation is the user's own, not one that ours is made of."""
    shapes = [np.shape(a) for a in args if isinstance(a, (Tracer, np.ndarray))]
    if len(shapes) < 2 or not is_trap(*shapes) or _is_inside():
        return
    result = np.broadcast_shapes(*shapes)
    shown = " and ".join(map(str, shapes))
    warn_user(
        f"{name} of shapes {shown}{user_line()} makes an array of shape {result}: each is repeated along an axis of "
        "the other. If an elementwise operation was meant, give both the same shape (x[:, 0], or x.reshape(-1)); if "
        "the table of all pairs was, say so with x[:, None] and y[None, :].",
        BroadcastWarning,
    )


def _is_inside() -> bool:
    """Is the operation part of a function of wonderland's (np.trapezoid, say) rather than of the user's code?"""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PROTOCOL):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_filename.startswith(PACKAGE)


def _watch() -> None:
    """Put a check in front of the elementwise operations of two and more operands, once and for all."""
    if _watched:
        return
    for ufunc in [u for u in UFUNCS if isinstance(u, np.ufunc) and u.nin > 1 and u.signature is None]:
        UFUNCS[ufunc] = _checked(UFUNCS[ufunc], f"np.{ufunc.__name__}")
        if ufunc.__name__ in namespace:
            namespace[ufunc.__name__] = _checked(namespace[ufunc.__name__], f"np.{ufunc.__name__}")
    if np.where in FUNCTIONS:
        FUNCTIONS[np.where] = namespace["where"] = _checked(namespace["where"], "np.where")
    for name in BINARY:
        if name not in ("__matmul__", "__rmatmul__"):
            set_operator(name, _checked(METHODS[name], f"the operator {name}"))
    _watched.append(True)


def _checked(f: Callable, name: str) -> Callable:
    def operation(*args: Any, **kwargs: Any) -> Any:
        try:
            if _active.get():
                _check(name, args)
            return f(*args, **kwargs)
        except Exception as error:
            fold(error)
            raise

    operation.__name__, operation.__doc__ = getattr(f, "__name__", name), f.__doc__
    operation.__dict__.update(getattr(f, "__dict__", {}))
    return operation
