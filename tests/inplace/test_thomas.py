"""Linear systems solved in place: Thomas, Gauss, LU, Cholesky, Gram-Schmidt, conjugate gradients, Horner."""

import numpy as np
import pytest
from checking import check, close

import wonderland as wl

N = 6
LOWER = 0.3 * np.sin(np.arange(N) + 1.0)
UPPER = 0.4 * np.cos(np.arange(N) + 0.5)
MAIN = 2.0 + 0.1 * np.arange(N)
RIGHT = np.array([1.0, -0.5, 2.0, 0.3, 0.7, -1.1])
MATRIX = np.array([[0.2, 1.4, -0.3, 0.5], [1.1, 0.3, 0.6, -0.2], [-0.4, 0.8, 1.7, 0.3], [2.1, -0.3, 0.2, 0.9]])


def thomas(a, b, c, d):
    """Solve the tridiagonal system in place: c and d are overwritten, d becomes the solution."""
    n = len(d)
    c[0] /= b[0]
    d[0] /= b[0]
    for i in range(1, n):
        m = b[i] - a[i] * c[i - 1]
        c[i] /= m
        d[i] = (d[i] - a[i] * d[i - 1]) / m
    for i in range(n - 2, -1, -1):
        d[i] -= c[i] * d[i + 1]
    return d


def tridiagonal(a, b, c):
    return np.diag(b) + np.diag(a[1:], -1) + np.diag(c[:-1], 1)


def test_thomas_in_place():
    value, _ = check(thomas, LOWER, MAIN, UPPER, RIGHT)
    np.testing.assert_allclose(value, np.linalg.solve(tridiagonal(LOWER, MAIN, UPPER), RIGHT), rtol=1e-13)


def test_thomas_has_the_derivative_of_the_inverse():
    """d x = A^-1 (d b - dA x)."""
    inverse = np.linalg.inv(tridiagonal(LOWER, MAIN, UPPER))
    solution = inverse @ RIGHT
    jacobians = wl.jacobian(wl.lift(thomas), argnums=(0, 1, 2, 3))(LOWER, MAIN, UPPER, RIGHT)
    np.testing.assert_allclose(jacobians[3], inverse, atol=1e-14)
    np.testing.assert_allclose(jacobians[1], -inverse * solution, atol=1e-14)
    np.testing.assert_allclose(jacobians[0][:, 1:], -inverse[:, 1:] * solution[:-1], atol=1e-14)
    np.testing.assert_allclose(jacobians[2][:, :-1], -inverse[:, :-1] * solution[1:], atol=1e-14)


def implicit_heat(u, kappa, steps=3):
    n = len(u)
    for _ in range(steps):
        a, b, c = np.full(n, -kappa), np.full(n, 1 + 2 * kappa), np.full(n, -kappa)
        b[0] = b[-1] = 1.0
        c[0] = a[-1] = 0.0
        u = thomas(a, b, c, u.copy())
    return u


def test_implicit_heat_steps():
    check(implicit_heat, RIGHT, 0.4)


def gauss(A, b):
    """Elimination with partial pivoting, by values."""
    A, b = A.copy(), b.copy()
    n = len(b)
    for k in range(n - 1):
        p = k + np.argmax(np.abs(A[k:, k]))
        if p != k:
            A[[k, p]] = A[[p, k]]
            b[k], b[p] = b[p].copy(), b[k].copy()
        for i in range(k + 1, n):
            factor = A[i, k] / A[k, k]
            A[i, k:] -= factor * A[k, k:]
            b[i] -= factor * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return x


def test_gauss_elimination_with_pivoting():
    value, _ = check(gauss, MATRIX, RIGHT[:4], jit=False, vmap=False)
    np.testing.assert_allclose(value, np.linalg.solve(MATRIX, RIGHT[:4]), rtol=1e-12)


def largest(column):
    """The place of the largest number, by comparisons in Python."""
    best = 0
    for i in range(1, len(column)):
        if abs(column[i]) > abs(column[best]):
            best = i
    return best


def lu(A):
    """L and U in the place of A; returns them with the permutation's sign."""
    n = A.shape[0]
    sign = 1.0
    for k in range(n):
        p = k + largest(A[k:, k])
        if p != k:
            A[[k, p], :] = A[[p, k], :]
            sign = -sign
        A[k + 1 :, k] /= A[k, k]
        A[k + 1 :, k + 1 :] -= A[k + 1 :, k, np.newaxis] * A[k, k + 1 :]
    return A, sign


def determinant(A):
    factors, sign = lu(A)
    out = sign
    for i in range(len(factors)):
        out *= factors[i, i]
    return out


