"""Transformations of Programs: evaluate one at a level and record the result. One implementation each.

Each takes a Program and says by flags which inputs are differentiated, linear or batched, and which outputs must come
out dense; the results are cached on the Program they come from. `transform.holding` makes rules of them, for
primitives that hold Programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wonderland.core.level import Traced
from wonderland.core.program import Program, Record, Var, run
from wonderland.core.types import ArrayType, is_differentiable, type_of
from wonderland.ops.shape import broadcast, zeros_like_type
from wonderland.transform.batch import Batch, BatchedValue
from wonderland.transform.dual import Dual
from wonderland.transform.transpose import transpose

Flags = tuple[bool, ...]


def cached(make: Callable) -> Callable:
    """Keep a transformed Program with the Program it comes from."""

    def wrapper(program: Program, *args: Any) -> Any:
        key = (make.__name__, *args)
        if key not in program.cache:
            program.cache[key] = make(program, *args)
        return program.cache[key]

    return wrapper


def record(f: Callable[..., Sequence[Any]], types: Sequence[ArrayType], name: str = "") -> Program:
    """The Program of a function of values (not tracers), by its input types."""
    level = Record(name) if name else Record()
    with level:
        inputs = [level.variable(t) for t in types]
        outputs = f(*inputs)
        return level.finish(inputs, list(outputs))


def dense(tangent: Any, primal: Any) -> Any:
    """A tangent, with structural zeros filled in."""
    return zeros_like_type(type_of(primal)) if tangent is None else tangent


def pick(items: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """The items whose flag is set."""
    return [item for item, flag in zip(items, flags, strict=True) if flag]


def scatter_flags(items: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """The inverse of `pick`: None where the flag isn't set."""
    source = iter(items)
    return [next(source) if flag else None for flag in flags]


@cached
def jvp_program(program: Program, nonzero: Flags, fill: Flags) -> tuple[Program, Flags]:
    """(inputs, tangents of the nonzero ones) -> (outputs, tangents of the nonzero ones), and which those are.

    `fill` forces tangents of outputs that are structurally zero (loop carries).
    """
    flags: list[bool] = []

    def f(*args: Any) -> list:
        primals, tangents = args[: len(nonzero)], scatter_flags(args[len(nonzero) :], nonzero)
        with Dual() as level:
            outs = run(program, [level.lift(p, t) for p, t in zip(primals, tangents, strict=True)])
            pairs = [level.split(o) for o in outs]
        for (primal, tangent), force in zip(pairs, fill, strict=True):
            flags.append(_has_tangent(primal, tangent, force))
        return [p for p, _ in pairs] + [dense(t, p) for (p, t), flag in zip(pairs, flags, strict=True) if flag]

    types = [*program.input_types, *pick(program.input_types, nonzero)]
    return record(f, types), tuple(flags)


def _has_tangent(primal: Any, tangent: Any, force: bool) -> bool:
    return tangent is not None or (force and is_differentiable(type_of(primal).dtype))


@cached
def linearize_program(program: Program, nonzero: Flags, fill: Flags) -> tuple[Program, Program, Flags, int]:
    """Split a Program into a primal one, inputs -> (outputs, residuals), and a linear one, (residuals, tangents) ->
    tangents of the outputs flagged. The number of residuals comes last."""
    flags: list[bool] = []
    parts: dict[str, Any] = {}

    def primal(*inputs: Any) -> list:
        tape = Record("a linear Program", effects=False)  # they belong to the primal part, recorded around it
        with tape:
            tangents = [tape.variable(t) for t in pick(program.input_types, nonzero)]
            with Dual(tape) as level:
                lifted = [level.lift(p, t) for p, t in zip(inputs, scatter_flags(tangents, nonzero), strict=True)]
                pairs = [level.split(o) for o in run(program, lifted)]
            for (p, t), force in zip(pairs, fill, strict=True):
                flags.append(_has_tangent(p, t, force))
            outs = [dense(t, p) for (p, t), flag in zip(pairs, flags, strict=True) if flag]
            linear = tape.finish(tangents, outs)
        residuals = [(v, value) for v, value in linear.constants if isinstance(value, Traced)]
        kept = [(v, value) for v, value in linear.constants if not isinstance(value, Traced)]
        parts["linear"] = Program([*(v for v, _ in residuals), *tangents], linear.equations, linear.outputs, kept)
        parts["count"] = len(residuals)
        return [p for p, _ in pairs] + [value for _, value in residuals]

    forward = record(primal, program.input_types)
    return forward, parts["linear"], tuple(flags), parts["count"]


@cached
def transpose_program(program: Program, linear: Flags, nonzero: Flags, fill: Flags) -> tuple[Program, Flags]:
    """Of a Program linear in the flagged inputs: (other inputs, nonzero cotangents of outputs) -> (cotangents of the
    linear inputs that aren't structurally zero), and which those are; `fill` forces those of some linear inputs."""
    flags: list[bool] = []
    known_inputs = pick(program.inputs, [not flag for flag in linear])
    linear_inputs = pick(program.inputs, linear)

    def f(*args: Any) -> list:
        known: dict[Var, Any] = dict(zip(known_inputs, args[: len(known_inputs)], strict=True))
        cts = scatter_flags(args[len(known_inputs) :], nonzero)
        outs = pick(transpose(program, known, cts), linear)
        flags.extend(force or o is not None for o, force in zip(outs, fill, strict=True))
        return [
            zeros_like_type(v.type) if o is None else o
            for v, o, flag in zip(linear_inputs, outs, flags, strict=True)
            if flag
        ]

    types = [*(v.type for v in known_inputs), *pick(program.output_types, nonzero)]
    return record(f, types), tuple(flags)


@cached
def batch_program(program: Program, size: int, batched: Flags, fill: Flags) -> tuple[Program, Flags]:
    """The Program on a batch: flagged inputs and outputs carry it at axis 0; `fill` forces outputs to."""
    flags: list[bool] = []

    def f(*args: Any) -> list:
        with Batch(size) as level:
            lifted = [BatchedValue(level, a) if b else a for a, b in zip(args, batched, strict=True)]
            pairs = [level.split(o) for o in run(program, lifted)]
        flags.extend(b or force for (_, b), force in zip(pairs, fill, strict=True))
        return [
            a if b or not force else broadcast(a, shape=(size, *type_of(a).shape))
            for (a, b), force in zip(pairs, fill, strict=True)
        ]

    types = [
        ArrayType((size, *t.shape), t.dtype) if b else t for t, b in zip(program.input_types, batched, strict=True)
    ]
    return record(f, types), tuple(flags)
