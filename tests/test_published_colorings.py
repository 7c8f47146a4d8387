"""Numbers of colours that papers, other libraries and the notes give.

Gebremedhin, Tarafdar, Manne, Pothen: *New acyclic and star coloring algorithms with application to computing Hessians*
(2007); Gebremedhin, Manne, Pothen: *What color is your Jacobian?* (2005); Gebremedhin and others: *Efficient
computation of sparse Hessians using coloring and automatic differentiation* (2009); and SparseMatrixColorings.jl.
"""

import numpy as np
import pytest
from coloring_patterns import arrow, band, frame
from shared_data import matrix

from wonderland.sparse import color, color_graph
from wonderland.testing import colorings
from wonderland.testing.colorings import check_coloring


def test_bcsstk01():
    graph = matrix("bcsstk01")
    assert graph.shape == (48, 48) and graph.nnz == 400
    assert 1 + max(color_graph(graph, 1)) == 6
    assert 1 + max(color_graph(graph, 2)) == 15
    star, acyclic = color(graph, "symmetric"), color(graph, "symmetric", "substitution")
    assert star.num_colors == 12 and acyclic.num_colors == 8
    assert color(graph, "symmetric", order="smallest_last").num_colors == 11
    assert color(graph, "symmetric", "substitution", order="smallest_last").num_colors == 7
    check_coloring(star)
    check_coloring(acyclic)


KEN_11 = {
    "natural": (130, 5),
    "largest_first": (128, 4),
    "smallest_last": (125, 4),
    "incidence_degree": (124, 4),
    "dynamic_largest_first": (122, 5),
}


@pytest.mark.parametrize("order", KEN_11)
def test_lp_ken_11(order):
    """ColPack's tables VI and VII. Of the orders with ties left open (the last three), ours may need fewer."""
    pattern = matrix("lp_ken_11")
    assert pattern.shape == (14694, 21349) and pattern.nnz == 49058
    found = tuple(color(pattern, partition, order=order).num_colors for partition in ("column", "row"))
    if order in ("natural", "largest_first"):
        assert found == KEN_11[order]
    assert found[0] <= KEN_11[order][0] and found[1] <= KEN_11[order][1]


@pytest.mark.parametrize("r", [0, 1, 2, 5, 10])
@pytest.mark.parametrize("n", [50, 1000])
def test_bands(n, r):
    """Half-bandwidth r: star 2r + 1, acyclic r + 1, columns 2r + 1."""
    assert color(band(n, r), "symmetric").num_colors == 2 * r + 1
    assert color(band(n, r), "symmetric", "substitution").num_colors == r + 1
    assert color(band(n, r), "column").num_colors == 2 * r + 1


@pytest.mark.parametrize("decompression", ["direct", "substitution"])
def test_frame(decompression):
    """A bicolouring of 6 before post-processing, or better; 4 after it, the least there is."""
    pattern = frame(10, 20)
    orders = [{"order": None}, *({"order": "random", "seed": seed} for seed in range(10))]
    for order in orders:
        assert color(pattern, "bidirectional", decompression, **order).num_colors <= 6
        coloring = color(pattern, "bidirectional", decompression, postprocess=True, **order)
        assert coloring.num_colors == 4
        check_coloring(coloring)
    assert color(pattern, "column").num_colors == 20 and color(pattern, "row").num_colors == 10


@pytest.mark.parametrize("decompression", ["direct", "substitution"])
def test_bicolorings_of_other_small_matrices(decompression):
    """SparseMatrixColorings.jl's: an antidiagonal one needs 2, then 1; a triangle 3."""
    antidiagonal = np.eye(4)[::-1]
    assert color(antidiagonal, "bidirectional", decompression).num_colors == 2
    assert color(antidiagonal, "bidirectional", decompression, postprocess=True).num_colors == 1
    triangle = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    assert color(triangle, "bidirectional", decompression, postprocess=True).num_colors <= 3


def test_substitution_needs_fewer_colors_for_an_arrow():
    direct = color(arrow(10), "bidirectional", order="natural").num_colors
    substitution = color(arrow(10), "bidirectional", "substitution", order="natural").num_colors
    assert substitution == 3 < direct
    assert color(arrow(1000), "bidirectional", postprocess=True).num_colors == 3


