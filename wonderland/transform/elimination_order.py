"""In which order to eliminate the vertices of a computational graph: forward, in reverse, Markowitz's, or searched.

An `EliminationGraph` comes in (which vertex reads which, and which edges are plain ones: +1 or -1); an order of its
inner vertices goes out. Eliminating vertex v joins each of its predecessors to each of its successors by the product of
the two edges, so it costs one multiplication for each pair, products with plain edges apart. Finding the best order is
NP-complete (Naumann 2008): of small parts of a graph it is found, of others simulated annealing finds a good one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from random import Random
from time import perf_counter

ORDERS = ("forward", "reverse", "markowitz", "search")
SMALL = 13  # vertices of which the best order is found: at most 8192 sets of them


class EliminationGraph:
    """Edges (from, to, plain?) between vertices, numbered so that edges go up; `inner` are those to be eliminated.

    Sets of vertices are bits of a Python integer: union is `|`, and counting is one call.
    """

    successors: list[int]
    predecessors: list[int]
    heavy_successors: list[int]
    heavy_predecessors: list[int]

    def __init__(self, count: int, edges: Iterable[tuple[int, int, bool]], inner: Sequence[int]):
        self.edges: tuple[tuple[int, int, bool], ...] = tuple(sorted(edges))
        self.inner: tuple[int, ...] = tuple(inner)
        self.successors, self.predecessors = [0] * count, [0] * count
        self.heavy_successors, self.heavy_predecessors = [0] * count, [0] * count  # by edges that aren't plain
        for a, b, plain in self.edges:
            self.successors[a] |= 1 << b
            self.predecessors[b] |= 1 << a
            if not plain:
                self.heavy_successors[a] |= 1 << b
                self.heavy_predecessors[b] |= 1 << a

    def copy(self) -> EliminationGraph:
        """A graph to eliminate vertices from."""
        other = object.__new__(EliminationGraph)
        other.edges, other.inner = self.edges, self.inner
        other.successors, other.predecessors = self.successors[:], self.predecessors[:]
        other.heavy_successors, other.heavy_predecessors = self.heavy_successors[:], self.heavy_predecessors[:]
        return other

    def degree(self, v: int) -> tuple[int, int]:
        """Multiplications that eliminating v costs, and edges that it makes or adds to."""
        heavy = self.heavy_predecessors[v].bit_count() * self.heavy_successors[v].bit_count()
        return heavy, self.predecessors[v].bit_count() * self.successors[v].bit_count()

    def eliminate(self, order: Iterable[int], limit: float = float("inf")) -> int:
        """Eliminate vertices; returns the multiplications it takes, or, once they are over the limit, so many."""
        succ, pred = self.successors, self.predecessors
        heavy_succ, heavy_pred = self.heavy_successors, self.heavy_predecessors
        total = 0
        for v in order:
            before, after, heavy_before, heavy_after = pred[v], succ[v], heavy_pred[v], heavy_succ[v]
            total += heavy_before.bit_count() * heavy_after.bit_count()
            if total > limit:
                break
            bit = 1 << v
            for near, heavy_near, far, heavy_far, ends, heavy_ends in (
                (before, heavy_before, after, heavy_after, succ, heavy_succ),
                (after, heavy_after, before, heavy_before, pred, heavy_pred),
            ):
                light = far ^ heavy_far
                while near:
                    low = near & -near
                    near ^= low
                    w = low.bit_length() - 1
                    # An edge is plain if both that it comes from are, and there was none before.
                    heavy = heavy_ends[w] | (far if heavy_near & low else heavy_far | light & ends[w])
                    ends[w] = (ends[w] | far) ^ bit
                    heavy_ends[w] = heavy & ~bit
        return total

    def cost(self, order: Iterable[int], limit: float = float("inf")) -> int:
        """Multiplications that eliminating all inner vertices in this order takes."""
        return self.copy().eliminate(order, limit)


def members(mask: int) -> set[int]:
    """The vertices of a set that is bits of a number."""
    found = set()
    while mask:
        low = mask & -mask
        found.add(low.bit_length() - 1)
        mask ^= low
    return found


def markowitz(graph: EliminationGraph) -> list[int]:
    """Greedily: always the vertex that costs least now."""
    graph = graph.copy()
    left = {*graph.inner}
    heap = [(graph.degree(v), v) for v in graph.inner]
    heapify(heap)
    order = []
    while heap:
        degree, v = heappop(heap)
        if v not in left or degree != graph.degree(v):  # what was known of it before a neighbour went
            continue
        near = members(graph.predecessors[v] | graph.successors[v])
        left.remove(v)
        order.append(v)
        graph.eliminate([v])
        for w in near & left:
            heappush(heap, (graph.degree(w), w))
    return order


def anneal(
    graph: EliminationGraph, order: Sequence[int], steps: int, rng: Random, deadline: float
) -> tuple[int, list[int]]:
    """Simulated annealing from an order: one vertex moves to another place; worse orders are taken now and then.

    What is left after eliminating some vertices doesn't depend on their order, so that a move changes only the costs
    between the old place and the new; the graphs at (some) places of the order are kept to start from.
    """
    order = list(order)
    count = len(order)
    stride = 1 + count // 256
    kept, costs, walk = [], [], graph.copy()
    for k, v in enumerate(order):
        if k % stride == 0:
            kept.append(walk.copy())
        costs.append(walk.eliminate([v]))
    cost = best = sum(costs)
    best_order = order[:]
    start, end = max(cost * 0.02, 0.5), 0.15  # temperatures: of a few multiplications at first, of a fraction at last
    for step in range(steps):
        if perf_counter() > deadline:
            break
        i = rng.randrange(count)
        j = rng.randrange(count) if rng.random() < 0.1 else min(max(i + rng.randint(-12, 12), 0), count - 1)
        if i == j:
            continue
        low, high = min(i, j), max(i, j) + 1
        window = order[low:high]
        window.insert(j - low, window.pop(i - low))
        first = low // stride
        trial = kept[first].copy()
        trial.eliminate(order[first * stride : low])
        # Metropolis' rule, its random number drawn beforehand: the sum stops where it is over the limit.
        limit = sum(costs[low:high]) + rng.expovariate(1.0) * start * (end / start) ** (step / steps)
        if trial.eliminate(window, limit) > limit:
            continue
        order[low:high] = window
        cost -= sum(costs[low:high])
        walk = kept[first].copy()
        walk.eliminate(order[first * stride : low])
        for k in range(low, high):
            if k % stride == 0:
                kept[k // stride] = walk.copy()
            costs[k] = walk.eliminate([order[k]])
        cost += sum(costs[low:high])
        if cost < best:
            best, best_order = cost, order[:]
    return best, best_order


def parts(graph: EliminationGraph) -> list[list[int]]:
    """Inner vertices that aren't neighbours, nor neighbours of neighbours and so on, don't matter to each other."""
    left, out = {*graph.inner}, []
    while left:
        waiting, part = [left.pop()], []
        while waiting:
            v = waiting.pop()
            part.append(v)
            found = members(graph.predecessors[v] | graph.successors[v]) & left
            left -= found
            waiting += found
        out.append(sorted(part))
    return sorted(out)


def optimum(graph: EliminationGraph, part: Sequence[int]) -> list[int]:
    """The best order of a few vertices: a shortest path through the sets of them that are eliminated."""
    reached = {frozenset(): (0, [], graph)}
    for _ in part:
        following: dict[frozenset, tuple[int, list[int], EliminationGraph]] = {}
        for gone, (cost, order, left) in reached.items():
            for v in part:
                if v not in gone:
                    known = following.get(gone | {v})
                    total = cost + left.degree(v)[0]
                    if known is None or total < known[0]:
                        following[gone | {v}] = total, [*order, v], left
        for gone, (cost, order, left) in following.items():
            left = left.copy()
            left.eliminate(order[-1:])
            following[gone] = cost, order, left
        reached = following
    return reached[frozenset(part)][1]


def search(graph: EliminationGraph, seconds: float) -> list[int]:
    """The best order of each small part of the graph, and of a large one the best that annealing finds, in rounds of
    growing length, each from the best known before: the same order for the same graph, if the time is enough."""
    greedy = {v: k for k, v in enumerate(markowitz(graph))}
    order, start, done = [], perf_counter(), 0
    for part in parts(graph):
        done += len(part)
        deadline = start + seconds * done / len(graph.inner)
        known = [part, part[::-1], sorted(part, key=greedy.__getitem__)]
        cost, best = min((graph.cost(order), order) for order in known)
        if len(part) <= SMALL and seconds > 0:
            best = optimum(graph, part)
        else:
            for seed, steps in enumerate((50, 100, 200, 400)):
                cost, best = min((cost, best), anneal(graph, best, steps * len(part), Random(seed), deadline))
        order += best
    return order


_found: dict[tuple, list[int]] = {}  # searched orders: a graph is searched once


def find_order(graph: EliminationGraph, name: str, seconds: float) -> Sequence[int]:
    """The order of this name: "forward", "reverse", "markowitz" or "search"."""
    if name == "forward":
        return graph.inner
    if name == "reverse":
        return graph.inner[::-1]
    if name == "markowitz":
        return markowitz(graph)
    key = (graph.edges, graph.inner, seconds)
    if key not in _found:
        if len(_found) >= 256:
            _found.pop(next(iter(_found)))
        _found[key] = search(graph, seconds)
    return _found[key]
