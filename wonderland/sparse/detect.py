"""Sparsity detection: which elements of the input each element of the output can depend on, whatever the values.

A function and example arguments (only their types matter) come in; a boolean CSR matrix goes out. The function is
recorded without values, so the pattern is *global*: it holds at every point. Python control flow on values therefore
raises; `np.where`, `wl.cond` and the loops count every branch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from wonderland.ops.pattern import program_pattern
from wonderland.transform.derivatives import trace


def jacobian_pattern(f: Callable, *args: Any) -> sparse.csr_matrix:
    """The pattern of the Jacobian of `f` as a boolean matrix, (elements of the output) x (elements of the arguments).

    Arguments and results may be trees: their leaves are flattened and follow each other, in order. Integer arguments
    have columns too, which are empty.
    """
    program = trace(f)(*args)
    rows = [t.size for t in program.output_types]
    columns = [t.size for t in program.input_types]
    blocks = [
        [sparse.csr_matrix((m, n), dtype=bool) if b is None else b for b, n in zip(row, columns)]
        for row, m in zip(program_pattern(program), rows)
    ]
    if not rows or not columns:
        return sparse.csr_matrix((sum(rows), sum(columns)), dtype=bool)
    pattern = sparse.csr_matrix(sparse.block_array(blocks, format="csr"), dtype=bool)
    pattern.sum_duplicates()
    pattern.data = np.ones(pattern.nnz, bool)
    return pattern
