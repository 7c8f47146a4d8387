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

    cts = dict(start or {})
    for atom, ct in zip(outputs, cotangents, strict=True):
        if type(atom) is Var and atom not in values:
            _accumulate(cts, atom, ct)
    while equations:
        equation = equations.pop()
        index = len(equations)
        if index not in constant:
            _transpose_equation(equation, values, cts)
        if index in dying:
            for var in dying[index]:
                del values[var]
    return [None if v in known else cts.pop(v, None) for v in inputs]


def _transpose_equation(equation: Equation, values: dict[Var, Any], cts: dict[Var, Any]) -> None:
    """From the cotangents of its outputs to those of its linear inputs."""
    primitive = equation.primitive
    given = [cts.pop(equation.outputs[0], None)]
    for v in equation.outputs[1:]:
        given.append(cts.pop(v, None))
    if given[0] is None and all(ct is None for ct in given):
        return
    if primitive.transpose is None:
        why = primitive.impossible.get("transpose", "it has no transpose rule")
        raise TypeError(f"{primitive.name} can't be transposed (reverse mode): {why}")
    args = [a.value if type(a) is Literal else values[a] if a in values else Linear(a.type) for a in equation.inputs]
    if primitive.multiple or primitive.update is not None:
        # An update's rule gets the list itself: it may overwrite the cotangent that nobody else holds.
        contributions = primitive.transpose(given, *args, **equation.params)
    else:
        contributions = primitive.transpose(given.pop(), *args, **equation.params)
    for atom, arg, contribution in zip(equation.inputs, args, contributions, strict=True):
        if contribution is not None and type(arg) is Linear:
            if atom in cts or type(contribution) is Accumulation:
                _accumulate(cts, atom, contribution)  # type: ignore[arg-type]
            else:
                cts[atom] = contribution  # type: ignore[index]


def _accumulate(cts: dict[Var, Any], var: Var, contribution: Any) -> None:
    """Add to the cotangent of a variable; in place where a contribution touches only some elements."""
    if type(contribution) is Accumulation:
        current = cts.pop(var, None)
        box = [zeros_like_type(var.type, real=True) if current is None else current]
        current = None
        cts[var] = bind_update(contribution.primitive, box, *contribution.args, **contribution.params)
    elif contribution is not None:
        cts[var] = add(cts.pop(var), contribution) if var in cts else contribution
