"""Scheduling: the nodes of a region come in, an ordered list of units (kernels and opaque steps) goes out.

The one rule: a node joins the cluster of its operands when it runs over the same iteration space, reads what is inside
the cluster only at its own element (or, for a reduced value, at its own row), and no cycle arises through other units.
A cluster's space is a shape without its axes of extent 1; some of its axes may be reduced. Its members are full maps
over the space, reductions, and row maps over the axes that are kept. So a softmax is one cluster, and so is the update
of a parameter with all its moments. A value that runs along an axis is swept along it like a reduction, and read like a
full map. A reduction of many rows to one goes along with them, for what reads its result comes later anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeVar

from wonderland.compile.emitter import CALL_COST
from wonderland.compile.nodes import (
    Branch,
    Call,
    Contract,
    Cumulative,
    Gather,
    Leaf,
    Loop,
    Map,
    Node,
    Number,
    Opaque,
    Procedure,
    Reduce,
    Region,
    Scatter,
    Shape,
    View,
    base_of,
    can_fail,
    contiguous_strides,
    has_effect,
    layout_of,
    regions_of,
)

CHEAP = 60  # cost up to which a scalar is computed again by each kernel that reads it
MOST_MEMBERS, MOST_COST = 256, 400  # in one kernel: LLVM's time grows faster than the code
LONG_ROW = 1 << 15  # elements from which few rows are cut into pieces, and so must be done with in one sweep
FEW_ROWS, FEW_COLUMNS = 8, 1 << 14
MOST_ACROSS = 1 << 14  # elements of a row up to which rows are summed up while they are swept
PER_ELEMENT = ("full", "cumulate")  # roles with a value at each element of the space
HORIZONTAL = 8  # clusters that a node without one looks at
LOOKBACK = 100  # units searched for a dependence; further away it is taken for granted, so that scheduling stays linear


Item = TypeVar("Item")


class Ordered(dict[Item, None]):
    """A set in the order of insertion: the same Program gives the same text in every process."""

    def add(self, item: Item) -> None:
        self[item] = None

    def remove(self, item: Item) -> None:
        del self[item]


class Unit:
    """Something that runs as a whole."""

    def __init__(self) -> None:
        self.rank = 0  # its place in the order
        self.before: Ordered[Unit] = Ordered()


class Step(Unit):
    """An opaque node."""

    def __init__(self, node: Node):
        super().__init__()
        self.node = node


class Cluster(Unit):
    """A kernel to be."""

    def __init__(self, space: Shape):
        super().__init__()
        self.space = space
        self.reduced: tuple[int, ...] | None = None  # or along which values run
        self.reverse: bool | None = None  # the direction in which values run, if some do
        self.roles: dict[Node, str] = {}  # "full", "row", "reduce", "across", "cumulate" or "scatter"; in order
        self.cost = 0  # of all maps
        self.levels: dict[Node, int] = {}  # how many sweeps over a row a value waits for
        self.sources: Ordered[Node] = Ordered()  # memory that is read
        self.targets: Ordered[Node] = Ordered()  # memory that scatters write
        self.partials: dict[Node, Node] = {}  # where the pieces of a reduction go that is done in pieces
        self.override: dict[Node, Node] = {}  # and, in the kernel that combines them, what it reads instead

    @property
    def rows(self) -> Shape:
        return tuple(n for i, n in enumerate(self.space) if i not in (self.reduced or ()))

    def is_long(self) -> bool:
        """Few and long rows: one sweep only, so that it can be cut into pieces for the threads."""
        if not self.reduced or self.reverse is not None:
            return False
        rows, total = math.prod(self.rows), math.prod(self.space)
        # Many columns side by side (the last axis is kept) are swept together: they don't make many tasks either.
        few = FEW_ROWS if len(self.space) - 1 in self.reduced else FEW_COLUMNS
        return rows < few and total >= LONG_ROW and total // rows >= LONG_ROW // 8

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
        return any(map(_is_costly, self.roles))


def _is_costly(node: Node) -> bool:
    return isinstance(node, Map) and node.cost >= CALL_COST


def squeezed(shape: Shape) -> Shape:
    """A shape without its axes of extent 1."""
    return tuple(n for n in shape if n != 1)


def squeezed_strides(node: Node) -> Shape:
    """A node's strides along its axes of extent other than 1."""
    return tuple(s for n, s in zip(node.shape, layout_of(node)[1], strict=True) if n != 1)


