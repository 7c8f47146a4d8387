"""Linear systems as one primitive: values and a right-hand side come in, the solution goes out, differentiable.

It holds a `System`, four linear functions of the same values: A, its transpose, what
solves A x = b and what solves A' x = b. Its derivative needs nothing else, A dx = db - dA x, and so does its transpose:
the code of a solver is never differentiated, and what a solver keeps (a factorisation) is an operand of every solve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from wonderland.control.bodies import any_of
from wonderland.control.linear import LINEAR, NotLinear
from wonderland.core.primitive import Primitive
from wonderland.core.program import Program, run
from wonderland.core.types import ArrayType, type_of
from wonderland.ops.elementwise import ne, neg, where
from wonderland.ops.matrices import total
from wonderland.ops.pattern import known, propagate, unions
from wonderland.ops.work import Runs
from wonderland.transform.batch import materialize
from wonderland.transform.programs import batch_program, jvp_program, pick, record

Linear = Callable[..., Any]  # (*values, vector) -> vector, on values that may be traced
FORWARD, BACK, SOLVE, SOLVE_BACK = range(4)
_MIRROR = (BACK, FORWARD, SOLVE_BACK, SOLVE)


class System:
    """A x = b by functions of the same values: A, A', what solves A x = b, what solves A' x = b.

    They are recorded when their Programs are first needed: a solve with plain arrays records nothing.
    """

    def __init__(
        self, functions: Sequence[Linear], types: Sequence[ArrayType], rows: ArrayType, columns: ArrayType
    ):  # fmt: skip
        """`types` are those of the values, `rows` that of b and `columns` that of x."""
        self.functions, self.types = functions, tuple(types)
        self.rows, self.columns = rows, columns
        self.programs: dict[int, Program] = {}
        self.others: dict[Any, System] = {}  # batched ones

    def __repr__(self) -> str:
        return f"{self.columns} from {self.rows}"

    def program(self, which: int) -> Program:
        if which not in self.programs:
            vector = self.columns if which in (FORWARD, SOLVE_BACK) else self.rows
            f = self.functions[which]
            self.programs[which] = record(lambda *args: [f(*args)], [*self.types, vector])
        return self.programs[which]

    @cached_property
    def transposed(self) -> System:
        """A' x = b."""
        other = System([self.functions[i] for i in _MIRROR], self.types, self.columns, self.rows)
        other.__dict__["transposed"] = self
        return other

    def batched(self, size: int, flags: tuple[bool, ...]) -> System:
        """A batch of right-hand sides, and of those values that are flagged."""
        key = size, flags
        if key not in self.others:
            functions = [_of_batch(self, which, size, flags) for which in range(4)]
            more = lambda t: ArrayType((size, *t.shape), t.dtype)
            types = [more(t) if b else t for t, b in zip(self.types, flags, strict=True)]
            self.others[key] = System(functions, types, more(self.rows), more(self.columns))
        return self.others[key]


def _of_batch(system: System, which: int, size: int, flags: tuple[bool, ...]) -> Linear:
    def f(*args: Any) -> Any:
        program = batch_program(system.program(which), size, (*flags, True), (True,))[0]
        return run(program, args)[0]

    return f


def zero_for_zero(solve: Linear) -> Linear:
    """Exactly 0 for a right-hand side of zeros, whatever the matrix is: a system that nobody asks about may fail."""

    def f(*args: Any) -> Any:
        x = solve(*args)
        return where(any_of(ne(args[-1], 0)), x, np.zeros((), type_of(x).dtype)[()])

    return f


def _jvp(primals: tuple, tangents: tuple, system: System) -> tuple[Any, Any]:
    *values, _ = primals
    *changes, db = tangents
    x = linear_solve_p(*primals, system=system)
    nonzero = tuple(t is not None for t in changes)
    moved = None
    if any(nonzero):
        program, flags = jvp_program(system.program(FORWARD), (*nonzero, False), (False,))
        if flags[0]:  # what a solver keeps has no part in A
            # Where the solve failed, A' l = ct fails as well, unless ct is 0: then l x' must be 0, and not 0 NaN.
            there = where(ne(x, x), np.zeros((), type_of(x).dtype)[()], x)
            moved = neg(run(program, [*values, there, *pick(changes, nonzero)])[1])
    rest = total(db, moved)
    return x, None if rest is None else linear_solve_p(*values, rest, system=system)


def _transpose(ct: Any, *operands: Any, system: System) -> tuple:
    *values, _ = operands
    return (*(None for _ in values), linear_solve_p(*values, ct, system=system.transposed))


def _batch(size: int, args: tuple, batched: tuple, system: System) -> Any:
    *values, b = args
    new = system.batched(size, tuple(batched[:-1]))
    return linear_solve_p(*values, materialize(size, b, batched[-1]), system=new)


def _pattern(types: tuple, params: dict) -> Callable:
    """As the derivative's: A dx = db - dA x."""
    system: System = params["system"]
    numbers = [known(t) for t in types]

    def answer(reads: Sequence[Any]) -> tuple[list, list]:
        *values, b = reads
        moved, _ = propagate(system.program(FORWARD), [*values, None], [*numbers[:-1], None])
        (right,) = unions([[b], moved]) if moved[0] is not None or b is not None else (None,)
        nothing = [None] * len(values)
        return propagate(system.program(SOLVE), [*nothing, right], [*numbers[:-1], None])[0], []

    return answer


def _linearity(operands: Sequence[str], params: dict) -> Sequence[str]:
    if LINEAR in operands[:-1]:
        raise NotLinear("solves a linear system that depends on the input")
    return operands[-1:]


linear_solve_p: Primitive = Primitive(
    "linear_solve",
    lambda *operands, system: system.functions[SOLVE](*operands),
    lambda *types, system: system.columns,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    pattern=_pattern,
    inline=lambda params: params["system"].program(SOLVE),
    linearity=_linearity,
    cost=lambda types, outs, params: Runs([params["system"].program(SOLVE)]),
    impossible={"lower": "compiled code contains what solves it"},
)
linear_solve_p.pure = True  # known before anything is recorded: a solver has no effects
