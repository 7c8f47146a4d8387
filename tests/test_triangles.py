"""Functions that read one triangle of a matrix: values and derivatives are those of what NumPy and SciPy compute."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.linalg as la

import wonderland as wl
from wonderland.scipy import linalg as wsl
from wonderland.testing import check_grads

B = np.array([1.0, -2.0, 0.5])
PAIR = np.array([[3.0, 9.0, 9.0], [0.2, 4.0, 9.0], [-0.3, 0.1, 5.0]])

# name -> (the function, with np.linalg and scipy.linalg or ours in its place; does it read the lower triangle?)
FUNCTIONS = {
    "cholesky": (lambda m, a: np.linalg.cholesky(a), True),
    "cholesky upper": (lambda m, a: np.linalg.cholesky(a, upper=True), False),
    "eigvalsh": (lambda m, a: np.linalg.eigvalsh(a), True),
    "eigvalsh U": (lambda m, a: np.linalg.eigvalsh(a, "U"), False),
    "eigh": (lambda m, a: np.abs(np.linalg.eigh(a).eigenvectors), True),
    "eigh U": (lambda m, a: np.abs(np.linalg.eigh(a, UPLO="U")[1]), False),
    "svd of a Hermitian one": (lambda m, a: np.linalg.svd(a, compute_uv=False, hermitian=True), True),
    "pinv of a Hermitian one": (lambda m, a: np.linalg.pinv(a, hermitian=True), True),
    **{
        f"scipy's {name}, {'lower' if lower else 'upper'}": (lambda m, a, f=f, lower=lower: f(m, a, lower), lower)
        for lower in (False, True)
        for name, f in {
            "cholesky": lambda m, a, lower: m.cholesky(a, lower=lower),
            "cho_solve": lambda m, a, lower: m.cho_solve(m.cho_factor(a, lower), B),
            "eigh": lambda m, a, lower: np.abs(m.eigh(a, lower=lower)[1]),
            "eigvalsh": lambda m, a, lower: m.eigvalsh(a, lower=lower),
            "eigvalsh of a pair": lambda m, a, lower: m.eigvalsh(a, PAIR if lower else PAIR.T, lower=lower),
            "solve_triangular": lambda m, a, lower: m.solve_triangular(a, B, lower=lower),
            "solve sym": lambda m, a, lower: m.solve(a, B, assume_a="sym", lower=lower),
            "solve her": lambda m, a, lower: m.solve(a, B, assume_a="hermitian", lower=lower),
            "solve pos": lambda m, a, lower: m.solve(a, B, assume_a="pos", lower=lower),
            "solve triangular": (
                lambda m, a, lower: m.solve(a, B, assume_a=f"{'lower' if lower else 'upper'} triangular")
            ),
        }.items()
    },
}  # fmt: skip
RANDOM = np.random.default_rng(5).normal(size=(4, 3, 3))
REAL = np.diag([5.0, 7.0, 9.0]) + RANDOM[0]
MATRICES = {"real": REAL, "complex": REAL + 1j * RANDOM[1]}
DIRECTIONS = {"real": RANDOM[2], "complex": RANDOM[2] + 1j * RANDOM[3]}


def _real(x):
    return np.real(x) + 2 * np.imag(x) if x.dtype.kind == "c" else x


@pytest.mark.parametrize("kind", MATRICES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_what_is_computed(name, kind):
    f, lower = FUNCTIONS[name]
    a, t = MATRICES[kind], DIRECTIONS[kind]
    unread = np.triu(np.ones((3, 3), bool), 1)
    unread = unread if lower else unread.T
    h = 1e-5
    expected = (f(la, a + h * t) - f(la, a - h * t)) / (2 * h)  # of NumPy and SciPy themselves, in any direction
    ours = lambda a: f(wsl, a)
    for run in (lambda g: g, wl.jit) if kind == "complex" else (lambda g: g,):
        value, tangent = run(lambda a: wl.jvp(ours, (a,), (t,)))(a)
        np.testing.assert_allclose(value, f(la, a), atol=1e-12)
        np.testing.assert_allclose(tangent, expected, rtol=1e-6, atol=1e-8)
    weights = np.cos(np.arange(expected.size)).reshape(expected.shape)
    loss = lambda a: np.sum(_real(ours(a)) ** 2 * weights)
    gradient = wl.grad(loss)(a)
    assert not gradient[unread].any()
    assert np.vdot(gradient, t).real == pytest.approx(wl.jvp(loss, (a,), (t,))[1])
    stack = np.stack([a, a + 0.1 * t])
    each = np.stack([wl.grad(loss)(x) for x in stack])
    np.testing.assert_allclose(wl.vmap(wl.grad(loss))(stack), each, rtol=1e-9, atol=1e-12)
    check_grads(loss, (a,), order=2)


def test_closed_forms_of_two_rows():
    """Of [[a, ?], [b, c]] the factor's last element is sqrt(c - b^2 / a), and eigenvalues are (a + c) / 2 -+ r."""
    a, b, c, unread = 4.0, 1.0, 3.0, 50.0
    x = np.array([[a, unread], [b, c]])
    root = np.sqrt(c - b * b / a)
    slope = [[b * b / (2 * a * a * root), 0.0], [-b / (a * root), 1 / (2 * root)]]
    np.testing.assert_allclose(wl.grad(lambda x: np.linalg.cholesky(x)[1, 1])(x), slope)
    np.testing.assert_allclose(wl.grad(lambda x: np.linalg.cholesky(x, upper=True)[1, 1])(x.T), np.transpose(slope))
    r = np.hypot((a - c) / 2, b)
    slope = [[0.5 + (a - c) / (4 * r), 0.0], [b / r, 0.5 - (a - c) / (4 * r)]]
    np.testing.assert_allclose(wl.grad(lambda x: np.linalg.eigvalsh(x)[1])(x), slope)
    second = wl.hessian(lambda x: np.linalg.eigvalsh(x, "U")[1])(x.T)
    assert second[0, 1, 0, 1] == pytest.approx(1 / r - b * b / r**3)
    assert not second[1, 0].any() and not second[:, :, 1, 0].any()