def operands_of(node: Node) -> tuple[Node, ...]:
    """The operands that a cluster member reads element by element."""
    if isinstance(node, (Map, Cumulative)):
        return node.operands
    if isinstance(node, Reduce):
        return (node.operand,)
    if isinstance(node, Gather):
        return node.indices
    if isinstance(node, Scatter):
        return (*node.indices, node.update)
    return ()


def memory_of(node: Node) -> tuple[Node, ...]:
    """The operands whose memory a node needs."""
    if isinstance(node, Gather):
        return (node.source,)
    if isinstance(node, Scatter):
        return (node.target,)
    if isinstance(node, Contract):
        return (node.x, node.y)
    if isinstance(node, Procedure):
        return tuple(map(base_of, node.operands))
    if isinstance(node, Call):
        return tuple(base_of(n) for n in node.operands if not isinstance(n, Number))
    if isinstance(node, Branch):
        return (node.index, *(n for region in node.regions for n in captured(region)))
    if isinstance(node, Loop):
        regions = regions_of(node)
        length = (node.length,) if isinstance(node.length, Node) else ()
        own = {*node.carry, *node.slices}
        return (
            *length, *node.initial, *(base_of(x) for x in node.xs),
            *(n for region in regions for n in captured(region) if n not in own),
        )  # fmt: skip
    return ()


def captured(region: Region) -> list[Node]:
    """The bases outside a region that it reads."""
    inside = set(region.nodes) | {r for n in region.nodes if isinstance(n, Opaque) for r in n.results}
    found: dict[Node, None] = {}
    for node in region.nodes:
        for n in (*map(base_of, operands_of(node)), *memory_of(node)):
            if n not in inside and not isinstance(n, Number):
                found[n] = None
    for n in map(base_of, region.outputs):
        if n not in inside and not isinstance(n, Number):
            found[n] = None
    return list(found)


def live_nodes(region: Region) -> list[Node]:
    """The nodes of a region that its outputs need or that have effects, in order."""
    needed = {base_of(n) for n in region.outputs}
    live = []
    for node in reversed(region.nodes):
        results = node.results if isinstance(node, Opaque) else (node,)
        if any(r in needed for r in results) or has_effect(node):
            live.append(node)
            needed.update(map(base_of, operands_of(node)))
            needed.update(memory_of(node))
    return live[::-1]


