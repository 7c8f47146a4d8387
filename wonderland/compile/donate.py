"""Donation: arguments whose memory a jitted function may use for its results.

A donated array is spent: its old contents are gone after the call, and the result of the same type that took its place
*is* that array. Which result takes which array is decided once per compilation (`pairs`); an argument whose memory
can't be used as it is (strided, a subclass) is copied first. Memory that is needed elsewhere is refused, not corrupted.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from wonderland.core import tree
from wonderland.core.errors import ArgumentError
from wonderland.core.functions import overlap
from wonderland.core.program import Program


def donated_leaves(structure: tree.Structure, positions: Sequence[int], names: Sequence[str]) -> list[int]:
    """The leaves of a call's structure that belong to these positional arguments and keywords."""
    positional, keywords = structure.children
    parts = [(i in positions, child) for i, child in enumerate(positional.children)]
    parts += [(name in names, child) for name, child in zip(keywords.static[1], keywords.children, strict=True)]
    flags = [donated for donated, child in parts for _ in range(child.leaf_count)]
    return [i for i, donated in enumerate(flags) if donated]


def pairs(program: Program, count: int, donated: Sequence[int]) -> dict[int, int]:
    """Which of the first `count` outputs takes the memory of which donated input: {output: input}."""
    types = program.input_types
    free = [i for i in donated if types[i].shape and not types[i].weak and None not in types[i].shape]
    found: dict[int, int] = {}
    # An argument that is returned stays where it is; the others go in order: states come out as they go in.
    for fits in (operator.is_, lambda argument, result: argument.type == result.type):
        for position, result in enumerate(program.outputs[:count]):
            fitting = [i for i in free if fits(program.inputs[i], result)]
            if fitting and position not in found:
                found[position] = fitting[0]
                free.remove(fitting[0])
    return found


def prepare(
    args: Sequence[Any], taken: Sequence[int], written: Sequence[int], captured: Sequence[Any], name: str
) -> list[Any]:
    """The arguments of a call with every taken one fit to be overwritten; refuses what something else still needs.

    `written` are leaves of mutable objects: among the arguments, what they share is the call's own matter.
    """
    args = list(args)
    for i in taken:
        if not args[i].flags.writeable:
            raise ArgumentError(
                f"argument leaf {i} of {name} is donated, but it is read-only: its memory isn't yours to give. Pass a "
                "copy, or leave it out of `donate`."
            )
    clash = overlap([*args, *captured], taken)
    if clash is not None:
        i, j = clash if clash[0] in taken else clash[::-1]
        what = f"argument leaf {j}" if j < len(args) else "an array that the function captures"
        raise ArgumentError(
            f"argument leaf {i} of {name} is donated, but it shares memory with {what}. Pass a copy of one of them, "
            "or leave it out of `donate`."
        )
    changed = {*written}
    clash = overlap([*(arg if i in changed else None for i, arg in enumerate(args)), *captured], written)
    if clash is not None:
        raise ArgumentError(
            f"{name} changes argument leaf {clash[0]}, and also captures an array that shares its memory: it would "
            "read numbers that are half written. Read them through the argument, or capture a copy."
        )
    for i in taken:
        value = args[i]
        plain = type(value) is np.ndarray and value.dtype.isnative
        if not (plain and value.flags.c_contiguous and value.flags.aligned):
            args[i] = np.array(value, value.dtype.newbyteorder("="), order="C", subok=False)
    return args
