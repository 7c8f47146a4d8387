"""Vertex elimination: a Jacobian accumulated in any order over the computational graph, not only forward or in reverse.

A linear Program (what linearisation recorded) comes in, the blocks of the Jacobian go out. The Program is taken apart
into numbers: each element of each tangent is a vertex, and the edge between two is the elementary partial derivative.
A vertex is eliminated by joining each predecessor to each successor with the product of the two edges, added to the
edge that may be there; when only inputs and outputs are left, the edges are the Jacobian. Every order gives the same
numbers at another cost (`elimination_order`). Products and sums are primitives: on arrays they are computed at once, at
a Record level they are the Program that `jit` compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from wonderland.core.errors import ArgumentError
from wonderland.core.functions import Call
from wonderland.core.level import Traced
from wonderland.core.program import Equation, Literal, Program, Var
from wonderland.core.types import ArrayType
from wonderland.numpy.join import stack
from wonderland.ops.dot import dot
from wonderland.ops.elementwise import add, div, masked_mul, mul, neg, sub, where
from wonderland.ops.pattern import equation_pattern
from wonderland.ops.reading import elementwise_pattern
from wonderland.ops.shape import reshape
from wonderland.transform.chunks import element
from wonderland.transform.derivatives import Linearized, argument_numbers, quiet, trace
from wonderland.transform.elimination_order import ORDERS, EliminationGraph, find_order
from wonderland.transform.jacobian import by_rows

LIMIT = 5_000  # numbers in a linear Program that is taken apart


class Edge(NamedTuple):
    """A partial derivative: a sign times a number; without a number it is plain, +1 or -1.

    `gated`: it is 0 where `where` didn't take a branch. A product with it is 0 there, whatever the other factor is.
    """

    sign: int
    number: Any = None
    gated: bool = False


class Elimination:
    """The computational graph of a linear Program, vertex by vertex eliminated."""

    def __init__(self, program: Program):
        _check(program)
        self.successors: list[dict[int, Edge]] = []
        self.predecessors: list[set[int]] = []
        self.multiplications = self.additions = 0
        places = {v: self._vertices(v.type.size) for v in program.inputs}
        for equation in program.equations:
            new = [self._vertices(v.type.size) for v in equation.outputs]
            for k, i, rows, columns, edges in local_jacobian(equation):
                for row, column, edge in zip(rows, columns, edges, strict=True):
                    self._join(places[equation.inputs[i]][column], new[k][row], edge)  # type: ignore[index]
            places.update(zip(equation.outputs, new, strict=True))
        self.sources: list[range] = [places[v] for v in program.inputs]
        inner = range(sum(map(len, self.sources)), len(self.successors))
        self.sinks: list[Any] = []
        for a in program.outputs:
            self.sinks.append(self._vertices(a.type.size))
            if isinstance(a, Var):
                for v, sink in zip(places[a], self.sinks[-1], strict=True):
                    self._join(v, sink, Edge(1))
        self.inner = self._simplify(inner)

    def _vertices(self, count: int) -> range:
        start = len(self.successors)
        self.successors += [{} for _ in range(count)]
        self.predecessors += [set() for _ in range(count)]
        return range(start, start + count)

    def _join(self, a: int, b: int, edge: Edge) -> None:
        old = self.successors[a].get(b)
        total = edge if old is None else self._plus(old, edge)
        if total is None:
            del self.successors[a][b]
            self.predecessors[b].remove(a)
        else:
            self.successors[a][b] = total
            self.predecessors[b].add(a)

    def _plus(self, a: Edge, b: Edge) -> Edge | None:
        if a.number is None and b.number is None:
            return Edge(1, float(a.sign + b.sign)) if a.sign == b.sign else None
        self.additions += 1
        x, y = (1.0 if e.number is None else e.number for e in (a, b))
        gated = a.gated and b.gated
        if a.sign == b.sign:
            return Edge(a.sign, add(x, y), gated)
        return Edge(1, sub(x, y) if a.sign > 0 else sub(y, x), gated)

    def _times(self, a: Edge, b: Edge) -> Edge:
        sign, gated = a.sign * b.sign, a.gated or b.gated
        if a.number is None or b.number is None:
            return Edge(sign, b.number if a.number is None else a.number, gated)
        self.multiplications += 1
        return Edge(sign, (masked_mul if gated else mul)(a.number, b.number), gated)

    def eliminate(self, v: int) -> None:
        """Join what v reads to what reads v."""
        for p in self.predecessors[v]:
            edge = self.successors[p].pop(v)
            for s, other in self.successors[v].items():
                self._join(p, s, self._times(edge, other))
        for s in self.successors[v]:
            self.predecessors[s].discard(v)
        self.successors[v], self.predecessors[v] = {}, set()

    def _simplify(self, inner: Sequence[int]) -> list[int]:
        """Eliminate what it never pays to keep: vertices with a single plain edge, or none, on one side."""
        waiting, left = list(inner), set(inner)
        while waiting:
            v = waiting.pop()
            if v not in left:
                continue
            before, after = self.predecessors[v], self.successors[v]
            one_before = len(before) == 1 and self.successors[next(iter(before))][v].number is None
            one_after = len(after) == 1 and next(iter(after.values())).number is None
            if one_before or one_after or not before or not after:
                waiting += [w for w in (*before, *after) if w in left]
                left.remove(v)
                self.eliminate(v)
        return sorted(left)

    def graph(self) -> EliminationGraph:
        """What an order is chosen by: the vertices that are left, numbered anew, and the kinds of their edges."""
        kept = [*(v for s in self.sources for v in s), *self.inner, *(v for s in self.sinks for v in s)]
        number = {v: k for k, v in enumerate(kept)}
        edges = [(number[a], number[b], edge.number is None) for a in kept for b, edge in self.successors[a].items()]
        return EliminationGraph(len(kept), edges, [number[v] for v in self.inner])

    def run(self, order: str, search_seconds: float) -> None:
        """Eliminate all inner vertices, in the order of this name."""
        graph = self.graph()
        number = dict(zip(graph.inner, self.inner, strict=True))
        for k in find_order(graph, order, search_seconds):
            self.eliminate(number[k])
        self.inner: list[int] = []

    def blocks(self) -> list[list[Any]]:
        """For each output and each input their edges, rows by elements of the output."""
        return [
            [[[self.successors[a].get(b) for a in source] for b in sink] for source in self.sources]
            for sink in self.sinks
        ]


def eliminate(program: Program, order: str = "search", search_seconds: float = 10.0) -> list[list[Any]]:
    """The Jacobian of a linear Program, by output and input: arrays of shape (*out.shape, *in.shape)."""
    elimination = Elimination(program)
    elimination.run(order, search_seconds)
    return [
        [_dense(block, out.type, v.type) for block, v in zip(row, program.inputs, strict=True)]
        for out, row in zip(program.outputs, elimination.blocks(), strict=True)
    ]


def _dense(rows: list[list[Edge | None]], out: ArrayType, operand: ArrayType) -> Any:
    shape = (*out.shape, *operand.shape)
    numbers = [_number(edge) for row in rows for edge in row]
    if not any(isinstance(n, Traced) for n in numbers):
        return (np.array(numbers, out.dtype) if numbers else np.zeros(shape, out.dtype)).reshape(shape)[()]
    return reshape(stack(numbers, dtype=out.dtype), shape=shape)


def _number(edge: Edge | None) -> Any:
    if edge is None:
        return 0.0
    if edge.number is None:
        return float(edge.sign)
    return edge.number if edge.sign > 0 else neg(edge.number)


def _check(program: Program) -> None:
    variables = [*program.inputs, *(v for e in program.equations for v in e.outputs)]
    if any(v.dtype.kind == "c" for v in variables):
        raise ArgumentError(
            'jacobian(mode="elimination") is for real functions, and this one has complex values: '
            'use mode="forward" or "reverse"'
        )
    total = sum(v.type.size for v in variables)
    if total > LIMIT:
        raise ArgumentError(
            'jacobian(mode="elimination") takes a function apart into numbers, for small arrays: here there are '
            f'{total}, more than {LIMIT}. Use mode="forward" or "reverse"'
        )


# ---- the edges of one equation ----


def local_jacobian(equation: Equation) -> Iterator[tuple[int, int, Sequence[int], Sequence[int], list[Edge]]]:
    """Entries of the local Jacobian of a linear equation: (output, operand, rows, columns, edges)."""
    primitive, inputs = equation.primitive, equation.inputs
    active = [i for i, a in enumerate(inputs) if isinstance(a, Var)]
    linear = [i % len(inputs) for i in primitive.linear]
    dtype = equation.outputs[0].dtype
    if primitive in (mul, masked_mul, dot) and len(active) == 1:
        (i,) = active
        yield 0, i, *_products(equation, i, 1 - i, inputs[1 - i].value)  # type: ignore[union-attr]
    elif primitive is div and active == [0]:
        yield 0, 0, *_products(equation, 0, 1, div(dtype.type(1), inputs[1].value))  # type: ignore[union-attr]
    elif primitive is where and 0 not in active:
        for i in active:
            taken = where(inputs[0].value, dtype.type(i == 1), dtype.type(i == 2))  # type: ignore[union-attr]
            yield 0, i, *_products(equation, i, 0, taken, gated=True)
    elif linear and not primitive.multiple and not any(_is_unknown(a) for i, a in enumerate(inputs) if i not in linear):
        for i in active:
            images = _basis_images(equation, i)
            columns, rows = np.nonzero(images)
            entries = images[columns, rows].tolist()
            yield 0, i, rows, columns, [Edge(int(x)) if abs(x) == 1 else Edge(1, x) for x in entries]  # type: ignore
    else:
        yield from _pulled(equation, active)


def _products(equation: Equation, i: int, j: int, factor: Any, gated: bool = False) -> tuple:
    """Of a product of operand i and a factor in the place of operand j: rows, columns and elements of the factor.

    The patterns of the operands of a product are in step: one line for each product of two elements.
    """
    if equation.primitive.elementwise and not equation.outputs[0].type.shape:
        return (0,), (0,), [Edge(1, factor, gated)]
    types = tuple(ArrayType(a.type.shape, np.float64) for a in equation.inputs)
    if equation.primitive.elementwise:
        patterns = elementwise_pattern(types, {})
    else:
        (patterns,) = equation_pattern(equation.primitive, types, equation.params)
    used = patterns[j][1].tolist()
    elements = {k: element(factor, k) for k in {*used}}
    return *patterns[i], [Edge(1, elements[k], gated) for k in used]


def _is_unknown(a: Any) -> bool:
    """A factor, or an index that only the run knows: not part of the structure."""
    return isinstance(a, Var) or isinstance(a.value, Traced) or a.type.dtype.kind not in "biu"


def _basis_images(equation: Equation, i: int) -> np.ndarray:
    """What a linear primitive makes of each unit vector of operand i, in rows."""
    primitive, inputs = equation.primitive, equation.inputs
    linear = {k % len(inputs) for k in primitive.linear}
    args = [np.zeros(a.type.shape, a.type.dtype) if k in linear else a.value for k, a in enumerate(inputs)]  # type: ignore
    kind = inputs[i].type
    args[i] = np.eye(kind.size, dtype=kind.dtype).reshape(kind.size, *kind.shape)
    images = primitive.batch(kind.size, tuple(args), tuple(k == i for k in range(len(args))), **equation.params)  # type: ignore
    return np.reshape(images, (kind.size, equation.outputs[0].type.size))


def _pulled(equation: Equation, active: Sequence[int]) -> Iterator[tuple]:
    """A dense local Jacobian, by rows: for what isn't taken apart (loops, branches, solutions of linear systems)."""
    operands = list(dict.fromkeys(equation.inputs[i] for i in active))
    outputs = [v for v in equation.outputs if v.dtype.kind == "f"]
    program = Program(operands, [equation], outputs)  # type: ignore[arg-type]
    blocks = by_rows(program, [v.type for v in operands], [v.type for v in outputs], None)
    for v, row in zip(outputs, blocks, strict=True):
        for a, block in zip(operands, row, strict=True):
            count = v.type.size * a.type.size
            rows, columns = np.divmod(np.arange(count), max(a.type.size, 1))
            edges = [Edge(1, element(block, k)) for k in range(count)]
            yield equation.outputs.index(v), equation.inputs.index(a), rows, columns, edges


