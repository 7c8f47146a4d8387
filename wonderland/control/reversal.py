"""A loop whose reverse mode keeps few of its states, by `control.revolve`'s schedule.

Linearised, `scan[slots]` runs forward and leaves states in slots; its linear part is one equation, `reversal`, whose
transpose takes the loop back. Where values are there (eager), Python drives the steps (`Reversal.pull`); a recorded
loop is driven by the schedule as tables of numbers (`control.reversal_tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from wonderland.control import reversal_tables as tables
from wonderland.control.bodies import linearize_body
from wonderland.control.revolve import schedule
from wonderland.control.scan import (
    Parts,
    filled,
    split,
    strong_types,
    tangent_flags,
    transposed_body,
)
from wonderland.control.scan import linearize as linearize_scan
from wonderland.core.level import bind_update
from wonderland.core.primitive import Linear, Primitive
from wonderland.core.program import Program, eliminate_dead, run
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.index import gather, scatter
from wonderland.ops.pattern import as_type, inside
from wonderland.ops.shape import zeros_like_type
from wonderland.ops.work import Runs
from wonderland.transform.checkpoint import POLICIES, checkpoint_p, has_value, silent
from wonderland.transform.programs import cached, pick, record, scatter_flags


@cached
def taken_back(body: Program, n_consts: int, flags: tuple[Any, ...], y_flags: tuple[Any, ...]) -> Program:
    """A step taken back: (consts, cotangents of consts so far, of the carry, state, slices of xs, cotangents of ys) ->
    (cotangents of consts so far, of the carry, of the slices of xs)."""
    consts, carry, xs = flags
    n_out, n_known = len(body.outputs), len(carry) + len(xs)
    fill = (*carry, *(False,) * (n_out - len(carry)))
    forward, linear, _, _ = linearize_body(body, (*consts, *carry, *xs), fill)

    def step(*args: Any) -> Sequence[Any]:
        c, dc, dk, known, dx = split(args, n_consts, sum(consts), sum(carry), n_known)
        residuals = run(forward, (*c, *known))[n_out:]
        return run(linear, (*residuals, *dc, *dk, *dx))

    ct, kt, xt = split(strong_types(body.input_types), n_consts, len(carry))
    whole = record(step, [*ct, *pick(ct, consts), *pick(kt, carry), *kt, *xt, *pick(xt, xs)])
    return transposed_body(
        whole, n_consts + sum(consts), sum(carry), (False,) * n_consts + (True,) * sum(consts),
        (False,) * n_known + (True,) * sum(xs), y_flags,
    )  # fmt: skip


class Reversal:
    """A loop to be taken back: its params, which consts, carry, xs and outputs have tangents, and the schedule."""

    params: dict[Any, Any]
    flags: tuple[Any, ...]
    out_flags: tuple[Any, ...]
    n_consts: Any
    n_carry: Any
    length: Any
    turns: Any

    def __init__(self, params: dict[Any, Any], flags: tuple[Any, ...], out_flags: tuple[Any, ...]):
        self.params, self.flags, self.out_flags = params, flags, out_flags
        self.body: Program = silent(params["body"])  # run again: effects are the first sweep's
        self.n_consts, self.n_carry, self.length = params["n_consts"], params["n_carry"], params["length"]
        stored, self.turns = schedule(self.length, params["slots"])
        last = self.length - 1
        self.stored: Any = stored if stored[-1] == last else (*stored, last)  # steps; the last one's state is kept too
        self.kept: list[Any] | None = None  # the states of `stored` but the first, where Python drives the loop
        out = strong_types(self.body.output_types)
        self.y_types: list[ArrayType] = [ArrayType((self.length, *t.shape), t.dtype) for t in out[self.n_carry :]]
        self.types: list[Any] = pick([*out[: self.n_carry], *self.y_types], out_flags)  # of the tangents that come out

    @cached_property
    def advance(self) -> Program:
        """(consts, carry, slices of xs) -> carry."""
        body = self.body
        return eliminate_dead(Program(body.inputs, body.equations, body.outputs[: self.n_carry], body.constants))

    @property
    def n_known(self) -> int:
        return self.n_consts + self.n_carry + len(self.flags[2])

    def place(self, step: int) -> int:
        """Which slice of xs and ys belongs to a step."""
        return self.length - 1 - step if self.params["reverse"] else step

    def push(self, *operands: Any) -> list[Any]:
        """Tangents of the outputs, from the loop's operands and the tangents of those that have some."""
        known = operands[: self.n_known]
        flags = [f for group in self.flags for f in group]
        tangents = scatter_flags(operands[len(operands) - sum(flags) :], flags)
        plain = {k: v for k, v in self.params.items() if k != "slots"} | {"body": self.body}
        _, found = linearize_scan(known, tuple(tangents), **plain)
        types = iter(self.types)
        chosen = pick(found, self.out_flags)
        return [zeros_like_type(next(types)) if t is None else t for t in chosen]

    def program(self, types: Sequence[ArrayType]) -> Program:
        """`push` as a Program."""
        if not hasattr(self, "_program"):
            self._program = record(self.push, types)
        return self._program

    # -- driven by Python -------------------------------------------------------------------------

    def sweep(self, p: Parts, body: Program) -> list[Any]:
        """The forward pass: carry and ys. States are kept on the way."""
        ys = [[np.zeros(t.shape, t.dtype)] for t in self.y_types]
        state, self.kept = list(p.carry), []
        for step in range(self.length):
            if step and step in self.stored:
                self.kept.append(list(state))
            arguments = [*p.consts, *state, *self._slices(p.xs, step)]
            state, rows = split(run(body, arguments, consume=True), self.n_carry)
            self._store(ys, step, rows)
        return [*state, *(box.pop() for box in ys)]

    def pull(self, p: Parts, ct_carry: list[Any], ct_ys: list[Any], back: Program) -> list[list[Any]]:
        """Cotangents of consts, carry and xs; `back` is a step taken back."""
        if self.kept is None:  # it was taken back before, and those states are gone
            self.sweep(p, self.body)
        assert self.kept is not None
        stack, self.kept = [list(p.carry), *self.kept], None
        consts, carry, xs = self.flags
        sums = [zeros_like_type(type_of(c), real=True) for c in pick(p.consts, consts)]
        of_xs = [[np.zeros(shape_of(x), type_of(x).dtype)] for x in pick(p.xs, xs)]
        state = stack[-1]
        for step, (slot, runs) in zip(range(self.length - 1, -1, -1), self.turns, strict=True):
            del stack[slot + 1 :]
            if step < self.length - 1:
                state = stack[slot]
            now = step - sum(runs)
            for number, length in enumerate(runs):
                if number:
                    stack.append(list(state))
                for _ in range(length):
                    arguments = [*p.consts, *state, *self._slices(p.xs, now)]
                    state = []
                    state = list(run(self.advance, arguments, consume=True))
                    now += 1
            arguments = [*p.consts, *sums, *ct_carry, *state, *self._slices(p.xs, step), *self._slices(ct_ys, step)]
            sums, ct_carry, state = [], [], []
            sums, ct_carry, rows = split(run(back, arguments, consume=True), sum(consts), sum(carry))
            self._store(of_xs, step, rows)
        return [sums, ct_carry, [box.pop() for box in of_xs]]

    def _slices(self, arrays: Sequence[Any], step: int) -> list:
        place = np.int64(self.place(step))
        return [a[place] if type(a) is np.ndarray else gather(a, place, axes=(0,)) for a in arrays]

    def _store(self, boxes: list[list], step: int, rows: Sequence[Any]) -> None:
        for box, row in zip(boxes, rows, strict=True):
            box.append(bind_update(scatter, [box.pop()], np.int64(self.place(step)), row, axes=(0,), mode="set"))


