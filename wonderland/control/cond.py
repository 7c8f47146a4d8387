"""`cond` and `switch`: one of several Programs, chosen by a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.control.batched_loops import one_by_one
from wonderland.control.bodies import (
    BranchRecord,
    RecordedBody,
    any_of,
    common_type,
    flat_operands,
    linearize_body,
    may_raise,
    share_captured,
    taken_rows,
)
from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.functions import bound_object, handles, mutable_leaves, rebound, write_into
from wonderland.core.primitive import Primitive
from wonderland.core.program import Program, eliminate_dead, run
from wonderland.core.tracer import unwrap
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.elementwise import eq, invert, le, ne, where
from wonderland.ops.pattern import known
from wonderland.ops.shape import convert, reshape, zeros_like_type
from wonderland.ops.work import Runs
from wonderland.transform.holding import Holding
from wonderland.transform.programs import batch_program, cached, record


def cond(pred: Any, true_fn: Callable, false_fn: Callable, *operands: Any) -> Any:
    """`true_fn(*operands)` if `pred` else `false_fn(*operands)`; both must return the same structure and shapes."""
    array_type = type_of(unwrap(pred))
    if array_type.shape != ():
        raise ArgumentError(
            f"cond: the predicate must be a scalar, got {array_type}. For a decision per element use np.where."
        )
    pred = unwrap(pred)
    if array_type.dtype != bool:
        pred = ne(pred, 0)
    return _choose(pred, [false_fn, true_fn], operands, "cond")


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`, the index clamped to the branches there are."""
    array_type = type_of(unwrap(index))
    if array_type.shape != () or array_type.dtype.kind not in "iu":
        raise ArgumentError(f"switch: the index must be an integer scalar, got {array_type}")
    if not branches:
        raise ArgumentError("switch: at least one branch is needed")
    return _choose(unwrap(index), list(branches), operands, "switch")


def _choose(index: Any, functions: list[Callable], operands: tuple, name: str) -> Any:
    functions, operands = with_owners(functions, operands)
    values, structure = flat_operands(operands, name, each=True)
    types = [type_of(v) for v in values]
    bodies = [RecordedBody(f, structure, types, name, BranchRecord, structure.has_mutable) for f in functions]
    first = bodies[0]
    for body in bodies[1:]:
        if body.structure != first.structure or [t.shape for t in body.types] != [t.shape for t in first.types]:
            raise ArgumentError(
                f"{name}: the branches must return the same structure and shapes, got {body.structure} of "
                f"{body.types} and {first.structure} of {first.types}"
            )
    goals = [common_type(types) for types in zip(*(b.types for b in bodies), strict=True)]
    changed = sorted({i for body in bodies for i in body.written})
    programs = [_converted(_writing(b, len(goals), structure, changed), goals) for b in bodies]
    programs, captured = share_captured(programs, [b.captured for b in bodies])
    outs = list(cond_p(index, *captured, *values, branches=tuple(programs)))
    owners = tree.flatten_each(operands)[0]
    for i, value in zip(changed, outs[len(goals) :], strict=True):
        write_into(owners[i], value)
    return first.structure.unflatten(handles(outs[: len(goals)]), tree.objects(operands))


def with_owners(functions: list[Callable], operands: tuple) -> tuple[list[Callable], tuple]:
    """Functions that are mutable objects, or methods of them, as functions that get those as operands."""
    owners: list = []
    for owner in map(bound_object, functions):
        if owner is not None and not any(owner is other for other in (*owners, *operands)):
            owners.append(owner)
    places = [next((i for i, o in enumerate(owners) if o is bound_object(f)), None) for f in functions]

    def taking(f: Callable, place: int | None) -> Callable:
        if place is None:
            return lambda *args: f(*args[len(owners) :])
        return lambda *args: rebound(f, args[place])(*args[len(owners) :])

    if not owners:
        return functions, operands
    return [taking(f, place) for f, place in zip(functions, places, strict=True)], (*owners, *operands)


