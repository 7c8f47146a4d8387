"""Programs: the notes' evaluation trace (Wengert list), typed and in single-assignment form.

`Record` (the level) writes one; `run` evaluates it at whatever level its arguments have, which is how every
transformation of a Program is done; `verify` checks it; `core.printing` prints it for people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from wonderland.core.forks import loading
from wonderland.core.later import Slot
from wonderland.core.level import Level, Traced, bind, bind_update, constant_copy
from wonderland.core.primitive import Primitive
from wonderland.core.types import ArrayType, Params, type_of

drawing: Slot[[Program, str], str] = Slot("to_dot")

class Var(Traced):
    """A variable of a Program: a type and no value."""

    __slots__ = ("type",)
    type: ArrayType  # type: ignore[override]

    def __init__(self, level: Level | None, type: ArrayType):
        self.level = level  # type: ignore[assignment]
        self.type = type  # type: ignore[override]

    def __repr__(self) -> str:
        return f"Var({self.type})"


class Literal:
    """An operand written into an equation: a Python or NumPy scalar, or, on a tape, a residual."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value: Any = value

    @property
    def type(self) -> ArrayType:
        return type_of(self.value)

    def __repr__(self) -> str:
        if self.type.shape or not isinstance(self.value, np.generic):
            return repr(self.value) if self.type.weak else f"<{self.type}>"
        return repr(self.value.item())


Atom = Var | Literal


class Equation:
    """`outputs = primitive(*inputs, **params)`."""

    __slots__ = ("inputs", "outputs", "params", "primitive")

    def __init__(self, primitive: Primitive, inputs: tuple[Atom, ...], outputs: tuple[Var, ...], params: Params):
        self.primitive: Primitive = primitive
        self.inputs: tuple[Atom, ...] = inputs
        self.outputs: tuple[Var, ...] = outputs
        self.params: Params = params

    def has_effects(self) -> bool:
        return self.primitive.effects(self.params)

    def __repr__(self) -> str:
        return _printer().equation(self)


class Program:
    """Inputs, equations in order, outputs, and constants: variables whose values are known arrays."""

    def __init__(
        self,
        inputs: Sequence[Var],
        equations: Sequence[Equation],
        outputs: Sequence[Atom],
        constants: Sequence[tuple[Var, Any]] = (),
    ):
        self.inputs: tuple[Var, ...] = tuple(inputs)
        self.equations: tuple[Equation, ...] = tuple(equations)
        self.outputs: tuple[Atom, ...] = tuple(outputs)
        self.constants: tuple[tuple[Var, Any], ...] = tuple(constants)
        self.cache: dict[Any, Any] = {}  # transformed and compiled forms live with what they come from
        self._steps: list | None = None

    @property
    def input_types(self) -> tuple[ArrayType, ...]:
        return tuple(v.type for v in self.inputs)

    @property
    def output_types(self) -> tuple[ArrayType, ...]:
        return tuple(v.type for v in self.outputs)

    @cached_property
    def effects(self) -> bool:
        """Does it do something besides computing its outputs?"""
        return any(equation.has_effects() for equation in self.equations)

    def steps(self) -> list[tuple[Equation, tuple[Var, ...]]]:
        """Each equation with the variables that die with it."""
        if self._steps is None:
            seen: set = {a for a in self.outputs if isinstance(a, Var)}
            steps = []
            for equation in reversed(self.equations):
                dead = [v for v in equation.outputs if v not in seen]
                for a in equation.inputs:
                    if isinstance(a, Var) and a not in seen:
                        seen.add(a)
                        dead.append(a)
                steps.append((equation, tuple(dead)))
            self._steps = steps[::-1]
        return self._steps

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        return run(self, args)

    def to_dot(self, name: str = "program") -> str:
        """The computational graph in Graphviz's language: inputs, equations and outputs as nodes."""
        return drawing(self, name)

    def __repr__(self) -> str:
        return _printer().program(self)


def _printer() -> Any:
    with loading():
        from wonderland.core.printing import Printer  # which knows equations
    return Printer()