# The survey's figure 4.1: star colours green, red, blue; figure 6.1: acyclic ones red, blue, green

FIGURE_41 = np.array(
    [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 1, 1],
        [0, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 1],
        [0, 1, 0, 0, 1, 0],
        [0, 1, 0, 1, 0, 1],
    ]
)
EDGES_61 = [(1, 2), (1, 7), (2, 3), (2, 5), (3, 4), (3, 6), (4, 10), (5, 6), (5, 8), (6, 9), (7, 8), (8, 9), (9, 10)]
FIGURE_61 = np.eye(10, dtype=int)
for i, j in EDGES_61:
    FIGURE_61[i - 1, j - 1] = FIGURE_61[j - 1, i - 1] = 1


def test_figure_4_1():
    published = [0, 1, 0, 2, 0, 0]
    assert colorings.star_fault(FIGURE_41, published) is None
    assert colorings.direct_fault(FIGURE_41, column_colors=published, symmetric=True) is None
    assert color(FIGURE_41, "symmetric").colors.tolist() == published


def test_figure_6_1():
    published = [0, 1, 0, 1, 0, 2, 1, 2, 1, 2]
    assert colorings.acyclic_fault(FIGURE_61, published) is None
    assert colorings.star_fault(FIGURE_61, published) is not None
    assert colorings.substitution_fault(FIGURE_61, column_colors=published, symmetric=True) is None
    assert color(FIGURE_61, "symmetric", "substitution").num_colors == 3
    star = [0, 1, 0, 2, 0, 3, 2, 4, 0, 1]  # figure 1 of the paper on sparse Hessians
    assert colorings.star_fault(FIGURE_61, star) is None
    assert color(FIGURE_61, "symmetric").num_colors <= 5


# The notes' matrices

A_1_55 = np.array([[0, 1, 0, 1, 0], [0, 0, 0, 1, 1], [0, 1, 1, 0, 0], [1, 0, 1, 0, 0]])
A_1_63 = np.array([[1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]])


def test_notes_4x5():
    """A1.55-1.59: two products either way; the seeds are the notes' (with column 3, which A1.58 forgets)."""
    columns, rows = color(A_1_55, "column"), color(A_1_55, "row")
    assert columns.column_seeds(int).tolist() == [[1, 1, 0, 0, 1], [0, 0, 1, 1, 0]]
    assert rows.row_seeds(int).tolist() == [[1, 0, 0, 1], [0, 1, 1, 0]]
    numbers = A_1_55 * np.arange(1, 21).reshape(4, 5)
    assert columns.compress(numbers).tolist() == [[2, 10, 12, 16], [4, 9, 13, 18]]
    assert np.array_equal(columns.decompress(columns.compress(numbers)).toarray(), numbers)
    assert np.array_equal(rows.decompress(rows.compress(numbers)).toarray(), numbers)


def test_notes_3x3():
    """A1.61: two colours, as columns 1 and 2 share two rows."""
    pattern = np.array([[0, 0, 1], [1, 1, 0], [1, 1, 0]])
    assert color(pattern, "column").colors.tolist() == [0, 1, 0]


def test_notes_symmetric():
    """A1.63-1.68: acyclic 2, star 3, distance-2 3; the products as printed."""
    a1, a2, a3, a4, a5, a6, a7 = 1, 10, 100, 1000, 10**4, 10**5, 10**6
    numbers = np.array([[a1, a2, a3, 0], [a2, a4, 0, a5], [a3, 0, a6, 0], [0, a5, 0, a7]])
    acyclic = color(A_1_63, "symmetric", "substitution")
    assert acyclic.colors.tolist() == [0, 1, 1, 0]
    assert acyclic.compress(numbers).T.tolist() == [[a1, a2 + a3], [a2 + a5, a4], [a3, a6], [a7, a5]]
    star = color(A_1_63, "symmetric")
    assert star.colors.tolist() == [0, 1, 1, 2]
    assert star.compress(numbers).T.tolist() == [[a1, a2 + a3, 0], [a2, a4, a5], [a3, a6, 0], [0, a5, a7]]
    for coloring in (acyclic, star):
        assert np.array_equal(coloring.decompress(coloring.compress(numbers)).toarray(), numbers)
    assert color(A_1_63, "column").num_colors == 3
