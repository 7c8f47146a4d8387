"""Linear algebra on traced arrays: closed forms, degenerate matrices, errors, and what the table can't say."""

import subprocess
import sys

import mpmath
import numpy as np
import pytest
import scipy.linalg

import wonderland as wl
import wonderland.numpy as wnp
from wonderland.numpy.dispatch import as_function
from wonderland.ops import factors
from wonderland.scipy import linalg as wsl
from wonderland.testing import check_grads


def matrix(rng, *shape):
    return rng.normal(size=shape) + np.eye(shape[-1]) * 3


def complex_matrix(rng, *shape):
    return matrix(rng, *shape) + 1j * rng.normal(size=shape)


def hermitian(x):
    return (x + np.conj(np.swapaxes(x, -1, -2))) / 2


# Closed forms ---------------------------------------------------------------------------------------------------------


def test_log_determinant(rng):
    a = matrix(rng, 4, 4)
    np.testing.assert_allclose(wl.grad(lambda a: np.linalg.slogdet(a).logabsdet)(a), np.linalg.inv(a).T)
    np.testing.assert_allclose(wl.grad(np.linalg.det)(a), np.linalg.det(a) * np.linalg.inv(a).T)


def test_inverse_and_its_second_derivative(rng):
    a, e, f = matrix(rng, 3, 3), rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    x = np.linalg.inv(a)
    along = lambda a: wl.jvp(np.linalg.inv, (a,), (e,))[1]
    np.testing.assert_allclose(along(a), -x @ e @ x)
    np.testing.assert_allclose(wl.jvp(along, (a,), (f,))[1], x @ f @ x @ e @ x + x @ e @ x @ f @ x)


def test_third_derivative_of_solve(rng):
    """b -> a(t)^-1 b along a line is c^T (a + t e)^-1 b, whose third derivative is -6 c^T (x e)^3 x b."""
    a, e, b, c = matrix(rng, 3, 3), rng.normal(size=(3, 3)), rng.normal(size=3), rng.normal(size=3)
    f = lambda t: c @ np.linalg.solve(a + t * e, b)
    x = np.linalg.inv(a)
    expected = -6 * c @ x @ e @ x @ e @ x @ e @ x @ b
    assert wl.grad(wl.grad(wl.grad(f)))(0.0) == pytest.approx(expected)


@pytest.mark.parametrize("make", [matrix, complex_matrix])
def test_sensitivity_of_eigenvalues(rng, make):
    a, e = hermitian(make(rng, 4, 4)), hermitian(make(rng, 4, 4))
    v = np.linalg.eigh(a).eigenvectors
    expected = np.real(np.diag(v.conj().T @ e @ v))
    np.testing.assert_allclose(wl.jvp(np.linalg.eigvalsh, (a,), (e,))[1], expected)
    gradient = wl.grad(lambda a: np.linalg.eigvalsh(hermitian(a))[-1])(a)
    np.testing.assert_allclose(gradient, np.outer(v[:, -1], v[:, -1].conj()), atol=1e-12)


def test_second_order_perturbation_of_an_eigenvalue(rng):
    a, e = hermitian(matrix(rng, 4, 4)), hermitian(rng.normal(size=(4, 4)))
    w, v = np.linalg.eigh(a)
    inside = v.T @ e @ v
    expected = 2 * sum(inside[0, j] ** 2 / (w[0] - w[j]) for j in range(1, 4))
    assert wl.grad(wl.grad(lambda t: np.linalg.eigvalsh(a + t * e)[0]))(0.0) == pytest.approx(expected)


def test_gaussian_log_likelihood(rng):
    """Cholesky, a triangular solve and the log determinant: the gradient is (s^-1 - s^-1 x x^T s^-1) / 2."""
    s, x = matrix(rng, 4, 4), rng.normal(size=4)
    s = s @ s.T

    def loss(s):
        factor = np.linalg.cholesky(hermitian(s))
        z = wsl.solve_triangular(factor, x, lower=True)
        return np.sum(np.log(np.diagonal(factor))) + z @ z / 2

    inverse = np.linalg.inv(s)
    expected = (inverse - inverse @ np.outer(x, x) @ inverse) / 2
    for transform in (lambda f: f, wl.jit):
        np.testing.assert_allclose(transform(wl.grad(loss))(s), expected, atol=1e-12)


