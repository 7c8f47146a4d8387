"""Minima of a convex quadratic function plus absolute values of linear ones: a primal-dual interior-point method.

In: g, H and w of g'(v - w) + (v - w)'H(v - w) / 2, and `Kinks`, sum_k rate_k |a_k'v - b_k|. Out: v. This is the step
of a lasso, of absolute loss, and of both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

ROUNDS = 100  # most problems take 10 to 20
NEAR, SMALL = 1e-4, 1e-12  # of the first gap: where the exact solution is tried, and where the method ends


@dataclass(frozen=True)
class Kinks:
    """sum_k rate_k |a_k'v - b_k|, rates above zero: rows (m, d), offsets (m,), rates (m,)."""

    rows: np.ndarray
    offsets: np.ndarray
    rates: np.ndarray

    def value(self, v: np.ndarray) -> float:
        return float(np.sum(self.rates * np.abs(self.rows @ v - self.offsets)))


def kinked_minimum(gradient: np.ndarray, bend: np.ndarray, w: np.ndarray, kinks: Kinks) -> np.ndarray:
    """argmin over v of g'(v - w) + (v - w)'H(v - w) / 2 + kinks(v), for a positive semidefinite H.

    Each |r| is the largest u r for -1 <= u <= 1. With r = s - t, s and t >= 0, and rates taken into u, the optimum has

        g + H (v - w) + A'u = 0,   A v - b = s - t,   s (rate - u) = 0,   t (rate + u) = 0

    and Newton's method goes there with the last two held at a common value that shrinks to zero (S. Mehrotra, On the
    implementation of a primal-dual interior point method, 1992). Which r are zero is clear long before the digits
    are: a linear system with them fixed then gives all digits, and zeros that are zeros.
    """
    A, b, rate = kinks.rows, kinks.offsets, kinks.rates
    v, u = w.copy(), np.zeros(len(b))
    r = A @ v - b
    diagonal = np.diag(bend)
    alone = A @ (gradient / np.where(diagonal > 0, diagonal, 1))  # how far each coordinate would go by itself
    size = float(np.mean(np.abs(r) + np.abs(alone))) or 1.0
    s, t = np.maximum(r, 0) + size, np.maximum(-r, 0) + size
    scale, first = 1 + float(np.max(np.abs(gradient))), 2 * size * float(np.mean(rate))
    for _ in range(ROUNDS):
        over, under = rate - u, rate + u
        dual, primal = gradient + bend @ (v - w) + A.T @ u, A @ v - b - s + t
        gap = float(s @ over + t @ under) / (2 * len(b))
        if gap <= NEAR * first and (found := exact(gradient, bend, w, kinks, u, s / size, t / size)) is not None:
            return found
        small = np.max(np.abs(dual)) <= SMALL * scale and np.max(np.abs(primal)) <= SMALL * (size + np.max(np.abs(b)))
        if small and gap <= SMALL * first:
            break
        spread = s / over + t / under
        matrix = bend + (A.T / spread) @ A
        factor = factored(matrix)

        def step(s_goal: np.ndarray, t_goal: np.ndarray) -> tuple[np.ndarray, ...]:
            """(dv, du, ds, dt) with s (rate - u) = s_goal and t (rate + u) = t_goal to first order."""
            q = s_goal / over - s - t_goal / under + t - primal  # noqa: B023
            dv = factor(A.T @ (q / spread) - dual)  # noqa: B023
            du = (A @ dv - q) / spread  # noqa: B023
            return dv, du, s_goal / over - s + s / over * du, t_goal / under - t - t / under * du  # noqa: B023

        def reach(du: np.ndarray, ds: np.ndarray, dt: np.ndarray) -> float:
            """How far all stay positive."""
            ends = [1.0]
            for now, change in ((over, -du), (under, du), (s, ds), (t, dt)):  # noqa: B023
                down = change < 0
                if np.any(down):
                    ends.append(float(np.min(-now[down] / change[down])))
            return min(ends)

        dv, du, ds, dt = step(np.zeros_like(s), np.zeros_like(t))
        far = reach(du, ds, dt)
        after = float((s + far * ds) @ (over - far * du) + (t + far * dt) @ (under + far * du)) / (2 * len(b))
        goal = (after / gap) ** 3 * gap if gap > 0 else 0.0
        dv, du, ds, dt = step(goal + ds * du, goal - dt * du)
        far = min(1.0, 0.995 * reach(du, ds, dt))
        v, u, s, t = v + far * dv, u + far * du, s + far * ds, t + far * dt
        s, t = np.maximum(s, 1e-300), np.maximum(t, 1e-300)
        u = np.clip(u, -rate * (1 - 1e-16), rate * (1 - 1e-16))
        if far < 1e-10:
            break
    return v


def exact(
    gradient: np.ndarray, bend: np.ndarray, w: np.ndarray, kinks: Kinks, u: np.ndarray, s: np.ndarray, t: np.ndarray
) -> np.ndarray | None:
    """The minimum, if those a_k'v = b_k, and the signs of the others, are as u, s and t have them; else None."""
    A, b, rate = kinks.rows, kinks.offsets, kinks.rates
    on = np.maximum(s, t) < np.minimum(rate - u, rate + u) / rate
    sign = np.where(on, 0.0, np.sign(s - t))
    d, held = len(w), A[on]
    system = np.block([[bend, held.T], [held, np.zeros((len(held), len(held)))]])
    right = np.concatenate([bend @ w - gradient - A.T @ (rate * sign), b[on]])
    found = solved_indefinite(system, right)
    if found is None:
        return None
    v, multipliers = found[:d], found[d:]
    one = np.count_nonzero(held, axis=1) == 1  # these say v_j = b / a: with all digits
    column = np.argmax(held != 0, axis=1)[one]
    v[column] = b[on][one] / held[one, column]
    r = A @ v - b
    good = np.all(np.abs(multipliers) <= rate[on] * (1 + SMALL)) and np.all(sign * r >= -SMALL * np.max(np.abs(r)))
    return v if good else None


def factored(matrix: np.ndarray):
    """A function that solves with a positive semidefinite matrix, whatever the units of its coordinates."""
    diagonal = np.diag(matrix)
    units = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))
    scaled = matrix * np.outer(units, units)
    try:
        factor = scipy.linalg.cho_factor(scaled, lower=True)
        return lambda b: units * scipy.linalg.cho_solve(factor, units * b)
    except np.linalg.LinAlgError:
        return lambda b: units * np.linalg.lstsq(scaled, units * b, rcond=1e-13)[0]


def solved_indefinite(matrix: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """The solution of a symmetric system, the shortest if there are several, None if there is none."""
    with np.errstate(all="ignore"):
        for solve in (np.linalg.solve, lambda matrix, b: np.linalg.lstsq(matrix, b, rcond=1e-13)[0]):
            try:
                found = solve(matrix, b)
            except np.linalg.LinAlgError:
                continue
            if np.max(np.abs(matrix @ found - b)) <= 1e-10 * (1 + np.max(np.abs(b))):
                return found
    return None
