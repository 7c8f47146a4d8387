"""The Dual level: every value is a pair (primal, tangent), the notes' dual numbers.

With known tangents this is forward mode. With tangents that are variables of a linear Program being recorded it is
linearisation: the primal part runs outside, and what it leaves in the linear Program are the residuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Any

from wonderland.core.level import Level, Traced, bind, bind_update, is_alone
from wonderland.core.primitive import Primitive
from wonderland.core.program import Record, Tape, Var
from wonderland.core.types import PYTHON_SCALARS, ArrayType, Params, type_of
from wonderland.ops.elementwise import add, combine
from wonderland.ops.shape import zeros_like_type


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
    return out, combine(add, of_x, of_y, out)


def _linear_tangent(primitive: Primitive, operands: Sequence[Any], moved: Any, out: Any, params: dict) -> Any:
    """A linear operation on tangents, `moved` among them; on a tape its type is that of `out`."""
    if type(moved) is Var and type(moved.level) is Tape and not primitive.multiple:
        tape = moved.level
        for a in operands:
            if isinstance(a, Traced) and a.level is not tape:
                break  # of a level further in, perhaps, which has its own rule
        else:
            return tape.equation(primitive, tuple(map(tape.atom, operands)), type_of(out), params)
    return bind(primitive, *operands, **params)
