"""What one evaluation of a primitive takes: the rules of the slot `cost`.

Types come in, `Work` goes out: operations as the textbooks count them, on real numbers (a complex product is 4
multiplications and 2 additions), and bytes. Of matrix decompositions it is the leading term of the usual algorithm.
A primitive that holds Programs answers with `Runs` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from wonderland.core.program import Program, Var, subprograms
from wonderland.core.types import ArrayType


class Work(NamedTuple):
    """Operations, and bytes (None: each operand is read and each result written, once)."""

    multiplications: int = 0
    additions: int = 0
    calls: int = 0
    read: int | None = None
    written: int | None = None


class Runs(NamedTuple):
    """Programs, all of which run `times` times (None: as often as only the run knows), or `either` of which does."""

    programs: Sequence[Program]
    times: int | None = 1
    either: bool = False


def count(t: ArrayType | np.ndarray) -> int:
    """How many elements there are; an extent that only the run knows counts as 1."""
    return prod(1 if extent is None else extent for extent in t.shape)


def bytes_of(t: ArrayType) -> int:
    """How many bytes they take."""
    return count(t) * t.dtype.itemsize


def work(t: ArrayType, multiplications: float = 0, additions: float = 0, calls: float = 0) -> Work:
    """So many operations on numbers of this type."""
    if t.dtype.kind == "c":
        multiplications, additions = 4 * multiplications, 2 * multiplications + 2 * additions
    return Work(round(multiplications), round(additions), round(calls))


def each(multiplications: int = 0, additions: int = 0, calls: int = 0) -> Callable:
    """So many operations for each element of the result."""

    def rule(types: Sequence[ArrayType], outs: Sequence[ArrayType], params: dict) -> Work:
        n = count(outs[0])
        return work(outs[0], n * multiplications, n * additions, n * calls)

    return rule


def reduction(kind: str) -> Callable:
    """One operation for each element that goes in, less one for each that comes out."""
    return lambda types, outs, params: work(types[0], **{kind: max(count(types[0]) - count(outs[0]), 0)})


def view(types: Sequence[ArrayType], outs: Sequence[ArrayType], params: dict[Any, Any]) -> Work:
    """The same memory, seen in another way."""
    return Work(read=0, written=0)


def picked(types: Sequence[ArrayType], outs: Sequence[ArrayType], params: dict[Any, Any]) -> Work:
    """Only what is picked is read."""
    return Work(read=bytes_of(outs[0]) + sum(map(bytes_of, types[1:])), written=bytes_of(outs[0]))


def placed(types: Sequence[ArrayType], outs: Sequence[ArrayType], params: dict[Any, Any]) -> Work:
    """Only the places that change are written, and read if something is added to what is there."""
    changed, adds = types[-1], params.get("mode") != "set"
    read = sum(map(bytes_of, types[1:])) + adds * bytes_of(changed)
    return work(changed, additions=adds * count(changed))._replace(read=read, written=bytes_of(changed))


def sorting(types: Sequence[ArrayType], outs: Sequence[ArrayType], params: dict[Any, Any]) -> Work:
    """A call for each comparison: log2 of the extent for each element."""
    return Work(calls=count(types[0]) * _log2(types[0].shape[params["axis"]]))


def transform(axes: Callable) -> Callable:
    """A fast Fourier transform: n/2 log2 n butterflies, each a complex product and two sums; half of them for reals."""

    def rule(types: Sequence[ArrayType], outs: Sequence[ArrayType], params: dict) -> Work:
        whole = types[0] if count(types[0]) > count(outs[0]) else outs[0]
        real = "f" in (types[0].dtype.kind, outs[0].dtype.kind)
        n = count(whole) * sum(_log2(whole.shape[axis]) for axis in axes(params)) // (2 if real else 1)
        return Work(2 * n, 3 * n)

    return rule


def matrices(cubic: float) -> Callable:
    """`cubic` m n min(m, n) multiplications and as many additions, for each matrix of a stack."""

    def rule(types: Sequence[ArrayType], outs: Sequence[ArrayType], params: dict) -> Work:
        n = cubic * count(types[0]) * min(types[0].shape[-2:])
        return work(types[0], n, n)

    return rule


def systems(cubic: float, square: float) -> Callable:
    """As `matrices`, and `square` m n more of both for each column of the right side."""

    def rule(types: Sequence[ArrayType], outs: Sequence[ArrayType], params: dict) -> Work:
        a, b = types[:2]
        n = cubic * count(a) * min(a.shape[-2:]) + square * a.shape[-2] * count(outs[0])
        return work(b, n, n)

    return rule


def _log2(n: int) -> int:
    return max(n - 1, 0).bit_length()


def peak_bytes(program: Program) -> int:
    """The most memory that a Program's values take at once when it is evaluated, its inputs and constants apart."""
    base: dict[Any, Any] = {}  # a view's memory is that of another variable
    for equation in program.equations:
        if equation.primitive.cost is view and isinstance(equation.inputs[0], Var):
            base[equation.outputs[0]] = base.get(equation.inputs[0], equation.inputs[0])
    last: dict[Any, int] = {}
    for i, equation in enumerate(program.equations):
        for v in (*equation.inputs, *equation.outputs):
            last[base.get(v, v)] = i
    for a in program.outputs:
        last[base.get(a, a)] = len(program.equations)
    ends: dict[int, list] = {}
    for v, i in last.items():
        ends.setdefault(i, []).append(v)
    own = {v for e in program.equations for v in e.outputs if v not in base}
    alive = most = 0
    for i, equation in enumerate(program.equations):
        inner = max((peak_bytes(p) for p in subprograms(equation)), default=0)
        made = sum(bytes_of(v.type) for v in equation.outputs if v in own)
        most = max(most, alive + (inner + made if equation.primitive.calls is None else max(inner, made)))
        alive += made - sum(bytes_of(v.type) for v in ends.get(i, ()) if v in own)
    return most
