"""Assembly of element matrices into a global one, boundary conditions, and the solution of the system."""

import numpy as np
from checking import check

import wonderland as wl

NODES = np.array([0.0, 0.3, 0.5, 0.8, 1.1, 1.5])


def solve_in_place(A, b):
    """Elimination without pivoting, in the arrays given."""
    n = len(b)
    for k in range(n):
        b[k] /= A[k, k]
        A[k, k + 1 :] /= A[k, k]
        for i in range(k + 1, n):
            A[i, k + 1 :] -= A[i, k] * A[k, k + 1 :]
            b[i] -= A[i, k] * b[k]
    for k in range(n - 2, -1, -1):
        b[k] -= A[k, k + 1 :] @ b[k + 1 :]
    return b


def bar(nodes, stiffness, load):
    """-(k u')' = f on an interval, linear elements, u = 0 on the left and u = 0.1 on the right."""
    n = len(nodes)
    K = np.zeros((n, n))
    F = np.zeros(n)
    for e in range(n - 1):
        h = nodes[e + 1] - nodes[e]
        ke = stiffness[e] / h * np.array([[1.0, -1.0], [-1.0, 1.0]])
        fe = load[e] * h / 2 * np.ones(2)
        dofs = [e, e + 1]
        K[np.ix_(dofs, dofs)] += ke
        F[dofs] += fe
    K[0, :] = 0
    K[0, 0] = 1
    F[0] = 0
    K[-1, :] = 0
    K[-1, -1] = 1
    F[-1] = 0.1
    return K, F


def displacement(nodes, stiffness, load):
    K, F = bar(nodes, stiffness, load)
    return solve_in_place(K, F)


def displacement_by_numpy(nodes, stiffness, load):
    K, F = bar(nodes, stiffness, load)
    return np.linalg.solve(K, F)


STIFFNESS = np.array([1.0, 1.4, 0.7, 1.1, 0.9])
LOAD = np.array([0.5, -0.2, 0.3, 1.0, 0.4])


def test_a_bar_assembled_with_ix():
    check(bar, NODES, STIFFNESS, LOAD)


def test_the_displacement_of_a_bar():
    value, _ = check(displacement, NODES, STIFFNESS, LOAD)
    np.testing.assert_allclose(value, displacement_by_numpy(NODES, STIFFNESS, LOAD), rtol=1e-12, atol=1e-14)


def test_the_adjoint_method_agrees():
    """d(c.u)/dk_e = -lambda' (dK/dk_e) u with K' lambda = c."""
    c = np.array([0.0, 1.0, 0.5, -1.0, 2.0, 0.0])
    gradient = wl.grad(wl.lift(lambda k: c @ displacement(NODES, k, LOAD)))(STIFFNESS)
    K, F = bar(NODES, STIFFNESS, LOAD)
    u, adjoint = np.linalg.solve(K, F), np.linalg.solve(K.T, c)
    expected = []
    for e in range(5):
        dK = np.zeros((6, 6))
        dK[e : e + 2, e : e + 2] = np.array([[1, -1], [-1, 1]]) / (NODES[e + 1] - NODES[e])
        dK[[0, -1]] = 0
        expected.append(-adjoint @ dK @ u)
    np.testing.assert_allclose(gradient, expected, rtol=1e-11)


def test_the_solution_by_numpys_solver():
    check(displacement_by_numpy, NODES, STIFFNESS, LOAD)


POINTS = np.array([[0.0, 0.0], [1.0, 0.1], [2.0, 0.0], [0.1, 1.0], [1.1, 1.2], [2.0, 1.0]])
TRIANGLES = np.array([[0, 1, 3], [1, 4, 3], [1, 2, 4], [2, 5, 4]])


