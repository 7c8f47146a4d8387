"""`LSMR`: least squares and least norm, for operators of any shape, by products with A and A' alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.implicit.loops import repeat
from wonderland.implicit.reports import Report
from wonderland.implicit.systems.krylov import Krylov, norm, preconditioned, ratio, told


@dataclass(frozen=True)
class LSMR(Krylov):
    """LSMR (Fong and Saunders, 2011): least squares for m > n, the x of least norm for m < n.

    It stops as well where A' r, for the residual r = b - A x, is small: ||A' r|| <= tol ||A|| ||r||, with an estimate
    of the norm of A. A preconditioner is on the shorter side of A, which then has full rank: A M y = b, x = M y for m
    >= n, and M A x = M b for m < n; the diagonal of one over the norms of the columns is a common one.
    """

    def iterate(self, A: Any, kept: Any, b: Any, atol: Any, transposed: bool) -> tuple[Any, Report]:
        """x and how it went."""
        m, n = A.shape
        A = A.expanded()
        adjoint = A.transposed()
        near, back = (preconditioned(kept, t) for t in (False, True))
        # C = A M, or M A, and its adjoint
        forward = (lambda v: A.matvec(near(v))) if m >= n else (lambda v: near(A.matvec(v)))
        backward = (lambda v: back(adjoint.matvec(v))) if m >= n else (lambda v: adjoint.matvec(back(v)))
        M = near
        if transposed:
            forward, backward, M = backward, forward, back
        inside = transposed == (m < n)  # is the unknown y of x = M y?
        right = b if inside else M(b)
        tol, goal, maxiter = self.limits(A, right, atol)
        with np.errstate(all="ignore"):
            x, converged, count = _iterate(forward, backward, right, tol, goal, maxiter)
        x = M(x) if inside else x
        size = norm(b)  # of zeros nothing is left, whatever A is
        residual = np.where(size == 0, size, norm(b - (adjoint if transposed else A).matvec(x)))
        return told(x, residual, converged, count, maxiter)


def _rotation(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """c, s and r with c a + s b = r and s a - c b = 0."""
    r = np.hypot(a, b)
    return ratio(a, r), ratio(b, r), r


def _iterate(forward: Any, backward: Any, b: Any, tol: Any, goal: Any, maxiter: int) -> tuple[Any, Any, Any]:
    """x, whether it converged, and the iterations; in the letters of the paper."""
    beta = norm(b)
    u = ratio(b, beta)
    v = backward(u)
    alpha = norm(v)
    v = ratio(v, alpha)
    zero, one = 0 * beta, 1 + 0 * beta

    def converged(state: Any) -> Any:
        size, normal, residual = state[-4:-1]
        return (residual <= goal) | (normal <= tol * size * residual)

    def unfinished(state: Any) -> Any:
        return ~converged(state) & (state[-1] < maxiter) & np.isfinite(state[-2])

    def step(state: Any) -> Any:
        (x, u, v, h, h_bar, alpha, alpha_bar, zeta, zeta_bar, rho, rho_bar, c_bar, s_bar, beta_dd, beta_d, rho_d,
         tau, theta_tilde, square, _, _, _, count) = state  # fmt: skip
        u = forward(v) - alpha * u  # Golub and Kahan: beta u = C v - alpha u, alpha v = C' u - beta v
        beta = norm(u)
        u = ratio(u, beta)
        v = backward(u) - beta * v
        alpha = norm(v)
        v = ratio(v, alpha)
        rho_old, rho_bar_old, zeta_old = rho, rho_bar, zeta
        c, s, rho = _rotation(alpha_bar, beta)
        theta = s * alpha
        alpha_bar = c * alpha
        theta_bar = s_bar * rho
        c_bar, s_bar, rho_bar = _rotation(c_bar * rho, theta)
        zeta, zeta_bar = c_bar * zeta_bar, -s_bar * zeta_bar
        h_bar = h - ratio(theta_bar * rho, rho_old * rho_bar_old) * h_bar
        x = x + ratio(zeta, rho * rho_bar) * h_bar
        h = v - ratio(theta, rho) * h
        # The norm of the residual, by rotations of the upper bidiagonal matrix
        beta_hat, beta_dd = c * beta_dd, -s * beta_dd
        c_tilde, s_tilde, rho_tilde = _rotation(rho_d, theta_bar)
        theta_old, theta_tilde = theta_tilde, s_tilde * rho_bar
        rho_d, beta_d = c_tilde * rho_bar, c_tilde * beta_hat - s_tilde * beta_d
        tau = ratio(zeta_old - theta_old * tau, rho_tilde)
        last = ratio(zeta - theta_tilde * tau, rho_d)
        residual = np.sqrt((beta_d - last) ** 2 + beta_dd**2)
        square = square + beta * beta
        size, normal = np.sqrt(square), abs(zeta_bar)
        return (
            x, u, v, h, h_bar, alpha, alpha_bar, zeta, zeta_bar, rho, rho_bar, c_bar, s_bar, beta_dd, beta_d, rho_d,
            tau, theta_tilde, square + alpha * alpha, size, normal, residual, count + 1,
        )  # fmt: skip

    x = np.zeros_like(v)
    state = (
        x, u, v, v, x, alpha, alpha, zero, alpha * beta, one, one, one, zero, beta, zero, one,
        zero, zero, alpha * alpha, alpha, alpha * beta, beta, 0,
    )  # fmt: skip
    out = repeat(unfinished, step, state)
    return out[0], converged(out), out[-1]
