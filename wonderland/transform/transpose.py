"""Reverse mode is the transpose of a linear Program: cotangents flow from its outputs to its inputs.

Equations come in in forward order and are transposed in reverse, at whatever level the cotangents have; each residual
is dropped as soon as its last use has run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from math import prod
from typing import Any

from wonderland.core.level import bind_update
from wonderland.core.primitive import Accumulation
from wonderland.core.program import Equation, Literal, Program, Var
from wonderland.core.types import shape_of
from wonderland.ops.elementwise import add
from wonderland.ops.shape import zeros_like_type


def transpose(
    program: Program,
    known: dict[Var, Any],
    cotangents: Sequence[Any],
    start: dict[Var, Any] | None = None,
) -> list[Any]:
    """Cotangents of a linear Program's inputs, given those of its outputs (None is a structural zero).

    `known` has the values of the inputs that are not linear (residuals); their places in the result are None.
    `start` has cotangents of inputs that there are already, to be added to.
    """
    values = {**dict(program.constants), **known}
    linear = []
    for equation in program.equations:
        primitive, params = equation.primitive, equation.params
        inputs = tuple([Literal(values[a]) if a in values else a for a in equation.inputs])
        if not inputs or any(type(a) is Var for a in inputs):
            linear.append(Equation(primitive, inputs, equation.outputs, params))
            continue
        # It touches no linear value.
        out = primitive(*[a.value for a in inputs], **params)  # type: ignore[union-attr]
        values.update(zip(equation.outputs, out if primitive.multiple else (out,), strict=True))
    cts = dict(start or {})
    for atom, ct in zip(program.outputs, cotangents, strict=True):
        if type(atom) is Var and atom not in values:
            _accumulate(cts, atom, ct)
    for equation in reversed(linear):
        _transpose_equation(equation, cts)
    return [None if v in known else _take(cts, v) for v in program.inputs]


def pull_back(tape: Program, cotangents: Sequence[Any], consume: bool) -> list[Any]:
    """`transpose` for a Program from a tape: every equation is linear, and has its residuals with it.

    `consume` lets go of each equation, and so of its residuals, when it is used: the memory of a backward pass.
    """
    equations = list(tape.equations)
    if consume:
        tape.equations = ()
    cts: dict[Var, Any] = {}
    for atom, ct in zip(tape.outputs, cotangents, strict=True):
        if type(atom) is Var:
            _accumulate(cts, atom, ct)
    while equations:
        _transpose_equation(equations.pop(), cts)
    return [_take(cts, v) for v in tape.inputs]


def _transpose_equation(equation: Equation, cts: dict[Var, Any]) -> None:
    """From the cotangents of its outputs to those of its inputs that are variables; literals are its residuals."""
    primitive, inputs, params = equation.primitive, equation.inputs, equation.params
    if not equation.outputs:
        return  # a loop without tangents, or an effect: what it would have shown, a tangent, isn't there in reverse
    given = [_take(cts, equation.outputs[0])]
    if primitive.multiple:
        given += map(_take, repeat(cts), equation.outputs[1:])
    if given[0] is None and all(ct is None for ct in given):
        return
    rule: Any = primitive.transpose
    if rule is None:
        why = primitive.impossible.get("transpose", "it has no transpose rule")
        raise TypeError(f"{primitive.name} can't be transposed (reverse mode): {why}")
    if len(inputs) == 2 and not primitive.whole:  # as most have: no loops for these
        a, b = inputs
        x = a.value if type(a) is Literal else a.type
        y = b.value if type(b) is Literal else b.type
        for_a, for_b = rule(given.pop(), x, y, **params) if params else rule(given.pop(), x, y)
        if for_a is not None and type(a) is not Literal:
            _accumulate(cts, a, for_a)
        if for_b is not None and type(b) is not Literal:
            _accumulate(cts, b, for_b)
    elif len(inputs) == 1 and not primitive.whole:
        _accumulate(cts, inputs[0], rule(given.pop(), inputs[0].type, **params)[0])
    else:
        # An update's rule gets the list itself: it may overwrite the cotangent that nobody else holds.
        args = [a.value if type(a) is Literal else a.type for a in inputs]
        contributions = rule(given if primitive.whole else given.pop(), *args, **params)
        for a, contribution in zip(inputs, contributions, strict=True):
            if type(a) is not Literal:
                _accumulate(cts, a, contribution)


class _Waiting:
    """A cotangent, and small contributions to some of its elements that go on top once it is complete."""

    __slots__ = ("dense", "parts", "size")

    def __init__(self, dense: Any):
        self.dense = dense
        self.parts: list[Accumulation] = []
        self.size = 0


def _take(cts: dict[Var, Any], var: Var) -> Any:
    """The cotangent of a variable, complete, given away."""
    ct = cts.pop(var, None)
    if type(ct) is not _Waiting:
        return ct
    box = [zeros_like_type(var.type, real=True) if ct.dense is None else ct.dense]
    ct.dense = None
    for part in ct.parts:
        box = [bind_update(part.primitive, box, *part.args, **part.params)]
    return box.pop()


def _accumulate(cts: dict[Var, Any], var: Any, contribution: Any) -> None:
    """Add to the cotangent of a variable; in place where a contribution touches only some elements.

    One that touches few of them waits for what touches all: there is no array of zeros to fill and to add then.
    """
    if contribution is None:
        return
    if type(contribution) is Accumulation:
        current = cts.get(var)
        size = prod(shape_of(contribution.args[-1]))
        waiting = current if type(current) is _Waiting else _Waiting(None) if current is None else None
        if waiting is not None and 4 * (waiting.size + size) <= var.type.size:
            waiting.parts.append(contribution)
            waiting.size += size
            cts[var] = waiting
            return
        current = waiting = None
        box = [_take(cts, var)]
        if box[0] is None:
            box = [zeros_like_type(var.type, real=True)]
        cts[var] = bind_update(contribution.primitive, box, *contribution.args, **contribution.params)
    elif var not in cts:
        cts[var] = contribution
    elif type(cts[var]) is _Waiting:
        current = cts[var]
        current.dense = contribution if current.dense is None else add(current.dense, contribution)
    else:
        cts[var] = add(cts.pop(var), contribution)