def linearize(
    primals: tuple[Any, ...], tangents: tuple[Any, ...], params: dict[Any, Any]
) -> tuple[list[Any], list[Any]]:
    """`scan`'s rule, for a loop with `slots`."""
    if params["length"] == 0:
        return linearize_scan(primals, tangents, **{k: v for k, v in params.items() if k != "slots"})
    p, t = Parts(primals, params), Parts(tangents, params)
    flags = tangent_flags(t, params, lambda *a: linearize_body(*a)[2])
    body, n_carry = params["body"], params["n_carry"]
    fill = (*flags[1], *(False,) * (len(body.outputs) - n_carry))
    out_flags = linearize_body(body, (*flags[0], *flags[1], *flags[2]), fill)[2]
    call = Reversal(params, flags, out_flags)
    slots: list = []
    if has_value(primals):
        outs = call.sweep(p, body)
    else:
        outs, slots = tables.sweep(call, p, body)
    tangents_out = reversal_p(
        *primals, *slots, *pick(t.consts, flags[0]), *filled(p.carry, t.carry, flags[1]), *pick(t.xs, flags[2]),
        call=call,
    )  # fmt: skip
    return outs, scatter_flags(tangents_out, out_flags)


def _transpose(cts: Sequence[Any], *operands: Any, call: Reversal) -> list:
    consts, carry, xs = call.flags
    known = operands[: call.n_known]
    count = sum(consts) + sum(carry) + sum(xs)
    slots, linear = list(operands[call.n_known : len(operands) - count]), operands[len(operands) - count :]
    ct_carry, ct_ys = split(cts, sum(carry))
    ct_carry = [zeros_like_type(t) if ct is None else ct for ct, t in zip(ct_carry, call.types, strict=False)]
    y_flags = tuple(ct is not None for ct in ct_ys)
    ct_ys, p = pick(ct_ys, y_flags), Parts(known, call.params)
    cts = ()
    back = taken_back(call.body, call.n_consts, call.flags, y_flags)
    if has_value([*known, *ct_carry, *ct_ys]) and not slots:
        groups = call.pull(p, ct_carry, ct_ys, back)
    else:
        groups = tables.pull(call, p, slots or tables.sweep(call, p, call.body)[1], ct_carry, ct_ys, back)
    found = [ct for group in groups for ct in group]
    wanted = [ct if isinstance(x, Linear) else None for ct, x in zip(found, linear, strict=True)]
    return [*(None for _ in (*known, *slots)), *wanted]


