"""Iterative solvers with short recurrences: `CG`, `MINRES`, `BiCGStab`. Of A they need products with vectors alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from wonderland.implicit.loops import repeat
from wonderland.implicit.systems.krylov import Square, going, inner, norm, ratio


@dataclass(frozen=True)
class CG(Square):
    """Conjugate gradients (Hestenes and Stiefel, 1952): A, and the preconditioner, symmetric positive definite.

    They aren't checked; where A isn't symmetric, the answer is wrong or doesn't come.
    """

    symmetric: ClassVar[bool] = True

    def attempt(self, A: Callable, M: Callable, r: Any, goal: Any, budget: Any) -> tuple[Any, Any]:
        """d with A d about r, and how many iterations it took."""
        limit = norm(r) / np.finfo(r.dtype).eps

        def unfinished(state: Any) -> Any:
            _, r, _, _, count, broken = state
            return going(norm(r), goal, limit) & (count < budget) & ~broken

        def step(state: Any) -> Any:
            d, r, p, rho, count, _ = state
            q = A(p)
            curvature = inner(p, q).real
            broken = ~np.isfinite(curvature) | (curvature == 0) | (rho == 0)
            alpha = np.where(broken, 0 * rho, ratio(rho, curvature))
            d, r = d + alpha * p, r - alpha * q
            z = M(r)
            new = inner(r, z).real
            return d, r, z + ratio(new, rho) * p, new, count + 1, broken

        z = M(r)
        d, *_, count, _ = repeat(unfinished, step, (np.zeros_like(r), r, z, inner(r, z).real, 0, np.False_))
        return d, count


@dataclass(frozen=True)
class MINRES(Square):
    """The minimal residual method (Paige and Saunders, 1975): A symmetric, definite or not.

    A preconditioner is symmetric positive definite.
    """

    symmetric: ClassVar[bool] = True

    def attempt(self, A: Callable, M: Callable, r: Any, goal: Any, budget: Any) -> tuple[Any, Any]:
        """d with A d about r, and how many iterations it took."""
        eps = np.finfo(r.dtype).eps
        y = M(r)
        first = np.sqrt(inner(r, y).real)
        goal = first * (goal / norm(r))  # estimates are in the norm of M
        zero, zeros = 0 * first, np.zeros_like(r)

        # Lanczos: beta_k+1 v_k+1 = A v_k - alpha_k v_k - beta_k v_k-1, of which r1, r2 are the last two; the QR of the
        # tridiagonal matrix, with the rotation (c, s), turns the right-hand side into phi's.
        def unfinished(state: Any) -> Any:
            estimate, count, ended = state[-3:]
            return ~(estimate <= goal) & (count < budget) & ~ended

        def step(state: Any) -> Any:
            d, w1, w, r1, r2, y, beta_old, beta, delta_bar, epsilon, c, s, square, estimate, count, _ = state
            v = ratio(y, beta)
            y = A(v) - ratio(beta, beta_old) * r1
            alpha = inner(v, y).real
            y = y - ratio(alpha, beta) * r2
            r1, r2 = r2, y
            y = M(r2)
            beta_old, beta = beta, np.sqrt(np.maximum(inner(r2, y).real, zero))
            square = square + alpha * alpha + beta_old * beta_old + beta * beta
            epsilon_old, delta, gamma_bar = epsilon, c * delta_bar + s * alpha, s * delta_bar - c * alpha
            epsilon, delta_bar = s * beta, -c * beta
            size = np.sqrt(square)
            gamma = np.hypot(gamma_bar, beta)
            singular = ~(gamma > 10 * eps * size)  # the residual is the least that there is, though it isn't small
            c, s = ratio(gamma_bar, gamma), ratio(beta, gamma)
            w1, w = w, ratio(v - epsilon_old * w1 - delta * w, gamma)
            d = np.where(singular, d, d + c * estimate * w)
            ended = singular | (beta == 0)
            return (
                d, w1, w, r1, r2, y, beta_old, beta, delta_bar, epsilon, c, s, square, s * estimate, count + 1, ended,
            )  # fmt: skip

        state = (zeros, zeros, zeros, zeros, r, y, zero, first, zero, zero, zero - 1, zero, zero, first, 0, np.False_)
        out = repeat(unfinished, step, state)
        return out[0], out[-2]


@dataclass(frozen=True)
class BiCGStab(Square):
    """Stabilised biconjugate gradients (van der Vorst, 1992): any square A, two products an iteration, little memory.

    The preconditioner is on the right: A M y = b, x = M y.
    """

    def attempt(self, A: Callable, M: Callable, r: Any, goal: Any, budget: Any) -> tuple[Any, Any]:
        """d with A d about r, and how many iterations it took."""
        eps = np.finfo(r.dtype).eps
        shadow, size = r, norm(r)

        def unfinished(state: Any) -> Any:
            r, count, broken = state[1], *state[-2:]
            return going(norm(r), goal, size / eps) & (count < budget) & ~broken

        def step(state: Any) -> Any:
            d, r, p, v, rho_old, alpha, omega, count, _ = state
            rho = inner(shadow, r)
            p = r + ratio(rho, rho_old) * ratio(alpha, omega) * (p - omega * v)
            ahead = M(p)
            v = A(ahead)
            along = inner(shadow, v)
            alpha = ratio(rho, along)
            s = r - alpha * v
            across = M(s)
            t = A(across)
            omega = ratio(inner(t, s), inner(t, t))
            lost = ~(abs(rho) > eps * size * norm(r)) | (along == 0) | ~np.isfinite(abs(alpha) + abs(omega))
            d = np.where(lost, d, d + alpha * ahead + omega * across)
            r = np.where(lost, r, s - omega * t)
            return d, r, p, v, rho, alpha, omega, count + 1, lost | (omega == 0)

        zeros = np.zeros_like(r)
        one = r.dtype.type(1)
        state = (zeros, r, zeros, zeros, one, one, one, 0, np.False_)
        out = repeat(unfinished, step, state)
        return out[0], out[-2]
