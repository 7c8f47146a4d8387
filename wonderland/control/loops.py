"""The loops people write: `scan`, `while_loop`, `fori_loop`, all of them one primitive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wonderland.control.bodies import RecordedBody, flat_operands, share_captured, strong
from wonderland.control.scan import scan_p, split
from wonderland.control.segments import checkpointed
from wonderland.core import tree
from wonderland.core.errors import ArgumentError, MutationError, check_function
from wonderland.core.functions import bound_object, handles, mutable_leaves, rebound, write_into
from wonderland.core.program import Program, run
from wonderland.core.tracer import unwrap
from wonderland.core.types import ArrayType, promote, type_of
from wonderland.ops.elementwise import maximum, sub
from wonderland.ops.shape import convert
from wonderland.transform.programs import pick, record


def scan(
    f: Callable, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False, checkpoint: Any = None
) -> tuple[Any, Any]:
    """Loop over the leading axis: `carry, y = f(carry, x)` for each slice x of `xs`; returns `(carry, ys)`.

    `init` and `xs` are trees; with `xs=None` give `length`. `reverse` runs from the last slice to the first (ys keep
    the order of xs).

    `checkpoint` lets reverse mode keep less and compute steps again: "sqrt" keeps the carry every sqrt(n) steps, a
    number k every k steps, and `wl.binomial(slots)` so many carries at the steps where that is best; "binomial" takes
    as many slots as let no step run forward more than three times.
    """
    check_function(f, "scan")
    if (owner := bound_object(f)) is not None:  # it is carried, too

        def with_owner(carry: Any, x: Any) -> Any:
            new, y = rebound(f, carry[0])(carry[1], x)
            return (carry[0], new), y

        (_, final), ys = scan(with_owner, (owner, init), xs, length, reverse, checkpoint)
        return final, ys
    x_values, x_structure = flat_operands(xs, "scan")
    for i, x in enumerate(x_values):
        whole = type_of(x)
        if whole.ndim == 0:
            raise ArgumentError(f"scan: leaf {i} of xs is a scalar; xs need a leading axis to loop over")
        if length is None:
            length = whole.shape[0]
        if whole.shape[0] != length:
            raise ArgumentError(f"scan: leaf {i} of xs has {whole.shape[0]} slices along axis 0, expected {length}")
    if length is None:
        raise ArgumentError("scan: give xs to loop over, or length=")
    slices = [ArrayType(type_of(x).shape[1:], type_of(x).dtype) for x in x_values]
    carry, structure = flat_operands(init, "scan")

    def pair(carry: Any, x: Any) -> Any:
        out = f(carry, x)
        if not (isinstance(out, tuple) and len(out) == 2):
            raise ArgumentError(f"scan: the body must return a pair (carry, y), got {type(out).__name__}")
        return out

    carry, body = _fitting(pair, carry, structure, slices, x_structure, "scan")
    loop = _Carried(body, carry, structure)
    params = {
        "body": loop.body, "condition": None, "n_consts": len(loop.consts), "n_carry": len(loop.carry),
        "length": int(length), "reverse": bool(reverse),
    }  # fmt: skip
    outs = checkpointed((*loop.consts, *loop.carry, *x_values), params, checkpoint, "scan")
    final, ys = split(list(outs), len(loop.carry))
    outs = None
    y_structure = body.structure.children[1]
    return loop.result(init, final), y_structure.unflatten(handles(ys))


class _Carried:
    """A loop's carry. Leaves of mutable objects that the body leaves as they are, are constants of the loop."""

    def __init__(self, body: RecordedBody, carry: list, structure: tree.Structure):
        mutable = mutable_leaves(structure)
        outputs, inputs = body.program.outputs, body.program.inputs[len(body.captured) :]
        self.fixed = [m and outputs[k] is inputs[k] for k, m in enumerate(mutable)]
        self.moving = [not fixed for fixed in self.fixed]
        self.structure, self.mutable, self.all, self.count = structure, mutable, carry, len(body.captured)
        self.consts = [*body.captured, *pick(carry, self.fixed)]
        self.carry = pick(carry, self.moving)
        kept = [o for k, o in enumerate(outputs) if k >= len(carry) or self.moving[k]]
        self.body = self.reordered(body.program, kept)

    def reordered(self, program: Program, outputs: Any = None) -> Program:
        """A Program of the captured values and the carry, with the fixed part of that before the rest."""
        if not any(self.fixed):
            return program
        stop = self.count + len(self.fixed)
        carry, rest = program.inputs[self.count : stop], program.inputs[stop:]
        inputs = (*program.inputs[: self.count], *pick(carry, self.fixed), *pick(carry, self.moving), *rest)
        outputs = program.outputs if outputs is None else outputs
        return Program(inputs, program.equations, outputs, program.constants)

    def result(self, init: Any, final: list) -> Any:
        """The final carry: mutable objects are the caller's, with new values."""
        if not self.structure.has_mutable:
            return self.structure.unflatten(handles(final))
        owners = tree.leaves(init)
        new = iter(handles(final))
        leaves = [old if fixed else next(new) for old, fixed in zip(self.all, self.fixed, strict=True)]
        for owner, leaf, written, moving in zip(owners, leaves, self.mutable, self.moving, strict=True):
            if written and moving:
                write_into(owner, unwrap(leaf))
        return tree.merged(init, self.structure, leaves)


