"""Linear functions: is a Program linear in some of its inputs, and if not, why; and the transpose of a function.

A rule for tangents has to be linear in them for reverse mode, and so has a function that is to be transposed. A value
is one of these dependences here: linear in what is asked about, zero, perhaps zero, or something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from wonderland.control.bodies import type_like
from wonderland.core import tree
from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import handles
from wonderland.core.level import Traced
from wonderland.core.primitive import Primitive
from wonderland.core.program import Literal, Program
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, is_differentiable
from wonderland.ops.shape import zeros_like_type
from wonderland.transform.closures import unwritten
from wonderland.transform.derivatives import matched, named, quiet
from wonderland.transform.programs import record
from wonderland.transform.residuals import kept
from wonderland.transform.transpose import transpose

LINEAR, ZERO, UNKNOWN, OTHER = "linear", "zero", "unknown", "other"
Dependences = Sequence[str]


class NotLinear(Exception):
    """Why something isn't linear, in words that follow "it isn't linear in its argument: it": `uses sin`."""


def dependence_of(value: Any, traced: str = OTHER) -> str:
    """That of a value that doesn't depend on what is asked about; nobody knows whether a traced one is zero."""
    return traced if isinstance(value, Traced) else OTHER if np.any(value) else ZERO


def program_dependences(program: Program, inputs: Dependences) -> list[str]:
    """The dependences of a Program's outputs; raises `NotLinear` where a linear value is used in another way."""
    dependences: dict[Any, str] = dict(zip(program.inputs, inputs, strict=True))
    dependences.update((v, dependence_of(value)) for v, value in program.constants)

    def dependence(a: Any) -> str:
        return dependence_of(a.value) if type(a) is Literal else dependences[a]

    for e in program.equations:
        found = equation_dependences(e.primitive, [dependence(a) for a in e.inputs], e.params, len(e.outputs))
        for v, k in zip(e.outputs, found, strict=True):
            if k is LINEAR and not is_differentiable(v.dtype):
                raise NotLinear(f"makes integers ({e.primitive.name})")
            dependences[v] = k
    return [dependence(a) for a in program.outputs]


def equation_dependences(
    primitive: Primitive, operands: Dependences, params: dict[Any, Any], count: int
) -> Dependences:
    """The dependences of an operation's results."""
    touched = [i for i, dependence in enumerate(operands) if dependence is LINEAR]
    if touched and primitive.linearity is not None:
        return primitive.linearity(operands, params)
    if not count:
        return []  # an effect
    programs = primitive.calls(params) if touched and primitive.calls is not None else ()
    if programs:
        return _called(programs, operands, primitive.name)
    linear = {i % len(operands) for i in primitive.linear}
    if not touched:
        zeros = all(operands[i] is ZERO for i in linear or range(len(operands)))
        zero = zeros and (linear or _keeps_zero(primitive, len(operands)))
        other = UNKNOWN if UNKNOWN in operands else OTHER
        return [ZERO if zero or (primitive.bilinear and ZERO in operands[:2]) else other] * count
    if linear and {*touched} <= linear:
        return [joined([operands[i] for i in linear], primitive.name)] * count
    if primitive.bilinear:
        if touched == [0, 1]:
            raise NotLinear(f"multiplies two values that depend on the input ({primitive.name})")
        if {*touched} <= {0, 1}:
            return [LINEAR] * count
    if primitive.transpose and not linear and not primitive.bilinear:
        return [LINEAR] * count
    raise NotLinear(f"uses {primitive.name}")


def _called(programs: Sequence[Program], operands: Dependences, name: str) -> Dependences:
    """The dependences of the results of a primitive that runs one of these Programs."""
    first = len(operands) - len(programs[0].inputs)
    if LINEAR in operands[:first]:
        raise NotLinear(f"decides by a value that depends on the input ({name})")
    rows = zip(*(program_dependences(program, operands[first:]) for program in programs), strict=True)
    return [joined(row, name) for row in rows]


@cache
def _keeps_zero(primitive: Primitive, count: int) -> bool:
    """Is a function of numbers 0 where they are? That of integers, which takes no 0.0, isn't asked."""
    try:
        with np.errstate(all="ignore"):
            return primitive.elementwise and not np.any(primitive.evaluate(*[0.0] * count))
    except TypeError:
        return False


def joined(dependences: Sequence[str], name: str) -> str:
    """The dependence of the sum of values, or of one that is one of several."""
    if LINEAR in dependences and OTHER in dependences:
        raise NotLinear(f"adds or joins a value that isn't zero ({name})")
    return next(dependence for dependence in (LINEAR, OTHER, UNKNOWN, ZERO) if dependence in dependences)


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
    dependences = [_as_type(leaf, i) for i, leaf in enumerate(leaves)]
    out = structure

    def flat(*values: Any) -> list:
        nonlocal out
        results, out = tree.flatten(f(*structure.unflatten([Tracer(v) for v in values])))
        return [unwrap(r) for r in results]

    with quiet(), unwritten(f, f"linear_transpose: {name}", "Pass the object to the function."):
        program = record(flat, dependences, f"linear_transpose({name})")
    constants = [(v, kept(value)) for v, value in program.constants]
    program = Program(program.inputs, program.equations, program.outputs, constants)
    which = "argument" if len(types) == 1 else "arguments"
    try:
        found = program_dependences(program, [LINEAR] * len(dependences))
    except NotLinear as why:
        raise ArgumentError(f"{name} isn't linear in its {which}: it {why}") from None
    for dependence, t in zip(found, program.output_types, strict=True):
        if dependence is OTHER or not is_differentiable(t.dtype):
            raise ArgumentError(f"{name} isn't linear in its {which}: a result, {t}, is constant")

    def transposed(cotangent: Any) -> tuple:
        given, actual = tree.flatten(cotangent)
        if actual != out:
            raise ArgumentError(f"the cotangent has structure {actual}, the result of {name} {out}")
        pairs = zip(given, program.output_types, strict=True)
        cts = [matched(unwrap(leaf), t, f"the cotangent of {name}") for leaf, t in pairs]
        with quiet():
            results = transpose(program, {}, cts)
        results = [zeros_like_type(t) if r is None else r for r, t in zip(results, dependences, strict=True)]
        return structure.unflatten(handles(results))

    return named(transposed, f, "linear_transpose")


def _as_type(leaf: Any, number: int) -> ArrayType:
    try:
        found = type_like(leaf)
    except TypeError as error:
        raise ArgumentError(f"linear_transpose: leaf {number} of the types: {error}") from None
    if not is_differentiable(found.dtype):
        raise ArgumentError(
            f"linear_transpose: leaf {number} of the types is {found}: a function of integers isn't linear. Use a "
            "floating-point example, or capture it."
        )
    return found