class Schedule:
    """The units of a region in order, and the nodes that need memory."""

    def __init__(self, region: Region):
        self.region = region
        self.region.nodes = live_nodes(region)
        self.unit: dict[Node, Unit] = {}
        self.costs: dict[Node, int] = {}
        self.stored: set[Node] = set()
        self.units: list[Unit] = []  # in an order in which they can run, kept while they grow
        self._open: dict[Shape, list[Cluster]] = {}
        self._effect: Unit | None = None  # the last so far; what can fail stays on its side of it
        self._failing: list[Node] = []  # since then
        for node in region.nodes:
            self._place(node)
        self._sum_up_rows()
        self._store()

    # -- placing ----------------------------------------------------------------------------------

    def cheap(self, node: Node) -> bool:
        """A scalar that each kernel may compute for itself."""
        if isinstance(node, (Number, Leaf)):
            return node.type.size == 1
        return node in self.costs

    def _note_cheap(self, node: Node) -> bool:
        if not isinstance(node, Map) or node.type.size != 1 or not node.operands:
            return False
        cost = node.cost
        for base in map(base_of, node.operands):
            if not self.cheap(base):
                return False
            cost += self.costs.get(base, 0)
        if cost <= CHEAP:
            self.costs[node] = cost
        return cost <= CHEAP

    def _place(self, node: Node) -> None:
        if isinstance(node, Opaque):
            self._step(node)
            for result in node.results:
                self.unit[result] = self.unit[node]
        elif isinstance(node, (Contract, Procedure)):
            self._step(node)
        elif not self._note_cheap(node):
            self._cluster(node)

    def _step(self, node: Node) -> None:
        unit = self._new(Step(node))
        self.unit[node] = unit
        for base in memory_of(node):
            self._materialise(base)
            if base in self.unit:
                self._order(self.unit[base], unit)
        self._after_effects(node, unit)
        if has_effect(node):
            for earlier in self._failing:
                if self.unit[earlier] is not unit:
                    self._order(self.unit[earlier], unit)
            self._effect, self._failing = unit, []

    def _order(self, unit: Unit, later: Unit) -> None:
        later.before.add(unit)
        self._put_before(unit, later)

    def _after_effects(self, node: Node, unit: Unit) -> None:
        """What can fail does so after the effects that come before it, and before those that come after it."""
        if can_fail(node):
            self._failing.append(node)
            if self._effect is not None:
                self._order(self._effect, unit)

    def _materialise(self, base: Node) -> None:
        """A cheap scalar gets memory after all: it becomes a member of a cluster of scalars."""
        if base in self.costs and base not in self.unit:
            self._cluster(base)

    def _reads(self, node: Node) -> Iterator[Node]:
        """The bases that a member reads, cheap scalars replaced by what they read."""
        stack = [base_of(n) for n in operands_of(node)]
        while stack:
            base = stack.pop()
            if base in self.costs:
                stack += [base_of(n) for n in operands_of(base)]
            elif not isinstance(base, Number):
                yield base

    def _cluster(self, node: Node) -> None:
        for base in memory_of(node):
            self._materialise(base)
        space = squeezed(self._space(node))
        candidates: list[Cluster] = []
        for base in self._reads(node):
            unit = self.unit.get(base)
            if isinstance(unit, Cluster) and unit not in candidates and self._joins(node, unit):
                candidates.append(unit)
        if not candidates:
            for other in self._open.get(space, [])[-HORIZONTAL:]:
                if self._joins(node, other) and self._related(node, other):
                    candidates.append(other)
                    break
        if candidates:
            cluster = candidates[0]
            for other in candidates[1:]:
                cluster = self._merge(cluster, other)
        else:
            cluster = self._new(Cluster(space))
            self._open.setdefault(space, []).append(cluster)
        self._add(node, cluster)

    @staticmethod
    def _space(node: Node) -> Shape:
        if isinstance(node, Reduce):
            return node.operand.shape
        return node.update.shape if isinstance(node, Scatter) else node.shape

    def _related(self, node: Node, cluster: Cluster) -> bool:
        """Independent work over one space shares a loop if it is small, or reads the same memory."""
        return math.prod(cluster.space) <= 4096 or any(base in cluster.sources for base in self._reads(node))

    def _role(self, node: Node, cluster: Cluster) -> str | None:
        shape = squeezed(self._space(node))
        if isinstance(node, Reduce):
            axes = _squeezed_axes(node)
            if shape != cluster.space or cluster.targets:
                return None
            return "reduce" if cluster.reduced in (None, axes) else "across" if cluster.crosses(axes) else None
        if isinstance(node, Cumulative):
            return "cumulate" if shape == cluster.space and self._runs(node, cluster) else None
        if isinstance(node, Scatter):
            return "scatter" if shape == cluster.space and cluster.reduced is None else None
        if shape == cluster.space:
            return None if _is_costly(node) and cluster.is_serial() else "full"
        return "row" if cluster.reduced is not None and shape == cluster.rows else None

    @staticmethod
    def _runs(node: Cumulative, cluster: Cluster) -> bool:
        """Can a value run along the cluster's sweeps? Not where costly functions would no longer be vectorised."""
        axes = _squeezed_axes(node)
        if cluster.reduced not in (None, axes) or cluster.reverse not in (None, node.reverse):
            return False
        return not cluster.targets and not cluster.is_long() and not (cluster.is_costly() and cluster.is_serial(axes))

    @staticmethod
    def _run_together(one: Cluster, other: Cluster) -> bool:
        """The same for two clusters: values that run in one of them must not spoil the other."""
        if one.reverse == other.reverse:
            return True
        serial, wide = (other, one) if one.reverse is None else (one, other)
        if wide.reverse is not None or wide.is_long():
            return False
        return not (wide.is_costly() and serial.is_serial())

    def _joins(self, node: Node, cluster: Cluster) -> bool:
        role = self._role(node, cluster)
        if role is None or len(cluster.roles) >= MOST_MEMBERS or cluster.cost + _cost(node) > MOST_COST:
            return False
        if not self._apart(node, cluster):
            return False
        if self._effect is not None and can_fail(node) and self._depends(self._effect, cluster):
            return False
        level = 0
        for operand in operands_of(node):
            base = base_of(operand)
            if base in cluster.roles:
                if not _reads_own_element(operand, base, role, cluster):
                    return False
                level = max(level, cluster.levels[base])
        for base in memory_of(node):
            if base in cluster.roles:
                return False
        if level and role in ("full", "reduce") and cluster.is_long():
            return False
        if role == "reduce" and cluster.reduced is None and any(cluster.levels.values()):
            return False
        return not any(
            (unit := self.unit.get(base)) is not None and unit is not cluster and self._depends(unit, cluster)
            for base in (*self._reads(node), *memory_of(node))
        )

    def _apart(self, node: Node, cluster: Cluster) -> bool:
        """Memory that a scatter writes isn't read in the same kernel, unless there is a single element.

        Then a kernel loads all before it stores anything; only two updates of one array still need one copy each.
        """
        if not cluster.space:
            return not (isinstance(node, Scatter) and node.target in cluster.targets)
        if isinstance(node, Scatter):
            reads = {*self._reads(node)}
            return node.target not in cluster.sources | cluster.targets and node.target not in reads
        return not any(base in cluster.targets for base in (*self._reads(node), *memory_of(node)))

    def _add(self, node: Node, cluster: Cluster) -> None:
        role = self._role(node, cluster)
        if isinstance(node, Reduce) and cluster.reduced is None:
            cluster.reduced = _squeezed_axes(node)
            role = "reduce"
        if isinstance(node, Cumulative):
            cluster.reduced, cluster.reverse = _squeezed_axes(node), node.reverse
        assert role is not None
        level = max((cluster.levels.get(base_of(n), 0) for n in operands_of(node)), default=0)
        cluster.levels[node] = level + 1 if role == "reduce" else level
        cluster.roles[node] = role
        cluster.cost += _cost(node)
        self.unit[node] = cluster
        if isinstance(node, Scatter):
            cluster.targets.add(node.target)
        if isinstance(node, Gather):
            cluster.sources.add(node.source)
        read = [*self._reads(node)]
        for base in (*read, *memory_of(node)):
            unit = self.unit.get(base)
            if unit is not cluster:
                # The target of a scatter isn't read, unless what is scattered reads it too.
                if not isinstance(node, Scatter) or base is not node.target or base in read:
                    cluster.sources.add(base)
                if unit is not None:
                    self._order(unit, cluster)
        self._after_effects(node, cluster)

    def _new(self, unit: Any) -> Any:
        unit.rank = len(self.units)
        self.units.append(unit)
        return unit

    def _put_before(self, unit: Unit, later: Unit) -> None:
        """Move a unit, and what it needs, in front of one that doesn't lead to it (Pearce and Kelly 2007)."""
        if unit.rank < later.rank:
            return
        needed, stack = {unit}, [unit]
        while stack:
            for earlier in stack.pop().before:
                if earlier.rank > later.rank and earlier not in needed:
                    needed.add(earlier)
                    stack.append(earlier)
        low, high = later.rank, unit.rank + 1
        window = self.units[low:high]
        window = [u for u in window if u in needed] + [u for u in window if u not in needed]
        self.units[low:high] = window
        for rank, moved in enumerate(window, low):
            moved.rank = rank

    def _sum_up_rows(self) -> None:
        """Reductions of many rows to one that came first join a cluster that reads the same memory by rows."""
        for clusters in self._open.values():
            for other in [c for c in clusters if c.reduced and {*c.roles.values()} <= {"full", "reduce"}]:
                place, kept = clusters.index(other), (other.reduced, other.roles, other.levels)
                for one in clusters[max(0, place - HORIZONTAL) : place + HORIZONTAL]:
                    if one.crosses(kept[0]) and any(base in one.sources for base in other.sources):
                        other.roles = {n: "across" if role == "reduce" else role for n, role in kept[1].items()}
                        other.reduced, other.levels = None, dict.fromkeys(other.roles, 0)
                        self._merge(one, other)
                        if other not in clusters:
                            break
                        other.reduced, other.roles, other.levels = kept

    def _merge(self, one: Cluster, other: Cluster) -> Cluster:
        """Both clusters as one, if nothing stands between them; otherwise the first."""
        if one.space != other.space or (None not in (one.reduced, other.reduced) and one.reduced != other.reduced):
            return one
        if one.targets or other.targets or len(one.roles) + len(other.roles) > MOST_MEMBERS:
            return one
        if one.cost + other.cost > MOST_COST or not self._run_together(one, other):
            return one
        if self._depends(one, other) or self._depends(other, one):
            return one
        reduced = one.reduced if one.reduced is not None else other.reduced
        if reduced is not None and (one.is_long() or other.is_long()) and one.reduced != other.reduced:
            return one
        one.reduced, one.reverse = reduced, other.reverse if one.reverse is None else one.reverse
        one.cost += other.cost
        one.roles.update(other.roles)
        one.levels.update(other.levels)
        one.sources |= other.sources
        one.before |= other.before
        for member in other.roles:
            self.unit[member] = one
        for unit in set(self.unit.values()):
            if other in unit.before:
                unit.before.remove(other)
                unit.before.add(one)
        self._open[other.space].remove(other)
        place = min(one.rank, other.rank)
        self.units = [u for u in self.units if u is not one and u is not other]
        self.units.insert(place, one)
        for rank, unit in enumerate(self.units):
            unit.rank = rank
        for unit in one.before:
            self._put_before(unit, one)
        return one

    def _depends(self, unit: Unit, on: Unit) -> bool:
        """Is there a way from `on` to `unit`? Only units between them in the order can be on it."""
        if unit.rank < on.rank:
            return False
        stack, seen = [unit], {unit}
        while stack:
            if len(seen) > LOOKBACK:
                return True
            for earlier in stack.pop().before:
                if earlier is on:
                    return True
                if earlier.rank > on.rank and earlier not in seen:
                    seen.add(earlier)
                    stack.append(earlier)
        return False

    # -- what comes out ---------------------------------------------------------------------------

    def _store(self) -> None:
        """Which members need memory: those that others read."""
        for base in map(base_of, self.region.outputs):
            self._materialise(base)
            self.stored.add(base)
        for unit in set(self.unit.values()):
            if isinstance(unit, Cluster):
                for node, role in unit.roles.items():
                    if role == "scatter":
                        self.stored.add(node)
                self.stored |= {n for n in unit.sources | unit.targets if self.unit.get(n) is not unit}
            elif isinstance(unit, Step):
                self.stored.update(memory_of(unit.node))