def _fitting(
    f: Callable, carry: list, structure: tree.Structure, slices: list, x_structure: tree.Structure | None, name: str
) -> tuple[list, RecordedBody]:
    """Record the body; Python scalars in the initial carry take the dtype that the body gives them."""
    whole = tree.flatten((0,))[1]
    children = (structure,) if x_structure is None else (structure, x_structure)
    arguments = tree.Structure(whole.kind, None, children)
    weak = [type_of(v).weak for v in carry]
    for attempt in range(4):
        # At first as Python scalars, which take the dtype of what they meet.
        types = [type_of(v) if attempt == 0 else strong(type_of(v)) for v in carry]
        body = RecordedBody(f, arguments, [*types, *slices], name)
        _check_reads(body, carry, "what it loops over", len(carry))
        out_structure = body.structure if x_structure is None else body.structure.children[0]
        if out_structure != structure:
            raise ArgumentError(
                f"{name}: the body must return a carry like the initial one, {structure}, got {out_structure}"
            )
        new = body.types[: len(types)]
        goals = [ArrayType(t.shape, promote(t, o)[0]) if w else t for t, o, w in zip(types, new, weak, strict=True)]
        if goals == types:
            break
        carry = [convert(v, dtype=g.dtype) for v, g in zip(carry, goals, strict=True)]
    for i, (t, o) in enumerate(zip(types, new, strict=True)):
        if (t.shape, t.dtype) != (o.shape, o.dtype):
            if t.shape == o.shape and o.weak:
                continue
            raise ArgumentError(
                f"{name}: leaf {i} of the carry comes in as {t} and leaves the body as {strong(o)}. It must keep its "
                "shape and dtype: convert the initial value, or the result with .astype."
            )
    values = [v if type_of(v) == t else convert(v, dtype=t.dtype) for v, t in zip(carry, types, strict=True)]
    return values, _strong_outputs(body, types)


def _check_reads(body: RecordedBody, carry: list, what: str, start: int = 0) -> None:
    """Refuse writes to a mutable object that isn't carried on."""
    if any(i >= start for i in body.written):
        raise MutationError(
            f"the body of a loop writes to a mutable object where that is lost: in {what}. Carry the object through "
            "the loop: return it from the body."
        )


def _strong_outputs(body: RecordedBody, types: list[ArrayType]) -> RecordedBody:
    program = body.program
    if any(o.weak or o.dtype != t.dtype for o, t in zip(program.output_types, types, strict=False)):

        def f(*args: Any) -> list:
            outs = list(run(program, args))
            goals = [*types, *(strong(t) for t in program.output_types[len(types) :])]
            return [convert(o, dtype=g.dtype) if type_of(o) != g else o for o, g in zip(outs, goals, strict=True)]

        body.program = record(f, program.input_types)
    return body


