"""Compressed products: seeds that stand for several columns or rows at once, through a linear Program.

The Program has one vector going in and one coming out. The entries of its matrix are read off the products;
`dense_blocks` puts them into dense arrays, for `wl.jacobian`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.core.level import Traced
from wonderland.core.program import Program, run
from wonderland.core.tracer import Tracer, unwrap
from wonderland.core.types import ArrayType, type_of
from wonderland.ops.elementwise import conjugate
from wonderland.ops.index import gather, scatter
from wonderland.ops.pattern import program_reads
from wonderland.ops.shape import reshape, zeros_like_type
from wonderland.sparse.choice import choose, price
from wonderland.sparse.coloring import Coloring
from wonderland.transform.chunks import batched, in_chunks, recording, unit_vectors
from wonderland.transform.cost import cost
from wonderland.transform.dual import linear_tape
from wonderland.transform.jacobian import as_output, compressed, pass_costs, pulled, split

SMALLEST = 32  # rows or columns: fewer go through at once
WORTHWHILE = 1e7  # operations of the dense passes from which a pattern is looked for, if it serves for this call alone


def products(program: Program, coloring: Coloring, size: int | None) -> Any:
    """The products of a Program from vector to vector with a colouring's seeds, one after another, columns first.

    `size` is how many go through at once.
    """

    def through(product: Callable, types: Sequence[ArrayType], colors: Any, count: int) -> list:
        if not count:
            return []
        (found,) = in_chunks(lambda numbers: batched(product, unit_vectors(numbers, types, colors)), count, size)
        return [reshape(found, shape=(type_of(found).size,))]

    by_columns = through(
        lambda seeds: run(program, seeds), program.input_types, coloring.column_colors, coloring.num_column_colors
    )
    by_rows = through(
        lambda seeds: pulled(program, seeds), program.output_types, coloring.row_colors, coloring.num_row_colors
    )
    dtype = program.output_types[0].dtype
    if dtype.kind == "c":  # what is pulled back is the conjugate of a holomorphic derivative
        by_rows = list(map(conjugate, by_rows))
    return joined([*by_columns, *(as_output(v, dtype) for v in by_rows)])


@compressed.fill
def dense_blocks(
    program: Program, inputs: Sequence[ArrayType], outputs: Sequence[ArrayType], size: int | None
) -> list[list[Any]] | None:
    """A linear Program's matrix, by output and input, by compressed products; None if that doesn't pay."""
    n, m = (sum(t.size for t in types) for types in (inputs, outputs))
    dtypes = {t.dtype for t in (*inputs, *outputs)}
    if min(n, m) < SMALLEST or len(dtypes) > 1 or dtypes.pop().kind != "f":
        return None
    if not recording() and min(n, m) * cost(program).operations < WORTHWHILE:
        return None
    forward, reverse = pass_costs(program, outputs)
    pattern = program_reads(program)
    coloring = choose(pattern, "direct", None, forward, reverse)
    if 2 * price(coloring, forward, reverse) > min(n * forward, m * reverse):
        return None
    entries = gather(products(_vectorized(program, inputs, outputs), coloring, size), coloring.sources, axes=(0,))
    i, j = np.repeat(np.arange(m), np.diff(pattern.indptr)), pattern.indices.astype(np.int64)
    empty = zeros_like_type(ArrayType((m, n), outputs[0].dtype), real=True)
    matrix = scatter(empty, i, j, entries, axes=(0, 1), mode="set")
    return [split(row, inputs, -1) for row in split(matrix, outputs, 0)]


def _vectorized(program: Program, inputs: Sequence[ArrayType], outputs: Sequence[ArrayType]) -> Program:
    """A Program of several leaves as one from vector to vector; on a tape, so that it can be transposed."""
    with linear_tape() as tape:
        vector = tape.variable(ArrayType((sum(t.size for t in inputs),), inputs[0].dtype))
        found = run(program, split(vector, inputs, 0))
        flat = [reshape(value, shape=(t.size,)) for value, t in zip(found, outputs, strict=True)]
        return tape.finish([vector], [joined(flat)])


def joined(values: list[Any]) -> Any:
    """Vectors, one after another."""
    if len(values) == 1:
        return values[0]
    return unwrap(np.concatenate([Tracer(v) if isinstance(v, Traced) else v for v in values]))
