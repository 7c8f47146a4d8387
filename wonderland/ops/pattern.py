"""Sparsity patterns of Programs: which elements of the inputs each element of an output can depend on.

Each primitive's `pattern` rule tells what one equation reads; patterns of equations are multiplied as boolean sparse
matrices along the Program.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wonderland.core.program import Program, Var
from wonderland.core.types import ArrayType, is_differentiable


def equation_pattern(primitive: Any, types: tuple[ArrayType, ...], params: dict) -> list[list]:
    """For each output and operand a pair (output elements, operand elements), or None."""
    if primitive.pattern is None:
        why = primitive.impossible.get("pattern", "it has no pattern rule")
        raise TypeError(f"{primitive.name} has no sparsity pattern: {why}")
    rows = primitive.pattern(types, params)
    return rows if primitive.multiple else [rows]


def program_pattern(program: Program) -> list[list]:
    """For each output and input of a Program a boolean CSR matrix (elements of output x of input), or None."""
    from scipy import sparse

    count = len(program.inputs)
    env: dict[Var, list] = {}
    for i, v in enumerate(program.inputs):
        reads: list = [None] * count
        if is_differentiable(v.dtype):
            reads[i] = sparse.eye_array(v.type.size, dtype=bool, format="csr")
        env[v] = reads
    for equation in program.equations:
        types = tuple(a.type for a in equation.inputs)
        for out, row in zip(
            equation.outputs, equation_pattern(equation.primitive, types, equation.params), strict=True
        ):
            total: list = [None] * count
            for atom, pair in zip(equation.inputs, row, strict=True):
                if pair is None or not isinstance(atom, Var) or atom not in env:
                    continue
                local = _matrix(pair, out.type.size, atom.type.size)
                for i, reads in enumerate(env[atom]):
                    if reads is not None:
                        product = (local @ reads).astype(bool)
                        total[i] = product if total[i] is None else (total[i] + product).astype(bool)
            env[out] = total if is_differentiable(out.dtype) else [None] * count
    return [env[a] if isinstance(a, Var) and a in env else [None] * count for a in program.outputs]


def _matrix(pair: tuple[np.ndarray, np.ndarray], rows: int, columns: int) -> Any:
    from scipy import sparse

    return sparse.csr_array((np.ones(len(pair[0]), bool), pair), shape=(rows, columns))


def reachable_pattern(program: Program) -> list[set[int]]:
    """For each output the set of inputs that reach it at all."""
    env: dict[Any, set[int]] = {v: {i} for i, v in enumerate(program.inputs)}
    for equation in program.equations:
        reads: set[int] = set()
        for a in equation.inputs:
            reads |= env.get(a, set())
        env.update((v, reads) for v in equation.outputs)
    return [set(env.get(a, set())) for a in program.outputs]