def while_loop(cond_fun: Callable, body_fun: Callable, init: Any) -> Any:
    """`while cond_fun(carry): carry = body_fun(carry)`; returns the carry. Reverse mode works."""
    owners = [owner for owner in map(bound_object, (cond_fun, body_fun)) if owner is not None]
    if owners:  # they are carried, too; if both functions have the same, it is one object in two places

        def of(f: Callable, held: list) -> Callable:
            own = bound_object(f)
            same = [new for old, new in zip(owners, held, strict=True) if old is own]
            return rebound(f, same[0]) if same else f

        test = lambda carry: of(cond_fun, carry[0])(carry[1])
        return while_loop(test, lambda carry: (carry[0], of(body_fun, carry[0])(carry[1])), (owners, init))[1]
    carry, structure = flat_operands(init, "while_loop")
    carry, body = _fitting(body_fun, carry, structure, [], None, "while_loop")
    arguments = tree.Structure(tree.flatten((0,))[1].kind, None, (structure,))
    test = RecordedBody(cond_fun, arguments, [strong(type_of(v)) for v in carry], "while_loop's condition")
    if test.structure.kind is not None or test.types[0].shape != () or test.types[0].dtype != bool:
        raise ArgumentError(
            f"while_loop: the condition must return one bool, got {test.structure} of {test.types}. Use a comparison, "
            "and np.all or np.any to reduce an array of bools."
        )
    _check_reads(test, carry, "while_loop's condition")
    (condition, body.program), body.captured = share_captured(
        [test.program, body.program], [test.captured, body.captured]
    )
    loop = _Carried(body, carry, structure)
    outs = scan_p(
        *loop.consts, *loop.carry, body=loop.body, condition=loop.reordered(condition), n_consts=len(loop.consts),
        n_carry=len(loop.carry), length=None, reverse=False,
    )  # fmt: skip
    return loop.result(init, list(outs[: len(loop.carry)]))


def fori_loop(lower: Any, upper: Any, body_fun: Callable, init: Any, checkpoint: Any = None) -> Any:
    """`for i in range(lower, upper): carry = body_fun(i, carry)`; returns the carry. The bounds may be traced.

    `checkpoint` is `scan`'s, for bounds that are known beforehand.
    """
    check_function(body_fun, "fori_loop")
    if (owner := bound_object(body_fun)) is not None:  # it is carried, too
        with_owner = lambda i, carry: (carry[0], rebound(body_fun, carry[0])(i, carry[1]))
        return fori_loop(lower, upper, with_owner, (owner, init), checkpoint)[1]
    start, stop = unwrap(lower), unwrap(upper)
    for bound in (start, stop):
        array_type = type_of(bound)
        if array_type.shape != () or array_type.dtype.kind not in "iu":
            raise ArgumentError(f"fori_loop: bounds are integer scalars, got {array_type}")
    carry, structure = flat_operands(init, "fori_loop")
    pair_structure = tree.Structure(tree.flatten((0, 0))[1].kind, None, (tree.LEAF, structure))

    def step(state: Any) -> Any:
        i, carry = state
        return i + 1, body_fun(i, carry)

    start = convert(start, dtype=np.dtype(np.int64))
    values, body = _fitting(step, [start, *carry], pair_structure, [], None, "fori_loop")
    static = isinstance(stop, (int, np.integer)) and isinstance(start, (int, np.integer))
    head = [] if static else [_distance(start, stop)]
    loop = _Carried(body, values, pair_structure)
    params = {
        "body": loop.body, "condition": None, "n_consts": len(loop.consts), "n_carry": len(loop.carry),
        "length": max(int(stop) - int(start), 0) if static else None, "reverse": False,
    }  # fmt: skip
    outs = checkpointed((*head, *loop.consts, *loop.carry), params, checkpoint, "fori_loop")
    return loop.result((lower, init), list(outs[: len(loop.carry)]))[1]


def _distance(start: Any, stop: Any) -> Any:
    return maximum(sub(convert(stop, dtype=np.dtype(np.int64)), start), np.int64(0))
