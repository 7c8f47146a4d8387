"""Linear functions: is a Program linear in some of its inputs, and if not, why; and the transpose of a function.

A rule for tangents has to be linear in them for reverse mode, and so has a function that is to be transposed. A value
is one of these kinds here: linear in what is asked about, zero, perhaps zero, or something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import handles
from wonderland.core.level import Traced
from wonderland.core.primitive import Primitive
from wonderland.core.program import Literal, Program
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, is_differentiable, type_of
from wonderland.ops.shape import zeros_like_type
from wonderland.transform.closures import unwritten
from wonderland.transform.derivatives import matched, named, quiet
from wonderland.transform.programs import record
from wonderland.transform.residuals import kept
from wonderland.transform.transpose import transpose

LINEAR, ZERO, UNKNOWN, OTHER = "linear", "zero", "unknown", "other"
Kinds = Sequence[str]


class NotLinear(Exception):
    """Why something isn't linear, in words that follow "it isn't linear in its argument: it": `uses sin`."""


def kind_of(value: Any, traced: str = OTHER) -> str:
    """The kind of a value that doesn't depend on what is asked about; nobody knows whether a traced one is zero."""
    return traced if isinstance(value, Traced) else OTHER if np.any(value) else ZERO


def program_kinds(program: Program, inputs: Kinds) -> list[str]:
    """The kinds of a Program's outputs; raises `NotLinear` where a linear value is used in another way."""
    kinds: dict[Any, str] = dict(zip(program.inputs, inputs, strict=True))
    kinds.update((v, kind_of(value)) for v, value in program.constants)

    def kind(a: Any) -> str:
        return kind_of(a.value) if type(a) is Literal else kinds[a]

    for e in program.equations:
        found = equation_kinds(e.primitive, [kind(a) for a in e.inputs], e.params, len(e.outputs))
        for v, k in zip(e.outputs, found, strict=True):
            if k is LINEAR and not is_differentiable(v.dtype):
                raise NotLinear(f"makes integers ({e.primitive.name})")
            kinds[v] = k
    return [kind(a) for a in program.outputs]


def equation_kinds(primitive: Primitive, operands: Kinds, params: dict[Any, Any], count: int) -> Kinds:
    """The kinds of an operation's results."""
    touched = [i for i, kind in enumerate(operands) if kind is LINEAR]
    rule: Any = _HOLDING.get(primitive.name)
    if touched and rule is not None:
        return rule(operands, params)
    if not count:
        return []  # an effect
    inside = primitive.inline and primitive.inline(params)
    if touched and inside:
        return program_kinds(inside, operands)
    linear = {i % len(operands) for i in primitive.linear}
    if not touched:
        zero = [operands[i] is ZERO for i in linear] or [primitive.zero_preserving, [*operands[:1]] == [ZERO]]
        other = UNKNOWN if UNKNOWN in operands else OTHER
        return [ZERO if all(zero) or (primitive.bilinear and ZERO in operands[:2]) else other] * count
    if linear and {*touched} <= linear:
        return [_joined([operands[i] for i in linear], primitive.name)] * count
    if primitive.bilinear:
        if touched == [0, 1]:
            raise NotLinear(f"multiplies two values that depend on the input ({primitive.name})")
        if {*touched} <= {0, 1}:
            return [LINEAR] * count
    if primitive.transpose and not linear and not primitive.bilinear:
        return [LINEAR] * count
    raise NotLinear(f"uses {primitive.name}")


def _cond(operands: Kinds, params: dict) -> Kinds:
    if operands[0] is LINEAR:
        raise NotLinear("decides by a value that depends on the input (cond)")
    rows = zip(*(program_kinds(branch, operands[1:]) for branch in params["branches"]), strict=True)
    return [_joined(row, "cond") for row in rows]


def _joined(kinds: Sequence[str], name: str) -> str:
    """The kind of the sum of values, or of one that is one of several."""
    if LINEAR in kinds and OTHER in kinds:
        raise NotLinear(f"adds or joins a value that isn't zero ({name})")
    return next(kind for kind in (LINEAR, OTHER, UNKNOWN, ZERO) if kind in kinds)


