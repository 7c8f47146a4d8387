"""Colourings are what their definitions say, on patterns of all kinds; and the definitions reject what isn't."""

import itertools
import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from coloring_patterns import KINDS, STRUCTURED, arrow, band, frame, random_pattern, symmetric
from scipy import sparse

from wonderland.core.errors import ArgumentError
from wonderland.sparse import Coloring, color, color_graph
from wonderland.testing import colorings
from wonderland.testing.colorings import check_coloring

ORDERS = (
    "natural", "largest_first", "smallest_last", "incidence_degree", "dynamic_largest_first", "random",
    "perfect_elimination",
)  # fmt: skip


def colored(pattern, partition, decompression, generator, **options):
    if partition == "symmetric":
        pattern = symmetric(pattern, generator)
    return color(pattern, partition, decompression, **options)


@pytest.mark.parametrize("chunk", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 12))])
def test_random_patterns(chunk):
    """100 patterns each, every partition and decompression, with orders and post-processing in turn."""
    generator = np.random.default_rng(chunk)
    turn = itertools.cycle(itertools.product(ORDERS, (False, True)))
    for number in range(100):
        pattern = random_pattern(generator)
        for partition, decompression in KINDS:
            order, postprocess = next(turn)
            options = {"order": order, "postprocess": postprocess, "seed": number}
            check_coloring(colored(pattern, partition, decompression, generator, **options))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(20))
def test_random_patterns_with_everything(chunk):
    generator = np.random.default_rng(1000 + chunk)
    for _ in range(100):
        pattern = random_pattern(generator, largest=12)
        for (partition, decompression), order, postprocess in itertools.product(KINDS, (None, *ORDERS), (False, True)):
            check_coloring(colored(pattern, partition, decompression, generator, order=order, postprocess=postprocess))


@pytest.mark.parametrize("name", STRUCTURED)
def test_structured_patterns(name):
    """Every order for every kind, with and without post-processing in turn; random patterns have both."""
    generator = np.random.default_rng(0)
    every = itertools.product(KINDS, (None, *ORDERS))
    for number, ((partition, decompression), order) in enumerate(every):
        postprocess = bool((number + number // (1 + len(ORDERS))) % 2)
        coloring = colored(STRUCTURED[name], partition, decompression, generator, order=order, postprocess=postprocess)
        check_coloring(coloring)


@pytest.mark.parametrize(("partition", "decompression"), KINDS)
def test_larger_patterns(partition, decompression):
    """Too large for the definitions; products and decompression alone tell."""
    generator = np.random.default_rng(3)
    for m, n, density in ((100, 200, 0.02), (200, 100, 0.05), (150, 150, 0.3), (500, 500, 0.01)):
        pattern = generator.random((m, n)) < density
        pattern[generator.integers(0, m, 2)] = True
        pattern[:, generator.integers(0, n, 2)] = True
        for postprocess in (False, True):
            coloring = colored(pattern, partition, decompression, generator, postprocess=postprocess)
            matrix = coloring.pattern.toarray() * generator.integers(1, 1000, coloring.shape)
            if partition == "symmetric":
                matrix = matrix + matrix.T
            assert np.array_equal(coloring.decompress(coloring.compress(matrix)).toarray(), matrix)


@pytest.mark.parametrize("distance", [1, 2])
def test_graphs(distance):
    generator = np.random.default_rng(4)
    for number in range(60):
        graph = symmetric(random_pattern(generator), generator)
        for order in ORDERS:
            colors = color_graph(graph, distance, order, seed=number)
            assert colorings.distance_fault(graph, colors, distance) is None
            assert set(colors.tolist()) == set(range(1 + max(colors, default=-1)))


# Chromatic numbers, from all colourings of small graphs


def partitions(n):
    """All ways of giving colours to n vertices, up to the names of colours; fewest colours first."""

    def extend(prefix, count):
        if len(prefix) == n:
            yield prefix
            return
        for c in range(count + 1):
            yield from extend([*prefix, c], max(count, c + 1))

    return sorted(extend([], 0), key=lambda colors: max(colors, default=-1))


def chromatic_number(fault, n):
    return next(1 + max(colors, default=-1) for colors in ALL[n] if fault(colors) is None)


ALL = {n: partitions(n) for n in range(7)}


@pytest.mark.parametrize("chunk", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))])
def test_chromatic_inequalities(chunk):
    """Distance-1 <= acyclic <= star <= distance-2 numbers (A1.69), and no colouring of ours is below its own."""
    generator = np.random.default_rng(chunk)
    for number in range(15):
        graph = symmetric(random_pattern(generator, largest=7), generator)
        n = len(graph)
        faults = {
            "distance 1": lambda colors, graph=graph: colorings.distance_fault(graph, colors, 1),
            "acyclic": lambda colors, graph=graph: colorings.acyclic_fault(graph, colors),
            "star": lambda colors, graph=graph: colorings.star_fault(graph, colors),
            "distance 2": lambda colors, graph=graph: colorings.distance_fault(graph, colors, 2),
        }
        exact = {name: chromatic_number(fault, n) for name, fault in faults.items()}
        assert list(exact.values()) == sorted(exact.values())
        for order in ORDERS:
            options = {"order": order, "seed": number}
            assert 1 + max(color_graph(graph, 1, **options), default=-1) >= exact["distance 1"]
            assert color(graph, "symmetric", "substitution", **options).num_colors >= exact["acyclic"]
            assert color(graph, "symmetric", "direct", **options).num_colors >= exact["star"]
            assert 1 + max(color_graph(graph, 2, **options), default=-1) >= exact["distance 2"]


