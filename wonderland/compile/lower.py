"""Lowering: a Program's equations come in, the nodes of a region go out.

`Builder` is what the `lower` rules of `ops/` call. An equation without such a rule, or with dtypes that compiled code
doesn't have, becomes a call of NumPy, and says why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from wonderland.compile import attention as attended
from wonderland.compile import contractions, elimination, orders, reflections, sorting, symmetric, transposes, windows
from wonderland.compile.calls import HostNode
from wonderland.compile.control import Branch, Loop
from wonderland.compile.emitter import probe
from wonderland.compile.members import Cumulative, Gather, IndexedPlaces, Map, Reduce, Scatter
from wonderland.compile.narrow import narrowed
from wonderland.compile.nodes import Constant, Empty, Index, Leaf, Node, Number, Region, Several, View, is_big, normal
from wonderland.compile.procedures import Procedure
from wonderland.compile.scalars import Unsupported, is_native
from wonderland.compile.signals import pace_of
from wonderland.core.primitive import Primitive
from wonderland.core.program import Equation, Literal, Program, Var
from wonderland.core.types import ArrayType, broadcast_shapes
from wonderland.ops.index import scatter_slice

DYNAMIC = "its length is known when it runs"


def _identity(e: Any, x: Any) -> Any:
    return x


@cache
def _conversion(dtype: np.dtype) -> Callable:
    """The scalar code of a conversion; one object per dtype, so that costs are looked up."""
    return lambda e, x: e.convert(x, dtype)


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
        self.region: Region = region
        self.makes_result: bool = False  # does what is lowered become a result, element by element?

    def keep(self, node: Node) -> Any:
        node.region = self.region
        self.region.nodes.append(node)
        return node

    # -- elementwise ------------------------------------------------------------------------------

    def map(self, emit: Callable, nodes: Sequence[Node], out_dtype: np.dtype) -> Node:
        """An elementwise function over the broadcast shape."""
        shape = broadcast_shapes(*(n.shape for n in nodes))
        cost, checks = probe(emit, tuple(n.dtype for n in nodes), out_dtype)
        if 0 in shape:
            return Number(ArrayType(shape, out_dtype), 0)
        nodes = [self.broadcast(n, shape) for n in nodes]
        order = orders.chosen(nodes, shape, self.makes_result)
        nodes = [orders.in_order(self, n, order) for n in nodes]
        made = Map(ArrayType(tuple(shape[i] for i in order), out_dtype), emit, nodes, cost, checks)
        made.fixed = orders.is_fixed(nodes, order)
        return self.transpose(narrowed(self, made), orders.inverse(order))

    def index(self, shape: Sequence[int], strides: Sequence[int]) -> Node:
        """For `map`: each element's indices times `strides`, summed up; it has the shape of the result."""
        return Index(tuple(shape), tuple(strides))

    def convert(self, node: Node, dtype: np.dtype) -> Node:
        """`astype`."""
        if node.dtype == dtype and not (isinstance(node, Number) and is_big(node.value)):
            return node
        written = node.type.weak and node.dtype.kind == "i" and dtype.kind in "iu"
        if isinstance(node, Number):
            if written and not np.iinfo(dtype).min <= int(node.value) <= np.iinfo(dtype).max:
                raise Unsupported("a Python integer out of the dtype's bounds: NumPy compares with it, or refuses")
            value = np.asarray(node.value)
            value = np.real(value) if dtype.kind in "iuf" else value
            return Number(ArrayType(node.shape, dtype), value.astype(dtype)[()])
        return self.map(_fitting(dtype) if written else _conversion(dtype), [node], dtype)

    def constant(self, array: np.ndarray) -> Node:
        """A new array that nobody will change."""
        array.flags.writeable = False
        return constant(array)

    def copy(self, node: Node) -> Node:
        """The same values in memory of their own."""
        type = ArrayType(node.shape, node.dtype)
        if not is_native(node.dtype) or None in node.shape:
            why = f"compiled code has no {node.dtype}" if None not in node.shape else DYNAMIC
            return self.call("copy", np.array, (node,), (type,), False, why)[0]
        moves = transposes.moves(node)
        if moves is not None:
            return self.keep(transposes.Transposed(node, moves))
        cost, _ = probe(_identity, (node.dtype,), node.dtype)
        return self.keep(Map(type, _identity, [node] if type.size else [], cost))

    # -- views ------------------------------------------------------------------------------------

    def view(self, node: Node, shape: Sequence[int], offset: int, strides: Sequence[int]) -> Node:
        """A layout in the memory of a node's base; the base itself if it is the identity. Numbers have any shape."""
        type, base = ArrayType(tuple(shape), node.dtype), node.base
        if isinstance(node, Number) or 0 in type.shape:
            return Number(type, node.value if isinstance(node, Number) else 0)
        strides = normal(type.shape, tuple(strides))
        identity = (offset, strides) == base.layout and type.shape == base.shape
        return base if identity else View(type, base, offset, strides)

    def broadcast(self, x: Node, shape: Sequence[int]) -> Node:
        """Repeat along new and size-1 axes."""
        if tuple(shape) == x.shape:
            return x
        offset, strides = x.layout
        extra = len(shape) - len(x.shape)
        spread = [0 if x.shape[i] != n else strides[i] for i, n in enumerate(shape[extra:])]
        return self.view(x, shape, offset, [0] * extra + spread)

    def transpose(self, x: Node, permutation: Sequence[int]) -> Node:
        """Permute the axes."""
        offset, strides = x.layout
        shape, steps = [x.shape[p] for p in permutation], [strides[p] for p in permutation]
        return self.index(shape, steps) if isinstance(x, Index) else self.view(x, shape, offset, steps)

    def slice(self, x: Node, index: Sequence[Any]) -> Node:
        """A part: one int or slice for each axis."""
        offset, strides = x.layout
        shape, steps = [], []
        for i, stride in zip(index, strides, strict=True):
            if isinstance(i, (int, np.integer)):
                offset += int(i) * stride
            else:
                count = len(range(i.start, -1 if i.stop is None else i.stop, i.step))
                offset += i.start * stride if count else 0
                shape.append(count)
                steps.append(i.step * stride)
        return self.view(x, shape, offset, steps)

    def reshape(self, x: Node, shape: Sequence[int]) -> Node:
        """A view where the strides allow it, otherwise of a copy."""
        if tuple(shape) == x.shape:
            return x
        if math.prod(shape) != x.type.size:
            raise RuntimeError(f"an array of shape {x.shape} can't have shape {tuple(shape)}: a fault of wonderland's")
        offset, strides = x.layout
        layout = as_strided(np.empty(1, np.int8), x.shape, strides)  # of bytes: strides count elements
        try:
            return self.view(x, shape, offset, layout.reshape(shape, copy=False).strides)
        except ValueError:
            return self.reshape(self.copy(x), shape)

    # -- reductions and products ------------------------------------------------------------------

    def reduce(self, x: Node, axes: Sequence[int], op: str) -> Node:
        """Sum ("add"), product ("mul") or maximum ("max") over axes."""
        gone = tuple(axes)
        kept = tuple(n for i, n in enumerate(x.shape) if i not in gone)
        if x.type.size == 0:
            return Number(ArrayType(kept, x.dtype), x.dtype.type(op == "mul"))
        axes = tuple(a for a in gone if x.shape[a] != 1)
        if not axes:
            return self.reshape(x, kept)
        if isinstance(x, Number) and op == "max":
            return Number(ArrayType(kept, x.dtype), x.value)
        order = orders.chosen([x], x.shape, self.makes_result)
        x, places = self.transpose(x, order), [i for i in order if i not in gone]
        out = ArrayType(tuple(n for n, i in zip(x.shape, order, strict=True) if i not in gone), x.dtype)
        made = self.keep(Reduce(out, x, tuple(k for k, i in enumerate(order) if i in axes), op))
        return self.transpose(made, orders.inverse(places))

    def cumulate(self, emit: Callable, nodes: Sequence[Node], start: Any, axis: int, reverse: bool) -> Node:
        """`out[k] = emit(out[k - 1], *nodes[k])` along an axis, from `start`; nodes of one shape and dtype."""
        out = ArrayType(nodes[0].shape, nodes[0].dtype)
        first = Number(ArrayType((), out.dtype), np.asarray(start, out.dtype)[()])
        if out.size == 0 or out.shape[axis] == 1:
            return self.map(emit, [first, *nodes], out.dtype)
        probe(emit, (out.dtype, *(n.dtype for n in nodes)), out.dtype)
        return self.keep(Cumulative(out, emit, nodes, first.value, axis, reverse))

    dot: Any = contractions.lower

    def solid(self, x: Node) -> Node:
        """A number spread over a shape becomes memory; others as they are."""
        return self.copy(x) if isinstance(x, Number) else x

    # -- indexing ---------------------------------------------------------------------------------

    def gather(self, x: Node, indices: Sequence[Node], axes: Sequence[int]) -> Node:
        """`x` at integer arrays along axes: the index's shape first, then the axes that are kept."""
        shape = (*broadcast_shapes(*(i.shape for i in indices)), *(n for i, n in enumerate(x.shape) if i not in axes))
        type = ArrayType(shape, x.dtype)
        if 0 in shape:
            return Number(type, 0)
        x, places = self._places(x, indices, axes, shape)
        return self.keep(Gather(type, x.base, places))

    def _places(self, x: Node, indices: Sequence[Node], axes: Sequence[int], shape: tuple):
        if any(x.shape[a] == 0 for a in axes):
            raise Unsupported("an index into an axis of size 0 always raises")
        x = self.solid(x)
        offset, strides = x.layout
        kept = [s for i, s in enumerate(strides) if i not in axes]
        layout = (offset, normal(shape, (0,) * (len(shape) - len(kept)) + tuple(kept)))
        spread = []
        for index in indices:
            index = self.reshape(index, (*index.shape, *([1] * len(kept))))
            spread.append(self.broadcast(self.convert(index, np.dtype(np.int64)), shape))
        return x, IndexedPlaces(layout, tuple(spread), tuple((strides[a], x.shape[a], a) for a in axes))

    def scatter_slice(self, x: Node, u: Node, index: Sequence[Any], mode: str) -> Node:
        """`x` with a static part set to, or increased by, `u`."""
        if u.type.size == 0:
            return x
        target = self.memory(x)
        places = IndexedPlaces(self.slice(target, index).layout)
        return self.keep(Scatter(target, self.convert(u, x.dtype), places, mode))

    def scatter(self, x: Node, indices: Sequence[Node], u: Node, axes: Sequence[int], mode: str) -> Node:
        """`x` with the elements that `gather` would read set to, or increased by, `u`, in order."""
        if u.type.size == 0:
            return x
        target, places = self._places(self.memory(x), indices, axes, u.shape)
        return self.keep(Scatter(target, self.convert(u, x.dtype), places, mode))

    fold: Any = windows.fold
    windows: Any = windows.lower

    # -- procedures -------------------------------------------------------------------------------

    def procedures(
        self, name: str, code: Callable, operands: Sequence[Node], types: Sequence[ArrayType], rows: int, *,
        cost: float, scratch: int = 0, failure: tuple[Any, str] | None = None, lanes: int | None = None,
    ) -> tuple[Node, ...]:  # fmt: skip
        """Code of its own for each row of the results: `code(writer, *outs, *operands)`; see `compile.procedures`."""
        lead = types[0].shape[:rows]
        if 0 in lead:
            return tuple(Number(type, 0) for type in types)
        operands = [self.broadcast(self.solid(n), (*lead, *n.shape[rows:])) for n in operands]
        made = Procedure(name, code, operands, lead, scratch=scratch, row_cost=cost, failure=failure, lanes=lanes)
        return self._results(made, types)

    def procedure(
        self, name: str, code: Callable, operands: Sequence[Node], type: ArrayType, rows: int, **params: Any
    ) -> Node:  # fmt: skip
        """One with one result."""
        if 0 in type.shape:
            return Number(type, 0)
        return self.procedures(name, code, operands, [type], rows, **params)[0]

    ordered: Any = sorting.lower
    system: Any = elimination.lower_system
    factors: Any = elimination.lower_factors
    from_factors: Any = elimination.lower_from_factors
    pivots: Any = elimination.lower_pivots
    cholesky: Any = symmetric.lower_cholesky
    symmetric: Any = symmetric.lower_symmetric
    orthogonal: Any = reflections.lower_orthogonal
    attention: Any = attended.lower
    attention_cotangent: Any = attended.lower_cotangent

    # -- calls, branches and loops -----------------------------------------------------------------

    def _results(self, node: Several, types: Sequence[ArrayType]) -> tuple[Node, ...]:
        self.keep(node)
        node.made = tuple(Node(ArrayType(t.shape, t.dtype)) for t in types)
        for result in node.made:
            result.region = self.region
        return tuple(Number(r.type, 0) if 0 in r.shape else r for r in node.made)

    def call(
        self, name: str, evaluate: Callable, operands: Sequence[Node], types: Sequence[ArrayType], multiple: bool,
        why: str, effect: bool = False,
    ) -> tuple[Node, ...]:  # fmt: skip
        """NumPy evaluates."""
        return self._results(HostNode(name, evaluate, multiple, operands, why, effect), types)

    def branch(self, index: Node, branches: Sequence[Program], operands: Sequence[Node]) -> tuple[Node, ...]:
        """`branches[index](*operands)`."""
        index = self.memory(self.convert(index, np.dtype(np.int64)))
        regions = [settled(self.inside(program, operands)) for program in branches]
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
        node = Loop(initial, xs, count, reverse)
        node.carry = tuple(Leaf(ArrayType(n.shape, n.dtype)) for n in initial)
        node.slices = tuple(Leaf(ArrayType(x.shape[1:], x.dtype)) for x in xs)
        inputs = []
        for leaf, x in zip(node.slices, xs, strict=True):
            strides = x.layout[1][1:] if None not in x.shape else leaf.layout[1]
            inputs.append(Number(leaf.type, 0) if 0 in x.shape else self.view(leaf, leaf.shape, 0, strides))
        carry = [Number(leaf.type, 0) if 0 in leaf.shape else leaf for leaf in node.carry]
        node.regions = [settled(self.inside(body, [*consts, *carry, *inputs]), node.carry)]
        if condition is not None:
            node.regions += [settled(self.inside(condition, [*consts, *carry]))]
        node.pace = pace_of(node)
        carried, ys = body.output_types[:n_carry], body.output_types[n_carry:]
        if any(None in t.shape for t in (*ys, *carried)):
            raise Unsupported("residuals of dynamic length inside a loop")
        lead = length if isinstance(count, int) else None
        stacked = [ArrayType((lead, *t.shape), t.dtype) for t in ys]
        counter = [ArrayType((), np.int64)] if condition is not None else []
        results = self._results(node, [*carried, *counter, *stacked])
        for result, start in zip(node.made, initial, strict=False):
            result.starts_from = start
        return results

    def memory(self, node: Node) -> Node:
        """A node with contiguous memory of its own."""
        return self.copy(node) if isinstance(node, (Number, View)) else node

    def program(self, program: Program, operands: Sequence[Node]) -> list[Node]:
        """What a Program computes, as nodes of this region."""
        return lower(program, operands, self.region).outputs

    def inside(self, program: Program, operands: Sequence[Node]) -> Region:
        """The region of an inner Program."""
        return lower(program, operands, Region())