def _scan(operands: Kinds, params: dict) -> Kinds:
    dynamic = params["length"] is None and params["condition"] is None
    if dynamic and operands[0] is LINEAR:
        raise NotLinear("takes the length of a loop from the input")
    rest, n = list(operands[dynamic:]), params["n_carry"]
    consts, carry, xs = rest[: params["n_consts"]], rest[params["n_consts"] :][:n], rest[params["n_consts"] + n :]
    while True:  # what is carried from step to step, to a fixed point
        outs = program_kinds(params["body"], [*consts, *carry, *xs])
        new = [_joined(pair, "scan") for pair in zip(carry, outs, strict=False)]
        if new == carry:
            break
        carry = new
    count = []
    if params["condition"] is not None:
        count = [OTHER]
        try:
            decided = program_kinds(params["condition"], [*consts, *carry])
        except NotLinear:
            decided = [LINEAR]
        if decided == [LINEAR]:
            raise NotLinear("ends a loop by a value that depends on the input (while_loop)")
    return [*carry, *count, *outs[n:]]


def _custom_linear(operands: Kinds, params: dict) -> Kinds:
    if LINEAR in operands[: params["n_residuals"]]:
        raise NotLinear(f"uses the derivative of {params['call'].name}")
    return [LINEAR] * len(params["types"])


_HOLDING = {
    "cond": _cond,
    "scan": _scan,
    "custom_linear": _custom_linear,
    "recompute": lambda operands, params: program_kinds(params["program"], operands),
}


def linear_transpose(f: Callable, *types: Any) -> Callable:
    """The transpose of a linear function: `wl.linear_transpose(lambda x: A @ x, x)(ct)` is `(A.T @ ct,)`.

    `types` has an example of each argument: arrays or numbers, of which only shape and dtype count, things that have
    a `shape` and a `dtype`, or trees of them. The result takes a cotangent like the result of `f` and returns a tuple
    with one cotangent per argument. `f` is recorded once, here, and looked through: what isn't linear is refused. What
    it captures keeps the value it has now; the transpose can be differentiated with respect to it.

    The transpose is with respect to the real inner product Re(conj(a) b), as `vjp`'s is: of `z -> c * z` it is
    `w -> conj(c) * w`.
    """
    check_function(f, "linear_transpose")
    name = getattr(f, "__name__", "f")
    leaves, structure = tree.flatten(types)
    kinds = [_as_type(leaf, i) for i, leaf in enumerate(leaves)]
    out = structure

    def flat(*values: Any) -> list:
        nonlocal out
        results, out = tree.flatten(f(*structure.unflatten([Tracer(v) for v in values])))
        return [unwrap(r) for r in results]

    with quiet(), unwritten(f, f"linear_transpose: {name}", "Pass the object to the function."):
        program = record(flat, kinds, f"linear_transpose({name})")
    constants = [(v, kept(value)) for v, value in program.constants]
    program = Program(program.inputs, program.equations, program.outputs, constants)
    which = "argument" if len(types) == 1 else "arguments"
    try:
        found = program_kinds(program, [LINEAR] * len(kinds))
    except NotLinear as why:
        raise ArgumentError(f"{name} isn't linear in its {which}: it {why}") from None
    for kind, t in zip(found, program.output_types, strict=True):
        if kind is OTHER or not is_differentiable(t.dtype):
            raise ArgumentError(f"{name} isn't linear in its {which}: a result, {t}, is constant")

    def transposed(cotangent: Any) -> tuple:
        given, actual = tree.flatten(cotangent)
        if actual != out:
            raise ArgumentError(f"the cotangent has structure {actual}, the result of {name} {out}")
        pairs = zip(given, program.output_types, strict=True)
        cts = [matched(unwrap(leaf), t, f"the cotangent of {name}") for leaf, t in pairs]
        with quiet():
            results = transpose(program, {}, cts)
        results = [zeros_like_type(t) if r is None else r for r, t in zip(results, kinds, strict=True)]
        return structure.unflatten(handles(results))

    return named(transposed, f, "linear_transpose")


def _as_type(leaf: Any, number: int) -> ArrayType:
    value = unwrap(leaf)
    try:
        kind = type_of(value)
        kind = ArrayType(kind.shape, kind.dtype)
    except TypeError as error:
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            raise ArgumentError(f"linear_transpose: leaf {number} of the types: {error}") from None
        kind = ArrayType(tuple(value.shape), np.dtype(value.dtype))
    if not is_differentiable(kind.dtype):
        raise ArgumentError(
            f"linear_transpose: leaf {number} of the types is {kind}: a function of integers isn't linear. Use a "
            "floating-point example, or capture it."
        )
    return kind