def test_the_star_number_of_a_cycle_of_five_is_four():
    """One of the graphs where the numbers differ: chromatic and acyclic 3, star 4, distance-2 5."""
    cycle = np.roll(np.eye(5, dtype=bool), 1, 0) | np.roll(np.eye(5, dtype=bool), -1, 0)
    assert chromatic_number(lambda colors: colorings.distance_fault(cycle, colors), 5) == 3
    assert chromatic_number(lambda colors: colorings.acyclic_fault(cycle, colors), 5) == 3
    assert chromatic_number(lambda colors: colorings.star_fault(cycle, colors), 5) == 4
    assert chromatic_number(lambda colors: colorings.distance_fault(cycle, colors, 2), 5) == 5


# What the definitions reject


def broken(coloring, generator):
    """The colours of rows and columns but for one of them, which gets another's or none."""
    rows, columns = coloring.row_colors, coloring.column_colors
    if columns is None or (rows is not None and generator.integers(0, 2)):
        return _broken(rows, generator), columns
    return rows, _broken(columns, generator)


def _broken(colors, generator):
    colors = np.array(colors)
    v = generator.integers(0, len(colors))
    others = [c for c in range(-1, 1 + max(colors)) if c != colors[v]]
    colors[v] = generator.choice(others or [0])
    return colors


@pytest.mark.parametrize(("partition", "decompression"), KINDS)
def test_broken_colorings_are_rejected(partition, decompression):
    """What the definition accepts can be read back, and but for symmetric matrices nothing else can be.

    (Neighbours of one colour may be read if they have no entries on the diagonal, which star colourings never need.)
    """
    generator = np.random.default_rng(5)
    rejected = accepted = 0
    while rejected < 25:
        pattern = random_pattern(generator)
        coloring = colored(pattern, partition, decompression, generator, postprocess=bool(generator.integers(0, 2)))
        if not coloring.nnz or coloring.num_colors < 2:
            continue
        rows, columns = broken(coloring, generator)
        fault = colorings.definition_fault(coloring, rows, columns)
        lone = colorings.recovery_fault(coloring, rows, columns)
        if fault is None:
            assert lone is None
            accepted += 1
        else:
            assert lone is not None or partition == "symmetric"
            rejected += 1
        if lone is None:
            assert colorings.substitution_fault(coloring.pattern, rows, columns, partition == "symmetric") is None
            assert determined(coloring, rows, columns)
    assert accepted


def determined(coloring, rows, columns):
    """Whether the products, linear in the entries, determine them: the rank of that map."""
    a = coloring.pattern.toarray()
    entries = [(i, j) for i, j in zip(*np.nonzero(a)) if i <= j or coloring.partition != "symmetric"]
    images = []
    for i, j in entries:
        unit = np.zeros(a.shape)
        unit[i, j] = 1
        if coloring.partition == "symmetric":
            unit[j, i] = 1
        products = [np.zeros(0)]
        if columns is not None:
            products += [unit[:, columns == c].sum(1) for c in range(1 + max(columns))]
        if rows is not None:
            products += [unit[rows == c].sum(0) for c in range(1 + max(rows))]
        images.append(np.concatenate(products))
    return np.linalg.matrix_rank(np.array(images)) == len(entries)


