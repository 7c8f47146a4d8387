"""Lowering: a Program's equations come in, the nodes of a region go out.

`Builder` is what the `lower` rules of `ops/` call. An equation without such a rule, or with dtypes that compiled code
doesn't have, becomes a call of NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from wonderland.compile import sorting
from wonderland.compile.emitter import probe
from wonderland.compile.nodes import (
    Branch,
    Call,
    Contract,
    Cumulative,
    Gather,
    Index,
    Leaf,
    Loop,
    Map,
    Node,
    Number,
    Opaque,
    Procedure,
    Reduce,
    Region,
    Result,
    Scatter,
    Shape,
    View,
    base_of,
    contiguous_strides,
    is_big,
    layout_of,
    normal,
)
from wonderland.compile.scalars import Unsupported, is_native
from wonderland.compile.signals import pace_of
from wonderland.core.program import Equation, Literal, Program, Var
from wonderland.core.types import ArrayType, broadcast_shapes, promote

I64 = np.dtype(np.int64)
SMALL_PRODUCT, SMALL_VECTOR = 64, 8192  # multiply-adds; measured against GEMM


def _identity(e: Any, x: Any) -> Any:
    return x


def _multiply(e: Any, x: Any, y: Any) -> Any:
    return e.mul(x, y)


_TURNS = np.array([[False], [True]])  # of the two rows that a row of a complex matrix becomes
_TURNS.flags.writeable = False


def _turned_if(e: Any, turn: Any, z: Any) -> Any:
    """i z if turn, else z."""
    return e.select(turn, e.complex(e.neg(e.imag(z)), e.real(z)), z)


class _Conversion:
    """The scalar code of a conversion; one object per dtype, so that costs are looked up."""

    made: dict[np.dtype, _Conversion] = {}

    def __init__(self, dtype: np.dtype):
        self.dtype = dtype
        self.made[dtype] = self

    def __call__(self, e: Any, x: Any) -> Any:
        return e.convert(x, self.dtype)


@cache
def _fitting(dtype: np.dtype) -> Callable:
    """The scalar code of a Python integer that becomes an array's dtype; as in NumPy it has to fit."""
    bounds = np.iinfo(dtype)

    def emit(e: Any, x: Any) -> Any:
        low, high = (e.constant(max(min(int(b), 2**63 - 1), -(2**63)), x) for b in (bounds.min, bounds.max))
        fits = e.bit_and(e.compare("ge", x, low), e.compare("le", x, high))
        e.require(fits, OverflowError, f"a Python integer is out of bounds for {dtype}")
        return e.convert(x, dtype)

    return emit