def run(program: Program, args: Sequence[Any], consume: bool = False) -> tuple[Any, ...]:
    """Evaluate a Program on values of any level. Each value is dropped after its last use.

    With `consume`, `args` is a list that gives its values away: what nobody else holds may be updated in place.
    """
    env: dict[Any, Any] = dict(program.constants)
    env.update(zip(program.inputs, args, strict=True))
    if consume:
        args.clear()  # type: ignore[attr-defined]
    for equation, dead in program.steps():
        primitive = equation.primitive
        if primitive.update is not None and type(equation.inputs[0]) is Var and equation.inputs[0] in dead:
            rest = [a.value if isinstance(a, Literal) else env[a] for a in equation.inputs[1:]]
            box = [env.pop(equation.inputs[0])]
            out = bind_update(primitive, box, *rest, **equation.params)
        else:
            values = [a.value if isinstance(a, Literal) else env[a] for a in equation.inputs]
            out = bind(primitive, *values, **equation.params)
            values = None
        if primitive.multiple:
            env.update(zip(equation.outputs, out, strict=True))
        else:
            env[equation.outputs[0]] = out
        out = None
        for v in dead:
            env.pop(v, None)
    return tuple(a.value if isinstance(a, Literal) else env[a] for a in program.outputs)


# array -> the primitive, operands and params that it is better written as than held; or None
COMPUTED: list[Callable[[Any], tuple[Primitive, tuple[Any, ...], Params] | None]] = []


class Record(Level):
    """The level that writes a Program: each value is a variable.

    A captured array becomes a constant: itself, by reference, if the recorded function didn't change it meanwhile. With
    `residuals` it is a tape, the linear part of a function that runs on values: captured is what those say. `first` is
    asked about each operation: what it returns, if not None, stands for the result, and no equation is written.
    """

    __slots__ = ("captured", "effects", "equations", "first", "name", "once", "residuals")

    def __init__(
        self, name: str = "a recorded function (jit, trace, or a loop body)", effects: bool = True,
        residuals: Any = None, first: Callable[[Primitive, tuple[Any, ...], Params], Any] | None = None,
    ):  # fmt: skip
        self.name: str = name
        self.effects: bool = effects
        self.residuals: Any = residuals  # a `transform.dual.Residuals`
        self.first: Callable | None = first
        self.once: bool = residuals is None
        self.equations: list[Equation] = []
        self.captured: dict[int, tuple[Any, Any, Any]] = {}  # id -> (value, snapshot, variable or literal)

    def variable(self, type: ArrayType) -> Var:
        return Var(self, type)

    def atom(self, value: Any) -> Atom:
        """An operand of an equation: our own variable, a literal, or a captured value."""
        if type(value) is Var and value.level is self:
            return value
        if not isinstance(value, (np.ndarray, Traced)):
            return Literal(value)
        if self.residuals is not None:
            return self.residuals.atom(value, self)
        for written in COMPUTED:
            found = written(value)
            if found is not None:
                return self.process(*found)
        known = self.captured.get(id(value))
        if known is not None and (known[1] is None or same_bytes(known[0], known[1])):
            return known[2]
        snapshot = None
        if isinstance(value, np.ndarray) and value.flags.writeable:
            snapshot = constant_copy(value)
            if known is not None:  # changed since it was captured first: from here on it is another constant
                value, snapshot = snapshot, None
        var = Var(self, type_of(value))
        self.captured[id(value)] = (value, snapshot, var)
        return var

    def process(self, primitive: Primitive, args: tuple[Any, ...], params: Params) -> Any:
        if self.first is not None and (found := self.first(primitive, args, params)) is not None:
            return found
        atoms = tuple(map(self.atom, args))
        types = primitive.infer(*[a.type for a in atoms], **params)
        if primitive.multiple:
            outputs = tuple(map(self.variable, types))
            self.equations.append(Equation(primitive, atoms, outputs, params))
            return outputs
        return self.equation(primitive, atoms, types, params)

    def equation(self, primitive: Primitive, atoms: tuple[Atom, ...], type: ArrayType, params: Params) -> Var:
        """Write an equation with one result, of a known type."""
        out = Var(self, type)
        self.equations.append(Equation(primitive, atoms, (out,), params))
        return out

    def finish(self, inputs: Sequence[Var], outputs: Sequence[Any], prune: bool = True) -> Program:
        """Freeze what was recorded; constants that weren't changed meanwhile are kept by reference.

        What no output needs is dropped, unless the Program is used once and then thrown away.
        """
        atoms = [self.atom(o) for o in outputs]
        constants = []
        for value, snapshot, atom in self.captured.values():
            if type(atom) is Var:
                changed = snapshot is not None and not same_bytes(value, snapshot)
                constants.append((atom, snapshot if changed else value))
        program = Program(inputs, self.equations, atoms, constants)
        self.equations, self.captured = [], {}
        return eliminate_dead(program) if prune else program


