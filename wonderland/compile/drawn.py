"""Random numbers that are drawn while a function is recorded: they would be the same in every call.

NumPy and Python have no hook for this, so the states of their generators are compared: the global ones, and those that
the function can get at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from wonderland.compile import captured
from wonderland.core.tracebacks import warn_user
from wonderland.transform.surprises import RandomConstantWarning

_SEEDED = 623  # the place of NumPy's global generator from which nothing has been drawn since the import


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
    return state["bit_generator"] != "MT19937" or state["state"]["pos"] != _SEEDED or bool(state["has_gauss"])