def test_fourth_derivative_of_a_gaussian_log_likelihood():
    check_grads(lambda t: np.sum(np.log(np.diagonal(np.linalg.cholesky(np.eye(2) + t * np.ones((2, 2)))))), (0.3,), 4)


def test_exponential_of_commuting_matrices(rng):
    a = rng.normal(size=(3, 3))
    for order, f in enumerate((wsl.expm, *(_derivative(wsl.expm, n) for n in (1, 2, 3)))):
        expected = np.linalg.matrix_power(a, order) @ scipy.linalg.expm(0.3 * a)
        np.testing.assert_allclose(f(0.3 * a) if order == 0 else f(a, 0.3), expected, rtol=1e-9, atol=1e-10)


def _derivative(expm, order):
    def along(a, t):
        f = lambda t: expm(t * a)
        for _ in range(order):
            f = (lambda g: lambda t: wl.jvp(g, (t,), (1.0,))[1])(f)
        return f(t)

    return along


def test_norm_of_the_exponential_when_the_direction_is_large(rng):
    a, e = rng.normal(size=(3, 3)), 1e8 * rng.normal(size=(3, 3))
    expected = scipy.linalg.expm_frechet(a, e, compute_expm=False)
    np.testing.assert_allclose(wl.jvp(wsl.expm, (a,), (e,))[1], expected, rtol=1e-10)


_STRATEGIES = {
    "reverse over reverse": lambda f, a, v, w: np.sum(wl.grad(lambda a: np.sum(wl.grad(f)(a) * v))(a) * w),
    "forward over reverse": lambda f, a, v, w: np.sum(wl.jvp(wl.grad(f), (a,), (v,))[1] * w),
    "reverse over forward": lambda f, a, v, w: np.sum(wl.grad(lambda a: wl.jvp(f, (a,), (v,))[1])(a) * w),
    "forward over forward": lambda f, a, v, w: (
        wl.jvp(lambda a: wl.jvp(f, (a,), (v,))[1], (a,), (w,))[1]
    ),
}  # fmt: skip


def _mixed_derivative(f, a, v, w):
    """The second derivative along v and w with 60 digits, by differences."""
    with mpmath.workdps(60):
        a, v, w, h = *(mpmath.matrix(x.tolist()) for x in (a, v, w)), mpmath.mpf(10) ** -18
        at = lambda s, t: f(a + s * h * v + t * h * w)
        return (at(1, 1) - at(1, -1) - at(-1, 1) + at(-1, -1)) / (4 * h * h)


@pytest.mark.parametrize("strategy", _STRATEGIES)
def test_second_derivatives_of_expm_keep_their_digits(rng, strategy):
    """Cotangents of expm are of the size of its result, far larger than the matrix they are embedded with."""
    a, v, w = np.diag([12.0, 10.0, 1.0, 1.0]) + 5 * np.triu(np.ones((4, 4))), *rng.normal(size=(2, 4, 4))
    expected = _mixed_derivative(lambda a: sum(x * x for x in mpmath.expm(a, method="taylor")), a, v, w)
    second = lambda a: _STRATEGIES[strategy](lambda a: np.sum(wsl.expm(a) ** 2), a, v, w)
    assert abs(second(a) / expected - 1) < 1e-11
    assert abs(wl.jit(second)(a) / expected - 1) < 1e-11
    stack = np.stack([a, a / 10, 0 * a])  # each with a scale of its own
    np.testing.assert_allclose(wl.vmap(second)(stack), [second(x) for x in stack], rtol=1e-12)


@pytest.mark.parametrize("dtype, rtol", [(np.float32, 1e-4), (np.complex128, 1e-11)])
def test_second_derivatives_of_expm_in_other_dtypes(rng, dtype, rtol):
    a, v = np.diag([6.0, 5.0, 1.0]) + 2 * np.triu(np.ones((3, 3))), rng.normal(size=(3, 3))
    f = lambda a: np.sum(np.real(wsl.expm(a) ** 2))
    along = wl.grad(lambda t: np.sum(np.real(wl.grad(f)((a + t * v).astype(dtype))) * v))
    expected = _mixed_derivative(lambda a: sum(x * x for x in mpmath.expm(a, method="taylor")), a, v, v)
    assert abs(along(0.0) / expected - 1) < rtol