class Builder:
    """Lowers equations into the nodes of one region."""

    def __init__(self, region: Region):
        self.region = region

    def keep(self, node: Node) -> Any:
        node.region = self.region
        self.region.nodes.append(node)
        return node

    # -- elementwise ------------------------------------------------------------------------------

    def map(self, emit: Callable, nodes: Sequence[Node], out_dtype: np.dtype) -> Node:
        """An elementwise function over the broadcast shape."""
        shape = broadcast_shapes(*(n.shape for n in nodes))
        cost, checks = probe(emit, tuple(n.dtype for n in nodes), out_dtype)
        out = ArrayType(shape, out_dtype)
        if 0 in shape:
            return Number(out, 0)
        return self.keep(Map(out, emit, [self.broadcast(n, shape) for n in nodes], cost, checks))

    def index(self, shape: Sequence[int], strides: Sequence[int]) -> Node:
        """For `map`: each element's indices times `strides`, summed up; it has the shape of the result."""
        return Index(tuple(shape), tuple(strides))

    def convert(self, node: Node, dtype: np.dtype) -> Node:
        """`astype`."""
        if node.dtype == dtype and not (isinstance(node, Number) and is_big(node.value)):
            return node
        if isinstance(node, Number):
            written = node.type.weak and node.dtype.kind == "i" and dtype.kind in "iu"
            if written and not np.iinfo(dtype).min <= int(node.value) <= np.iinfo(dtype).max:
                raise Unsupported("a Python integer out of the dtype's bounds: NumPy compares with it, or refuses")
            value = np.asarray(node.value)
            value = np.real(value) if dtype.kind in "iuf" else value
            return Number(ArrayType(node.shape, dtype), value.astype(dtype)[()])
        if node.type.weak and node.dtype.kind == "i" and dtype.kind in "iu":
            return self.map(_fitting(dtype), [node], dtype)
        return self.map(_Conversion.made.get(dtype) or _Conversion(dtype), [node], dtype)

    def constant(self, array: np.ndarray) -> Node:
        """A new array that nobody will change."""
        array.flags.writeable = False
        return constant(array)

    def copy(self, node: Node) -> Node:
        """The same values in memory of their own."""
        if not is_native(node.dtype) or None in node.shape:
            return self.call("copy", lambda x: np.array(x), (node,), (ArrayType(node.shape, node.dtype),), False)[0]
        if node.type.size == 0:
            return self.keep(Map(ArrayType(node.shape, node.dtype), _identity, [], 0))
        cost, _ = probe(_identity, (node.dtype,), node.dtype)
        return self.keep(Map(ArrayType(node.shape, node.dtype), _identity, [node], cost))

    # -- views ------------------------------------------------------------------------------------

    def view(self, node: Node, shape: Sequence[int], offset: int, strides: Sequence[int]) -> Node:
        """A layout in the memory of a node's base; the base itself if it is the identity."""
        base = base_of(node)
        shape = tuple(shape)
        strides = normal(shape, tuple(strides))
        if (offset, strides) == layout_of(base) and shape == base.shape:
            return base
        return View(ArrayType(shape, node.dtype), base, offset, strides)

    def broadcast(self, x: Node, shape: Sequence[int]) -> Node:
        """Repeat along new and size-1 axes."""
        shape = tuple(shape)
        if shape == x.shape:
            return x
        if isinstance(x, Number) or 0 in shape:
            return Number(ArrayType(shape, x.dtype), x.value if isinstance(x, Number) else 0)
        offset, strides = layout_of(x)
        extra = len(shape) - len(x.shape)
        spread = [0 if x.shape[i] != n else strides[i] for i, n in enumerate(shape[extra:])]
        return self.view(x, shape, offset, [0] * extra + spread)

    def transpose(self, x: Node, permutation: Sequence[int]) -> Node:
        """Permute the axes."""
        shape = tuple(x.shape[p] for p in permutation)
        if isinstance(x, Number):
            return Number(ArrayType(shape, x.dtype), x.value)
        offset, strides = layout_of(x)
        return self.view(x, shape, offset, [strides[p] for p in permutation])

    def slice(self, x: Node, index: Sequence[Any]) -> Node:
        """A part: one int or slice for each axis."""
        offset, strides = layout_of(x) if not isinstance(x, Number) else (0, (0,) * len(x.shape))
        shape, steps = [], []
        for i, stride in zip(index, strides, strict=True):
            if isinstance(i, (int, np.integer)):
                offset += int(i) * stride
            else:
                count = len(range(i.start, -1 if i.stop is None else i.stop, i.step))
                offset += i.start * stride if count else 0
                shape.append(count)
                steps.append(i.step * stride)
        if isinstance(x, Number) or 0 in shape:
            return Number(ArrayType(tuple(shape), x.dtype), x.value if isinstance(x, Number) else 0)
        return self.view(x, shape, offset, steps)

    def reshape(self, x: Node, shape: Sequence[int]) -> Node:
        """A view where the strides allow it, otherwise of a copy."""
        shape = tuple(shape)
        if shape == x.shape:
            return x
        if isinstance(x, Number):
            return Number(ArrayType(shape, x.dtype), x.value)
        offset, strides = layout_of(x)
        new = _reshaped_strides(x.shape, strides, shape)
        if new is None:
            x = self.copy(x)
            offset, new = 0, contiguous_strides(shape)
        return self.view(x, shape, offset, new)

    # -- reductions and products ------------------------------------------------------------------

    def reduce(self, x: Node, axes: Sequence[int], op: str) -> Node:
        """Sum ("add"), product ("mul") or maximum ("max") over axes."""
        axes = tuple(axes)
        kept = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        if x.type.size == 0:
            return Number(ArrayType(kept, x.dtype), x.dtype.type(op == "mul"))
        axes = tuple(a for a in axes if x.shape[a] != 1)
        if not axes:
            return self.reshape(x, kept)
        if isinstance(x, Number) and op == "max":
            return Number(ArrayType(kept, x.dtype), x.value)
        return self.keep(Reduce(ArrayType(kept, x.dtype), x, axes, op))

    def cumulate(self, emit: Callable, nodes: Sequence[Node], start: Any, axis: int, reverse: bool) -> Node:
        """`out[k] = emit(out[k - 1], *nodes[k])` along an axis, from `start`; nodes of one shape and dtype."""
        out = ArrayType(nodes[0].shape, nodes[0].dtype)
        first = Number(ArrayType((), out.dtype), np.asarray(start, out.dtype)[()])
        if out.size == 0 or out.shape[axis] == 1:
            return self.map(emit, [first, *nodes], out.dtype)
        probe(emit, (out.dtype, *(n.dtype for n in nodes)), out.dtype)
        return self.keep(Cumulative(out, emit, nodes, first.value, axis, reverse))

    def dot(self, x: Node, y: Node, contract: tuple[Any, ...], batch: tuple[Any, ...]) -> Node:
        """A contraction of two arrays; small ones become a product and a sum, others a call of GEMM."""
        dtype = promote(x.type, y.type)[0]
        x, y = self.convert(x, dtype), self.convert(y, dtype)
        free = [
            tuple(i for i in range(len(n.shape)) if i not in contract[side] and i not in batch[side])
            for side, n in enumerate((x, y))
        ]
        outer, inner = [x.shape[i] for i in batch[0]], [x.shape[i] for i in contract[0]]
        rows, columns = [x.shape[i] for i in free[0]], [y.shape[i] for i in free[1]]
        shape = (*outer, *rows, *columns)
        k = math.prod(inner)
        if 0 in shape or k == 0:
            return Number(ArrayType(shape, dtype), np.zeros((), dtype)[()])
        x = self.transpose(x, (*batch[0], *free[0], *contract[0]))
        y = self.transpose(y, (*batch[1], *free[1], *contract[1]))
        m, n = math.prod(rows), math.prod(columns)
        if dtype.kind == "f" and not _is_small(m, n, k):
            return self._gemm(x, y, outer, (m, n, k), ArrayType(shape, dtype))
        if dtype.kind == "c" and min(m, n) > 1 and not _is_small(m, n, k):
            return self._complex_gemm(x, y, outer, (m, n, k), ArrayType(shape, dtype))
        b, r, c = len(outer), len(rows), len(columns)
        by_rows = self._inner_is_contracted(y, b, c)
        x_shape = (*outer, *rows, *([1] * c), *inner)
        y_shape = (*outer, *([1] * r), *columns, *inner)
        x, y = self.reshape(x, x_shape), self.reshape(y, y_shape)
        if not by_rows:  # sum over the axes before the columns: the loop over columns is the inner one
            order = (*range(b + r), *range(b + r + c, b + r + c + len(inner)), *range(b + r, b + r + c))
            x, y = self.transpose(x, order), self.transpose(y, order)
        start = b + r + c if by_rows else b + r
        product = self.map(_multiply, [x, y], dtype)
        return self.reduce(product, tuple(range(start, start + len(inner))), "add") if inner else product

    def _inner_is_contracted(self, y: Node, b: int, c: int) -> bool:
        """Should the loop over the contracted axes be innermost? When the columns of y aren't contiguous in memory."""
        if c == 0 or isinstance(y, Number):
            return True
        columns, inner = y.shape[b : b + c], y.shape[b + c :]
        if math.prod(columns) == 1:
            return True
        if math.prod(inner) == 1:
            return False
        strides = layout_of(y)[1]
        return not (columns[-1] != 1 and abs(strides[b + c - 1]) <= 1)

    def _gemm(self, x: Node, y: Node, outer: list, sizes: tuple, type: ArrayType) -> Node:
        m, n, k = sizes
        x, y = self.solid(x), self.solid(y)
        x = self.reshape(x, (*outer, m, k))
        y = self.reshape(y, (*outer, n, k))
        layouts = [(offset, *strides) for offset, strides in (layout_of(x), layout_of(y))]
        return self.keep(Contract(type, base_of(x), base_of(y), (tuple(outer), m, n, k), layouts[0], layouts[1]))

    def _complex_gemm(self, x: Node, y: Node, outer: list, sizes: tuple, type: ArrayType) -> Node:
        """One product of real matrices: the pairs of x are a row of twice the length, y has a row i y below each row.

        (a + i b) y = a y + b (i y), and the pairs of the rows of y are twice the columns, as they are in the result.
        """
        m, n, k = sizes
        x, y = self.reshape(self.solid(x), (*outer, m, k)), self.reshape(self.solid(y), (*outer, n, k))
        if k > 1 and layout_of(x)[1][-1] != 1:
            x = self.copy(x)
        order = (*range(len(outer)), len(outer) + 1, len(outer))
        rows = self.reshape(self.transpose(y, order), (*outer, k, 1, n))
        y = self.map(_turned_if, [constant(_TURNS), rows], type.dtype)
        offset, strides = layout_of(x)
        x_strides = (*(2 * s for s in (offset, *strides[:-1])), 1)
        y_strides = (0, *(2 * s for s in contiguous_strides(y.shape)[:-3]), 1, 2 * n)
        return self.keep(Contract(type, base_of(x), y, (tuple(outer), m, 2 * n, 2 * k), x_strides, y_strides))

    def solid(self, x: Node) -> Node:
        """A number spread over a shape becomes memory; others as they are."""
        return self.copy(x) if isinstance(x, Number) else x

    # -- indexing ---------------------------------------------------------------------------------

    def gather(self, x: Node, indices: Sequence[Node], axes: Sequence[int]) -> Node:
        """`x` at integer arrays along axes: the index's shape first, then the axes that are kept."""
        kept = [i for i in range(len(x.shape)) if i not in axes]
        lead = broadcast_shapes(*(i.shape for i in indices))
        shape = (*lead, *(x.shape[i] for i in kept))
        type = ArrayType(shape, x.dtype)
        if 0 in shape:
            return Number(type, 0)
        x, layout, indices, places = self._places(x, indices, axes, kept, lead, shape)
        return self.keep(Gather(type, base_of(x), layout, indices, places))

    def _places(self, x: Node, indices: Sequence[Node], axes: Sequence[int], kept: list, lead: tuple, shape: tuple):
        if any(x.shape[a] == 0 for a in axes):
            raise Unsupported("an index into an axis of size 0 always raises")
        x = self.solid(x)
        offset, strides = layout_of(x)
        layout = (offset, normal(shape, (0,) * len(lead) + tuple(strides[i] for i in kept)))
        spread = []
        for index in indices:
            index = self.reshape(index, (*index.shape, *([1] * len(kept))))
            spread.append(self.broadcast(self.convert(index, np.dtype(np.int64)), shape))
        places = [(strides[a], x.shape[a], a) for a in axes]
        return x, layout, spread, places

    def scatter_slice(self, x: Node, u: Node, index: Sequence[Any], mode: str) -> Node:
        """`x` with a static part set to, or increased by, `u`."""
        if u.type.size == 0:
            return x
        target = self.memory(x)
        part = self.slice(target, index)
        offset, strides = layout_of(part)
        return self.keep(Scatter(target, self.convert(u, x.dtype), (offset, strides), (), [], mode))

    def scatter(self, x: Node, indices: Sequence[Node], u: Node, axes: Sequence[int], mode: str) -> Node:
        """`x` with the elements that `gather` would read set to, or increased by, `u`, in order."""
        if u.type.size == 0:
            return x
        target = self.memory(x)
        kept = [i for i in range(len(x.shape)) if i not in axes]
        lead = broadcast_shapes(*(i.shape for i in indices))
        target, layout, indices, places = self._places(target, indices, axes, kept, lead, u.shape)
        return self.keep(Scatter(target, self.convert(u, x.dtype), layout, indices, places, mode))

    # -- procedures -------------------------------------------------------------------------------

    def procedure(
        self, name: str, emit: Callable, operands: Sequence[Node], type: ArrayType, rows: int, *, cost: float,
        scratch: int = 0, failure: tuple[Any, str] | None = None,
    ) -> Node:  # fmt: skip
        """Code of its own for each row of the result: `emit(code, out, *operands)`; see `compile.procedures`."""
        if 0 in type.shape:
            return Number(type, 0)
        operands = [self.broadcast(self.solid(n), (*type.shape[:rows], *n.shape[rows:])) for n in operands]
        made = Procedure(type, name, emit, operands, rows, scratch=scratch, cost=cost, failure=failure)
        return self.keep(made)

    def sort(self, x: Node, axis: int, places: bool) -> Node:
        """The numbers of each row along an axis in order, or the places where they come from; equal ones stay."""
        out = ArrayType(x.shape, I64 if places else x.dtype)
        if x.type.size == 0 or x.shape[axis] == 1:
            return Number(out, 0) if places else x
        last = (*(i for i in range(len(x.shape)) if i != axis), axis)
        x = self.transpose(x, last)
        emit, scratch, cost = sorting.sorter(x.shape[-1], x.dtype, places)
        rows = len(x.shape) - 1
        made = self.procedure("sort", emit, [x], ArrayType(x.shape, out.dtype), rows, cost=cost, scratch=scratch)
        return self.transpose(made, tuple(int(i) for i in np.argsort(last)))

    # -- opaque steps -----------------------------------------------------------------------------

    def _results(self, step: Opaque, types: Sequence[ArrayType]) -> tuple[Node, ...]:
        self.keep(step)
        step.results = tuple(Result(ArrayType(t.shape, t.dtype), step, i) for i, t in enumerate(types))
        for result in step.results:
            result.region = self.region
        return tuple(Number(r.type, 0) if 0 in r.shape else r for r in step.results)

    def call(
        self, name: str, evaluate: Callable, operands: Sequence[Node], types: Sequence[ArrayType], multiple: bool,
        effect: bool = False,
    ) -> tuple[Node, ...]:  # fmt: skip
        """NumPy evaluates."""
        return self._results(Call(name, evaluate, multiple, operands, effect), types)

    def branch(self, index: Node, branches: Sequence[Program], operands: Sequence[Node]) -> tuple[Node, ...]:
        """`branches[index](*operands)`."""
        index = self.memory(self.convert(index, np.dtype(np.int64)))
        regions = [self.inside(program, operands) for program in branches]
        return self._results(Branch(index, regions), branches[0].output_types)

    def loop(
        self, operands: Sequence[Node], body: Program, condition: Program | None, n_consts: int, n_carry: int,
        length: int | None, reverse: bool, slots: int | None = None,
    ) -> tuple[Node, ...]:  # fmt: skip
        """The three forms of `scan`."""
        operands = list(operands)
        count: int | Node | None = length
        if condition is None and length is None:
            count = self.memory(self.convert(operands.pop(0), np.dtype(np.int64)))
        consts = operands[:n_consts]
        initial = [self.memory(n) for n in operands[n_consts : n_consts + n_carry]]
        xs = [self.solid(n) for n in operands[n_consts + n_carry :]]
        step = Loop(initial, xs, count, reverse)
        step.carry = tuple(Leaf(ArrayType(n.shape, n.dtype), "carry") for n in initial)
        slices, inputs = [], []
        for x in xs:
            leaf = Leaf(ArrayType(x.shape[1:], x.dtype), "slice", x)
            slices.append(leaf)
            strides = layout_of(x)[1][1:] if None not in x.shape else contiguous_strides(x.shape[1:])
            part = Number(leaf.type, 0) if 0 in x.shape else self.view(leaf, leaf.shape, 0, strides)
            inputs.append(part)
        step.slices = tuple(slices)
        carry = [Number(leaf.type, 0) if 0 in leaf.shape else leaf for leaf in step.carry]
        step.body = self.inside(body, [*consts, *carry, *inputs])
        if condition is not None:
            step.condition = self.inside(condition, [*consts, *carry])
        step.pace = pace_of(step)
        carried, ys = body.output_types[:n_carry], body.output_types[n_carry:]
        if any(None in t.shape for t in (*ys, *carried)):
            raise Unsupported("residuals of dynamic length inside a loop")
        lead = length if isinstance(count, int) else None
        stacked = [ArrayType((lead, *t.shape), t.dtype) for t in ys]
        counter = [ArrayType((), np.int64)] if condition is not None else []
        return self._results(step, [*carried, *counter, *stacked])

    def memory(self, node: Node) -> Node:
        """A node with contiguous memory of its own."""
        return self.copy(node) if isinstance(node, (Number, View)) else node

    def program(self, program: Program, operands: Sequence[Node]) -> list[Node]:
        """What a Program computes, as nodes of this region."""
        return lower(program, operands, self.region).outputs

    def inside(self, program: Program, operands: Sequence[Node]) -> Region:
        """The region of an inner Program."""
        return lower(program, operands, Region())


