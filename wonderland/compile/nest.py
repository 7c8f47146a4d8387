"""Loop nests: a cluster and the memory of its values come in, what its kernel does goes out; `kernels` writes the code.

First all that is read and written is collected, and the order of the loops follows from it: [kept axes] [reduced axes]
[inner kept axis]. Without an inner kept axis (the innermost axis of memory is reduced) sums are registers: row mode.
With one, a block of it has its sums in a small array on the stack: column mode. A row is swept once per level of
dependence: a softmax takes its maximum in the first sweep, the sum of exponentials in the second, and divides in the
third.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wonderland.compile import ir
from wonderland.compile.clusters import PER_ELEMENT, Cluster, squeezed_strides
from wonderland.compile.kernel import CHUNK_NANOSECONDS, MOST_CHUNKS, PARALLEL_NANOSECONDS, Kernel
from wonderland.compile.kernels import Sweeps
from wonderland.compile.loops import Access
from wonderland.compile.nodes import COSTLY, Index, Node, Number, contiguous_strides
from wonderland.compile.schedule import Schedule

DEEP, LONG_LOOP = 2 * COSTLY, 256  # cost and turns of a loop of which several turns are done at a time
LONGEST_KEPT_ROW = 1 << 16  # bytes of a row kept between sweeps
MOST_PIECES = 32  # of a long row
COLUMN_BYTES, LEAST_COLUMNS = 1 << 14, 512  # of columns summed at a time: whole rows in order are what memory likes
SHARED_COLUMNS, MOST_SHARED = 64, 4  # of an update in order: threads share multiples of these, in a few pieces
LEAST_SHARE = 0.1  # of what an access counts for in the choice of the inner loop
ENOUGH_BLOCKS = 4  # of columns, for the threads to share


class Nest(Kernel):
    """The loop nest of a cluster."""

    def __init__(self, cluster: Cluster, schedule: Schedule, memory: dict[Node, Any], sites: Any, split: bool = False):
        super().__init__()
        self.cluster: Cluster = cluster
        self.schedule: Schedule = schedule
        self.memory: dict[Node, Any] = memory
        self.sites: Any = sites
        self.split = split  # are the rows cut into pieces?
        self.accesses: dict[tuple[Any, ...], Access] = {}
        self.reads: dict[tuple[Node, bool], Access] = {}  # by operand, and whether it is read by rows
        self.places: dict[Node, Access] = {}  # what is read or written at computed places
        self.stores: dict[Node, Access] = {}
        self.scalars: dict[Node, None] = {}  # cheap ones that it computes for itself, in order
        self._collect()
        self.extents, self.positions, self.outer, self.sums, self.column = self._arrange()
        self.block: int = self._column_block() if self.column else 0  # columns that are swept together
        self.sum_dims: frozenset[int] = frozenset(range(self.outer, self.outer + self.sums))
        self.kept_dims: frozenset[int] = frozenset(range(len(self.extents))) - self.sum_dims
        self._varying: dict[Node, frozenset[int]] = {}
        for node in (*self.scalars, *cluster.roles):  # in order, so that no chain is followed recursively
            self.varies(node)
        self.checks: bool = any(node.can_fail for node in (*self.scalars, *cluster.roles))
        self.cost: int = sum(node.cost for node in cluster.roles)
        # A chain of functions is bound by latency: the next element's is too far away for the processor to see.
        self.deep: bool = self.cost >= DEEP and bool(self.extents) and self.extents[-1] >= LONG_LOOP
        self.shared: int = 0  # the loop that threads share, unless rows are cut into pieces
        self.pieces: int = self._share()
        self.phases: int = max(cluster.levels.values(), default=0) + 1
        self.kept: dict[Node, int] = {}  # values in a row on the stack, and the sweep that puts them there
        if self.sums == 1 and not self.column and self.extents[-1] * 8 <= LONGEST_KEPT_ROW:
            while self._keep_one():
                pass

    def write(self) -> ir.Function:
        return Sweeps(self).write()

    def describe(self) -> str:
        cluster = self.cluster
        what = "reducing" if "reduce" in cluster.roles.values() else "along"
        head = f"over {list(cluster.space)}" + (f", {what} axes {list(cluster.reduced)}" if cluster.reduced else "")
        mode = "column mode" if self.column else "row mode" if self.sums else "elementwise"
        kinds = [(type(node).__name__.lower(), role) for node, role in cluster.roles.items()]
        counts = Counter(kind if kind == role else f"{role} {kind}" for kind, role in kinds)
        members = ", ".join(f"{count} {name}" for name, count in counts.items())
        return f"{head}: {mode}, loops {self.extents}{', parallel' if self.parallel else ''}\n  {members}"

    def turns_per_row(self, product: Any) -> int | None:
        if not self.parallel or self.checks or set(self.cluster.roles.values()) != {"full"}:
            return None
        if not self.cluster.reads_own_element(product, ()):
            return None
        in_order = self.positions == sorted(self.positions)
        return self.extents[0] // product.m if in_order and self.extents[0] % product.m == 0 else 0

    # -- what is read and written -----------------------------------------------------------------

    def operands(self, node: Node) -> tuple[Node, ...]:
        """The operands of a member; what combines the pieces of a reduction reads these."""
        override = self.cluster.override.get(node)
        return (override,) if override is not None else node.operands

    def computes(self, base: Node) -> bool:
        """Is it a member, or a cheap scalar that the kernel computes for itself?"""
        return base in self.cluster.roles or base in self.schedule.costs

    def _expand(self, strides: Sequence[int], row: bool) -> tuple[int, ...]:
        """Strides along all axes, of a scalar or what has a value for each row, too."""
        if not strides:
            return (0,) * len(self.cluster.space)
        return self.cluster.spread(strides) if row else tuple(strides)

    def _access(self, base: Node, offset: int, strides: tuple[int, ...], dtype: np.dtype) -> Access:
        param = -1
        if not isinstance(base, Index):  # of no memory, but it takes part in the order of loops
            param = self._params.setdefault((self.memory[base], offset * dtype.itemsize), len(self._params))
        return self.accesses.setdefault((param, strides, dtype), Access(param, dtype, strides))

    def _collect(self) -> None:
        roles = self.cluster.roles
        self._params: dict[tuple[Any, int], int] = {}
        for node, role in roles.items():
            self._read(node, role == "row")
        for node, role in roles.items():
            if role == "scatter":
                self.places[node] = self._indexed(node, node, False)
                self.written.add(self.memory[node])
            else:
                self._write(node, role)
        self.params = list(self._params)

    def _read(self, node: Node, row: bool) -> None:
        for operand in self.operands(node):
            plain = isinstance(operand, Number) and not isinstance(operand, Index)
            if plain or operand.base in self.cluster.roles:
                continue
            if operand.base in self.schedule.costs:
                self._read(operand.base, False)
                self.scalars[operand.base] = None
            else:
                whole = not row and operand.shape == self.cluster.space  # an axis of extent 1, too: of one piece
                strides = operand.layout[1] if whole else self._expand(squeezed_strides(operand), row)
                self.reads[operand, row] = self._access(operand.base, operand.layout[0], strides, operand.dtype)
        if node.source is not None:
            self.places[node] = self._indexed(node, node.source, row)

    def _indexed(self, node: Any, base: Node, row: bool) -> Access:
        offset, strides = node.places.layout
        squeezed = tuple(s for n, s in zip(node.space, strides, strict=True) if n != 1)
        return self._access(base, offset, self._expand(squeezed, row), node.dtype)

    def _write(self, node: Node, role: str) -> None:
        cluster, base, row = self.cluster, self.cluster.partials.get(node, node), role not in PER_ELEMENT
        if base is node and node not in self.schedule.stored:
            return
        strides = self._expand(contiguous_strides(cluster.rows if row else cluster.space), row)
        if role == "across":
            strides = (*(0 for _ in cluster.space[1:]), 1)
        self.stores[node] = self._access(base, 0, strides, node.dtype)
        self.written.add(self.memory[base])

    def _arrange(self) -> Order:
        cluster, stored = self.cluster, set(self.stores.values())
        # A short last axis whose index is a value: a loop to unroll, around which the rest of the work is done.
        ordered = self._is_serial() or any(
            a.param < 0 and any(a.strides[-1:]) and cluster.space[-1] <= 4 for a in self.accesses.values()
        )
        weights = {a: 1.5 if a in stored else 1.0 for a in self.accesses.values()}
        order = arrange(cluster.space, cluster.reduced or (), weights, ordered)
        for access in self.accesses.values():
            access.strides = tuple(access.strides[i] for i in order.positions)
        return order

    def _is_serial(self) -> bool:
        """Does the order of elements matter, because several may go to one place?"""
        return any(role == "scatter" and node.can_fail for node, role in self.cluster.roles.items())

    def _column_block(self) -> int:
        """How many columns are swept together; where they alone are shared between threads, there are some blocks."""
        most = COLUMN_BYTES // max(n.dtype.itemsize for n in self.cluster.roles)
        shared = not (self.outer or self.split)
        while shared and most > LEAST_COLUMNS and self.extents[-1] < most * ENOUGH_BLOCKS:
            most //= 2
        return most

    def varies(self, node: Node) -> frozenset[int]:
        """The loops that a member (or cheap scalar) varies with."""
        if node not in self._varying:
            role = self.cluster.roles.get(node)
            if role == "reduce":
                found = self.kept_dims
            elif role == "cumulate":
                found = self.kept_dims | self.sum_dims
            else:
                found = frozenset().union(*(self.operand_varies(o, role == "row") for o in self.operands(node)))
                if node in self.places:
                    found |= self.places[node].varies()
                if self.column and role == "row":
                    found |= self.kept_dims
            self._varying[node] = found
        return self._varying[node]

    def operand_varies(self, operand: Node, row: bool) -> frozenset[int]:
        if (operand, row) in self.reads:
            return self.reads[operand, row].varies()
        return frozenset() if isinstance(operand, Number) else self.varies(operand.base)

    # -- threads and sweeps -----------------------------------------------------------------------

    def _share(self) -> int:
        """Decide whether threads share the work, and how: the number of pieces."""
        elements = math.prod(self.extents)
        work = self.work = elements * (0.1 * len(self.accesses) + 0.05 * self.cost)
        n = self.extents[self.outer if self.split else 0] if self.extents else 1
        if self.split:
            return self.share_work(n, -(-n // MOST_PIECES))
        if not self.extents or not (elements >= 4096 or work > PARALLEL_NANOSECONDS / 4):
            return 1
        if self._is_serial():
            return self._share_columns()
        if self.outer == 0 and self.column:
            n = -(-self.extents[-1] // self.block)
        if self.outer == 0 and (n == 1 if self.column else self.sums):
            return 1
        wanted = 1 if work < PARALLEL_NANOSECONDS else min(MOST_CHUNKS, max(2, int(work / CHUNK_NANOSECONDS)))
        grain = -(-n // min(n, wanted))
        if len(self.extents) == 1 and wanted > 1:
            grain = -(-grain // 64) * 64
        return self.share_work(n, grain)

    def _share_columns(self) -> int:
        """Updates at computed places are in order; threads share the elements that lie side by side at each place."""
        last = len(self.extents) - 1
        scatters: list[Any] = [node for node, role in self.cluster.roles.items() if role == "scatter"]
        for node in scatters:
            moved = frozenset().union(*(self.operand_varies(i, False) for i in node.places.indices))
            if last in moved or last not in self.places[node].varies():
                return 1
        self.shared = last
        pieces = 1 if self.work < PARALLEL_NANOSECONDS else MOST_SHARED
        columns = -(-self.extents[last] // pieces)
        return self.share_work(self.extents[last], -(-columns // SHARED_COLUMNS) * SHARED_COLUMNS)

    def roots(self, phase: int) -> list[Node]:
        """What a sweep has to compute."""
        roots = []
        for node, role in self.cluster.roles.items():
            wanted = node in self.stores if role in PER_ELEMENT else role != "row"
            if self.kept.get(node) == phase or (wanted and self.cluster.sweep_of(node) == phase):
                roots.append(node)
        return roots

    def _keep_one(self) -> bool:
        """Find a costly value that several sweeps compute: it is kept in a row on the stack."""
        roles, levels, first_seen = self.cluster.roles, self.cluster.levels, {}
        for phase in range(self.phases):
            roots = self.roots(phase)
            stack = [o for root in roots for o in ([root] if roles[root] == "full" else self.operands(root))]
            visited: set[Node] = set()  # a graph has far more paths than nodes
            while stack:
                node = stack.pop().base
                if node in visited or roles.get(node) != "full":
                    continue
                visited.add(node)
                if (node in self.stores and levels[node] < phase) or self.kept.get(node, phase) < phase:
                    continue
                if first_seen.setdefault(node, phase) < phase and node.is_costly:
                    self.kept[node] = first_seen[node]
                    return True
                stack += self.operands(node)
        return False


class Order(NamedTuple):
    """Loops from the outside in: kept axes, reduced axes, and possibly one kept axis more (column mode)."""

    extents: list[int]
    positions: list[int]  # the axis of the space whose stride each loop has
    outer: int
    sums: int
    column: bool


def _share(access: Access, space: tuple[int, ...]) -> float:
    """The part of the turns of all loops in which an access is at another place: what is read again is in the cache."""
    turns = math.prod(n for n, stride in zip(space, access.strides, strict=True) if stride)
    return turns / max(1, math.prod(space))


def arrange(space: tuple[int, ...], reduced: tuple[int, ...], weights: dict[Access, float], ordered: bool) -> Order:
    """The order of the loops: innermost the axis along which most accesses are contiguous.

    Adjacent axes that every access walks as one become one loop. `ordered`: the axes must stay in order.
    """
    rank = len(space)
    inner = rank - 1
    if rank > 1 and not ordered:
        # What is read or written once a row doesn't decide the inner loop.
        counted = {
            access: weight * max(LEAST_SHARE, _share(access, space))
            for access, weight in weights.items()
            if not reduced or any(access.strides[i] for i in reduced)
        }

        def score(i: int) -> tuple[float, int]:
            total = sum(
                weight if access.strides[i] in (1, -1) else 0.25 * weight * (access.strides[i] == 0)
                for access, weight in counted.items()
            )
            return total * (0.3 if space[i] < 4 else 1.0), i

        inner = max(range(rank), key=score)

    def collapse(group: list[int]) -> list[tuple[int, int]]:
        out: list[tuple[int, int]] = []  # (extent, the innermost axis)
        for i in group:
            if out and all(a.strides[out[-1][1]] == a.strides[i] * space[i] for a in weights):
                out[-1] = (out[-1][0] * space[i], i)
            else:
                out.append((space[i], i))
        return out

    kept = [i for i in range(rank) if i not in reduced and i != inner]
    sums = [i for i in range(rank) if i in reduced and i != inner]
    if not reduced:
        groups = [[*kept, inner] if rank else [], [], []]
    elif inner in reduced:
        groups = [kept, [*sums, inner], []]
    else:
        tail = [inner]
        while inner == rank - 1 and tail[0] - 1 in kept:
            tail.insert(0, tail[0] - 1)
        if len(collapse(tail)) > 1:
            tail = tail[-1:]
        groups = [[i for i in kept if i not in tail], sums, tail]
    collapsed = [collapse(group) for group in groups]
    extents = [n for group in collapsed for n, _ in group]
    positions = [last for group in collapsed for _, last in group]
    return Order(extents, positions, len(collapsed[0]), len(collapsed[1]), bool(collapsed[2]))
