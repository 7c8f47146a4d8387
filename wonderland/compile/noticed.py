"""What is noticed while a function is recorded, and said to the user.

Random numbers would be the same in every call of the compiled code. NumPy and Python have no hook for this, so the
states of their generators are compared: the global ones, and those that the function can get at. Python's loops are
unrolled: if a Program is long, the line that made it so is named. For that the stack is looked at now and then.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wonderland.compile import captured
from wonderland.core.tracebacks import user_frame, warn_user
from wonderland.transform.surprises import RandomConstantWarning

SEEDED = 623  # the place of NumPy's global generator from which nothing has been drawn since the import
MANY = 5000  # equations from which a person should know
EVERY = 61  # equations between two looks at the stack; a prime, so that every line of a loop is met
VISITS = 4  # of a line, between looks, from which it is in a loop: one call of a network is one visit
SECONDS = 4e-4  # to compile an equation, about


@contextmanager
def nothing_drawn(f: Callable, name: str) -> Iterator[None]:
    """While `f` is recorded in this context, no generator should move; otherwise it warns."""
    before = _states(f)
    yield
    after = _states(f)
    moved = [what for what, state in after.items() if what in before and not _equal(before[what], state)]
    if "np.random" in after and "np.random" not in before and _is_used(after["np.random"]):  # imported by f
        moved.append("np.random")
    if moved:
        warn_user(
            f"{' and '.join(moved)} gave random numbers while {name} was recorded. They are constants of the compiled "
            "code: every call gets the same ones. Pass a key, and draw with wl.random.normal(key, shape); or draw "
            "before the call, and pass the numbers.",
            RandomConstantWarning,
        )


def _states(f: Callable) -> dict[str, Any]:
    out: dict[str, Any] = {}
    legacy = sys.modules.get("numpy.random.mtrand")
    if legacy is not None:
        out["np.random"] = legacy.get_state(legacy=False)
    python = sys.modules.get("random")
    if python is not None:
        out["random"] = python.getstate()
    for name, (_, _, value) in captured.found(f) if legacy is not None else ():
        if isinstance(value, np.random.Generator):
            out[f"the generator {name}"] = value.bit_generator.state
        elif isinstance(value, np.random.RandomState):
            out[f"the generator {name}"] = value.get_state(legacy=False)
    return out


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def _is_used(state: Any) -> bool:
    return state["bit_generator"] != "MT19937" or state["state"]["pos"] != SEEDED or bool(state["has_gauss"])


class Lines:
    """Which lines of the user's write the equations of a Record: `Record(name, first=lines.look)` asks now and then."""

    def __init__(self) -> None:
        self.count: int = 0
        self.places: Counter[tuple[int, str, int]] = Counter()  # (depth of the stack, file, line) -> looks
        self.visits: Counter[tuple[int, str, int]] = Counter()  # of these, how many met a call of their own
        self._called: dict[tuple[int, str, int], Any] = {}  # what the line called when it was last looked at

    def look(self, *operation: Any) -> None:
        self.count += 1
        if self.count % EVERY:
            return
        called: Any = sys._getframe()
        frame = user_frame()
        while called.f_back is not frame:
            called = called.f_back
        if frame is None:
            return
        file, line, depth = frame.f_code.co_filename, frame.f_lineno, 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        place = depth, file, line
        self.places[place] += 1
        if self._called.get(place) is not called:
            self.visits[place] += 1
            self._called[place] = called  # held, so that no other call looks like it

    def advice(self, name: str, count: int) -> str | None:
        """What to say about a Program of so many equations; nothing if it is short, or no line stands out."""
        self._called.clear()
        total = self.places.total()
        often = [p for p, looks in self.places.items() if looks * 10 >= total and self.visits[p] >= VISITS]
        if count < MANY or not often:
            return None
        # The backward pass is written at the line that calls for the derivative: the loop is further inside.
        depth = max(place[0] for place in often)
        place = max((p for p in often if p[0] == depth), key=lambda p: self.places[p])
        share = round(count * self.places[place] / total, -2)
        return (
            f"{name} has {count} equations, about {share:.0f} of them from {os.path.basename(place[1])}:{place[2]}. "
            f"jit unrolls a Python loop; to compile this takes about {max(count * SECONDS, 1):.0f} s. wl.scan, "
            "wl.fori_loop and wl.while_loop compile the body of a loop once."
        )