def _writing(body: RecordedBody, count: int, structure: tree.Structure, changed: Sequence[int]) -> Program:
    """The Program of a branch, of whose outputs for mutable arguments those stay that a branch changes."""
    places = [i for i, m in enumerate(mutable_leaves(structure)) if m]
    new = dict(zip(places, body.program.outputs[count:], strict=False))
    outputs = (*body.program.outputs[:count], *(new[i] for i in changed))
    return eliminate_dead(Program(body.program.inputs, body.program.equations, outputs, body.program.constants))


def _converted(program: Program, goals: Sequence[ArrayType]) -> Program:
    """The Program with its outputs converted to common dtypes."""
    if all(t == g for t, g in zip(program.output_types, goals, strict=False)):
        return program

    def f(*args: Any) -> list:
        outs = list(run(program, args))
        return [*(convert(o, dtype=g.dtype) for o, g in zip(outs, goals, strict=False)), *outs[len(goals) :]]

    return record(f, program.input_types)


def clamped(index: Any, count: int) -> int:
    """Which of so many branches an index or a truth value chooses."""
    return min(max(int(index), 0), count - 1)


def _evaluate(index: Any, *operands: Any, branches: tuple[Program, ...]) -> tuple:
    return run(branches[clamped(index, len(branches))], operands)


_each = Holding("branches", own=1, separate=linearize_body)


def _batch(size: int, args: tuple, batched: tuple, branches: tuple[Program, ...]) -> tuple:
    """If the choice differs along the batch: all branches run, and their results are selected from."""
    count = len(branches[0].outputs)
    index, *operands = args
    if not batched[0]:
        return _each.batch(size, args, batched, branches=branches)
    if any(b.effects for b in branches):
        return one_by_one(cond_p, size, args, batched, {"branches": branches})
    masks = [_taking(index, i, len(branches)) for i in range(len(branches))]
    everything = [_run_where(m, b, size, operands, batched[1:]) for m, b in zip(masks, branches, strict=True)]
    outs = list(everything[-1])
    for i in range(len(branches) - 2, -1, -1):
        for j in range(count):
            mask = reshape(masks[i], shape=(size, *(1,) * (len(shape_of(outs[j])) - 1)))
            outs[j] = where(mask, everything[i][j], outs[j])
    return outs, (True,) * count


def _taking(index: Any, number: int, count: int) -> Any:
    """Which elements of the batch take this branch."""
    if type_of(index).dtype == bool:
        return index if number else invert(index)
    return le(index, 0) if number == 0 else le(number, index) if number == count - 1 else eq(index, number)


def _run_where(mask: Any, branch: Program, size: int, operands: Sequence[Any], batched: tuple) -> Sequence[Any]:
    """A branch for the elements of a mask; the results for the others are anything."""
    if not may_raise(branch) or size == 0:
        return run(batch_program(branch, size, tuple(batched), (True,) * len(branch.outputs))[0], operands)
    return cond_p(any_of(mask), mask, *operands, branches=_where_taken(branch, size, tuple(batched)))


@cached
def _where_taken(branch: Program, size: int, batched: tuple) -> tuple[Program, Program]:
    """What may raise runs for the elements that take it only, and not at all if there are none."""
    form, _ = batch_program(branch, size, batched, (True,) * len(branch.outputs))
    types = [ArrayType((size,), np.bool_), *form.input_types]

    def nothing(*args: Any) -> list:
        return [zeros_like_type(t) for t in form.output_types]

    def something(mask: Any, *args: Any) -> Sequence[Any]:
        return run(form, taken_rows(mask, args, batched))

    return record(nothing, types), record(something, types)


def _pattern(types: tuple[ArrayType, ...], params: dict) -> Callable:
    """The branch that is known to be taken; any of them, if none is."""
    branches, index = params["branches"], known(types[0])
    if index is not None:
        branches = (branches[clamped(index, len(branches))],)
    return _each.pattern(types, {"branches": branches})


cond_p: Primitive = _each.primitive(
    "cond",
    _evaluate,
    batch=_batch,
    pattern=_pattern,
    lower=lambda builder, index, *operands, branches: builder.branch(index, branches, operands),
    cost=lambda types, outs, params: Runs(params["branches"], either=True),
)
