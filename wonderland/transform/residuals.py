"""What a derivative that is used later keeps: the values of the time when it was taken."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from wonderland.core.level import freeze
from wonderland.core.program import Literal, Program


def keep(tape: Program) -> Program:
    """A Program from a tape to be used later: residuals whose memory the caller can write to are copied.

    A tape that is transposed at once, as `grad` does, has no need of it.
    """
    copies: dict[int, tuple] = {}  # by the array's id, which the pair keeps alive
    for literal in [a for e in (*tape.equations, tape) for a in (*e.inputs, *e.outputs) if type(a) is Literal]:
        value = literal.value
        if id(value) in copies:
            literal.value = copies[id(value)][1]
        elif can_change(value):
            literal.value = kept(value)
            copies[id(value)] = value, literal.value
    return tape


def kept(value: Any) -> Any:
    """A value as it is now: a copy, if somebody can write to it."""
    return freeze(value.copy()) if can_change(value) else value


def can_change(value: Any, fixed: Collection[int] = ()) -> bool:
    """Is it an array that somebody can write to, perhaps through another one that it is a view of?

    `fixed` has the ids of arrays that nobody writes to for now, though one could.
    """
    if not isinstance(value, np.ndarray):
        return False
    if value.flags.writeable:
        return True
    base = value.base
    if base is None or id(base) in fixed:
        return False
    if isinstance(base, np.ndarray):
        return can_change(base, fixed)
    # Of other memory only its owner knows: what is behind a read-only map may be written through another one.
    return not isinstance(base, (bytes, np.generic))