def same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    """Do two arrays of one type hold the same numbers, bit by bit?"""
    if a.flags.c_contiguous and b.flags.c_contiguous:
        return np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))
    return a.tobytes() == b.tobytes()


def eliminate_dead(program: Program, effects: bool = True) -> Program:
    """Drop equations and constants that no output needs; those with effects only if told to."""
    live = {a for a in program.outputs if isinstance(a, Var)}
    kept = []
    for equation in reversed(program.equations):
        if any(v in live for v in equation.outputs) or (effects and equation.has_effects()):
            kept.append(equation)
            live.update([a for a in equation.inputs if type(a) is Var])
    constants = [(v, value) for v, value in program.constants if v in live]
    return Program(program.inputs, kept[::-1], program.outputs, constants)


def hoist(program: Program) -> tuple[Program, list[Any]]:
    """Turn constants into leading inputs: a Program without constants, and their values."""
    if not program.constants:
        return program, []
    variables, values = zip(*program.constants, strict=True)
    return Program((*variables, *program.inputs), program.equations, program.outputs), list(values)


def subprograms(equation: Equation) -> Iterator[Program]:
    """The Programs held in an equation's params."""
    for value in equation.params.values():
        if isinstance(value, Program):
            yield value
        elif isinstance(value, tuple):
            yield from (v for v in value if isinstance(v, Program))


class ProgramError(AssertionError):
    """A Program that breaks the rules; the message shows the equations around the fault."""


def verify(program: Program, linear_in: Sequence[Var] = ()) -> Program:
    """Check scoping, types and, for the inputs `linear_in`, linearity; returns the Program."""
    defined: set = set()
    tainted = set(linear_in)

    def fail(index: int, why: str) -> None:
        low = max(0, index - 2)
        printer = _printer()
        lines = [
            f"{'-->' if i == index else '   '} {printer.equation(program.equations[i])}"
            for i in range(low, min(len(program.equations), index + 3))
        ]
        raise ProgramError("\n".join([why, *lines]))

    for v in (*program.inputs, *(v for v, _ in program.constants)):
        if v in defined:
            raise ProgramError(f"an input or constant {v} is defined twice")
        defined.add(v)
    for v, value in program.constants:
        if type_of(value) != v.type:
            raise ProgramError(f"constant {v} has a value of type {type_of(value)}")
    for index, equation in enumerate(program.equations):
        for a in equation.inputs:
            if isinstance(a, Var) and a not in defined:
                fail(index, f"{equation.primitive} reads a variable {a} that isn't defined here")
        types = equation.primitive.infer(*(a.type for a in equation.inputs), **equation.params)
        types = tuple(types) if equation.primitive.multiple else (types,)
        actual = tuple(v.type for v in equation.outputs)
        if types != actual:
            fail(index, f"{equation.primitive} should give {types}, not {actual}")
        for v in equation.outputs:
            if v in defined:
                fail(index, f"{v} is assigned twice")
            defined.add(v)
        for sub in subprograms(equation):
            if any(isinstance(value, Traced) for _, value in sub.constants):
                fail(
                    index, f"the Program inside {equation.primitive} refers to values outside; they should be operands"
                )
            verify(sub)
        touched = [i for i, a in enumerate(equation.inputs) if isinstance(a, Var) and a in tainted]
        if touched and equation.outputs:
            p = equation.primitive
            allowed = {i % len(equation.inputs) for i in p.linear}
            one_factor = p.bilinear and len(touched) == 1
            declared_by_rule = p.transpose and not (p.linear or p.bilinear)
            if not (set(touched) <= allowed or one_factor or declared_by_rule):
                fail(index, f"{p} isn't linear in operands {touched}")
            tainted.update(equation.outputs)
    for a in program.outputs:
        if isinstance(a, Var) and a not in defined:
            raise ProgramError(f"an output {a} isn't defined")
    return program
