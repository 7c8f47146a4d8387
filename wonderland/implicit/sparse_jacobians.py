"""Sparse dF/dx: its pattern is found from the Program of F, and its numbers by few products, one for each colour.

Columns that share no row have one colour, and one product F' s with the sum s of their unit vectors has all of their
entries. The pattern is that of all arguments of the Program's types, so it is found and coloured once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.forks import loading
from wonderland.core.functions import handles
from wonderland.core.program import Program, run
from wonderland.core.types import shape_of, type_of
from wonderland.implicit.equations import Equations
from wonderland.implicit.systems.operators_sparse import SharedRows, Sparse, shared_rows
from wonderland.ops.index import gather
from wonderland.ops.pattern import program_reads, propagate
from wonderland.ops.shape import reshape
from wonderland.transform.programs import batch_program, jvp_program

FEW = 50  # entries in a row, on average, up to which sparse elimination is taken to be quicker than others


@dataclass(eq=False)
class Products:
    """The products that give a sparse Jacobian: directions (colours, n), and where each entry is in the results."""

    pattern: SharedRows
    seeds: np.ndarray
    sources: np.ndarray


def _products(program: Program) -> Products:
    if "sparse products" not in program.cache:
        with loading():
            from wonderland.sparse.coloring import color

        reads = program_reads(program, [len(program.inputs) - 1])
        coloring = color(reads)
        colors = coloring.column_colors
        assert colors is not None and coloring.sources is not None
        seeds = (np.arange(coloring.num_column_colors)[:, None] == colors).astype(program.inputs[-1].dtype)
        pattern = shared_rows(coloring.pattern.indices, coloring.pattern.indptr, coloring.pattern.shape)
        program.cache["sparse products"] = Products(pattern, seeds, coloring.sources)
    return program.cache["sparse products"]


def is_sparse(equations: Equations, theta: Sequence[Any], x: Any) -> bool:
    """Is dF/dx so sparse that it is worth it? From how many entries it has, before they are written out."""
    program = equations.program(theta, x)
    if program is None:
        return False
    if "entries" not in program.cache:
        with loading():
            from wonderland.ops.sets import identity

        (n,) = shape_of(x)
        nothing = [None] * len(theta)
        (found,), _ = propagate(program, [*nothing, identity([n])[0]], [*nothing, None])
        program.cache["entries"] = 0 if found is None else found.entries()
    return program.cache["entries"] <= FEW * shape_of(x)[0]


def sparse_jacobian(equations: Equations, theta: Sequence[Any], x: Any) -> tuple[Any, Sparse]:
    """F (m,) and dF/dx as a sparse operator."""
    program = equations.program(theta, x)
    if program is None:
        raise ArgumentError(
            f"{equations.name}: SparseLU needs the pattern of dF/dx, and F decides by values: write its decisions with "
            "np.where or wl.cond, or use another linear_solver."
        )
    made = _products(program)
    none = (False,) * len(theta)
    moved, _ = jvp_program(program, (*none, True), (True,))
    batched, _ = batch_program(moved, len(made.seeds), (*none, False, True), (False, True))
    value, rows = run(batched, [*theta, x, made.seeds.astype(type_of(x).dtype)])
    numbers = gather(reshape(rows, shape=(rows.shape[0] * rows.shape[1],)), made.sources, axes=(0,))
    operator = object.__new__(Sparse)
    operator.data, operator.pattern, operator.flipped = handles([numbers])[0], made.pattern, False
    return handles([value])[0], operator
