"""From the user's body functions to closed Programs: captured values become leading operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, LostDerivativeError, check_function
from wonderland.core.functions import checked_write, mutable_leaves, read_again
from wonderland.core.level import _state, floors
from wonderland.core.program import (
    Equation,
    Program,
    Record,
    Var,
    eliminate_dead,
    hoist,
    run,
    subprograms,
)
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, promote, shape_of, type_of
from wonderland.ops.elementwise import lt, sub, where
from wonderland.ops.index import gather
from wonderland.ops.reduce import max as reduce_max
from wonderland.ops.shape import convert, reshape
from wonderland.transform.checkpoint import silent
from wonderland.transform.closures import unwritten
from wonderland.transform.programs import linearize_program


class BranchRecord(Record):
    """Records what may not run at all: all that is computed in it belongs to it, even from outer values alone."""

    __slots__ = ("around", "outer_values")

    around: Any

    def __enter__(self) -> Any:
        super().__enter__()
        self.around, _state.floor = _state.floor, self
        floors.append(None)
        self.outer_values: dict[Var, Any] = {}
        return self

    def __exit__(self, *exc: object) -> None:
        _state.floor = self.around
        floors.pop()
        super().__exit__(*exc)

    def below(self, value: Any) -> Any:
        """For decisions in Python: what follows from values outside is computed there, besides."""
        if value not in self.outer_values:
            given = {var: outside for outside, _, var in self.captured.values()}
            needed, equations = {value}, []
            for equation in reversed(self.equations):
                if not needed.isdisjoint(equation.outputs):
                    equations.append(equation)
                    needed.update(a for a in equation.inputs if isinstance(a, Var))
            needed.difference_update(given, *(e.outputs for e in equations))
            if needed or any(e.has_effects() for e in equations):
                return None
            _state.floor = self.around
            try:
                program = Program(list(given), equations[::-1], [value])
                self.outer_values[value] = run(program, list(given.values()))[0]
            finally:
                _state.floor = self
        return self.outer_values[value]


class RecordedBody:
    """A recorded body: its Program (captured values first), those values, and the structure of its result."""

    structure: Any
    program: Program
    captured: list[Any]

    def __init__(
        self, f: Callable, structure: tree.Structure, types: Sequence[ArrayType], name: str, recorder: type = Record,
        writes: bool = False,
    ):  # fmt: skip
        """If it `writes`, the leaves of mutable arguments, as the body leaves them, are outputs after the others."""
        check_function(f, name)
        level = recorder(f"the body of {name}")
        with level:
            inputs = [level.variable(t) for t in types]
            arguments = structure.unflatten([Tracer(v) for v in inputs])
            remedy = "Carry the arrays that change (return them from the body), and write them to it afterwards."
            with unwritten(f, f"the body of {name}", remedy):
                out = f(*arguments)
            objects = tree.objects(arguments) if writes else ()  # which are the caller's again in the result
            leaves, self.structure = tree.flatten(out, objects) if writes else tree.flatten_each(out)
            values = [unwrap(leaf) for leaf in leaves]
            self.types: list[ArrayType] = [type_of(v) for v in values]
            self.written: list[int] = []  # leaves of mutable arguments that the body changed
            for i, (new, old) in enumerate(zip(_after(arguments, structure), inputs, strict=True)):
                if new is not None and (found := unwrap(new)) is not old:
                    self.written.append(i)
                    values += [checked_write(old.type, found)] if writes else []
                elif new is not None and writes:
                    values.append(old)
            self.program, self.captured = hoist(level.finish(inputs, values))


def _after(arguments: Sequence[Any], structure: tree.Structure) -> list[Any]:
    """The leaves of mutable arguments as they are now; None for other ones."""
    if not structure.has_mutable:
        return [None] * structure.leaf_count
    found: list = []
    for part, before in zip(arguments, structure.children, strict=True):
        found += read_again(part, before) if before.has_mutable else [None] * before.leaf_count
    return [leaf if m else None for leaf, m in zip(found, mutable_leaves(structure), strict=True)]


def share_captured(programs: Sequence[Program], captured: Sequence[list[Any]]) -> tuple[list[Program], list[Any]]:
    """Give several Programs the same leading operands: all that any of them captured."""
    together = [value for values in captured for value in values]
    out, start = [], 0
    for program, values in zip(programs, captured, strict=True):
        own = program.inputs[: len(values)]
        head = [
            own[i - start] if start <= i < start + len(values) else _unused(value) for i, value in enumerate(together)
        ]
        out.append(Program((*head, *program.inputs[len(values) :]), program.equations, program.outputs))
        start += len(values)
    return out, together


def _unused(value: Any) -> Any:
    return Var(None, type_of(value))


def flat_operands(operands: Any, what: str, each: bool = False) -> tuple[list[Any], tree.Structure]:
    """Flatten operands (`each` by itself) and check that each leaf is an array or number."""
    leaves, structure = (tree.flatten_each if each else tree.flatten)(operands)
    values = [unwrap(leaf) for leaf in leaves]
    for i, v in enumerate(values):
        try:
            type_of(v)
        except TypeError as e:
            raise ArgumentError(f"{what}: leaf {i}: {e}") from None
    return values, structure


def strong(t: ArrayType) -> ArrayType:
    """The type without weakness: what a loop carries has a fixed dtype."""
    return ArrayType(t.shape, t.dtype)


def type_like(example: Any) -> ArrayType:
    """The strong type of an array, of a number, or of what has a shape and a dtype; a `TypeError` for anything else."""
    value = unwrap(example)
    try:
        return strong(type_of(value))
    except TypeError:
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            raise
        return ArrayType(tuple(value.shape), np.dtype(value.dtype))


def common_type(types: Sequence[ArrayType]) -> ArrayType:
    """The dtype several branches' results are converted to."""
    return ArrayType(types[0].shape, promote(*types)[0])


