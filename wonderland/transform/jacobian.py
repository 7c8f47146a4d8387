"""`jacobian`: all derivatives of a function at once, by batched passes forward or in reverse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.forks import loading
from wonderland.core.functions import Call, handles
from wonderland.core.later import Slot
from wonderland.core.program import Equation, Program, eliminate_dead, run, subprograms
from wonderland.core.types import ArrayType, P, is_differentiable, shape_of, type_of
from wonderland.ops.elementwise import add, conjugate, mul
from wonderland.ops.shape import convert, reshape, zeros_like_type
from wonderland.transform.chunks import (
    check_chunks,
    chunk_of,
    part,
    sweep,
)
from wonderland.transform.derivatives import (
    Linearized,
    argument_numbers,
    aux_structure,
    named,
    quiet,
    selected,
)
from wonderland.transform.programs import pick, record
from wonderland.transform.transpose import pull_back
from wonderland.transform.vmap import move_axis

MODES = ("auto", "forward", "reverse", "elimination")


# The blocks of a sparse Jacobian, (program, types of inputs and of outputs, seeds at once); None if that doesn't pay.
compressed: Slot[[Program, Sequence[ArrayType], Sequence[ArrayType], int | None], list[list[Any]] | None]
compressed = Slot("compressed")


def jacobian(
    f: Callable[P, Any],
    argnums: int | Sequence[int] = 0,
    mode: str = "auto",
    chunk_size: int | str | None = "auto",
    *,
    has_aux: bool = False,
    memory_budget: float | None = None,
    order: str = "search",
    search_seconds: float = 10.0,
) -> Callable[P, Any]:
    """The Jacobian of `f`: for each output leaf and each chosen argument leaf an array of shape `out.shape + in.shape`.

    mode "forward" pushes one tangent per input element, "reverse" pulls one cotangent per output element, batched;
    "auto" takes what costs less, counted on the linear Program, and lets columns or rows of a sparse Jacobian share
    seeds where that saves half of the passes or more. "elimination" is for functions of numbers and small arrays:
    vertices of the computational graph are eliminated in an `order` that is "forward", "reverse", "markowitz" or
    "search"ed for, once per graph and for at most `search_seconds`; on arrays, and as a Program under `jit`.

    `chunk_size` is how many seeds go through at once: a number, None for all, or "auto" for as many as keep the pass
    within `memory_budget` bytes (256 MiB, in compiled code 16 MiB; the Jacobian itself comes on top). With `has_aux`,
    f returns `(out, aux)` and the result is `(jacobian, aux)`.

    Complex numbers: of a complex result with respect to a complex argument it is the derivative of a holomorphic
    function; of a real result it is the gradient, as `grad` has it (|z|^2 has 2 z).
    """
    if mode not in MODES:
        *most, last = map('"{}"'.format, MODES)
        raise ArgumentError(f"jacobian: mode is {', '.join(most)} or {last}, not {mode!r}")
    check_chunks(chunk_size, memory_budget, "jacobian")
    if order not in ("forward", "reverse", "markowitz", "search"):
        raise ArgumentError(f'jacobian: order is "forward", "reverse", "markowitz" or "search", not {order!r}')
    number = isinstance(search_seconds, (int, float, np.number)) and not isinstance(search_seconds, bool)
    if not (number and search_seconds >= 0):
        raise ArgumentError(f"jacobian: search_seconds is a number of seconds, such as 10.0, not {search_seconds!r}")
    single = isinstance(argnums, (int, np.integer))

    def blocks_of(program: Program, inputs: list[ArrayType], outputs: list[ArrayType]) -> list[list]:
        if mode == "elimination":
            with loading():  # not before: few programs need it
                from wonderland.transform.elimination import eliminate

            return eliminate(program, order, search_seconds)
        size = chunk_of(program, chunk_size, memory_budget)
        found = compressed(program, inputs, outputs, size) if mode == "auto" else None
        if found is not None:
            return found
        forward = mode == "forward" or (mode == "auto" and prefer_forward(program, inputs, outputs))
        return (by_columns if forward else by_rows)(program, inputs, outputs, size)

    def compute(*args: Any, **kwargs: Any) -> Any:
        numbers = argument_numbers(argnums, len(args))
        call = Call(f, args, kwargs, numbers)
        select = selected(call, numbers)
        with quiet():
            lin = Linearized(call, select)
            types, value = lin.types, lin.take_value()
            structure = call.out_structure
            assert structure is not None
            aux = None
            if has_aux:
                structure, aux = aux_structure(structure), value[1]
            blocks = _blocks(lin, select, types[: structure.leaf_count], blocks_of)
        trees = []
        for row in blocks:
            per_argument = call.structure.unflatten(handles(row))[0]
            trees.append(per_argument[numbers[0]] if single else tuple(per_argument[i] for i in numbers))
        result = structure.unflatten(trees)
        return (result, aux) if has_aux else result

    options = {"has_aux": has_aux, "memory_budget": memory_budget, "order": order, "search_seconds": search_seconds}
    return named(compute, f, "jacobian", jacobian, argnums, mode, chunk_size, **options)


def jacfwd(f: Callable[P, Any], argnums: int | Sequence[int] = 0, **options: Any) -> Callable[P, Any]:
    """The Jacobian by forward mode, column by column: `jacobian(f, argnums, mode="forward")`."""
    check_function(f, "jacfwd")
    return jacobian(f, argnums, "forward", **options)


def jacrev(f: Callable[P, Any], argnums: int | Sequence[int] = 0, **options: Any) -> Callable[P, Any]:
    """The Jacobian by reverse mode, row by row: `jacobian(f, argnums, mode="reverse")`."""
    check_function(f, "jacrev")
    return jacobian(f, argnums, "reverse", **options)


def _blocks(lin: Linearized, chosen: list[bool], out_types: list[ArrayType], blocks_of: Callable) -> list[list]:
    """For each output, the blocks of all leaves: zeros where nothing depends, None where nothing is asked."""
    depends = lin.has_tangent[: len(out_types)]
    program = eliminate_dead(Program(lin.program.inputs, lin.program.equations, lin.program.outputs[: sum(depends)]))
    inputs, outputs = list(program.input_types), pick(out_types, depends)
    sizes = [sum(t.size for t in group) for group in (inputs, outputs)]
    found = iter(blocks_of(program, inputs, outputs) if all(sizes) else ())
    blocks = []
    for out, flag in zip(out_types, depends, strict=True):
        row = iter(next(found, ()) if flag else ())
        leaves: list = [None] * len(chosen)
        for i in np.flatnonzero(chosen):
            kind = lin.call.types[i]
            dtype = out.dtype if is_differentiable(out.dtype) else kind.dtype
            zeros = zeros_like_type(ArrayType((*out.shape, *kind.shape), dtype))
            leaves[i] = next(row, zeros) if lin.select[i] else zeros
        blocks.append(leaves)
    return blocks


def prefer_forward(program: Program, inputs: Sequence[ArrayType], outputs: Sequence[ArrayType]) -> bool:
    """Do n runs of a linear Program cost less than m of its transpose? Or is there only one way?"""
    n, m = (sum(t.size for t in group) for group in (inputs, outputs))
    # No transpose is so much dearer that it need be written down and counted.
    forward, reverse = pass_costs(program, outputs, count=m < 4 * n < 16 * m)
    return n * forward <= m * reverse


def pass_costs(program: Program, outputs: Sequence[ArrayType], count: bool = True) -> tuple[float, float]:
    """Operations of a run of a linear Program and of its transpose, or only their ratio; inf if there is none."""
    equations = list(all_equations(program))
    if any(e.primitive.reverse_only for e in equations):
        return math.inf, 1
    if any(e.primitive.transpose is None for e in equations):
        return 1, math.inf
    if not count or all(e.primitive.balanced for e in equations):  # J' v has the multiplications of J v
        return 1, 1
    with loading():  # not before: it loads what an import shouldn't
        from wonderland.transform.cost import cost

    backward = record(lambda *cts: pulled(program, cts), outputs)
    return cost(program).operations, cost(backward).operations


def all_equations(program: Program) -> Iterator[Equation]:
    """The equations of a Program and of those that they hold, which come first."""
    for equation in program.equations:
        for inside in subprograms(equation):
            yield from all_equations(inside)
        yield equation


def by_columns(
    program: Program, inputs: list[ArrayType], outputs: list[ArrayType], size: int | None
) -> list[list[Any]]:
    """Blocks by output and input of a linear Program, by pushing unit vectors."""

    def columns(factor: complex) -> list[list]:
        found = sweep(lambda seeds: run(program, seeds), inputs, size, factor)
        return [split(move_axis(out, 0, -1), inputs, -1) for out in found]

    blocks = columns(1)
    along_i = _second_pass(inputs, outputs)  # a real result of a complex argument has a derivative along i as well
    if along_i:
        other = columns(1j)
        for k, j in along_i:
            blocks[k][j] = add(blocks[k][j], mul(other[k][j], 1j))
    return blocks


def by_rows(program: Program, inputs: list[ArrayType], outputs: list[ArrayType], size: int | None) -> list[list[Any]]:
    """Blocks by output and input of a linear Program, by pulling unit vectors."""

    def rows(factor: complex) -> list[list]:
        found = sweep(lambda seeds: pulled(program, seeds), outputs, size, factor)
        return [list(row) for row in zip(*(split(out, outputs, 0) for out in found), strict=True)]

    blocks = rows(1)
    imaginary = _second_pass(outputs, inputs)  # the imaginary part of a complex result of a real argument
    if imaginary:
        other = rows(1j)
        for j, k in imaginary:
            blocks[k][j] = add(blocks[k][j], mul(other[k][j], 1j))
    for k, row in enumerate(blocks):
        if outputs[k].dtype.kind == "c":  # what is pulled back is the conjugate of a holomorphic derivative
            row = [conjugate(b) if t.dtype.kind == "c" and (j, k) not in imaginary else b
                   for j, (b, t) in enumerate(zip(row, inputs, strict=True))]  # fmt: skip
        blocks[k] = [as_output(b, outputs[k].dtype) for b in row]
    return blocks


def pulled(program: Program, cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents of all inputs of a linear Program."""
    found = pull_back(program, cotangents, consume=False)
    return [zeros_like_type(t) if ct is None else ct for ct, t in zip(found, program.input_types, strict=True)]


def as_output(block: Any, dtype: np.dtype) -> Any:
    """What is pulled back has the argument's precision; a Jacobian has that of the result, in both modes."""
    found = type_of(block).dtype
    return convert(block, dtype=dtype) if found.kind == dtype.kind and found != dtype else block


def _second_pass(seeded: list[ArrayType], found: list[ArrayType]) -> list[tuple[int, int]]:
    """Pairs (found, seeded) of a real and a complex leaf: one seed per element says only half of its derivative."""
    return [
        (k, j) for k, t in enumerate(found) for j, s in enumerate(seeded) if s.dtype.kind == "c" and t.dtype.kind == "f"
    ]


def split(value: Any, types: Sequence[ArrayType], axis: int) -> list[Any]:
    """An axis over the elements of all leaves becomes, for each leaf, that leaf's own axes."""
    out, start, shape = [], 0, shape_of(value)
    axis %= len(shape)
    for t in types:
        leaf = value if len(types) == 1 else part(value, start, start + t.size, axis)
        out.append(reshape(leaf, shape=(*shape[:axis], *t.shape, *shape[axis + 1 :])))
        start += t.size
    return out
