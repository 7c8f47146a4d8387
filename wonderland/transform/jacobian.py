"""`jacobian`: all derivatives of a function at once, by one batched pass forward or in reverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.functions import Call, handles
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, shape_of, type_of
from wonderland.ops.elementwise import add, conjugate, mul
from wonderland.ops.shape import reshape
from wonderland.transform.derivatives import Linearized, argument_numbers, named, quiet
from wonderland.transform.vmap import vmap


def jacobian(
    f: Callable,
    argnums: int | Sequence[int] = 0,
    mode: str = "auto",
    *,
    order: str = "search",
    search_seconds: float = 10.0,
) -> Callable:
    """The Jacobian of `f`: for each output leaf and each chosen argument leaf an array of shape `out.shape + in.shape`.

    mode "forward" pushes one tangent per input element, "reverse" pulls one cotangent per output element, in one
    batched pass; "auto" takes the smaller number. "elimination" is for functions of numbers and small arrays: vertices
    of the computational graph are eliminated in an `order` that is "forward", "reverse", "markowitz" or "search"ed
    for, once per graph and for at most `search_seconds`; on arrays, and as a Program under `jit`.

    Complex numbers: of a complex result with respect to a complex argument it is the derivative of a holomorphic
    function; of a real result it is the gradient, as `grad` has it (|z|^2 has 2 z).
    """
    if mode not in ("auto", "forward", "reverse", "elimination"):
        raise ArgumentError(f'jacobian: mode is "auto", "forward", "reverse" or "elimination", not {mode!r}')
    if order not in ("forward", "reverse", "markowitz", "search"):
        raise ArgumentError(f'jacobian: order is "forward", "reverse", "markowitz" or "search", not {order!r}')
    single = isinstance(argnums, (int, np.integer))

    def compute(*args: Any, **kwargs: Any) -> Any:
        numbers = argument_numbers(argnums, len(args))
        chosen = tuple(args[n] for n in numbers)

        def g(*values: Any) -> Any:
            full = list(args)
            for n, v in zip(numbers, values, strict=True):
                full[n] = v
            return f(*full, **kwargs)

        leaves, structure = tree.flatten(chosen)
        types = [type_of(unwrap(leaf)) for leaf in leaves]
        if not all(t.dtype.kind in "fc" for t in types):
            raise ArgumentError("jacobian needs floating-point arguments: use 2.0 instead of 2, or .astype(float)")
        with quiet():
            lin = Linearized(Call(g, chosen, {}), [True] * len(leaves))
        out_leaves, out_structure = tree.flatten(lin.take_value())
        out_types = [type_of(unwrap(leaf)) for leaf in out_leaves]
        n, m = (sum(t.size for t in group) for group in (types, out_types))
        with quiet():
            if mode == "elimination":
                from wonderland.transform.elimination import eliminate  # not before: few programs need it

                blocks = eliminate(lin, order, search_seconds)
            else:
                by_columns = mode == "forward" or (mode == "auto" and n < m)
                blocks = (_forward if by_columns else _reverse)(lin, types, out_types)
        trees = []
        for row in blocks:
            per_argument = structure.unflatten(handles(row))
            trees.append(per_argument[0] if single else per_argument)
        return out_structure.unflatten(trees)

    return named(compute, f, "jacobian")


def _forward(lin: Linearized, types: list[ArrayType], out_types: list[ArrayType]) -> list[list]:
    """Blocks by output and input, by columns."""

    def columns(seeds: list) -> list[list]:
        push = vmap(lambda *ts: [Tracer(t) for t in lin.push([unwrap(t) for t in ts])], out_axes=-1)
        return [_split(unwrap(r), types, -1) for r in push(*seeds)]

    seeds = _unit_vectors(types)
    blocks = columns(seeds)
    along_i = _second_pass(types, out_types)  # a real result of a complex argument has a derivative along i as well
    if along_i:
        other = columns([s * 1j if t.dtype.kind == "c" else s for s, t in zip(seeds, types, strict=True)])
        for k, j in along_i:
            blocks[k][j] = add(blocks[k][j], mul(other[k][j], 1j))
    return blocks


def _reverse(lin: Linearized, types: list[ArrayType], out_types: list[ArrayType]) -> list[list]:
    """Blocks by output and input, by rows."""

    def rows(seeds: list) -> list[list]:
        pull = vmap(lambda *cts: [Tracer(ct) for ct in lin.pull([unwrap(ct) for ct in cts])])
        by_input = [_split(unwrap(r), out_types, 0) for r in pull(*seeds)]
        return [list(row) for row in zip(*by_input, strict=True)]

    seeds = _unit_vectors(out_types)
    blocks = rows(seeds)
    imaginary = _second_pass(out_types, types)  # the imaginary part of a complex result of a real argument
    if imaginary:
        other = rows([s * 1j if t.dtype.kind == "c" else s for s, t in zip(seeds, out_types, strict=True)])
        for j, k in imaginary:
            blocks[k][j] = add(blocks[k][j], mul(other[k][j], 1j))
    for k, row in enumerate(blocks):
        if out_types[k].dtype.kind == "c":  # what is pulled back is the conjugate of a holomorphic derivative
            blocks[k] = [conjugate(b) if t.dtype.kind == "c" and (j, k) not in imaginary else b
                         for j, (b, t) in enumerate(zip(row, types, strict=True))]  # fmt: skip
    return blocks


def _second_pass(seeded: list[ArrayType], found: list[ArrayType]) -> list[tuple[int, int]]:
    """Pairs (found, seeded) of a real and a complex leaf: one seed per element says only half of its derivative."""
    return [
        (k, j) for k, t in enumerate(found) for j, s in enumerate(seeded) if s.dtype.kind == "c" and t.dtype.kind == "f"
    ]


def _unit_vectors(types: list[ArrayType]) -> list:
    """The unit vectors of a tree: for each leaf an array (total, *leaf.shape)."""
    total = sum(t.size for t in types)
    out, start = [], 0
    for t in types:
        block = np.zeros((total, t.size), t.dtype)
        block[np.arange(start, start + t.size), np.arange(t.size)] = 1
        out.append(block.reshape((total, *t.shape)))
        start += t.size
    return out


def _split(value: Any, types: list[ArrayType], axis: int) -> list:
    """An axis over the elements of all leaves becomes, for each leaf, that leaf's own axes."""
    out, start, shape = [], 0, shape_of(value)
    axis %= len(shape)
    for t in types:
        part = Tracer(value)[(*(slice(None),) * axis, slice(start, start + t.size))]._get()
        out.append(reshape(part, shape=(*shape[:axis], *t.shape, *shape[axis + 1 :])))
        start += t.size
    return out