def lower(program: Program, operands: Sequence[Node], region: Region) -> Region:
    """Lower a Program whose inputs are the given nodes."""
    builder = Builder(region)
    env: dict[Var, Node] = {v: _typed(n, v.type) for v, n in zip(program.inputs, operands, strict=True)}
    env.update((v, constant(value)) for v, value in program.constants)

    def node(atom: Any) -> Node:
        return env[atom] if isinstance(atom, Var) else _literal(atom)

    for equation in program.equations:
        nodes = [node(a) for a in equation.inputs]
        outs = _lower_equation(builder, equation, nodes)
        for v, out in zip(equation.outputs, outs, strict=True):
            if out.dtype != v.type.dtype or out.shape != v.type.shape:
                got, name = ArrayType(out.shape, out.dtype), equation.primitive.name
                raise RuntimeError(f"{name} is lowered to {got} instead of {v.type}: a fault of wonderland's")
            env[v] = _typed(out, v.type)
    region.outputs = [node(a) for a in program.outputs]
    return region


def constant(value: Any) -> Node:
    """A constant by reference; a number where it can't change and is the same everywhere."""
    array = np.asarray(value)
    type = ArrayType(array.shape, array.dtype)
    fixed = not isinstance(value, np.ndarray) or not value.flags.writeable
    if 0 in array.shape:
        return Number(type, 0)
    if fixed and (array.size == 1 or not any(array.strides)):
        return Number(type, array.ravel()[0])
    readable = array.flags.aligned and array.dtype.isnative and all(s % array.itemsize == 0 for s in array.strides)
    if not readable:
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    leaf = Leaf(ArrayType(array.shape, array.dtype), "constant", array)
    strides = normal(array.shape, tuple(s // array.itemsize for s in array.strides))
    return leaf if (0, strides) == layout_of(leaf) else View(leaf.type, leaf, 0, strides)


def _typed(node: Node, type: ArrayType) -> Node:
    """Weakness decides promotion: a node carries that of its variable."""
    if node.type.weak == type.weak:
        return node
    if isinstance(node, Number):
        return Number(ArrayType(node.shape, node.dtype, type.weak), node.value)
    return View(ArrayType(node.shape, node.dtype, type.weak), base_of(node), *layout_of(node))


def _literal(atom: Literal) -> Node:
    if is_big(atom.value):  # takes the dtype of its partner, or stays for NumPy
        return Number(atom.type, atom.value)
    return Number(atom.type, np.asarray(atom.value, atom.type.dtype)[()])


def _lower_equation(builder: Builder, equation: Equation, nodes: list[Node]) -> Sequence[Node]:
    primitive, types = equation.primitive, [v.type for v in equation.outputs]
    dynamic = any(None in t.shape for t in (*types, *(n.type for n in nodes)))
    native = all(is_native(t.dtype) for t in (*types, *(n.type for n in nodes)))
    if primitive.lower is not None and native and (not dynamic or primitive.name == "scan"):
        mark = len(builder.region.nodes)
        try:
            out = primitive.lower(builder, *nodes, **equation.params)
            return tuple(out) if primitive.multiple else (out,)
        except Unsupported:
            del builder.region.nodes[mark:]
    params, evaluate = equation.params, primitive.evaluate
    call = lambda *arrays: evaluate(*arrays, **params)
    return builder.call(primitive.name, call, nodes, types, primitive.multiple, equation.has_effects())


def _is_small(m: int, n: int, k: int) -> bool:
    """Is a product better off as a map and a sum: done before a call is, or nothing but a map or a sum?"""
    return m * n * k <= (SMALL_VECTOR if m == 1 or n == 1 else SMALL_PRODUCT) or m == n == 1 or k == 1


def _reshaped_strides(shape: Shape, strides: Shape, new: Shape) -> list[int] | None:
    """Strides of a reshaped layout, or None if it needs a copy (NumPy's rule)."""
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    out: list[int] = []
    i = j = 0
    while i < len(old) and j < len(new):
        # The smallest groups of old and new axes that have the same number of elements.
        extents, count, total = [old[i]], new[j], old[i][0]
        first = j
        i, j = i + 1, j + 1
        while total != count:
            if count < total:
                count *= new[j]
                j += 1
            else:
                total *= old[i][0]
                extents.append(old[i])
                i += 1
        for (_, outer), (n, inner) in pairwise(extents):
            if outer != inner * n:
                return None
        step = extents[-1][1]
        group = []
        for n in reversed(new[first:j]):
            group.append(step)
            step *= n
        out += reversed(group)
    out += [0] * (len(new) - len(out))
    return out
