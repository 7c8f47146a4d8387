"""Levels and `bind`: how an operation finds out what it means.

A transformation runs the user's function at a new level. `bind(primitive, args)` hands an operation to the innermost
level among its operands, which does its work by binding at the level below; with no level left, NumPy evaluates.
"""

from __future__ import annotations

import operator
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from wonderland.core.errors import LeakedTracerError, NoValueError
from wonderland.core.tracebacks import reveal
from wonderland.core.types import PYTHON_SCALARS, ArrayType, Params

if TYPE_CHECKING:
    from wonderland.core.primitive import Primitive


class _State(threading.local):
    def __init__(self) -> None:
        self.levels: list[Level] = []  # the transformations that are running, outermost first
        self.floor: Level | None = None  # the innermost that takes operations on values from outside as well
        self.writes = 0  # in place, in this thread: what arrays without axes and numbers differ in


_state = _State()
floors: list[None] = []  # one for each `floor` that is set in any thread: asking this is cheaper


class Level:
    """One run of one transformation; `with level:` while the user's function runs.

    Levels are unique per entry and ordered by depth, so nested derivatives can't be confused with each other.
    """

    __slots__ = ("alive", "depth")
    name = "a transformation"
    once = False  # does it run the function once for many runs or entries (recording, batching)?
    effects = False  # do effects belong to it, whatever their operands are?

    def __enter__(self) -> Any:
        _state.levels.append(self)
        self.depth: int = len(_state.levels)
        self.alive: bool = True
        return self

    def __exit__(self, *exc: object) -> None:
        _state.levels.pop()
        self.alive = False
        if exc[0] is ValueError:
            reveal(exc[1])

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: Params) -> Any:
        """Perform an operation some of whose operands live at this level."""
        raise NotImplementedError

    def process_update(self, primitive: Primitive, box: list[Any], args: tuple[Any, ...], params: Params) -> Any:
        """`process` for a functional update whose first operand is in `box` and may be overwritten."""
        return self.process(primitive, (box[0], *args), params)

    def below(self, value: Traced) -> Any:
        """What a value of this level stands for at the levels below; None where only a run will tell."""
        return getattr(value, "primal", None)


def running() -> list[Level]:
    """The levels of the transformations that are running in this thread, outermost first."""
    return _state.levels


class Traced:
    """An immutable value at a level. Subclasses keep what their level needs."""

    __slots__ = ("level",)
    level: Level

    @property
    def type(self) -> ArrayType:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        return self.type.dtype

    # A traced value that is given as an option (keepdims, an axis) is asked for its value, and never just true.
    def __bool__(self) -> bool:
        return bool(concrete(self, "an option or a decision"))

    def __index__(self) -> int:
        return operator.index(concrete(self, "an option that is a number"))

    def __lt__(self, other: Any) -> bool:
        return concrete(self, "a comparison of an option") < other

    def __gt__(self, other: Any) -> bool:
        return concrete(self, "a comparison of an option") > other


def concrete(value: Any, what: str) -> Any:
    """The plain value below the levels that have one (Dual over arrays)."""
    while isinstance(value, Traced):
        if not value.level.alive:
            raise LeakedTracerError(value)
        below = value.level.below(value)
        if below is None:
            raise NoValueError(what, value)
        value = below
    return value


def _effect_level(level: Level | None) -> Level | None:
    """Where an effect belongs: to what is being recorded, once for each of its runs, whatever its operands are."""
    for other in reversed(_state.levels):
        if other is level or other.effects:
            return other
    return level


def _innermost(args: tuple) -> Level | None:
    level = None
    for a in args:
        if isinstance(a, Traced):
            other = a.level
            if other is not level:
                if not other.alive:
                    raise LeakedTracerError(a)
                if level is None or other.depth > level.depth:
                    level = other
    floor = _state.floor
    return level if floor is None or level is None or level.depth > floor.depth else floor


def bind(primitive: Primitive, *args: Any, **params: Any) -> Any:
    """Perform an operation at the innermost level among its operands."""
    level = None
    for a in args:  # `_innermost`, without the call: everything passes here
        if isinstance(a, Traced):
            other = a.level
            if other is not level:
                if not other.alive:
                    raise LeakedTracerError(a)
                if level is None or other.depth > level.depth:
                    level = other
    if not primitive.pure and primitive.effects(params):
        level = _effect_level(level)
    if level is not None:
        if floors and (floor := _state.floor) is not None and level.depth <= floor.depth:
            level = floor
        return level.process(primitive, args, params)
    out = primitive.evaluate(*args, **params) if params else primitive.evaluate(*args)
    if type(out) is ndarray:
        if primitive.fresh or (args and out is not args[0] and out is not args[-1]):
            out.setflags(False)  # type: ignore[call-arg]  (the keyword's name takes twice the time)
            return out
    return _finished(primitive, args, out)


def evaluate(primitive: Primitive, args: tuple[Any, ...], params: Params) -> Any:
    """The bottom: NumPy does it. Results are read-only: a value never changes, so nobody needs to copy it."""
    return _finished(primitive, args, primitive.evaluate(*args, **params))


def _finished(primitive: Primitive, args: tuple, out: Any) -> Any:
    if type(out) is np.ndarray or primitive.multiple:
        outs = out if primitive.multiple else (out,)
        own = lambda o: o.view() if type(o) is np.ndarray and any(o is a for a in args) else o  # it stays as it is
        frozen = tuple(freeze(own(o)) for o in outs)
        return frozen if primitive.multiple else frozen[0]
    if primitive.elementwise and type(args[0]) in PYTHON_SCALARS and all(type(a) in PYTHON_SCALARS for a in args):
        return out.item()  # Python scalars stay weak
    return out


def bind_update(primitive: Primitive, box: list[Any], *args: Any, **params: Any) -> Any:
    """`bind(primitive, box[0], *args)`, free to overwrite that operand in place if `box` alone holds it.

    This is what makes writing one element cost O(1): the owner gives its reference away in a one-element list, and a
    reference count tells whether anybody else (a residual, a view, another handle) could still see the old value.
    """
    level = _innermost((box[0], *args))
    if level is not None:
        return level.process_update(primitive, box, args, params)
    if type(box[0]) is np.ndarray and box[0].base is None and is_alone(box):
        array = box[0]
        array.flags.writeable = True
        primitive.update(array, *args, **params)  # type: ignore[misc]
        array.flags.writeable = False
        return array
    return evaluate(primitive, (box[0], *args), params)


def _count(box: list) -> int:
    return sys.getrefcount(box[0])


_ALONE = _count([np.zeros(1)])  # what the interpreter counts for an object that only a list holds


def is_alone(box: list[Any]) -> bool:
    """Is the object in this one-element list referenced by nobody else?"""
    return _count(box) == _ALONE


def freeze(value: Any) -> Any:
    """Make an array that we own read-only."""
    if type(value) is np.ndarray:
        value.flags.writeable = False
    return value


def read_only(value: Any) -> Any:
    """A read-only view of a caller's array; other values as they are."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value


def constant_copy(value: Any) -> Any:
    """What to keep of an operand: a writable array may change later, so it is copied; others can't."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        return freeze(value.copy())
    return value


def own(values: list[Any]) -> list[Any]:
    """Arrays to hand to a caller: writable, and shared with nobody. The list gives its references away."""
    out = []
    for i in range(len(values)):
        box = [values[i]]
        values[i] = None
        if type(box[0]) is np.ndarray:
            if not box[0].flags.writeable and box[0].base is None and is_alone(box):
                box[0].flags.writeable = True
            else:
                box[0] = box[0].copy()
        out.append(box.pop())
    return out
