"""Picard's iteration: x becomes g(x)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wonderland.implicit.loops import repeat
from wonderland.implicit.methods.convergence import beginning
from wonderland.implicit.tasks import Task


@dataclass(frozen=True)
class Picard:
    """x becomes (1 - damping) g(x) + damping x, until they differ by `tol` of x, number by number."""

    damping: float = 0.0

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The solution, the number of steps, and the last error, relative."""

        def step(state: Any) -> Any:
            x, course = state
            s = problem.mapped(x) - x
            return x + (1 - self.damping) * s, course.after(x, s, tol)

        x, course = repeat(lambda state: state[1].unfinished(tol, maxiter), step, (x, beginning(x)))
        return x, course.count, course.error
