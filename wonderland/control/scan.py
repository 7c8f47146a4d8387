"""`scan`, the one loop primitive, and its rules.

Operands: ([length], *consts, *carry, *xs). The body Program maps (consts, carry, slices of xs) to (carry, slices of
ys). Three forms: a static `length`; a run-time length (`length` None: the first operand; xs and ys have an unknown
leading dimension); and a while loop (`condition`, a Program of consts and carry), with outputs (*carry, count, *ys).

Differentiating a while loop gives a while loop that stacks its residuals as ys, and a linear scan over them whose
length is the count: reverse mode, higher order and batching of data-dependent loops are the scan's.

No rule is "the same loop of the transformed body" (`transform.holding`): what is carried from step to step
decides which carries have tangents, and tangents, residuals and cotangents are carried or stacked in places of theirs.

A loop of static length may have one more param, `slots`: reverse mode then keeps that many of the carried values and
computes the others again (see `control.revolve`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.control.bodies import linearize_body
from wonderland.control.decided import warn_if_decided_by_comparisons
from wonderland.control.linear import LINEAR, OTHER, NotLinear, joined, program_dependences
from wonderland.core.forks import loading
from wonderland.core.primitive import Linear, Primitive
from wonderland.core.program import Literal, Program, Record, Var, eliminate_dead, run
from wonderland.core.types import ArrayType, type_of
from wonderland.ops.shape import zeros_like_type
from wonderland.ops.work import Runs
from wonderland.transform.checkpoint import silent
from wonderland.transform.chunks import loop
from wonderland.transform.programs import (
    cached,
    jvp_program,
    pick,
    record,
    scatter_flags,
)
from wonderland.transform.taylor import all_orders, packed, taylor_program, unpacked
from wonderland.transform.transpose import transpose as transpose_linear

INT = ArrayType((), np.int64)


class Parts:
    """Operands of a scan, or anything parallel to them (types, tangents, flags), by role."""

    def __init__(self, operands: Sequence[Any], params: dict[Any, Any]):
        dynamic = params["length"] is None and params["condition"] is None
        self.head: list[Any] = list(operands[:1]) if dynamic else []
        rest = list(operands[len(self.head) :])
        n_consts, n_carry = params["n_consts"], params["n_carry"]
        self.consts: list[Any] = rest[:n_consts]
        self.carry: list[Any] = rest[n_consts : n_consts + n_carry]
        self.xs: list[Any] = rest[n_consts + n_carry :]


def split(values: Sequence[Any], *counts: int) -> list[list[Any]]:
    """Consecutive groups of the given sizes, and the rest."""
    out, start = [], 0
    for n in counts:
        out.append(list(values[start : start + n]))
        start += n
    return [*out, list(values[start:])]


def split_outputs(outs: Sequence[Any], params: dict[Any, Any]) -> list[list[Any]]:
    """Outputs of a scan as (carry, count if it is a while loop, ys)."""
    return split(outs, params["n_carry"], int(params["condition"] is not None))


def _evaluate(*operands: Any, **params: Any) -> list:
    parts = Parts(operands, params)
    body, condition, n_carry = params["body"], params["condition"], params["n_carry"]
    consts, xs, carry = parts.consts, parts.xs, parts.carry
    parts.carry, operands = [], ()  # the body may overwrite what only `carry` holds

    def step(slices: list) -> list:
        arguments = [*consts, *carry, *slices]
        carry.clear()
        new, out = split(run(body, arguments, consume=True), n_carry)
        carry.extend(new)
        return out

    types = body.output_types[n_carry:]
    if condition is not None:
        rows = []
        while bool(run(condition, (*consts, *carry))[0]):
            rows.append(step([]))
        ys = _empty(len(rows), types)
        for t, row in enumerate(rows):
            _store(ys, t, row)
            rows[t] = row = None  # type: ignore[call-overload]
        return [*carry, np.int64(len(rows)), *ys]
    length = int(parts.head[0]) if params["length"] is None else params["length"]
    ys = _empty(length, types)
    for t in range(length - 1, -1, -1) if params["reverse"] else range(length):
        _store(ys, t, step([x[t] for x in xs]))
    return [*carry, *ys]


def _empty(length: int, types: Sequence[ArrayType]) -> list[np.ndarray]:
    return [np.empty((length, *t.shape), t.dtype) for t in types]


def _store(ys: list[np.ndarray], t: int, row: list) -> None:
    for array, y in zip(ys, row, strict=True):
        array[t] = y


def _infer(*types: ArrayType, **params: Any) -> list[ArrayType]:
    parts, body, n_carry = Parts(types, params), params["body"], params["n_carry"]
    slices = [ArrayType(x.shape[1:], x.dtype) for x in parts.xs]
    given = [*parts.consts, *parts.carry, *slices]
    for expected, actual in zip(body.input_types, given, strict=True):
        if (expected.shape, expected.dtype) != (actual.shape, actual.dtype):
            raise TypeError(f"scan: the body expects {expected}, got {actual}")
    lead = params["length"] if params["condition"] is None else None
    out = [ArrayType(t.shape, t.dtype) for t in body.output_types]
    ys = [ArrayType((lead, *t.shape), t.dtype) for t in out[n_carry:]]
    return [*out[:n_carry], *([INT] if params["condition"] is not None else []), *ys]


def closed(flags: list[bool], step: Callable[[tuple[Any, ...]], Sequence[bool]]) -> list[bool]:
    """The carries that have a tangent (or a batch): what spreads from carry to carry, to a fixed point."""
    while True:
        grown = [a or b for a, b in zip(flags, step(tuple(flags)), strict=True)]
        if grown == flags:
            return flags
        flags = grown


def tangent_flags(
    tangents: Parts, params: dict[Any, Any], flags_of: Callable
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    """Which consts, carries and xs have a tangent, in some step."""
    if params["condition"] is not None:
        warn_if_decided_by_comparisons(tangents.consts, tangents.carry, params)
    consts, xs = (tuple(t is not None for t in group) for group in (tangents.consts, tangents.xs))
    none = (False,) * len(params["body"].outputs)

    def step(carry: tuple) -> Sequence[bool]:
        return flags_of(params["body"], (*consts, *carry, *xs), none)[: params["n_carry"]]

    return consts, tuple(closed([t is not None for t in tangents.carry], step)), xs


def filled(values: Sequence[Any], tangents: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """The flagged tangents, with zeros where there is none."""
    return [
        zeros_like_type(type_of(v)) if t is None else t
        for v, t, flag in zip(values, tangents, flags, strict=True)
        if flag
    ]


def strong_types(values: Sequence[Any], flags: Sequence[bool] | None = None) -> list[ArrayType]:
    """Strong types of values, or of the flagged ones."""
    chosen = values if flags is None else pick(values, flags)
    return [ArrayType(t.shape, t.dtype) for t in (type_of(v) if not isinstance(v, ArrayType) else v for v in chosen)]


def _body_types(params: dict) -> list[list[ArrayType]]:
    return split(strong_types(params["body"].input_types), params["n_consts"], params["n_carry"])


def _jvp(primals: tuple, tangents: tuple, **params: Any) -> tuple[list, list]:
    p, t = Parts(primals, params), Parts(tangents, params)
    body, n_carry = params["body"], params["n_carry"]
    consts, carry, xs = tangent_flags(t, params, lambda *a: jvp_program(*a)[1])
    n_ys = len(body.outputs) - n_carry
    form, out_flags = jvp_program(body, (*consts, *carry, *xs), (*carry, *(False,) * n_ys))
    terms = [pick(t.consts, consts), filled(p.carry, t.carry, carry), pick(t.xs, xs)]
    outs, (of_carry, of_ys) = _extended(p, terms, form, params)
    count = [None for _ in outs[n_carry : len(outs) - n_ys]]
    return outs, [*scatter_flags(of_carry, carry), *count, *scatter_flags(of_ys, out_flags[n_carry:])]


def _extended(p: Parts, terms: list[list], form: Program, params: dict) -> tuple[list, tuple[list, list]]:
    """The loop with more to carry: `form` maps (inputs, terms) of the body to (outputs, terms). Returns the loop's own
    outputs, and the terms of the carry and of the ys."""
    n_carry, n_ys = params["n_carry"], len(params["body"].outputs) - params["n_carry"]
    more_consts, more_carry, more_xs = terms
    sizes = (len(p.consts), len(more_consts), n_carry, len(more_carry), len(p.xs))

    def new_body(*args: Any) -> list:
        c, dc, k, dk, x, dx = split(args, *sizes)
        new_k, ys, new_dk, dys = split(run(form, (*c, *k, *x, *dc, *dk, *dx)), n_carry, n_ys, len(more_carry))
        return [*new_k, *new_dk, *ys, *dys]

    def new_condition(*args: Any) -> Sequence[Any]:
        c, _, k, _ = split(args, *sizes[:3])
        return run(params["condition"], (*c, *k))

    ct, kt, xt, more = split(strong_types(form.input_types), len(p.consts), n_carry, len(p.xs))
    dc, dk, dx = split(more, len(more_consts), len(more_carry))
    new = {
        **params,
        "body": record(new_body, [*ct, *dc, *kt, *dk, *xt, *dx]),
        "condition": params["condition"] and record(new_condition, [*ct, *dc, *kt, *dk]),
        "n_consts": len(p.consts) + len(more_consts),
        "n_carry": n_carry + len(more_carry),
    }
    outs = scan_p(*p.head, *p.consts, *more_consts, *p.carry, *more_carry, *p.xs, *more_xs, **new)
    both, count, ys = split_outputs(outs, new)
    return [*both[:n_carry], *count, *ys[:n_ys]], (both[n_carry:], ys[n_ys:])


def _taylor(outs: Sequence[Any], *operands: Any, **params: Any) -> Callable:
    """Carries that are series at all get all coefficients."""
    body, n_carry = params["body"], params["n_carry"]
    n_ys = len(body.outputs) - n_carry

    def compute(order: int) -> list[list]:
        p = Parts(operands, params)
        (_, c, dc), (_, k, _), (_, x, dx) = (packed(part, order) for part in (p.consts, p.carry, p.xs))
        none = ((False,) * order,)

        def rows(flags: Sequence[bool]) -> tuple:
            return tuple((flag,) * order for flag in flags)

        def step(flags: tuple) -> list[bool]:
            found = taylor_program(body, order, (*c, *rows(flags), *x), none * len(body.outputs))[1]
            return [any(row) for row in found[:n_carry]]

        k = rows(closed([any(row) for row in k], step))
        form, out_rows = taylor_program(body, order, (*c, *k, *x), (*k, *none * n_ys))
        dk = [
            zeros_like_type(type_of(s[0])) if s[j] is None else s[j]
            for s, row in zip(p.carry, k, strict=True) for j, flag in enumerate(row, 1) if flag
        ]  # fmt: skip
        base = Parts([o[0] for o in operands], params)
        found, (of_carry, of_ys) = _extended(base, [dc, dk, dx], form, params)
        count = none * (len(found) - n_carry - n_ys)
        return unpacked([*found, *of_carry, *of_ys], (*k, *count, *out_rows[n_carry:]))

    return all_orders(outs, operands, compute)


def linearize(primals: tuple[Any, ...], tangents: tuple[Any, ...], **params: Any) -> tuple[list[Any], list[Any]]:
    """A loop that stacks its residuals, and a linear one over them."""
    if "slots" in params:
        with loading():
            from wonderland.control import reversal

        return reversal.linearize(primals, tangents, params)
    p, t = Parts(primals, params), Parts(tangents, params)
    body, n_consts, n_carry = params["body"], params["n_consts"], params["n_carry"]
    consts, carry, xs = tangent_flags(t, params, lambda *a: linearize_body(*a)[2])
    n_out = len(body.outputs)
    forward, linear, out_flags, n_residuals = linearize_body(
        body, (*consts, *carry, *xs), (*carry, *(False,) * (n_out - n_carry))
    )
    # A residual that depends on consts only is computed once, outside of the loop, instead of being stacked.
    fixed = _invariant_outputs(forward, n_consts)[n_out:]
    varying = [not f for f in fixed]
    outputs, residuals = forward.outputs[:n_out], forward.outputs[n_out:]
    # One that is a slice of xs is there already.
    given = dict(zip(forward.inputs[n_consts + n_carry :], p.xs, strict=True))
    new = [r for r in pick(residuals, varying) if r not in given]
    stacking = Program(forward.inputs, forward.equations, (*outputs, *new), forward.constants)
    once = eliminate_dead(
        Program(forward.inputs[:n_consts], forward.equations, pick(residuals, fixed), forward.constants), effects=False
    )
    fixed_values = run(silent(once), p.consts)
    outs = scan_p(*primals, **{**params, "body": eliminate_dead(stacking)})
    new_carry, count, ys = split_outputs(outs, params)
    rows = iter(ys[n_out - n_carry :])
    stacked = [given[r] if r in given else next(rows) for r in pick(residuals, varying)]
    sizes = (sum(fixed), sum(consts), sum(carry), sum(varying))

    def linear_body(*args: Any) -> Sequence[Any]:
        fixed_r, dc, dk, varying_r, dx = split(args, *sizes)
        merged = merge(fixed_r, varying_r, fixed)
        return run(linear, (*merged, *dc, *dk, *dx))

    ct, kt, xt = _body_types(params)
    rt = strong_types(linear.input_types[:n_residuals])
    types = [*pick(rt, fixed), *pick(ct, consts), *pick(kt, carry), *pick(rt, varying), *pick(xt, xs)]
    tangent_outs = scan_p(
        *(count or p.head), *fixed_values, *pick(t.consts, consts), *filled(p.carry, t.carry, carry),
        *stacked, *pick(t.xs, xs),
        body=record(linear_body, types), condition=None, n_consts=sum(fixed) + sum(consts), n_carry=sum(carry),
        length=None if params["condition"] is not None else params["length"], reverse=params["reverse"],
    )  # fmt: skip
    d_carry, d_ys = split(tangent_outs, sum(carry))
    tangent_out = [*scatter_flags(d_carry, carry), *(None for _ in count)]
    return (
        [*new_carry, *count, *ys[: n_out - n_carry]],
        [*tangent_out, *scatter_flags(d_ys, out_flags[n_carry:])],
    )


def merge(first: Sequence[Any], second: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """The items of two lists in one: of the first where the flag is set."""
    a, b = iter(first), iter(second)
    return [next(a) if flag else next(b) for flag in flags]


def _invariant_outputs(program: Program, n_consts: int) -> list[bool]:
    known: set[Any] = {*program.inputs[:n_consts], *(v for v, _ in program.constants)}
    for equation in program.equations:
        if not equation.has_effects() and all(isinstance(a, Literal) or a in known for a in equation.inputs):
            known.update(equation.outputs)
    return [isinstance(a, Literal) or a in known for a in program.outputs]


@cached
def transposed_body(
    body: Program,
    n_consts: int,
    n_carry: int,
    const_flags: tuple[Any, ...],
    x_flags: tuple[Any, ...],
    y_flags: tuple[Any, ...],
) -> Program:
    """(known consts, cotangents of consts so far, cotangents of carry, known xs, cotangents of ys) ->
    (cotangents of consts so far, cotangents of carry, cotangents of xs).

    Cotangents of consts are accumulated in what the loop carries, so that reading one element of a const per step
    costs O(1) per step.
    """
    consts, carry, xs = split(body.inputs, n_consts, n_carry)
    linear_consts, linear_xs = pick(consts, const_flags), pick(xs, x_flags)
    known_consts = pick(consts, [not f for f in const_flags])
    known_xs = pick(xs, [not f for f in x_flags])
    sizes = (len(known_consts), len(linear_consts), n_carry, len(known_xs))

    def f(*args: Any) -> list:
        c, sums, ct_carry, x, ct_ys = split(args, *sizes)
        known: dict[Var, Any] = {**dict(zip(known_consts, c, strict=True)), **dict(zip(known_xs, x, strict=True))}
        cts = [*ct_carry, *scatter_flags(ct_ys, y_flags)]
        start = dict(zip(linear_consts, sums, strict=True))
        found = dict(zip(body.inputs, transpose_linear(body, known, cts, start=start), strict=True))
        return [zeros_like_type(v.type) if found[v] is None else found[v] for v in (*linear_consts, *carry, *linear_xs)]

    out_carry, out_ys = split(body.output_types, n_carry)
    groups = (known_consts, linear_consts, [Var(None, t) for t in out_carry], known_xs)
    return record(f, [*(t for group in groups for t in strong_types(group)), *strong_types(out_ys, y_flags)])


def _transpose(cts: Sequence[Any], *operands: Any, **params: Any) -> list:
    p = Parts(operands, params)
    n_consts, n_carry = params["n_consts"], params["n_carry"]
    if params["condition"] is not None or _carries_more(p, params):
        return _transpose_beside(cts, operands, params)
    const_flags = tuple(isinstance(c, Linear) for c in p.consts)
    x_flags = tuple(isinstance(x, Linear) for x in p.xs)
    ct_carry, ct_ys = split(cts, n_carry)
    y_flags = tuple(ct is not None for ct in ct_ys)
    body = transposed_body(params["body"], n_consts, n_carry, const_flags, x_flags, y_flags)
    sums = [zeros_like_type(c, real=True) for c in pick(p.consts, const_flags)]
    carry_types = params["body"].output_types[:n_carry]
    ct_carry = [zeros_like_type(t) if ct is None else ct for ct, t in zip(ct_carry, carry_types, strict=True)]
    outs = scan_p(
        *p.head, *pick(p.consts, [not f for f in const_flags]), *sums, *ct_carry,
        *pick(p.xs, [not f for f in x_flags]), *pick(ct_ys, y_flags),
        body=body, condition=None, n_consts=n_consts - len(sums), n_carry=len(sums) + n_carry,
        length=params["length"], reverse=not params["reverse"],
    )  # fmt: skip
    of_consts, of_carry, of_xs = split(outs, len(sums), n_carry)
    of_carry = [ct if isinstance(c, Linear) else None for ct, c in zip(of_carry, p.carry, strict=True)]
    head = [None for _ in p.head]
    return [*head, *scatter_flags(of_consts, const_flags), *of_carry, *scatter_flags(of_xs, x_flags)]


def _carries_more(p: Parts, params: dict) -> bool:
    """Does the loop carry values that aren't linear, a counter perhaps, beside those that are?"""
    if all(isinstance(c, Linear) for c in p.carry):
        return False
    flags = [LINEAR if isinstance(v, Linear) else OTHER for v in (*p.consts, *p.carry, *p.xs)]
    try:
        return OTHER in _carry_dependences(params["body"], tuple(flags), params["n_consts"], params["n_carry"])
    except NotLinear:
        return True


