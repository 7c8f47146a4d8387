"""Arrays that a compiled function captured, and that aren't any more where it found them.

Compiled code keeps a captured array by reference and sees what is written into it, but not that `model.w = other` puts
another array in its place. So the places where the function found its arrays are looked at: in each of the first calls,
and then now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CellType
from typing import Any

import numpy as np

from wonderland.compile import captured
from wonderland.core.tracebacks import warn_user
from wonderland.transform.surprises import ReboundArrayWarning

_EACH, _THEN_EVERY = 16, 16  # calls that are looked at, and then one of so many: counting alone takes 0.04 us a call
_NEVER = 1 << 62


class Places:
    """Where a function found the arrays that it captured."""

    def __init__(self, f: Callable, values: Sequence[Any], name: str):
        self.name: str = name
        self.looks: int = 0
        self.watched: list[tuple[Callable[[Any], Any], Any, Any, str]] = []  # read(key) is the array; how it is written
        wanted = {id(a) for value in values for a in _with_bases(value)}
        for label, (holder, key, value) in captured.found(f) if wanted else ():
            if id(value) in wanted and holder is not None:
                wanted.discard(id(value))
                if isinstance(holder, CellType):
                    self.watched.append((holder.__getattribute__, "cell_contents", value, label))
                else:
                    self.watched.append((holder.__getitem__, key, value, label))

    def watching(self, finish: Callable | None) -> Callable | None:
        """`finish`, which makes the result of a native call, with a look at the places."""
        if not self.watched:
            return finish
        left = 1

        def looked(out: Any) -> Any:
            nonlocal left
            left -= 1
            if left <= 0:  # not ==: calls race
                left = self.check()
            return out if finish is None else finish(out)

        return looked

    def check(self) -> int:
        """Warn, once, if a place holds another array (not if it is gone); returns when to look again, in calls."""
        for read, key, array, label in self.watched:
            try:
                now = read(key)
            except (LookupError, ValueError):
                now = None
            if now is not array:
                self.watched = []
                if now is not None:
                    warn_user(
                        f"{self.name} was compiled with the array that {label} was then. It is another one now, which "
                        f"the compiled code doesn't see: write into the array, {label}[...] = new, or make it an "
                        f"argument of {self.name}.",
                        ReboundArrayWarning,
                    )
                return _NEVER
        self.looks += 1
        return 1 if self.looks < _EACH else _THEN_EVERY


def _with_bases(value: Any) -> list:
    """An array and those that it is a view of."""
    out = []
    while isinstance(value, np.ndarray):
        out.append(value)
        value = value.base
    return out