def test_higher_derivatives_of_expm_along_a_large_direction(rng):
    a, v = matrix(rng, 3, 3), 1e6 * rng.normal(size=(3, 3))
    f = lambda t: np.sum(wsl.expm(a + t * v))
    with mpmath.workdps(60):
        start, step = mpmath.matrix(a.tolist()), mpmath.matrix(v.tolist())
        expected = mpmath.diff(lambda t: sum(mpmath.expm(start + t * step, method="taylor")), 0, 3)
    assert abs(wl.grad(wl.grad(wl.grad(f)))(0.0) / expected - 1) < 1e-11
    assert abs(wl.jet(f, (0.0,), ((1.0, 0.0, 0.0),))[1][2] / expected - 1) < 1e-11


# Conventions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0.3, [[0.1, 0.3], [1.0, 0.01]], [0.3, 0.1], [[0.3], [0.1]]])
@pytest.mark.parametrize("option", ["tol", "rtol"])
def test_the_rank_with_one_tolerance_per_matrix(rng, option, limit):
    a = np.diag([3.0, 0.5, 0.2]) + 1e-3 * rng.normal(size=(2, 2, 3, 3))
    limit = np.array(limit) / (3 if option == "rtol" else 1)
    rank = lambda a, limit: np.linalg.matrix_rank(a, **{option: limit})
    expected = rank(a, limit)
    np.testing.assert_array_equal(wl.jit(rank)(a, limit), expected)
    np.testing.assert_array_equal(wl.jvp(lambda a: rank(a, limit) + 0 * a[..., 0, 0], (a,), (a,))[0], expected)
    np.testing.assert_array_equal(wl.vmap(lambda a: rank(a, limit))(a[None])[0], expected)


def test_named_results(rng):
    a = matrix(rng, 3, 3)

    def f(a):
        r = np.linalg.qr(a).R
        return np.linalg.eigh(a @ a.T).eigenvalues[0] + np.linalg.svd(a).S[0] + np.linalg.slogdet(a).logabsdet + r[0, 0]

    assert np.isfinite(wl.grad(f)(a)).all()
    value = wl.jit(np.linalg.qr)(a)
    assert type(value).__name__ == "QRResult"
    np.testing.assert_allclose(value.Q @ value.R, a)


def test_integers_are_float64_and_float32_stays(rng):
    a = np.array([[2, 1], [1, 3]])
    for f in (np.linalg.inv, np.linalg.det, np.linalg.cholesky, np.linalg.eigvalsh, np.linalg.svdvals):
        assert wl.jit(f)(a).dtype == np.float64
        value, pull = wl.vjp(f, a.astype(np.float32))
        assert value.dtype == wl.jit(f)(a.astype(np.float32)).dtype == pull(value)[0].dtype == np.float32
    with pytest.raises(TypeError, match="float16 is unsupported in linalg"):
        wl.jit(np.linalg.inv)(a.astype(np.float16))


def test_eigenvalues_of_real_matrices_are_complex(rng):
    a = np.array([[0.0, 1.0], [-2.0, 0.5]])
    w = wl.jit(np.linalg.eigvals)(a)
    np.testing.assert_allclose(np.sort_complex(w), np.sort_complex(np.linalg.eigvals(a)))
    assert wl.jit(np.linalg.eigvals)(np.eye(2)).dtype == np.complex128  # NumPy: float64
    gradient = wl.grad(lambda a: np.sum(np.linalg.eigvals(a) ** 2).real)(a)  # tr a^2
    np.testing.assert_allclose(gradient, 2 * a.T, atol=1e-12)