def _as_call(types: Sequence[ArrayType], call: Reversal) -> dict:
    """Transformed it is no reversal of another Program, but a checkpointed call of `push`'s: the schedule is for the
    transpose alone."""
    return {"program": call.program(types), "policy": POLICIES["nothing"]}


def _jvp(primals: tuple, tangents: tuple, call: Reversal) -> Any:
    return checkpoint_p.jvp(primals, tangents, **_as_call([type_of(x) for x in primals], call))  # type: ignore[misc]


def _linearize(primals: tuple, tangents: tuple, call: Reversal) -> Any:
    params = _as_call([type_of(x) for x in primals], call)
    return checkpoint_p.linearize(primals, tangents, **params)  # type: ignore[misc]


def _batch(size: int, args: tuple, batched: tuple, call: Reversal) -> Any:
    types = [ArrayType(shape_of(x)[flag:], type_of(x).dtype) for x, flag in zip(args, batched, strict=True)]
    return checkpoint_p.batch(size, args, batched, **_as_call(types, call))  # type: ignore[misc]


def _pattern(types: tuple[ArrayType, ...], params: dict) -> Callable:
    return inside(params["call"].program([as_type(t) for t in types]), types)


reversal_p: Primitive = Primitive(
    "reversal",
    lambda *args, call: call.push(*args),
    lambda *types, call: call.types,
    jvp=_jvp,
    linearize=_linearize,
    transpose=_transpose,
    batch=_batch,
    pattern=_pattern,
    lower=lambda builder, *nodes, call: builder.program(call.program([n.type for n in nodes]), nodes),
    cost=lambda types, outs, params: Runs([params["call"].program(types)]),
    multiple=True,
)
