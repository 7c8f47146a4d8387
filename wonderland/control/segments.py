"""What `checkpoint=` of a loop means: segments that are computed again, or Revolve's slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np

from wonderland.control.revolve import reach
from wonderland.control.scan import scan_p, split
from wonderland.core.errors import ArgumentError
from wonderland.core.program import Program
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, type_of
from wonderland.numpy.join import concatenate
from wonderland.ops.index import slice as slice_primitive
from wonderland.ops.shape import reshape
from wonderland.transform.checkpoint import POLICIES, checkpoint_p, silent
from wonderland.transform.programs import record

MOST_REPEATS = 3  # of a step, where the number of slots is ours to choose


@dataclass(frozen=True)
class binomial:
    """`checkpoint=wl.binomial(slots)` of a loop: at most so many carried values are kept in reverse mode.

    With them the number of recomputed steps is the smallest there is (Griewank and Walther's Revolve): n steps in s
    slots take t(n, s) = r n - C(s + r, s + 1) forward steps, r being the smallest number with n <= C(s + r, s).
    """

    slots: int

    def __post_init__(self) -> None:
        if not isinstance(self.slots, (int, np.integer)) or isinstance(self.slots, bool) or self.slots < 1:
            raise ArgumentError(f"binomial(slots): slots is an integer, at least 1, not {self.slots!r}")


def checkpointed(operands: Sequence[Any], params: dict[Any, Any], checkpoint: Any, name: str) -> Sequence[Any]:
    """A `scan` with its operands (consts, carry, xs) and params, as the option `checkpoint` wants it."""
    length = params["length"]
    if checkpoint is None:
        return scan_p(*operands, **params)
    if length is None:
        raise ArgumentError(f"{name}: checkpoint={checkpoint!r} needs a number of steps that is known beforehand")
    if isinstance(checkpoint, str) and checkpoint == "binomial":
        slots = 1
        while reach(slots, MOST_REPEATS) < length:
            slots += 1
        checkpoint = binomial(slots)
    if isinstance(checkpoint, binomial):
        if silent(params["body"]).effects:  # steps that can't be run again, as they use what Python returned
            return scan_p(*operands, **params)
        return scan_p(*operands, **params, slots=min(int(checkpoint.slots), max(length, 1)))
    if isinstance(checkpoint, str) and checkpoint == "sqrt":
        checkpoint = _near_root(length)
    if not isinstance(checkpoint, (int, np.integer)) or isinstance(checkpoint, bool) or checkpoint < 1:
        raise ArgumentError(
            f'{name}: checkpoint={checkpoint!r}. It is "sqrt", a number of steps (at least 1), "binomial", or '
            "wl.binomial(slots)."
        )
    return _segmented(operands, params, int(checkpoint)) if length else scan_p(*operands, **params)


def _near_root(length: int) -> int:
    """About the square root; a divisor if one is near, so that all segments are alike."""
    root = isqrt(max(length - 1, 0)) + 1
    near = [k for k in range(root, root + root // 4 + 1) if length % k == 0]
    return near[0] if near else root


def _segmented(operands: Sequence[Any], params: dict, size: int) -> list:
    """Whole segments as a loop of checkpointed loops, and what is left as one more."""
    count, left = divmod(params["length"], size)
    known, carry, xs = split(operands, params["n_consts"], params["n_carry"])
    whole = count * size

    def one(length: int, head: list, xs: list) -> Program:
        """A checkpointed loop of so many steps."""
        types = [type_of(v) for v in head]
        types += [ArrayType((length, *type_of(x).shape[1:]), type_of(x).dtype) for x in xs]
        return record(lambda *args: scan_p(*args, **{**params, "length": length}), types)

    def segments(state: list) -> tuple[list, list]:
        inner = one(size, [*known, *state], xs)
        body = record(lambda *args: checkpoint_p(*args, program=inner, policy=POLICIES["nothing"]), inner.input_types)
        parts = [reshape(_rows(x, 0, whole), shape=(count, size, *type_of(x).shape[1:])) for x in xs]
        outs = scan_p(*known, *state, *parts, **{**params, "body": body, "length": count})
        state, ys = split(outs, params["n_carry"])
        return state, [reshape(y, shape=(whole, *type_of(y).shape[2:])) for y in ys]

    def rest(state: list) -> tuple[list, list]:
        parts = [_rows(x, whole, params["length"]) for x in xs]
        program = one(left, [*known, *state], xs)
        outs = checkpoint_p(*known, *state, *parts, program=program, policy=POLICIES["nothing"])
        state, ys = split(outs, params["n_carry"])
        return state, ys

    if not left or not count:
        state, ys = segments(carry) if count else rest(carry)
        return [*state, *ys]
    first, second = (rest, segments) if params["reverse"] else (segments, rest)
    state, early = first(carry)
    state, late = second(state)
    pairs = zip(late, early, strict=True) if params["reverse"] else zip(early, late, strict=True)
    return [*state, *(unwrap(concatenate([Tracer(a), Tracer(b)])) for a, b in pairs)]


def _rows(x: Any, start: int, stop: int) -> Any:
    """`x[start:stop]`."""
    if (start, stop) == (0, type_of(x).shape[0]):
        return x
    index = (slice(start, stop, 1), *(slice(0, n, 1) for n in type_of(x).shape[1:]))
    return slice_primitive(x, index=index)