@cached
def _carry_dependences(body: Program, dependences: tuple, n_consts: int, n_carry: int) -> Sequence[str]:
    carried = [LINEAR] * n_carry  # zeros to start with, where it isn't a variable
    return program_dependences(body, [*dependences[:n_consts], *carried, *dependences[n_consts + n_carry :]])[:n_carry]


def _transpose_beside(cts: Sequence[Any], operands: Sequence[Any], params: dict) -> list:
    """The transpose of a loop that is linear in some operands and computes others beside, its condition perhaps.

    It is its own derivative with respect to those: linearising separates the two.
    """
    flags = [isinstance(o, Linear) for o in operands]
    tape = Record("a linear Program")
    with tape:
        variables = [tape.variable(o) for o in pick(operands, flags)]
        primals = [zeros_like_type(o) if flag else o for o, flag in zip(operands, flags, strict=True)]
        plain = {k: v for k, v in params.items() if k != "slots"}
        _, tangents = linearize(tuple(primals), tuple(scatter_flags(variables, flags)), **plain)
        used = [t is not None for t in tangents]
        program = tape.finish(variables, pick(tangents, used))
    return scatter_flags(transpose_linear(program, {}, pick(cts, used)), flags)


def _batch(size: int, args: tuple, batched: tuple, **params: Any) -> tuple[list, list]:
    with loading():
        from wonderland.control.batched_loops import batch

    return batch(size, args, batched, params)


