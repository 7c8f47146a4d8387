"""Orders and greedy colourings by distance: against slow ones by definition, and theory."""

import numpy as np
import pytest
from scipy import sparse

from wonderland.core.errors import ArgumentError
from wonderland.sparse.distance import distance1, distance2, partial_distance2
from wonderland.sparse.graphs import canonical, raw
from wonderland.sparse.orders import DYNAMIC, ORDERS, order_columns, order_vertices

# Slow, by definition


def neighbors_in_graph(pattern):
    """Of each vertex, in the order in which a loop meets them."""
    return [[w for w in np.flatnonzero(row) if w != v] for v, row in enumerate(pattern)]


def neighbors_of_columns(pattern):
    """Of each column: those that share a row with it, in the order in which a loop over rows meets them."""
    found = []
    for v, column in enumerate(pattern.T):
        met = [w for row in np.flatnonzero(column) for w in np.flatnonzero(pattern[row]) if w != v]
        found.append(list(dict.fromkeys(met)))
    return found


def slow_order(order, neighbors):
    n = len(neighbors)
    if order == "largest_first":
        return sorted(range(n), key=lambda v: -len(neighbors[v]))
    changed = [-v for v in range(n)]  # ties: whose count changed last; at first the smallest index
    taken = []
    for time in range(n):
        left = [v for v in range(n) if v not in taken]
        among = set(taken) if order in ("incidence_degree", "perfect_elimination") else set(left)
        count = {v: len(among & set(neighbors[v])) for v in left}
        best = min(count.values()) if order == "smallest_last" else max(count.values())
        u = max((v for v in left if count[v] == best), key=lambda v: changed[v])
        taken.append(u)
        for place, v in enumerate(neighbors[u]):
            changed[v] = 1 + time * n + place
    return taken[::-1] if order == "smallest_last" else taken


def slow_colors(order, near):
    colors = {}
    for v in order:
        colors[v] = min({*range(len(near))} - {colors[w] for w in near[v] if w in colors})
    return [colors[v] for v in range(len(near))]


def clique_number(start, end):
    """Most intervals that share a point."""
    return max(int(((start <= point) & (point <= end)).sum()) for point in start)


# Fast


def arrays(pattern):
    return raw(canonical(pattern))


def by_columns(pattern):
    return *arrays(pattern), *arrays(np.asarray(pattern).T)


def graphs(rng, count):
    """Symmetric patterns of all densities, with diagonals and without."""
    yield np.zeros((0, 0), bool)
    yield np.zeros((3, 3), bool)
    yield np.ones((5, 5), bool)
    for _ in range(count):
        n = int(rng.integers(1, 16))
        upper = rng.random((n, n)) < rng.random() ** 2
        yield np.triu(upper, 1) | np.triu(upper, 1).T | np.diag(rng.random(n) < rng.choice([0.0, 0.5]))


def matrices(rng, count):
    yield np.zeros((0, 0), bool)
    yield np.zeros((3, 0), bool)
    yield np.zeros((0, 3), bool)
    yield np.ones((4, 5), bool)
    for _ in range(count):
        yield rng.random(tuple(rng.integers(1, 16, 2))) < rng.random() ** 2


@pytest.mark.parametrize("order", ["largest_first", *DYNAMIC])
def test_orders_of_graphs(order, rng):
    for pattern in graphs(rng, 200):
        expected = slow_order(order, neighbors_in_graph(pattern))
        found = order_vertices(order, *arrays(pattern))
        assert found.dtype == np.int64 and found.tolist() == expected


@pytest.mark.parametrize("order", ["largest_first", *DYNAMIC])
def test_orders_of_columns_and_rows(order, rng):
    for pattern in matrices(rng, 100):
        rows, columns = arrays(pattern), arrays(pattern.T)
        found = order_columns(order, *rows, *columns)
        assert found.dtype == np.int64 and found.tolist() == slow_order(order, neighbors_of_columns(pattern))
        expected = slow_order(order, neighbors_of_columns(pattern.T))
        assert order_columns(order, *columns, *rows).tolist() == expected


@pytest.mark.parametrize("order", ORDERS)
def test_colorings(order, rng):
    for pattern in graphs(rng, 60):
        graph = arrays(pattern)
        perm = order_vertices(order, *graph, seed=3)
        near = neighbors_in_graph(pattern)
        colors = distance1(*graph, perm)
        assert colors.dtype == np.int64 and colors.tolist() == slow_colors(perm.tolist(), near)
        assert all(colors[v] != colors[w] for v in range(len(near)) for w in near[v])
        nearer = [{w for u in [v, *near[v]] for w in [u, *near[u]]} - {v} for v in range(len(near))]
        colors = distance2(*graph, perm)
        assert colors.tolist() == slow_colors(perm.tolist(), nearer)
    for pattern in matrices(rng, 60):
        perm = order_columns(order, *by_columns(pattern), seed=3)
        colors = partial_distance2(*by_columns(pattern), perm)
        assert colors.dtype == np.int64 and colors.tolist() == slow_colors(perm.tolist(), neighbors_of_columns(pattern))
        for row in pattern:
            assert len(set(colors[row])) == row.sum()