def triangle_stiffness(p):
    """The stiffness matrix and the area of a triangle with corners p, shape (3, 2)."""
    b = np.array([p[1, 1] - p[2, 1], p[2, 1] - p[0, 1], p[0, 1] - p[1, 1]])
    c = np.array([p[2, 0] - p[1, 0], p[0, 0] - p[2, 0], p[1, 0] - p[0, 0]])
    area = 0.5 * (b[0] * c[1] - b[1] * c[0])
    ke = np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            ke[i, j] = (b[i] * b[j] + c[i] * c[j]) / (4.0 * area)
    return ke, area


def membrane(points, conductivity):
    n = len(points)
    K, F = np.zeros((n, n)), np.zeros(n)
    for tri, k in zip(TRIANGLES, conductivity):
        ke, area = triangle_stiffness(points[tri])
        K[np.ix_(tri, tri)] += k * ke
        np.add.at(F, tri, area / 3)
    for fixed in (0, 2):
        K[fixed, :] = 0.0
        K[:, fixed] = 0.0
        K[fixed, fixed] = 1.0
        F[fixed] = 0.0
    return K, F


def test_triangles():
    check(membrane, POINTS, [1.0, 0.5, 2.0, 1.5])
    value, _ = check(lambda p, k: solve_in_place(*membrane(p, k)), POINTS, np.array([1.0, 0.5, 2.0, 1.5]))
    K, F = membrane(POINTS, [1.0, 0.5, 2.0, 1.5])
    np.testing.assert_allclose(K @ value, F, atol=1e-13)


def vectorised_assembly(points, conductivity):
    """All triangles at once, added by np.add.at into the flat matrix."""
    n = len(points)
    p = points[TRIANGLES]  # (triangles, 3, 2)
    edge = p[:, [2, 0, 1]] - p[:, [1, 2, 0]]
    area = 0.5 * (edge[:, 0, 0] * edge[:, 1, 1] - edge[:, 0, 1] * edge[:, 1, 0])
    ke = np.einsum("eid,ejd->eij", edge, edge) * (conductivity / (4 * area))[:, None, None]
    K = np.zeros(n * n)
    rows = np.repeat(TRIANGLES, 3, axis=1).ravel()
    columns = np.tile(TRIANGLES, (1, 3)).ravel()
    np.add.at(K, rows * n + columns, ke.ravel())
    return K.reshape(n, n)


def test_assembly_of_all_triangles_at_once():
    conductivity = np.array([1.0, 0.5, 2.0, 1.5])
    value, _ = check(vectorised_assembly, POINTS, conductivity)
    by_loop = np.zeros((6, 6))
    for tri, k in zip(TRIANGLES, conductivity):
        by_loop[np.ix_(tri, tri)] += k * triangle_stiffness(POINTS[tri])[0]
    np.testing.assert_allclose(value, by_loop, atol=1e-13)


def repeated_indices(x):
    """`F[index] += v` counts a repeated index once; np.add.at counts it every time."""
    once, each = np.zeros(3), np.zeros(3)
    index = np.array([0, 1, 1, 0])
    once[index] += x
    np.add.at(each, index, x)
    return once, each


def test_repeated_indices():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    check(repeated_indices, x)
    once, each = wl.jacobian(wl.lift(repeated_indices))(x)
    np.testing.assert_array_equal(once, [[0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(each, [[1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]])


def test_truss_with_rotated_elements():
    joints = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.8]])
    bars = [(0, 1), (1, 2), (0, 2)]

    def stiffness(joints, area):
        K = np.zeros((6, 6))
        for (i, j), a in zip(bars, area):
            d = joints[j] - joints[i]
            length = np.sqrt(d @ d)
            T = np.zeros((2, 4))
            T[0, :2] = T[1, 2:] = d / length
            dofs = np.array([2 * i, 2 * i + 1, 2 * j, 2 * j + 1])
            K[dofs[:, None], dofs] += a / length * T.T @ np.array([[1.0, -1.0], [-1.0, 1.0]]) @ T
        return K

    check(stiffness, joints, np.array([1.0, 2.0, 0.5]))