def _pattern(types: tuple[ArrayType, ...], params: dict) -> Callable:
    with loading():
        from wonderland.control.loop_reads import loop_reads

    return lambda reads: loop_reads(types, params, reads)


def _linearity(operands: Sequence[str], params: dict) -> Sequence[str]:
    dynamic = params["length"] is None and params["condition"] is None
    if dynamic and operands[0] is LINEAR:
        raise NotLinear("takes the length of a loop from the input")
    rest, n = list(operands[dynamic:]), params["n_carry"]
    consts, carry, xs = rest[: params["n_consts"]], rest[params["n_consts"] :][:n], rest[params["n_consts"] + n :]
    while True:  # what is carried from step to step, to a fixed point
        outs = program_dependences(params["body"], [*consts, *carry, *xs])
        new = [joined(pair, "scan") for pair in zip(carry, outs, strict=False)]
        if new == carry:
            break
        carry = new
    count = []
    if params["condition"] is not None:
        count = [OTHER]
        try:
            decided = program_dependences(params["condition"], [*consts, *carry])
        except NotLinear:
            decided = [LINEAR]
        if decided == [LINEAR]:
            raise NotLinear("ends a loop by a value that depends on the input (while_loop)")
    return [*carry, *count, *outs[n:]]


def _cost(types: tuple[ArrayType, ...], outs: tuple[ArrayType, ...], params: dict) -> Runs:
    return Runs([p for p in (params["condition"], params["body"]) if p is not None], params["length"])


scan_p: Primitive = Primitive(
    "scan",
    _evaluate,
    _infer,
    jvp=_jvp,
    taylor=_taylor,
    linearize=linearize,
    transpose=_transpose,
    batch=_batch,
    pattern=_pattern,
    linearity=_linearity,
    lower=lambda builder, *operands, **params: builder.loop(operands, **params),
    dynamic=True,
    cost=_cost,
    multiple=True,
)
loop.fill(scan_p)
