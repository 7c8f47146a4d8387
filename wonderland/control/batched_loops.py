"""Batches of loops: one loop over the whole batch, also where its entries run for different numbers of steps.

`scan`'s operands and which of them are batched come in; its results, and which of those are, go out. What has effects
and differs along the batch runs for one entry after the other (`one_by_one`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.control.bodies import any_of, may_raise, taken_rows
from wonderland.control.decided import UNBATCHED
from wonderland.control.scan import INT, Parts, closed, merge, scan_p, split, split_outputs, strong_types
from wonderland.core.primitive import Primitive
from wonderland.core.program import Program, run
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.elementwise import add, lt, sub, where
from wonderland.ops.reduce import max as reduce_max
from wonderland.ops.shape import convert, reshape, transpose
from wonderland.transform.batch import materialize
from wonderland.transform.programs import batch_program, pick, record


def _swapped(x: Any) -> Any:
    """Exchange the first two axes: the batch and the steps."""
    return transpose(x, permutation=(1, 0, *range(2, len(shape_of(x)))))


def batch(
    size: int, args: tuple[Any, ...], batched: tuple[Any, ...], params: dict[Any, Any]
) -> tuple[list[Any], list[Any]]:
    """`scan`'s rule: the loop of the batched body, if all entries run for the same steps."""
    p, b = Parts(args, params), Parts(batched, params)
    body, condition, n_carry = params["body"], params["condition"], params["n_carry"]
    consts, xs = tuple(b.consts), tuple(b.xs)
    none = (False,) * len(body.outputs)

    def step(flags: tuple) -> Sequence[bool]:
        return batch_program(body, size, (*consts, *flags, *xs), none)[1][:n_carry]

    carry = tuple(closed(list(b.carry), step))
    masked = bool(b.head and b.head[0])
    if condition is not None:
        masked = batch_program(condition, size, (*consts, *carry), (False,))[1][0]
    if masked:  # entries of the batch stop at different times: all carries differ from then on
        carry = (True,) * n_carry
    operands_xs = [_swapped(x) if f else x for x, f in zip(p.xs, xs, strict=True)]
    initial = [materialize(size, k, was) if f else k for k, f, was in zip(p.carry, carry, b.carry, strict=True)]
    form, out_flags = batch_program(body, size, (*consts, *carry, *xs), (*carry, *none[n_carry:]))
    y_flags = out_flags[n_carry:]
    if masked and len(body.outputs) == n_carry and (body.effects or (condition is not None and condition.effects)):
        return one_by_one(scan_p, size, args, batched, params)
    loop = _Batched(size, params, form, (consts, carry, xs))
    if not masked:
        new_condition = condition and batch_program(condition, size, (*consts, *carry), (False,))[0]
        outs = scan_p(
            *p.head, *p.consts, *initial, *operands_xs, **{**params, "body": form, "condition": new_condition}
        )
        new_carry, count, ys = split_outputs(outs, params)
        count_flags = [False for _ in count]
    elif condition is not None:
        new_carry, count, ys = loop.run_while(p.consts, initial)
        count_flags = [True]
    else:
        new_carry, count, ys = loop.run_counted(p.head[0], p.consts, initial, operands_xs)
        count_flags = []
    ys = [_swapped(y) if f else y for y, f in zip(ys, y_flags, strict=True)]
    return [*new_carry, *count, *ys], [*carry, *count_flags, *y_flags]


def one_by_one(
    primitive: Primitive, size: int, args: tuple[Any, ...], batched: tuple[Any, ...], params: dict[Any, Any]
) -> tuple[list[Any], list[Any]]:
    """The batch rule of what has effects: for one element after the other."""
    fixed, rows = pick(args, [not b for b in batched]), pick(args, batched)

    def element(*values: Any) -> Sequence[Any]:
        return primitive(*merge(values[len(fixed) :], values[: len(fixed)], batched), **params)

    types = [*map(type_of, fixed), *(ArrayType(t.shape[1:], t.dtype) for t in map(type_of, rows))]
    outs = scan_p(
        *fixed, *rows, body=record(element, types), condition=None, n_consts=len(fixed), n_carry=0, length=size,
        reverse=False,
    )  # fmt: skip
    return list(outs), [True] * len(outs)


class _Batched:
    """Loops whose batch entries run for different numbers of steps: as many as the longest, the others held still."""

    def __init__(self, size: int, params: dict, form: Program, flags: tuple):
        self.size, self.params, self.form, self.flags = size, params, form, flags
        self.n_consts, self.n_carry = params["n_consts"], params["n_carry"]
        self.types = split(strong_types(form.input_types), self.n_consts, self.n_carry)

    def hold(self, active: Any, new: Sequence[Any], old: Sequence[Any]) -> list:
        """The new carry where the entry is still running, else the old one."""
        out = []
        for n, o in zip(new, old, strict=True):
            mask = reshape(active, shape=(self.size, *(1,) * (len(shape_of(o)) - 1)))
            out.append(where(mask, n, o))
        return out

    def step(self, active: Any, *args: Any) -> list[list]:
        """The body's new carry and ys. If it may raise, it sees what it is run on for entries still running."""
        if may_raise(self.params["body"]):
            args = tuple(taken_rows(active, args, [flag for group in self.flags for flag in group]))
        return split(run(self.form, args), self.n_carry)

    def run_while(self, consts: list, initial: list) -> tuple[list, list, list]:
        consts_flags, carry_flags, _ = self.flags
        condition, _ = batch_program(self.params["condition"], self.size, (*consts_flags, *carry_flags), (True,))

        def body(*args: Any) -> list:
            c, k, (count,) = split(args, self.n_consts, self.n_carry)
            active = run(condition, (*c, *k))[0]
            new, ys = self.step(active, *c, *k)
            return [*self.hold(active, new, k), add(count, convert(active, dtype=INT.dtype)), *ys]

        def any_active(*args: Any) -> list:
            c, k, _ = split(args, self.n_consts, self.n_carry)
            return [any_of(run(condition, (*c, *k))[0])]

        types = [*self.types[0], *self.types[1], ArrayType((self.size,), np.int64)]
        new = {**self.params, "body": record(body, types), "condition": record(any_active, types)}
        new["body"].cache[UNBATCHED] = self.params["body"], self.params["condition"]
        new["n_carry"] = self.n_carry + 1
        outs = scan_p(*consts, *initial, np.zeros(self.size, np.int64), **new)
        carry, _, ys = split_outputs(outs, new)
        return carry[:-1], carry[-1:], ys

    def run_counted(self, lengths: Any, consts: list, initial: list, xs: list) -> tuple[list, list, list]:
        step = sub if self.params["reverse"] else add

        def body(*args: Any) -> list:
            (limits,), c, k, (t,), x = split(args, 1, self.n_consts, self.n_carry, 1)
            active = lt(t, limits)
            new, ys = self.step(active, *c, *k, *x)
            return [*self.hold(active, new, k), step(t, np.int64(1)), *ys]

        types = [ArrayType((self.size,), np.int64), *self.types[0], *self.types[1], INT, *self.types[2]]
        longest = reduce_max(lengths, axes=(0,))
        first = sub(longest, np.int64(1)) if self.params["reverse"] else np.int64(0)
        new = {**self.params, "body": record(body, types), "n_consts": self.n_consts + 1, "n_carry": self.n_carry + 1}
        outs = scan_p(longest, lengths, *consts, *initial, first, *xs, **new)
        carry, ys = split(outs, self.n_carry + 1)
        return carry[:-1], [], ys