def test_batches_of_right_hand_sides_are_columns(rng):
    """vmap over b alone keeps one matrix: it is factorised once."""
    a, b = matrix(rng, 3, 3), rng.normal(size=(5, 3))
    program = wl.trace(wl.vmap(lambda b: np.linalg.solve(a, b)))(b)
    (solve,) = (e for e in program.equations if e.primitive.name == "solve")
    assert solve.outputs[0].type.shape == (3, 5)
    np.testing.assert_allclose(wl.vmap(lambda b: np.linalg.solve(a, b))(b), np.linalg.solve(a, b.T).T)
    np.testing.assert_allclose(wl.jacobian(lambda b: np.linalg.solve(a, b))(b[0]), np.linalg.inv(a), atol=1e-12)


@pytest.mark.parametrize(("lower", "trans", "unit"), [(True, 0, False), (False, 2, False), (True, 1, True)])
def test_many_small_triangular_systems(rng, lower, trans, unit):
    a, b = rng.normal(size=(50, 3, 3)) + 3 * np.eye(3), rng.normal(size=(50, 3, 2))
    found = wl.vmap(lambda a, b: wsl.solve_triangular(a, b, trans, lower, unit))(a, b)
    for i in (0, 17, 49):
        np.testing.assert_allclose(found[i], scipy.linalg.solve_triangular(a[i], b[i], trans, lower, unit))


def test_wonderland_numpy_has_linalg():
    assert wl.grad(lambda x: wnp.linalg.norm(wnp.array([x, 2 * x])))(3.0) == pytest.approx(np.sqrt(5))
    assert wnp.linalg.LinAlgError is np.linalg.LinAlgError
    assert "solve" in dir(wnp.linalg)


def test_importing_wonderland_loads_no_linear_algebra():
    code = "import sys, wonderland; print([m for m in sys.modules if 'linear_algebra' in m or m == 'scipy.linalg'])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


# Singular and degenerate points ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_determinant_of_singular_matrices(rng, rank, dtype):
    """The gradient is the matrix of cofactors, and the Hessian that of minors, whatever the rank."""
    factors = rng.normal(size=(2, 4, rank)) + (1j * rng.normal(size=(2, 4, rank)) if dtype is complex else 0)
    a = np.asarray(factors[0] @ factors[1].T, dtype)
    minors = [[(-1) ** (i + j) * _minor(a, i, j) for j in range(4)] for i in range(4)]
    gradient = wl.grad(lambda a: np.real(np.linalg.det(a)))(a)
    np.testing.assert_allclose(gradient, np.conj(minors), atol=1e-11)
    e, f = rng.normal(size=(2, 4, 4))
    second = wl.jvp(lambda a: wl.jvp(np.linalg.det, (a,), (e.astype(dtype),))[1], (a,), (f.astype(dtype),))[1]
    # The coefficient of s t in det(a + s e + t f), a polynomial: by exact differences of low degree.
    roots = np.exp(2j * np.pi * np.arange(5) / 5)
    values = np.array([[np.linalg.det(a + s * e + t * f) / (s * t) for s in roots] for t in roots])
    np.testing.assert_allclose(second, values.mean() if dtype is complex else values.mean().real, atol=1e-10)


def _minor(a, i, j):
    return np.linalg.det(np.delete(np.delete(a, i, 0), j, 1))


def test_determinant_of_small_and_not_finite_matrices():
    np.testing.assert_allclose(wl.grad(np.linalg.det)(np.zeros((1, 1))), [[1.0]])
    np.testing.assert_allclose(wl.grad(np.linalg.det)(np.array([[0.0, 0.0], [0.0, 5.0]])), [[5.0, 0.0], [0.0, 0.0]])
    assert np.isnan(wl.grad(np.linalg.det)(np.array([[np.nan, 1.0], [1.0, 1.0]]))).all()
    hessian = wl.jacobian(wl.grad(np.linalg.det))(np.zeros((2, 2))).reshape(4, 4)
    np.testing.assert_allclose(hessian, [[0, 0, 0, 1], [0, 0, -1, 0], [0, -1, 0, 0], [1, 0, 0, 0]], atol=1e-15)


