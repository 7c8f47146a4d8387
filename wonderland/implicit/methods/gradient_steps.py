"""Minima over a set, or with a function that has kinks: gradient steps, and a projection or a proximal operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.core.errors import ArgumentError, check_function
from wonderland.core.functions import handles
from wonderland.core.tracer import unwrap
from wonderland.implicit.equations import Flat
from wonderland.implicit.loops import repeat
from wonderland.implicit.methods.convergence import beginning, square
from wonderland.implicit.methods.descents import DIGITS, first_length
from wonderland.implicit.solving import Setting
from wonderland.implicit.tasks import Task
from wonderland.transform.trees import tree_ravel

SHORTER, LONGER = 0.5, 1.1  # by these factors the length of steps changes
SMALLEST = 1e-20  # of the first length


@dataclass(frozen=True)
class ProximalGradient:
    """The minimum of f(x) + h(x): x becomes prox(y - t grad f(y), t), where y is x and some of the last step.

    `prox(x, strength)` is the proximal operator of h, argmin over y of strength h(y) + |y - x|^2 / 2, of trees like x:
    `lambda x, t: wl.implicit.prox_l1(x, 0.1 * t)` for h = 0.1 |x|_1. Lengths t are found by backtracking, and grow
    again; the acceleration is Nesterov's (A. Beck and M. Teboulle, A fast iterative shrinkage-thresholding algorithm,
    2009), started again when it goes back (B. O'Donoghue and E. Candes, 2015). It has converged when each number of x
    moves by less than `tol` of itself, or some steps are below `tol` of the largest x so far.

    The equations of the solution are x = prox(x - grad f(x), 1); derivatives are with respect to what f and `prox`
    close over as well. Where x is on a kink of `prox` (a weakly active constraint), the derivative is the one that
    `prox` has there.
    """

    prox: Callable

    def __post_init__(self) -> None:
        check_function(self.prox, "ProximalGradient")

    def operator(self, setting: Setting) -> Flat:
        """(*theta, strength, x) -> prox(x, strength), on vectors."""
        return on_vectors(setting, self.prox)

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The minimum, the number of steps, and the last error, relative."""
        return accelerated(problem, x, tol, maxiter)


@dataclass(frozen=True)
class ProjectedGradient:
    """The minimum of f over a convex set: as `ProximalGradient`, with the `projection` on the set (of trees like x).

    `ProjectedGradient(lambda x: wl.implicit.project_box(x, low, high))`.
    """

    projection: Callable

    def __post_init__(self) -> None:
        check_function(self.projection, "ProjectedGradient")

    def operator(self, setting: Setting) -> Flat:
        """(*theta, strength, x) -> the projection of x, on vectors."""
        return on_vectors(setting, lambda x, strength: self.projection(x))

    def solve(self, problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
        """The minimum, the number of steps, and the last error, relative."""
        return accelerated(problem, x, tol, maxiter)


def on_vectors(setting: Setting, prox: Callable) -> Flat:
    """(*theta, strength, x) -> prox(x, strength) for vectors and values, with what it closes over in theta."""
    count = len(setting.hoisted.values)

    def flat(*args: Any) -> Any:
        *theta, strength, x = args
        tree, strength = setting.unravel(handles([x])[0]), handles([strength])[0]
        vector = tree_ravel(setting.hoisted.running(prox, theta[:count], tree, strength))[0]
        if vector.shape != setting.x.shape:
            raise ArgumentError(
                f"{setting.name}: a projection or proximal operator returns as many numbers as x has, "
                f"{setting.x.shape[0]}, got {vector.shape[0]}"
            )
        return unwrap(vector if vector.dtype == setting.x.dtype else vector.astype(setting.x.dtype))

    return flat


def accelerated(problem: Task, x: Any, tol: float, maxiter: int) -> tuple[Any, Any, Any]:
    """The minimum, the number of steps, and the last error, relative."""
    rounding = DIGITS * float(np.finfo(x.dtype).eps)

    def step(state: Any) -> Any:
        x, y, momentum, t, course = state
        value, gradient = problem.objective(y), problem.gradient(y)

        def tried(t: Any) -> Any:
            new = problem.proximal(y - t * gradient, t)
            move = new - y
            there = problem.objective(new)
            below = there <= value + np.sum(gradient * move) + square(move) / (2 * t)
            # Where the digits of f end, gradients tell its curvature along the step.
            same = np.abs(there - value) <= 100 * rounding * np.abs(value)
            bent = np.sum((problem.gradient(new) - gradient) * move)
            return new, t, np.where(same, bent <= square(move) / t, below)

        new, t, found = repeat(lambda s: ~s[2] & (s[1] > least), lambda s: tried(SHORTER * s[1]), tried(t))
        course = course.after(y, new - y, tol, going=found)
        back = np.sum((y - new) * (new - x)) > 0
        momentum = np.where(back, 1, momentum)
        following = (1 + np.sqrt(1 + 4 * momentum * momentum)) / 2
        further = new + (momentum - 1) / following * (new - x)
        keep = lambda a, b: np.where(found, a, b)
        return keep(new, x), keep(further, y), following, LONGER * t, course

    one = np.ones((), x.dtype)
    x = problem.proximal(x, SMALLEST * one)  # into the set
    first = one * 10 * first_length(x, problem.gradient(x))
    least = SMALLEST * first
    start = (x, x, one, first, beginning(x))
    x, *_, course = repeat(lambda state: state[-1].unfinished(tol, maxiter), step, start)
    return x, course.count, course.error
