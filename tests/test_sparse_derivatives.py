"""Sparse Jacobians and Hessians: equal to the dense ones, whatever the partition; prepared once; SciPy's formats."""

import copy
import itertools
import pickle
import warnings

import numpy as np
import pytest
from coloring_patterns import KINDS
from scipy import sparse

import wonderland as wl
from wonderland.testing import sparse_problems as problems

RNG = np.random.default_rng(0)
UNSYMMETRIC = [kind for kind in KINDS if kind[0] != "symmetric"]


def arrow(x):
    """A dense row, a dense column, and a band."""
    return np.concatenate([x[:1] * np.sum(np.sin(x)), x[1:] * x[0], x[2:] * x[1:-1] ** 2])


def dense(f, *args, **options):
    found = wl.jacobian(f, **options)(*args)
    return np.asarray(found).reshape(np.size(f(*args)), -1)


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize(("partition", "decompression"), [("auto", "direct"), *UNSYMMETRIC])
@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
def test_jacobian_equals_the_dense_one(partition, decompression, format, jit):
    x = RNG.standard_normal(17)
    found = wl.sparse.jacobian(arrow, 0, partition, decompression, format=format, jit=jit)(x)
    assert isinstance(found, {"csr": sparse.csr_array, "csc": sparse.csc_array, "coo": sparse.coo_array}[format])
    np.testing.assert_allclose(found.toarray(), dense(arrow, x), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize(("partition", "decompression"), [("auto", "direct"), *KINDS])
def test_hessian_equals_the_dense_one(partition, decompression, jit):
    x = RNG.standard_normal(24) + 3.0
    for f in (problems.extended_rosenbrock, problems.banded_least_squares):
        found = wl.sparse.hessian(f, 0, partition, decompression, jit=jit)(x)
        np.testing.assert_allclose(found.toarray(), wl.hessian(f)(x), rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_dtypes_stay(dtype):
    x = RNG.standard_normal(9).astype(dtype)
    if dtype == np.complex128:
        x = x + 1j * RNG.standard_normal(9)
    expected, rtol = dense(arrow, x, mode="forward"), 1e-5 if dtype == np.float32 else 1e-12
    for partition, decompression in UNSYMMETRIC:
        found = wl.sparse.jacobian(arrow, 0, partition, decompression)(x)
        assert found.dtype == dtype
        np.testing.assert_allclose(found.toarray(), expected, rtol=rtol, atol=rtol)


def test_complex_numbers_as_in_the_dense_jacobian():
    z, x = np.array([1 + 2j, 3 - 1j, 0.5j]), np.array([1.0, 2.0, 3.0])
    arrow = lambda v: np.concatenate([np.sum(v)[None], v[1:] * v[0]])
    cases = [(lambda z: np.abs(arrow(z)) ** 2, z), (lambda z: arrow(z) ** 2, z), (lambda x: arrow(x) * (1 + 2j), x)]
    for f, at in cases:
        np.testing.assert_allclose(wl.sparse.jacobian(f)(at).toarray(), wl.jacobian(f)(at), rtol=1e-12)
    found = wl.sparse.jacobian(cases[0][0], pattern=np.ones((3, 3)), partition="row")(z)  # tried, not warned about
    np.testing.assert_allclose(found.toarray(), wl.jacobian(cases[0][0])(z), rtol=1e-12)
    wrong = [
        (wl.sparse.jacobian(cases[0][0], partition="column"), (z,), "only products with rows"),
        (wl.sparse.jacobian(cases[2][0], partition="row"), (x,), "only products with columns"),
        (wl.sparse.jacobian(lambda z, x: z * x, (0, 1)), (z, x), "both real and complex chosen arguments"),
        (wl.sparse.jacobian(lambda z: (z, np.abs(z))), (z,), "both real and complex results"),
        (wl.sparse.hessian(lambda z: np.sum(np.abs(z) ** 2)), (z,), "needs real arguments"),
    ]
    for derivative, args, message in wrong:
        with pytest.raises(wl.ArgumentError, match=message):
            derivative(*args)


@pytest.mark.parametrize("partition", ["column", "row", "bidirectional"])
def test_dtypes_are_those_of_the_results(partition):
    single = wl.sparse.jacobian(lambda x: x.astype(np.float32) * 3, partition=partition)(np.ones(4))
    assert single.dtype == np.float32
    assert wl.sparse.jacobian(lambda x: x.astype(int), partition=partition)(np.ones(4)).dtype == np.float64


def test_arguments_chosen_twice_or_without_numbers():
    for argnums in ((0, 0), (0, -2), (), 1):
        with pytest.raises(wl.ArgumentError, match="each named once"):
            wl.sparse.jacobian(lambda x, nothing: x**2, argnums)(np.ones(2), None)


def test_trees_and_several_arguments():
    def f(params, scale, x, steps):
        return {"a": params["w"] * x[0] * scale, "b": (x[1:] - params["b"], np.sum(steps))}

    params, x = {"w": RNG.standard_normal((2, 3)), "b": 1.5}, RNG.standard_normal(4)
    steps = np.arange(3)
    J = wl.sparse.jacobian(f, argnums=(2, 0))
    found = J(params, 2.0, x, steps)
    assert found.shape == (6 + 3 + 1, 4 + 1 + 6)
    expected = np.zeros((10, 11))
    expected[:6, 0] = 2.0 * params["w"].ravel()
    expected[:6, 5:] = 2.0 * x[0] * np.eye(6)
    expected[6:9, 1:4] = np.eye(3)
    expected[6:9, 4] = -1.0
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-15)
    assert found.nnz == np.count_nonzero(expected)


def test_integers_have_empty_columns():
    found = wl.sparse.jacobian(lambda tree: tree["x"] * tree["k"])({"k": np.arange(1, 4), "x": np.ones(3)})
    np.testing.assert_array_equal(found.toarray(), np.hstack([np.zeros((3, 3)), np.diag([1.0, 2.0, 3.0])]))


def test_other_arguments_are_not_constants():
    """A matrix that is an argument may have its zeros elsewhere at the next call."""
    J = wl.sparse.jacobian(lambda A, x: A @ x, argnums=1)
    first, second = np.eye(3), np.ones((3, 3))
    np.testing.assert_array_equal(J(first, np.ones(3)).toarray(), first)
    np.testing.assert_array_equal(J(second, np.ones(3)).toarray(), second)
    assert J.pattern.nnz == 9


def test_arrays_of_a_closure_may_change():
    """Zeros of an array that f closes over are known; when it is written to, the pattern is looked at again."""
    A, places = np.eye(5), np.arange(5)
    J = wl.sparse.jacobian(lambda x: A @ x[places])
    H = wl.sparse.hessian(lambda x: np.sum((A @ x) ** 2))
    x = RNG.standard_normal(5)
    assert J(x).nnz == H(x).nnz == 5
    A[0, 3] = 7.0
    np.testing.assert_array_equal(J(x).toarray(), A)
    np.testing.assert_allclose(H(x).toarray(), 2 * A.T @ A)
    kept = J.coloring
    A[0, 3] = 0.0  # fewer: an entry that is there is enough
    np.testing.assert_array_equal(J(x).toarray(), A)
    assert J.coloring is kept
    places[:] = places[::-1].copy()
    np.testing.assert_array_equal(J(x).toarray(), A[:, ::-1])


def test_odd_shapes():
    assert wl.sparse.jacobian(lambda x: x * 2)(3.0).toarray() == 2.0
    assert wl.sparse.jacobian(np.sin)(np.zeros(0)).shape == (0, 0)
    assert wl.sparse.jacobian(lambda x: x[:0])(np.ones(3)).shape == (0, 3)
    assert wl.sparse.jacobian(lambda x: np.ones(2))(np.ones(3)).nnz == 0
    assert wl.sparse.jacobian(lambda x: np.ones(2))(np.ones(3)).shape == (2, 3)
    assert wl.sparse.hessian(np.sum)(np.ones(3)).nnz == 0
    x = RNG.standard_normal((6, 8))[::2, ::-2].T
    np.testing.assert_array_equal(wl.sparse.jacobian(lambda x: x**2)(x).toarray(), np.diag(2 * x.ravel()))


def test_prepared_once_and_again_for_other_shapes():
    calls = []

    def f(x):
        calls.append(x.shape)
        return x[1:] * x[:-1]

    J = wl.sparse.jacobian(f)
    J(np.ones(4))
    count = len(calls)
    np.testing.assert_allclose(J(np.arange(4.0)).toarray(), dense(lambda x: x[1:] * x[:-1], np.arange(4.0)))
    assert len(calls) == count
    assert J(np.ones(5)).shape == (4, 5)
    assert len(calls) > count
    assert J(np.ones(4, np.float32)).dtype == np.float32


def test_a_result_is_its_own():
    J = wl.sparse.jacobian(lambda x: x**2)
    first = J(np.ones(4))
    first.data[:] = 0.0
    first.eliminate_zeros()
    np.testing.assert_array_equal(J(np.ones(4)).toarray(), 2 * np.eye(4))


def test_own_pattern_and_coloring():
    x = RNG.standard_normal(8)
    pattern = sparse.diags_array([np.ones(8), np.ones(7)], offsets=[0, 1])

    def f(x):
        if x[0] > 1e6:  # a decision by a value
            return x
        return x**2 + np.append(x[1:], 0.0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = wl.sparse.jacobian(f, pattern=pattern, jit=False)(x)
        coloring = wl.sparse.color(pattern, "row")
        again = wl.sparse.jacobian(f, coloring=coloring, jit=False)(x)
    expected = np.diag(2 * x) + np.eye(8, k=1)
    np.testing.assert_allclose(found.toarray(), expected)
    np.testing.assert_allclose(again.toarray(), expected)


def test_a_wrong_pattern_is_warned_about():
    with pytest.warns(UserWarning, match="doesn't hold.*row 0"):
        wl.sparse.jacobian(lambda x: x * x[::-1], pattern=np.eye(6))(np.arange(1.0, 7.0))
    with pytest.warns(UserWarning, match="doesn't hold"):
        wl.sparse.hessian(lambda x: np.prod(x), pattern=np.eye(4))(np.arange(1.0, 5.0))


def test_a_jacobian_that_is_not_symmetric_is_warned_about():
    def f(x):
        return np.stack([x[0] * x[1] ** 2, x[0] * x[1]])

    with pytest.warns(UserWarning, match="isn't symmetric"):
        wl.sparse.jacobian(f, partition="symmetric")(np.array([2.0, 3.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient = wl.grad(problems.extended_rosenbrock)
        found = wl.sparse.jacobian(gradient, partition="symmetric")(np.arange(1.0, 7.0))
    np.testing.assert_allclose(found.toarray(), wl.hessian(problems.extended_rosenbrock)(np.arange(1.0, 7.0)))


def test_hessians_never_take_more_products_than_by_columns():
    H = wl.sparse.hessian(problems.minimal_surface).prepare(np.ones((12, 12)))
    assert H.coloring.num_colors <= wl.sparse.color(H.pattern, "column").num_colors
    assert wl.sparse.hessian(problems.banded_least_squares, decompression="substitution").prepare(
        np.ones(40)
    ).coloring.num_colors == 7  # fmt: skip


def test_large_full_hessians_are_taken_by_columns():
    """Regard for symmetry would take n^3 steps: a minute for n = 3000."""
    H = wl.sparse.hessian(lambda x: np.sum(x) ** 2)
    np.testing.assert_array_equal(H(np.ones(600)).toarray(), np.full((600, 600), 2.0))
    assert H.coloring.partition == "column"


def test_index_arrays_are_as_small_as_scipys():
    for format in ("csr", "csc", "coo"):
        found = wl.sparse.jacobian(problems.broyden_tridiagonal, format=format)(np.ones(50))
        expected = sparse.eye_array(50, format="csr").asformat(format)
        parts = found.coords if format == "coo" else (found.indices, found.indptr)
        kinds = expected.coords if format == "coo" else (expected.indices, expected.indptr)
        assert [part.dtype for part in parts] == [part.dtype for part in kinds]


def test_prepare_compiles():
    calls = []

    def f(x):
        calls.append(1)
        return x**2

    J = wl.sparse.jacobian(f).prepare(np.ones(3))
    count = len(calls)
    J(np.ones(3))
    assert len(calls) == count and "compilation" in J.report()


@pytest.mark.parametrize("size", [1, 61, 1000])
def test_plots(size):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    for made in (
        wl.sparse.jacobian(problems.broyden_tridiagonal).prepare(np.ones(size)),
        wl.sparse.color(np.eye(size), "bidirectional", "substitution"),
        wl.sparse.color(sparse.csr_array((0, size))),
    ):
        ax = made.plot()
        ax.figure.canvas.draw()
        assert f"x {size:,}" in ax.get_title()
        plt.close(ax.figure)
    picture = wl.sparse.color(np.eye(3)).plot().images[0].get_array()
    assert (picture.min(axis=2) < 1).tolist() == np.eye(3, dtype=bool).tolist()
    plt.close("all")


def test_values_can_be_traced():
    J = wl.sparse.jacobian(lambda x: x**3)
    x = np.arange(1.0, 5.0)
    np.testing.assert_allclose(J.values(x), 3 * x**2)
    np.testing.assert_allclose(wl.grad(lambda x: np.sum(J.values(x)))(x), 6 * x)
    np.testing.assert_allclose(wl.jit(J.values)(x), 3 * x**2)
    with pytest.raises(wl.TracingError, match=r"\.values"):
        wl.jit(J)(x)


@pytest.mark.parametrize("format", ["csr", "csc"])
@pytest.mark.parametrize("partition", ["symmetric", "bidirectional"])
def test_values_by_substitution_can_be_traced(partition, format):
    f = lambda x: np.sum(x[1:] ** 2 * x[:-1]) + x[0] ** 2 * np.sum(x)
    H = wl.sparse.hessian(f, partition=partition, decompression="substitution", format=format)
    x = RNG.standard_normal(8)
    expected = wl.sparse.hessian(f, format=format)
    np.testing.assert_allclose(wl.jit(H.values)(x), H(x).data, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(wl.vmap(H.values)(x[None])[0], H(x).data, rtol=1e-12, atol=1e-12)
    tangents = [wl.jvp(h.values, (x,), (x[::-1],))[1] for h in (H, expected)]
    np.testing.assert_allclose(*tangents, rtol=1e-12)
    with pytest.raises(wl.TracingError, match="values"):
        wl.jit(H)(x)


def test_pickled_without_what_was_compiled():
    J = wl.sparse.jacobian(np.sin, format="csc")
    J(np.ones(3))
    for other in (pickle.loads(pickle.dumps(J)), copy.deepcopy(J)):
        np.testing.assert_array_equal(other(np.zeros(3)).toarray(), np.eye(3))
        assert other(np.zeros(3)).format == "csc"


def test_python_numbers_and_keywords():
    def rhs(t, y, k=1.0):
        return k * y * t

    J = wl.sparse.jacobian(rhs, argnums=1)
    np.testing.assert_allclose(J(2.0, np.ones(3)).toarray(), 2 * np.eye(3))
    np.testing.assert_allclose(J(3.0, np.ones(3)).toarray(), 3 * np.eye(3))
    np.testing.assert_allclose(J(3.0, np.ones(3), k=2.0).toarray(), 6 * np.eye(3))


def test_arguments_that_are_no_arrays():
    def f(x, kind):
        return np.sin(x) if kind == "sin" else x**2

    J = wl.sparse.jacobian(f)
    np.testing.assert_allclose(J(np.ones(2), "sin").toarray(), np.cos(1.0) * np.eye(2))
    np.testing.assert_allclose(J(np.ones(2), "square").toarray(), 2 * np.eye(2))


def test_auto_takes_the_cheaper_side():
    wide = wl.sparse.jacobian(lambda x: np.stack([np.sum(x[:50] ** 2), np.sum(x[50:] ** 3)])).prepare(np.ones(100))
    assert (wide.coloring.partition, wide.coloring.num_colors) == ("row", 1)
    tall = wl.sparse.jacobian(lambda x: np.repeat(x, 50) ** 2).prepare(np.ones(2))
    assert (tall.coloring.partition, tall.coloring.num_colors) == ("column", 1)
    both = wl.sparse.jacobian(arrow).prepare(np.ones(60))
    assert both.coloring.partition == "bidirectional" and both.coloring.num_colors < 10


def test_report_and_repr():
    J = wl.sparse.jacobian(problems.broyden_tridiagonal)
    with pytest.raises(wl.ArgumentError, match="prepare"):
        J.report()
    J(np.ones(100))
    text = J.report()
    assert "100 x 100, 298 entries" in text and "3 (forward)" in text and "dense takes 100, 33.3 times" in text
    assert "broyden_tridiagonal" in repr(J) and "1" in repr(J)
    assert "Hessian times vector" in wl.sparse.hessian(problems.banded_least_squares).prepare(np.ones(30)).report()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": "columns"}, "partition is"),
        ({"decompression": "indirect"}, "decompression"),
        ({"order": "best"}, "order"),
        ({"format": "dia"}, "format is"),
        ({"coloring": [1, 2]}, "coloring is what wl.sparse.color"),
        ({"pattern": np.eye(3)}, "3 x 3, but the chosen arguments have 4"),
        ({"pattern": np.ones((3, 4))}, "has 3 rows, but the result has 4"),
        ({"argnums": 2}, "argnums=2"),
        ({"chunk_size": 0}, "chunk_size"),
    ],
)
def test_what_is_wrong_is_said(options, message):
    with pytest.raises(wl.ArgumentError, match=message):
        wl.sparse.jacobian(lambda x: x**2, **options)(np.ones(4))


def test_more_that_is_wrong_is_said():
    with pytest.raises(wl.ArgumentError, match="takes a function"):
        wl.sparse.jacobian(np.ones(3))
    with pytest.raises(wl.ArgumentError, match="without a result"):
        wl.sparse.jacobian(lambda x: None)(np.ones(3))
    with pytest.raises(wl.ArgumentError, match="returned str"):
        wl.sparse.jacobian(lambda x: "text")(np.ones(3))
    with pytest.raises(wl.ArgumentError, match="one of the two"):
        wl.sparse.jacobian(np.sin, pattern=np.eye(2), coloring=wl.sparse.color(np.eye(2)))
    with pytest.raises(wl.ArgumentError, match=r"wl.sparse.hessian needs .* scalar .* wl.sparse.jacobian"):
        wl.sparse.hessian(np.sin)(np.ones(3))
    with pytest.raises(wl.ArgumentError, match='is by "column", not by "row"'):
        wl.sparse.jacobian(np.sin, partition="row", coloring=wl.sparse.color(np.eye(3)))
    with pytest.raises(wl.ArgumentError, match="belongs to a partition"):
        wl.sparse.jacobian(np.sin, order=np.arange(3))(np.ones(3))
    for options in ({}, {"pattern": np.eye(3)}):
        with pytest.raises(wl.NoValueError, match=r"pattern=..., jit=False"):
            wl.sparse.jacobian(lambda x: x if x[0] > 0 else -x, **options)(np.ones(3))
    with pytest.raises(wl.ArgumentError, match="floating point"):
        wl.sparse.jacobian(lambda x: x * 2.0)(np.arange(3))
    with pytest.raises(wl.ArgumentError, match="symmetric"):
        wl.sparse.hessian(lambda x: np.sum(x**2), pattern=np.tril(np.ones((3, 3))))(np.ones(3))


# ---- dense Jacobians by compressed products: wl.jacobian(f, mode="auto") ----


def pieces(x, y):
    return {"sum": x[1:] + y[:-1] ** 2, "product": x * y}


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_jacobians_are_compressed(monkeypatch, dtype, jit):

    monkeypatch.setattr("wonderland.sparse.compression.WORTHWHILE", 0)
    x, y = (RNG.standard_normal(50).astype(dtype) for _ in range(2))
    compute = wl.jacobian(pieces, argnums=(0, 1))
    found = (wl.jit(compute) if jit else compute)(x, y)
    expected = wl.jacobian(pieces, argnums=(0, 1), mode="forward")(x, y)
    for key in expected:
        for one, other in zip(found[key], expected[key], strict=True):
            assert one.dtype == other.dtype == dtype and one.shape == other.shape
            np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(compute(x, y)["product"][1], np.diag(x))


@pytest.mark.parametrize("jit", [True, False])
def test_dense_jacobians_of_several_arguments_by_rows(monkeypatch, jit):
    monkeypatch.setattr("wonderland.sparse.compression.WORTHWHILE", 0)
    x, y = RNG.standard_normal((2, 60))
    matrix = np.diag(RNG.standard_normal(60))
    functions = (lambda x, y: x * y**2), (lambda x, y: x * np.sin(y) + matrix @ x)
    for argnums, f in itertools.product(((0, 1), (1, 0)), functions):
        found = (wl.jit if jit else lambda g: g)(wl.jacobian(f, argnums))(x, y)
        expected = wl.jacfwd(f, argnums)(x, y)
        for block, correct in zip(found, expected, strict=True):
            np.testing.assert_allclose(block, correct, rtol=1e-13)


def test_compressed_only_where_it_pays(monkeypatch):
    from wonderland.sparse import compression

    used = []
    original = compression.products
    monkeypatch.setattr(compression, "products", lambda *args: used.append(args[1].num_colors) or original(*args))
    W = RNG.standard_normal((60, 60))
    wl.jit(wl.jacobian(lambda x: np.tanh(W @ x)))(np.ones(60))  # dense
    wl.jit(wl.jacobian(lambda x: x**2))(np.ones(20))  # small
    wl.jacobian(lambda x: x**2)(np.ones(200))  # eager, and soon done
    assert used == []
    found = wl.jit(wl.jacobian(problems.broyden_tridiagonal))(np.ones(100))
    assert used == [3]
    np.testing.assert_array_equal(found, wl.sparse.jacobian(problems.broyden_tridiagonal)(np.ones(100)).toarray())


def test_derivatives_of_compressed_jacobians():
    x = RNG.standard_normal(40)

    def f(x):
        return x[1:] * x[:-1] ** 2

    def norm(x, mode):
        return np.sum(wl.jacobian(f, mode=mode)(x) ** 2)

    expected = wl.grad(norm)(x, "forward")
    np.testing.assert_allclose(wl.jit(wl.grad(lambda x: norm(x, "auto")))(x), expected, rtol=1e-12)
    batch = np.stack([x, 2 * x])
    found = wl.jit(wl.vmap(wl.jacobian(f)))(batch)
    np.testing.assert_allclose(found[1], wl.jacobian(f, mode="reverse")(2 * x), rtol=1e-13)