@pytest.mark.parametrize("a", [2 * np.eye(3), np.zeros((3, 3)), np.ones((4, 4)), np.diag([1.0, 1.0, 3.0])])
def test_repeated_eigenvalues(a):
    """Functions of eigenvalues alone, symmetric in the repeated ones, have their gradients."""
    np.testing.assert_allclose(wl.grad(lambda a: np.sum(np.linalg.eigvalsh(a)))(a), np.eye(len(a)), atol=1e-14)
    np.testing.assert_allclose(wl.grad(lambda a: np.sum(np.linalg.eigvalsh(hermitian(a)) ** 2))(a), 2 * a, atol=1e-13)
    np.testing.assert_allclose(wl.grad(lambda a: np.sum(np.linalg.svdvals(a) ** 2))(a), 2 * a, atol=1e-13)
    assert np.isfinite(wl.grad(lambda a: np.sum(np.linalg.eigh(a).eigenvectors))(a)).all()
    assert np.isfinite(wl.grad(lambda a: sum(np.sum(p) for p in np.linalg.svd(a)))(a)).all()


def test_projector_on_the_space_of_a_repeated_eigenvalue(rng):
    """It doesn't depend on the choice of eigenvectors: 1 / gap to the other space, nothing inside."""
    q = np.linalg.qr(rng.normal(size=(4, 4))).Q
    a = q @ np.diag([1.0, 1.0, 4.0, 4.0]) @ q.T
    e = hermitian(rng.normal(size=(4, 4)))

    def projector(a):
        v = np.linalg.eigh(a).eigenvectors[:, :2]
        return v @ v.T

    p = q[:, :2] @ q[:, :2].T
    mixed = p @ e @ (np.eye(4) - p) / (1.0 - 4.0)
    np.testing.assert_allclose(wl.jvp(projector, (a,), (e,))[1], mixed + mixed.T, atol=1e-12)


def test_pseudo_inverse_of_constant_rank(rng):
    """Along a curve of matrices of rank 2."""
    u, v = rng.normal(size=(4, 2)), rng.normal(size=(2, 3))
    f = lambda t: np.linalg.pinv((u + t * u**2) @ v, rcond=1e-10)
    h = 1e-4
    np.testing.assert_allclose(wl.jvp(f, (0.0,), (1.0,))[1], (f(h) - f(-h)) / (2 * h), rtol=1e-5, atol=1e-6)


def test_least_squares(rng):
    a, b = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
    x, residuals, rank, s = wl.jit(np.linalg.lstsq)(a, b)
    for found, expected in zip((x, residuals, rank, s), np.linalg.lstsq(a, b), strict=True):
        np.testing.assert_allclose(found, expected)
    check_grads(lambda a, b: np.linalg.lstsq(a, b)[:2], (a, b))
    check_grads(lambda a, b: np.linalg.lstsq(a, b)[0], (a.T, b[:3]))
    deficient = np.outer(a[:, 0], a[0])
    assert wl.jvp(lambda b: np.linalg.lstsq(deficient, b)[0] * 1.0, (b,), (b,))[0].shape == (3, 2)
    sizes = []
    wl.grad(lambda a: np.sum(np.linalg.lstsq(a, b)[0]) + (sizes.append(np.linalg.lstsq(a, b)[1].shape) or 0.0))(
        deficient
    )
    assert sizes == [np.linalg.lstsq(deficient, b)[1].shape]


@pytest.mark.parametrize("ord", [None, 1, 2, 3, 1.5, 0.5, np.inf])
def test_vector_norms_at_zero(ord):
    f = lambda x: np.linalg.norm(x, ord)
    np.testing.assert_array_equal(wl.grad(f)(np.zeros(3)), np.zeros(3))
    np.testing.assert_array_equal(wl.jvp(f, (np.zeros(3),), (np.ones(3),))[1], 0.0)
    assert np.isfinite(wl.jacobian(wl.grad(f))(np.zeros(3))).all()
    assert np.isfinite(wl.grad(f)(np.array([0.0, 2.0, -1.0]))).all()
    np.testing.assert_array_equal(wl.grad(f)(np.zeros(3, complex)), np.zeros(3))


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, 2, -2, np.inf])
def test_matrix_norms_at_zero(ord):
    gradient = wl.grad(lambda x: np.linalg.norm(x, ord))(np.zeros((3, 2)))
    np.testing.assert_array_equal(gradient, np.zeros((3, 2)))


