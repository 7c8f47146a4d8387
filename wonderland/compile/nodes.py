"""Nodes: the values of a Program, as lowering finds them, each with what it knows of itself.

A node says what it reads, whether it can fail, what it costs, and how it is scheduled. Those of this file are memory
that is there, and numbers; `members` has the kinds that are fused into loop nests; `products`, `procedures`, `calls`
and `control` have kinds that run as a whole, each with its memory and its code.

Views (broadcast, transpose, slice, most reshapes) are strided layouts on another node, as in NumPy, and cost nothing. A
`Region` is a list of nodes in order: the Program itself, and each body of a loop or branch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from wonderland.core.types import ArrayType

Shape = tuple[int, ...]
STEP, ELEMENT, OPERATION = 2.0, 0.2, 0.05  # nanoseconds
COSTLY = 12  # operations of a function that is worth being vectorised


def contiguous_strides(shape: Shape) -> tuple[int, ...]:
    """Strides, in elements, of a C-contiguous array of this shape."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def joined_axes(shape: Sequence[int], *strides: Sequence[int]) -> list[tuple[int, ...]]:
    """Axes as (extent, stride of each array), adjacent ones that all arrays walk as one joined; none of extent 1."""
    out: list[tuple[int, ...]] = []
    for extent, *steps in zip(shape, *strides, strict=True):
        if extent == 1:
            continue
        if out and all(outer == step * extent for outer, step in zip(out[-1][1:], steps, strict=True)):
            out[-1] = (out[-1][0] * extent, *steps)
        else:
            out.append((extent, *steps))
    return out


def normal(shape: Shape, strides: Shape) -> Shape:
    """Strides with 0 along axes of extent 1, where they don't matter."""
    return tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))


def squeezed(shape: Shape) -> Shape:
    """A shape without its axes of extent 1."""
    return tuple(n for n in shape if n != 1)


class Node:
    """A value. `type` is its shape and dtype."""

    operands: tuple[Node, ...] = ()  # what a kernel reads of it element by element
    source: Node | None = None  # what it reads at computed places
    starts_from: Node | None = None  # the node whose memory it may take over and change
    regions: Sequence[Region] = ()  # those that it runs
    in_memory = True
    can_fail = False  # can running it set the error word?
    has_effect = False  # does running it do something besides computing its results?
    cost = 2  # operations for an element
    fixed = False  # does it have the order of axes of what was given, and that of what is wanted?
    product: Any = None  # of what arrays and along which axes, if it is one (see `contractions`)
    _base: Node | None = None  # of a view, as is its layout
    _layout: tuple[int, Shape] | None = None

    def __init__(self, type: ArrayType):
        self.type: ArrayType = type
        self.shape: Shape = type.shape
        self.dtype: np.dtype = type.dtype
        self.space: Shape = type.shape  # over what it is computed
        self.region: Region | None = None

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def base(self) -> Node:
        """The node whose memory it reads."""
        return self._base or self

    @property
    def layout(self) -> tuple[int, Shape]:
        """Offset and strides in the memory of its base."""
        if self._layout is None:
            self._layout = (0, normal(self.shape, contiguous_strides(self.shape)))
        return self._layout

    @property
    def is_whole(self) -> bool:
        """Does it show all of its base's memory in order?"""
        return self.base is self or (self.type.size == self.base.type.size and self.layout == Node(self.type).layout)

    @property
    def memory(self) -> tuple[Node, ...]:
        """The nodes whose memory it needs."""
        return tuple(n for n in (self.source, self.starts_from) if n is not None)

    @property
    def reads(self) -> tuple[Node, ...]:
        """All nodes that it reads, by their bases."""
        return (*(o.base for o in self.operands), *self.memory)

    @property
    def results(self) -> Sequence[Node]:
        return (self,)

    @property
    def is_costly(self) -> bool:
        return self.cost >= COSTLY

    @property
    def nanoseconds(self) -> float:
        """A guess of how long it takes."""
        return STEP + (ELEMENT + OPERATION * self.cost) * math.prod(n for n in self.space if n is not None)

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} {self.type}"

    def line(self, names: dict[Node, str]) -> str:
        """It and what it reads, by their names."""
        read = list(dict.fromkeys(n.named(names) for n in (*self.operands, *self.memory)))
        return f"{names[self]} = {self}" + (f" ({', '.join(read)})" if read else "")

    def named(self, names: dict[Node, str]) -> str:
        """Its name; that of its base with offset and strides, "n2+4@[1,0]", if it is another layout of it."""
        name = names[self.base]
        if self.base is self or self.layout == self.base.layout:
            return name
        offset, strides = self.layout
        return f"{name}{f'+{offset}' if offset else ''}@[{','.join(map(str, strides))}]"


class Leaf(Node):
    """Memory that is there before the region runs: an argument, a carried value, a slice of xs."""

    fixed = True


class Constant(Leaf):
    """An array whose address is known."""

    def __init__(self, array: np.ndarray):
        super().__init__(ArrayType(array.shape, array.dtype))
        self.array: np.ndarray = array


class Number(Node):
    """One number, seen in any shape."""

    in_memory = False

    def __init__(self, type: ArrayType, value: Any):
        super().__init__(type)
        self.value: Any = value

    def named(self, names: dict[Node, str]) -> str:
        return str(self.value)


def is_big(value: Any) -> bool:
    """Is it an integer of Python's that no int64 holds?"""
    return type(value) is int and not -(2**63) <= value < 2**63


