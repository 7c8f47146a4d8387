"""`cost`: how many operations a Program takes, and how many bytes it moves, counted and not measured.

Each equation is counted by its primitive's `cost` rule, as written: before the compiler folds, fuses and drops
anything. A loop counts as often as it runs, a branch as its dearest side, what is inside a jitted function as if it
were outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from wonderland.core.errors import ArgumentError
from wonderland.core.program import Equation, Program, Var
from wonderland.ops.work import Runs, Work, bytes_of, each
from wonderland.transform.derivatives import trace


@dataclass(frozen=True, repr=False)
class Cost:
    """Numbers of operations and bytes; `per_trip` if there is a loop of which only the run knows how often it runs.

    Multiplications are products and quotients, additions are sums, differences and changes of sign, calls are all
    other functions of numbers: exp, sqrt, pow, comparisons, selections.
    """

    multiplications: int = 0
    additions: int = 0
    calls: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    per_trip: bool = False

    @property
    def operations(self) -> int:
        """Multiplications, additions and calls together."""
        return self.multiplications + self.additions + self.calls

    def __add__(self, other: Cost) -> Cost:
        return self._with(other, lambda a, b: a + b)

    def _with(self, other: Cost, f: Callable) -> Cost:
        counts = (f(getattr(self, name), getattr(other, name)) for name in _COUNTS)
        return Cost(*counts, per_trip=self.per_trip or other.per_trip)

    def _times(self, n: int) -> Cost:
        return Cost(*(n * getattr(self, name) for name in _COUNTS), per_trip=self.per_trip)

    def __repr__(self) -> str:
        lines = [f"{name.replace('_', ' '):<15}  {getattr(self, name):>15,}" for name in _COUNTS]
        if self.per_trip:
            lines.append("(with one trip through each loop of which only the run knows how often it runs)")
        return "\n".join(lines)


_COUNTS = ("multiplications", "additions", "calls", "bytes_read", "bytes_written")


def cost(program: Program | Callable, *args: Any, **kwargs: Any) -> Cost:
    """Operations and bytes of a Program, or of a function for these arguments, of which only the types matter.

    `wl.cost(wl.grad(f), x).multiplications`. A `while_loop` is counted as one trip, which the result says.
    """
    if isinstance(program, Program):
        if args or kwargs:
            raise ArgumentError("cost: a Program knows the types of its arguments: wl.cost(program)")
    elif callable(program):
        program = trace(program)(*args, **kwargs)
    else:
        raise ArgumentError(
            f"cost takes a Program, or a function and its arguments, not {type(program).__name__}: wl.cost(f, x)"
        )
    if "cost" not in program.cache:
        program.cache["cost"] = sum((equation_cost(e) for e in program.equations), Cost())
    return program.cache["cost"]


def equation_cost(equation: Equation) -> Cost:
    """Of one equation."""
    primitive, params = equation.primitive, equation.params
    if primitive.inline is not None:
        return cost(primitive.inline(params))
    types, outs = tuple(a.type for a in equation.inputs), tuple(v.type for v in equation.outputs)
    rule = primitive.cost or (each(calls=1) if primitive.elementwise else None)
    found = Work() if rule is None else rule(types, outs, params)
    if isinstance(found, Runs):
        costs = [cost(program) for program in found.programs]
        once = reduce(lambda a, b: a._with(b, max), costs) if found.either else sum(costs, Cost())
        return once + Cost(per_trip=True) if found.times is None else once._times(found.times)
    read, written = found.read, found.written
    if read is None:  # each operand once; numbers written into the equation are no memory
        arrays = {a for a in equation.inputs if isinstance(a, Var) or a.type.shape}
        read = sum(bytes_of(a.type) for a in arrays)
    if written is None:
        written = sum(map(bytes_of, outs))
    return Cost(found.multiplications, found.additions, found.calls, read, written)
