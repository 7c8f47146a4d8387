"""Scheduling: the nodes of a region come in, an ordered list of units (clusters, and nodes by themselves) goes out.

The one rule: a node joins the cluster of its operands when it runs over the same iteration space, reads what is inside
the cluster only at its own element (or, for a reduced value, at its own row), and no cycle arises through other units.
So a softmax is one cluster, and so is the update of a parameter with all its moments. A reduction of many rows to one
goes along with them, for what reads its result comes later anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

from wonderland.compile.clusters import PER_ELEMENT, Cluster, Unit, squeezed_strides
from wonderland.compile.members import Map, Member
from wonderland.compile.nodes import COSTLY, Leaf, Node, Region, Shape, Whole, contiguous_strides, squeezed

CHEAP = 60  # cost up to which a scalar is computed again by each kernel that reads it
MOST_MEMBERS, MOST_COST = 256, 400  # in one kernel: LLVM's time grows faster than the code
HORIZONTAL = 8  # clusters that a node without one looks at
LITTLE = 1024  # operations of a kernel that takes up work of its own accord; more of it is better off as equal kernels
LOOKBACK = 100  # units searched for a dependence; further away it is taken for granted, so that scheduling stays linear


def schedule(region: Region) -> None:
    """Schedule a region, and those inside it."""
    for inner in (inner for node in region.nodes for inner in node.regions):
        schedule(inner)
    region.schedule = Schedule(region)


class Schedule:
    """The units of a region in order, and the nodes that need memory."""

    def __init__(self, region: Region):
        self.region = region
        region.drop_unused()
        self.unit: dict[Node, Unit] = {}
        self.costs: dict[Node, int] = {}
        self.stored: set[Node] = set()
        self.units: list[Unit] = []  # in an order in which they can run, kept while they grow
        self._open: dict[Shape, list[Cluster]] = {}
        self._effect: Unit | None = None  # the last so far; what can fail stays on its side of it
        self._failing: list[Node] = []  # since then
        for node in region.nodes:
            if isinstance(node, Whole):
                self._alone(node)
            elif not self._note_cheap(node):
                self._cluster(node)
        self._sum_up_rows()
        self._store()

    # -- placing ----------------------------------------------------------------------------------

    def _is_cheap(self, node: Node) -> bool:
        """Is it a scalar that each kernel may compute for itself?"""
        return node in self.costs or (node.type.size == 1 and (isinstance(node, Leaf) or not node.in_memory))

    def _note_cheap(self, node: Node) -> bool:
        if not isinstance(node, Map) or node.type.size != 1 or not node.operands or node.can_fail:
            return False
        bases = [o.base for o in node.operands]
        cost = node.cost + sum(self.costs.get(base, 0) for base in bases)
        if cost > CHEAP or not all(map(self._is_cheap, bases)):
            return False
        self.costs[node] = cost
        return True

    def _alone(self, node: Whole) -> None:
        self._new(node)
        for result in (node, *node.results):
            self.unit[result] = node
        for base in node.memory:
            self._materialise(base)
            if base in self.unit:
                self._order(self.unit[base], node)
        self._after_effects(node, node)
        if node.has_effect:
            for earlier in self._failing:
                if self.unit[earlier] is not node:
                    self._order(self.unit[earlier], node)
            self._effect, self._failing = node, []

    def _order(self, unit: Unit, later: Unit) -> None:
        later.before[unit] = None
        self._put_before(unit, later)

    def _after_effects(self, node: Node, unit: Unit) -> None:
        """What can fail does so after the effects that come before it, and before those that come after it."""
        if node.can_fail:
            self._failing.append(node)
            if self._effect is not None:
                self._order(self._effect, unit)

    def _materialise(self, base: Node) -> None:
        """A cheap scalar gets memory after all: it becomes a member of a cluster of scalars."""
        if base in self.costs and base not in self.unit:
            self._cluster(base)

    def _reads(self, node: Node) -> Iterator[Node]:
        """The bases that a member reads, cheap scalars replaced by what they read."""
        stack = [o.base for o in node.operands]
        while stack:
            base = stack.pop()
            if base in self.costs:
                stack += [o.base for o in base.operands]
            elif base.in_memory:
                yield base

    def _cluster(self, node: Any) -> None:
        for base in node.memory:
            self._materialise(base)
        space = squeezed(node.space)
        read = [*self._reads(node)]
        units = dict.fromkeys(map(self.unit.get, read))
        found = [unit for unit in units if isinstance(unit, Cluster) and self._joins(node, unit)]
        if not found:
            # Independent work over one space shares a loop if it is little, or reads the same memory.
            size, near = math.prod(space), self._open.get(space, [])[-HORIZONTAL:]
            related = (c for c in near if size * c.cost <= LITTLE or any(base in c.sources for base in read))
            found = [*islice((c for c in related if self._joins(node, c)), 1)]
        if not found:
            found = [self._new(Cluster(space))]
            self._open.setdefault(space, []).append(found[0])
        for other in found[1:]:
            self._merge(found[0], other)
        self._add(node, found[0])

    @staticmethod
    def _run_together(one: Cluster, other: Cluster) -> bool:
        """The same for two clusters: values that run in one of them must not spoil the other."""
        if one.reverse == other.reverse:
            return True
        serial, wide = (other, one) if one.reverse is None else (one, other)
        return wide.reverse is None and not wide.is_long() and not (wide.is_costly() and serial.is_serial())

    def _joins(self, node: Member, cluster: Cluster) -> bool:
        role = node.role_in(cluster)
        if role is None or len(cluster.roles) >= MOST_MEMBERS or cluster.cost + _cost(node) > MOST_COST:
            return False
        if not self._apart(node, cluster) or any(base in cluster.roles for base in node.memory):
            return False
        if self._effect is not None and node.can_fail and self._depends(self._effect, cluster):
            return False
        level = 0
        for operand in node.operands:
            if operand.base in cluster.roles:
                if not _reads_own_element(operand, role, cluster):
                    return False
                level = max(level, cluster.levels[operand.base])
        if level and role in ("full", "reduce") and cluster.is_long():
            return False
        if role == "reduce" and cluster.reduced is None and any(cluster.levels.values()):
            return False
        return not any(
            (unit := self.unit.get(base)) is not None and unit is not cluster and self._depends(unit, cluster)
            for base in (*self._reads(node), *node.memory)
        )

    def _apart(self, node: Node, cluster: Cluster) -> bool:
        """Memory that a scatter writes isn't read in the same kernel, unless there is a single element.

        Then a kernel loads all before it stores anything; only two updates of one array still need one copy each.
        """
        start = node.starts_from
        if not cluster.space:
            return start is None or start not in cluster.targets
        if start is not None:
            return start not in cluster.sources | cluster.targets and start not in {*self._reads(node)}
        return not any(base in cluster.targets for base in (*self._reads(node), *node.memory))

    def _add(self, node: Member, cluster: Cluster) -> None:
        role = node.role_in(cluster)
        assert role is not None
        node.join(cluster, role)
        level = max((cluster.levels.get(o.base, 0) for o in node.operands), default=0)
        cluster.levels[node] = level + 1 if role == "reduce" else level
        cluster.roles[node] = role
        cluster.cost += _cost(node)
        self.unit[node] = cluster
        read = [*self._reads(node)]
        for base in (*read, *node.memory):
            unit = self.unit.get(base)
            if unit is not cluster:
                if base is not node.starts_from or base in read:  # what is updated isn't read, unless it is
                    cluster.sources[base] = None
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
        needed = {unit, *_needs(unit, later)}
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

    def _merge(self, one: Cluster, other: Cluster) -> None:
        """Take a cluster into the first, if nothing stands between them."""
        if one.space != other.space or one.targets or other.targets or not self._run_together(one, other):
            return
        if len(one.roles) + len(other.roles) > MOST_MEMBERS or one.cost + other.cost > MOST_COST:
            return
        if one.reduced != other.reduced:
            if None not in (one.reduced, other.reduced) or one.is_long() or other.is_long():
                return
        if self._depends(one, other) or self._depends(other, one):
            return
        reduced = one.reduced if one.reduced is not None else other.reduced
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
                del unit.before[other]
                unit.before[one] = None
        self._open[other.space].remove(other)
        place = min(one.rank, other.rank)
        self.units = [u for u in self.units if u is not one and u is not other]
        self.units.insert(place, one)
        for rank, unit in enumerate(self.units):
            unit.rank = rank
        for unit in one.before:
            self._put_before(unit, one)

    def _depends(self, unit: Unit, on: Unit) -> bool:
        """Is there a way from `on` to `unit`?"""
        between = enumerate(_needs(unit, on), 1) if unit.rank > on.rank else ()
        return any(earlier is on or count >= LOOKBACK for count, earlier in between)

    # -- what comes out ---------------------------------------------------------------------------

    def _store(self) -> None:
        """Which members need memory: those that others read."""
        for base in (output.base for output in self.region.outputs):
            self._materialise(base)
            self.stored.add(base)
        for unit in set(self.unit.values()):
            self.stored.update(n for n in unit.reads if self.unit.get(n) is not unit)
            if isinstance(unit, Cluster):
                self.stored.update(node for node, role in unit.roles.items() if role == "scatter")

    def text(self, names: dict[Node, str]) -> str:
        """The units in order, then which values get memory, and which scalars each reader computes for itself."""
        lines = [f"{i:>3}  {unit.text(names)}".replace("\n", "\n     ") for i, unit in enumerate(self.units)]
        made = {result for node in self.region.nodes for result in (node, *node.results)}
        notes = {"in memory": [n for n in names if n in self.stored and n in made],
                 "computed where they are read": [n for n in self.costs if n not in self.unit]}  # fmt: skip
        lines += [f"     {what}: {', '.join(map(names.__getitem__, found))}" for what, found in notes.items() if found]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text(self.region.names())


def _needs(unit: Unit, since: Unit) -> Iterator[Unit]:
    """The units that come before one, as far back as another: only those between them can be on a way to it."""
    stack, seen = [unit], {unit}
    while stack:
        for earlier in stack.pop().before:
            if earlier.rank >= since.rank and earlier not in seen:
                seen.add(earlier)
                stack.append(earlier)
                yield earlier


def _cost(node: Node) -> int:
    """What a node adds to the code of a kernel; what is beyond a few calls runs in a function of its own."""
    return min(node.cost, 4 * COSTLY)


def _reads_own_element(operand: Node, role: str, cluster: Cluster) -> bool:
    """Does a member with this role read a value inside its cluster only at its own element or row?"""
    inner = cluster.roles[operand.base]
    if inner in ("across", "scatter") or operand.layout[0]:
        return False
    strides = squeezed_strides(operand)
    if inner in PER_ELEMENT:
        return role != "row" and strides == contiguous_strides(cluster.space)
    rows = contiguous_strides(cluster.rows)
    return strides == (rows if role == "row" else cluster.spread(rows))