class Index(Number):
    """No memory either: the element at a place of the loops is the sum of indices times `strides`, an int64."""

    def __init__(self, shape: Shape, strides: Shape):
        super().__init__(ArrayType(shape, np.int64), 0)
        self._layout = (0, normal(shape, strides))

    def named(self, names: dict[Node, str]) -> str:
        return f"index@[{','.join(map(str, self.layout[1]))}]"


class View(Node):
    """A strided layout on the memory of `base`, which is neither a view nor a number. Strides count elements."""

    def __init__(self, type: ArrayType, base: Node, offset: int, strides: Shape):
        super().__init__(type)
        self._base, self._layout = base, (offset, strides)

    def __str__(self) -> str:
        return f"view {self.type} of {self.base.type}, offset {self.layout[0]}, strides {self.layout[1]}"


class Whole(Node):
    """A node that runs as a whole, not fused into a loop nest: a unit by itself. Its kind says how, in `plan`."""

    def __init__(self, type: ArrayType):
        super().__init__(type)
        self.rank = 0  # its place in the order of units
        self.before: dict[Any, None] = {}  # the units that come before it

    @property
    def nanoseconds(self) -> float:
        """By what it reads and writes, where its kind doesn't know better."""
        extents = [n.shape for n in (*self.memory, *self.results)]
        return STEP + sum(ELEMENT * math.prod(n for n in shape if n is not None) for shape in extents)

    def uses_of(self, base: Node) -> int:
        return sum(n is base for n in self.memory)

    def at_own_element(self, node: Node, old: Node, scalars: Any) -> bool:
        return False

    def plan(self, plan: Any, position: int) -> None:
        """Find memory for what it writes, and add its steps to the plan of a region; it is the unit at `position`."""
        raise NotImplementedError

    def text(self, names: dict[Node, str]) -> str:
        inner = [region.schedule.text(names) for region in self.regions]
        return "\n".join([self.line(names), *(f"  {part}".replace("\n", "\n  ") for part in inner)])


class Empty(Whole):
    """Memory that others write, all of it."""

    def plan(self, plan: Any, position: int) -> None:
        plan.own(self)


class Several(Whole):
    """A node with several results. Its own type means nothing."""

    def __init__(self) -> None:
        super().__init__(ArrayType((), np.bool_))
        self.made: tuple[Node, ...] = ()  # the results: memory that it fills

    @property
    def results(self) -> Sequence[Node]:
        return self.made

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} {', '.join(str(r.type) for r in self.made)}"


class Region:
    """Nodes in order, and the results.

    `replaces` has for each result the memory that it replaces, if any: a carried value, an argument that is written.
    `unchanged` are the results that are what they replace already, or have no memory: nothing is done for them.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.copies: dict[Any, Node] = {}  # of views, by base, shape and layout
        self.outputs: list[Node] = []
        self.replaces: list[Leaf | None] = []
        self.unchanged: set[int] = set()
        self.schedule: Any = None  # when it is there

    @property
    def nanoseconds(self) -> float:
        return sum(node.nanoseconds for node in self.nodes)

    @property
    def can_fail(self) -> bool:
        return any(node.can_fail for node in self.nodes)

    @property
    def has_effect(self) -> bool:
        return any(node.has_effect for node in self.nodes)

    def captured(self) -> list[Node]:
        """The bases outside that it reads."""
        inside = {result for node in self.nodes for result in (node, *node.results)}
        read = (*(n for node in self.nodes for n in node.reads), *(n.base for n in self.outputs))
        return list(dict.fromkeys(n for n in read if n not in inside and n.in_memory))

    def drop_unused(self) -> None:
        """Keep the nodes that the outputs need or that have effects."""
        needed = {n.base for n in self.outputs}
        live = []
        for node in reversed(self.nodes):
            if node.has_effect or any(r in needed for r in node.results):
                live.append(node)
                needed.update(node.reads)
        self.nodes = live[::-1]

    # -- for a person to read ---------------------------------------------------------------------

    def names(self) -> dict[Node, str]:
        """Names of all values: memory from outside is "x0", nodes are "n0", one of several results "n0.1"."""
        return dict(self._name(set(), count(), count()))

    def _name(self, seen: set[Node], outside: Iterator[int], nodes: Iterator[int]) -> Iterator[tuple[Node, str]]:
        for leaf in self.captured():
            if leaf not in seen:
                seen.add(leaf)
                yield leaf, f"x{next(outside)}"
        for node in self.nodes:
            name = f"n{next(nodes)}"
            seen.update((node, *node.results))
            yield node, name
            several = len(node.results) > 1
            yield from ((r, f"{name}.{i}" if several else name) for i, r in enumerate(node.results) if r is not node)
            for inner in node.regions:
                yield from inner._name(seen, outside, nodes)

    def text(self, names: dict[Node, str]) -> str:
        """The nodes, and below a node the regions that it runs."""
        lines = [f"region({', '.join(f'{names[n]}:{n.type}' for n in self.captured())}):"]
        for node in self.nodes:
            parts = [node.line(names), *(f"  {inner.text(names)}" for inner in node.regions)]
            lines += [f"  {line}" for part in parts for line in part.replace("\n", "\n  ").splitlines()]
        return "\n".join([*lines, f"  return {', '.join(n.named(names) for n in self.outputs)}"])

    def __str__(self) -> str:
        return self.text(self.names())