def lower_program(program: Program, signature: Any) -> Region:
    """The region of a whole Program."""
    region = lower(program, signature.nodes, Region())
    replaced = [signature.replaced(i) for i in range(len(region.outputs))]
    region.unchanged = {i for i, leaf in enumerate(replaced) if leaf is not None and 0 in leaf.shape}
    return settled(region, replaced)


def lower(program: Program, operands: Sequence[Node], region: Region) -> Region:
    """Lower a Program whose inputs are the given nodes."""
    builder = Builder(region)
    env: dict[Var, Node] = {v: _typed(n, v.type) for v, n in zip(program.inputs, operands, strict=True)}
    env.update((v, constant(value)) for v, value in program.constants)

    def node(atom: Any) -> Node:
        return env[atom] if isinstance(atom, Var) else _literal(atom)

    becoming, unread = orders.becoming_results(program), _overwritten(program)
    for equation in program.equations:
        builder.makes_result = not becoming.isdisjoint(equation.outputs)
        nodes = [node(a) for a in equation.inputs]
        if not unread.isdisjoint(equation.outputs) and isinstance(nodes[0].base, (Constant, Number)):
            nodes[0] = builder.keep(Empty(nodes[0].type))
        outs = _lower_equation(builder, equation, nodes)
        for v, out in zip(equation.outputs, outs, strict=True):
            if out.dtype != v.type.dtype or out.shape != v.type.shape:
                got, name = ArrayType(out.shape, out.dtype), equation.primitive.name
                raise RuntimeError(f"{name} is lowered to {got} instead of {v.type}: a fault of wonderland's")
            env[v] = _typed(out, v.type)
    region.outputs = [node(a) for a in program.outputs]
    return region


