"""Primitives that hold Programs, and whose rules are one: transform the Programs, and call the primitive again.

    jit_p = Holding("program").primitive("jit", evaluate)

makes a primitive whose parameter `program` is run on its operands. Its derivative is a `jit` of the Program of the
derivative, and so are its linear part, transpose, batch and Taylor series; it reads what its Program reads. A rule that
differs is given, `batch=...`, and its docstring says why it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wonderland.core.primitive import Linear, Primitive
from wonderland.core.program import Program, Var, run
from wonderland.core.types import ArrayType, Params
from wonderland.ops.pattern import inside, unions
from wonderland.ops.shape import zeros_like_type
from wonderland.transform.programs import (
    Flags,
    batch_program,
    cached,
    jvp_program,
    linearize_program,
    pick,
    record,
    scatter_flags,
    transpose_program,
)
from wonderland.transform.taylor import all_orders, packed, taylor_program, unpacked


def alike(programs: Sequence[Program], transform: Callable, none: tuple[Any, ...]) -> tuple[list[Any], Any]:
    """`transform(program, fill)` of each, and the flags of what comes out: the same for all, zeros where one has none.

    `none` is the `fill` that forces nothing.
    """
    forms, flags = zip(*(transform(program, none) for program in programs), strict=True)
    if any(own != flags[0] for own in flags):
        fill = _either(*flags)
        return [transform(program, fill)[0] for program in programs], fill
    return list(forms), flags[0]


def _either(*flags: Any) -> Any:
    return tuple(map(_either, *flags)) if isinstance(flags[0], tuple) else any(flags)


@cached
def _leaving(forward: Program, number: int, kinds: tuple[tuple[ArrayType, ...], ...]) -> Program:
    """The Program of this number with zeros in the places of the others' residuals."""
    if len(kinds) == 1:
        return forward
    count = len(forward.outputs) - len(kinds[number])

    def f(*args: Any) -> list:
        outs = run(forward, args)
        groups = [outs[count:] if i == number else map(zeros_like_type, types) for i, types in enumerate(kinds)]
        return [*outs[:count], *(r for group in groups for r in group)]

    return record(f, forward.input_types)


def _taking(linear: Program, number: int, kinds: tuple[tuple[ArrayType, ...], ...]) -> Program:
    """The linear Program of this number as one of the residuals of all."""
    count = len(kinds[number])
    groups = [linear.inputs[:count] if i == number else [Var(None, t) for t in types] for i, types in enumerate(kinds)]
    inputs = [*(v for group in groups for v in group), *linear.inputs[count:]]
    return linear if len(kinds) == 1 else Program(inputs, linear.equations, linear.outputs, linear.constants)