def test_lu_in_place_and_the_determinant():
    check(lambda A: lu(A)[0], MATRIX, jit=False, vmap=False)
    gradient = wl.grad(wl.lift(determinant))(MATRIX)
    np.testing.assert_allclose(gradient, np.linalg.det(MATRIX) * np.linalg.inv(MATRIX).T, rtol=1e-12)


def cholesky(A):
    n = len(A)
    L = np.zeros((n, n))
    for j in range(n):
        L[j, j] = np.sqrt(A[j, j] - np.sum(L[j, :j] ** 2))
        for i in range(j + 1, n):
            L[i, j] = (A[i, j] - np.dot(L[i, :j], L[j, :j])) / L[j, j]
    return L


def test_cholesky_by_columns():
    spd = MATRIX @ MATRIX.T + np.eye(4)
    value, _ = check(cholesky, spd)
    np.testing.assert_allclose(value, np.linalg.cholesky(spd), rtol=1e-12, atol=1e-14)


def gram_schmidt(A):
    """Modified Gram-Schmidt: the columns of A become orthonormal, in place."""
    n = A.shape[1]
    R = np.zeros((n, n))
    for j in range(n):
        v = A[:, j]  # a view
        for i in range(j):
            R[i, j] = A[:, i] @ v
            v -= R[i, j] * A[:, i]
        R[j, j] = np.sqrt(v @ v)
        v /= R[j, j]
    return A, R


def test_gram_schmidt_through_column_views():
    (q, r), _ = check(gram_schmidt, MATRIX)
    np.testing.assert_allclose(q @ r, MATRIX, atol=1e-14)


def householder(A):
    n = A.shape[1]
    R = A.copy()
    for k in range(n):
        x = R[k:, k].copy()
        x[0] += np.sign(x[0]) * np.sqrt(np.sum(x**2))
        x /= np.sqrt(np.sum(x * x))
        R[k:, k:] -= 2.0 * np.outer(x, x @ R[k:, k:])
    return R


def test_householder_triangulation():
    value, _ = check(householder, MATRIX[:, :3])
    np.testing.assert_allclose(np.abs(value[:3]), np.abs(np.linalg.qr(MATRIX[:, :3])[1]), atol=1e-13)


def conjugate_gradients(A, b, steps=4):
    x = np.zeros_like(b)
    r = b - A @ x
    p = r.copy()
    rr = r @ r
    for _ in range(steps):
        Ap = A @ p
        alpha = rr / (p @ Ap)
        x += alpha * p
        r -= alpha * Ap
        new = r @ r
        p *= new / rr
        p += r
        rr = new
    return x


def test_conjugate_gradients():
    spd = MATRIX @ MATRIX.T + np.eye(4)
    check(lambda A, b: conjugate_gradients(A, b, 3), spd, RIGHT[:4])
    jacobian = wl.jacobian(wl.lift(conjugate_gradients), argnums=1)(spd, RIGHT[:4])
    np.testing.assert_allclose(jacobian, np.linalg.inv(spd), atol=1e-9)


def power_iteration(A, steps=30):
    v = np.ones(A.shape[0])
    for _ in range(steps):
        v[:] = A @ v
        v /= np.sqrt(np.sum(v**2))
    return v @ A @ v


def test_power_iteration_has_the_eigenvectors_derivative():
    A = MATRIX @ MATRIX.T
    v = np.linalg.eigh(A)[1][:, -1]
    gradient = wl.grad(wl.lift(power_iteration))(A)
    close((gradient + gradient.T) / 2, np.outer(v, v), 1e-8)


def horner(coefficients, x):
    acc = np.zeros_like(x)
    for c in coefficients:
        acc *= x
        acc += c
    return acc


def test_horner():
    c, x = np.array([2.0, -1.0, 0.5, 3.0]), np.linspace(-1, 1, 5)
    value, _ = check(horner, c, x)
    np.testing.assert_allclose(value, np.polyval(c, x), rtol=1e-13)
    np.testing.assert_allclose(wl.jacobian(wl.lift(horner))(c, x), np.vander(x, 4), atol=1e-14)


def horner_of_a_number(coefficients, x):
    acc = 0.0
    for c in coefficients:
        acc *= x
        acc += c
    return acc


def test_horner_of_a_number():
    check(horner_of_a_number, np.array([2.0, -1.0, 0.5, 3.0]), 0.7)


def divided_differences(x, y):
    c = y.copy()
    n = len(x)
    for k in range(1, n):
        c[k:] = (c[k:] - c[k - 1 : -1]) / (x[k:] - x[:-k])
    return c


def test_newton_interpolation():
    check(divided_differences, np.array([0.0, 0.5, 1.3, 2.0]), RIGHT[:4])


def test_compiled_pivoting_says_what_it_needs():
    with pytest.raises(wl.NoValueError, match=r"test_thomas\.py:\d+"):
        wl.jit(wl.lift(lu))(MATRIX)
