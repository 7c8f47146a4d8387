"""Products of arrays: NumPy's values, types and errors; closed-form derivatives; tensor products and rank."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wonderland as wl
import wonderland.numpy as wnp


def rand(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def names(f, *args):
    return [e.primitive.name for e in wl.trace(f)(*args).equations]


# Values --------------------------------------------------------------------------------------------------------------


@st.composite
def matmul_shapes(draw):
    """Two shapes that np.matmul takes, with broadcasting leading axes."""
    m, k, n = (draw(st.integers(0, 3)) for _ in range(3))
    head = draw(st.lists(st.integers(1, 3), max_size=3))
    heads = [[1 if draw(st.booleans()) else size for size in head[draw(st.integers(0, len(head))) :]] for _ in range(2)]
    x = (*heads[0], m, k) if draw(st.booleans()) else (k,)
    y = (*heads[1], k, n) if draw(st.booleans()) else (k,)
    return x, y


@settings(max_examples=100, deadline=None)
@given(matmul_shapes())
def test_matmul_of_any_ranks(shapes):
    x, y = (rand(*s, seed=i) for i, s in enumerate(shapes))
    expected = np.matmul(x, y)
    out, pull = wl.vjp(np.matmul, x, y)
    assert np.shape(out) == np.shape(expected)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)
    weights = rand(*np.shape(out), seed=2)[()]
    for gradient, array in zip(pull(weights), (x, y)):  # linear in each operand
        assert gradient.shape == array.shape
        np.testing.assert_allclose(np.sum(gradient * array), np.sum(weights * expected), rtol=1e-9, atol=1e-10)


def test_broadcasting_repeats_nothing():
    """The leading axes that one operand lacks are free axes of one contraction."""
    x, y = rand(5, 1, 2, 3), rand(4, 3, 2)
    assert names(np.matmul, x, y) == ["reshape", "dot", "transpose"]
    gradient = wl.trace(wl.grad(lambda x, w: np.sum(np.matmul(x, y) * w)))(x, rand(5, 4, 2, 2))
    largest = max(v.type.size for e in gradient.equations for v in e.outputs)
    assert largest <= 5 * 4 * 2 * 2


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float32", "complex64"])
def test_dtypes(dtype):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 100, size=(3, 3)).astype(dtype) for _ in range(2))
    for f in (np.matmul, np.dot, np.inner, np.outer, np.kron, lambda x, y: np.tensordot(x, y, 1), np.vecdot, np.vdot):
        expected, out = f(x, y), wl.jit(f)(x, y)
        assert out.dtype == expected.dtype
        np.testing.assert_allclose(out, expected, rtol=1e-5)


@pytest.mark.parametrize("pair", [("float32", "float64"), ("int64", "float32"), ("float64", "complex64")])
def test_mixed_dtypes(pair):
    x, y = (np.arange(9).reshape(3, 3).astype(d) for d in pair)
    for f in (np.matmul, np.dot, np.vecdot, np.kron, np.outer, np.inner):
        assert wl.jit(f)(x, y).dtype == f(x, y).dtype
        for i, a in enumerate((x, y)):
            if a.dtype.kind in "fc":
                gradient = wl.grad(lambda *args, f=f: np.sum(np.real(f(*args))), i)(x, y)
                assert gradient.dtype == a.dtype


def test_python_scalars_and_lists():
    x = rand(3).astype(np.float32)
    for f in (np.dot, np.inner, np.outer, np.kron):
        assert wl.jit(functools.partial(f, 2.0))(x).dtype == f(2.0, x).dtype
    np.testing.assert_allclose(wl.grad(lambda x: np.dot(x, [1, 2, 3]))(np.ones(3)), [1, 2, 3])
    np.testing.assert_allclose(wl.grad(lambda x: np.outer(x, [[1, 2], [3, 4]]).sum())(np.ones(2)), [10, 10])
    np.testing.assert_allclose(wl.grad(lambda x: wnp.dot([x, 2 * x], [3.0, 4.0]))(1.0), 11.0)
    assert wl.grad(lambda x: x.dot(x))(np.ones(2)).tolist() == [2.0, 2.0]
    assert wl.grad(lambda x: np.sum([[1.0, 2.0]] @ x))(np.ones(2)).tolist() == [1.0, 2.0]


def test_axes_of_generalised_ufuncs():
    x, y = rand(3, 2, 4), rand(3, 4, 2, seed=1)
    for f in (
        lambda x, y: np.vecdot(x, np.swapaxes(y, 1, 2), axis=0),
        lambda x, y: np.vecdot(x, np.swapaxes(y, 1, 2), axis=1, keepdims=True),
        lambda x, y: np.vecdot(x, y, axes=[1, 2]),
        lambda x, y: np.matmul(x, y, axes=[(1, 2), (1, 2), (0, 1)]),
        lambda x, y: np.matmul(x, y, axes=[(-2, -1), (-2, -1), (0, 2)]),
    ):
        np.testing.assert_allclose(wl.jit(f)(x, y), f(x, y), rtol=1e-12)
    with pytest.raises(TypeError, match=r"np.matmul takes axes=, not axis= or keepdims="):
        wl.jit(lambda x, y: np.matmul(x, y, axis=0))(x, y)


def test_out_and_in_place():
    def f(x):
        out = wnp.zeros((2, 2))
        np.matmul(x, x.T, out=out)
        out @= x[:, :2]
        return np.sum(out)

    x = rand(2, 3)
    np.testing.assert_allclose(wl.grad(f)(x), wl.grad(lambda x: np.sum(x @ x.T @ x[:, :2]))(x), rtol=1e-12)


def test_the_notes_inner_product():
    """E2.1."""
    x, y = np.array([0.1, 0.0, -0.3]), np.array([-4.0, 0.05, 0.1])
    for f in (np.dot, np.inner, np.vdot, np.vecdot, np.matmul, lambda x, y: np.einsum("i,i->", x, y)):
        np.testing.assert_allclose(wl.value_and_grad(f)(x, y)[0], -0.43, rtol=1e-12)
        np.testing.assert_allclose(wl.grad(f)(x, y), y)


# Derivatives in closed form ------------------------------------------------------------------------------------------


def test_gradients_in_closed_form():
    a, b, w = rand(2, 3), rand(3, 4, seed=1), rand(2, 4, seed=2)
    for g, e in zip(wl.grad(lambda a, b: np.sum(w * (a @ b)), (0, 1))(a, b), (w @ b.T, a.T @ w)):
        np.testing.assert_allclose(g, e, rtol=1e-12)
    z, c = rand(3) + 1j * rand(3, seed=1), rand(3, seed=2) + 1j * rand(3, seed=3)
    gradient = wl.grad(lambda z: np.real(np.vdot(c, z)))(z)  # steepest ascent of Re <c, z>
    np.testing.assert_allclose(gradient, c, rtol=1e-12)
    gradient = wl.grad(lambda z: np.real(np.vecdot(z, c)))(z)
    np.testing.assert_allclose(gradient, c, rtol=1e-12)
    x, y, v = rand(3), rand(3, seed=1), rand(3, seed=2)
    gradient = wl.grad(lambda x: np.dot(v, np.cross(x, y)))(x)  # v . (x x y) = x . (y x v)
    np.testing.assert_allclose(gradient, np.cross(y, v), rtol=1e-12)


def test_kron_is_the_matrix_of_a_matrix_product():
    a, b, x = rand(2, 3), rand(4, 5, seed=1), rand(5, 3, seed=2)
    jacobian = wl.jacobian(lambda x: (b @ x @ a.T).T.reshape(-1))(x)  # vec(B X A') = (A (x) B) vec(X), by columns
    jacobian = np.moveaxis(jacobian, 1, 2).reshape(8, 15)
    np.testing.assert_allclose(jacobian, wl.jit(np.kron)(a, b), rtol=1e-12, atol=1e-12)


def test_cross_of_vectors_in_the_plane():
    """Their third coordinate is 0. NumPy took them up to 2.4; of two such vectors the third of the result was left."""
    x, y, u, v = rand(4, 2), rand(4, 2, seed=1), rand(3, seed=2), rand(4, 3, seed=3)
    in_space = lambda a: np.concatenate([a, np.zeros((4, 1))], axis=1)
    np.testing.assert_allclose(wl.jit(np.cross)(x, y), np.cross(in_space(x), in_space(y))[:, 2], rtol=1e-12)
    np.testing.assert_allclose(wl.jit(np.cross)(x, u), np.cross(in_space(x), u), rtol=1e-12)
    np.testing.assert_allclose(wl.jit(np.cross)(v, y), np.cross(v, in_space(y)), rtol=1e-12)
    np.testing.assert_allclose(wl.grad(lambda x: np.cross(x, y[0]))(x[0]), [y[0, 1], -y[0, 0]])


# Errors --------------------------------------------------------------------------------------------------------------

ERRORS = [
    (np.matmul, (2, 3), (4, 5), r"matmul: shapes \(2, 3\) and \(4, 5\) don't fit: 3 is not 4"),
    (np.matmul, (2, 3), (), r"operand 1 has shape \(\), and needs at least 1 dimension\(s\); use \* for scalars"),
    (np.matmul, (2, 2, 3), (3, 3, 2), r"mismatch|broadcast"),
    (np.dot, (2, 3), (2, 3), r"dot: shapes \(2, 3\) and \(2, 3\) not aligned: 3 \(dim 1\) != 2 \(dim 0\)"),
    (np.inner, (2, 3), (2, 4), r"inner: shapes \(2, 3\) and \(2, 4\) not aligned: 3 \(dim 1\) != 4 \(dim 1\)"),
    (np.vdot, (3,), (4,), r"vdot: shapes \(3,\) and \(4,\) not aligned"),
    (np.vecdot, (2, 3), (4,), r"vecdot: shapes \(2, 3\) and \(4,\) don't fit: 3 is not 4"),
    (np.tensordot, (2, 3), (4, 5), r"shape-mismatch for sum: axes \[0, 1\] of shape \(2, 3\) and axes \[0, 1\]"),
    (np.cross, (4,), (3,), r"dimension must be 2 or 3\), got shapes \(4,\) and \(3,\)"),
    (np.cross, (), (3,), r"At least one array has zero dimension"),
]  # fmt: skip


@pytest.mark.parametrize("f, x, y, message", ERRORS, ids=[f"{f.__name__}{x}{y}" for f, x, y, _ in ERRORS])
def test_errors_have_the_shapes(f, x, y, message):
    with pytest.raises(ValueError):
        f(np.ones(x), np.ones(y))
    with pytest.raises(ValueError, match=message):
        wl.grad(lambda a, b: np.sum(f(a, b)))(np.ones(x), np.ones(y))


def test_errors_of_tensordot():
    a, b = np.ones((2, 3)), np.ones((2, 3))
    for axes, message in (
        (([0], [0, 1]), r"shape-mismatch for sum: axes \[0\] of shape \(2, 3\) and axes \[0, 1\] of shape \(2, 3\)"),
        (([0, 0], [0, 0]), r"an axis of shape \(2, 3\) stands twice in \[0, 0\]"),
        (3, r"don't both have 3 axes to sum"),
    ):
        with pytest.raises(ValueError, match=message):
            wl.jit(functools.partial(np.tensordot, axes=axes))(a, b)
    with pytest.raises(np.exceptions.AxisError):
        wl.jit(lambda a, b: np.tensordot(a, b, (5, 0)))(a, b)


# Tensor products and rank --------------------------------------------------------------------------------------------


def fit(tensor, rank, seed=0, steps=200):
    """The nearest tensor of a rank: a sum of pure tensors a_r (x) b_r (x) c_r, by damped Gauss-Newton.

    Returns the factors and the squared distance. For a matrix there are two factors. Factors can be rescaled against
    each other, so that without damping J^T J is singular: a step is a least-squares problem, min |J s - r|^2 + d |s|^2.
    """
    letters = "ijk"[: tensor.ndim]
    text = ",".join(f"{a}r" for a in letters) + "->" + letters
    factors = [rand(n, rank, seed=seed + i) for i, n in enumerate(tensor.shape)]
    sizes = [f.size for f in factors]

    def unpack(p):
        parts, start = [], 0
        for n, size in zip(tensor.shape, sizes):
            parts.append(p[start : start + size].reshape(n, rank))
            start += size
        return parts

    def residual(p):
        return (np.einsum(text, *unpack(p)) - tensor).reshape(-1)

    jacobian = wl.jacobian(residual)
    p, damping = np.concatenate([f.reshape(-1) for f in factors]), 1e-2
    loss = np.sum(residual(p) ** 2)
    for _ in range(steps):
        j, r = jacobian(p), residual(p)
        damped = np.concatenate([j, np.sqrt(damping) * np.eye(p.size)])
        step = np.linalg.lstsq(damped, np.concatenate([r, np.zeros(p.size)]))[0]
        new = np.sum(residual(p - step) ** 2)
        p, loss, damping = (p - step, new, damping / 3) if new < loss else (p, loss, damping * 4)
        if loss < 1e-24:
            break
    return unpack(p), loss


def test_a_three_way_tensor_of_rank_two():
    a, b, c = rand(4, 2), rand(3, 2, seed=1), rand(5, 2, seed=2)
    tensor = np.einsum("ir,jr,kr->ijk", a, b, c)
    pure = sum(np.multiply.outer(np.multiply.outer(a[:, r], b[:, r]), c[:, r]) for r in range(2))
    np.testing.assert_allclose(tensor, pure, rtol=1e-12)
    factors, loss = fit(tensor, 2, seed=10)
    assert loss < 1e-20  # the distance itself below 1e-10
    np.testing.assert_allclose(np.einsum("ir,jr,kr->ijk", *factors), tensor, atol=1e-10)
    # The decomposition is unique up to order and scale: each pure tensor is found again.
    found = [np.einsum("i,j,k->ijk", *(f[:, r] for f in factors)) for r in range(2)]
    own = [np.einsum("i,j,k->ijk", *(f[:, r] for f in (a, b, c))) for r in range(2)]
    order = [0, 1] if np.allclose(found[0], own[0], atol=1e-8) else [1, 0]
    for r in range(2):
        np.testing.assert_allclose(found[order[r]], own[r], atol=1e-8)
    assert fit(tensor, 1, seed=10)[1] > 1e-3  # rank 1 isn't enough


def test_the_gradient_of_the_decomposition_in_closed_form():
    a, b, c, tensor = rand(4, 2), rand(3, 2, seed=1), rand(5, 2, seed=2), rand(4, 3, 5, seed=3)
    gradient = wl.grad(lambda a: 0.5 * np.sum((np.einsum("ir,jr,kr->ijk", a, b, c) - tensor) ** 2))(a)
    products = np.einsum("jr,kr->jkr", b, c).reshape(-1, 2)  # the Khatri-Rao product
    np.testing.assert_allclose(gradient, (a @ products.T - tensor.reshape(4, -1)) @ products, rtol=1e-12)


def test_the_tensor_product_is_associative_and_not_commutative():
    """(S (x) T)[i, j] = S[i] T[j]: tensordot with no axes."""

    def product(s, t):
        return np.tensordot(s, t, axes=0)

    u, v, w = rand(2), rand(3, seed=1), rand(2, 2, seed=2)
    left, right = (wl.jit(f)(u, v, w) for f in (
        lambda u, v, w: product(product(u, v), w), lambda u, v, w: product(u, product(v, w))
    ))  # fmt: skip
    assert left.shape == (2, 3, 2, 2)
    np.testing.assert_allclose(left, right, rtol=1e-12)
    np.testing.assert_allclose(left, np.einsum("i,j,kl->ijkl", u, v, w), rtol=1e-12)
    assert not np.allclose(product(u, u + 1), product(u + 1, u))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_rank_of_a_matrix_is_the_least_number_of_pure_tensors(rank):
    matrix = rand(5, rank) @ rand(rank, 4, seed=1)
    assert np.linalg.matrix_rank(matrix) == rank
    losses = [fit(matrix, r, seed=5)[1] for r in range(1, rank + 1)]
    assert losses[-1] < 1e-20
    singular = np.linalg.svd(matrix, compute_uv=False)
    for r, loss in enumerate(losses[:-1], 1):  # fewer leave exactly the other singular values (Eckart-Young)
        np.testing.assert_allclose(loss, np.sum(singular[r:] ** 2), rtol=1e-6)