class Holding:
    """How a primitive holds Programs, and rules for it: transform the Programs, all alike, and call it again.

    It runs a Program on its operands; `held` names the parameter that holds it. They may be several, and hold tuples:
    Programs of the same types, of which one gives the results. The first `own` operands are what chooses among them, no
    input of theirs: there is no derivative with respect to those. `separate` is what linearises a Program.
    """

    call: Primitive

    def __init__(self, *held: str, own: int = 0, separate: Callable = linearize_program):
        self.held: tuple[str, ...] = held
        self.own: int = own
        self.separate = separate

    def primitive(self, name: str, evaluate: Callable, **slots: Any) -> Primitive:
        """A primitive with these rules; `slots` are what else it has, and those of its rules that differ."""
        derived = ("jvp", "linearize", "transpose", "batch", "pattern", "taylor")
        rules: dict[str, Any] = {slot: getattr(self, slot) for slot in derived} | {"calls": self.programs}
        self.call = Primitive(name, evaluate, self.infer, multiple=True, **(rules | slots))
        self.call.pure = False  # its Programs may do something besides computing
        return self.call

    def programs(self, params: Params) -> list[Program]:
        values = [params[name] for name in self.held]
        return [p for value in values for p in (value if isinstance(value, tuple) else (value,))]

    def again(self, operands: Sequence[Any], params: Params, programs: Sequence[Program], became: str = "") -> Any:
        """The primitive with other Programs in the places of its own; a `name` says what they became."""
        given, new = iter(programs), dict(params)
        for name in self.held:
            value = params[name]
            new[name] = tuple(next(given) for _ in value) if isinstance(value, tuple) else next(given)
        if became and "name" in params:
            new["name"] = f"{params['name']} ({became})"
        return self.call(*operands, **new)

    def none(self, params: Params) -> Flags:
        """The `fill` that forces none of the results."""
        return (False,) * len(self.programs(params)[0].outputs)

    def infer(self, *types: ArrayType, **params: Any) -> tuple[ArrayType, ...]:
        return self.programs(params)[0].output_types

    def jvp(self, primals: tuple[Any, ...], tangents: tuple[Any, ...], **params: Any) -> tuple[Any, list[Any]]:
        nonzero, none = tuple(t is not None for t in tangents[self.own :]), self.none(params)
        forms, flags = alike(self.programs(params), lambda p, fill: jvp_program(p, nonzero, fill), none)
        outs = self.again((*primals, *pick(tangents[self.own :], nonzero)), params, forms)
        return outs[: len(none)], scatter_flags(outs[len(none) :], flags)

    def linearize(self, primals: tuple[Any, ...], tangents: tuple[Any, ...], **params: Any) -> tuple[Any, list[Any]]:
        nonzero, none = tuple(t is not None for t in tangents[self.own :]), self.none(params)

        def separate(program: Program, fill: Flags) -> tuple[tuple[Program, Program], Flags]:
            forward, linear, flags, _ = self.separate(program, nonzero, fill)
            return (forward, linear), flags

        parts, flags = alike(self.programs(params), separate, none)
        kinds = tuple(forward.output_types[len(none) :] for forward, _ in parts)  # each has residuals of its own
        outs = self.again(primals, params, [_leaving(p, i, kinds) for i, (p, _) in enumerate(parts)])
        operands = [*primals[: self.own], *outs[len(none) :], *pick(tangents[self.own :], nonzero)]
        linear = [_taking(p, i, kinds) for i, (_, p) in enumerate(parts)]
        return outs[: len(none)], scatter_flags(self.again(operands, params, linear, "linear"), flags)

    def transpose(self, cts: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
        linear = tuple(isinstance(o, Linear) for o in operands[self.own :])
        nonzero, none = tuple(ct is not None for ct in cts), (False,) * sum(linear)
        forms, flags = alike(self.programs(params), lambda p, fill: transpose_program(p, linear, nonzero, fill), none)
        known = [o for o in operands if not isinstance(o, Linear)]
        outs = self.again((*known, *pick(cts, nonzero)), params, forms, "transposed")
        return [*[None] * self.own, *scatter_flags(scatter_flags(outs, flags), linear)]

    def batch(self, size: int, args: tuple[Any, ...], batched: tuple[bool, ...], **params: Any) -> tuple[Any, Flags]:
        if any(batched[: self.own]):
            raise TypeError(f"{self.call.name} can't be batched: what chooses its Program differs along the batch")
        flags, none = tuple(batched[self.own :]), self.none(params)
        forms, out_flags = alike(self.programs(params), lambda p, fill: batch_program(p, size, flags, fill), none)
        return self.again(args, params, forms), out_flags

    def pattern(self, types: tuple[Any, ...], params: Params) -> Callable[..., Any]:
        read = [inside(program, types[self.own :]) for program in self.programs(params)]
        if len(read) == 1:
            return lambda reads: read[0](reads[self.own :])
        return lambda reads: (unions([f(reads[self.own :])[0] for f in read]), [])

    def taylor(self, outs: Sequence[Any], *series: Any, **params: Any) -> Callable[..., Any]:
        def compute(order: int) -> list[list]:
            primals, nonzero, terms = packed(series[self.own :], order)
            none = ((False,) * order,) * len(outs)
            forms, rows = alike(self.programs(params), lambda p, fill: taylor_program(p, order, nonzero, fill), none)
            own = [s[0] for s in series[: self.own]]
            return unpacked(self.again((*own, *primals, *terms), params, forms), rows)

        return all_orders(outs, series, compute)