PATH = band(4, 1)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda: colorings.columns_fault(PATH, [0, 1, 0, 1]), "columns 0 and 2 of colour 0 both have an entry in row"),
        (lambda: colorings.columns_fault(PATH, [0, 1, 2]), "3 colours for 4 columns"),
        (lambda: colorings.columns_fault(PATH, [0, 1, 2, -1]), "column 3 has entries and no colour"),
        (lambda: colorings.rows_fault(PATH[:, :3], [0, 1, 0, 1]), "rows 0 and 2 of colour 0 both have an entry in col"),
        (lambda: colorings.distance_fault(PATH, [0, 1, 1, 0]), "vertices 1 and 2, 1 apart, both have colour 1"),
        (lambda: colorings.distance_fault(PATH, [0, 1, 0, 1], 2), "vertices 0 and 2, 2 apart, both have colour 0"),
        (lambda: colorings.distance_fault(PATH, [0, 1, 2, 0], 3), "vertices 0 and 3, 3 apart"),
        (lambda: colorings.distance_fault(PATH, [0, 1, -1, 0]), "vertex 2 has no colour"),
        (lambda: colorings.star_fault(PATH, [0, 1, 0, 1]), "the path .* has two colours"),
        (lambda: colorings.star_fault(PATH, [0, 0, 1, 2]), "0 and 1 are neighbours of one colour"),
        (lambda: colorings.star_fault(PATH, [-1, 0, 1, 2]), "column 0 has an entry on the diagonal and no colour"),
        (lambda: colorings.star_fault(PATH ^ np.eye(4, dtype=bool), [0, -1, 0, 1]), "1 has no colour and 2"),
        (lambda: colorings.star_fault(np.tri(3), [0, 1, 2]), "isn't symmetric"),
        (lambda: colorings.acyclic_fault(STRUCTURED["cycle"][:6, :6], [0, 0, 1, 0, 1, 0]), "0 and 1 are neighbours"),
        (lambda: colorings.acyclic_fault(np.ones((2, 2)), [0]), "1 colours for 2 columns"),
        (lambda: colorings.acyclic_bicoloring_fault(np.ones((2, 2)), [0, 0], [0, 0]), "a cycle of two colours"),
        (lambda: colorings.star_bicoloring_fault(np.ones((2, 2)), [-1, 0], [-1, 0]), "neighbours of one colour"),
        (lambda: colorings.star_bicoloring_fault(np.ones((2, 2)), [-1, -1], [0, 0]), "has no colour and 2 neighbours"),
        (lambda: colorings.star_bicoloring_fault(PATH, [0, 0, 0, 0], [0, 1, 0, 1]), "the path .* has two colours"),
        (lambda: colorings.star_bicoloring_fault(PATH, [0], [0]), "1 and 1 colours for a matrix of shape"),
        (lambda: colorings.direct_fault(PATH, column_colors=[0, 1, 0, 1]), r"entry \(1, 0\) stands alone in no"),
        (lambda: colorings.substitution_fault(np.ones((2, 2)), [0, 0], [0, 0]), "doesn't follow from the products"),
    ],
)  # fmt: skip
def test_reasons(fault, reason):
    assert re.search(reason, fault())


def test_a_broken_coloring_object_is_rejected():
    coloring = color(band(6, 1), "symmetric")
    with pytest.raises(AssertionError, match="path"):
        check_coloring(Coloring(**{**fields(coloring), "column_colors": np.array([0, 1, 0, 1, 0, 1])}))
    with pytest.raises(AssertionError, match="decompression gives"):
        check_coloring(Coloring(**{**fields(coloring), "sources": np.roll(coloring.sources, 1)}))
    with pytest.raises(AssertionError, match="gaps"):
        check_coloring(Coloring(**{**fields(coloring), "column_colors": coloring.column_colors * 2}))


def fields(coloring):
    return {name: getattr(coloring, name) for name in Coloring.__slots__}


# The object


def test_what_a_coloring_says():
    coloring = color(arrow(10), "column")
    assert repr(coloring) == "Coloring(10x10 with 28 entries, column, natural order: 10 colours)"
    assert coloring.shape == (10, 10) and coloring.nnz == 28
    assert (coloring.partition, coloring.decompression, coloring.order) == ("column", "direct", "natural")
    assert coloring.row_colors is None and coloring.colors is coloring.column_colors
    assert coloring.pattern.dtype == bool and coloring.sources.dtype == np.int64
    coloring = color(np.eye(3), "row", order=[2, 0, 1])
    assert repr(coloring) == "Coloring(3x3 with 3 entries, row, given order: 1 colour)"
    assert [group.tolist() for group in coloring.groups] == [[0, 1, 2]]
    coloring = color(frame(10, 20), "bidirectional", postprocess=True)
    assert repr(coloring).endswith("bidirectional, direct, smallest_first order: 4 colours (2 of columns, 2 of rows))")
    rows, columns = coloring.groups
    assert [group.tolist() for group in (*rows, *columns)] == [[0], [9], [*range(19)], [19]]
    assert coloring.colors[0] is coloring.row_colors and coloring.colors[1] is coloring.column_colors
    assert (coloring.row_colors == -1).sum() == 8