def test_code_that_fills_one_triangle_has_its_derivative():
    """d/dt of what a loop over one half of the matrix writes; the other half is never made."""

    def half(t):
        a = np.zeros((3, 3))
        for i in range(3):
            for j in range(i + 1):
                a[i, j] = np.exp(-t * (i - j) ** 2) + 0.5 * (i == j)
        return a

    whole = lambda t: np.exp(-t * (np.arange(3)[:, None] - np.arange(3)) ** 2) + 0.5 * np.eye(3)

    def f(a):
        return np.array([
            np.linalg.eigvalsh(a)[0], np.sum(np.linalg.cholesky(a)), *la.solve(a, B, assume_a="pos", lower=True)
        ])  # fmt: skip

    expected = (f(whole(0.3 + 1e-6)) - f(whole(0.3 - 1e-6))) / 2e-6
    composed = wl.lift(lambda t: f(half(t)))
    np.testing.assert_allclose(wl.jit(composed)(0.3), f(whole(0.3)))
    np.testing.assert_allclose(wl.jacrev(composed)(0.3), expected, rtol=1e-7)
    np.testing.assert_allclose(wl.jacfwd(composed)(0.3), expected, rtol=1e-7)


@pytest.mark.parametrize("f", [np.linalg.cholesky, np.linalg.eigvalsh, lambda a: np.linalg.eigvalsh(a, "U")])
def test_symmetrising_first_gives_the_symmetric_derivative(f):
    a = (REAL + REAL.T) / 2
    gradient = wl.grad(lambda a: np.sum(np.sin(f((a + a.T) / 2))))(a)
    np.testing.assert_allclose(gradient, gradient.T, atol=1e-14)
    plain = wl.grad(lambda a: np.sum(np.sin(f(a))))(a)
    np.testing.assert_allclose(gradient, (plain + plain.T) / 2, atol=1e-14)


@pytest.mark.parametrize("structure", ["diagonal", "tridiagonal"])
def test_the_bands_that_are_read(structure):
    a, t, h = MATRICES["real"], DIRECTIONS["real"], 1e-6
    f = lambda a: la.solve(a, B, assume_a=structure)
    value, tangent = wl.jvp(lambda a: wsl.solve(a, B, assume_a=structure), (a,), (t,))
    np.testing.assert_allclose(value, f(a))
    np.testing.assert_allclose(tangent, (f(a + h * t) - f(a - h * t)) / (2 * h), atol=1e-8)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("structure", ["her", "pos"])
def test_the_inverse_of_a_structured_matrix(structure, lower):
    a = MATRICES["complex"]
    part = np.tril(a, -1) if lower else np.triu(a, 1)
    whole = part + part.conj().T + np.diag(np.diag(a).real)
    found = wl.jit(lambda a: wsl.inv(a, assume_a=structure, lower=lower))(a)
    np.testing.assert_allclose(found, np.linalg.inv(whole), atol=1e-14)


def test_a_matrix_that_is_not_positive_definite_is_refused_as_by_scipy():
    a = -np.eye(3)
    with pytest.raises(np.linalg.LinAlgError):
        la.solve(a, B, assume_a="pos")
    for run in (wl.jit, wl.grad):
        with pytest.raises(np.linalg.LinAlgError):
            run(lambda a: np.sum(wsl.solve(a, B, assume_a="pos")))(a)


def test_an_unknown_structure_is_refused_as_by_scipy():
    with pytest.raises(ValueError, match="square is not a recognized matrix structure"):
        wl.jit(lambda a: wsl.solve(a, B, assume_a="square"))(np.eye(3))


def test_scipys_functions_lifted_before_ours_are_loaded(tmp_path):
    """The first call in a process is as good as the second, also of lists of traced numbers."""
    code = """
import numpy as np, scipy.linalg as la, wonderland as wl

def f(a):
    s = la.cho_solve(la.cho_factor(a), [1.0, a[0, 1]])
    return np.sum(s) + np.linalg.multi_dot([a, s])[0] + la.expm([[a[0, 0], 0.0], [1.0, a[1, 1]]])[1, 0]

def plain(a):
    s = np.linalg.solve(np.triu(a) + np.triu(a, 1).T, np.array([1.0, a[0, 1]]))
    return np.sum(s) + (a @ s)[0] + la.expm(np.array([[a[0, 0], 0.0], [1.0, a[1, 1]]]))[1, 0]

a, t = np.array([[2.0, 0.5], [0.3, 3.0]]), np.array([[0.3, -0.2], [0.7, 0.4]])
expected = (plain(a + 1e-6 * t) - plain(a - 1e-6 * t)) / 2e-6
for _ in range(2):
    assert abs(np.sum(wl.grad(wl.lift(f))(a) * t) - expected) < 1e-7
"""
    script = tmp_path / "script.py"  # lift reads sources
    script.write_text(code)
    subprocess.run([sys.executable, "-c", f"import runpy; runpy.run_path({str(script)!r})"], check=True)
