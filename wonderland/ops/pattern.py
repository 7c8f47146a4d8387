"""Sparsity patterns of Programs: which elements of the inputs each element of an output can depend on.

A primitive's `pattern(types, params)` rule tells what one equation reads. Its answer, for each operand:

- None: nothing;
- a pair of index arrays (output element, operand element), flat;
- a triple (line of each output element, line, operand element), where all outputs of a line read the same: rows and
  columns of a matrix product, matrices of a stack. `blocks` and `everything` make them.

A primitive that holds Programs answers by a function from the operands' index sets to the outputs' and their values;
`inside` makes it. An operand that is known comes as its array, in the place of its type; one of which it is only known
where it is 0, as an array with NaN elsewhere (`Partly`).

`propagate` carries index sets (`ops.sets`) along a Program with these rules. Values that don't depend on the inputs are
computed on the way, so a rule knows the indices of a gather, the zeros of a constant matrix, the mask of a `where`, the
counter of a loop. Axes whose extent only the run knows (residuals of a while loop) are left out: one element stands for
all along them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from wonderland.core.forks import loading
from wonderland.core.level import Traced, evaluate
from wonderland.core.primitive import Primitive
from wonderland.core.program import Equation, Literal, Program
from wonderland.core.tracebacks import warn_user
from wonderland.core.types import ArrayType, is_differentiable, type_of
from wonderland.ops.work import count

if TYPE_CHECKING:
    from wonderland.ops.sets import Sets

_warned: set[str] = set()


def program_reads(program: Program, chosen: Sequence[int] | None = None) -> Any:
    """A boolean CSR array (elements of all outputs) x (elements of the inputs, or the chosen ones), canonical."""
    chosen = tuple(range(len(program.inputs)) if chosen is None else chosen)
    key = "reads", chosen
    if key not in program.cache:
        program.cache[key] = matrix_of_reads(program, chosen, [None] * len(program.inputs))
    return program.cache[key]


def matrix_of_reads(program: Program, chosen: Sequence[int], known: Sequence[Any]) -> Any:
    """The same for the chosen inputs, from the values of those inputs that are known."""
    with loading():
        from wonderland.ops import sets

    widths = [count(program.inputs[i].type) for i in chosen]
    reads: list = [None] * len(program.inputs)
    for i, own in zip(chosen, sets.identity(widths), strict=True):
        reads[i] = own if is_differentiable(program.inputs[i].dtype) else None
    found, _ = propagate(program, reads, known)
    sizes = [count(t) for t in program.output_types]
    together = sets.concatenate(list(zip(found, sizes, strict=True)))
    empty = sets.sparse.csr_array((sum(sizes), sum(widths)), dtype=bool)
    return empty if together is None else together.matrix()


def propagate(
    program: Program, reads: Sequence[Sets | None], known: Sequence[Any]
) -> tuple[list[Sets | None], list[Any]]:
    """Index sets and known values of the outputs, from those of the inputs (None: reads nothing, isn't known)."""
    sets: dict[Any, Sets] = {v: s for v, s in zip(program.inputs, reads, strict=True) if s is not None}
    values: dict[Any, Any] = {v: x for v, x in program.constants if not isinstance(x, Traced)}
    values.update((v, x) for v, x in zip(program.inputs, known, strict=True) if x is not None)

    def value(a: Any) -> Any:
        if isinstance(a, Literal):
            return None if isinstance(a.value, Traced) else a.value
        return values.get(a)

    for equation, dead in program.steps():
        operands = [value(a) for a in equation.inputs]
        own = [sets.get(a) for a in equation.inputs]
        if equation.has_effects():  # it happens when the Program runs, and what comes of it is seen then
            found, computed = _equation_reads(equation, own, operands) if any(s is not None for s in own) else ([], [])
        elif all(x is not None and type(x) is not Partly for x in operands):
            found, computed = [], _evaluated(equation, operands)
        elif any(s is not None for s in own):
            found, computed = _equation_reads(equation, own, operands)
        else:
            found = computed = []
        sets.update((v, s) for v, s in zip(equation.outputs, found) if s is not None and is_differentiable(v.dtype))
        values.update((v, x) for v, x in zip(equation.outputs, computed) if x is not None)
        for v in dead:
            sets.pop(v, None)
            values.pop(v, None)
    return [sets.get(a) for a in program.outputs], [value(a) for a in program.outputs]


def _evaluated(equation: Equation, operands: list) -> Sequence[Any]:
    try:
        with np.errstate(all="ignore"):
            out = evaluate(equation.primitive, tuple(operands), equation.params)
    except Exception:  # what raises does so when it runs
        return []
    return out if equation.primitive.multiple else [out]


def _equation_reads(equation: Equation, reads: list, values: list) -> tuple[Sequence[Any], Sequence[Any]]:
    primitive = equation.primitive
    types = tuple(a.type if x is None else np.asanyarray(x) for a, x in zip(equation.inputs, values, strict=True))
    unknown = any(None in t.shape for t in (*types, *(v.type for v in equation.outputs)))
    if unknown and primitive.linearize is None:  # it holds no Program
        rows = [[everything(count(v.type), count(t)) for t in types] for v in equation.outputs]
    else:
        rule: Any = primitive.pattern or _unknown(primitive)
        answer = rule(types, equation.params)
        if callable(answer):
            found: Any = answer(reads)
            return found
        rows = answer if primitive.multiple else [answer]
    found = [_gathered(count(v.type), row, reads) for v, row in zip(equation.outputs, rows, strict=True)]
    return found, [] if unknown or primitive.multiple else [_zeros(equation, types, rows[0])]


class Partly(np.ndarray):
    """A value of which is known where it is 0; NaN elsewhere."""


def _zeros(equation: Equation, types: tuple, row: Sequence[Any]) -> Partly | None:
    """Where the result of a linear operation is 0 because all that it reads is: unused cotangents, paddings.

    A rule for a product leaves out what is multiplied by 0, so that what is left is linear in each factor.
    """
    primitive, kind = equation.primitive, equation.outputs[0].type
    factors = (0, 1) if primitive.bilinear else tuple(i % len(types) for i in primitive.linear)
    with_zeros = any(isinstance(types[i], np.ndarray) and not types[i].all() for i in factors)
    pairs = [row[i] for i in factors if row[i] is not None]
    reads_nothing = all(len(p) == 2 for p in pairs) and sum(p[0].size for p in pairs) < kind.size
    if not factors or not (with_zeros or reads_nothing):
        return None
    live = np.zeros(kind.size, bool)
    for i in factors:
        if row[i] is None:
            if primitive.bilinear or is_differentiable(types[i].dtype):
                continue
            return None  # a term that is an integer
        *outs, elements = row[i]
        if isinstance(types[i], np.ndarray):
            there = np.not_equal(types[i], 0).ravel()[elements]
            outs[-1] = outs[-1][there]
        if len(outs) == 2:
            lines = np.zeros(int(max(o.max(initial=-1) for o in outs)) + 1, bool)
            lines[outs[1]] = True
            live |= lines[outs[0]]
        else:
            live[outs[0]] = True
    if live.all():
        return None
    return np.where(live, np.nan, 0).astype(kind.dtype).reshape(kind.shape).view(Partly)


def _gathered(size: int, row: Sequence[Any], reads: Sequence[Any]) -> Sets | None:
    """What the elements of an output read, from what its operands do."""
    with loading():
        from wonderland.ops.sets import union

    terms = []
    for pair, own in zip(row, reads, strict=True):
        if pair is None or own is None:
            continue
        *outs, elements = pair
        if len(outs) == 2:
            lines = int(max(o.max(initial=-1) for o in outs)) + 1
            own = union(lines, [(outs[1], own.index[elements], own.table)])
            if own is not None:
                terms.append((None, own.index[outs[0]], own.table))
        else:
            terms.append((outs[0], own.index[elements], own.table))
    return union(size, terms)


def _unknown(primitive: Primitive) -> Any:
    """The pattern of a primitive without a rule: everything, and a warning."""
    if primitive.name not in _warned:
        _warned.add(primitive.name)
        warn_user(
            f"the primitive {primitive.name} has no pattern rule: each of its results is taken to depend on all of its "
            "operands, so the detected pattern may be much denser than the derivative. Give it one (pattern=...)."
        )

    def pattern(types: tuple, params: dict) -> Any:
        inferred = primitive.infer(*map(as_type, types), **params)
        outs = inferred if primitive.multiple else [inferred]
        rows = [[everything(count(out), count(t)) for t in types] for out in outs]
        return rows if primitive.multiple else rows[0]

    return pattern


def everything(size: int, extent: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each of so many output elements reads all elements of an operand."""
    return np.zeros(size, np.intp), np.zeros(extent, np.intp), np.arange(extent)


def as_type(kind: Any) -> ArrayType:
    """The type of an operand that a rule got as its type or, known, as an array."""
    return kind if isinstance(kind, ArrayType) else type_of(kind)


def known(kind: Any) -> Any:
    """The value of an operand of a `pattern` rule, or None."""
    return kind if isinstance(kind, np.ndarray) and type(kind) is not Partly else None


def inside(program: Program, types: Sequence[Any]) -> Any:
    """The answer of a `pattern` rule: what a Program of the operands reads."""
    return lambda reads: propagate(program, reads, [t if isinstance(t, np.ndarray) else None for t in types])


def unions(alternatives: Sequence[Sequence[Any]]) -> list[Sets | None]:
    """What each value reads in one alternative or another."""
    with loading():
        from wonderland.ops.sets import union

    out = []
    for column in zip(*alternatives, strict=True):
        given = [s for s in column if s is not None]
        out.append(union(given[0].index.size, [(None, s.index, s.table) for s in given]) if given else None)
    return out


def blocks(outs: np.ndarray, operands: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each output element in line k of `outs` reads all elements in line k of `operands`."""
    lines = np.empty(outs.size, np.intp)
    lines[outs.ravel()] = np.repeat(np.arange(len(outs)), outs.shape[1])
    return lines, np.repeat(np.arange(len(operands)), operands.shape[1]), operands.ravel()


def equation_pattern(primitive: Primitive, types: tuple[ArrayType, ...], params: dict[Any, Any]) -> list[list[Any]]:
    """For each output and operand a pair (output elements, operand elements), or None."""
    rule = primitive.pattern or _unknown(primitive)
    answer = rule(types, params)
    if callable(answer):
        return _by_identity(answer, types)
    rows = answer if primitive.multiple else [answer]
    return [[p if p is None or len(p) == 2 else _expanded(*p) for p in row] for row in rows]


def _expanded(lines: np.ndarray, line: np.ndarray, elements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A factored answer as pairs, by output elements, the operand's in the order that its line has."""
    order = np.argsort(line, kind="stable")
    extents = np.bincount(line, minlength=int(lines.max(initial=-1)) + 1)
    starts, lengths = (np.cumsum(extents) - extents)[lines], extents[lines]
    offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(np.arange(len(lines)), lengths), elements[order][np.repeat(starts, lengths) + offsets]


def _by_identity(answer: Any, types: Sequence[ArrayType]) -> list[list]:
    with loading():
        from wonderland.ops import sets

    sizes = [count(t) for t in types]
    inputs = [s if is_differentiable(t.dtype) else None for s, t in zip(sets.identity(sizes), types, strict=True)]
    ends = np.cumsum([0, *sizes])
    rows = []
    for found in answer(inputs)[0]:
        matrix = None if found is None else found.matrix()
        pairs: list = [None if matrix is None else matrix[:, a:b].nonzero() for a, b in pairwise(ends)]
        rows.append([None if p is None or not len(p[0]) else p for p in pairs])
    return rows
