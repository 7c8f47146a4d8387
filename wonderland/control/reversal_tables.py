"""Taking a recorded loop back: the schedule as tables of numbers that loops read.

The forward pass is a loop over the stored states, each of which goes forward to the next. The backward pass is a loop
over the steps, last one first; in it a loop over runs, as many as the tables say, stores the state it has and goes
forward. What the slots hold is an array that they carry, which compiled code updates in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wonderland.control.scan import INT, Parts, scan_p, split, strong_types
from wonderland.core.program import Program, run
from wonderland.core.types import ArrayType, type_of
from wonderland.ops.elementwise import add, sub
from wonderland.ops.index import gather, scatter
from wonderland.ops.shape import zeros_like_type
from wonderland.transform.programs import pick, record

if TYPE_CHECKING:
    from wonderland.control.reversal import Reversal


def _loop(body: Program, n_consts: int, n_carry: int, length: int | None = None, reverse: bool = False) -> dict:
    """The params of a `scan`; without a length it is the first operand."""
    return {
        "body": body, "condition": None, "n_consts": n_consts, "n_carry": n_carry, "length": length, "reverse": reverse,
    }  # fmt: skip


def _row(x: Any, place: Any) -> Any:
    return gather(x, place, axes=(0,))


def _with_row(x: Any, place: Any, row: Any) -> Any:
    return scatter(x, place, row, axes=(0,), mode="set")


def _next(number: Any) -> Any:
    return add(number, np.int64(1))


class _ForwardStep:
    """Going forward from a step whose number is known at run time only: what the loops below have in common."""

    def __init__(self, call: Reversal, p: Parts):
        self.call = call
        self.known = [*p.consts, *p.xs]  # what all of them read
        self.consts, self.state, self.xs = strong_types(p.consts), strong_types(p.carry), strong_types(p.xs)
        self.types = [*self.consts, *self.xs]
        self.n_known, self.n = len(self.known), call.n_carry

    def place(self, step: Any) -> Any:
        return sub(np.int64(self.call.length - 1), step) if self.call.params["reverse"] else step

    def run(self, program: Program, known: Sequence[Any], state: Sequence[Any], step: Any) -> Sequence[Any]:
        consts, xs = split(known, len(self.consts))
        return run(program, (*consts, *state, *(_row(x, self.place(step)) for x in xs)))


def row_count(call: Reversal) -> int:
    """How many states the slots hold at most: a turn stores one at the beginning of each of its runs."""
    return max(len(call.stored), *(turn.slot + len(turn.runs) for turn in call.turns))


def sweep(call: Reversal, p: Parts, body: Program) -> tuple[list[Any], list[Any]]:
    """The forward pass: (carry and ys), and for each part of the carry the stored states, stacked."""
    at, count = _ForwardStep(call, p), row_count(call)
    lengths = np.zeros(count, np.int64)
    lengths[: len(call.stored)] = np.diff((*call.stored, call.length))
    types = [*at.types, *at.state, INT, *call.y_types]
    n_carried = at.n + 1 + len(call.y_types)

    def step(*args: Any) -> list:
        known, state, (now,), ys = split(args, at.n_known, at.n, 1)
        state, rows = split(at.run(body, known, state, now), at.n)
        return [*state, _next(now), *(_with_row(y, at.place(now), r) for y, r in zip(ys, rows, strict=True))]

    forward = record(step, types)

    def segment(*args: Any) -> list:
        known, carried, (length,) = split(args, at.n_known, n_carried)
        return [*scan_p(length, *known, *carried, **_loop(forward, at.n_known, n_carried)), *carried[: at.n]]

    outs = scan_p(
        *at.known, *p.carry, np.int64(0), *map(zeros_like_type, call.y_types), lengths,
        **_loop(record(segment, [*types, INT]), at.n_known, n_carried, count),
    )  # fmt: skip
    state, _, ys, slots = split(outs, at.n, 1, len(call.y_types))
    return [*state, *ys], slots


def pull(
    call: Reversal, p: Parts, slots: list[Any], ct_carry: list[Any], ct_ys: list[Any], back: Program
) -> list[list[Any]]:
    """Cotangents of consts, carry and xs; `back` is a step taken back."""
    at, (consts, carry, _) = _ForwardStep(call, p), call.flags
    turns, runs = _tables(call)
    slot_types = [ArrayType((row_count(call), *t.shape), t.dtype) for t in at.state]

    def step(*args: Any) -> list:
        known, state, (now,) = split(args, at.n_known, at.n)
        return [*at.run(call.advance, known, state, now), _next(now)]

    forward = record(step, [*at.types, *at.state, INT])

    def one_run(*args: Any) -> list:
        known, (slot_of, length_of), state, stored, (now, number) = split(args, at.n_known, 2, at.n, at.n)
        stored = [_with_row(s, _row(slot_of, number), k) for s, k in zip(stored, state, strict=True)]
        outs = scan_p(_row(length_of, number), *known, *state, now, **_loop(forward, at.n_known, at.n + 1))
        return [*outs[: at.n], *stored, outs[-1], _next(number)]

    tables = [type_of(t) for t in runs]
    all_runs = record(one_run, [*at.types, *tables, *at.state, *slot_types, INT, INT])

    def turn(*args: Any) -> list:
        known, tables, stored, cts, (slot, first, count, start), rows = split(
            args, at.n_known, 2, at.n, sum(consts) + sum(carry), 4
        )
        state = [_row(s, slot) for s in stored]
        outs = scan_p(
            count, *known, *tables, *state, *stored, start, first, **_loop(all_runs, at.n_known + 2, 2 * at.n + 2)
        )
        state, stored, _ = split(outs, at.n, at.n)
        xs, ct_rows = split(rows, len(at.xs))
        return [*stored, *run(back, (*known[: len(at.consts)], *cts, *state, *xs, *ct_rows))]

    sums = [zeros_like_type(type_of(c), real=True) for c in pick(p.consts, consts)]
    carried = [*slots, *sums, *ct_carry]
    rows = [*p.xs, *ct_ys]
    row_types = [ArrayType(t.shape[1:], t.dtype) for t in strong_types(rows)]
    body = record(turn, [*at.types, *tables, *strong_types(carried), *(INT for _ in turns), *row_types])
    outs = scan_p(
        *at.known, *runs, *carried, *turns, *rows,
        **_loop(body, at.n_known + 2, len(carried), call.length, not call.params["reverse"]),
    )  # fmt: skip
    return split(outs[at.n :], sum(consts), sum(carry))


def _tables(call: Reversal) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """By place: the slot to restore, the number of its first run, how many, and at which step they start. By run:
    the slot of the state before it, and its length."""
    turns = call.turns[::-1]
    slot = np.array([turn.slot for turn in turns])
    slot[-1] = len(call.stored) - 1
    count = np.array([len(turn.runs) for turn in turns])
    start = np.array([step - sum(turn.runs) for step, turn in enumerate(turns)])
    by_step = [slot, np.cumsum(count) - count, count, start]
    runs = [(turn.slot + i, length) for turn in turns for i, length in enumerate(turn.runs)] or [(0, 0)]
    direction = -1 if call.params["reverse"] else 1
    return [np.ascontiguousarray(t[::direction]) for t in by_step], [np.array(t) for t in zip(*runs, strict=True)]
