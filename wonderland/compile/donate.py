"""Donation: arguments whose memory a jitted function may use for its results.

A donated array is spent: its old contents are gone after the call, and the result of the same type that took its place
*is* that array. Which result takes which array is decided once per compilation (`pairs`); an argument whose memory
can't be used as it is (strided, a subclass) is copied first. Memory that is needed elsewhere is refused, not corrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.program import Program
from wonderland.core.types import ArrayType


def donated_leaves(structure: tree.Structure, positions: Sequence[int], names: Sequence[str]) -> list[int]:
    """The leaves of a call's structure that belong to these positional arguments and keywords."""
    positional, keywords = structure.children
    parts = [(i in positions, child) for i, child in enumerate(positional.children)]
    parts += [(name in names, child) for name, child in zip(keywords.static[1], keywords.children, strict=True)]
    flags = [donated for donated, child in parts for _ in range(child.leaf_count)]
    return [i for i, donated in enumerate(flags) if donated]


def pairs(program: Program, count: int, donated: Sequence[int]) -> dict[int, int]:
    """Which of the first `count` outputs takes the memory of which donated input: {output: input}."""
    free = [i for i in donated if _has_memory(program.inputs[i].type)]
    found: dict[int, int] = {}
    for position, atom in enumerate(program.outputs[:count]):  # an argument that is returned stays where it is
        same = [i for i in free if program.inputs[i] is atom]
        if same:
            found[position] = same[0]
            free.remove(same[0])
    for position, atom in enumerate(program.outputs[:count]):  # then in order: states come out as they go in
        fits = [i for i in free if program.inputs[i].type == atom.type]
        if position not in found and fits:
            found[position] = fits[0]
            free.remove(fits[0])
    return found


def _has_memory(type: ArrayType) -> bool:
    return bool(type.shape) and not type.weak and None not in type.shape


def prepare(args: Sequence[Any], taken: Sequence[int], captured: Sequence[Any], name: str) -> list:
    """The arguments of a call with every taken one fit to be overwritten; refuses what something else still needs."""
    args = list(args)
    others = [("an array that the function captures", value) for value in captured]
    others += [(f"argument leaf {i}", value) for i, value in enumerate(args)]
    for i in taken:
        value = args[i]
        if not value.flags.writeable:
            raise ArgumentError(
                f"argument leaf {i} of {name} is donated, but it is read-only: its memory isn't yours to give. Pass a "
                "copy, or leave it out of `donate`."
            )
        for what, other in others:
            if other is not value or what != f"argument leaf {i}":
                if isinstance(other, np.ndarray) and _overlap(value, other):
                    raise ArgumentError(
                        f"argument leaf {i} of {name} is donated, but it shares memory with {what}. Pass a copy of one "
                        "of them, or leave it out of `donate`."
                    )
        plain = type(value) is np.ndarray and value.dtype.isnative
        if not (plain and value.flags.c_contiguous and value.flags.aligned):
            args[i] = np.array(value, value.dtype.newbyteorder("="), order="C", subok=False)
    return args


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    (a_start, a_end), (b_start, b_end) = byte_bounds(a), byte_bounds(b)
    return a.size > 0 and b.size > 0 and a_start < b_end and b_start < a_end


def merge(results: Sequence[Any], args: Sequence[Any], taken: dict[int, int]) -> list:
    """All results in order: those that a call returned, and the arguments that became results."""
    rest = iter(results)
    return [args[taken[k]] if k in taken else next(rest) for k in range(len(results) + len(taken))]
