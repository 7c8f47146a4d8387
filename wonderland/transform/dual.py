"""The Dual level: every value is a pair (primal, tangent), the notes' dual numbers.

With known tangents this is forward mode. With tangents that are variables of a linear Program being recorded it is
linearisation: the primal part runs outside, and what it leaves in the linear Program are the residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Any

import numpy as np

from wonderland.core.level import Level, Traced, bind, bind_update, freeze, is_alone, running
from wonderland.core.primitive import Primitive
from wonderland.core.program import Literal, Record, Var, same_bytes
from wonderland.core.types import PYTHON_SCALARS, ArrayType, Params, type_of
from wonderland.ops.elementwise import add, as_tangent
from wonderland.ops.shape import zeros_like_type
from wonderland.transform.residuals import can_change


class DualValue(Traced):
    """A primal and its tangent; a tangent of None is a structural zero."""

    __slots__ = ("primal", "tangent")

    def __init__(self, level: Level, primal: Any, tangent: Any):
        self.level = level
        self.primal: Any = primal
        self.tangent: Any = tangent

    @property
    def type(self) -> ArrayType:
        return type_of(self.primal)

    @property
    def shape(self) -> tuple[Any, ...]:
        return () if type(self.primal) in PYTHON_SCALARS else self.primal.shape

    @property
    def dtype(self) -> Any:
        return (type_of(self.primal) if type(self.primal) in PYTHON_SCALARS else self.primal).dtype

    def __repr__(self) -> str:
        return f"Dual({self.primal!r}, tangent={self.tangent!r})"


class Dual(Level):
    """Forward mode; with a `tape`, the tangents are variables of the linear Program that is recorded there."""

    __slots__ = ("tape",)
    name = "a differentiated function"

    def __init__(self, tape: Record | None = None):
        self.tape: Record | None = tape

    def lift(self, primal: Any, tangent: Any) -> DualValue:
        return DualValue(self, primal, tangent)

    def split(self, value: Any) -> tuple[Any, Any]:
        """Primal and tangent of a value, which may be a constant at this level."""
        if type(value) is DualValue and value.level is self:
            return value.primal, value.tangent
        return value, None

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: Params) -> Any:
        tape: Any = self.tape
        if len(args) == 1:  # by far the most operations have one or two operands
            (x,) = args
            if primitive.linear and not primitive.jvp and type(x.tangent) is Var and x.tangent.level is tape:
                out = bind(primitive, x.primal, **params)
                return DualValue(self, out, tape.equation(primitive, (x.tangent,), type_of(out), params))
            primals, tangents = (x.primal,), (x.tangent,)
        elif len(args) == 2:
            x, y = args
            s = t = None
            if type(x) is DualValue and x.level is self:
                x, s = x.primal, x.tangent
            if type(y) is DualValue and y.level is self:
                y, t = y.primal, y.tangent
            primals, tangents = (x, y), (s, t)
        else:
            primals, tangents = zip(*map(self.split, args), strict=True)
        rule = primitive.jvp
        if primitive.linearize is not None and tape is not None:
            rule = primitive.linearize
        if tangents[0] is None and tangents[-1] is None and all(t is None for t in tangents):
            out = bind(primitive, *primals, **params)
            tangent: Any = (None,) * len(out) if primitive.multiple else None
        elif rule is not None:
            out, tangent = rule(primals, tangents, **params) if params else rule(primals, tangents)
        elif primitive.bilinear:
            out, tangent = _bilinear_jvp(primitive, primals, tangents, params)
        elif primitive.linear:
            out, tangent = _linear_jvp(primitive, primals, tangents, params)
        else:
            why = primitive.impossible.get("jvp", "it has no jvp rule")
            raise TypeError(f"{primitive.name} can't be differentiated: {why}")
        if primitive.multiple:
            return tuple(starmap(self.lift, zip(out, tangent, strict=True)))
        return DualValue(self, out, tangent)

    def process_update(self, primitive: Primitive, box: list[Any], args: tuple[Any, ...], params: Params) -> Any:
        if type(box[0]) is not DualValue or box[0].level is not self:
            return self.process(primitive, (box[0], *args), params)
        alone = is_alone(box)
        primals, tangents = zip(*map(self.split, args), strict=True)
        target = box[0]
        primal_box, tangent_box = [target.primal], [target.tangent]
        if alone:
            target.primal = target.tangent = None  # nobody else sees this value: its parts may be overwritten
        try:
            tangent = None
            if tangent_box[0] is not None or any(t is not None for t in tangents):
                if tangent_box[0] is None:
                    tangent_box = [zeros_like_type(type_of(primal_box[0]), real=True)]
                moved = _linear_operands(primitive, (None, *primals), (tangent_box[0], *tangents))[1:]
                tangent = bind_update(primitive, tangent_box, *moved, **params)
            return DualValue(self, bind_update(primitive, primal_box, *primals, **params), tangent)
        except BaseException:
            if alone:
                target.primal, target.tangent = primal_box[0], tangent_box[0]
            raise


def _linear_operands(primitive: Primitive, primals: tuple, tangents: tuple) -> list:
    operands = list(primals)
    for i in primitive.linear:
        if tangents[i] is None:
            operands[i] = zeros_like_type(type_of(primals[i]))
        else:
            operands[i] = tangents[i]
    return operands


def _linear_jvp(primitive: Primitive, primals: tuple, tangents: tuple, params: dict) -> tuple[Any, Any]:
    out = bind(primitive, *primals, **params)
    moved = [t for t in [tangents[i] for i in primitive.linear] if t is not None]
    if not moved:
        return out, (None,) * len(out) if primitive.multiple else None
    return out, _linear_tangent(primitive, _linear_operands(primitive, primals, tangents), moved[0], out, params)


def _bilinear_jvp(primitive: Primitive, primals: tuple, tangents: tuple, params: dict) -> tuple[Any, Any]:
    (x, y), (s, t) = primals, tangents
    if type(s) is not Var and type(t) is not Var:  # the value last, when the parts of its tangent are gone
        tangent = None if s is None else bind(primitive, s, y, **params)
        if t is not None:
            of_y = bind(primitive, x, t, **params)
            tangent, of_y = of_y if tangent is None else add(tangent, of_y), None
        return bind(primitive, x, y, **params), tangent
    out = bind(primitive, x, y, **params)
    of_x = None if s is None else _linear_tangent(primitive, (s, y), s, out, params)
    of_y = None if t is None else _linear_tangent(primitive, (x, t), t, out, params)
    if of_x is None or of_y is None:
        return out, of_y if of_x is None else of_x
    return out, as_tangent(out, add, of_x, of_y)


# -- tapes -------------------------------------------------------------------------------------------------------------


def linear_tape(arguments: Sequence[Any] = ()) -> Record:
    """A Record of the linear part of a derivative, of a function that runs on values and gets these `arguments`."""
    return Record("a differentiated function", effects=False, residuals=Residuals(arguments))


class Residuals:
    """What a tape captures. Residuals are written into the equations that need them, and let go with the equation,
    when the backward pass has used it.

    An array that can be written to is copied: a derivative must not see later changes. Not so the `arguments`, which
    the function gets as read-only views.
    """

    __slots__ = ("arguments",)

    def __init__(self, arguments: Sequence[Any]):
        self.arguments: set[int] = {id(a.base) for a in arguments if type(a) is np.ndarray}

    def atom(self, value: Any, tape: Record) -> Literal:
        """An operand of an equation that is no variable of the tape."""
        if not can_change(value, self.arguments):
            return Literal(value)
        for level in reversed(running()[: tape.depth - 1]):
            if isinstance(level, Record) and level.once:  # it keeps the array by reference: a jitted gradient
                return Literal(level.atom(value))
        known = tape.captured.get(id(value))
        if known is None or not same_bytes(value, known[1]):
            copy = freeze(value.copy())
            known = tape.captured[id(value)] = (value, copy, Literal(copy))
        return known[2]

    def tangent(self, tape: Record, primitive: Primitive, operands: tuple[Any, ...], out: Any) -> Var | None:
        """An elementwise operation on tangents, the first operand among them, where its type is seen to be that of
        `out`: written without asking for it, which takes most of the time of a small one."""
        x, goal = operands[0].type, type_of(out)
        if x.dtype is not goal.dtype:
            return None
        if len(operands) == 1:
            return tape.equation(primitive, operands, goal, {}) if x.shape == goal.shape else None
        y = operands[1]
        if type(y) is np.ndarray:
            known, atom = y, self.atom(y, tape)
        elif type(y) is Var and y.level is tape:
            known, atom = y.type, y
        elif type(y) is float or (type(y) is np.float64 and x.dtype is y.dtype):
            known, atom = x, Literal(y)
        else:
            return None
        if known.dtype is not goal.dtype or (x.shape != goal.shape and known.shape != goal.shape):
            return None
        return tape.equation(primitive, (operands[0], atom), goal, {})


def _linear_tangent(primitive: Primitive, operands: Sequence[Any], moved: Any, out: Any, params: dict) -> Any:
    """A linear operation on tangents, `moved` among them; on a tape its type is that of `out`."""
    tape: Any = moved.level if type(moved) is Var else None
    if tape is not None and tape.residuals is not None and not primitive.multiple:
        for a in operands:
            if isinstance(a, Traced) and a.level is not tape:
                break  # of a level further in, perhaps, which has its own rule
        else:
            return tape.equation(primitive, tuple(map(tape.atom, operands)), type_of(out), params)
    return bind(primitive, *operands, **params)
