"""Programs as text, for people: an equation a line, with types; Programs that it holds below it, indented."""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.program import Equation, Program, Var
from wonderland.core.types import Params


class Printer:
    """Names variables a, b, ..., z, ba, ... in order of appearance."""

    def __init__(self) -> None:
        self.names: dict[Var, str] = {}

    def name(self, atom: Any) -> str:
        if not isinstance(atom, Var):
            return repr(atom)
        if atom not in self.names:
            n, text = len(self.names), ""
            while n >= 0:
                text = chr(97 + n % 26) + text
                n = n // 26 - 1
            self.names[atom] = text
        return self.names[atom]

    def typed(self, atom: Any) -> str:
        return f"{self.name(atom)}:{atom.type}"

    def params(self, params: Params) -> tuple[str, list[Program]]:
        shown, programs = [], []
        for key, value in params.items():
            if isinstance(value, Program):
                programs.append(value)
            elif isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
                programs += [v for v in value if isinstance(v, Program)]
            elif callable(value) and not isinstance(value, (np.dtype, type)):
                shown.append(f"{key}={getattr(value, '__name__', '...')}")
            elif value is not None:
                shown.append(f"{key}={_show(value)}")
        return (f"[{' '.join(shown)}]" if shown else ""), programs

    def equation(self, equation: Equation, width: int = 0) -> str:
        left = ", ".join(self.typed(v) for v in equation.outputs)
        shown, programs = self.params(equation.params)
        right = " ".join([f"{equation.primitive.name}{shown}", *(self.name(a) for a in equation.inputs)])
        text = f"{left:<{width}} = {right}"
        for program in programs:
            text += "\n" + _indent(Printer().program(program), 6)
        return text

    def program(self, program: Program) -> str:
        inputs = ", ".join(self.typed(v) for v in program.inputs)
        lines = [f"program({inputs}):"]
        for v, value in program.constants:
            lines.append(f"  {self.typed(v)} := {_show_constant(value)}")
        lefts = [", ".join(self.typed(v) for v in e.outputs) for e in program.equations]
        width = min(max((len(text) for text in lefts), default=0), 32)
        lines += [_indent(self.equation(e, width), 2) for e in program.equations]
        lines.append("  return " + ", ".join(self.name(a) for a in program.outputs))
        return "\n".join(lines)


def _indent(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.split("\n"))


def _show(value: Any) -> str:
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, tuple):
        return "(" + ",".join(_show(v) for v in value) + ")"
    if isinstance(value, slice):
        parts = ["" if p is None else str(p) for p in (value.start, value.stop)]
        return ":".join(parts) + (f":{value.step}" if value.step not in (None, 1) else "")
    return str(value)


def _show_constant(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 6:
        return f"array of {value.size} values"
    return np.array2string(value, threshold=6) if isinstance(value, np.ndarray) else repr(value)