def may_raise(program: Program) -> bool:
    """Can running it raise, for some values, or do something else besides computing its outputs?"""
    if "may raise" not in program.cache:
        program.cache["may raise"] = program.effects or any(map(_equation_may_raise, program.equations))
    return program.cache["may raise"]


def _equation_may_raise(equation: Equation) -> bool:
    raises, inline = equation.primitive.raises, equation.primitive.inline
    if callable(raises):
        raises = raises(tuple(a.type for a in equation.inputs), equation.params)
    programs = subprograms(equation) if inline is None else [inline(equation.params)]
    return raises or any(map(may_raise, programs))


def taken_rows(mask: Any, values: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    """Batched operands for a Program that runs for all elements and must only see those of the mask.

    The others get the operands of the first in the mask: what is right for that one raises for none of them.
    """
    (size,) = shape_of(mask)
    from_the_end = np.arange(size - 1, -1, -1)
    first = sub(np.int64(size - 1), reduce_max(where(mask, from_the_end, np.int64(0)), axes=(0,)))
    return [
        where(reshape(mask, shape=(size, *(1,) * (len(shape_of(v)) - 1))), v, gather(v, first, axes=(0,))) if b else v
        for v, b in zip(values, batched, strict=True)
    ]


def any_of(mask: Any) -> Any:
    """Is an element of an array of bools true?"""
    shape = shape_of(mask)
    if 0 in shape:
        return np.False_
    return lt(0, reduce_max(convert(mask, dtype=np.dtype(np.int8)), axes=tuple(range(len(shape)))))


def linearize_body(
    program: Program, nonzero: tuple[Any, ...], fill: tuple[Any, ...]
) -> tuple[Program, Program, tuple[Any, ...], int]:
    """`linearize_program` for a Program inside another: every residual has a static shape.

    Residuals of a loop whose length only the run knows can't be stacked by a loop around it, nor be zeros in the other
    branch of a cond. What makes them moves into the linear Program, to be computed again there.
    """
    forward, linear, flags, count = linearize_program(program, nonzero, fill)
    outputs, residuals = forward.outputs[: len(flags)], forward.outputs[len(flags) :]
    if not any(None in r.type.shape for r in residuals):
        return forward, linear, flags, count
    made_by = {v: e for e in forward.equations for v in e.outputs}
    moved: dict[Any, None] = {}  # equations, in order

    def move(atom: Any) -> None:
        equation = made_by[atom]
        for a in equation.inputs:
            if None in a.type.shape:
                move(a)
        moved[equation] = None

    stands_for: dict[Any, Any] = {}  # variables of the forward Program -> of the linear one
    own = linear.inputs[:count]
    for atom, v in zip(residuals, own, strict=True):
        if None in atom.type.shape:
            move(atom)
        else:
            stands_for[atom] = v
    constants = dict(forward.constants)
    extra = []
    made = {v for equation in moved for v in equation.outputs}
    for equation in moved:
        for a in equation.inputs:
            if isinstance(a, Var) and a not in made and a not in constants and a not in stands_for:
                stands_for[a] = Var(None, a.type)
                extra.append(a)
    kept = [r for r in residuals if None not in r.type.shape]
    names = {v: atom for atom, v in zip(residuals, own, strict=True) if None in atom.type.shape}
    again = silent(Program((), list(moved), [v for e in moved for v in e.outputs]))
    if again.effects:
        raise LostDerivativeError(
            "a while_loop inside another loop or a branch uses what host_call returns, and it is differentiated: for "
            "that it would run again and call Python again, which may return something else. Give it a number of steps "
            "that is known beforehand (fori_loop or scan, with wl.cond where it is done), or give the function around "
            "it a rule (wl.custom_jvp)."
        )
    equations = [_renamed(e, stands_for) for e in again.equations] + [_renamed(e, names) for e in linear.equations]
    inputs = [*(stands_for[a] for a in (*kept, *extra)), *linear.inputs[count:]]
    used = [(v, constants[v]) for v in constants if any(v in e.inputs for e in moved)]
    new_forward = eliminate_dead(
        Program(forward.inputs, forward.equations, (*outputs, *kept, *extra), forward.constants)
    )
    new_linear = Program(inputs, equations, linear.outputs, (*linear.constants, *used))
    return new_forward, new_linear, flags, len(kept) + len(extra)


def _renamed(equation: Equation, names: dict) -> Equation:
    inputs = tuple(names.get(a, a) for a in equation.inputs)
    return Equation(equation.primitive, inputs, equation.outputs, equation.params)
