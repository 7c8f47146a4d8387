"""Particle simulations: pairwise forces accumulated in place, velocity Verlet, collisions, cells, random walks."""

import numpy as np
from checking import check

import wonderland as wl

POSITIONS = np.array([[0.0, 0.0], [1.1, 0.2], [0.3, 1.2], [1.4, 1.3]])
VELOCITIES = np.array([[0.1, -0.2], [0.0, 0.3], [-0.1, 0.1], [0.2, 0.0]])
MASSES = np.array([1.0, 2.0, 0.5, 1.5])


def forces_by_pairs(pos, mass):
    n = len(pos)
    force = np.zeros_like(pos)
    for i in range(n):
        for j in range(i + 1, n):
            d = pos[j] - pos[i]
            r2 = np.sum(d**2) + 0.01
            f = mass[i] * mass[j] * d / r2**1.5
            force[i] += f
            force[j] -= f
    return force


def forces_at_once(pos, mass):
    d = pos[None, :, :] - pos[:, None, :]
    r2 = np.sum(d**2, axis=-1) + 0.01
    pull = mass[:, None] * mass[None, :] / r2**1.5
    return np.sum(pull[:, :, None] * d, axis=1)


def forces_by_neighbour_list(pos, mass):
    first = np.array([0, 0, 0, 1, 1, 2])
    second = np.array([1, 2, 3, 2, 3, 3])
    d = pos[second] - pos[first]
    f = (mass[first] * mass[second] / (np.sum(d**2, axis=1) + 0.01) ** 1.5)[:, None] * d
    force = np.zeros(pos.shape)
    np.add.at(force, first, f)
    np.subtract.at(force, second, f)
    return force


def test_forces_by_pairs():
    value, _ = check(forces_by_pairs, POSITIONS, MASSES)
    np.testing.assert_allclose(value, forces_at_once(POSITIONS, MASSES), rtol=1e-12)


def test_forces_by_a_neighbour_list():
    value, _ = check(forces_by_neighbour_list, POSITIONS, MASSES)
    np.testing.assert_allclose(value, forces_at_once(POSITIONS, MASSES), rtol=1e-12)


def velocity_verlet(pos, vel, mass, dt=0.05, steps=3, force=forces_at_once):
    a = force(pos, mass) / mass[:, None]
    for _ in range(steps):
        vel += 0.5 * dt * a
        pos += dt * vel
        a = force(pos, mass) / mass[:, None]
        vel += 0.5 * dt * a
    return pos, vel


def test_velocity_verlet():
    check(velocity_verlet, POSITIONS, VELOCITIES, MASSES)


def test_momentum_is_conserved_and_so_is_its_derivative():
    def momentum(pos):
        _, vel = velocity_verlet(pos, np.array(VELOCITIES), MASSES, force=forces_by_pairs)
        return np.sum(MASSES[:, None] * vel, axis=0)

    np.testing.assert_allclose(wl.jacobian(wl.lift(momentum))(POSITIONS), 0.0, atol=1e-13)


def lennard_jones_with_cutoff(pos, cutoff=1.6):
    """Decisions on distances, and a potential accumulated with the forces."""
    n = len(pos)
    force, energy = np.zeros_like(pos), 0.0
    for i in range(n):
        for j in range(i):
            d = pos[i] - pos[j]
            r2 = d @ d
            if r2 > cutoff**2:
                continue
            inverse = 1.0 / r2
            sixth = inverse**3
            energy += 4 * (sixth**2 - sixth)
            f = 24 * (2 * sixth**2 - sixth) * inverse * d
            force[i] += f
            force[j] -= f
    return energy, force


def test_the_force_is_minus_the_gradient_of_the_energy():
    spread = POSITIONS * 1.1 + 0.01
    (_, force), _ = check(lennard_jones_with_cutoff, spread, h=1e-4, jit=False, vmap=False)
    gradient = wl.grad(wl.lift(lambda p: lennard_jones_with_cutoff(p)[0]))(spread)
    np.testing.assert_allclose(gradient, -force, rtol=1e-11)


def walls(pos, vel, dt=0.4, steps=4):
    for _ in range(steps):
        pos += dt * vel
        outside = (pos < 0) | (pos > 1)
        vel[outside] *= -1  # a boolean mask, by values
        pos[pos < 0] *= -1
        pos[pos > 1] = 2 - pos[pos > 1]
    return pos, vel


def test_reflecting_walls_by_masks():
    inside = np.array([[0.2, 0.8], [0.5, 0.4], [0.9, 0.1]])
    check(walls, inside, np.array([[0.7, 0.9], [-0.8, 0.3], [0.6, -0.5]]), h=1e-4, jit=False, vmap=False)


def walls_by_where(pos, vel, dt=0.4, steps=4):
    for _ in range(steps):
        pos += dt * vel
        outside = (pos < 0) | (pos > 1)
        np.copyto(vel, -vel, where=outside)
        pos[...] = np.where(pos < 0, -pos, np.where(pos > 1, 2 - pos, pos))
    return pos, vel


def test_reflecting_walls_by_where():
    inside = np.array([[0.2, 0.8], [0.5, 0.4], [0.9, 0.1]])
    check(walls_by_where, inside, np.array([[0.7, 0.9], [-0.8, 0.3], [0.6, -0.5]]), h=1e-4)


def particle_in_cell(x, charge, cells=5):
    """Charge onto a grid with linear weights (a scatter), a field, and back (a gather)."""
    left = np.array([0, 1, 1, 3])
    weight = x - left
    density = np.zeros(cells)
    np.add.at(density, left, charge * (1 - weight))
    np.add.at(density, left + 1, charge * weight)
    field = np.zeros(cells)
    field[1:-1] = 0.5 * (density[:-2] - density[2:])
    field[0], field[-1] = -density[1], density[-2]
    return (1 - weight) * field[left] + weight * field[left + 1]


def test_particle_in_cell():
    check(particle_in_cell, np.array([0.3, 1.2, 1.7, 3.4]), np.array([1.0, -0.5, 0.8, 1.2]))


class System:
    """State in attributes, moved in place by methods."""

    def __init__(self, pos, vel):
        self.pos = np.array(pos, dtype=float)
        self.vel = np.array(vel, dtype=float)
        self.log = np.zeros(3)

    def kick(self, dt):
        self.vel[:, 1] -= dt * 9.8
        self.vel *= 0.99

    def drift(self, dt):
        self.pos += dt * self.vel

    def run(self, dt):
        for i in range(len(self.log)):
            self.kick(dt)
            self.drift(dt)
            self.log[i] = self.energy
        return self.pos, self.log

    @property
    def energy(self):
        return 0.5 * np.sum(self.vel**2) + 9.8 * np.sum(self.pos[:, 1])


def test_state_in_an_object():
    check(lambda pos, vel, dt: System(pos, vel).run(dt), POSITIONS, VELOCITIES, 0.05)


def random_walk(x, sigma):
    """Random numbers are NumPy's own: constants of the derivative."""
    rng = np.random.default_rng(7)
    path = np.empty(6)
    path[0] = x
    for i in range(5):
        path[i + 1] = 0.9 * path[i] + sigma * rng.normal()
    return path


def test_random_walk_with_a_fixed_seed():
    check(random_walk, 0.4, 0.3)


def spins(s, field):
    for _ in range(3):
        for i in range(len(s)):
            s[i] = np.tanh(field[i] + 0.5 * (s[i - 1] + s[(i + 1) % len(s)]))
    return s


def test_mean_field_sweeps():
    check(spins, np.array([0.1, -0.3, 0.5, 0.2]), np.array([0.2, 0.0, -0.4, 0.3]))