# ---- what it costs ----


def count_multiplications(
    f: Callable, *args: Any, argnums: int | Sequence[int] = 0, search_seconds: float = 10.0
) -> dict[str, tuple[int, int]]:
    """For each order the products of edges as the literature counts them, and the multiplications that are made.

    The literature has a vertex for each operation and counts predecessors times successors for each, products with
    the 1 of a sum included. Of those none is made, and vertices that only sum up or pass on are gone beforehand.
    """
    numbers = argument_numbers(argnums, len(args))

    def g(*chosen: Any) -> Any:
        full = list(args)
        for n, v in zip(numbers, chosen, strict=True):
            full[n] = v
        return f(*full)

    chosen = tuple(args[n] for n in numbers)
    graph = equation_graph(trace(g)(*chosen))
    with quiet():
        call = Call(g, chosen, {})
        program = Linearized(call, [True] * len(call.values)).program
        counts = {}
        for order in ORDERS:
            elimination = Elimination(program)
            elimination.run(order, search_seconds)
            products = graph.cost(find_order(graph, order, search_seconds))
            counts[order] = products, elimination.multiplications
    return counts


def equation_graph(program: Program) -> EliminationGraph:
    """The literature's graph of a function: a vertex for each number that an equation computes, all edges alike.

    Moving numbers about (indexing, stacking) makes no vertices.
    """
    known = {v: Literal(value) for v, value in program.constants}
    edges: list[tuple[int, int, bool]] = []
    places: dict[Any, np.ndarray] = {}
    count = 0
    for v in program.inputs:
        places[v] = np.arange(count, count + v.type.size)
        count += v.type.size
    sources = count
    for equation in program.equations:
        inputs = tuple(known.get(a, a) for a in equation.inputs)  # type: ignore[arg-type]
        equation = Equation(equation.primitive, inputs, equation.outputs, equation.params)
        active = [i for i, a in enumerate(inputs) if a in places]
        moved = _moved(equation, active, places) if active else None
        if moved is not None:
            places[equation.outputs[0]] = moved
            continue
        patterns = (
            equation_pattern(equation.primitive, tuple(a.type for a in inputs), equation.params) if active else []
        )
        for v, pattern in zip(equation.outputs, patterns):
            if v.dtype.kind != "f":
                continue
            places[v] = np.arange(count, count + v.type.size)
            for i in active:
                if pattern[i] is not None:
                    ends = zip(places[inputs[i]][pattern[i][1]].tolist(), (count + pattern[i][0]).tolist())
                    edges += [(a, b, False) for a, b in ends if a >= 0]
            count += v.type.size
    read = {a for a, _, _ in edges}
    results = {int(k) for a in program.outputs if a in places for k in places[a] if k >= 0}
    inner = [v for v in range(sources, count) if v in read]
    for v in sorted(results & read):  # a result that is read as well stays, as a vertex behind it
        edges.append((v, count, True))
        count += 1
    return EliminationGraph(count, set(edges), inner)


def _moved(equation: Equation, active: Sequence[int], places: dict[Any, np.ndarray]) -> np.ndarray | None:
    """Which vertex each element of the result is, if the equation only moves numbers about (-1: none of them)."""
    primitive, inputs = equation.primitive, equation.inputs
    linear = {i % len(inputs) for i in primitive.linear}
    if primitive.elementwise or primitive.multiple or not linear:
        return None
    if any(_is_unknown(a) for i, a in enumerate(inputs) if i not in linear):
        return None
    found = np.full(equation.outputs[0].type.size, -1)
    for i in active:
        columns, rows = np.nonzero(_basis_images(equation, i))
        if len({*rows.tolist()}) < len(rows) or (found[rows] >= 0).any():
            return None
        found[rows] = places[inputs[i]][columns]
    return found
