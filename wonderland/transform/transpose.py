"""Reverse mode is the transpose of a linear Program: cotangents flow from its outputs to its inputs.

Equations come in in forward order and are transposed in reverse, at whatever level the cotangents have; each residual
is dropped as soon as its last use has run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wonderland.core.level import bind_update
from wonderland.core.primitive import Accumulation, Linear
from wonderland.core.program import Equation, Literal, Program, Var
from wonderland.ops.elementwise import add
from wonderland.ops.shape import zeros_like_type


class Cotangents:
    """Cotangents of variables, accumulated; in place where a contribution touches only some elements."""

    def __init__(self, start: dict[Var, Any]) -> None:
        self.values: dict[Var, Any] = dict(start)

    def add(self, var: Var, contribution: Any) -> None:
        if contribution is None:
            return
        if type(contribution) is Accumulation:
            current = self.values.pop(var, None)
            box = [zeros_like_type(var.type, real=True) if current is None else current]
            current = None
            self.values[var] = bind_update(contribution.primitive, box, *contribution.args, **contribution.params)
        elif var in self.values:
            self.values[var] = add(self.values.pop(var), contribution)
        else:
            self.values[var] = contribution


def transpose(
    program: Program,
    known: dict[Var, Any],
    cotangents: Sequence[Any],
    consume: bool = False,
    start: dict[Var, Any] | None = None,
) -> list:
    """Cotangents of a linear Program's inputs, given those of its outputs (None is a structural zero).

    `known` has the values of the inputs that are not linear (residuals); their places in the result are None.
    `consume` lets go of the Program's equations and constants as they are used: the memory of a backward pass.
    `start` has cotangents of inputs that there are already, to be added to.
    """
    values = {**dict(program.constants), **known}
    equations: list[Equation] = list(program.equations)
    dying: dict[int, list[Var]] = {}  # equation -> the residuals whose last use in the backward pass it is
    constant = set()  # equations that touch no linear value: evaluated first (they are rare)
    seen: set[Var] = set()
    for i, equation in enumerate(equations):
        linear = not equation.inputs
        for a in equation.inputs:
            if type(a) is Var:
                if a not in values:
                    linear = True
                elif a not in seen:
                    seen.add(a)
                    dying.setdefault(i, []).append(a)
        if not linear:
            args = [a.value if type(a) is Literal else values[a] for a in equation.inputs]
            out = equation.primitive(*args, **equation.params)
            values.update(zip(equation.outputs, out if equation.primitive.multiple else (out,), strict=True))
            constant.add(i)
    inputs, outputs = program.inputs, program.outputs
    if consume:
        program.equations, program.constants, program._steps = (), (), None

    account = Cotangents(start or {})
    for atom, ct in zip(outputs, cotangents, strict=True):
        if isinstance(atom, Var) and atom not in values:
            account.add(atom, ct)
    while equations:
        equation = equations.pop()
        index = len(equations)
        if index not in constant:
            _transpose_equation(equation, values, account)
        if index in dying:
            for var in dying[index]:
                del values[var]
    return [None if v in known else account.values.pop(v, None) for v in inputs]


def _transpose_equation(equation: Equation, values: dict[Var, Any], account: Cotangents) -> None:
    primitive = equation.primitive
    cts = [account.values.pop(v, None) for v in equation.outputs]
    if cts[0] is None and all(ct is None for ct in cts):
        return
    if primitive.transpose is None:
        why = primitive.impossible.get("transpose", "it has no transpose rule")
        raise TypeError(f"{primitive.name} can't be transposed (reverse mode): {why}")
    args = [a.value if type(a) is Literal else values[a] if a in values else Linear(a.type) for a in equation.inputs]
    # An update's rule gets the list itself: it may overwrite the cotangent that nobody else holds.
    whole = primitive.multiple or primitive.update is not None
    contributions = primitive.transpose(cts if whole else cts[0], *args, **equation.params)
    cts.clear()
    for atom, arg, contribution in zip(equation.inputs, args, contributions, strict=True):
        if contribution is not None and type(arg) is Linear:
            account.add(atom, contribution)  # type: ignore[arg-type]
