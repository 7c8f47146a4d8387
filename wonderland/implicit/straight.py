"""Programs on plain arrays, many times over: what `core.program.run` does, without looking at levels.

A solver evaluates the same few equations on small arrays at every step. Nearly all of their time would go into finding
out, operation by operation, that nothing is traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from wonderland.core.forks import loading
from wonderland.core.level import Traced
from wonderland.core.program import Literal, Program, run
from wonderland.core.types import PYTHON_SCALARS

OFTEN = 50  # evaluations


class Straight:
    """A Program as a list of functions, and of the numbers of the values that each takes and gives."""

    uses: int = 0

    def __init__(self, program: Program):
        self.values: list[Any] = [value for _, value in program.constants]
        places = {v: i for i, (v, _) in enumerate(program.constants)}

        def place(atom: Any) -> int:
            if type(atom) is Literal:
                self.values.append(atom.value)
                return len(self.values) - 1
            return places[atom]

        def new(v: Any) -> int:
            self.values.append(None)
            places[v] = len(self.values) - 1
            return places[v]

        self.inputs: list[int] = [new(v) for v in program.inputs]
        self.steps: list[tuple] = []
        for equation in program.equations:
            primitive, operands = equation.primitive, [place(a) for a in equation.inputs]
            weak = [type(a) is Literal and type(a.value) in PYTHON_SCALARS for a in equation.inputs]
            f = primitive if operands and all(weak) else primitive.evaluate  # numbers of Python stay what they are
            f = partial(f, **equation.params) if equation.params else f
            outs = [new(v) for v in equation.outputs]
            self.steps.append((f, operands, outs if primitive.multiple else outs[0], primitive.multiple))
        self.outputs: list[int] = [place(a) for a in program.outputs]

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        values = self.values.copy()
        for i, value in zip(self.inputs, args, strict=True):
            values[i] = value
        for f, operands, out, multiple in self.steps:
            found = f(*[values[i] for i in operands])
            if multiple:
                for i, value in zip(out, found, strict=True):
                    values[i] = value
            else:
                values[out] = found
        return [values[i] for i in self.outputs]


def evaluated(program: Program, args: Sequence[Any]) -> Sequence[Any]:
    """`run(program, args)`, the shorter way if no value is traced."""
    for value in args:
        if isinstance(value, Traced):
            return run(program, args)
    straight = program.cache.get("straight")
    if straight is None:
        if any(isinstance(value, Traced) for _, value in program.constants):
            return run(program, args)
        straight = program.cache["straight"] = Straight(program)
    straight.uses += 1
    if straight.uses == OFTEN:  # by now it is worth the millisecond that it takes, and the same to the bit
        with loading():
            from wonderland.compile.passes import inline, simplified

        straight = program.cache["straight"] = Straight(simplified(inline(program)))
        straight.uses = OFTEN
    return straight(args)
