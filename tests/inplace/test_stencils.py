"""Finite differences: heat, wave and advection equations, ghost cells, relaxation."""

import numpy as np
from checking import check

import wonderland as wl

U = np.array([0.3, -0.7, 1.1, 0.4, 0.9, -0.2, 0.5, 1.3])
GRID = np.sin(np.arange(30.0)).reshape(5, 6) + 1.5


def difference(x):
    n = len(x)
    out = np.zeros(n)
    out[1:-1] = x[2:] - x[:-2]
    return out


def test_central_difference():
    _, (gradient,) = check(difference, U)
    matrix = np.eye(8, k=1) - np.eye(8, k=-1)
    matrix[[0, -1]] = 0
    np.testing.assert_array_equal(wl.jacobian(wl.lift(difference))(U), matrix)
    assert gradient.shape == U.shape


def heat(u0, kappa, steps=10, dt=0.1):
    u = u0.copy()
    new = np.empty_like(u)  # a work array, swapped with u at every step
    for _ in range(steps):
        new[0] = u[0]
        new[-1] = u[-1]
        new[1:-1] = u[1:-1] + dt * kappa * (u[2:] - 2 * u[1:-1] + u[:-2])
        u, new = new, u
    return u


def test_heat_equation_with_swapped_work_arrays():
    check(heat, U, 0.7)


def heat_in_place(u, kappa, steps=5):
    for _ in range(steps):
        flux = u[1:] - u[:-1]
        u[1:-1] += 0.1 * kappa[1:-1] * (flux[1:] - flux[:-1])
        u[0] = u[1]  # insulated
        u[-1] = u[-2]
    return np.sum(u**2)


def test_heat_equation_in_the_callers_array():
    check(heat_in_place, U, U**2 + 0.5)


def heat_2d(u, kappa, steps=4):
    u = np.array(u, dtype=float)
    lap = np.zeros(u.shape)
    for _ in range(steps):
        lap[1:-1, 1:-1] = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        u += 0.05 * kappa * lap
        u[0, :] = u[1, :]
        u[:, -1] = 0.0
    return u


def test_heat_equation_in_the_plane():
    check(heat_2d, GRID, 0.8)


def wave(u0, speed, steps=6, dt=0.1):
    n = u0.size
    u = np.zeros((3, n))  # three time levels in one array, used in turn
    u[0] = u0
    u[1] = u[0]
    c2 = (speed * dt) ** 2
    for k in range(1, steps):
        old, now, new = u[(k - 1) % 3], u[k % 3], u[(k + 1) % 3]
        new[1:-1] = 2 * now[1:-1] - old[1:-1] + c2 * (now[2:] - 2 * now[1:-1] + now[:-2])
        new[0] = new[-1] = 0.0
    return u[steps % 3]


def test_wave_equation_with_three_levels():
    check(wave, U, 1.4)


def laplacian_with_ghosts(x, h):
    n, m = x.shape
    padded = np.zeros((n + 2, m + 2))
    padded[1:-1, 1:-1] = x
    padded[0, 1:-1] = x[-1]  # periodic up and down
    padded[-1, 1:-1] = x[0]
    padded[1:-1, 0] = x[:, 0]  # mirrored left and right
    padded[1:-1, -1] = x[:, -1]
    out = -4.0 * x
    out += padded[2:, 1:-1]
    out += padded[:-2, 1:-1]
    out += padded[1:-1, 2:]
    out += padded[1:-1, :-2]
    out /= h**2
    return out


def test_laplacian_with_ghost_cells():
    check(laplacian_with_ghosts, GRID, 0.3)


def upwind(q, velocity, steps=5, courant=0.3):
    q = q.copy()
    flux = np.zeros(len(q) + 1)
    for _ in range(steps):
        positive = np.maximum(velocity, 0.0)
        negative = np.minimum(velocity, 0.0)
        flux[1:-1] = positive[1:] * q[:-1] + negative[:-1] * q[1:]
        flux[0] = flux[-2]
        flux[-1] = flux[1]
        q -= courant * (flux[1:] - flux[:-1])
    return q


def test_upwind_advection():
    check(upwind, U, np.cos(U) - 0.5)


def upwind_by_cell(q, velocity, dt=0.2):
    """Python decisions on values: the derivative is that of the path taken."""
    n = len(q)
    out = np.zeros(n)
    for i in range(n):
        if velocity[i] > 0:
            out[i] = q[i] - dt * velocity[i] * (q[i] - q[i - 1])
        else:
            out[i] = q[i] - dt * velocity[i] * (q[(i + 1) % n] - q[i])
    return out


def test_upwind_with_decisions_on_values():
    check(upwind_by_cell, U, np.cos(3 * U), jit=False, vmap=False)


def burgers(u, nu, steps=6, dt=0.05):
    u = np.asarray(u, dtype=float).copy()
    dudx, d2u = np.zeros_like(u), np.zeros_like(u)
    for _ in range(steps):
        np.subtract(u[2:], u[:-2], out=dudx[1:-1])
        np.multiply(dudx, 0.5, out=dudx)
        d2u[1:-1] = u[2:] - 2.0 * u[1:-1] + u[:-2]
        u += dt * (nu * d2u - u * dudx)
    return u


def test_burgers_equation_with_out_arguments():
    check(burgers, U, 0.2)


def jacobi(u, f, sweeps=8):
    u = u.copy()
    for _ in range(sweeps):
        u[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - f[1:-1, 1:-1])
    return u


def gauss_seidel(u, f, sweeps=2, omega=1.2):
    n, m = u.shape
    for _ in range(sweeps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                relaxed = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - f[i, j])
                u[i, j] = (1 - omega) * u[i, j] + omega * relaxed
    return np.sum(u**2)


def red_black(u, f, sweeps=3):
    for _ in range(sweeps):
        for colour in (0, 1):
            for row in range(1, u.shape[0] - 1):
                start = 1 + (row + colour) % 2
                inside = slice(start, -1, 2)
                left, right = slice(start - 1, -2, 2), slice(start + 1, None, 2)
                count = len(range(*inside.indices(u.shape[1])))
                around = u[row - 1, inside] + u[row + 1, inside] + u[row, left][:count] + u[row, right][:count]
                u[row, inside] = 0.25 * (around - f[row, inside])
    return u


def test_jacobi_sweeps():
    check(jacobi, GRID, np.cos(GRID))


def test_gauss_seidel_sweeps():
    check(gauss_seidel, GRID, np.cos(GRID))


def test_red_black_sweeps():
    check(red_black, GRID, np.cos(GRID))


def multigrid_restrict_and_prolong(r):
    coarse = np.zeros((len(r) + 1) // 2)
    coarse[1:-1] = 0.25 * (r[1:-3:2] + 2 * r[2:-2:2] + r[3:-1:2])
    coarse[0], coarse[-1] = r[0], r[-1]
    fine = np.zeros(len(r))
    fine[::2] = coarse
    fine[1::2] += 0.5 * (coarse[:-1] + coarse[1:])
    r -= fine
    return r


def test_restriction_and_prolongation():
    check(multigrid_restrict_and_prolong, np.append(U, 0.4))


def fourth_order_stencil_by_loop(x):
    weights = [1 / 12, -2 / 3, 0.0, 2 / 3, -1 / 12]
    n = len(x)
    out = np.zeros(n - 4)
    for k, w in enumerate(weights):
        if w:
            out += w * x[k : n - 4 + k]
    return out


def test_a_loop_over_stencil_weights():
    check(fourth_order_stencil_by_loop, U)
