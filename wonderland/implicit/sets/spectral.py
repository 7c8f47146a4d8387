"""Functions of symmetric matrices (..., n, n) through their eigenvalues, with derivatives that never divide by a gap.

The rule of `eigh` leaves out what the vectors of a repeated eigenvalue contribute to each other, and V f(w) V' needs
it. So the derivative is not that of the decomposition, but that of an equation which the function solves: S = sqrt(x^2
+ c I) has S dS + dS S = x dx + dx x + dc I, a Lyapunov equation, whose solution is again defined by an equation.
Eigenvalues and vectors are only the way to solve it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from wonderland.control.custom import custom_jvp
from wonderland.implicit.systems.linear import solved
from wonderland.implicit.systems.operators import Operator
from wonderland.transform.derivatives import stop_gradient


def _assembled(v: Any, w: Any) -> Any:
    """V diag(w) V'."""
    return (v * w[..., None, :]) @ np.swapaxes(v, -1, -2)


def _symmetric(x: Any) -> Any:
    return x + np.swapaxes(x, -1, -2)


class Lyapunov(Operator):
    """y -> s y + y s for matrices y, as flat vectors; s (..., n, n) is symmetric, with no eigenvalue below 0."""

    leaves: ClassVar[tuple[str, ...]] = ("s",)

    def __init__(self, s: Any):
        self.s = s

    @property
    def shape(self) -> tuple[int, int]:
        size = math.prod(self.s.shape)
        return size, size

    def matvec(self, v: Any) -> Any:
        y = np.reshape(v, self.s.shape)
        return np.ravel(self.s @ y + y @ self.s)

    def transposed(self) -> Operator:
        return self


@dataclass(frozen=True)
class BySpectrum:
    """Solves Lyapunov's equation with the eigenvalues and vectors of s, which are kept; 0 where w_i + w_j is 0."""

    def solve(self, A: Lyapunov, kept: Any, b: Any, transposed: bool = False) -> Any:
        """y, in the basis of the eigenvectors a division."""
        w, v = kept
        turned, total = np.swapaxes(v, -1, -2), w[..., :, None] + w[..., None, :]
        inside = turned @ np.reshape(b, v.shape) @ v / np.where(total > 0, total, 1)
        return np.ravel(v @ np.where(total > 0, inside, 0) @ turned)


def _lyapunov(s: Any, w: Any, v: Any, c: Any) -> Any:
    """y with s y + y s = c, for s = V diag(w) V'."""
    return np.reshape(solved(Lyapunov(s), np.ravel(c), BySpectrum(), (w, v)), s.shape)


def _decomposed(x: Any) -> tuple[Any, Any]:
    """Eigenvalues, with those that are 0 but for rounding 0, and vectors; as constants, once for all derivatives."""
    x = stop_gradient(x)
    finite = np.all(np.isfinite(x), axis=(-2, -1), keepdims=True)
    w, v = np.linalg.eigh(np.where(finite, x, 0))  # of NaN it would raise, for a whole stack
    w = np.where(finite[..., 0], w, np.nan)
    size = np.max(np.abs(w), axis=-1, keepdims=True, initial=0)
    return np.where(np.abs(w) <= np.shape(x)[-1] * np.finfo(x.dtype).eps * size, 0, w), v


@custom_jvp
def _root_of_square(x: Any, shift: Any, w: Any, v: Any) -> Any:
    return _assembled(v, np.hypot(w, np.sqrt(shift)[..., None]))


@_root_of_square.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    (x, shift, w, v), (dx, dshift, *_) = primals, tangents
    root = _root_of_square(x, shift, w, v)
    size = np.hypot(w, np.sqrt(stop_gradient(shift))[..., None])
    change = _symmetric(x @ dx) + dshift[..., None, None] * np.eye(np.shape(x)[-1], dtype=x.dtype)
    return root, _lyapunov(root, size, v, change)


def root_of_square(x: Any, shift: Any) -> Any:
    """sqrt(x^2 + shift I) of symmetric x, for a number `shift` > 0 of each matrix."""
    return _root_of_square(x, shift, *_decomposed(x))


def positive_part(x: Any, zeros_move: bool) -> Any:
    """V diag(max(w, 0)) V' of symmetric x. A zero eigenvalue has derivative 1, or 0 if not `zeros_move`."""

    @custom_jvp
    def part(x: Any, w: Any, v: Any) -> Any:
        return _assembled(v, np.maximum(w, 0))

    @part.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple:
        (x, w, v), (dx, *_) = primals, tangents
        absolute = _root_of_square(x, np.zeros(np.shape(x)[:-2], x.dtype), w, v)
        moved = _lyapunov(absolute, np.abs(w), v, _symmetric(x @ dx))
        kernel = _assembled(v, np.where(w == 0, 1, 0).astype(x.dtype))  # its projector, where the equation says nothing
        return part(x, w, v), (dx + moved + (1 if zeros_move else -1) * (kernel @ dx @ kernel)) / 2

    return part(x, *_decomposed(x))