def test_seeds():
    coloring = color(STRUCTURED["frame"], "bidirectional")
    m, n = coloring.shape
    for seeds, colors, size in (
        (coloring.column_seeds(np.float32), coloring.column_colors, n),
        (coloring.row_seeds(np.float32), coloring.row_colors, m),
    ):
        assert seeds.dtype == np.float32 and seeds.shape == (1 + max(colors), size)
        assert np.array_equal(seeds.sum(0), np.ones(size)) and np.array_equal(seeds.argmax(0), colors)
    assert color(np.eye(3)).row_seeds().shape == (0, 3)


def test_colorings_do_not_change():
    coloring = color(arrow(5), "symmetric", "substitution")
    with pytest.raises(FrozenInstanceError):
        coloring.partition = "column"
    for array in (coloring.colors, coloring.pattern.indices, coloring.pattern.data, coloring.reading.source):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    given = sparse.csr_array(arrow(5))
    color(given)
    given.indices[0] = 1  # the caller's arrays are not touched


def test_any_matrix_is_a_pattern():
    dense = np.array([[0, 2.5, 0], [np.nan, 0, 1]])
    expected = color(dense != 0).pattern.toarray()
    for matrix in (dense, dense.tolist(), np.asfortranarray(dense), dense.astype(complex)):
        assert np.array_equal(color(matrix).pattern.toarray(), expected)
    for kind in (sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.lil_array, sparse.csr_matrix):
        assert np.array_equal(color(kind(dense)).pattern.toarray(), expected)
    twice = sparse.coo_array(
        ([1, -1, 0], ([0, 0, 1], [1, 1, 2])), shape=(2, 3)
    )  # duplicates that cancel, a stored zero
    assert color(twice).nnz == 2
    assert color(sparse.csr_array(([1, 1], [2, 0], [0, 2]), shape=(1, 3))).pattern.indices.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: color(np.eye(3), "columns"), 'partition must be one of "column", "row", .* not \'columns\''),
        (lambda: color(np.eye(3), decompression="solve"), 'decompression must be one of "direct", "substitution"'),
        (lambda: color(np.eye(3), order="alphabetical"), "alphabetical"),
        (lambda: color(np.eye(3), "symmetric", order="alphabetical"), "alphabetical"),
        (lambda: color(np.eye(3), order=[0, 1, 1]), "no permutation of the 3 vertices"),
        (lambda: color(np.eye(3), "bidirectional", order=[0, 1, 2]), "no permutation of the 6 vertices"),
        (lambda: color(np.eye(3), "symmetric", order=np.arange(3.0)), "no permutation"),
        (lambda: color(np.zeros((2, 3, 4))), r"must be a matrix \(2-D\), not an array of shape \(2, 3, 4\)"),
        (lambda: color(np.ones(3)), r"not an array of shape \(3,\)"),
        (lambda: color(3.0), r"not an array of shape \(\)"),
        (lambda: color([[1, 2], [3]]), "must be a matrix"),
        (lambda: color(sparse.coo_array(np.ones(3))), r"not an array of shape \(3,\)"),
        (lambda: color([["a", "b"]]), "numbers or booleans"),
        (lambda: color(None), "numbers or booleans"),
        (lambda: color(np.ones((2, 3)), "symmetric"), r"needs a square pattern, not one of shape \(2, 3\)"),
        (lambda: color(np.tri(3), "symmetric"), r"an entry \(1, 0\) and none at \(0, 1\)"),
        (lambda: color(np.triu(np.ones((3, 3))), "symmetric"), r"an entry \(0, 1\) and none at \(1, 0\)"),
        (lambda: color_graph(np.tri(3)), "color_graph needs a symmetric pattern"),
        (lambda: color_graph(np.ones((2, 3))), "color_graph needs a square pattern"),
        (lambda: color_graph(np.eye(3), distance=3), "distance must be 1 or 2, not 3"),
        (lambda: color(np.eye(3)).compress(np.eye(4)), r"matrices of shape \(3, 3\), not \(4, 4\)"),
        (lambda: color(arrow(3)).decompress(np.ones((2, 3))), r"an array of shape \(3, 3\), a row for each colour"),
        (lambda: color(np.eye(3)).decompress(np.ones((3, 1))), "give its transpose"),
        (lambda: color(np.eye(3), "row").decompress(np.ones(3)), r"products with rows must be an array of shape"),
        (lambda: color(np.eye(3), "bidirectional").decompress(np.ones((1, 3))), "takes the pair"),
        (lambda: color(np.eye(3), "bidirectional").decompress((np.ones((1, 3)), np.ones((2, 3)))), "with rows must"),
        (lambda: color(np.eye(3)).decompress(np.ones((1, 3)), "dok"), "format must be .* not 'dok'"),
        (lambda: color(np.eye(3)).values(np.ones((1, 3))), r"an array of shape \(3,\), not \(1, 3\)"),
    ],
)  # fmt: skip
def test_bad_arguments(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


# Colours from the caller


@pytest.mark.parametrize(("partition", "decompression"), KINDS)
def test_given_colors(partition, decompression):
    """Colours that a colouring found, broken or not, are accepted as the definitions say; the rest is the same."""
    generator = np.random.default_rng(6)
    accepted = rejected = 0
    while rejected < 25:
        postprocess = bool(generator.integers(0, 2))
        coloring = colored(random_pattern(generator), partition, decompression, generator, postprocess=postprocess)
        again = color(coloring.pattern, partition, decompression, colors=coloring.colors, postprocess=postprocess)
        for field in ("row_colors", "column_colors"):
            assert np.array_equal(getattr(again, field), getattr(coloring, field))
        check_coloring(again)
        if not coloring.nnz or coloring.num_colors < 2:
            continue
        rows, columns = broken(coloring, generator)
        if gaps(rows) or gaps(columns):
            continue
        given = (rows, columns) if partition == "bidirectional" else rows if columns is None else columns
        if colorings.definition_fault(coloring, rows, columns) is None:
            for postprocess in (False, True):
                check_coloring(color(coloring.pattern, partition, decompression, colors=given, postprocess=postprocess))
            accepted += 1
        else:
            with pytest.raises(ArgumentError, match="can't be read from the products"):
                color(coloring.pattern, partition, decompression, colors=given)
            rejected += 1
    assert accepted


def gaps(colors):
    return colors is not None and len(set(colors.tolist()) - {-1}) != 1 + max(colors)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colors": [0, 1]}, r"colors of columns must be 4 integers for a pattern of shape \(4, 4\), not int64\[2\]"),
        ({"colors": [0.0, 1.0, 2.0, 0.0]}, r"not float64\[4\]"),
        ({"colors": [0, 1, 3, 0]}, "without gaps"),
        ({"colors": [0, 1, -2, 0]}, "without gaps"),
        ({"colors": [0, 1, 0, 1]}, r"entry \(1, 0\) can't be read .* \(column partition, direct"),
        ({"colors": [0, 1, 2, -1]}, r"entry \(2, 3\) can't be read"),
        ({"colors": [0, 1, 2, 0], "order": "natural"}, "given colours have no order"),
        ({"colors": [0, 1, 0, 1], "partition": "symmetric"}, r"entry \(1, 2\) can't be read"),
        ({"colors": [0, 1, 1, 0], "partition": "symmetric"}, r"entry \(1, 2\) can't be read"),
        ({"colors": [-1, 0, 1, 2], "partition": "symmetric"}, r"entry \(0, 0\) can't be read"),
        ({"colors": [0, 1, 2, 0], "partition": "bidirectional"}, r"the pair \(row_colors, column_colors\)"),
        ({"colors": ([-1] * 4, [-1] * 4), "partition": "bidirectional"}, r"entry \(0, 0\) can't be read"),
    ],
)
def test_bad_given_colors(options, message):
    with pytest.raises(ArgumentError, match=message):
        color(PATH, **options)


def test_one_side_alone_is_a_bicoloring():
    coloring = color(PATH, "bidirectional", colors=([-1] * 4, [0, 1, 2, 0]))
    assert (coloring.num_colors, coloring.num_row_colors) == (3, 0)
    assert repr(coloring).endswith("given colours: 3 colours (3 of columns, 0 of rows))")
    check_coloring(coloring)
