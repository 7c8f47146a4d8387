"""The kinds of nodes that are fused into loop nests: how each joins a cluster, and how its value is computed there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wonderland.compile.nodes import Node, Shape, squeezed
from wonderland.core.types import ArrayType


class Member(Node):
    """A node of a loop nest."""

    def role_in(self, cluster: Any) -> str | None:
        """What it would be in a cluster: "full" (an element at each place), "row", ...; None if it doesn't fit."""
        space = squeezed(self.space)
        if space == cluster.space:
            return None if self.is_costly and cluster.is_serial() else "full"
        return "row" if cluster.reduced is not None and space == cluster.rows else None

    def join(self, cluster: Any, role: str) -> None:
        """Become a member: the cluster learns what it needs to know."""

    def emit(self, values: Any, home: Any) -> Any:
        """Its value, computed in a loop of the nest."""
        raise NotImplementedError

    def _squeezed(self, axes: Shape) -> Shape:
        """Axes of the space, numbered without those of extent 1."""
        return tuple(len(squeezed(self.space[:a])) for a in axes)


class Map(Member):
    """An elementwise function; every operand has the shape of the result (views broadcast)."""

    def __init__(self, type: ArrayType, function: Callable, operands: Sequence[Node], cost: int, checks: bool = False):
        super().__init__(type)
        self.function: Callable[..., Any] = function  # of an emitter and the operands' elements
        self.operands = tuple(operands)
        self.cost = cost
        self.can_fail = checks
        self.origin: str = ""  # the operator that it comes from

    def __str__(self) -> str:
        return f"map {self.origin} {self.type}" if self.origin else f"map {self.type}"

    def emit(self, values: Any, home: Any) -> Any:
        row = values.is_row(self)
        scalars = [values.operand(o, row, home) for o in self.operands]
        return self.function(values.loops.at(home), *scalars)


class Reduce(Member):
    """A sum ("add"), product ("mul") or maximum ("max") over axes of the operand."""

    def __init__(self, type: ArrayType, operand: Node, axes: Shape, op: str):
        super().__init__(type)
        self.operands = (operand,)
        self.space = operand.shape
        self.axes: Shape = axes
        self.op: str = op

    def role_in(self, cluster: Any) -> str | None:
        if squeezed(self.space) != cluster.space or cluster.targets:
            return None
        axes = self._squeezed(self.axes)
        return "reduce" if cluster.reduced in (None, axes) else "across" if cluster.crosses(axes) else None

    def join(self, cluster: Any, role: str) -> None:
        if role == "reduce":
            cluster.reduced = self._squeezed(self.axes)

    def __str__(self) -> str:
        return f"reduce {self.type} by {self.op} over {list(self.axes)}"


class Cumulative(Member):
    """A value that runs along an axis: `function(element before, *operands at this place)`, from `start`.

    `reverse`: from the last element to the first. Every operand has the shape of the result.
    """

    def __init__(
        self, type: ArrayType, function: Callable, operands: Sequence[Node], start: Any, axis: int, reverse: bool
    ):
        super().__init__(type)
        self.function: Callable[..., Any] = function
        self.operands = tuple(operands)
        self.start: Any = start
        self.axes: tuple[int] = (axis,)
        self.reverse: bool = reverse

    def role_in(self, cluster: Any) -> str | None:
        """Not where costly functions would no longer be vectorised."""
        axes = self._squeezed(self.axes)
        if squeezed(self.space) != cluster.space or cluster.targets or cluster.is_long():
            return None
        if cluster.reduced not in (None, axes) or cluster.reverse not in (None, self.reverse):
            return None
        return None if cluster.is_costly() and cluster.is_serial(axes) else "cumulate"

    def join(self, cluster: Any, role: str) -> None:
        cluster.reduced, cluster.reverse = self._squeezed(self.axes), self.reverse

    def emit(self, values: Any, home: Any) -> Any:
        return values.running.step(self, home)

    def __str__(self) -> str:
        return f"cumulative {self.type} along {list(self.axes)}{', backwards' if self.reverse else ''}"


@dataclass(frozen=True)
class IndexedPlaces:
    """Computed places in the memory of an array.

    `layout` is the offset and strides of the loops' own dimensions; each of `indices`, of the shape of the loops, moves
    along one axis of the array: `steps` has its (stride, extent, axis).
    """

    layout: tuple[int, Shape]
    indices: tuple[Node, ...] = ()
    steps: tuple[tuple[int, int, int], ...] = ()


class Gather(Member):
    """Reads `source` at computed places: an elementwise node over its shape, with one more, indexed, operand."""

    def __init__(self, type: ArrayType, source: Node, places: IndexedPlaces):
        super().__init__(type)
        self.source = source
        self.places: IndexedPlaces = places
        self.operands = places.indices
        self.can_fail = bool(places.indices)

    def emit(self, values: Any, home: Any) -> Any:
        pointer = values.indexed_pointer(self, home)
        return values.loops.at(home).load(pointer, self.dtype)


class Scatter(Member):
    """`target` with `update` at computed places, over the shape of the update.

    `mode`: it is set there, added, or taken where it is larger ("set", "add", "max").
    """

    def __init__(self, target: Node, update: Node, places: IndexedPlaces, mode: str):
        super().__init__(ArrayType(target.shape, target.dtype))
        self.starts_from = target
        self.update: Node = update
        self.space = update.shape
        self.places: IndexedPlaces = places
        self.mode: str = mode
        self.operands = (*places.indices, update)
        self.can_fail = bool(places.indices)

    def role_in(self, cluster: Any) -> str | None:
        return "scatter" if squeezed(self.space) == cluster.space and cluster.reduced is None else None

    def join(self, cluster: Any, role: str) -> None:
        cluster.targets[self.starts_from] = None

    def __str__(self) -> str:
        return f"scatter {self.type} by {self.mode}"