def _overwritten(program: Program) -> set[Var]:
    """Of arrays that are set part by part until nothing is left, as by `concatenate`, the first result."""
    uses = Counter(a for a in (*program.outputs, *(a for e in program.equations for a in e.inputs)))
    parts = [e for e in program.equations if e.primitive is scatter_slice and e.params["mode"] == "set"]
    onto = {e.inputs[0]: e for e in parts}
    found = set()
    for first in parts:
        shape, e, done = first.outputs[0].type.shape, first, 0
        axes = [a for a, i in enumerate(first.params["index"]) if i != slice(0, shape[a], 1)]
        while len(axes) == 1 and e is not None:
            index = [*e.params["index"]]
            along, index[axes[0]] = index[axes[0]], slice(0, shape[axes[0]], 1)
            if index != [slice(0, n, 1) for n in shape] or along != slice(done, getattr(along, "stop", 0), 1):
                break
            done = along.stop
            if done == shape[axes[0]]:
                found.add(first.outputs[0])
                break
            e = onto.get(e.outputs[0]) if uses[e.outputs[0]] == 1 else None
    return found


def settled(region: Region, replaces: Sequence[Leaf | None] = ()) -> Region:
    """A region whose outputs each are a value of its own, and nobody else's output.

    `replaces` are the leaves that the first outputs replace. An output that is what it replaces, whole, is left alone.
    """
    region.replaces = [*replaces, *[None] * (len(region.outputs) - len(replaces))]
    builder, taken = Builder(region), set()
    for i, (node, old) in enumerate(zip(region.outputs, region.replaces, strict=True)):
        if i in region.unchanged or (old is not None and node.base is old and node.is_whole):
            region.unchanged.add(i)
            continue
        base = node.base
        ours = base.region is region and base.in_memory and not isinstance(base, Leaf)
        if not ours or not node.is_whole or base in taken:
            region.outputs[i] = builder.copy(node)
        taken.add(region.outputs[i].base)
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
    leaf = Constant(array)
    strides = normal(array.shape, tuple(s // array.itemsize for s in array.strides))
    return leaf if (0, strides) == leaf.layout else View(leaf.type, leaf, 0, strides)


def _typed(node: Node, type: ArrayType) -> Node:
    """Weakness decides promotion: a node carries that of its variable."""
    if node.type.weak == type.weak:
        return node
    if isinstance(node, Number):
        return Number(ArrayType(node.shape, node.dtype, type.weak), node.value)
    return View(ArrayType(node.shape, node.dtype, type.weak), node.base, *node.layout)


def _literal(atom: Literal) -> Node:
    if is_big(atom.value):  # takes the dtype of its partner, or stays for NumPy
        return Number(atom.type, atom.value)
    return Number(atom.type, np.asarray(atom.value, atom.type.dtype)[()])


def _lower_equation(builder: Builder, equation: Equation, nodes: list[Node]) -> Sequence[Node]:
    primitive, types = equation.primitive, [v.type for v in equation.outputs]
    mark = len(builder.region.nodes)
    try:
        rule = _rule(primitive, [*types, *(n.type for n in nodes)])
        out = rule(builder, *nodes, **equation.params)
        for made in builder.region.nodes[mark:]:
            if isinstance(made, Map) and not made.origin:
                made.origin = primitive.name
        return tuple(out) if primitive.multiple else (out,)
    except Unsupported as reason:
        del builder.region.nodes[mark:]
        call = partial(primitive.evaluate, **equation.params)
        why, effect = str(reason), equation.has_effects()
    return builder.call(primitive.name, call, nodes, types, primitive.multiple, why, effect)


def _rule(primitive: Primitive, types: Sequence[ArrayType]) -> Callable:
    if primitive.lower is None:
        raise Unsupported("there is no code for it")
    for dtype in (t.dtype for t in types if not is_native(t.dtype)):
        raise Unsupported(f"compiled code has no {dtype}")
    if any(None in t.shape for t in types) and not primitive.dynamic:
        raise Unsupported(DYNAMIC)
    return primitive.lower
