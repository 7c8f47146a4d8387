"""The problem set on which derivatives are compared: plain NumPy functions from the literature, with typical inputs.

`PROBLEMS[name]` is a `Problem`: `f(*args)`, to be differentiated with respect to `argnums`. Each function takes the
namespace `xp` that it calls (NumPy itself if nothing else is said), so that the same lines run in a peer library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erf as _erf


class Problem(NamedTuple):
    """A function, arguments to call it with, and which of them are its variables."""

    f: Callable
    args: tuple[Any, ...]
    argnums: int | tuple[int, ...] = 0


# ---- one number out ----


def rosenbrock(x: Any, *, xp: Any = np) -> Any:
    """sum_i 100 (x_{i+1} - x_i^2)^2 + (1 - x_i)^2, of any number of variables."""
    return xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def logistic_regression(w: Any, X: Any, y: Any, *, xp: Any = np) -> Any:
    """Mean of log(1 + exp(-y x'w)) over the rows x of X, with labels y in {-1, 1}, and a ridge penalty."""
    return xp.mean(xp.logaddexp(0.0, -y * (X @ w))) + 0.05 * xp.sum(w * w)


def tanh_network(params: dict[Any, Any], x: Any, y: Any, *, xp: Any = np) -> Any:
    """Mean squared error of a two-layer network with tanh: x (B, d), y (B, k)."""
    hidden = xp.tanh(x @ params["W1"] + params["b1"])
    return xp.mean((hidden @ params["W2"] + params["b2"] - y) ** 2)


def relu_network(params: dict[Any, Any], x: Any, labels: Any, *, xp: Any = np) -> Any:
    """Mean cross-entropy of a two-layer network with relu: x (B, d), integer labels (B,)."""
    hidden = xp.maximum(x @ params["W1"] + params["b1"], 0.0)
    logits = hidden @ params["W2"] + params["b2"]
    shifted = logits - xp.max(logits, axis=1, keepdims=True)
    chosen = shifted[np.arange(len(labels)), labels]
    return xp.mean(xp.log(xp.sum(xp.exp(shifted), axis=1)) - chosen)


def helmholtz_energy(x: Any, A: Any, b: Any, *, xp: Any = np) -> Any:
    """Helmholtz energy of a mixed fluid (Griewank): sum_i x_i log(x_i / (1 - b'x)) - x'Ax / (sqrt(8) b'x) log(...)."""
    bx = b @ x
    root = 2.0**0.5
    ideal = xp.sum(x * xp.log(x / (1.0 - bx)))
    return ideal - (x @ A @ x) / (2.0 * root * bx) * xp.log((1.0 + (1.0 + root) * bx) / (1.0 + (1.0 - root) * bx))


def black_scholes(S: Any, K: Any, r: Any, sigma: Any, T: Any, *, xp: Any = np, erf: Callable = _erf) -> Any:
    """Price of a European call; its derivatives are the greeks (delta by S, vega by sigma, -theta by T, rho by r)."""

    def normal_cdf(z: Any) -> Any:
        return 0.5 * (1.0 + erf(z / 2.0**0.5))

    deviation = sigma * xp.sqrt(T)
    d1 = (xp.log(S / K) + (r + 0.5 * sigma**2) * T) / deviation
    d2 = d1 - deviation
    return S * normal_cdf(d1) - K * xp.exp(-r * T) * normal_cdf(d2)


# ---- several numbers out ----


def deep_chain(x: Any, *, depth: int = 40, xp: Any = np) -> Any:
    """A map applied `depth` times, each element with its neighbour: as many outputs as inputs."""
    for _ in range(depth):
        x = x + 0.1 * xp.sin(xp.roll(x, 1))
    return x


# Lengths of the links of a six-axis arm, in metres (Denavit-Hartenberg: a along x, d along z).
ARM_A1, ARM_A2, ARM_A3 = 0.175, 0.890, 0.050
ARM_D1, ARM_D4, ARM_D6 = 0.575, 1.035, 0.185


def robot_arm(t: Any, *, xp: Any = np) -> Any:
    """Forward kinematics of an arm of 6 degrees of freedom: joint angles to position and Euler angles (z-y-z)."""
    t1, t2, t3, t4, t5, t6 = (t[i] for i in range(6))
    s1, s2, s3, s4, s5, s6 = xp.sin(t1), xp.sin(t2), xp.sin(t3), xp.sin(t4), xp.sin(t5), xp.sin(t6)
    c1, c2, c3, c4, c5, c6 = xp.cos(t1), xp.cos(t2), xp.cos(t3), xp.cos(t4), xp.cos(t5), xp.cos(t6)
    s23, c23 = s2 * c3 + c2 * s3, c2 * c3 - s2 * s3

    ax = s5 * (c1 * c23 * c4 + s1 * s4) + c1 * s23 * c5  # the hand's axes: approach a, normal n, orientation o
    ay = s5 * (s1 * c23 * c4 - c1 * s4) + s1 * s23 * c5
    az = s23 * c4 * s5 - c23 * c5
    bend = c23 * s5 + s23 * c4 * c5
    nz = bend * c6 - s23 * s4 * s6
    oz = -bend * s6 - s23 * s4 * c6

    reach = ARM_A1 + ARM_A2 * c2 + ARM_A3 * c23 + ARM_D4 * s23
    px = ARM_D6 * ax + c1 * reach
    py = ARM_D6 * ay + s1 * reach
    pz = ARM_D6 * az + ARM_D1 + ARM_A2 * s2 + ARM_A3 * s23 - ARM_D4 * c23
    phi = xp.arctan2(ay, ax)
    theta = xp.arctan2(xp.sqrt(1.0 - az**2), az)
    psi = xp.arctan2(oz, -nz)
    return xp.stack([px, py, pz, phi, theta, psi])


def roe_flux(u: Any, *, gamma: float = 1.4, xp: Any = np) -> Any:
    """Roe's flux between two states (density, momentum, energy) of a gas in one dimension, left then right: 6 to 3."""
    density_l, momentum_l, energy_l, density_r, momentum_r, energy_r = (u[i] for i in range(6))
    pressure_l = (gamma - 1.0) * (energy_l - 0.5 * momentum_l**2 / density_l)
    pressure_r = (gamma - 1.0) * (energy_r - 0.5 * momentum_r**2 / density_r)
    v_l, v_r = momentum_l / density_l, momentum_r / density_r
    h_l, h_r = (energy_l + pressure_l) / density_l, (energy_r + pressure_r) / density_r

    root_l, root_r = xp.sqrt(density_l), xp.sqrt(density_r)  # Roe's averages
    weight = root_l + root_r
    v = (root_l * v_l + root_r * v_r) / weight
    h = (root_l * h_l + root_r * h_r) / weight
    density = xp.sqrt(density_l * density_r)
    q = v**2
    a2 = (gamma - 1.0) * (h - 0.5 * q)
    a = xp.sqrt(a2)

    dp, dv = pressure_r - pressure_l, v_r - v_l  # jumps, and the waves they make
    ratio = dp / (density * a)
    scale = 0.5 * density / a
    w0 = (density_r - density_l - dp / a2) * xp.abs(v)
    w1 = scale * (dv + ratio) * xp.abs(v + a)
    w2 = scale * (dv - ratio) * xp.abs(v - a)

    mass = momentum_l + momentum_r - (w0 + w1 - w2)
    impulse = (pressure_l + momentum_l * v_l + pressure_r + momentum_r * v_r) - (w0 * v + w1 * (v + a) - w2 * (v - a))
    power = (
        v_l * (pressure_l + energy_l)
        + v_r * (pressure_r + energy_r)
        - (w0 * 0.5 * q + w1 * (h + v * a) - w2 * (h - v * a))
    )
    return xp.stack([0.5 * mass, 0.5 * impulse, 0.5 * power])


PROPANE_K = (0.193, 2.597e-3, 3.448e-3, 1.799e-5, 2.155e-4, 3.846e-5)  # equilibrium constants of equations 5 to 10


def propane_combustion(x: Any, *, p: float = 40.0, R: float = 10.0, xp: Any = np) -> Any:
    """Combustion of propane in air at pressure p and ratio R, full formulation (MINPACK-2): 11 equations."""
    x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11 = (x[i] for i in range(11))
    k5, k6, k7, k8, k9, k10 = PROPANE_K
    pressure = p / x11
    root = xp.sqrt(pressure)
    return xp.stack([
        x1 + x4 - 3.0,
        2.0 * x1 + x2 + x4 + x7 + x8 + x9 + 2.0 * x10 - R,
        2.0 * x2 + 2.0 * x5 + x6 + x7 - 8.0,
        2.0 * x3 + x9 - 4.0 * R,
        k5 * x2 * x4 - x1 * x5,
        k6 * xp.sqrt(x2 * x4) - xp.sqrt(x1) * x6 * root,
        k7 * xp.sqrt(x1 * x2) - xp.sqrt(x4) * x7 * root,
        k8 * x1 - x4 * x8 * pressure,
        k9 * x1 * xp.sqrt(x3) - x4 * x9 * root,
        k10 * x1**2 - x4**2 * x10 * pressure,
        x11 - (x1 + x2 + x3 + x4 + x5 + x6 + x7 + x8 + x9 + x10),
    ])  # fmt: skip


HEART_SIGMA = (0.485, -0.0019, -0.0581, 0.015, 0.105, 0.0406, 0.167, -0.399)  # the first data set of MINPACK-2


def heart_dipole(x: Any, *, xp: Any = np) -> Any:
    """Human heart dipole (MINPACK-2): 8 equations for moments (a, b, c, d) and places (t, u, v, w)."""
    a, b, c, d, t, u, v, w = (x[i] for i in range(8))
    sigma = HEART_SIGMA
    tv, uw = t**2 - v**2, u**2 - w**2
    tvv, vtt = t * (t**2 - 3.0 * v**2), v * (v**2 - 3.0 * t**2)
    uww, wuu = u * (u**2 - 3.0 * w**2), w * (w**2 - 3.0 * u**2)
    return xp.stack([
        a + b - sigma[0],
        c + d - sigma[1],
        t * a + u * b - v * c - w * d - sigma[2],
        v * a + w * b + t * c + u * d - sigma[3],
        a * tv - 2.0 * c * t * v + b * uw - 2.0 * d * u * w - sigma[4],
        c * tv + 2.0 * a * t * v + d * uw + 2.0 * b * u * w - sigma[5],
        a * tvv + c * vtt + b * uww + d * wuu - sigma[6],
        c * tvv - a * vtt + d * uww - b * wuu - sigma[7],
    ])  # fmt: skip


# ---- typical inputs ----


def rosenbrock_start(n: int) -> np.ndarray:
    """The usual starting point (-1.2, 1, -1.2, 1, ...)."""
    return np.where(np.arange(n) % 2, 1.0, -1.2)


def network_parameters(sizes: tuple[int, int, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Weights and biases of a two-layer network."""
    rng = np.random.default_rng(seed)
    d, hidden, k = sizes
    return {
        "W1": rng.normal(size=(d, hidden)) / d**0.5,
        "b1": 0.1 * rng.normal(size=hidden),
        "W2": rng.normal(size=(hidden, k)) / hidden**0.5,
        "b2": 0.1 * rng.normal(size=k),
    }


def _problems() -> dict[str, Problem]:
    rng = np.random.default_rng(2024)
    X = rng.normal(size=(20, 5))
    labels = np.where(X @ rng.normal(size=5) + 0.3 * rng.normal(size=20) > 0, 1.0, -1.0)
    x, y = rng.normal(size=(6, 4)), rng.normal(size=(6, 3))
    A = rng.uniform(0.5, 1.5, size=(8, 8))
    fluid = rng.uniform(0.5, 1.0, size=8), (A + A.T) / 2, rng.uniform(0.02, 0.1, size=8)
    gases = 0.5, 1.0, 0.3, 0.6, 0.4, 0.7, 0.2, 0.9, 0.8, 0.15, 5.0
    return {
        "rosenbrock": Problem(rosenbrock, (rosenbrock_start(10),)),
        "logistic_regression": Problem(logistic_regression, (0.3 * rng.normal(size=5), X, labels)),
        "tanh_network": Problem(tanh_network, (network_parameters((4, 5, 3)), x, y)),
        "relu_network": Problem(relu_network, (network_parameters((4, 5, 3), 1), x, np.argmax(y, axis=1))),
        "helmholtz_energy": Problem(helmholtz_energy, fluid),
        "robot_arm": Problem(robot_arm, (np.array([0.3, -0.5, 0.8, 0.4, 0.9, -0.7]),)),
        "roe_flux": Problem(roe_flux, (np.array([1.0, 0.4, 2.6, 0.6, 0.5, 1.7]),)),
        "propane_combustion": Problem(propane_combustion, (np.array(gases),)),
        "heart_dipole": Problem(heart_dipole, (np.array([0.3, 0.2, -0.1, 0.4, 1.1, -0.8, 0.6, 0.9]),)),
        "black_scholes": Problem(black_scholes, (100.0, 95.0, 0.03, 0.25, 0.75), (0, 1, 2, 3, 4)),
        "deep_chain": Problem(deep_chain, (rng.normal(size=4),)),
    }


PROBLEMS = _problems()