def test_gradient_of_a_norm_is_the_unit_vector():
    x = np.array([[3.0, 0.0], [0.0, 4.0]])
    np.testing.assert_allclose(wl.grad(np.linalg.norm)(x), x / 5)
    np.testing.assert_allclose(wl.grad(lambda x: np.sum(np.linalg.norm(x, axis=1)))(x), [[1, 0], [0, 1]])
    z = np.array([3.0 + 4.0j])
    np.testing.assert_allclose(wl.grad(np.linalg.norm)(z), z / 5)


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", [wl.jit, lambda f: lambda *a: wl.vjp(f, *a)[0]], ids=["jit", "vjp"])
def test_errors_are_numpys(transform):
    for call, words in (
        (lambda: transform(np.linalg.cholesky)(-np.eye(2)), "not positive definite"),
        (lambda: transform(np.linalg.solve)(np.zeros((2, 2)), np.ones(2)), "[Ss]ingular"),
        (lambda: transform(np.linalg.inv)(np.ones((2, 2))), "[Ss]ingular"),
        (lambda: transform(np.linalg.inv)(np.ones((2, 3))), "square"),
        (lambda: transform(np.linalg.det)(np.ones(3)), "at least two-dimensional"),
        (lambda: transform(np.linalg.lstsq)(np.ones((2, 2)), np.ones(3)), "Incompatible dimensions"),
    ):
        with pytest.raises(np.linalg.LinAlgError, match=words):
            call()
    with pytest.raises(ValueError, match="don't fit"):
        transform(np.linalg.solve)(np.eye(3), np.ones(2))
    with pytest.raises(ValueError, match="Invalid norm order"):
        transform(lambda x: np.linalg.norm(x, "nonsense"))(np.eye(2))
    with pytest.raises(np.exceptions.AxisError):
        transform(lambda x: np.linalg.norm(x, axis=2))(np.eye(2))
    with pytest.raises(TypeError, match="'reduced', 'complete' and 'r'"):
        transform(lambda x: np.linalg.qr(x, "raw"))(np.eye(2))
    with pytest.raises(TypeError, match="integer"):
        transform(lambda x: np.linalg.matrix_power(x, 0.5))(np.eye(2))


def test_a_triangular_matrix_with_a_zero_on_the_diagonal():
    f = lambda a, b: wsl.solve_triangular(a, b, lower=True)
    for count in (1, 5):
        a = np.broadcast_to(np.diag([1.0, 0.0]), (count, 2, 2))
        with pytest.raises(np.linalg.LinAlgError, match="singular"):
            wl.vmap(f)(a, np.ones((count, 2)))


def test_multi_dot_multiplies_in_a_good_order():
    shapes = ((100, 2), (2, 50), (50, 3))
    program = wl.trace(lambda *arrays: np.linalg.multi_dot(arrays))(*map(np.ones, shapes))
    assert [e.outputs[0].type.shape for e in program.equations] == [(2, 3), (100, 3)]


def test_scipy_functions_under_lift(rng):
    def plain(a):
        return np.sum(scipy.linalg.expm(a)) + np.sum(scipy.linalg.cho_solve(scipy.linalg.cho_factor(a), np.ones(3)))

    a = hermitian(matrix(rng, 3, 3))
    ours = lambda a: np.sum(wsl.expm(a)) + np.sum(wsl.cho_solve(wsl.cho_factor(a), np.ones(3)))
    np.testing.assert_allclose(wl.grad(wl.lift(plain))(a), wl.grad(ours)(a))


@pytest.mark.parametrize("columns", [1, 3])
def test_factors_of_a_matrix_for_lapack_solve_for_one_column_and_for_several(rng, columns):
    """The number of columns and the factor 1.0 are arguments of one routine: 1 and 1.0 must not share their memory."""
    a, b = rng.normal(size=(40, 40)), rng.normal(size=(40, columns))
    solve = as_function(factors.lu_solve)
    solved = wl.jit(lambda a, b: solve(*as_function(factors.lu)(a), b, adjoint=False))(a, b)
    np.testing.assert_allclose(solved, np.linalg.solve(a, b), rtol=1e-9)
