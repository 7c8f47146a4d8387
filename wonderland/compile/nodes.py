"""The nodes of the loop-level graph: values with a type, and the steps and layouts that make them.

Views (broadcast, transpose, slice, most reshapes) are strided layouts on another node, as in NumPy, and cost nothing. A
`Region` is a list of nodes in order: the Program itself, and each body of a loop or branch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wonderland.compile.scalars import real_dtype
from wonderland.core.types import ArrayType

Shape = tuple[int, ...]


def contiguous_strides(shape: Shape) -> tuple[int, ...]:
    """Strides, in elements, of a C-contiguous array of this shape."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


class Node:
    """A value. `type` is its shape and dtype."""

    __slots__ = ("region", "type")

    def __init__(self, type: ArrayType):
        self.type: ArrayType = type
        self.region: Region | None = None

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        return self.type.dtype

    @property
    def bytes(self) -> int:
        return math.prod(self.type.shape) * self.type.dtype.itemsize


class Leaf(Node):
    """Memory that is there before the region runs: an argument, a constant, a carried value, a slice of xs."""

    __slots__ = ("name", "source")

    def __init__(self, type: ArrayType, name: str, source: Any = None):
        super().__init__(type)
        self.name: str = name
        self.source: Any = source  # a constant's array, or what a slice is taken from


class Number(Node):
    """One number, seen in any shape."""

    __slots__ = ("value",)

    def __init__(self, type: ArrayType, value: Any):
        super().__init__(type)
        self.value: Any = value


def is_big(value: Any) -> bool:
    """Is it an integer of Python's that no int64 holds?"""
    return type(value) is int and not -(2**63) <= value < 2**63


class Index(Number):
    """No memory either: the element at a place of the loops is the sum of indices times `strides`, an int64."""

    __slots__ = ("strides",)

    def __init__(self, shape: Shape, strides: Shape):
        super().__init__(ArrayType(shape, np.int64), 0)
        self.strides: Shape = normal(shape, strides)


class View(Node):
    """A strided layout on the memory of `base`, which is neither a view nor a number. Strides count elements."""

    __slots__ = ("base", "offset", "strides")

    def __init__(self, type: ArrayType, base: Node, offset: int, strides: Shape):
        super().__init__(type)
        self.base: Node = base
        self.offset: int = offset
        self.strides: Shape = strides


class Map(Node):
    """An elementwise function; every operand has the shape of the result (views broadcast)."""

    __slots__ = ("checks", "cost", "emit", "operands")

    def __init__(self, type: ArrayType, emit: Callable, operands: Sequence[Node], cost: int, checks: bool = False):
        super().__init__(type)
        self.emit: Callable[..., Any] = emit
        self.operands: tuple[Node, ...] = tuple(operands)
        self.cost: int = cost
        self.checks: bool = checks  # its code may call `require`, and so fail


class Reduce(Node):
    """A sum ("add"), product ("mul") or maximum ("max") over axes of the operand."""

    __slots__ = ("axes", "op", "operand")

    def __init__(self, type: ArrayType, operand: Node, axes: Shape, op: str):
        super().__init__(type)
        self.operand: Node = operand
        self.axes: Shape = axes
        self.op: str = op


class Cumulative(Node):
    """A value that runs along an axis: `emit(element before, *operands at this place)`, from `start` before the first.

    `reverse`: from the last element to the first. Every operand has the shape of the result.
    """

    __slots__ = ("axes", "emit", "operands", "reverse", "start")

    def __init__(self, type: ArrayType, emit: Callable, operands: Sequence[Node], start: Any, axis: int, reverse: bool):
        super().__init__(type)
        self.emit: Callable[..., Any] = emit
        self.operands: tuple[Node, ...] = tuple(operands)
        self.start: Any = start
        self.axes: tuple[int] = (axis,)
        self.reverse: bool = reverse


class Gather(Node):
    """Reads `source` at computed places: an elementwise node over its shape, with one more, indexed, operand.

    `layout` is the offset and strides of the result's own dimensions in the source; each of `indices`, broadcast to
    the result's shape, moves along one axis of the source: `places` has its (stride, extent, axis).
    """

    __slots__ = ("indices", "layout", "places", "source")

    def __init__(
        self, type: ArrayType, source: Node, layout: tuple[Any, ...], indices: Sequence[Node], places: list[Any]
    ):
        super().__init__(type)
        self.source: Node = source
        self.layout: tuple[Any, ...] = layout
        self.indices: tuple[Node, ...] = tuple(indices)
        self.places: list[Any] = places


class Scatter(Node):
    """`target` with `update` at places given like a `Gather`'s, over the shape of the update.

    `mode`: it is set there, added, or taken where it is larger ("set", "add", "max").
    """

    __slots__ = ("indices", "layout", "mode", "places", "target", "update")

    def __init__(
        self, target: Node, update: Node, layout: tuple[Any, ...], indices: Sequence[Node], places: list[Any], mode: str
    ):
        super().__init__(ArrayType(target.shape, target.dtype))
        self.target: Node = target
        self.update: Node = update
        self.layout: tuple[Any, ...] = layout
        self.indices: tuple[Node, ...] = tuple(indices)
        self.places: list[Any] = places
        self.mode: str = mode


