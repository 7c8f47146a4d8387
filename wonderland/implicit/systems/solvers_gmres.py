"""`GMRES`: the smallest residual in a Krylov space, of any square A."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from wonderland.implicit.limits import check_whole
from wonderland.implicit.loops import repeat
from wonderland.implicit.systems.krylov import Square, norm, ratio
from wonderland.implicit.systems.solvers_direct import substitute
from wonderland.numpy.at import at


def written(vectors: Any, k: Any, v: Any) -> Any:
    """The vectors with v as number k: the array itself, which is ours, where nothing is traced."""
    if type(vectors) is type(v) is np.ndarray and isinstance(k, int):
        vectors[k] = v
        return vectors
    return at(vectors)[k].set(v)


@dataclass(frozen=True)
class GMRES(Square):
    """Generalised minimal residuals (Saad and Schultz, 1986), started again after `restart` iterations: any square A.

    It keeps restart + 1 vectors. The preconditioner is on the right, A M y = b, x = M y, so that residuals are those of
    A x = b. Vectors are made orthogonal twice by classical Gram-Schmidt, two products with all of them at once, which
    is as good as Householder's reflections.
    """

    restart: int = 30
    progress: ClassVar[float] = 1.0  # attempts are short: any that makes the residual smaller may have another one

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.restart, "GMRES: restart", 1)

    def attempt(self, A: Callable, M: Callable, r: Any, goal: Any, budget: Any) -> tuple[Any, Any]:
        """d with A d about r, and how many iterations it took."""
        (n,), dtype = r.shape, r.dtype
        m = max(min(self.restart, n), 1)  # 1 of no unknowns
        eps = np.finfo(dtype).eps
        size = norm(r)

        # A M V_k = V_k+1 H. The rotations that make H triangular are kept as their product Q: Q H = R, Q size e_1 = g.
        def unfinished(state: Any) -> Any:
            *_, estimate, count, ended = state
            return ~(estimate <= goal) & (count < np.minimum(m, budget)) & ~ended

        def step(state: Any) -> Any:
            basis, rotations, triangle, used, estimate, k, _ = state
            w = A(M(basis[k]))
            before = norm(w)
            known = basis[: k + 1] if isinstance(k, int) else basis  # the others are zeros
            h = np.conj(known) @ w
            w = w - h @ known
            again = np.conj(known) @ w
            w = w - again @ known
            after = norm(w)
            after = np.where(after <= eps * before, 0 * after, after)  # nothing new is left
            column = rotations[:, : known.shape[0]] @ (h + again)
            a = column[k]
            length = np.hypot(abs(a), after)
            singular = ~(length > 10 * eps * before)
            above, below = rotations[k], rotations[k + 1]
            c, s = ratio(a, length), ratio(after, length)
            turned = at(rotations)[k].set(np.conj(c) * above + s * below)
            turned = at(turned)[k + 1].set(c * below - s * above)
            column = np.where(np.arange(m) < k, column[:m], 0 * column[:m]) + length * (np.arange(m) == k)
            triangle = np.where(singular, triangle, at(triangle)[:, k].set(column))
            rotations = np.where(singular, rotations, turned)
            estimate = np.where(singular, estimate, abs(rotations[k + 1, 0]) * size)
            basis = written(basis, k + 1, ratio(w, after))
            return basis, rotations, triangle, used + ~singular, estimate, k + 1, singular | (after == 0)

        basis = written(np.zeros((m + 1, n), dtype), 0, ratio(r, size))
        state = (basis, np.eye(m + 1, dtype=dtype), np.eye(m, dtype=dtype), 0, size, 0, np.False_)
        basis, rotations, triangle, used, _, count, _ = repeat(unfinished, step, state)
        g = np.where(np.arange(m) < used, rotations[:m, 0] * size, dtype.type(0))
        y = substitute(triangle, g, lower=False, adjoint=False)
        return M(y @ basis[:m]), count
