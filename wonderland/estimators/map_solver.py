"""Minima of sum_i f_i(x_i'w) + h(w) + kinks: Newton's method on all but the kinks, which steps keep as they are.

In: a design (n, d), functions of scores (n,) and of coefficients (d,) as NumPy code, `Kinks`. Out: coefficients. The
f_i and h are differentiated by `wonderland`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wonderland.estimators.kinks import Kinks, factored, kinked_minimum
from wonderland.transform.derivatives import grad, jvp
from wonderland.transform.second_order import hessian


@dataclass
class ModeProblem:
    """The function to minimise, at coefficients (d,)."""

    design: np.ndarray  # (n, d)
    losses: Callable[[Any], Any]  # of scores (n,): their losses (n,), without kinks
    weight: np.ndarray  # (n,)
    penalty: Callable[[Any], Any]  # of coefficients (d,): what is added, without kinks
    kinks: Kinks | None

    def kink_value(self, w: np.ndarray) -> float:
        return 0.0 if self.kinks is None else self.kinks.value(w)

    def value(self, w: np.ndarray) -> float:
        return float(np.sum(self.weight * self.losses(self.design @ w))) + float(self.penalty(w)) + self.kink_value(w)

    def model(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and Hessian of all but the kinks; a Hessian that isn't positive is made so."""
        scores = self.design @ w
        slope = grad(lambda scores: np.sum(self.weight * self.losses(scores)))
        first, bend = (np.asarray(a) for a in jvp(slope, (scores,), (np.ones_like(scores),)))
        of_penalty = np.asarray(hessian(self.penalty)(w))
        gradient = self.design.T @ first + np.asarray(grad(self.penalty)(w))
        whole = (self.design.T * bend) @ self.design + of_penalty
        if positive(whole):
            return gradient, whole
        # Each part without its concave directions: steps still go down.
        values, vectors = np.linalg.eigh(of_penalty)
        whole = (self.design.T * np.maximum(bend, 0)) @ self.design + (vectors * np.maximum(values, 0)) @ vectors.T
        return gradient, whole + 1e-10 * np.diag(np.diag(whole))


def positive(matrix: np.ndarray) -> bool:
    """Is it positive definite, by more than rounding, whatever the units of its coordinates?"""
    diagonal = np.diag(matrix)
    if not np.all(diagonal > 0):
        return False
    units = np.sqrt(diagonal)
    try:
        return bool(np.min(np.diag(np.linalg.cholesky(matrix / np.outer(units, units)))) > 1e-7)
    except np.linalg.LinAlgError:
        return False


def minimised(problem: ModeProblem, w: np.ndarray, max_iter: int, tol: float) -> tuple[np.ndarray, int | None]:
    """(w, steps): down until the model promises less than `tol` of the value; steps are None if they were too few."""
    with np.errstate(over="ignore", invalid="ignore"):  # a step too long may overflow, and is made shorter
        value = problem.value(w)
        for steps in range(1, max_iter + 1):
            gradient, bend = problem.model(w)
            if problem.kinks is None:
                new = w - factored(bend)(gradient)
            else:
                new = kinked_minimum(gradient, bend, w, problem.kinks)
            step = new - w
            promised = -(gradient @ step) - (problem.kink_value(new) - problem.kink_value(w))
            if promised <= tol * max(1.0, abs(value)):
                return new, steps
            size, there = 1.0, problem.value(new)
            while not there <= value - 1e-4 * size * promised and size > 1e-10:
                size /= 2
                there = problem.value(w + size * step)
            if there <= value:
                w, value = (new if size == 1 else w + size * step), there
    return w, None