class Contract(Node):
    """A matrix product by GEMM for each batch entry: extents (batch..., m, n, k), strides of x and y along them.

    If its dtype is complex, extents and strides count the real numbers of which x, y and the result consist.
    """

    __slots__ = ("batch", "k", "m", "n", "x", "x_strides", "y", "y_strides")

    batch: Any
    k: Any
    m: Any
    n: Any
    x: Node
    x_strides: tuple[Any, ...]
    y: Node
    y_strides: tuple[Any, ...]

    def __init__(
        self,
        type: ArrayType,
        x: Node,
        y: Node,
        sizes: tuple[Any, ...],
        x_strides: tuple[Any, ...],
        y_strides: tuple[Any, ...],
    ):
        super().__init__(type)
        self.x, self.y = x, y
        self.batch, self.m, self.n, self.k = sizes
        self.x_strides, self.y_strides = x_strides, y_strides  # ((offset, batch strides..., two matrix strides))

    @property
    def real_dtype(self) -> np.dtype:
        return real_dtype(self.dtype)


class Procedure(Node):
    """Code of its own for each row of the result, whose leading `rows` axes number them; see `compile.procedures`.

    The operands have these axes too. `scratch` is bytes for one row at a time, `cost` nanoseconds for a row; `failure`
    an exception's class and message.
    """

    __slots__ = ("cost", "emit", "failure", "name", "operands", "rows", "scratch")

    cost: float
    emit: Callable[..., Any]
    failure: tuple[Any, str] | None
    name: str
    operands: tuple[Node, ...]
    rows: int
    scratch: int

    def __init__(
        self, type: ArrayType, name: str, emit: Callable, operands: Sequence[Node], rows: int, *, scratch: int,
        cost: float, failure: tuple[Any, str] | None,
    ):  # fmt: skip
        super().__init__(type)
        self.name, self.emit, self.operands, self.rows = name, emit, tuple(operands), rows
        self.scratch, self.cost, self.failure = scratch, cost, failure


class Opaque(Node):
    """A step with several results: a loop, a branch, or a call of NumPy. Its own type means nothing."""

    __slots__ = ("results",)

    def __init__(self) -> None:
        super().__init__(ArrayType((), np.bool_))
        self.results: tuple[Result, ...] = ()


class Result(Node):
    """One result of an opaque step; memory that the step fills."""

    __slots__ = ("index", "of")

    def __init__(self, type: ArrayType, of: Opaque, index: int):
        super().__init__(type)
        self.of: Opaque = of
        self.index: int = index


class Call(Opaque):
    """An equation that NumPy evaluates, or one with an effect that Python has."""

    __slots__ = ("effect", "evaluate", "multiple", "name", "operands")

    effect: bool
    evaluate: Callable[..., Any]
    multiple: bool
    name: str

    def __init__(self, name: str, evaluate: Callable, multiple: bool, operands: Sequence[Node], effect: bool = False):
        super().__init__()
        self.name, self.evaluate, self.multiple, self.effect = name, evaluate, multiple, effect
        self.operands: tuple[Node, ...] = tuple(operands)


class Branch(Opaque):
    """One of several regions, chosen by an integer (clamped)."""

    __slots__ = ("index", "regions")

    def __init__(self, index: Node, regions: list[Region]):
        super().__init__()
        self.index: Node = index
        self.regions: list[Region] = regions


class Loop(Opaque):
    """A region run many times; see `wonderland.control` for the three forms."""

    __slots__ = ("body", "carry", "condition", "initial", "length", "pace", "reverse", "slices", "xs")

    initial: tuple[Node, ...]
    length: int | Node | None
    reverse: bool
    xs: tuple[Node, ...]

    def __init__(self, initial: Sequence[Node], xs: Sequence[Node], length: int | Node | None, reverse: bool):
        super().__init__()
        self.initial, self.xs, self.length, self.reverse = tuple(initial), tuple(xs), length, reverse
        self.carry: tuple[Leaf, ...] = ()
        self.slices: tuple[Leaf, ...] = ()
        self.body: Region = Region()
        self.condition: Region | None = None
        self.pace: int = 0  # nanoseconds of a turn, if the loop looks at signals; see `compile.signals`


class Region:
    """Nodes in order, and the results."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.outputs: list[Node] = []


def base_of(node: Node) -> Node:
    """The node whose memory a node reads."""
    return node.base if isinstance(node, View) else node


def layout_of(node: Node) -> tuple[int, Shape]:
    """Offset and strides of a node in its base's memory."""
    if isinstance(node, View):
        return node.offset, node.strides
    if isinstance(node, Index):
        return 0, node.strides
    return 0, normal(node.shape, contiguous_strides(node.shape))


def normal(shape: Shape, strides: Shape) -> Shape:
    """Strides with 0 along axes of extent 1, where they don't matter."""
    return tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))


def is_whole(node: Node) -> bool:
    """Does a node show all of its base's memory in order?"""
    if not isinstance(node, View):
        return True
    whole = normal(node.shape, contiguous_strides(node.shape))
    return node.offset == 0 and node.strides == whole and node.type.size == node.base.type.size


def regions_of(node: Node) -> list[Region]:
    """The regions inside a branch or a loop."""
    if isinstance(node, Branch):
        return node.regions
    if isinstance(node, Loop):
        return [node.body] + ([node.condition] if node.condition else [])
    return []


def has_effect(node: Node) -> bool:
    """Does running this node do something besides computing its results?"""
    if isinstance(node, Call):
        return node.effect
    return any(has_effect(n) for region in regions_of(node) for n in region.nodes)


def can_fail(node: Node) -> bool:
    """Can running this node set the error word?"""
    if isinstance(node, Call):
        return True
    if isinstance(node, (Gather, Scatter)):
        return bool(node.indices)
    if isinstance(node, Map):
        return node.checks
    if isinstance(node, Procedure):
        return node.failure is not None
    if isinstance(node, Loop) and node.pace:
        return True
    return any(can_fail(n) for region in regions_of(node) for n in region.nodes)
