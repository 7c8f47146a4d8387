"""Loops of solvers: Python's where there are values, `while_loop` where there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wonderland.control.loops import fori_loop, while_loop
from wonderland.core import tree
from wonderland.core.errors import NoValueError
from wonderland.core.level import concrete
from wonderland.core.tracer import Tracer, unwrap


def repeat(test: Callable[[Any], Any], body: Callable[[Any], Any], state: Any) -> Any:
    """`while test(state): state = body(state)`: by Python where the test has a value, otherwise by `while_loop`.

    A test that is known at first and no longer after a step (what the body reads is traced) starts the loop again.
    """
    first = state
    while True:
        known = _value(test(state))
        if known is None:
            return while_loop(test, body, first)
        if not known:
            return state
        state = body(state)


def _value(test: Any) -> bool | None:
    """What the test says; None where only a run will tell."""
    try:
        return bool(concrete(unwrap(test), "the test of a loop"))
    except NoValueError:
        return None


def times(count: int, body: Callable[[Any], Any], state: Any, reads: Any = ()) -> Any:
    """`state = body(state)` so many times: by Python where nothing is traced, otherwise by `fori_loop`.

    So a Program has the body once, however often it runs. `reads` is what the body reads besides.
    """
    if any(isinstance(leaf, Tracer) for leaf in (*tree.leaves(state), *reads)):
        return fori_loop(0, count, lambda _, state: body(state), state)
    for _ in range(count):
        state = body(state)
    return state
