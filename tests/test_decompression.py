"""What products with the seeds hold is read back: exactly for integers, to rounding for other numbers."""

import itertools
from importlib import import_module

import numpy as np
import pytest
from coloring_patterns import KINDS, STRUCTURED, arrow, band, frame, random_pattern, symmetric
from scipy import sparse

from wonderland.core.errors import ArgumentError
from wonderland.sparse import color


def matrix_of(coloring, generator, dtype=float):
    """Random numbers at the entries, symmetric where the colouring is."""
    pattern = coloring.pattern.toarray()
    matrix = generator.normal(size=pattern.shape)
    if np.dtype(dtype).kind == "c":
        matrix = matrix + 1j * generator.normal(size=pattern.shape)
    if np.dtype(dtype).kind in "iu":
        matrix = generator.integers(0, 1000, pattern.shape)
    if coloring.partition == "symmetric":
        matrix = np.tril(matrix) + np.tril(matrix, -1).T
    return np.where(pattern, matrix, 0).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int32", "int64", "uint8"])
@pytest.mark.parametrize(("partition", "decompression"), KINDS)
def test_dtypes(partition, decompression, dtype):
    generator = np.random.default_rng(0)
    for _ in range(20):
        pattern = random_pattern(generator, 20)
        coloring = color(
            symmetric(pattern, generator) if partition == "symmetric" else pattern, partition, decompression
        )
        matrix = matrix_of(coloring, generator, dtype)
        compressed = coloring.compress(matrix)
        found = coloring.decompress(compressed)
        if found.dtype.kind in "iu":
            assert np.array_equal(found.toarray().astype(dtype), matrix)
        elif coloring.sources is not None:
            assert found.dtype == dtype and np.array_equal(found.toarray(), matrix)
        else:
            assert found.dtype == dtype
            precision = np.finfo(dtype).eps
            assert np.allclose(found.toarray(), matrix, rtol=0, atol=100 * precision)


@pytest.mark.parametrize(("partition", "decompression"), KINDS)
def test_products_are_those_with_the_seeds(partition, decompression):
    generator = np.random.default_rng(1)
    for pattern, postprocess in itertools.product((arrow(7), band(7, 1), frame(6, 6) | frame(6, 6).T), (False, True)):
        coloring = color(pattern, partition, decompression, postprocess=postprocess)
        matrix = matrix_of(coloring, generator)
        products = [matrix @ coloring.column_seeds().T, matrix.T @ coloring.row_seeds().T]
        products = [p.T for p, n in zip(products, (coloring.num_column_colors, coloring.num_row_colors)) if n]
        compressed = coloring.compress(matrix)
        compressed = compressed if partition == "bidirectional" else (compressed,)
        for found, expected in zip([part for part in compressed if part.size], products, strict=True):
            assert np.allclose(found, expected)
        sparse_compressed = coloring.compress(sparse.csc_array(matrix))
        for found, expected in zip(
            sparse_compressed if partition == "bidirectional" else (sparse_compressed,), compressed
        ):
            assert np.array_equal(found, expected)


@pytest.mark.parametrize(("partition", "decompression"), KINDS)
def test_flat_products_and_formats(partition, decompression):
    generator = np.random.default_rng(2)
    pattern = sparse.csr_array(arrow(8))
    pattern.data = generator.choice([0.0, 1.0], pattern.nnz)  # stored zeros are entries
    coloring = color(pattern, partition, decompression)
    assert coloring.nnz == 22
    matrix = matrix_of(coloring, generator)
    matrix[0, 3] = matrix[3, 0] = 0.0  # and a zero among the values stays an entry, too
    compressed = coloring.compress(matrix)
    flat = np.concatenate([p.ravel() for p in (compressed if partition == "bidirectional" else (compressed,))])
    values = coloring.values(flat)
    assert np.allclose(values, matrix[coloring.pattern.toarray()], atol=1e-14)
    if coloring.sources is not None:
        assert np.array_equal(values, flat[coloring.sources])
    assert (coloring.sources is None) == (
        decompression == "substitution" and partition in ("symmetric", "bidirectional")
    )
    for kind in ("csr", "csc", "coo"):
        found = coloring.decompress(compressed, kind)
        assert found.format == kind and isinstance(found, sparse.sparray) and found.nnz == 22
        assert np.allclose(found.toarray(), matrix, atol=1e-14)
        found.data[:] = 7  # the caller's own
    assert np.array_equal(coloring.values(flat), values)
    if partition == "bidirectional":
        assert np.allclose(coloring.decompress(list(compressed)).toarray(), matrix, atol=1e-14)
    else:
        assert np.allclose(coloring.decompress(compressed.tolist()).toarray(), matrix, atol=1e-14)


def test_a_symmetric_matrix_is_symmetric_to_the_last_bit():
    generator = np.random.default_rng(3)
    pattern = symmetric(generator.random((60, 60)) < 0.1, generator)
    for decompression in ("direct", "substitution"):
        coloring = color(pattern, "symmetric", decompression)
        found = coloring.decompress(coloring.compress(matrix_of(coloring, generator))).toarray()
        assert np.array_equal(found, found.T)


def test_chains_of_subtractions_meet_in_the_middle():
    """A path of two colours: 2k edges, none of which is more than k subtractions away from a product."""
    n = 101
    coloring = color(band(n, 1) & ~np.eye(n, dtype=bool), "symmetric", "substitution")
    assert coloring.num_colors == 2
    reading = coloring.reading
    depth = np.zeros(coloring.num_colors * n, int)
    for source, target in zip(reading.source, reading.target):
        depth[target] = max(depth[target], depth[source] + 1)
    assert depth[reading.source].max() == (n - 1) // 2 - 1