def _cost(node: Node) -> int:
    """What a node adds to the code of a kernel; what is beyond a few calls runs in a function of its own."""
    return min(node.cost, 4 * CALL_COST) if isinstance(node, Map) else 0


def _squeezed_axes(node: Reduce | Cumulative) -> tuple[int, ...]:
    shape = operands_of(node)[0].shape
    position = {axis: i for i, axis in enumerate(i for i, n in enumerate(shape) if n != 1)}
    return tuple(position[a] for a in node.axes)


def _reads_own_element(operand: Node, base: Node, role: str, cluster: Cluster) -> bool:
    """Does a member with this role read a value inside its cluster only at its own element or row?"""
    inner = cluster.roles[base]
    if inner in ("across", "scatter") or (isinstance(operand, View) and operand.offset):
        return False
    strides = squeezed_strides(operand)
    if inner in PER_ELEMENT:
        return role != "row" and strides == contiguous_strides(cluster.space)
    rows = contiguous_strides(cluster.rows)
    if role == "row":
        return strides == rows
    kept = iter(rows)
    return strides == tuple(0 if i in (cluster.reduced or ()) else next(kept) for i in range(len(cluster.space)))


def results_of(unit: Unit) -> list[Node]:
    """The nodes that a unit defines."""
    if isinstance(unit, Cluster):
        return list(unit.roles)
    assert isinstance(unit, Step)
    return list(unit.node.results) if isinstance(unit.node, Opaque) else [unit.node]
