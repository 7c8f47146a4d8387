"""Clusters: kernels to be. Members and what is known of their loops, and whether they go together.

A cluster's space is a shape without its axes of extent 1; some of its axes may be reduced. Its members are full maps
over the space, reductions, and row maps over the axes that are kept. A value that runs along an axis is swept along it
like a reduction, and read like a full map.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from wonderland.compile.nodes import Node, Shape, Whole, contiguous_strides

LONG_ROW = 1 << 15  # elements from which few rows are cut into pieces, and so must be done with in one sweep
FEW_ROWS, FEW_COLUMNS = 8, 1 << 14
LONG_COLUMN, ONE_BLOCK = 512, 512  # elements from which columns are cut that would be one task: no more than these
MOST_ACROSS = 1 << 14  # elements of a row up to which rows are summed up while they are swept
PER_ELEMENT = ("full", "cumulate")  # roles with a value at each element of the space


class Cluster:
    """A kernel to be. Its sets are dicts, and so in order: the same Program gives the same text in every process."""

    def __init__(self, space: Shape):
        self.rank = 0  # its place in the order of units
        self.before: dict[Unit, None] = {}  # the units that come before it
        self.space = space
        self.reduced: tuple[int, ...] | None = None  # or along which values run
        self.reverse: bool | None = None  # the direction in which values run, if some do
        self.roles: dict[Node, str] = {}  # "full", "row", "reduce", "across", "cumulate" or "scatter"; in order
        self.cost = 0  # of all maps
        self.levels: dict[Node, int] = {}  # how many sweeps over a row a value waits for
        self.sources: dict[Node, None] = {}  # memory that is read
        self.targets: dict[Node, None] = {}  # memory that scatters write
        self.partials: dict[Node, Node] = {}  # where the pieces of a reduction go that is done in pieces
        self.override: dict[Node, Node] = {}  # and, in the kernel that combines them, what it reads instead

    @property
    def reads(self) -> Sequence[Node]:
        """The nodes whose memory it reads."""
        return (*self.sources, *self.targets)

    @property
    def results(self) -> Sequence[Node]:
        """The nodes that it defines."""
        return list(self.roles)

    @property
    def can_fail(self) -> bool:
        return any(node.can_fail for node in self.roles)

    def uses_of(self, base: Node) -> int:
        """How often it uses the memory of a node."""
        return 1 + (base in self.sources and bool(self.space))  # a single element is read before it is written

    def at_own_element(self, node: Node, old: Node, scalars: Iterable[Node]) -> bool:
        """Does it read `old` only at the element where it writes `node`, and not after it has?"""
        if self.roles[node] not in PER_ELEMENT or old in self.targets:
            return False
        if old.bytes != node.bytes or old.dtype.itemsize != node.dtype.itemsize:
            return False
        if self.levels[node] != max(self.sweep_of(n) for n, role in self.roles.items() if role != "row"):
            return False
        return self.reads_own_element(old, scalars) is not False

    def reads_own_element(self, old: Node, scalars: Iterable[Node]) -> bool | None:
        """Is a value from outside read only at the element that is computed? None if it isn't read at all."""
        identity, found = contiguous_strides(self.space), None
        members, seen = list(self.roles), set(self.roles)
        while members:
            member = members.pop()
            if member.source is old:
                return False
            for operand in member.operands:
                if operand.base is old:
                    found = True
                    if self.roles.get(member) == "row" or operand.layout[0] or squeezed_strides(operand) != identity:
                        return False
                if operand.base in scalars and operand.base not in seen:
                    seen.add(operand.base)
                    members.append(operand.base)
        return found

    def sweep_of(self, node: Node) -> int:
        """The sweep over a row in which a member is computed; a sum is there after it."""
        return self.levels[node] - (self.roles[node] == "reduce")

    def plan(self, plan: Any, position: int) -> None:
        plan.add_nests(self, position)

    def text(self, names: dict[Node, str]) -> str:
        what = "along" if self.reverse is not None else "reducing"
        axes = f", {what} {list(self.reduced)}" if self.reduced else ""
        members = "\n".join(f"  {role:<8} {node.line(names)}" for node, role in self.roles.items())
        return f"cluster over {list(self.space)}{axes}\n{members}"

    @property
    def rows(self) -> Shape:
        return tuple(n for i, n in enumerate(self.space) if i not in (self.reduced or ()))

    def spread(self, strides: Sequence[int]) -> Shape:
        """Strides along the axes that are kept, as strides along all."""
        kept = iter(strides)
        return tuple(0 if i in (self.reduced or ()) else next(kept) for i in range(len(self.space)))

    def is_long(self) -> bool:
        """Few and long rows: one sweep only, so that it can be cut into pieces for the threads."""
        if not self.reduced or self.reverse is not None:
            return False
        rows, total = math.prod(self.rows), math.prod(self.space)
        # Many columns side by side (the last axis is kept) are swept together: they don't make many tasks either.
        side_by_side = len(self.space) - 1 not in self.reduced
        few = FEW_COLUMNS if side_by_side else FEW_ROWS
        long = LONG_COLUMN if side_by_side and rows <= ONE_BLOCK else LONG_ROW // 8
        return rows < few and total >= LONG_ROW and total // rows >= long

    def crosses(self, axes: tuple[int, ...] | None) -> bool:
        """Would a reduction along these axes leave one row of the many that are swept?"""
        last = len(self.space) - 1
        if self.reduced != (last,) or self.reverse is not None or axes != tuple(range(last)) or self.is_long():
            return False
        return self.space[last] <= MOST_ACROSS and math.prod(self.space) >= LONG_ROW

    def is_serial(self, axes: tuple[int, ...] | None = None) -> bool:
        """Does the innermost loop go from element to element, so that it can't be vectorised?"""
        return (axes or (self.reduced if self.reverse is not None else ())) == (len(self.space) - 1,)

    def is_costly(self) -> bool:
        """Does it compute functions that are worth being vectorised?"""
        return any(node.is_costly for node in self.roles)


Unit = Cluster | Whole  # what is scheduled


def squeezed_strides(node: Node) -> Shape:
    """A node's strides along its axes of extent other than 1."""
    return tuple(s for n, s in zip(node.shape, node.layout[1], strict=True) if n != 1)