def test_errors_of_substitution_grow_no_faster_than_the_chain():
    """A path with values of all sizes; NumPy's sums of the same products are the measure."""
    n = 2001
    generator = np.random.default_rng(4)
    coloring = color(band(n, 1), "symmetric", "substitution")
    matrix = matrix_of(coloring, generator)
    found = coloring.decompress(coloring.compress(matrix)).toarray()
    assert abs(found - matrix).max() < n / 2 * np.finfo(float).eps * abs(matrix).max()


def test_non_finite_values_stay_in_their_tree():
    """An infinity or NaN reaches what is subtracted from it and nothing else."""
    pattern = np.kron(np.eye(2, dtype=bool), band(4, 1))
    coloring = color(pattern, "symmetric", "substitution")
    matrix = np.where(pattern, 1.0, 0.0)
    matrix[0, 1] = matrix[1, 0] = np.nan
    found = coloring.decompress(coloring.compress(np.where(pattern, matrix, 0.0))).toarray()
    assert np.isnan(found[0, 1]) and np.array_equal(found[4:, 4:], matrix[4:, 4:])
    coloring = color(pattern, "symmetric", "direct")
    found = coloring.decompress(coloring.compress(matrix)).toarray()
    assert np.array_equal(found, matrix, equal_nan=True)


def test_unknown_numbers_are_refused():
    coloring = color(band(4, 1), "symmetric", "substitution")
    for dtype in (object, "m8[s]", np.longdouble):
        if np.dtype(dtype).itemsize == 8 and np.dtype(dtype).kind == "f":
            continue  # long double is double here
        with pytest.raises(ArgumentError, match="by substitution takes integers, floats and complex"):
            coloring.values(np.zeros(8, dtype))


class Checked(np.ndarray):
    """An array that takes no index from the end: native loops wouldn't, either."""

    def __getitem__(self, i):
        assert i >= 0
        return super().__getitem__(i)

    def __setitem__(self, i, value):
        assert i >= 0
        super().__setitem__(i, value)


def checked(loop):
    """A typed loop as plain Python, which sees every index that is out of bounds."""
    return lambda *args: loop.python(*(a.view(Checked) if isinstance(a, np.ndarray) else a for a in args))


LOOPS = "graphs._mates star._color_stars acyclic._color_trees".split()
LOOPS += "decompression._sums decompression._leaves_first decompression._substitute".split()


@pytest.mark.parametrize(("partition", "kind"), KINDS[2:])
def test_native_loops_do_what_plain_ones_do_and_stay_in_bounds(partition, kind, monkeypatch):
    generator = np.random.default_rng(5)
    patterns = [*STRUCTURED.values(), *(random_pattern(generator, 12) for _ in range(40))]
    if partition == "symmetric":
        patterns = [symmetric(pattern, generator) for pattern in patterns]
    matrices = [generator.normal(size=pattern.shape) * pattern for pattern in patterns]
    results = []
    for plain in (False, True):
        for module, name in (loop.split(".") for loop in LOOPS if plain):
            module = import_module(f"wonderland.sparse.{module}")
            monkeypatch.setattr(module, name, checked(getattr(module, name)))
        for pattern, matrix in zip(patterns, matrices):
            coloring = color(pattern, partition, kind, order="random", postprocess=True)
            values = coloring.decompress(coloring.compress(matrix)).data
            results.append((coloring.column_colors, coloring.row_colors, coloring.sources, values))
    half = len(results) // 2
    for native, plain in zip(results[:half], results[half:]):
        assert all(np.array_equal(a, b) for a, b in zip(native, plain))


SIZES = [  # both sides take seconds for a million
    pytest.param(10**6, kind, marks=[pytest.mark.slow] * ("bidirectional" in kind), id=f"1000000-{'-'.join(kind)}")
    for kind in KINDS
]
SIZES += [pytest.param(10**5, kind, id=f"100000-{'-'.join(kind)}") for kind in KINDS if "bidirectional" in kind]


@pytest.mark.parametrize(("n", "kind"), SIZES)
def test_a_million_columns(n, kind):
    partition, decompression = kind
    pattern = sparse.diags_array([np.ones(n - abs(k)) for k in (-1, 0, 1)], offsets=(-1, 0, 1), format="csr")
    color(band(3, 1), partition, decompression)  # compiles
    coloring = color(pattern, partition, decompression)  # a second on a quiet machine
    expected = {"column": 3, "row": 3, "symmetric": 3 if decompression == "direct" else 2}
    assert coloring.num_colors <= expected.get(partition, 6)
    found = coloring.decompress(coloring.compress(pattern))
    assert np.array_equal(found.data, pattern.data)


def test_dense_rows_cost_no_more_than_their_entries():
    """10^5 columns with a dense row and a dense column: quadratic time would be minutes."""
    n = 10**5
    i, zero = np.arange(n), np.zeros(n, int)
    pattern = sparse.coo_array((np.ones(3 * n), (np.concatenate([i, i, zero]), np.concatenate([i, zero, i]))), (n, n))
    for decompression in ("direct", "substitution"):
        assert color(pattern, "symmetric", decompression).num_colors == 2
        assert color(pattern, "bidirectional", decompression, postprocess=True).num_colors <= 3


def test_structured_patterns_without_entries():
    for name in ("0x0", "0x4", "3x0", "empty"):
        pattern = STRUCTURED[name]
        for partition, decompression in KINDS:
            if partition == "symmetric" and pattern.shape[0] != pattern.shape[1]:
                continue
            coloring = color(pattern, partition, decompression, postprocess=True)
            assert coloring.num_colors == 0
            assert coloring.decompress(coloring.compress(pattern.astype(float))).shape == pattern.shape
