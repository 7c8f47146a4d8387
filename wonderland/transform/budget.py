"""`grad(f, memory_budget=bytes)`: which part of a function to keep for the backward pass, and which to compute again.

The function's Program is cut into k segments, where little is alive. The first r of them are checkpointed: they keep
their inputs, or these and their matrix products; the others keep all their residuals. For each k the smallest r is
taken with which the gradient's Program stays within the budget, counted equation by equation (`peak_bytes`), and of all
these the choice that computes least again. That is a greedy search of a few dozen candidates, not an optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.primitive import Primitive
from wonderland.core.program import Equation, Program, Record, Var, run
from wonderland.core.types import ArrayType
from wonderland.ops.work import bytes_of, peak_bytes
from wonderland.transform.checkpoint import POLICIES, checkpoint_p, checkpointed_call, fingerprint, known
from wonderland.transform.cost import cost
from wonderland.transform.derivatives import named
from wonderland.transform.dual import DualValue
from wonderland.transform.programs import cached, linearize_program, record, transpose_program

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of segments


class Choice(NamedTuple):
    """Boundaries of segments among the equations, how many segments are computed again, and what is kept of those."""

    bounds: tuple[int, ...]
    again: int
    policy: str


def within(f: Callable, budget: Any) -> Callable:
    """`f`, whose reverse mode takes no more than `budget` bytes beside the arguments."""
    if isinstance(budget, bool) or not isinstance(budget, (int, float, np.integer, np.floating)) or not budget > 0:
        raise ArgumentError(f"memory_budget is a number of bytes, such as 200e6, not {budget!r}")
    choices: dict[Any, Choice] = {}

    def perform(program: Program, operands: Sequence[Any]) -> Sequence[Any]:
        program = known(_flat(program), within)
        nonzero = tuple(isinstance(v, DualValue) and v.tangent is not None for v in operands)
        key = (nonzero, fingerprint(program, literals=False))
        try:
            choice = choices.get(key)
        except TypeError:  # it has params that can't be compared
            choice = choose(program, nonzero, float(budget))
        if choice is None:
            choice = choices[key] = choose(program, nonzero, float(budget))
        return run(_assembled(program, choice), operands)

    def budgeted(*args: Any, **kwargs: Any) -> Any:
        return checkpointed_call(f, args, kwargs, perform)

    return named(budgeted, f, "within_budget", within, budget)


def opened(f: Callable[..., Sequence[Any]], types: Sequence[ArrayType]) -> Program:
    """`record`, with what a jitted function does in the place of its call."""

    def inside(primitive: Primitive, args: tuple, params: dict) -> Any:
        return run(primitive.inline(params), args) if primitive.transparent else None  # type: ignore[misc]

    with Record(first=inside) as level:
        inputs = [level.variable(t) for t in types]
        return level.finish(inputs, f(*inputs))


def _flat(program: Program) -> Program:
    if not any(e.primitive.transparent for e in program.equations):
        return program
    return opened(lambda *args: run(program, args), program.input_types)


def choose(program: Program, nonzero: tuple[Any, ...], budget: float) -> Choice:
    """The choice that computes least again within the budget."""
    whole = Choice((0, len(program.equations)), 0, "nothing")
    smallest = _peak(program, nonzero, whole)
    if smallest <= budget:
        return whole
    found: list[tuple[int, Choice]] = []
    for count in (c for c in COUNTS if c <= len(program.equations)):
        bounds = _bounds(program, count)
        for policy in ("products", "nothing"):
            low, high = 0, len(bounds) - 1  # with `low` segments computed again it takes too much, with `high` not
            peak = _peak(program, nonzero, Choice(bounds, high, policy))
            smallest = min(smallest, peak)
            if peak > budget:
                continue
            while high - low > 1:
                middle = (low + high) // 2
                fits = _peak(program, nonzero, Choice(bounds, middle, policy)) <= budget
                low, high = (low, middle) if fits else (middle, high)
            choice = Choice(bounds, high, policy)
            found.append((_recomputed(program, choice), choice))
    if not found:
        raise ArgumentError(
            f"memory_budget={budget:,.0f} bytes is too little for this function: the smallest that was found, by "
            f"computing everything again in segments, is {smallest:,.0f} bytes. A loop is best given its own "
            "`checkpoint=` (wl.scan), a batch be cut into smaller ones."
        )
    return min(found, key=lambda pair: pair[0])[1]


def _recomputed(program: Program, choice: Choice) -> int:
    """How many operations are computed again."""
    pieces = _pieces(program, choice.bounds)[: choice.again]
    keep = POLICIES[choice.policy]
    again = [Program(p.inputs, [e for e in p.equations if not keep(e)], (), p.constants) for p in pieces]
    return sum(cost(p).operations for p in again)


def _bounds(program: Program, count: int) -> tuple[int, ...]:
    """About equal parts of what is computed, cut where little is alive."""
    sizes = [sum(bytes_of(v.type) for v in e.outputs) for e in program.equations]
    done = np.cumsum([0, *sizes])
    last = {a: i for i, e in enumerate(program.equations) for a in e.inputs if isinstance(a, Var)}
    alive = np.zeros(len(sizes) + 1)  # bytes that cross the boundary before each equation
    for i, e in enumerate(program.equations):
        for v in e.outputs:
            alive[i + 1 : last.get(v, i) + 1] += bytes_of(v.type)
    bounds = [0]
    for k in range(1, count):
        near = np.flatnonzero(abs(done - done[-1] * k / count) <= done[-1] / count / 3)
        near = near[(near > bounds[-1]) & (near < len(sizes))]
        if near.size:
            distance = abs(done[near] - done[-1] * k / count)
            bounds.append(int(near[np.lexsort((distance, alive[near]))[0]]))
    return (*bounds, len(sizes))


@cached
def _pieces(program: Program, bounds: tuple[int, ...]) -> list[Program]:
    """The segments as Programs: from what they need of before to what is needed of them later."""
    constants = dict(program.constants)
    later = [{a for a in program.outputs if isinstance(a, Var)}]  # needed after each segment, last one first
    spans = list(pairwise(bounds))
    for start, stop in reversed(spans[1:]):
        used = {a for e in program.equations[start:stop] for a in e.inputs if isinstance(a, Var)}
        later.append(later[-1] | used)
    pieces = []
    for (start, stop), needed in zip(spans, reversed(later), strict=True):
        equations = program.equations[start:stop]
        made = {v for e in equations for v in e.outputs}
        read = dict.fromkeys(a for e in equations for a in e.inputs if isinstance(a, Var) and a not in made)
        inputs = [v for v in read if v not in constants]
        outputs = [v for e in equations for v in e.outputs if v in needed]
        pieces.append(Program(inputs, equations, outputs, [(v, constants[v]) for v in read if v in constants]))
    return pieces


@cached
def _assembled(program: Program, choice: Choice) -> Program:
    """The Program with its first segments as checkpointed calls."""
    equations: list[Equation] = []
    for number, piece in enumerate(_pieces(program, choice.bounds)):
        if number >= choice.again or not piece.outputs:
            equations += piece.equations
            continue
        params = {"program": piece, "policy": POLICIES[choice.policy]}
        outputs = tuple(a for a in piece.outputs if isinstance(a, Var))
        equations.append(Equation(checkpoint_p, piece.inputs, outputs, params))
    return Program(program.inputs, equations, program.outputs, program.constants)


@cached
def _peak(program: Program, nonzero: tuple, choice: Choice) -> int:
    """The memory of value and gradient, by a choice; with room for one more value, as operations take it on the way."""
    largest = max((bytes_of(v.type) for e in program.equations for v in e.outputs), default=0)
    return peak_bytes(_gradient(_assembled(program, choice), nonzero)) + largest


def _gradient(program: Program, nonzero: tuple) -> Program:
    """(inputs, cotangent of the first output) -> (outputs, cotangents)."""
    count = len(program.outputs)
    forward, linear, flags, kept = linearize_program(program, nonzero, (False,) * count)
    if not flags or not flags[0]:  # it doesn't depend on what is differentiated
        return program
    wanted = tuple(i == 0 for i in range(sum(flags)))
    back, _ = transpose_program(linear, (False,) * kept + (True,) * sum(nonzero), wanted, (False,) * sum(nonzero))

    def f(*args: Any) -> list:
        outs = run(forward, args[:-1])
        return [*outs[:count], *run(back, (*outs[count:], args[-1]))]

    return record(f, [*program.input_types, *linear.output_types[:1]])
