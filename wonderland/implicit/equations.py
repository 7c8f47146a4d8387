"""Equations F(x, theta) = 0 between vectors: their residual, and its derivatives, from a function of trees.

Values come in and go out, traced or not. The function is recorded once, and the Programs of its derivatives are run at
every step of a solver. One that decides by values (Python's `if`) can't be recorded: where there are values, it is
differentiated at every step instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from wonderland.core.errors import NoValueError
from wonderland.core.level import Traced, freeze
from wonderland.core.program import Equation, Program, Var
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.implicit.straight import evaluated
from wonderland.ops.dot import dot
from wonderland.ops.shape import transpose
from wonderland.transform.batch import Batch, BatchedValue, materialize
from wonderland.transform.derivatives import quiet
from wonderland.transform.dual import Dual
from wonderland.transform.programs import batch_program, jvp_program, pick, record, scatter_flags

Flat = Callable[..., Any]  # (*theta, x) -> a vector, on values


@lru_cache(maxsize=128)
def _shared(key: Any) -> dict[Any, Program | None]:
    """The Programs of functions that are the same."""
    return {}


@lru_cache(maxsize=16)
def _identity(n: int, dtype: np.dtype) -> np.ndarray:
    """One object, so that Jacobians of the same function at the same point are seen to be the same."""
    return freeze(np.eye(n, dtype=dtype))


def with_units(program: Program) -> Program:
    """The same for a last input that is the identity: a matrix times that is the matrix, and needs no product."""
    if "with units" not in program.cache:
        every = program.inputs[-1]
        equations = [_without_product(e, every) for e in program.equations]
        program.cache["with units"] = Program(program.inputs, equations, program.outputs, program.constants)
    return program.cache["with units"]


def _without_product(equation: Equation, every: Var) -> Equation:
    if equation.primitive is not dot or every not in equation.inputs:
        return equation
    side = equation.inputs.index(every)
    other, contracted = equation.inputs[1 - side], equation.params["contract"][1 - side]
    if any(equation.params["batch"]) or len(contracted) != 1 or other.type.dtype != every.type.dtype:
        return equation
    rest = [i for i in range(len(other.type.shape)) if i not in contracted]
    permutation = (*rest, *contracted) if side else (*contracted, *rest)
    return Equation(transpose, (other,), equation.outputs, {"permutation": permutation})


class Equations:
    """F(x, theta) = 0 for vectors x (n,) and F (m,), by a function `(*theta, x) -> F` of values.

    If they are `elementwise`, F_i depends on x_i alone. Functions with the same `key`, if it isn't None, are the same,
    and share what is recorded of one of them.
    """

    def __init__(self, function: Flat, name: str, elementwise: bool = False, key: Any = None):
        self.function: Flat = function
        self.name: str = name
        self.elementwise: bool = elementwise
        self._programs: dict[Any, Program | None] = {} if key is None else _shared(key)
        self._theta: Any = None
        self._shape: Any = None
        self._program: Program | None = None

    def program(self, theta: Sequence[Any], x: Any) -> Program | None:
        """Of values of these types; None if it can't be recorded."""
        if theta is self._theta and shape_of(x) == self._shape:  # the next step of a solver
            return self._program
        types = tuple(ArrayType(t.shape, t.dtype) for t in map(type_of, (*theta, x)))
        self._theta, self._shape = theta, shape_of(x)
        self._program = self._recorded(types, theta, x)
        return self._program

    def _recorded(self, types: tuple[ArrayType, ...], theta: Sequence[Any], x: Any) -> Program | None:
        if types not in self._programs:
            try:
                with quiet():
                    self._programs[types] = record(lambda *args: [self.function(*args)], types, self.name)
            except NoValueError:
                if any(isinstance(v, Traced) and v.level.below(v) is None for v in (*theta, x)):
                    raise
                self._programs[types] = None
        return self._programs[types]

    def residual(self, theta: Sequence[Any], x: Any) -> Any:
        """F(x, theta)."""
        program = self.program(theta, x)
        return self.function(*theta, x) if program is None else evaluated(program, [*theta, x])[0]

    def pushed(self, theta: Sequence[Any], x: Any, changes: Sequence[Any], dx: Any = None) -> tuple[Any, Any]:
        """F and its change along changes of theta and x, of which None are zero; None for no change at all."""
        tangents = [*changes, dx]
        program = self.program(theta, x)
        if program is None:
            with Dual() as level:
                lifted = [level.lift(v, t) for v, t in zip((*theta, x), tangents, strict=True)]
                return level.split(self.function(*lifted))
        nonzero = tuple(t is not None for t in tangents)
        moved, flags = jvp_program(program, nonzero, (False,))
        value, *rest = evaluated(moved, [*theta, x, *pick(tangents, nonzero)])
        return value, scatter_flags(rest, flags)[0]

    def jacobian(self, theta: Sequence[Any], x: Any) -> tuple[Any, Any]:
        """F (m,) and dF/dx (m, n)."""
        (n,), program = shape_of(x), self.program(theta, x)
        every = _identity(n, type_of(x).dtype)
        if program is None:
            with Batch(n) as level:
                value, change = self.pushed(theta, x, [None] * len(theta), BatchedValue(level, every))
                value, rows = level.split(value)[0], materialize(n, *level.split(change))
            return value, transpose(rows, permutation=(1, 0))
        none = (False,) * len(theta)
        moved, _ = jvp_program(program, (*none, True), (True,))
        batched, _ = batch_program(moved, n, (*none, False, True), (False, True))
        value, rows = evaluated(with_units(batched), [*theta, x, every])
        return value, rows.T if isinstance(rows, np.ndarray) else transpose(rows, permutation=(1, 0))