def test_natural_and_random():
    graph = arrays(np.eye(50))
    assert order_vertices("natural", *graph).tolist() == list(range(50))
    once, again, other = (order_vertices("random", *graph, seed=seed) for seed in (1, 1, 2))
    assert once.tolist() == again.tolist() != other.tolist() != list(range(50))
    assert sorted(once) == sorted(other) == list(range(50))
    assert order_columns("random", *graph, *graph, seed=1).tolist() == once.tolist()


def test_a_permutation_is_an_order():
    graph = arrays(np.eye(4))
    for given in ([3, 1, 0, 2], (3, 1, 0, 2), np.array([3, 1, 0, 2], np.int32), np.array([3, 1, 0, 2], np.uint8)):
        for found in (order_vertices(given, *graph), order_columns(given, *graph, *graph)):
            assert found.dtype == np.int64 and found.tolist() == [3, 1, 0, 2]


@pytest.mark.parametrize("given", [[0, 1, 2], [0, 1, 2, 2], [1, 2, 3, 4], [0.0, 1.0, 2.0, 3.0], [[0, 1], [2, 3]], None])
def test_what_is_no_order(given):
    graph = arrays(np.eye(4))
    for call in (lambda: order_vertices(given, *graph), lambda: order_columns(given, *graph, *graph)):
        with pytest.raises(ArgumentError, match=r"is no permutation of the 4 vertices\. Write np\.random\.permutation"):
            call()


def test_an_unknown_name():
    graph = arrays(np.eye(4))
    for call in (lambda: order_vertices("largest", *graph), lambda: order_columns("largest", *graph, *graph)):
        with pytest.raises(ArgumentError, match=r"order is natural, random, largest_first, .* not 'largest'"):
            call()


# Theory


def test_perfect_elimination_is_exact_for_chordal_graphs(rng):
    """Interval graphs are chordal: as many colours as the largest clique has vertices."""
    for _ in range(100):
        start = rng.random(40)
        end = start + rng.random(40) * rng.random()
        pattern = (start[:, None] <= end) & (start <= end[:, None])
        graph = arrays(pattern)
        colors = distance1(*graph, order_vertices("perfect_elimination", *graph))
        assert colors.max() + 1 == clique_number(start, end)


@pytest.mark.parametrize("width", [1, 5, 20])
def test_shuffled_bands(width, rng):
    n = 400
    shuffle = rng.permutation(n)
    distance = np.abs(np.subtract.outer(shuffle, shuffle))
    graph = arrays(distance <= width)
    assert distance1(*graph, order_vertices("perfect_elimination", *graph)).max() == width
    assert partial_distance2(*graph, *graph, order_columns("perfect_elimination", *graph, *graph)).max() == 2 * width
    assert distance2(*graph, np.argsort(shuffle)).max() == 2 * width


def test_smallest_last_needs_one_color_more_than_the_graph_is_degenerate(rng):
    """Random graphs in which each vertex has at most k earlier neighbours, shuffled."""
    for k in (1, 2, 4):
        n = 300
        pattern = np.zeros((n, n), bool)
        for v in range(1, n):
            pattern[v, rng.choice(v, min(k, v), replace=False)] = True
        shuffle = rng.permutation(n)
        graph = arrays((pattern | pattern.T)[np.ix_(shuffle, shuffle)])
        assert distance1(*graph, order_vertices("smallest_last", *graph)).max() <= k


def test_a_crown_needs_two_colors_in_all_dynamic_orders():
    """K(n, n) without a perfect matching, sides taken in turns: natural order needs n colours."""
    n = 10
    side, pair = np.arange(2 * n) % 2, np.arange(2 * n) // 2
    graph = arrays((side[:, None] != side) & (pair[:, None] != pair))
    assert distance1(*graph, order_vertices("natural", *graph)).max() + 1 == n
    for order in ("incidence_degree", "perfect_elimination", "smallest_last"):
        assert distance1(*graph, order_vertices(order, *graph)).max() + 1 == 2


def test_a_million_vertices():
    n = 10**6
    graph = sparse.diags_array(np.ones((3, n)), offsets=(-1, 0, 1), shape=(n, n)).tocsr()
    graph = arrays(graph)
    for order in ("natural", "smallest_last", "perfect_elimination"):
        perm = order_vertices(order, *graph)
        assert distance1(*graph, perm).max() == 1
        assert distance2(*graph, perm).max() == 2
    perm = order_columns("smallest_last", *graph, *graph)
    assert partial_distance2(*graph, *graph, perm).max() == 2


def test_a_dense_row_is_no_square():
    """An arrow of 300,000 columns: pairs of columns in one row would be 10^11."""
    n = 300_000
    i, zero = np.arange(n), np.zeros(n, int)
    arrow = sparse.coo_array((np.ones(3 * n), (np.r_[i, i, zero], np.r_[i, zero, i])), shape=(n, n)).tocsr()
    for order in (i, i[::-1].copy(), np.random.default_rng(0).permutation(n)):
        colors = partial_distance2(*arrays(arrow), *arrays(arrow.T), order)
        assert np.array_equal(colors[order], i)
